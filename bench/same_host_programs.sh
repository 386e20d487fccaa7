#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Two processes of one host: xsock's through shared memory beside UCX, libfabric and plain TCP, and
# perftest's unmodified programs under `xsock run --verbs`. Every sample is two fresh processes with a
# processor each; theirs and ours take turns.
usage() {
    cat <<'USAGE'
usage: bench/same_host_programs.sh [-b BUILD] [-r ROUNDS] [-m] [-n] [ROW...]

  -b BUILD    folder of the build; default build/release
  -r ROUNDS   default 15; each measures base, memory, memory, base
  -m          print the rows of a Markdown table
  -n          print no head

Without ROW, all of them:
  shm_send_ucx        64 B Sends, one way, polling, against ucx_perftest's tag_lat
  shm_send_fabric     the same against fi_pingpong -p shm
  shm_rate_ucx        64 B Sends, 16 outstanding, against tag_bw of 64 B
  shm_ib_write_bw     ib_write_bw of 1 MiB against tag_bw of 1 MiB
  shm_ib_send_lat     ib_send_lat of 64 B, against TCP polling
  shm_ib_write_lat    ib_write_lat of 64 B, against TCP polling

UCX uses posix, cma and self. A connection of ours that went over TCP is an error (XSOCK_SHM=require).
Exit status: 0 all were measured, 1 one failed, 2 wrong use, 77 a program is missing.
USAGE
}
rounds=15 network=host
. "$(dirname "$0")/programs_start.sh"
ways=(base memory)
. "$(dirname "$0")/pairs_lib.sh"
xsock=$build/tools/xsock
bench=$build/bench/xsock_bench
for file in "$xsock" "$bench" "$build/libxsock/verbs/libibverbs.so.1"; do
    [ -e "$file" ] || die "$file is not built"
done
export XSOCK_SHM=require XSOCK_LOG=off UCX_TLS=posix,cma,self UCX_WARN_UNUSED_ENV_VARS=n
unset LD_PRELOAD
fabric_lat() {
    local ends=(fi_pingpong -p shm -e rdm -S 64 -I 100000)
    pair "${ends[@]}" -B PORT @ "${ends[@]}" -P PORT 127.0.0.1 | last '^[0-9]+[kmg]? ' 7
}
perftest() {  # perftest PROGRAM COLUMN ARGS...
    local program=$1 column=$2
    shift 2
    local ends=("$xsock" run --verbs -- "$program" -R -F -p PORT "$@")
    pair "${ends[@]}" @ "${ends[@]}" 127.0.0.1 | last '^ *[0-9]+ +[0-9]+ +[0-9.]' "$column"
}
ours() {  # ours ROW FIGURE: of one round of xsock_bench; FIGURE is tcp or xsock
    "$bench" --rows "$1" --rounds 1 --seconds 0.15 --json </dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin)[0][sys.argv[1]])' "$2"
}

sample() {  # sample ROW MODE: its figure
    case $1-$2 in
    shm_send_ucx-base) ucx 3 -t tag_lat -s 64 -n 200000 -w 5000 ;;
    shm_send_fabric-base) fabric_lat ;;
    shm_send_*-memory) ours shm_send_lat_64_poll xsock ;;
    shm_rate_ucx-base) ucx 9 -t tag_bw -s 64 -n 3000000 -w 5000 | scaled 1e-6 ;;
    shm_rate_ucx-memory) ours shm_rate_64_16 xsock ;;
    shm_ib_write_bw-base) ucx 7 -t tag_bw -s 1048576 -n 5000 -w 50 | scaled 0.001048576 ;;
    shm_ib_write_bw-memory) perftest ib_write_bw 4 -s 1048576 -n 5000 -N --report_gbits | scaled 0.125 ;;
    shm_ib_*_lat-base) ours shm_send_lat_64_poll tcp ;;
    shm_ib_send_lat-memory) perftest ib_send_lat 6 -s 64 -n 100000 ;;
    shm_ib_write_lat-memory) perftest ib_write_lat 6 -s 64 -n 20000 ;;
    esac
}
# name:unit:limit:aim, a `<` where less is better; then what it needs.
row_of() {
    case $1 in
    shm_send_ucx) echo "$1:us:<3:<1.8 ucx_perftest" ;;
    shm_send_fabric) echo "$1:us:<1.5:<1 fi_pingpong" ;;
    shm_rate_ucx) echo "$1:M/s:0.6:1 ucx_perftest" ;;
    shm_ib_write_bw) echo "$1:GB/s:1:1.5 ucx_perftest ib_write_bw" ;;
    shm_ib_send_lat) echo "$1:us:<0.14:<0.1 ib_send_lat" ;;
    shm_ib_write_lat) echo "$1:us:<5:<2.5 ib_write_lat" ;;
    *) return 1 ;;
    esac
}
[ $# != 0 ] || set -- shm_send_ucx shm_send_fabric shm_rate_ucx shm_ib_write_bw shm_ib_send_lat shm_ib_write_lat
measure_rows row_of "${ways[@]}" "$@"
