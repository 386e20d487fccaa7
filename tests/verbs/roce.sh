#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Unmodified programs on the device that looks like RoCE, on loopback: those that show the device,
# those that read its files, and those that find each other by GID. Every end must exit 0, and the
# summary must say that the device has carried what they sent.
#
#   roce.sh BUILD
own_network=1
. "$(dirname "$0")/lib.sh"
unset LD_LIBRARY_PATH
need ibv_devinfo ibstat ibstatus ibv_rc_pingpong ibv_ud_pingpong ib_send_bw rping python3 dash
xsock=$build/tools/xsock
[ -e "$build/libxsock/libxsock-rdma-files.so" ] && [ -x "$xsock" ] || skip "the device's files are not built"
export XSOCK_SHM=${XSOCK_SHM:-off}
run=("$xsock" run --roce --summary --)
device=/sys/class/infiniband/xsock0

# shows NAME PATTERN COMMAND...: it exits 0, and what it prints has the pattern.
shows() {
    local name=$1 pattern=$2 status
    shift 2
    "${run[@]}" "$@" >"$work/out" 2>&1
    status=$?
    grep -qE -- "$pattern" "$work/out" || status=1
    [ $status = 0 ] || sed 's/^/    /' "$work/out"
    verdict "$name" $status
}
shows "ibv_devinfo -v" 'GID\[ +0\]:.*127\.0\.0\.1, RoCE v2' ibv_devinfo -v
shows "ibv_devinfo: transport" 'transport:.*InfiniBand \(0\)' ibv_devinfo
shows "ibv_devinfo: board" 'board_id:.*xsock' ibv_devinfo
shows "ibv_devices" xsock0 ibv_devices
shows "ibstat" 'CA type: xsock: looks like RoCE, is TCP' ibstat
shows "ibstatus" 'link_layer:.*Ethernet' ibstatus
# shellcheck disable=SC2016  # the program's shell expands it
shows "bash: a pattern, a read" '^xsock0 4: ACTIVE$' bash -c \
    'cd /sys/class/infiniband && read -r state <*/ports/1/state && echo * "$state"'
# shellcheck disable=SC2016
shows "dash: a pattern, a test, a folder" '^/sys/class/infiniband/xsock0/ports/1$' dash -c \
    'test -c /dev/infiniband/uverbs0 && cd '$device'/ports/1 && echo /sys/class/infiniband/*/ports/*'
shows "python: os, pathlib, glob" "^\['xsock0'\] RoCE v2 True True$" python3 -c '
import glob, os, pathlib, stat
gid = glob.glob("/sys/class/infiniband/*/ports/1/gid_attrs/types/0")[0]
print(os.listdir("/sys/class/infiniband"), pathlib.Path(gid).read_text().strip(),
      stat.S_ISCHR(os.stat("/dev/infiniband/uverbs0").st_mode),
      os.path.realpath("/sys/class/infiniband/xsock0") == "/sys/devices/virtual/infiniband/xsock0")'
shows "ls -l" 'xsock0 -> ../../devices/virtual/infiniband/xsock0' ls -l /sys/class/infiniband
shows "cat, find" '^RoCE v2$' sh -c "find $device/ -name types >/dev/null && cat $device/ports/1/gid_attrs/types/0"


# both NAME "SERVER" "CLIENT": both ends exit 0, and both devices have moved bytes.
both() {
    local server client s
    port=$((port + 1))
    # shellcheck disable=SC2086  # words are meant to be split
    timeout -k 5 120 "${run[@]}" ${2//PORT/$port} >"$work/server" 2>&1 &
    server=$!
    await_listener $server
    # shellcheck disable=SC2086
    timeout -k 5 120 "${run[@]}" ${3//PORT/$port} >"$work/client" 2>&1
    client=$?
    wait $server
    s=$?
    for end in server client; do
        grep -qE 'xsock: verbs: [1-9][0-9]* connections, .* [1-9][0-9]* bytes sent' "$work/$end" || s=99
    done
    [ "$s$client" = 00 ] || sed 's/^/    /' "$work/server" "$work/client"
    verdict "$1" $((s + client))
}
for way in "" "-e"; do
    both "ibv_rc_pingpong -g 0 -c $way" "ibv_rc_pingpong -g 0 -c $way -p PORT" \
        "ibv_rc_pingpong -g 0 -c $way -p PORT 127.0.0.1"
done
both "ibv_rc_pingpong -g 1 (IPv6)" "ibv_rc_pingpong -g 1 -c -p PORT" "ibv_rc_pingpong -g 1 -c -p PORT 127.0.0.1"
for way in "-c" "-e -c"; do
    both "ibv_ud_pingpong -g 0 $way" "ibv_ud_pingpong -g 0 $way -p PORT" "ibv_ud_pingpong -g 0 $way -p PORT 127.0.0.1"
done
both "ibv_ud_pingpong -g 1 (IPv6)" "ibv_ud_pingpong -g 1 -c -p PORT" "ibv_ud_pingpong -g 1 -c -p PORT 127.0.0.1"
for way in "" "-e"; do
    both "ibv_srq_pingpong -g 0 -c $way" "ibv_srq_pingpong -g 0 -c $way -p PORT" \
        "ibv_srq_pingpong -g 0 -c $way -p PORT 127.0.0.1"
done
for way in "" "-e"; do
    both "ibv_uc_pingpong -g 0 -c $way" "ibv_uc_pingpong -g 0 -c $way -p PORT" \
        "ibv_uc_pingpong -g 0 -c $way -p PORT 127.0.0.1"
done
for tool in ib_send_bw ib_send_lat ib_write_bw ib_write_lat; do
    both "$tool -c UC" "$tool -c UC -F -n 500 -p PORT" "$tool -c UC -F -n 500 -p PORT 127.0.0.1"
done
for options in "-n 500" "-s 4096 -n 100000" "-e -n 500"; do
    both "ib_send_bw -c UD $options" "ib_send_bw -c UD -F $options -p PORT" \
        "ib_send_bw -c UD -F $options -p PORT 127.0.0.1"
done
both "ib_send_lat -c UD" "ib_send_lat -c UD -F -n 500 -p PORT" "ib_send_lat -c UD -F -n 500 -p PORT 127.0.0.1"
for operation in send write read atomic; do
    for kind in bw lat; do
        both "ib_${operation}_$kind" "ib_${operation}_$kind -F -n 500 -p PORT" \
            "ib_${operation}_$kind -F -n 500 -p PORT 127.0.0.1"
    done
done
both "ib_write_bw -q 8 -b" "ib_write_bw -F -q 8 -b -n 200 -p PORT" "ib_write_bw -F -q 8 -b -n 200 -p PORT 127.0.0.1"
both "ib_send_bw -e" "ib_send_bw -F -e -n 500 -p PORT" "ib_send_bw -F -e -n 500 -p PORT 127.0.0.1"
both "ib_send_bw -R" "ib_send_bw -R -F -n 500 -p PORT" "ib_send_bw -R -F -n 500 -p PORT 127.0.0.1"
for tool in ib_send_bw ib_send_lat; do
    both "$tool -R -c UD" "$tool -R -c UD -F -n 500 -p PORT" "$tool -R -c UD -F -n 500 -p PORT 127.0.0.1"
done
# Its port is always the same.
for options in "" "-c 5 -C 20 -S 4096"; do
    for address in 127.0.0.1 ::1; do
        port=7173
        both "udaddy $options $address" "udaddy $options -b $address" "udaddy $options -s $address"
    done
done
# Datagrams of rsockets. The server has no end.
udpong() {
    local server client
    port=7174
    timeout -k 5 120 "${run[@]}" udpong -b "$1" >"$work/server" 2>&1 &
    server=$!
    await_listener $server
    timeout -k 5 60 "${run[@]}" udpong -s "$1" -S 1000 -C 1000 >"$work/client" 2>&1
    client=$?
    grep -qE 'xsock: verbs: .* 10[0-9][0-9] datagrams sent' "$work/client" || client=99
    kill $server
    wait $server
    [ $client = 0 ] || sed 's/^/    /' "$work/server" "$work/client"
    verdict "udpong $1" $client
}
udpong 127.0.0.1
udpong ::1
both "rping" "rping -s -a 127.0.0.1 -p PORT -C 50 -V" "rping -c -a 127.0.0.1 -p PORT -C 50 -V"
exit $failed
