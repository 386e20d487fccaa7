#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Real programs under the overlay, passed through, beside themselves without it: redis-benchmark, wrk
# on nginx, iperf3. Two servers run all the time, one under the overlay; clients take turns, theirs
# with theirs. Prints the ratio with/without of each pair of neighbours: least, median, most.
#   overlay_programs.sh BUILD [ROUNDS [redis|wrk|iperf3 ...]]
set -eu -o pipefail
case ${1:-} in
'' | -h | --help) sed -n '3,7s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
build=$(cd "$1" && pwd)
rounds=${2:-9}
shift $(($# < 2 ? $# : 2))
only=" $* "
PATH=$PATH:/usr/sbin:/sbin
preload=$build/libxsock/libxsock-preload.so
[ -e "$preload" ] || { echo "$preload is not built" >&2; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-bench.XXXXXX")
pids=()
# shellcheck disable=SC2317  # called by the trap
cleanup() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
overlay() {  # overlay with|without COMMAND...
    local mode=$1
    shift
    if [ "$mode" = with ]; then LD_PRELOAD=$preload exec "$@"; else exec "$@"; fi
}
serve() {  # serve MODE COMMAND...: $port must be in COMMAND
    (overlay "$@" >"$work/server-$1.log" 2>&1) &
    pids+=($!)
    for _ in $(seq 100); do answers "$port" && return; sleep 0.1; done
    echo "no answer from: $*" >&2
    cat "$work/server-$1.log" >&2
    exit 1
}

declare -A ports
redis_server() {
    serve "$1" redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$work"
}
redis_figure() {  # requests in a second
    (overlay "$1" redis-benchmark -p "$port" -n 60000 -c 30 -q -t get --csv) |
        awk -F'"' '/GET/ { print $4 }'
}
wrk_server() {
    mkdir -p "$work/$1"
    echo small >"$work/$1/small"
    local user=
    [ "$(id -u)" -ne 0 ] || user="user root;"
    cat >"$work/$1.conf" <<CONF
$user
daemon off; master_process off; pid $work/$1.pid; error_log $work/$1.err;
events { worker_connections 512; }
http {
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path $work/$1-b; proxy_temp_path $work/$1-p; fastcgi_temp_path $work/$1-f;
    uwsgi_temp_path $work/$1-u; scgi_temp_path $work/$1-s;
    server { listen 127.0.0.1:$port; root $work/$1; }
}
CONF
    serve "$1" nginx -e "$work/$1.err" -c "$work/$1.conf"
}
wrk_figure() {  # requests in a second
    (overlay "$1" wrk -t 1 -c 16 -d 1s "http://127.0.0.1:$port/small") |
        awk '/Requests\/sec/ { print $2 }'
}
iperf3_server() { serve "$1" iperf3 -s -p "$port" -B 127.0.0.1; }
iperf3_figure() {  # bits in a second
    (overlay "$1" iperf3 -c 127.0.0.1 -p "$port" -t 1 --json) |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"])'
}

printf '%-8s %14s %14s   %s\n' program without with 'ratio: least median most'
for program in redis wrk iperf3; do
    [ -z "${only// /}" ] || [[ $only == *" $program "* ]] || continue
    for mode in without with; do
        port=$(free_port)
        ports[$mode]=$port
        "${program}_server" $mode
    done
    for i in $(seq "$rounds"); do
        # Each first as often as the other.
        order="without with"
        [ $((i % 2)) = 0 ] || order="with without"
        for mode in $order; do
            port=${ports[$mode]}
            printf '%s %s\n' $mode "$("${program}_figure" $mode)"
        done
    done >"$work/$program.figures"
    python3 - "$program" "$work/$program.figures" <<'PYTHON'
import statistics
import sys
figures = {"with": [], "without": []}
for line in open(sys.argv[2]):
    mode, figure = line.split()
    figures[mode].append(float(figure))
ratios = sorted(a / b for a, b in zip(figures["with"], figures["without"]))
print("%-8s %14.4g %14.4g   %.3f %.3f %.3f" % (
    sys.argv[1], statistics.median(figures["without"]), statistics.median(figures["with"]),
    ratios[0], statistics.median(ratios), ratios[-1]))
PYTHON
done
