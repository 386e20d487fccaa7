#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian's RDMA programs, the same binaries at both ends: on this machine over xsock's drop-in
# libraries, in a guest over rdma-core and the kernel's siw. Each program in both directions.
#
#   siw.sh BUILD
#
# Needs root and /dev/net/tun (a network namespace with a tap), and what the guest is built from.
# Exit status 77: something is missing.
. "$(dirname "$0")/lib.sh"
vm=$(realpath "$(dirname "$0")/../interop/vm")
need rping ib_send_bw qperf qemu-system-x86_64 python3 cpio ip ss
[ "$(id -u)" = 0 ] && [ -c /dev/net/tun ] || skip "a tap in a network namespace needs root and /dev/net/tun"
SIW_RUN=$work/siw SIW_NETNS=xsock-verbs-$$
export SIW_RUN SIW_NETNS
mkdir "$SIW_RUN"
libraries=$LD_LIBRARY_PATH
unset LD_LIBRARY_PATH  # QEMU's own affair
last_things() {
    "$vm/vmctl.py" -n siw stop >/dev/null 2>&1
    "$vm/netns.sh" down 2>/dev/null
}
SIW_IMAGE=$("$vm/build-image.sh" "${SIW_KERNEL:-6.1}") || {
    status=$?
    [ $status = 77 ] && skip "no guest can be built here"
    exit $status
}
export SIW_IMAGE
"$vm/netns.sh" up 1 && "$vm/run-vm.sh" -n siw -t tap -i 1 || exit 1
siw=10.77.0.2 own=10.77.0.1

# Seconds for one program: without a processor to itself an emulated guest moves less than 1 MB/s.
limit=300
guest() { "$vm/vmctl.py" -n siw -T $((limit + 30)) run "$@"; }
here() { ip netns exec "$SIW_NETNS" env LD_LIBRARY_PATH="$libraries" XSOCK_LOG=info timeout -k 5 $limit "$@"; }
listens_here() {  # PORT
    for _ in $(seq 600); do
        ip netns exec "$SIW_NETNS" ss -Hltn "sport = :$1" | grep -q . && return
        sleep 0.1
    done
}

# raced STATUS OUTPUT: rping's event thread reads the channel that its main thread has just
# destroyed, and ends the process with 255, over siw now and then (over xsock such a thread is told
# late). What was to be done is done.
raced() { [ "$1" = 255 ] && grep -q '^rdma_get_cm_event: ' "$2"; }

port=7300
# (A guest's command is one line.)
# both NAME "SERVER" "CLIENT" PATTERN: PORT and ADDR (the server's address) stand in the commands. The
# client's output must have the pattern; both ends must end with 0, except a server that goes on.
both() {
    local name=$1 server=$2 client=$3 pattern=$4 goes_on=${5:-} status server_status at
    # xsock is the client.
    port=$((port + 1)) at=${server//PORT/$port}
    guest "(${at//ADDR/$siw} >/tmp/server.log 2>&1; echo ended \$? >>/tmp/server.log) >/dev/null 2>&1 & \
        for i in \$(seq 1200); do netstat -ltn | grep -q ':$port ' && break; usleep 50000; done; true" \
        >/dev/null
    at=${client//PORT/$port}
    # shellcheck disable=SC2086  # words are meant to be split
    here ${at//ADDR/$siw} >"$work/client" 2>&1
    status=$?
    if [ -n "$goes_on" ]; then
        guest "killall -q ${server%% *}; true" >"$work/server"
    else
        guest "for i in \$(seq 1200); do grep -q '^ended' /tmp/server.log && break; usleep 50000; done; \
            grep rdma_get_cm_event /tmp/server.log; tail -n 12 /tmp/server.log; \
            grep -q '^ended' /tmp/server.log && (exit \$(sed -n 's/^ended //p' /tmp/server.log))" \
            >"$work/server" 2>&1
        server_status=$?
        [ $server_status = 0 ] || raced $server_status "$work/server" || [ $status != 0 ] || status=95
        guest "killall -q ${server%% *}; true" >/dev/null
    fi
    [ $status != 0 ] || grep -qE "$pattern" "$work/client" || status=96
    verdict "$name: xsock -> siw" $status
    [ $status = 0 ] || tail -n 25 "$work/client" "$work/server"
    [ $status = 0 ] || head -n 5 "$work/client"
    figures
    # siw is the client.
    port=$((port + 1)) at=${server//PORT/$port}
    # shellcheck disable=SC2086
    here ${at//ADDR/$own} >"$work/server" 2>&1 &
    pids=($!)
    listens_here "$port"
    at=${client//PORT/$port}
    guest "timeout $limit ${at//ADDR/$own}" >"$work/client" 2>&1
    status=$?
    ! raced $status "$work/client" || status=0
    if [ -n "$goes_on" ]; then
        kill "${pids[0]}" 2>/dev/null
        wait "${pids[0]}" 2>/dev/null
    else
        wait "${pids[0]}" || [ $status != 0 ] || status=95
    fi
    pids=()
    [ $status != 0 ] || grep -qE "$pattern" "$work/client" || status=96
    verdict "$name: siw -> xsock" $status
    [ $status = 0 ] || tail -n 25 "$work/client" "$work/server"
    [ $status = 0 ] || head -n 5 "$work/client"
    figures
}
figures() { grep -E '^ *[0-9]+ +[0-9]+ +[0-9]+\.|(bw|latency) +=' "$work/client" | tail -n 8 | sed 's/^/            /'; }

both "rping, 200 rounds, verified" "rping -s -a ADDR -p PORT -C 200 -V" \
    "rping -c -a ADDR -p PORT -C 200 -V -v" "rdma-ping-199"
line='^ *[0-9]+ +[0-9]+ +[0-9.]+'
for operation in send write read; do
    both "ib_${operation}_bw -R" "ib_${operation}_bw -R -F -p PORT -n 500" \
        "ib_${operation}_bw -R -F -p PORT -n 500 ADDR" "$line"
    # The guest has one processor: its ends sleep where perftest can.
    events=
    [ $operation = write ] || events=-e
    both "ib_${operation}_lat -R $events" "ib_${operation}_lat -R -F -p PORT -n 200 $events" \
        "ib_${operation}_lat -R -F -p PORT -n 200 $events ADDR" "$line"
done
# Of qperf's tests these two are what siw makes QPs for, between siw and siw.
both "qperf -cm 1" "qperf -lp PORT" "qperf -lp PORT -cm 1 -t 1 ADDR rc_lat rc_bi_bw" 'bw +=' goes-on
exit $failed
