#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The verbs API beside its neighbours, on loopback: perftest's unmodified programs under
# `xsock run --verbs` (CRC on), plain TCP (xsock_bench --tcp-only), libfabric's tcp provider
# (fi_pingpong) and UCX over tcp (ucx_perftest). Every round measures each of them once, one after the
# other, so that what disturbs the machine disturbs all; server and client have a processor each.
# Prints, for each figure, least, median and most, and the same of its ratio to TCP in its round.
#   verbs.sh BUILD [ROUNDS [latency|events|bandwidth|rate ...]]
#
# fi_pingpong keeps one message in flight: its rate and bandwidth are what that allows. A Read is
# compared with a TCP round trip. For a good comparison run this at `nice -n -20`.
set -u -o pipefail
case ${1:-} in
'' | -h | --help) sed -n '3,12s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
build=$(cd "$1" && pwd) || exit 2
rounds=${2:-7}
shift $(($# < 2 ? $# : 2))
only=${*:-latency events bandwidth rate}
needed=(rping ib_send_lat ib_write_lat ib_read_lat ib_write_bw ib_send_bw ss taskset)
[ "$only" = events ] || needed+=(fi_pingpong ucx_perftest)
for program in "${needed[@]}"; do
    command -v $program >/dev/null || { echo "SKIPPED: no $program here"; exit 77; }
done
[ -e "$build/libxsock/verbs/libibverbs.so.1" ] && [ -x "$build/bench/xsock_bench" ] ||
    { echo "SKIPPED: the verbs API or xsock_bench is not built"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-bench.XXXXXX")
server=
# shellcheck disable=SC2317  # called by the trap
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
export XSOCK_LOG=off XSOCK_SHM=${XSOCK_SHM-off} XSOCK_KERNEL=${XSOCK_KERNEL-off}
export UCX_TLS=tcp UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
if [ "$(nproc)" -ge 2 ]; then
    on_server=(taskset -c 0) on_client=(taskset -c 1)
else
    on_server=() on_client=()
fi

# pair SERVER-COMMAND @ CLIENT-COMMAND: both ends, on a free port in the place of PORT; the client's
# output is in $work/client.
pair() {
    local ends=() port client
    port=$((20000 + RANDOM % 20000))
    while ss -Htan "sport = :$port" | grep -q .; do port=$((20000 + RANDOM % 20000)); done
    while [ "$1" != @ ]; do ends+=("${1//PORT/$port}") && shift; done
    shift
    "${on_server[@]}" "${ends[@]}" >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        ss -Hltn "sport = :$port" | grep -q . && break
        sleep 0.05
    done
    timeout -k 2 60 "${on_client[@]}" "${@//PORT/$port}" >"$work/client" 2>&1
    client=$?
    { [ $client = 0 ] && wait "$server"; } || {
        kill "$server" 2>/dev/null
        wait "$server" 2>/dev/null
    }
    server=
    [ $client = 0 ] || { echo "failed: $*" >&2 && tail -n 3 "$work/client" >&2; }
    return $client
}

# figure GROUP NAME VALUE: remembers it.
figure() { [ -z "$3" ] || echo "$3" >>"$work/$1.$2"; }

# perftest PROGRAM COLUMN ARGS...: prints that column of the line with the figures.
perftest() {
    local program=$1 column=$2
    shift 2
    local run=("$build/tools/xsock" run --verbs -- "$program" -R -F -p PORT "$@")
    pair "${run[@]}" @ "${run[@]}" 127.0.0.1 &&
        awk -v c="$column" '/^ *[0-9]+ +[0-9]+ +[0-9.]/ { v = $c } END { print v }' "$work/client"
}
# ucx COLUMN ARGS...
ucx() {
    local column=$1
    shift
    pair ucx_perftest -p PORT @ ucx_perftest 127.0.0.1 -p PORT "$@" &&
        awk -v c="$column" '/^Final:/ { v = $c } END { print v }' "$work/client"
}
# fabric COLUMN SIZE NUMBER
fabric() {
    pair fi_pingpong -p tcp -e msg -B PORT -S "$2" -I "$3" @ \
        fi_pingpong -p tcp -e msg -P PORT -S "$2" -I "$3" 127.0.0.1 &&
        awk -v c="$1" '/^[0-9]+[kmg]? / { v = $c } END { print v }' "$work/client"
}
tcp() {  # tcp ROW
    "$build/bench/xsock_bench" --tcp-only --rows "$1" --rounds 1 --json |
        sed -n 's/.*"tcp": \([0-9.]*\),.*/\1/p'
}
times() { awk -v x="${1:-}" -v y="$2" 'BEGIN { if (x != "") print x * y }'; }

latency() {
    local t
    t=$(tcp send_lat_64_poll)
    figure "64 B, one way, us" "TCP, polling" "$t"
    figure "64 B, one way, us" ib_send_lat "$(perftest ib_send_lat 5 -s 64 -n 50000)"
    figure "64 B, one way, us" ib_write_lat "$(perftest ib_write_lat 5 -s 64 -n 50000)"
    figure "64 B, one way, us" "UCX tcp, tag_lat" "$(ucx 3 -t tag_lat -s 64 -n 50000 -w 2000)"
    figure "64 B, one way, us" "libfabric tcp, fi_pingpong" "$(fabric 7 64 20000)"
    figure "64 B, there and back, us" "TCP, polling" "$(times "$t" 2)"
    figure "64 B, there and back, us" ib_read_lat "$(perftest ib_read_lat 5 -s 64 -n 50000)"
}
# Programs that sleep until their completion channel tells them something.
events() {
    local rounds=20000 begin run
    figure "64 B, asleep between messages, us" "TCP, blocking" "$(tcp send_lat_64_block)"
    figure "64 B, asleep between messages, us" "ib_send_lat -e" "$(perftest ib_send_lat 5 -s 64 -n 20000 -e)"
    figure "64 B, asleep between messages, us" "ib_send_bw -e, a message" \
        "$(perftest ib_send_bw 5 -s 64 -n 100000 -N -e | awk '{ print 1 / $1 }')"
    run=("$build/tools/xsock" run --verbs -- rping -a 127.0.0.1 -p PORT -C $rounds -S 64)
    begin=${EPOCHREALTIME/./}
    # (with its connection and its end)
    pair "${run[@]}" -s @ "${run[@]}" -c && figure "64 B, asleep between messages, us" \
        "rping, a round" "$(times "$((${EPOCHREALTIME/./} - begin))" "$(awk "BEGIN { print 1 / $rounds }")")"
}
bandwidth() {
    figure "bandwidth, GB per s" "TCP, 256 KiB calls" "$(tcp write_bw_1m)"
    figure "bandwidth, GB per s" "ib_write_bw, 64 KiB" \
        "$(times "$(perftest ib_write_bw 4 -s 65536 -n 40000 -N --report_gbits)" 0.125)"
    figure "bandwidth, GB per s" "ib_write_bw, 1 MiB" \
        "$(times "$(perftest ib_write_bw 4 -s 1048576 -n 3000 -N --report_gbits)" 0.125)"
    figure "bandwidth, GB per s" "UCX tcp, tag_bw, 1 MiB" \
        "$(times "$(ucx 7 -t tag_bw -s 1048576 -n 2000 -w 50)" 0.001048576)"
    figure "bandwidth, GB per s" "libfabric tcp, fi_pingpong, 1 MiB" "$(times "$(fabric 6 1048576 1000)" 0.001)"
}
rate() {
    figure "64 B messages, million per s" "TCP, a send() for each" "$(tcp rate_64_256)"
    figure "64 B messages, million per s" ib_send_bw "$(perftest ib_send_bw 5 -s 64 -n 1000000 -N)"
    figure "64 B messages, million per s" ib_write_bw "$(perftest ib_write_bw 5 -s 64 -n 1000000 -N)"
    figure "64 B messages, million per s" "UCX tcp, tag_bw" \
        "$(times "$(ucx 9 -t tag_bw -s 64 -n 300000 -w 2000)" 0.000001)"
    figure "64 B messages, million per s" "libfabric tcp, fi_pingpong" "$(fabric 8 64 20000)"
}

for ((round = 1; round <= rounds; ++round)); do
    for group in $only; do "$group"; done
done

# One table for each group; the first line of each is TCP, whose figure of the same round divides.
order=("TCP, polling" "TCP, blocking" "ib_send_lat -e" "ib_send_bw -e, a message" "rping, a round" "TCP, 256 KiB calls" "TCP, a send() for each" ib_send_lat ib_write_lat ib_read_lat
    ib_send_bw ib_write_bw "ib_write_bw, 64 KiB" "ib_write_bw, 1 MiB" "UCX tcp, tag_lat" "UCX tcp, tag_bw"
    "UCX tcp, tag_bw, 1 MiB" "libfabric tcp, fi_pingpong" "libfabric tcp, fi_pingpong, 1 MiB")
three() { sort -g | awk '{ v[NR] = $1 } END { if (NR) printf "%9.3g %9.3g %9.3g", v[1], v[int((NR + 1) / 2)], v[NR] }'; }
failed=0
for group in "64 B, one way, us" "64 B, there and back, us" "64 B, asleep between messages, us" "bandwidth, GB per s" "64 B messages, million per s"; do
    base=
    for name in "${order[@]}"; do
        file=$work/$group.$name
        [ -s "$file" ] || continue
        if [ -z "$base" ]; then
            base=$file
            printf '\n%-36s %9s %9s %9s   %9s %9s %9s\n' "$group" least median most "/ TCP" median most
        fi
        ratio=
        if [ "$file" != "$base" ] && [ "$(wc -l <"$file")" = "$(wc -l <"$base")" ]; then
            ratio=$(paste "$file" "$base" | awk '{ print $1 / $2 }' | three)
        fi
        printf '%-36s %s   %s\n' "$name" "$(three <"$file")" "$ratio"
        [ "$(wc -l <"$file")" = "$rounds" ] || failed=1
    done
done
[ $failed = 0 ] || echo "some rounds are missing"
exit $failed
