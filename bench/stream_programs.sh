#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Unmodified programs whose connections `xsock run --stream` carries, beside the same programs without
# xsock. Two servers run all the time, one in each way; clients take turns, theirs with theirs. Their
# exit summaries must say that all connections were carried; of the plain servers no process may have
# a library of xsock's.
usage() {
    cat <<'USAGE'
usage: bench/stream_programs.sh [-b BUILD] [-r ROUNDS] [-m] [-n] [ROW...]

  -b BUILD    folder of the build; default build/release
  -r ROUNDS   default 7; each measures plain, stream, stream, plain
  -m          print the rows of a Markdown table
  -n          print no head

Without ROW, all of them:
  redis         redis-benchmark, 50 clients: SET, GET
  redis_p16     the same with -P 16
  nginx         wrk on nginx, 1 KiB, 100 connections that are kept
  sendfile      the same with `sendfile on; tcp_nopush on`, which Debian's nginx.conf has
  pgbench       pgbench -S, 8 clients, on PostgreSQL over TCP
  ab            connections: ab without -k on nginx
  connect       connections: connect_rate, one at a time
  plain_redis   as redis, the client under `xsock run --stream`, the server without xsock
  plain_connect as connect, the client under `xsock run --stream`, the server without xsock

As root it works in a network namespace of its own. Exit status: 0 all were measured, 1 one failed, or
was not what it should have been (carried, plain), 2 wrong use, 77 a program is missing.
USAGE
}
rounds=7 network=own
. "$(dirname "$0")/programs_start.sh"
xsock=$build/tools/xsock
rate=$build/bench/connect_rate
for file in "$xsock" "$rate" "$build/libxsock/libxsock-preload.so"; do
    [ -e "$file" ] || die "$file is not built"
done
PATH=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1):$PATH
# By the built-in policy, whatever this user's file says; over TCP alone.
chmod 755 "$work"
: >"$work/policy"
export XSOCK_POLICY=$work/policy XSOCK_SHM=off XSOCK_KERNEL=off XSOCK_LOG=off
unset XSOCK_STREAM LD_PRELOAD

under() {
    prefix=()
    [ "$1" = plain ] || prefix=("$xsock" run --stream --summary --)
}

# ---- what was carried --------------------------------------------------------

# counts LOG: connected, accepted, listening, carried, of unknown peers, plain for any other reason.
counts() {
    awk '/^xsock: [0-9]+ TCP sockets in/ { connected = $8; accepted = $10; listening = $12 }
        /^xsock: +[0-9]+ carried over iWARP \(stream mode\)/ { carried = $2 }
        /passed through: unknown-peer/ { unknown = $2; next }
        /passed through: did not ask for DDPMODE/ { next }
        /^xsock: +[0-9]+ (passed|uses)/ { other += $2 }
        END { print connected + 0, accepted + 0, listening + 0, carried + 0, unknown + 0, other + 0 }' "$1"
}
# check_client MODE LEAST: it connected at least so often, and each connection was of that mode:
# carried, or, where both servers are plain, to a peer not known.
check_client() {
    local connected carried unknown other
    [ "$1" = stream ] || return 0
    read -r connected _ _ carried unknown other < <(counts "$work/client.err")
    [ "$connected" -ge "$2" ] && [ "$other" = 0 ] ||
        die "not the connections it should have" "$work/client.err"
    if [ -z "$plain_servers" ]; then
        [ "$unknown" = 0 ] && [ "$carried" -ge "$connected" ] || die "not all carried" "$work/client.err"
    else
        [ "$carried" = 0 ] && [ "$unknown" -ge "$connected" ] || die "not all plain" "$work/client.err"
    fi
}
client() {  # client MODE LEAST COMMAND...
    local mode=$1 least=$2
    shift 2
    run_client "$mode" "$@"
    check_client "$mode" "$least"
}
# Of a server that listens: a plain one has nothing of xsock's, the other one is known to clients.
check_server() {
    if [ "$1" = plain ]; then
        if grep -q 'libxsock[-.]' "/proc/${pids[$1]}/maps"; then die "the plain server is under xsock"; fi
        return
    fi
    for _ in $(seq 100); do
        "${as_user[@]}" "$xsock" info --policy any "127.0.0.1:$port" --json |
            grep -q '"peer".*"sdp"' && return
        sleep 0.1
    done
    die "no client would be carried to the server" "$work/server-$1.log"
}
# end_server MODE: all that it accepted was carried.
end_server() {
    local accepted listening carried unknown other
    stop "$1" "${end_signal:-TERM}"
    [ "$1" = stream ] || return 0
    read -r _ accepted listening carried unknown other < <(counts "$work/server-$1.log")
    [ "$accepted" -gt 0 ] && [ "$carried" -ge $((accepted + listening)) ] && [ $((unknown + other)) = 0 ] ||
        die "the server's connections were not all carried" "$work/server-$1.log"
}

# ---- the programs ------------------------------------------------------------

redis_bench() {  # redis_bench MODE PREFIX OPTIONS...
    local mode=$1 row=$2
    shift 2
    client "$mode" 50 redis-benchmark -p "$port" -c 50 -q -t set,get --csv "$@" | redis_csv "$row"
}
redis_figure() { redis_bench "$1" redis_ -n 50000; }
redis_p16_server() { redis_server "$1"; }
redis_p16_figure() { redis_bench "$1" redis_p16_ -n 500000 -P 16; }
plain_redis_server() { redis_server "$1"; }
plain_redis_figure() { redis_bench "$1" plain_redis_ -n 50000; }

wrk_figure() {  # wrk_figure MODE ROW
    client "$1" 100 wrk -t 1 -c 100 -d 1s "http://127.0.0.1:$port/small" | wrk_requests "$2"
}
nginx_figure() { wrk_figure "$1" nginx_wrk; }
sendfile_server() { nginx_server "$1" "sendfile on; tcp_nopush on;"; }
sendfile_figure() { wrk_figure "$1" nginx_wrk_sendfile; }
ab_server() { nginx_server "$1"; }
ab_figure() {
    client "$1" 5000 ab -q -n 5000 -c 10 "http://127.0.0.1:$port/small" | awk '
        /Failed requests: +[1-9]/ || /Non-2xx/ { wrong = 1 }
        /Requests per second/ { rate = $4 / 1000 }
        END { if (wrong || !rate) exit 1; print "nginx_ab", rate }'
}

connect_server() { serve "$1" "$rate" serve "$port"; }
connect_figure() {
    client "$1" 20 "$rate" "$port" 1 | awk '{ print "connect", $1 / 1000 }'
}
plain_connect_server() { connect_server "$1"; }
plain_connect_figure() { connect_figure "$1" | sed 's/^/plain_/'; }

# PostgreSQL refuses root. xsock's clients believe servers of their own user.
pgbench_server() {
    local data=$work/postgres-$1
    end_signal=INT  # sessions are ended
    if [ "$(id -u)" = 0 ]; then
        as_user=(setpriv --reuid=postgres --regid=postgres --clear-groups env HOME=/)
    fi
    mkdir "$data"
    [ "$(id -u)" != 0 ] || chown postgres: "$data"
    cd "$data"  # initdb warns of a folder that its user cannot read
    "${as_user[@]}" true && "${as_user[@]}" "$xsock" --version >/dev/null ||
        die "the user postgres cannot reach $xsock"
    export LC_ALL=C.UTF-8 PGHOST=127.0.0.1 PGUSER=postgres PGDATABASE=postgres PGSSLMODE=disable
    "${as_user[@]}" initdb -D "$data/data" -U postgres -A trust --no-sync --no-instructions \
        >"$work/initdb.log" 2>&1 || die "initdb" "$work/initdb.log"
    serve "$1" postgres -D "$data/data" -p "$port" -c unix_socket_directories= -c fsync=off \
        -c listen_addresses=127.0.0.1 -c max_connections=40
    run_client "$1" pgbench -p "$port" -iq -s 5
}
pgbench_figure() {
    client "$1" 8 pgbench -p "$port" -n -S -c 8 -j 2 -T 1 | awk '
        /failed transactions: [1-9]/ { wrong = 1 }
        /^tps = .*without initial/ { rate = $3 / 1000 }
        END { if (wrong || !rate) exit 1; print "pgbench", rate }'
}

# What each needs, and its rows: name:unit:limit:aim.
needs_of() {
    case $1 in
    *redis*) echo redis-server redis-benchmark ;;
    nginx | sendfile) echo nginx wrk ;;
    ab) echo nginx ab ;;
    pgbench) echo postgres initdb pgbench setpriv ;;
    esac
}
rows_of() {
    case $1 in
    redis) echo redis_set:k/s:0.8:1.0 redis_get:k/s:0.8:1.0 ;;
    redis_p16) echo redis_p16_set:k/s:1.0:1.2 redis_p16_get:k/s:1.0:1.2 ;;
    nginx) echo nginx_wrk:k/s:0.75:0.95 ;;
    sendfile) echo nginx_wrk_sendfile:k/s:0.75:0.95 ;;
    pgbench) echo pgbench:k/s:0.9:1.0 ;;
    ab) echo nginx_ab:k/s:0.5:0.7 ;;
    connect) echo connect:k/s:0.5:0.7 ;;
    plain_redis) echo plain_redis_set:k/s:0.98:1.0 plain_redis_get:k/s:0.98:1.0 ;;
    plain_connect) echo plain_connect:k/s:0.98:1.0 ;;
    *) return 1 ;;
    esac
}
measure() {
    local name=$1 plain_servers='' end_signal='' as_user=() mode modes=(plain stream)
    # shellcheck disable=SC2046
    need ss $(needs_of "$name") || return 77
    [[ $name != plain_* ]] || { plain_servers=1 && modes=(plain); }
    for mode in "${modes[@]}"; do
        port=$(free_port)
        ports[$mode]=$port
        "${name}_server" "$mode"
        check_server "$mode"
    done
    [ -z "$plain_servers" ] || ports[stream]=${ports[plain]}
    take_turns plain stream "${name}_figure" >"$work/figures"
    for mode in "${modes[@]}"; do end_server "$mode"; done
    # shellcheck disable=SC2046
    python3 "$here/table.py" ratios "${markdown[@]}" plain stream $(rows_of "$name") <"$work/figures"
}

[ $# != 0 ] || set -- redis redis_p16 nginx sendfile pgbench ab connect plain_redis plain_connect
measure_rows rows_of plain stream "$@"
