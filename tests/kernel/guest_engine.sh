#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Run by guest_test.sh in its guest, by busybox's shell: the engine with the module required at both
# ends of connections over the loopback.
export LD_LIBRARY_PATH=/x XSOCK_SHM=off XSOCK_KERNEL=require XSOCK_LOG=warn
cd /x || exit 1
server=""
client=""
trap 'kill -9 $server $client 2>/dev/null' EXIT
fail() {
    echo "guest_engine.sh: $*"
    cat /tmp/server.log
    exit 1
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
    "$@" >/tmp/server.log 2>&1 &
    server=$!
    wait_until "no server" 'grep -q listening /tmp/server.log'
}
write_on() {  # Writes without an end
    ./xsock perf client -q --no-tcp -r 1 -T 60 -t bandwidth -o write -s 64K 127.0.0.1 7000 \
        >/tmp/client.log 2>&1 &
    client=$!
}
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
stat)
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
