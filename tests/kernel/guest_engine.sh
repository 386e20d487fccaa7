#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Run by guest_test.sh in its guest, by busybox's shell: the engine with the module at both ends of
# connections over the loopback, required but where it is said.
export LD_LIBRARY_PATH=/x XSOCK_SHM=off XSOCK_KERNEL=require XSOCK_LOG=warn
cd /x || exit 1
server=""
client=""
trap 'kill -9 $server $client 2>/dev/null' EXIT
fail() {
    echo "guest_engine.sh: $*"
    cat /tmp/server.log
    [ -z "$client" ] || cat /tmp/client.log
    exit 1
}
# listens PORT
listens() { grep -q ":$(printf %04X "$1") 0*:0000 0A " /proc/net/tcp /proc/net/tcp6; }
# pair PROGRAM ARGUMENTS...: two of them, of which the second is told where the first is
pair() {
    "$@" -p 7000 >/tmp/server.log 2>&1 &
    server=$!
    # shellcheck disable=SC2016
    wait_until "$1 does not listen" 'listens 7000'
    "$@" -p 7000 127.0.0.1 >/tmp/client.log 2>&1 || fail "$1: $(cat /tmp/client.log)"
    wait $server || fail "the server of $1"
}
# wait_until WORDS CONDITION: for 30 s at most
wait_until() {
    tries=0
    until eval "$2"; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] || fail "$1"
        sleep 0.2
    done
}
# serve COMMAND...: in the background, once it listens on port 7000
serve() {
    : >/tmp/server.log # that of a server before says "listening" too
    "$@" >/tmp/server.log 2>&1 &
    server=$!
    wait_until "no server" 'grep -q listening /tmp/server.log'
}
write_on() {  # Writes without an end
    ./xsock perf client -q --no-tcp -r 1 -T 60 -t bandwidth -o write -s 64K 127.0.0.1 7000 \
        >/tmp/client.log 2>&1 &
    client=$!
}
counted() { sed -n "s/^$1 //p" /sys/kernel/debug/ddp/counters; }
live() { cat "/sys/kernel/debug/ddp/$1"; }
# 64 KiB are 16 pages.
# shellcheck disable=SC2016  # wait_until evaluates it
wait_for_pins() { wait_until "no memory was pinned for Writes" '[ "$(live pages)" -ge 16 ]'; }

case $1 in
putget) # the client's sum over what it wrote and read again, and the server's
    serve ./putget server 7000
    ./putget client 127.0.0.1 7000 >/tmp/client.log 2>&1 || fail "client: $(cat /tmp/client.log)"
    wait $server || fail "server"
    sum=$(sed -n 's/.*add up to //p' /tmp/client.log)
    if [ -z "$sum" ] || ! grep -q "add up to $sum\$" /tmp/server.log; then fail "sums differ"; fi
    ;;
stat) # as a program that has no setting
    unset XSOCK_KERNEL
    serve ./xsock perf server 7000
    write_on
    wait_for_pins
    # shellcheck disable=SC2016
    wait_until "$(live sockets) sockets with the ULP, where there are two ends" '[ "$(live sockets)" = 2 ]'
    ./xsock stat -l >/tmp/stat.log || fail "xsock stat"
    [ "$(grep -c 'the kernel module places what the peer writes' /tmp/stat.log)" = 2 ] ||
        fail "$(cat /tmp/stat.log)"
    kill $client $server
    wait
    ./xsock info | grep -q 'state  *ready' || fail "$(./xsock info)"
    ./xsock doctor | grep -q '^OK  *kernel module  *ABI 2, features: crc' ||
        fail "$(./xsock doctor)"
    ;;
wire) # each operation once, checked at both ends, which each write so many octets; so many
    # percent of all have to be placed: an FPDU that has come in part may go up
    bytes=100000 least=${2:-62}
    for options in "" "--client-markers --server-markers" \
        "--client-markers --server-markers --no-crc" "--address ::1"; do
        before=$(counted placed_octets)
        # shellcheck disable=SC2086  # several words
        ./system_wire $options --bytes $bytes >/tmp/server.log 2>&1 || fail "system_wire $options"
        [ $(($(counted placed_octets) - before)) -gt $((2 * bytes * least / 100)) ] ||
            fail "$(($(counted placed_octets) - before)) octets were placed: $options"
    done
    ;;
verbs) # unmodified programs: one polls its memory, one sleeps, one does without rdma_cm
    export LD_LIBRARY_PATH=/x/verbs:/x
    pair ib_write_lat -R -F -n 500
    unset XSOCK_KERNEL
    before=$(counted placed)
    pair ib_write_lat -R -F -n 500
    [ $(($(counted placed) - before)) -ge 100 ] || fail "not the module's without a setting"
    export XSOCK_KERNEL=require
    pair ib_send_bw -R -F -e -n 200
    [ ! -e ./ibv_rc_pingpong ] || XSOCK_VERBS_GID=1 pair ./ibv_rc_pingpong -g 0 -c -n 100
    ;;
socket) # in DDPMODE without a setting, and what the summary says; port 7000 may be in TIME-WAIT
    unset XSOCK_KERNEL
    serve ./echo_socket server 7001 --ddp
    ./xsock run --summary -- ./echo_socket client 127.0.0.1 7001 50 --ddp >/tmp/client.log 2>&1 ||
        fail "client: $(cat /tmp/client.log)"
    grep -q ' 1 of these placed by the kernel module' /tmp/client.log || fail "$(cat /tmp/client.log)"
    ;;
nobody) # more memory than may be locked: Writes go on at user level, and it is said why
    chmod 666 /dev/ddp
    export XSOCK_KERNEL=auto
    memlock=8388608
    rm -f /tmp/client.log
    before=$(counted placed_octets)
    serve ./as_nobody $memlock ./xsock perf server 7000
    ./as_nobody $memlock ./xsock perf client -q --no-tcp -r 1 -T 20 -t bandwidth -o write -s 16M \
        127.0.0.1 7000 >/tmp/client.log 2>&1 &
    client=$!
    wait_until "no region was counted" \
        "./as_nobody $memlock ./xsock stat | grep -q 'not pinned.*RLIMIT_MEMLOCK'"
    ./as_nobody $memlock ./xsock stat -l >/tmp/stat.log
    grep -q 'the kernel module places what the peer writes' /tmp/stat.log ||
        fail "the connection is not the module's: $(cat /tmp/stat.log)"
    wait $client || fail "its Writes failed: $(cat /tmp/client.log)"
    [ "$(counted placed_octets)" = "$before" ] || fail "octets were placed in memory that is not pinned"
    # It is tried again, and told once.
    [ "$(grep -c "kernel-pinning.* $memlock bytes may be locked" /tmp/server.log)" = 1 ] ||
        fail "the reason is not in the log, or more than once"
    kill $server
    wait
    chmod 600 /dev/ddp
    ;;
kill)
    for round in 1 2 3; do
        serve ./xsock perf server 7000
        write_on
        wait_for_pins
        rmmod ddp_kernel 2>/dev/null && fail "it was unloaded while in use"
        [ $round = 2 ] && kill -9 $server && kill -9 $client
        kill -9 $client $server 2>/dev/null
        wait
    done
    ;;
*) fail "no step $1" ;;
esac
