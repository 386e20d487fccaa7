#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Real programs under the overlay, passed through, beside themselves without it: redis-benchmark, wrk
# on nginx, iperf3. Two servers run all the time, one under the overlay; clients take turns, theirs
# with theirs. Prints the ratio with/without of each round: min, median, max.
#   overlay_programs.sh BUILD [ROUNDS [redis|wrk|iperf3 ...]]
case ${1:-} in
'' | -h | --help) sed -n '3,7s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
build=$(cd "$1" && pwd) || exit 2
rounds=${2:-9}
shift $(($# < 2 ? $# : 2))
only=" $* "
. "$(dirname "$0")/programs_lib.sh"
preload=$build/libxsock/libxsock-preload.so
[ -e "$preload" ] || die "$preload is not built"
under() {
    prefix=()
    [ "$1" = without ] || prefix=(env "LD_PRELOAD=$preload")
}

redis_figure() {
    run_client "$1" redis-benchmark -p "$port" -n 30000 -c 30 -q -t get --csv |
        redis_csv '' | sed 's/get/redis/'
}
wrk_server() { nginx_server "$1"; }
wrk_figure() {
    run_client "$1" wrk -t 1 -c 16 -d 1s "http://127.0.0.1:$port/small" | wrk_requests wrk
}
iperf3_server() { serve "$1" iperf3 -s -p "$port" -B 127.0.0.1; }
iperf3_figure() {
    run_client "$1" iperf3 -c 127.0.0.1 -p "$port" -t 1 --json | python3 -c '
import json, sys
print("iperf3", json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"] / 8e9)'
}

python3 "$here/table.py" head without with
for program in redis wrk iperf3; do
    [ -z "${only// /}" ] || [[ $only == *" $program "* ]] || continue
    for mode in without with; do
        port=$(free_port)
        ports[$mode]=$port
        "${program}_server" $mode
    done
    take_turns without with "${program}_figure" >"$work/figures"
    unit=k/s
    [ $program != iperf3 ] || unit=GB/s
    python3 "$here/table.py" ratios without with "$program:$unit:0:0" <"$work/figures"
    for mode in without with; do stop $mode; done
done
