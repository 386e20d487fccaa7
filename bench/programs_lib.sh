# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# Unmodified programs in one way beside themselves in another: what overlay_programs.sh and
# stream_programs.sh share. Sourced, never run. Of each server one runs in each way, all the time; the
# clients take turns, theirs with theirs.
#
# The script that sources it sets $rounds, for measure_rows() also $head and ${markdown[@]}, and defines
#   under MODE              sets the array `prefix`: the command in front of a program in that mode
#   NAME_server MODE        starts that server by serve(), at $port
#   NAME_figure MODE        runs a client by run_client() against $port; prints lines of a row and its
#                           figure, of which more is better
set -eu -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/sbin:/sbin
client_seconds=120  # a client that takes longer has hung
work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-bench.XXXXXX")
declare -A ports pids
prefix=() as_user=()

die() {  # die WORDS [LOG]
    echo "${0##*/}: $1" >&2
    [ ! -s "${2:-}" ] || tail -n 12 "$2" | cut -c1-300 >&2
    exit 1
}
need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "SKIPPED: no $program here" >&2 && return 1; }
    done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
# stop MODE [SIGNAL]: ends the server of that mode; by force where it does not.
stop() {
    local pid=${pids[$1]:-}
    [ -n "$pid" ] || return 0
    unset "pids[$1]"
    kill "-${2:-TERM}" "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
        gone "$pid" && break
        sleep 0.1
    done
    gone "$pid" || kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}
stop_all() {
    local mode
    for mode in "${!pids[@]}"; do stop "$mode"; done
}
# shellcheck disable=SC2317  # called by the trap
cleanup() {
    stop_all
    rm -rf "$work"
}
# guard COMMAND: this process, or subshell, does that at its end.
guard() {
    # shellcheck disable=SC2064
    trap "$1" EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}
guard cleanup

free_port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}
listens() { ss -Hltn "sport = :$1" | grep -q .; }
# serve MODE COMMAND...: starts it in the background; returns when it listens at $port.
serve() {
    local mode=$1 log=$work/server-$1.log
    shift
    under "$mode"
    # A session of its own, so that stop() reaches what it forks.
    "${as_user[@]}" setsid "${prefix[@]}" "$@" </dev/null >"$log" 2>&1 &
    pids[$mode]=$!
    for _ in $(seq 300); do
        listens "$port" && return
        gone "${pids[$mode]}" && break
        sleep 0.1
    done
    die "no server: $*" "$log"
}
# run_client MODE COMMAND...: what it prints; its standard error is in $work/client.err.
run_client() {
    local mode=$1
    shift
    under "$mode"
    "${as_user[@]}" timeout -k 5 "$client_seconds" "${prefix[@]}" "$@" \
        </dev/null 2>"$work/client.err" || die "it failed, $mode: $*" "$work/client.err"
}

redis_server() {
    serve "$1" redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly no --dir "$work"
}
redis_csv() {  # redis_csv PREFIX: "GET","98765.43",... as a row and thousands in a second
    awk -F'"' -v prefix="$1" '$4 + 0 > 0 { print prefix tolower($2), $4 / 1000 }'
}
# nginx_server MODE [DIRECTIVES]: one process, which has a file of 1 KiB under /small.
nginx_server() {
    local folder=$work/nginx-$1 user=
    [ "$(id -u)" -ne 0 ] || user="user root;"
    mkdir -p "$folder"
    head -c 1024 /dev/zero | tr '\0' x >"$folder/small"
    cat >"$folder/conf" <<CONF
$user
daemon off; master_process off; pid $folder/pid; error_log $folder/err;
events { worker_connections 1024; }
http {
    access_log off; keepalive_requests 1000000000; ${2:-}
    client_body_temp_path $folder/b; proxy_temp_path $folder/p; fastcgi_temp_path $folder/f;
    uwsgi_temp_path $folder/u; scgi_temp_path $folder/s;
    server { listen 127.0.0.1:$port; root $folder; }
}
CONF
    serve "$1" nginx -e "$folder/err" -c "$folder/conf"
}
wrk_requests() {  # wrk_requests ROW: wrk's report as thousands in a second; all were answered
    awk -v row="$1" '/Socket errors|Non-2xx/ { wrong = 1 }
        /Requests\/sec/ { rate = $2 / 1000 }
        END { if (wrong || !rate) exit 1; print row, rate }'
}

# measure_rows KNOWN BASE SUBJECT ROW...: a table; `measure ROW` prints the lines of a row. KNOWN ROW
# fails where there is none of that name. Exits: 1 or 77 if a row did, 2 if there is no such row.
measure_rows() {
    local known=$1 base=$2 subject=$3 name one status=0
    shift 3
    for name in "$@"; do
        "$known" "$name" >/dev/null || { echo "${0##*/}: no row $name" >&2 && exit 2; }
    done
    [ -z "$head" ] || python3 "$here/table.py" head "${markdown[@]}" "$base" "$subject"
    for name in "$@"; do
        # In a process of its own: a row that fails is not the end of the others.
        set +e
        (set -e && guard stop_all && measure "$name")
        one=$?
        set -e
        [ $one = 0 ] || status=$one
    done
    exit $status
}

# take_turns BASE SUBJECT FIGURE: lines of row, round, mode and figure. A round is BASE, SUBJECT,
# SUBJECT, BASE: a machine that becomes slower or faster hits both alike.
take_turns() {
    local round mode
    for ((round = 1; round <= rounds; round++)); do
        for mode in "$1" "$2" "$2" "$1"; do
            [ ! -t 2 ] || printf '\r\033[K%s: round %d of %d, %s' "$3" "$round" "$rounds" "$mode" >&2
            port=${ports[$mode]}
            "$3" "$mode" >"$work/figure"
            while read -r row figure; do
                echo "$row $round $mode $figure"
            done <"$work/figure"
        done
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}
