#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Unmodified programs on the device that looks like RoCE, beside UCX over TCP, or beside themselves in
# another way. Every sample is two fresh processes with a processor each, over loopback; the two ways
# take turns.
usage() {
    cat <<'USAGE'
usage: bench/roce.sh [-b BUILD] [-r ROUNDS] [-m] [-n] [ROW...]

  -b BUILD    folder of the build; default build/release
  -r ROUNDS   default 7; each measures base, roce, roce, base
  -m          print the rows of a Markdown table
  -n          print no head

Without ROW, all of them:
  ucx_lat_rc    ucx_perftest's tag_lat of 8 B over rc_v, against UCX over tcp
  ucx_lat_ud    the same over ud_v
  ucx_rate_rc   tag_bw of 8 B over rc_v, against tcp: messages
  ucx_bw_rc     tag_bw of 1 MiB over rc_v, against tcp, which has no CRC
  ucx_bw_no_crc the same with xsock run --no-crc
  lat_ack       ib_send_lat of 64 B, against XSOCK_VERBS_ACK=0
  lat_device    ib_send_lat -R of 64 B, against the iWARP device
  bw_device     ib_write_bw -R of 64 KiB, against the iWARP device
  lat_ud        ib_send_lat -c UD of 64 B, against -c RC
  rate_ud       ib_send_bw -c UD of 64 B, against a sendto() for each of UDP: messages
  connect       1,000 RC queue pairs connected by GID, against rdma_cm: in a second

Over TCP (XSOCK_SHM=off). As root it works in a network namespace of its own. Exit status: 0 all were
measured, 1 one failed, 2 wrong use, 77 a program is missing.
USAGE
}
rounds=7 network=own
. "$(dirname "$0")/programs_start.sh"
ways=(base roce)
. "$(dirname "$0")/pairs_lib.sh"
xsock=$build/tools/xsock
for file in "$xsock" "$build/libxsock/verbs/libibverbs.so.1" "$build/libxsock/libxsock-rdma-files.so"; do
    [ -e "$file" ] || die "$file is not built"
done
export XSOCK_SHM=off XSOCK_KERNEL=off XSOCK_LOG=off UCX_WARN_UNUSED_ENV_VARS=n UCX_LOG_LEVEL=error
unset LD_PRELOAD
crc=()
over() {  # over WAY COLUMN ARGS...: ucx_perftest's
    local way=$1 column=$2 device=xsock0:1 command=()
    shift 2
    if [ "$way" = tcp ]; then device=lo; else command=("$xsock" run --roce "${crc[@]}" --); fi
    command+=(env "UCX_TLS=$way,self" "UCX_NET_DEVICES=$device" ucx_perftest -p PORT)
    pair "${command[@]}" @ "${command[@]}" 127.0.0.1 "$@" | last '^Final:' "$column"
}
perftest() {  # perftest DEVICE COLUMN PROGRAM ARGS...
    local device=$1 column=$2
    shift 2
    local ends=("$xsock" run "--$device" -- "$@" -F -p PORT)
    pair "${ends[@]}" @ "${ends[@]}" 127.0.0.1 | last '^ *[0-9]+ +[0-9]+ +[0-9.]' "$column"
}
connected() {  # connected WAY
    local ends=("$xsock" run --roce -- "$build/bench/qp_connect" "$1")
    pair "${ends[@]}" serve PORT 1000 @ "${ends[@]}" PORT 1000 | last . 1
}

sample() {  # sample ROW MODE: its figure
    local lat=(3 -t tag_lat -s 8 -n 50000 -w 2000) rate=(9 -t tag_bw -s 8 -n 1000000 -w 5000)
    local bw=(7 -t tag_bw -s 1048576 -n 2000 -w 50) send=(ib_send_lat -s 64 -n 50000)
    case $1-$2 in
    ucx_lat_*-base) over tcp "${lat[@]}" ;;
    ucx_lat_rc-roce) over rc_v "${lat[@]}" ;;
    ucx_lat_ud-roce) over ud_v "${lat[@]}" ;;
    ucx_rate_rc-base) over tcp "${rate[@]}" | scaled 1e-6 ;;
    ucx_rate_rc-roce) over rc_v "${rate[@]}" | scaled 1e-6 ;;
    ucx_bw_*-base) over tcp "${bw[@]}" | scaled 0.001048576 ;;
    ucx_bw_rc-roce) over rc_v "${bw[@]}" | scaled 0.001048576 ;;
    ucx_bw_no_crc-roce)
        crc=(--no-crc)
        over rc_v "${bw[@]}" | scaled 0.001048576
        ;;
    lat_ack-base) XSOCK_VERBS_ACK=0 perftest roce 6 "${send[@]}" ;;
    lat_ack-roce | lat_ud-base) perftest roce 6 "${send[@]}" ;;
    lat_device-base) perftest verbs 6 "${send[@]}" -R ;;
    lat_device-roce) perftest roce 6 "${send[@]}" -R ;;
    bw_device-base) perftest verbs 4 ib_write_bw -s 65536 -n 20000 -N --report_gbits -R | scaled 0.125 ;;
    bw_device-roce) perftest roce 4 ib_write_bw -s 65536 -n 20000 -N --report_gbits -R | scaled 0.125 ;;
    lat_ud-roce) perftest roce 6 "${send[@]}" -c UD ;;
    rate_ud-base)
        pair "$build/bench/sendto_rate" serve PORT 64 @ "$build/bench/sendto_rate" PORT 64 1000000 |
            last . 1
        ;;
    rate_ud-roce) perftest roce 5 ib_send_bw -s 64 -n 1000000 -c UD ;;
    connect-base) connected cm ;;
    connect-roce) connected gid ;;
    esac
}
# name:unit:limit:aim, a `<` where less is better; then what it needs.
row_of() {
    case $1 in
    ucx_lat_rc) echo "$1:us:<1.10:<0.95 ucx_perftest" ;;
    ucx_lat_ud) echo "$1:us:<1.30:<1.10 ucx_perftest" ;;
    ucx_rate_rc) echo "$1:M/s:10:14 ucx_perftest" ;;
    ucx_bw_rc) echo "$1:GB/s:0.70:0.9 ucx_perftest" ;;
    ucx_bw_no_crc) echo "$1:GB/s:0.80:1.0 ucx_perftest" ;;
    lat_ack) echo "$1:us:<1.10:<1.03 ib_send_lat" ;;
    lat_device) echo "$1:us:<1.10:<1.03 ib_send_lat" ;;
    bw_device) echo "$1:GB/s:0.97:1.00 ib_write_bw" ;;
    lat_ud) echo "$1:us:<1.15:<1.08 ib_send_lat" ;;
    rate_ud) echo "$1:M/s:3:8 ib_send_bw $build/bench/sendto_rate" ;;
    connect) echo "$1:/s:1.00:1.25 $build/bench/qp_connect" ;;
    *) return 1 ;;
    esac
}
[ $# != 0 ] || set -- ucx_lat_rc ucx_lat_ud ucx_rate_rc ucx_bw_rc ucx_bw_no_crc lat_ack lat_device bw_device lat_ud rate_ud \
    connect
measure_rows row_of "${ways[@]}" "$@"
