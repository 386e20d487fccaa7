#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# RDMA Reads beside Sends and Writes of the same size, and look-ups by them beside redis. Every sample is
# two fresh processes with a processor each, over loopback; the two ways take turns.
usage() {
    cat <<'USAGE'
usage: bench/one_sided.sh [-b BUILD] [-r ROUNDS] [-m] [-n] [ROW...]

  -b BUILD    folder of the build; default build/release
  -r ROUNDS   default 7; each measures base, reads, reads, base
  -m          print the rows of a Markdown table
  -n          print no head

Without ROW, all of them:
  reads_16          64 B Reads, 16 outstanding, against Sends: in a second; both ends wait
  reads_16_polled   the same, both ends polling
  reads_256         256 outstanding, both ends wait
  reads_256_polled  256 outstanding, polling
  reads_1m          1 MiB Reads, 8 outstanding, against Writes
  key_value         look-ups of 64 B by Reads (examples/kv), 16 under way, against redis-benchmark with
                    one connection and pipelines of 16

Over TCP (XSOCK_SHM=off). As root it works in a network namespace of its own. Exit status: 0 all were
measured, 1 one failed, 2 wrong use, 77 a program is missing.
USAGE
}
rounds=7 network=own
. "$(dirname "$0")/programs_start.sh"
ways=(base reads)
. "$(dirname "$0")/pairs_lib.sh"
xsock=$build/tools/xsock
# As xsock_bench: BBR would pace what stays inside the machine. For redis our namespace says so, if
# there is one. It may not have cubic unless that is allowed to everyone, as reno is.
export XSOCK_SHM=off XSOCK_KERNEL=off XSOCK_LOG=off XSOCK_CONGESTION=cubic
default=/proc/sys/net/ipv4/tcp_congestion_control
[ "$(readlink /proc/self/ns/net)" = "$(readlink "/proc/$PPID/ns/net")" ] ||
    { echo cubic >$default; } 2>/dev/null || echo reno >$default
keys=100000
perf() {  # perf OP ARGS...: what `xsock perf` says of it, per second
    local op=$1
    shift
    pair "$xsock" perf server -1 -q 127.0.0.1:PORT @ \
        "$xsock" perf client -o "$op" -r 1 --no-tcp -q --json "$@" 127.0.0.1 PORT |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["xsock"])'
}
redis() {  # values of 64 B, which are there before the figure is taken
    local benchmark=(redis-benchmark -p "$1" -c 1 -P 16 -d 64 -r "$keys" --csv)
    run_client client "${benchmark[@]}" -n $((keys * 4)) -t set >/dev/null
    run_client client "${benchmark[@]}" -n 1000000 -t get | redis_csv '' | awk '{ print $2 / 1000 }'
}

sample() {  # sample ROW WAY: its figure
    local op=send reads=(-t rate -s 64)
    [ "$2" = base ] || op=read
    case $1 in
    reads_16) perf $op "${reads[@]}" -d 16 | scaled 1e-6 ;;
    reads_16_polled) perf $op "${reads[@]}" -d 16 -p | scaled 1e-6 ;;
    reads_256) perf $op "${reads[@]}" -d 256 | scaled 1e-6 ;;
    reads_256_polled) perf $op "${reads[@]}" -d 256 -p | scaled 1e-6 ;;
    reads_1m)
        [ $op = read ] || op=write
        perf $op -t bandwidth -s 1M -d 8 | scaled 1e-9
        ;;
    key_value)
        port=$(free_port)
        if [ "$2" = base ]; then
            redis_server server
            redis "$port"
        else
            serve server "$build/examples/kv" server "$port" "$keys"
            run_client client "$build/examples/kv" client 127.0.0.1 "$port" 1000000 16 |
                sed 's/.*: \([0-9]*\) lookups.s;.*/\1/' | scaled 1e-6
        fi
        stop server
        ;;
    esac
}
row_of() {  # name:unit:limit:aim; then what it needs
    case $1 in
    reads_16) echo "$1:M/s:0.4:0.6" ;;
    reads_16_polled) echo "$1:M/s:0.5:0.6" ;;
    reads_256) echo "$1:M/s:0:0" ;;
    reads_256_polled) echo "$1:M/s:0.4:0.5" ;;
    reads_1m) echo "$1:GB/s:0.9:1.0" ;;
    key_value) echo "$1:M/s:0.6:1.5 redis-server redis-benchmark $build/examples/kv" ;;
    *) return 1 ;;
    esac
}
[ $# != 0 ] || set -- reads_16 reads_16_polled reads_256 reads_256_polled reads_1m key_value
measure_rows row_of "${ways[@]}" "$@"
