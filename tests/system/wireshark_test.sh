#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What goes over the wire, as Wireshark reads it: every operation, in both revisions, with and
# without markers and CRCs, and each way to end, is recorded by XSOCK_PCAP at both ends and by
# tcpdump between them.
# tshark, which knows MPA, DDP and RDMAP from elsewhere, finds nothing malformed and no wrong CRC;
# the opcodes are the expected ones; and `xsock decode` says the same of every frame as tshark does.
# Exit status 77: this machine lacks something.
#   wireshark_test.sh SYSTEM-WIRE XSOCK [ROW]     all rows, or that one
set -u -o pipefail
wire=${1:?usage: wireshark_test.sh SYSTEM-WIRE XSOCK [ROW]}
xsock=${2:?usage: wireshark_test.sh SYSTEM-WIRE XSOCK [ROW]}
only=${3:-}
here=$(cd "$(dirname "$0")" && pwd) || exit 1
skip() {
    echo "SKIP  $*"
    exit 77
}
if [ "${XSOCK_WIRESHARK_INSIDE:-}" != 1 ]; then
    for tool in tshark python3; do
        command -v "$tool" >/dev/null || skip "no $tool here"
    done
    # What a recording needs is no right at all; tcpdump does, and a network of its own.
    if [ "$(id -u)" = 0 ] && command -v tcpdump >/dev/null && command -v ip >/dev/null &&
        unshare -n true 2>/dev/null; then
        XSOCK_WIRESHARK_INSIDE=1 exec unshare -n "$0" "$@"
    fi
fi

work=$(mktemp -d) || exit 1
chmod 755 "$work"
dump=
cleanup() {
    [ -z "$dump" ] || kill "$dump" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "FAIL  $*"
    exit 1
}

tcpdump_works=no
if [ "${XSOCK_WIRESHARK_INSIDE:-}" = 1 ]; then
    ip link set lo up || skip "lo does not come up"
    tcpdump_works=yes
fi

# Guesses of tshark about what Sends carry have no place here: ours carry patterns.
dissect=(tshark -n -o tcp.try_heuristic_first:TRUE --disable-protocol rpcordma
    --disable-protocol smb_direct)

# CRCS: good (all of them, says tshark), none (there are none), any (either), alone (beyond tshark:
# only decode looks), no (not looked at).
check() { # NAME FILE CRCS FIRST SECOND
    local name=$1 file=$2 crcs=$3 first=$4 second=$5 fpdus good
    "$xsock" decode --check --json "$file" >"$work/decode.json" 2>"$work/decode.err" ||
        fail "$name: xsock decode --check: $(cat "$work/decode.err")
$("$xsock" decode "$file")"
    if [ "$crcs" = alone ]; then
        python3 -B "$here/tshark_compare.py" "$work/decode.json" - "$first" "$second" ||
            fail "$name: not as expected"
        echo "ok    $name: read by decode alone"
        return
    fi
    "${dissect[@]}" -r "$file" -V >"$work/text" 2>"$work/tshark.err" ||
        fail "$name: tshark: $(cat "$work/tshark.err")"
    grep -q iWARP "$work/text" || skip "this tshark does not know iWARP"
    if grep -n -B3 -A3 'Malformed' "$work/text"; then fail "$name: malformed"; fi
    if grep -n 'Bad CRC\|BAD CRC' "$work/text"; then fail "$name: a CRC is wrong"; fi
    grep -q 'Request frame header' "$work/text" || fail "$name: tshark saw no MPA Request"
    grep -q 'Reply frame header' "$work/text" || fail "$name: tshark saw no MPA Reply"
    "${dissect[@]}" -r "$file" -T fields -e frame.number -e iwarp_mpa.ulpdulength \
        -e iwarp_rdma.opcode -e iwarp_ddp.last_flag >"$work/tsv" 2>/dev/null ||
        fail "$name: tshark"
    python3 -B "$here/tshark_compare.py" "$work/decode.json" "$work/tsv" "$first" "$second" ||
        fail "$name: they differ"
    fpdus=$(python3 -B "$here/tshark_compare.py" --count "$work/decode.json")
    good=$(grep -c 'Good CRC' "$work/text")
    case $crcs in
    good) [ "$good" = "$fpdus" ] || fail "$name: $good CRCs are good, of $fpdus FPDUs" ;;
    none) [ "$good" = 0 ] || fail "$name: CRCs where none were agreed on" ;;
    esac
    echo "ok    $name: $fpdus FPDUs"
}

ran=0
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }
row() { # NAME CRCS-RECORDED CRCS-CAPTURED FIRST SECOND [ARGUMENT...]
    local name=$1 recorded=$2 captured=$3 first=$4 second=$5 i file
    shift 5
    # Every other row records compressed.
    if [ "$suffix" = .gz ]; then suffix=; else suffix=.gz; fi
    wanted "$name" || return 1
    current=$name
    rm -f "$work"/*.pcapng* "$work"/net.pcap
    if [ "$captured" != no ] && [ "$tcpdump_works" = yes ]; then
        : >"$work/tcpdump.err"
        # -Z root: dropping rights would lose the folder.
        tcpdump -Z root -i lo -s 0 -B 65536 -U --immediate-mode -w "$work/net.pcap" tcp \
            2>"$work/tcpdump.err" &
        dump=$!
        for ((i = 0; i < 400; i++)); do
            grep -q '^tcpdump: listening' "$work/tcpdump.err" && break
            sleep 0.05
        done
    fi
    XSOCK_PCAP="$work/%p.pcapng$suffix" timeout 600 "$wire" "$@" || fail "$name: $wire $*"
    if [ -n "$dump" ]; then
        sleep 0.3
        kill -INT "$dump"
        wait "$dump"
        dump=
    fi
    i=0
    for file in "$work"/*.pcapng"$suffix"; do
        i=$((i + 1))
        check "$name, recorded $i" "$file" "$recorded" "$first" "$second"
    done
    [ "$i" = 2 ] || fail "$name: $i recordings of two processes"
    if [ "$captured" != no ] && [ "$tcpdump_works" = yes ]; then
        if grep -q '^0 packets dropped' "$work/tcpdump.err"; then
            check "$name, captured" "$work/net.pcap" "$captured" "$first" "$second"
        else
            echo "skip  $name, captured: $(tail -1 "$work/tcpdump.err")"
        fi
    fi
    ran=$((ran + 1))
}

# Two kernels' siw, recorded by others.
if wanted "recorded by others"; then
    for file in "$here"/../vectors/*.pcap; do
        check "${file##*/}" "$file" any '?' '?'
        ran=$((ran + 1))
    done
fi

# What each end sends: Write 0, Read Request 1, Read Response 2, Send 3, with Invalidate 4, with SE 5,
# Terminate 7, Immediate Data 8, Atomic Request a, Atomic Response b, Send with Immediate c, with SE d (both
# unknown to tshark, as f, the extension frame).
client=f354330011aa08cd32
server=f322bb013
# Without extension frames: a Write, the probe, in place of the frame, and no Send with Immediate.
without=0354330011aa0832
suffix=.gz
# Between xsocks TCP may cut the stream anywhere, and tshark 4.0 loses FPDUs that do not begin a
# segment: small FPDUs, one operation after the other, fit a segment of lo together.
export XSOCK_FPDU_LIMIT=1400

row "revision 2" good good $client $server
decoded() { grep -Eq "$1" "$work/decode.json" || fail "$current: decode does not say $1"; }
if row "revision 1" good good $client $server --revision 1; then decoded '"revision": 1'; fi
row "IPv6" good good $client $server --address ::1
row "no CRC" none none $client $server --no-crc
if row "Terminate" good good ${client}1 ${server}7 --end terminate; then
    grep -q 'Terminate' "$work/text" || fail "tshark saw no Terminate"
    grep -q '"meant": "rfc"' "$work/decode.json" || fail "decode took our Terminate for siw's"
fi
row "reset" good good $client $server --end abort
row "peer-to-peer" good good "f0${client#f}" $server --rtr 2
export XSOCK_EXTENSIONS=0
row "no extension frames" good good $without "${server#f}"
unset XSOCK_EXTENSIONS

# Full-size FPDUs, and markers. tshark 4.0 counts markers from the front of each segment, so several
# FPDUs in one are beyond it; once one end asks for markers it looks for them in both directions; and
# it wants one more when an FPDU ends where the next marker is due (which by RFC 5044 §4.3 belongs
# to the next FPDU; with these sizes no FPDU does).
unset XSOCK_FPDU_LIMIT
# Where there are markers it also expects one ahead of the extension frame, which has none, and then
# finds no FPDU at all.
marked='"markers": [1-9]'
if row "markers" alone alone $client $server --client-markers --server-markers; then
    decoded "$marked"
fi
if row "markers to the client" alone alone $client $server --client-markers; then decoded "$marked"; fi
if row "markers to the server" alone alone $client $server --server-markers; then decoded "$marked"; fi
export XSOCK_EXTENSIONS=0
if row "markers, no extension frames" good alone $without "${server#f}" \
    --client-markers --server-markers; then
    decoded "$marked"
fi
if row "markers, revision 1" good alone $without "${server#f}" \
    --client-markers --server-markers --revision 1; then
    decoded "$marked"
    decoded '"revision": 1'
fi
if row "markers, no CRC" none alone $without "${server#f}" \
    --client-markers --server-markers --no-crc; then
    decoded "$marked"
fi
unset XSOCK_EXTENSIONS
row "large" good alone $client $server --bytes 200000
if row "large, markers" alone alone $client $server --bytes 200000 \
    --client-markers --server-markers; then
    decoded "$marked"
fi
[ $ran -gt 0 ] || fail "no row $only"
