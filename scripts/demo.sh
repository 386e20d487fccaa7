#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What ./run shows: real files copied over iWARP three ways, a key-value server that sleeps while it
# is read, the figures beside plain TCP, and unmodified RDMA programs. About a minute, no root,
# nothing left behind.
#   demo.sh [BUILD-DIRECTORY]      (default: build/release)
# XSOCK_DEMO_MIB: how much to copy (default 300). Exit status: 0 when all worked and was verified.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$top/build/release}
bin=$build/examples
mib=${XSOCK_DEMO_MIB:-300}

free_mib() { df -Pm "$1" 2>/dev/null | awk 'NR == 2 { print $4 }'; }
# In memory if there is plenty: the figures shall be the network's, not the disk's.
place=${TMPDIR:-}
if [ -z "$place" ]; then
    place=/tmp
    spare=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null)
    [ -w /dev/shm ] && [ "$(free_mib /dev/shm)" -gt $((mib * 3)) ] &&
        [ "${spare:-0}" -gt $((mib * 5)) ] && place=/dev/shm
fi
work=$(mktemp -d "$place/xsock-demo.XXXXXX") || exit 1
server=
failed=0
summary=()
began=$SECONDS

stop_server() {  # TERM, and waits for what it still has to say
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    server=
}
# shellcheck disable=SC2317  # called by the trap
cleanup() {
    stop_server
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { printf '\n== %s\n' "$*"; }
result() {  # result VERDICT TEXT: a line of the summary
    summary+=("$(printf '%-8s %s' "$1" "$2")")
    [ "$1" = FAILED ] && failed=1
    return 0
}

start_server() {  # start_server LOG COMMAND...: sets $port
    local log=$1
    shift
    : >"$log"  # before the search for the port: an older server wrote here too
    "$@" >"$log" 2>&1 &
    server=$!
    port=
    for _ in $(seq 100); do
        port=$(sed -n 's/^listening on port \([0-9]*\)$/\1/p' "$log")
        [ -n "$port" ] && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    echo "could not start: $*"
    cat "$log"
    return 1
}

# -- 1. file copy ----------------------------------------------------------------------------------

# Takes files of the system, up to $2 MiB below each directory, into the tree that is copied.
gather() {
    find "$1" -type f -readable -size -65536k -print0 2>/dev/null | head -z -n 3000 |
        xargs -0 -r stat --printf '%s %n\0' 2>/dev/null |
        awk -v limit=$(($2 * 1048576)) 'BEGIN { RS = "\0"; ORS = "\0" }
            { size = $1; sub(/^[0-9]+ /, ""); if (total + size <= limit) { total += size; print } }' |
        xargs -0 -r cp --parents -t "$work/from" 2>/dev/null
}

copy_files() {
    local room
    room=$(free_mib "$work")
    if [ $((mib * 5 / 2)) -gt "$room" ]; then  # both trees and some to spare
        mib=$((room * 2 / 5))
        echo "little room in $work: copying about $mib MiB"
    fi
    mkdir "$work/from" "$work/to"
    local libraries
    libraries=$(dirname "$(ldd "$bin/filecopy" | awk '/libc\.so/ { print $3 }')")
    gather "${libraries:-/usr/lib}" $((mib * 6 / 10))
    gather /usr/bin $((mib * 2 / 10))
    gather /usr/share $((mib * 2 / 10))
    (cd "$work/from" && find . -type f -print0 | xargs -0 sha256sum) >"$work/sums" || return 1
    local files
    files=$(wc -l <"$work/sums")
    say "File copy: $files files of this system, $(du -sm "$work/from" | cut -f1) MiB, over iWARP on loopback"
    if ! start_server "$work/log" "$bin/filecopy" server 0 "$work/to"; then
        result FAILED "file copy: no receiver"
        return
    fi
    local mode name quiet=--quiet
    [ -t 1 ] && quiet=
    for mode in --send --write --read; do
        case $mode in
            --send) name="Send                            " ;;
            --write) name="RDMA Write into the receiver    " ;;
            --read) name="RDMA Read by the receiver       " ;;
        esac
        echo "by ${name%% }"
        # shellcheck disable=SC2086  # $quiet is one word or none
        timeout 30 "$bin/filecopy" client $mode $quiet 127.0.0.1 "$port" "$work/from" 2>&1 | tee "$work/out"
        if [ "${PIPESTATUS[0]}" != 0 ]; then
            cat "$work/log"
            result FAILED "file copy by $name"
        elif ! (cd "$work/to/from" && sha256sum --quiet --strict -c "$work/sums"); then
            result FAILED "file copy by $name: sha256sum finds differences"
        else
            result ok "file copy by $name $(tr '\r' '\n' <"$work/out" | sed -n 's/.*files, \(.* MB in .* MB\/s\);.*/\1/p' | tail -n 1), sha256sum agrees"
        fi
        rm -rf "$work/to/from"
    done
    stop_server
    rm -rf "$work/from" "$work/to"
}

# -- 2. the server that sleeps ---------------------------------------------------------------------

key_value() {
    say "Key-value look-ups by RDMA Read while the server's application sleeps"
    if ! start_server "$work/log" "$bin/kv" server 0 100000; then
        result FAILED "key-value server: does not start"
        return
    fi
    local depth ok=1
    for depth in 1 16; do
        echo "look-ups, $depth under way:"
        timeout 20 "$bin/kv" client 127.0.0.1 "$port" $((depth * 20000)) $depth 2>&1 | tee "$work/out"
        [ "${PIPESTATUS[0]}" = 0 ] || ok=0
        if [ $ok = 1 ]; then
            result ok "key-value, $(printf '%2d' $depth) under way: $(sed 's/, all right, in.*: /, all right: /; s/;.*//' "$work/out")"
        fi
    done
    stop_server
    tail -n 1 "$work/log"
    local cpu
    cpu=$(sed -n 's/.*CPU time: //p' "$work/log")
    if [ $ok = 1 ] && [ -n "$cpu" ]; then
        result ok "key-value server's CPU time: $cpu"
    else
        result FAILED "key-value look-ups"
    fi
}

# -- 3. beside plain TCP ---------------------------------------------------------------------------

figures() {
    local bench=$build/bench/xsock_bench
    [ -x "$bench" ] || return 0
    say "Beside plain TCP"
    if timeout 40 "$bench" --quick; then
        result ok "figures beside plain TCP: the table above"
    else
        result FAILED "figures beside plain TCP"
    fi
}

# -- 4. unmodified RDMA programs -------------------------------------------------------------------

# rdma_pair PORT PROGRAM...: a server in the background, the same with the address as client.
rdma_pair() {
    local on=$1 s c
    shift
    "${verbs[@]}" "$@" -p "$on" >"$work/rdma-server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        ss -Hltn "sport = :$on" | grep -q . && break
        sleep 0.1
    done
    timeout 60 "${verbs[@]}" "$@" -p "$on" 127.0.0.1 >"$work/rdma-client" 2>&1
    c=$?
    wait "$server"
    s=$?
    server=
    [ $s = 0 ] && [ $c = 0 ]
}

rdma_programs() {
    local verbs=("$build/tools/xsock" run --verbs --) on=$((21000 + RANDOM % 8000)) average
    [ -x "$build/tools/xsock" ] && [ -e "$build/libxsock/verbs/libibverbs.so.1" ] || return 0
    if ! command -v rping ib_write_bw ss >/dev/null; then
        say "Unmodified RDMA programs: rping and ib_write_bw are not installed (rdmacm-utils, perftest)"
        return 0
    fi
    say "Unmodified RDMA programs on this machine, RDMA device or not: rping, ib_write_bw -R"
    "${verbs[@]}" rping -s -a 127.0.0.1 -p $on -C 100 -V >"$work/rdma-server" 2>&1 &
    server=$!
    sleep 1
    if timeout 60 "${verbs[@]}" rping -c -a 127.0.0.1 -p $on -C 100 -V && wait "$server"; then
        result ok "rping: 100 rounds of Send, RDMA Read and RDMA Write, verified by rping"
    else
        result FAILED "rping"
    fi
    server=
    if rdma_pair $((on + 1)) ib_write_bw -R -F -n 20000; then
        tail -4 "$work/rdma-client"
        average=$(awk '$1 == 65536 { print $4 }' "$work/rdma-client")
        result ok "ib_write_bw -R, 64 KiB RDMA Writes: $average MB/s"
    else
        tail -5 "$work/rdma-client"
        result FAILED "ib_write_bw -R"
    fi
    command -v iperf3 >/dev/null || return 0
    iperf3 -s -1 -p $((on + 2)) >/dev/null 2>&1 &
    server=$!
    sleep 1
    average=$(iperf3 -c 127.0.0.1 -p $((on + 2)) -t 3 -l 64K -f M 2>/dev/null |
        awk '/receiver/ { for (i = 1; i < NF; i++) if ($(i + 1) ~ /Bytes\/sec/) print $i }')
    wait "$server"
    server=
    [ -z "$average" ] || result ok "iperf3 beside it, plain TCP, calls of 64 KiB: $average MB/s"
}

for program in filecopy kv; do
    [ -x "$bin/$program" ] || {
        echo "demo.sh: $bin/$program is missing; build first (./run does)" >&2
        exit 1
    }
done
copy_files
key_value
figures
rdma_programs

say "Summary ($((SECONDS - began)) s)"
printf '%s\n' "${summary[@]}"
if [ $failed = 0 ]; then
    echo "All of it worked, and every file and answer was verified."
else
    echo "Something FAILED; see above. docs/troubleshooting.md may help; XSOCK_LOG=info says more."
fi
exit $failed
