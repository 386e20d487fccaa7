#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What ./run shows: real files copied over iWARP three ways, a key-value server that sleeps while it
# is read, an echo server that two lines turn into a DDP one, by TCP and through shared memory,
# unmodified programs under the overlay and carried by it, unmodified RDMA programs and UCX with no
# RDMA device, and the figures beside plain TCP. About a minute and a half, no root, nothing left behind.
#   demo.sh [BUILD-DIRECTORY]      (default: build/release)
# XSOCK_DEMO_MIB: how much to copy (default 300). Exit status: 0 when all worked and was verified.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$top/build/release}
bin=$build/examples
mib=${XSOCK_DEMO_MIB:-300}
export XSOCK_SHM=off XSOCK_KERNEL=off  # over TCP, but for the row that says otherwise

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

# -- 3. sockets: two lines, and none --------------------------------------------------------------

# The median of three; nothing where a client failed.
us_each() {
    sed -n 's/.* over '"$1"'.*: \([0-9.]*\) us each$/\1/p' "$work/out" | sort -n |
        awk 'NR == 2 { median = $1 } END { if (NR == 3) print median }'
}

two_lines() {
    say "An echo server of plain socket calls, and the same with two lines more (setsockopt DDPMODE)"
    if ! start_server "$work/log" "$bin/echo_socket" server 0 --ddp; then
        result FAILED "echo_socket: does not start"
        return
    fi
    : >"$work/out"
    for _ in 1 2 3; do  # interleaved; the server serves both kinds of clients on its one port
        timeout 20 "$bin/echo_socket" client 127.0.0.1 "$port" 5000 >>"$work/out" 2>&1
        timeout 20 "$bin/echo_socket" client 127.0.0.1 "$port" 5000 --ddp >>"$work/out" 2>&1
    done
    stop_server
    cat "$work/out"
    local plain ddp
    plain=$(us_each 'plain TCP')
    ddp=$(us_each iWARP)
    if [ -n "$plain" ] && [ -n "$ddp" ]; then
        result ok "echo by recv() and send(), 64 bytes and back: plain TCP $plain us, with the two lines $ddp us over iWARP"
    else
        result FAILED "echo by recv() and send()"
    fi
}

same_host() {
    say "The same through shared memory, as both programs are on one host (XSOCK_SHM)"
    if ! XSOCK_SHM=auto start_server "$work/log" "$bin/echo_socket" server 0 --ddp; then
        result FAILED "echo_socket: does not start"
        return
    fi
    : >"$work/out"
    for _ in 1 2 3; do  # interleaved
        XSOCK_SHM=off timeout 20 "$bin/echo_socket" client 127.0.0.1 "$port" 5000 --ddp >>"$work/out" 2>&1
        XSOCK_SHM=require timeout 20 "$bin/echo_socket" client 127.0.0.1 "$port" 5000 --ddp >>"$work/out" 2>&1
    done
    stop_server
    cat "$work/out"
    local tcp shm
    tcp=$(us_each 'iWARP (MPA')
    shm=$(us_each 'iWARP (through')
    if [ -n "$tcp" ] && [ -n "$shm" ]; then
        result ok "same host, 64 bytes and back: $tcp us by TCP, $shm us through shared memory"
    else
        result FAILED "same host: echo through shared memory"
    fi
}

free_port() {  # one that a server of ours had a moment ago: sets $port
    start_server "$work/log" "$bin/echo" server 0 && stop_server
}

await_listener() {  # until the server listens on $port, has ended, or 10 s have passed
    local listening
    listening=$(printf ' [0-9A-F]*:%04X [0-9A-F]*:0000 0A ' "$port")
    for _ in $(seq 200); do
        cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "$listening" && return
        kill -0 "$server" 2>/dev/null || return
        sleep 0.05
    done
}

# What iperf3 counts in a second, Mbit/s, both ends started by "$@".
iperf_once() {
    free_port || return
    timeout 20 "$@" iperf3 -s -1 -p "$port" >/dev/null 2>&1 &
    server=$!
    await_listener
    timeout 20 "$@" iperf3 -c 127.0.0.1 -p "$port" -t 1 -f m 2>/dev/null |
        awk '/receiver/ { print $(NF - 2) }'
    stop_server
}

unmodified() {
    command -v iperf3 >/dev/null || {
        result skipped "an unmodified program under the overlay: iperf3 is not installed"
        return
    }
    say "An unmodified program under the overlay, beside itself without it: iperf3, 3 rounds in turn"
    local ratios=
    for _ in 1 2 3; do
        local without with
        without=$(iperf_once)
        with=$(iperf_once "$build/tools/xsock" run --)
        if [ -z "$without" ] || [ -z "$with" ]; then
            result FAILED "iperf3 under the overlay"
            return
        fi
        echo "without $without Mbit/s, with $with Mbit/s"
        ratios+="$(awk -v a="$with" -v b="$without" 'BEGIN { printf "%.2f", a / b }')"$'\n'
    done
    tcp_mbits=$without
    result ok "iperf3 under the overlay, passed through: $(printf %s "$ratios" | sort -n | sed -n 2p) times what it has without (median of 3)"
}

# Requests per second, from redis-benchmark's lines: SET and GET together.
redis_rate() {
    tr '\r' '\n' <"$work/out" | awk '/requests per second/ { sum += 1 / $2; n++ }
        END { if (n == 2) printf "%.0f", n / sum }'
}

start_redis() {  # start_redis COMMAND...: sets $port
    free_port || return
    "$@" redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        redis-cli -p "$port" ping >"$work/out" 2>&1 && return
        sleep 0.05
    done
    cat "$work/log"
    return 1
}

carried() {
    command -v redis-server redis-benchmark >/dev/null || {
        result skipped "an unmodified program carried over iWARP: redis is not installed"
        return
    }
    say "An unmodified program carried over iWARP, beside itself without it: redis-benchmark, 3 rounds in turn"
    local xsock=("$build/tools/xsock" run --stream --summary --)
    local benchmark=(redis-benchmark -t 'set,get' -n 30000 -c 50 -q)
    local ratios= sockets=0 round kind why
    for round in 1 2 3; do
        local rates=()
        for kind in plain carried; do
            local with=()
            [ $kind = carried ] && with=("${xsock[@]}")
            start_redis "${with[@]}" || {
                result FAILED "redis-server: does not start"
                return
            }
            timeout 30 "${with[@]}" "${benchmark[@]}" -p "$port" >"$work/out" 2>&1
            rates+=("$(redis_rate)")
            if [ $kind = carried ]; then
                sockets=$(sed -n 's/^xsock: *\([0-9]*\) carried over iWARP.*/\1/p' "$work/out")
            elif [ $round = 1 ]; then
                # What is not carried is told, too: this server is not under xsock.
                timeout 10 "${xsock[@]}" redis-cli -p "$port" ping >"$work/plain" 2>&1
            fi
            stop_server
        done
        if [ -z "${rates[0]}" ] || [ -z "${rates[1]}" ] || [ "${sockets:-0}" -lt 50 ]; then
            tail -n 5 "$work/out"
            result FAILED "redis-benchmark carried over iWARP"
            return
        fi
        echo "plain ${rates[0]} requests/s, carried ${rates[1]} requests/s, $sockets connections carried"
        ratios+="$(awk -v a="${rates[1]}" -v b="${rates[0]}" 'BEGIN { printf "%.2f", a / b }')"$'\n'
    done
    result ok "redis-benchmark, $sockets connections carried over iWARP: $(printf %s "$ratios" | sort -n | sed -n 2p) times the requests it has without (median of 3)"
    why=$(sed -n 's/^xsock: *1 passed through: //p' "$work/plain")
    if grep -q '^PONG$' "$work/plain" && [ -n "$why" ]; then
        result ok "redis-cli toward a server that is not under xsock: plain TCP, $why"
    else
        cat "$work/plain"
        result FAILED "redis-cli toward a server that is not under xsock"
    fi
}

# -- 4. RDMA programs without an RDMA device ---------------------------------------------------------

rdma() {
    local program
    for program in rping ib_write_bw; do
        command -v $program >/dev/null || {
            result skipped "RDMA programs: $program is not installed"
            return
        }
    done
    local rdma=("$build/tools/xsock" run --verbs --)
    say "Unmodified RDMA programs on this machine, which has $(find /sys/class/infiniband -mindepth 1 -maxdepth 1 2>/dev/null | wc -l) RDMA devices"
    free_port || return
    timeout 30 "${rdma[@]}" rping -s -a 127.0.0.1 -p "$port" -C 1000 >/dev/null 2>&1 &
    server=$!
    await_listener
    if timeout 30 "${rdma[@]}" rping -c -a 127.0.0.1 -p "$port" -C 1000 -V >"$work/out" 2>&1; then
        result ok "rping: 1000 rounds of Send, RDMA Read and RDMA Write, every byte verified"
    else
        tail -n 5 "$work/out"
        result FAILED "rping"
    fi
    stop_server
    free_port || return
    timeout 30 "${rdma[@]}" ib_write_bw -R -F -p "$port" -D 2 -s 65536 >/dev/null 2>&1 &
    server=$!
    await_listener
    timeout 30 "${rdma[@]}" ib_write_bw -R -F -p "$port" -D 2 -s 65536 127.0.0.1 >"$work/out" 2>&1
    local mib
    mib=$(awk '$1 == 65536 && NF >= 4 { print $4 }' "$work/out")
    stop_server
    grep -E '^ *(#bytes|65536)' "$work/out"
    if [ -n "$mib" ]; then
        result ok "ib_write_bw, 64 KiB: $(awk -v m="$mib" 'BEGIN { printf "%.1f", m * 8.388608 / 1000 }') Gbit/s, CRC on; iperf3 over plain TCP: $(awk -v m="${tcp_mbits:-0}" 'BEGIN { if (m > 0) printf "%.1f", m / 1000; else printf "?" }') Gbit/s"
    else
        tail -n 5 "$work/out"
        result FAILED "ib_write_bw"
    fi
}

# tag_lat TRANSPORTS COMMAND...: UCX's own measurement, 8 bytes, over these: half a round in us.
tag_lat() {
    local transports=$1
    shift
    free_port || return
    UCX_TLS=$transports UCX_WARN_UNUSED_ENV_VARS=n timeout 30 "$@" ucx_perftest -p "$port" >"$work/out" 2>&1 &
    server=$!
    await_listener
    UCX_TLS=$transports UCX_WARN_UNUSED_ENV_VARS=n timeout 30 "$@" ucx_perftest 127.0.0.1 -p "$port" \
        -t tag_lat -s 8 -n 20000 >"$work/client" 2>&1
    stop_server
    awk '$1 == "Final:" { print $3 }' "$work/client"
}

# Programs that refuse iWARP, on the device that looks like RoCE: UCX, on which MPI is built.
ucx() {
    command -v ucx_perftest >/dev/null || {
        result skipped "UCX on the device that looks like RoCE: ucx_perftest is not installed"
        return
    }
    say "UCX, unmodified: over reliable queue pairs of a device that looks like RoCE, and over its own TCP"
    local rc tcp
    rc=$(tag_lat rc_v,self "$build/tools/xsock" run --roce --)
    [ -n "$rc" ] || tail -n 5 "$work/client"
    tcp=$(tag_lat tcp,self env)
    # Where other programs keep the processors busy, two that spin wait for each other's time slices:
    # 30 seconds are not enough then, and what it has told so far stands beside.
    [ -n "$tcp" ] || tcp=$(awk '$1 == "[thread" { so_far = $4 } END { print so_far }' "$work/client")
    [ -n "$tcp" ] || tail -n 5 "$work/client"
    printf '%-8s %8s us\n' rc_v "${rc:-?}" tcp "${tcp:-?}"
    if [ -n "$rc" ] && [ -n "$tcp" ]; then
        result ok "ucx_perftest tag_lat, 8 bytes, over rc_v: $rc us; over UCX's own TCP: $tcp us"
    else
        result FAILED "ucx_perftest over rc_v, or over UCX's own TCP"
    fi
}

# -- 5. beside plain TCP ---------------------------------------------------------------------------

figures() {
    local bench=$build/bench/xsock_bench
    [ -x "$bench" ] || return 0
    say "Beside plain TCP"
    # Samples of a tenth of a second: which rows miss their limits differs from run to run.
    if timeout 40 "$bench" --quick | tee "$work/figures"; then
        local missed
        missed=$(grep -c 'MISSES the limit' "$work/figures" || true)
        result ok "figures beside plain TCP, in the table above$([ "$missed" = 0 ] ||
            echo "; in samples this short $missed missed their limits: docs/performance.md has long ones")"
    else
        result FAILED "figures beside plain TCP"
    fi
}

tcp_mbits=
for program in filecopy kv echo echo_socket; do
    [ -x "$bin/$program" ] || {
        echo "demo.sh: $bin/$program is missing; build first (./run does)" >&2
        exit 1
    }
done
copy_files
key_value
two_lines
same_host
unmodified
carried
rdma
ucx
figures

say "Summary ($((SECONDS - began)) s)"
printf '%s\n' "${summary[@]}"
if [ $failed = 0 ]; then
    echo "All of it worked, and every file and answer was verified."
else
    echo "Something FAILED; see above. docs/troubleshooting.md may help; XSOCK_LOG=info says more."
fi
exit $failed
