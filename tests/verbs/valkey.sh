#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# valkey 8.1 over RDMA, server and clients unmodified under `xsock run`, on loopback. Both
# ends sleep in epoll or poll on completion channels. What is stored over RDMA is read back over
# RDMA and over TCP and compared; pipelined and concurrent commands are counted; a client is killed,
# the server is shut down while a client waits.
#
#   valkey.sh BUILD [--roce]     on the iWARP device, or the one that looks like RoCE
#
# valkey_build.sh makes the programs (minutes and network, the first time).
valkey=$("$(dirname "$0")/valkey_build.sh") || exit
own_network=1
. "$(dirname "$0")/lib.sh"
unset LD_LIBRARY_PATH
[ -x "$build/tools/xsock" ] || skip "the program xsock is not built"
need ss cmp sha256sum timeout
export XSOCK_LOG=off

tcp_port=$((20000 + $$ % 10000))
while ss -Hltn "sport = :$tcp_port or sport = :$((tcp_port + 1))" | grep -q .; do
    tcp_port=$((tcp_port + 2))
done
rdma_port=$((tcp_port + 1))
case ${2:-} in
'') run=("$build/tools/xsock" run --verbs --) ;;
--roce) run=("$build/tools/xsock" run --roce --) ;;
*) echo "unknown argument: $2" >&2 && exit 2 ;;
esac
rdma_cli() { timeout -k 5 60 "${run[@]}" "$valkey/valkey-cli" --rdma -p $rdma_port "$@"; }
tcp_cli() { timeout -k 5 60 "$valkey/valkey-cli" -p $tcp_port "$@"; }

# wait_for COMMAND...: until it holds, ten seconds at most.
wait_for() {
    for _ in $(seq 100); do
        "$@" && return
        sleep 0.1
    done
    return 1
}
start_server() {
    "${run[@]}" "$valkey/valkey-server" --bind 127.0.0.1 --port $tcp_port \
        --rdma-bind 127.0.0.1 --rdma-port $rdma_port \
        --save '' --appendonly no --dir "$work" >>"$work/server" 2>&1 &
    server=$!
    pids+=("$server")
    wait_for answers
}
answers() { [ "$(tcp_cli ping 2>/dev/null)" = PONG ]; }
ended() { ! kill -0 "$1" 2>/dev/null; }
# Waits for a process of ours, ten seconds at most, and answers with its status.
status_of() {
    wait_for ended "$1" || { kill -9 "$1" 2>/dev/null && wait "$1" 2>/dev/null; return 124; }
    wait "$1"
}
# The server counts the connection that asks.
connections() {
    [ "$(tcp_cli info clients | tr -d '\r' | sed -n 's/^connected_clients://p')" = $(($1 + 1)) ]
}

start_server
verdict "valkey-server listens for TCP and RDMA" $?

# ---- values ----
[ "$(rdma_cli set greeting 'over RDMA')" = OK ] && [ "$(rdma_cli get greeting)" = 'over RDMA' ] &&
    [ "$(tcp_cli get greeting)" = 'over RDMA' ]
verdict "SET and GET of one value; TCP has the same" $?
# The receive buffers are of 1 MiB: either end registers its own anew several times.
head -c 5000000 /dev/urandom >"$work/value"
[ "$(rdma_cli -x set large <"$work/value")" = OK ] &&
    rdma_cli get large | head -c 5000000 | cmp - "$work/value" &&
    tcp_cli get large | head -c 5000000 | cmp - "$work/value"
verdict "SET and GET of 5 MB; TCP has the same" $?
for i in $(seq 500); do echo "set key:$i value:$i"; done | rdma_cli >"$work/answers" &&
    [ "$(grep -c '^OK$' "$work/answers")" = 500 ] &&
    for i in $(seq 500); do echo "get key:$i"; done | rdma_cli >"$work/answers" &&
    for i in $(seq 500); do echo "value:$i"; done | cmp - "$work/answers"
verdict "500 SETs and 500 GETs by one client, one after the other" $?
# The clients above have disconnected. At an error completion of a connection whose DISCONNECTED it
# has not seen yet, the server drops what it polled before and logs a warning.
wait_for connections 0 && ! grep 'CQ handle error status' "$work/server" | head -n 3 | grep .
verdict "no receive is flushed before DISCONNECTED is told" $?

# ---- pipelines: each client adds 1 to one counter, so that a lost or doubled command shows ----
timeout -k 5 120 "${run[@]}" "$valkey/valkey-benchmark" --rdma -p $rdma_port -c 50 -P 16 -n 160000 \
    -q incr counter >"$work/client" 2>&1 &&
    [ "$(tcp_cli get counter)" = 160000 ]
verdict "160,000 INCRs by 50 clients, 16 at a time" $?
# (-n may be exceeded by what the clients had under way at the end.)
timeout -k 5 120 "${run[@]}" "$valkey/valkey-benchmark" --rdma -p $rdma_port -c 20 -n 400 -k 0 \
    -q incr reconnects >"$work/client" 2>&1 &&
    [ "$(tcp_cli get reconnects)" -ge 400 ] && wait_for connections 0
verdict "a connection for each of 400 INCRs, 20 at a time; all are closed" $?

# ---- rdma-test: PING, SET and GET with verified values and a BGSAVE meanwhile, in 4 threads ----
timeout -k 5 180 "${run[@]}" "$valkey/rdma-test" -h 127.0.0.1 -p $rdma_port --thread 4 \
    >"$work/client" 2>&1 && grep -q '^Valkey Over RDMA test \[OK\]' "$work/client"
verdict "rdma-test of valkey's own sources, 4 threads" $?
wait_for connections 0
verdict "rdma-test's connections are closed" $?

# ---- publish and subscribe ----
"${run[@]}" "$valkey/valkey-cli" --rdma -p $rdma_port subscribe news >"$work/news" 2>&1 &
subscriber=$!
pids+=("$subscriber")
subscribed() { [ "$(tcp_cli pubsub numsub news | tail -n 1)" = 1 ]; }
wait_for subscribed
# The server sends keep-alive messages every three seconds: one comes before the news.
sleep 3.5
for i in $(seq 200); do echo "publish news item:$i"; done | rdma_cli >"$work/answers" &&
    [ "$(grep -cx 1 "$work/answers")" = 200 ]
verdict "200 messages are published, each to one subscriber" $?
printed() { [ "$(grep -c '^item:' "$work/news")" = 200 ]; }
wait_for printed &&
    grep '^item:' "$work/news" | cmp - <(for i in $(seq 200); do echo "item:$i"; done)
verdict "the subscriber has them in order, each once" $?

# ---- clients that come and go ----
# one_client N: ten connections, one after the other; the key is this client's own.
one_client() {
    local i
    for i in 1 2 3 4 5; do
        [ "$(rdma_cli set "client:$1" "$1.$i")" = OK ] || return 1
        [ "$(rdma_cli get "client:$1")" = "$1.$i" ] || return 1
    done
}
clients=()
for i in $(seq 20); do
    one_client "$i" &
    clients+=($!)
done
s=0
for pid in "${clients[@]}"; do wait "$pid" || s=1; done
verdict "20 clients at once, ten connections each, one after the other" $s
wait_for connections 1
verdict "the server has closed them; the subscriber's is left" $?
# The server answers QUIT and closes: the answer comes before the end.
rdma_cli quit >"$work/client" 2>&1 && [ "$(cat "$work/client")" = OK ]
s=$?
verdict "QUIT is answered before the connection ends: $(head -n 1 "$work/client")" $s

# ---- a client that is killed ----
"${run[@]}" "$valkey/valkey-benchmark" --rdma -p $rdma_port -c 10 -P 16 -n 100000000 \
    -q set key value >"$work/client" 2>&1 &
victim=$!
pids+=("$victim")
wait_for connections 11
s=$?
sleep 0.5
kill -9 "$victim"
wait "$victim" 2>/dev/null
verdict "ten connections of a busy client" $s
wait_for connections 1
verdict "the client is killed: the server closes its ten connections" $?
[ "$(rdma_cli get greeting)" = 'over RDMA' ]
verdict "the server goes on" $?

# ---- shutdown ----
rdma_cli shutdown nosave >"$work/client" 2>&1
verdict "SHUTDOWN over RDMA" $?
status_of "$server"
verdict "the server exits" $?
status_of "$subscriber"
[ $? != 124 ]
verdict "the waiting subscriber is told" $?
start_server
"${run[@]}" "$valkey/valkey-cli" --rdma -p $rdma_port subscribe news >"$work/news" 2>&1 &
subscriber=$!
pids+=("$subscriber")
wait_for subscribed
{ kill -9 "$server" && wait "$server"; } 2>/dev/null
status_of "$subscriber"
[ $? != 124 ]
verdict "the server is killed: the waiting subscriber is told" $?
! grep -E 'BUG REPORT|ASSERTION|crashed by signal' "$work/server"
verdict "no crash report in the server's log" $?
[ $failed = 0 ] || grep -v 'CQ handle error status' "$work/server" | tail -n 20 | cut -c1-200
exit $failed
