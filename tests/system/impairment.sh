#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Network impairment between two network namespaces: loss, narrow and changing paths, a middle box that cuts
# and joins the stream, cables that are pulled, addresses that go, resets from the way. The traffic
# (impairment.cpp) checks every byte and every completion; nothing may hang. Exit status 77: this machine
# lacks something.
#
#   impairment.sh SYSTEM-IMPAIRMENT [SECONDS [NAME...]]     3 seconds each; all of them
set -u -o pipefail
program=${1:?usage: impairment.sh SYSTEM-IMPAIRMENT [SECONDS [NAME...]]}
seconds=${2:-3}
shift $(($# < 2 ? $# : 2))
wanted=" $* "
PATH=$PATH:/usr/sbin:/sbin
seed=${XSOCK_IMPAIRMENT_SEED:-$$}
skip() {
    echo "SKIP  $*"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "not root"
for tool in ip tc iptables; do
    command -v "$tool" >/dev/null || skip "no $tool here"
done

name=xsock-impairment-$$
one=198.18.78.1 two=198.18.78.2
port=7471
work=$(mktemp -d) || exit 1
pids=()
in_one() { ip netns exec "$name-1" "$@"; }
in_two() { ip netns exec "$name-2" "$@"; }
stop() {
    local pid
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null; done
    pids=()
}
down() {
    stop
    ip netns delete "$name-1" 2>/dev/null
    ip netns delete "$name-2" 2>/dev/null
}
trap 'down; rm -rf "$work"' EXIT
fail() {
    echo "FAIL  $current (seed $seed): $*"
    tail -n 5 "$work"/*.out "$work"/*.err 2>/dev/null
    exit 1
}
up() { # MTU
    down
    ip netns add "$name-1" && ip netns add "$name-2" &&
        ip link add name v0 netns "$name-1" mtu 9000 type veth peer name v0 netns "$name-2" mtu 9000 &&
        ip -n "$name-1" address add $one/24 dev v0 && ip -n "$name-2" address add $two/24 dev v0 &&
        ip -n "$name-1" link set v0 mtu "$1" up && ip -n "$name-2" link set v0 mtu "$1" up &&
        ip -n "$name-1" link set lo up && ip -n "$name-2" link set lo up || skip "no namespaces here"
}
both() { # COMMAND... in each
    in_one "$@" && in_two "$@"
}
lose() { # PROBABILITY
    both iptables -A INPUT -p tcp -m statistic --mode random --probability "$1" -j DROP ||
        skip "no netfilter statistic here"
}


run() { # PID...: all of them, still
    local pid
    for pid in "$@"; do kill -0 "$pid" 2>/dev/null || return 1; done
}
said() { # WORD NAME PID...: until NAME's program says WORD or one of the PIDs ends, for two minutes at most
    local word=$1 name=$2 i
    shift 2
    for ((i = 0; i < 2400; i++)); do
        grep -q "$word" "$work/$name.out" && return
        run "$@" || return 0 # how it ended is looked at in its time
        sleep 0.05
    done
    fail "$name is not $word"
}
begin() { # OPTION...: the server in the second namespace, the client in the first; until they have started
    : >"$work/serve.out"
    : >"$work/drive.out"
    # Not through a function: what is killed must be the program.
    ip netns exec "$name-2" "$program" serve $two $port --seconds "$seconds" --seed "$seed" "$@" \
        >"$work/serve.out" 2>"$work/serve.err" &
    server=$!
    pids+=("$server")
    said listening serve "$server"
    ip netns exec "$name-1" "$program" drive "${through:-$two}" "${through_port:-$port}" --seconds "$seconds" \
        --seed "$seed" "$@" >"$work/drive.out" 2>"$work/drive.err" &
    client=$!
    pids+=("$client")
    said started serve "$server" "$client"
    said started drive "$server" "$client"
}
begin_lasting() { # MORE [OPTION...]: as begin, MORE seconds longer than asked, which a busy machine may need
    # begin() sees it.
    local seconds=$(awk "BEGIN { print $seconds + $1 }")
    shift
    begin "$@"
}
both_run() {
    run "$server" "$client" || fail "an end was over too early"
}
settled_within() { # SECONDS PID...: must end well
    local limit=$1 pid i
    shift
    for pid in "$@"; do
        for ((i = 0; i < limit * 10; i++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -0 "$pid" 2>/dev/null && fail "does not end"
        wait "$pid" || fail "status $?"
    done
    pids=()
}
settled() { settled_within 240 "$@"; }
finish() {
    settled "$server" "$client"
    echo "ok    $current: $(sed -n 's/^drive: //p' "$work/drive.out")"
}
impairment() { # NAME MTU: true when it is wanted
    current=$1
    case $wanted in "  " | *" $1 "*) ;; *) return 1 ;; esac
    rm -f "$work"/*
    through= through_port=
    up "$2"
}

if impairment loss-0.1 1500; then lose 0.001 && begin && finish; fi
if impairment loss-1 1500; then lose 0.01 && begin && finish; fi
if impairment loss-5 1500; then lose 0.05 && begin --bytes 4096 --depth 8 && finish; fi
if impairment rate 1500; then
    both tc qdisc add dev v0 root tbf rate 20mbit burst 16k latency 20ms || skip "no tbf here"
    begin --bytes 8192 && finish
fi
if impairment mtu-1280 1280; then begin && finish; fi
if impairment mtu-9000 9000; then begin && finish; fi
if impairment mtu-changes 1500; then
    begin_lasting 5
    for mtu in 1280 9000 600 1500; do
        sleep "$(awk "BEGIN { print $seconds / 6 }")"
        both_run
        ip -n "$name-1" link set v0 mtu $mtu
        ip -n "$name-2" link set v0 mtu $mtu
    done
    finish
fi
if impairment resegmented 1500; then
    : >"$work/proxy.out"
    ip netns exec "$name-1" "$program" proxy $one 7472 $two $port --seed "$seed" >"$work/proxy.out" 2>"$work/proxy.err" &
    pids+=($!)
    proxy=$!
    said listening proxy "$proxy"
    through=$one through_port=7472
    begin && settled "$server" "$client"
    kill -9 "$proxy"
    wait "$proxy" 2>/dev/null
    echo "ok    $current: $(sed -n 's/^drive: //p' "$work/drive.out")"
fi
if impairment address-gone 1500; then
    # Back before either end gives up: TCP repeats what was lost.
    begin_lasting 5
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    both_run
    ip -n "$name-1" address del $one/24 dev v0
    sleep 1
    ip -n "$name-1" address add $one/24 dev v0
    finish
fi
if impairment cable-pulled 1500; then
    begin_lasting 5
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    both_run
    ip -n "$name-2" link set v0 down
    sleep 1
    ip -n "$name-2" link set v0 up
    finish
fi
if impairment reset-from-the-way 1500; then
    begin --must-fail
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    both iptables -A INPUT -p tcp -j REJECT --reject-with tcp-reset || skip "no REJECT here"
    finish
fi
if impairment killed 1500; then
    begin --must-fail
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    kill -9 "$server"
    wait "$server" 2>/dev/null
    settled "$client"
    echo "ok    $current: $(sed -n 's/^drive: //p' "$work/drive.out")"
fi
if impairment half-open 1500; then
    # The peer's machine restarts while nothing gets through: its successor knows no connection.
    begin --must-fail
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    both iptables -A INPUT -p tcp -j DROP
    kill -9 "$server"
    wait "$server" 2>/dev/null
    sleep 0.5
    both iptables -F INPUT
    settled "$client"
    echo "ok    $current: $(sed -n 's/^drive: //p' "$work/drive.out")"
fi
# Slow peers and dead ones. A process that is stopped reads nothing, while its kernel answers: it is
# waited for, far beyond the limit. When nothing answers, the limit holds.
export XSOCK_PEER_SILENT_MS=1500
if impairment stopped 1500; then
    begin_lasting 10
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    both_run
    kill -STOP "$server"
    sleep 6
    kill -0 "$client" 2>/dev/null || fail "gave a slow peer up"
    kill -CONT "$server"
    finish
fi
if impairment silent 1500; then
    begin --must-fail
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    both iptables -A INPUT -p tcp -j DROP
    settled_within 25 "$server" "$client" # the usual limit is 30 s
    echo "ok    $current: $(sed -n 's/^drive: //p' "$work/drive.out")"
fi
if impairment silent-reads 1500; then
    # An end that only waits for answers to Reads has nothing that TCP repeats. So small that the
    # window of a peer that is stopped stays open.
    begin --must-fail --only-reads --bytes 1024 --depth 16
    sleep "$(awk "BEGIN { print $seconds / 3 }")"
    kill -STOP "$server"
    sleep 0.5
    both iptables -A INPUT -p tcp -j DROP
    settled_within 25 "$client"
    kill -9 "$server"
    wait "$server" 2>/dev/null
    echo "ok    $current: $(sed -n 's/^drive: //p' "$work/drive.out")"
fi
