#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What others see on the wire: examples run in a network namespace of their own while tcpdump looks,
# and tshark, which knows MPA, DDP and RDMAP from elsewhere, dissects every FPDU: none malformed,
# every CRC right, the expected opcodes there. Exit status 77: this machine lacks something.
#   capture_test.sh DIRECTORY-OF-THE-BUILT-EXAMPLES
set -u -o pipefail
bin=$(cd "${1:?usage: capture_test.sh DIRECTORY}" && pwd) || exit 1
skip() {
    echo "SKIP  $*"
    exit 77
}
if [ "${XSOCK_CAPTURE_INSIDE:-}" != 1 ]; then
    for tool in tshark tcpdump unshare ip; do
        command -v "$tool" >/dev/null || skip "no $tool here"
    done
    [ "$(id -u)" = 0 ] || skip "not root"
    unshare -n true 2>/dev/null || skip "no network namespaces here"
    XSOCK_CAPTURE_INSIDE=1 exec unshare -n "$0" "$bin"
fi

work=$(mktemp -d) || exit 1
chmod 755 "$work"
pids=()
cleanup() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "FAIL  $*"
    exit 1
}
ip link set lo up || skip "lo does not come up"
# tshark 4.0 finds FPDUs only where segments begin with one, as RNICs send them. Between xsocks they
# may be cut anywhere, so this traffic is such that whatever is sent at once fits one segment of lo.
export XSOCK_FPDU_LIMIT=1400

capture() { # NAME COMMAND...: runs a command while tcpdump writes $work/NAME.pcap
    local name=$1 i
    shift
    : >"$work/tcpdump.err"  # before the search below: the one before wrote here too
    : >"$work/tcpdump.err"  # not what the one before said
    # -Z root: dropping rights would lose the folder.
    tcpdump -Z root -i lo -s 0 -B 65536 -U --immediate-mode -w "$work/$name.pcap" tcp 2>"$work/tcpdump.err" &
    local dump=$!
    pids+=("$dump")
    for ((i = 0; i < 100; i++)); do
        grep -q '^tcpdump: listening' "$work/tcpdump.err" && break
        sleep 0.05
    done
    "$@" || fail "$name: $*"
    sleep 0.3
    kill -INT "$dump"
    wait "$dump"
    grep -q '^0 packets dropped' "$work/tcpdump.err" || skip "$(tail -1 "$work/tcpdump.err")"
}

both_ends() { # "SERVER ARGUMENTS" "CLIENT ARGUMENTS"; PORT stands for the port
    local port= i server
    : >"$work/server"  # before the search for the port: an older server wrote here too
    # shellcheck disable=SC2086
    (cd "$work" && exec timeout 60 "$bin"/$1) >"$work/server" &
    server=$!
    pids+=("$server")
    for ((i = 0; i < 200; i++)); do
        port=$(sed -n 's/^listening on port \([0-9]*\)$/\1/p' "$work/server")
        [ -n "$port" ] && break
        sleep 0.05
    done
    # shellcheck disable=SC2086
    (cd "$work" && exec timeout 30 "$bin"/${2//PORT/127.0.0.1 $port}) >/dev/null || return 1
    sleep 0.2
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    return 0
}

# A busy machine cuts segments elsewhere than at the ends of FPDUs (the receive window, a merge in the
# queue). tshark then takes zeros of the payload for empty FPDUs, whose CRC is this one; we never send
# such. Status 2: that and nothing worse, so capture once more.
nothing_but_zeros='0x00000000 (Bad CRC32, should be 0xc74b6748)'
dissect() { # NAME OPCODE...: the words tshark must have used
    local name=$1 word good
    shift
    tshark -r "$work/$name.pcap" -o tcp.try_heuristic_first:TRUE -V >"$work/$name.txt" \
        2>"$work/tshark.err" || fail "tshark: $(cat "$work/tshark.err")"
    [ -s "$work/$name.txt" ] || fail "$name: nothing was captured"
    grep -q 'iWARP' "$work/$name.txt" || skip "this tshark does not know iWARP"
    if grep -n 'Malformed' "$work/$name.txt"; then fail "$name: malformed"; fi
    if grep '(Bad CRC\|BAD CRC' "$work/$name.txt" >"$work/bad"; then
        grep -qvF "$nothing_but_zeros" "$work/bad" || return 2
        cat "$work/bad"
        fail "$name: a CRC is wrong"
    fi
    for word in "$@"; do
        grep -q -- "$word" "$work/$name.txt" || fail "$name: tshark never said '$word'"
    done
    good=$(grep -c 'Good CRC' "$work/$name.txt")
    [ "$good" -gt 0 ] || fail "$name: no FPDU has a CRC"
    echo "ok    $name: $good FPDUs"
}

seen() { # NAME "SERVER ARGUMENTS" "CLIENT ARGUMENTS" OPCODE...
    local name=$1 server=$2 client=$3 attempt
    shift 3
    for attempt in 1 2 3 4 5; do
        capture "$name" both_ends "$server" "$client"
        dissect "$name" "$@" && return
        echo "      $name: tshark lost its place, attempt $attempt"
    done
    fail "$name: tshark found no FPDUs at the beginnings of segments"
}

seen sends "async server 0" "async client PORT 500 64 4" 'Request frame header' 'OpCode: Send'
seen segmented "async server 0" "async client PORT 200 5000 1" 'OpCode: Send'
seen reads "kv server 0 1000 0" "kv client PORT 300 1" 'OpCode: Read Request' 'OpCode: Read Response'
mkdir "$work/to"
head -c 1000 /dev/urandom >"$work/file"
seen writes "filecopy server 0 to" "filecopy client --write PORT file" 'OpCode: Write' 'OpCode: Send'
