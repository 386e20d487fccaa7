#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Runs both ends of every example on loopback and checks what they print.
#   examples_test.sh DIRECTORY-OF-THE-BUILT-EXAMPLES
# Ends only what it started, by pid. Every program runs under a time limit.
set -u -o pipefail
bin=${1:?usage: examples_test.sh DIRECTORY}
bin=$(cd "$bin" && pwd) || exit 1
work=$(mktemp -d) || exit 1
limit=${XSOCK_TEST_LIMIT_S:-60}
servers=()
failures=0
checks=0

cleanup() {
    local pid
    for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null; done
    for pid in "${servers[@]}"; do wait "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

check() {  # check DESCRIPTION COMMAND...
    local what=$1
    shift
    checks=$((checks + 1))
    if "$@"; then
        echo "ok   - $what"
    else
        echo "FAIL - $what"
        failures=$((failures + 1))
    fi
}

# Starts a server in the background; sets $server (pid) and $port. Its output: $work/server.
start() {
    : >"$work/server"  # before the search for the port: an older server wrote here too
    timeout -k 5 "$limit" "$@" >"$work/server" 2>"$work/server.err" &
    server=$!
    servers+=("$server")
    port=
    local i
    for ((i = 0; i < 200; i++)); do
        port=$(sed -n 's/^listening on port \([0-9]*\)$/\1/p' "$work/server")
        [ -n "$port" ] && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    echo "FAIL - no port from: $*"
    cat "$work/server" "$work/server.err"
    failures=$((failures + 1))
    return 1
}

# Runs a client; its output: $work/client.
client() { timeout -k 5 "$limit" "$@" >"$work/client" 2>"$work/client.err"; }
said() { grep -Eq -- "$1" "$work/client" || { cat "$work/client" "$work/client.err"; false; }; }
server_said() { grep -Eq -- "$1" "$work/server" || { cat "$work/server" "$work/server.err"; false; }; }
stop() {  # ends the last server and waits for it
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
ended_well() { wait "$server"; }  # for a server that ends by itself
ended_badly() { wait "$server"; test $? = 1; }
status_is() {  # status_is N COMMAND...
    local want=$1 got
    shift
    timeout -k 5 "$limit" "$@" >"$work/client" 2>"$work/client.err" </dev/null
    got=$?
    [ "$got" = "$want" ] || { echo "exit status $got instead of $want"; false; }
}

for program in echo echo_socket async putget kv filecopy; do
    check "$program --help" status_is 0 "$bin/$program" --help
    check "$program --help is on standard output" said '^usage: '
    check "$program without arguments" status_is 2 "$bin/$program"
done

# A port without a listener: bound for a moment by a server of ours, then free again.
if start "$bin/echo" server 0; then
    stop
    check "echo: no listener" status_is 1 "$bin/echo" client 127.0.0.1 "$port" x
    check "echo: ... and says so" grep -q 'connect: ' "$work/client.err"
fi

if start "$bin/echo" server 0; then
    for host in 127.0.0.1 ::1 localhost; do
        check "echo by $host" client "$bin/echo" client "$host" "$port" "hello $host"
        check "echo by $host: text" said "^hello $host\$"
    done
    seq 1 1000 >"$work/lines"
    check "echo: 1000 lines" client "$bin/echo" client 127.0.0.1 "$port" <"$work/lines"
    check "echo: lines came back" cmp -s "$work/lines" "$work/client"
    check "echo: an empty message" client "$bin/echo" client 127.0.0.1 "$port" ''
    check "echo: its clients left in good order" test "$(grep -c '^client left$' "$work/server")" -ge 4
    check "echo: none was lost" test "$(grep -c 'client lost' "$work/server")" = 0
    stop
fi

if start "$bin/echo_socket" server 0 --ddp; then
    check "echo_socket: by iWARP" client "$bin/echo_socket" client 127.0.0.1 "$port" 500 --ddp
    check "echo_socket: ... and says so" said '^500 round trips of 64 bytes over iWARP .*CRC on'
    check "echo_socket: a plain client" client "$bin/echo_socket" client 127.0.0.1 "$port" 500
    check "echo_socket: ... is served as before" said '^500 round trips of 64 bytes over plain TCP'
    check "echo_socket: the server knows" server_said '^500 messages echoed over iWARP'
    stop
fi
if start "$bin/echo_socket" server 0; then
    check "echo_socket: plain TCP" client "$bin/echo_socket" client 127.0.0.1 "$port" 500
    check "echo_socket: a plain server refuses" status_is 1 \
        timeout 20 "$bin/echo_socket" client 127.0.0.1 "$port" 1 --ddp
    stop
fi

if start "$bin/async" server 0; then
    check "async: 20000 messages each way" client "$bin/async" client 127.0.0.1 "$port" 20000 64 64
    check "async: all came (client)" said '^20000 messages of 64 bytes each way'
    check "async: server ends well" ended_well
    check "async: all came (server)" server_said '^20000 messages of 64 bytes each way'
fi
if start "$bin/async" server 0; then
    check "async: large messages over IPv6" client "$bin/async" client ::1 "$port" 500 65536 16
    check "async: server ends well" ended_well
fi
if start "$bin/async" server 0; then
    check "async: a plan that is refused" status_is 1 "$bin/async" client ::1 "$port" 10 3
    check "async: the server refuses it too" ended_badly
fi

if start "$bin/putget" server 0; then
    check "putget" client "$bin/putget" client 127.0.0.1 "$port"
    check "putget: server ends well" ended_well
    sum=$(sed -n 's/^put and got .* add up to \([0-9]*\)$/\1/p' "$work/client")
    check "putget: both ends see the same" server_said "add up to ${sum:-nothing}\$"
fi

if start "$bin/kv" server 0 10000 1; then
    check "kv: look-ups while values change" client "$bin/kv" client 127.0.0.1 "$port" 20000 16
    check "kv: every answer right" said '^20000 lookups, all right'
    check "kv: one at a time, IPv6" client "$bin/kv" client ::1 "$port" 2000 1
    kill "$server"
    check "kv: server ends well on SIGTERM" ended_well
    check "kv: server tells its CPU time" server_said 'clients in .*application thread [0-9.]+ s, process [0-9.]+ s'
fi

# A tree with the cases that matter: empty, one byte, odd sizes, larger than all pieces under way.
tree=$work/tree
mkdir -p "$tree/a/b" "$tree/empty directory"
: >"$tree/empty"
printf x >"$tree/one byte"
head -c 262143 /dev/urandom >"$tree/a/262143"
head -c 262145 /dev/urandom >"$tree/a/b/262145"
head -c 12345678 /dev/urandom >"$tree/a/b/large"
ln -s a/262143 "$tree/link"
printf 'alone\n' >"$work/alone"
mkdir "$work/to"
if start "$bin/filecopy" server 0 "$work/to"; then
    for mode in --send --write --read; do
        check "filecopy $mode" client "$bin/filecopy" client "$mode" 127.0.0.1 "$port" "$tree" "$work/alone"
        check "filecopy $mode: summary" said 'SHA-256 agreed for 6, 0 failed'
        check "filecopy $mode: a line per file" test "$(grep -c ': ok$' "$work/client")" = 6
        rm -rf "$tree.expected"
        cp -R "$tree" "$tree.expected"
        rm -r "$tree.expected/link" "$tree.expected/empty directory"
        check "filecopy $mode: same tree" diff -r "$tree.expected" "$work/to/tree"
        check "filecopy $mode: same file" cmp "$work/alone" "$work/to/alone"
        rm -rf "$work/to/tree" "$work/to/alone"
    done
    check "filecopy over IPv6" client "$bin/filecopy" client --write --quiet ::1 "$port" "$work/alone"
    rm -f "$work/to/alone"
    mkdir "$work/to/blocked"
    : >"$work/blocked"
    check "filecopy: receiver cannot create a file" status_is 1 \
        "$bin/filecopy" client --send 127.0.0.1 "$port" "$work/blocked" "$work/alone"
    check "filecopy: ... says so" said 'agreed for 1, 1 failed'
    check "filecopy: ... and copies the rest" cmp "$work/alone" "$work/to/alone"
    check "filecopy: no such file" status_is 1 \
        "$bin/filecopy" client --send 127.0.0.1 "$port" "$work/absent"
    check "filecopy: no sender was lost" test "$(grep -c 'lost' "$work/server")" = 0
    stop
fi

echo "$checks checks, $failures failed"
[ "$failures" = 0 ]
