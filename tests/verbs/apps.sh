#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Unmodified RDMA programs from Debian over the drop-in libraries, on loopback: every end that ends
# by itself must exit 0 and say what it should.
#
#   apps.sh BUILD [--full] [--page docs/verbs.md]
#
# --page puts the results into the compatibility page. Exit status 77: a program is missing.
set -u
build=$(realpath "${1:?the build folder}")
shift
full=0 page=
while [ $# -gt 0 ]; do
    case $1 in
        --full) full=1 ;;
        --page) page=$(realpath "${2:?a file}"); shift ;;
        *) echo "unknown argument: $1" >&2; exit 2 ;;
    esac
    shift
done
xsock=$build/tools/xsock
[ -e "$build/libxsock/verbs/libibverbs.so.1" ] && [ -x "$xsock" ] ||
    { echo "SKIPPED: the verbs API is not built"; exit 77; }
for program in ibv_devices ibv_devinfo rping ucmatose rdma_server rdma_xserver cmtime rstream \
    riostream ib_send_bw qperf fio ss; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program here"; exit 77; }
done

work=$(mktemp -d)
server=
# A script's background jobs ignore SIGINT, and so would what they start.
run=(env --default-signal=INT "$xsock" run --verbs --)
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work" || exit 1

port=$((20000 + RANDOM % 8000))
failed=0
rows=()

version_of() {
    local path package
    path=$(command -v "$1")
    package=$(dpkg-query -S "$(realpath "$path")" 2>/dev/null | cut -d: -f1 | head -1)
    [ -n "$package" ] && dpkg-query -W -f '${Version}' "$package" 2>/dev/null || echo '?'
}

# verdict LABEL PROGRAM STATUS REMARK
verdict() {
    local result=ok
    if [ "$3" != 0 ]; then
        result=FAILED
        failed=$((failed + 1))
        echo "FAILED  $1: $4"
        for end in server client; do
            [ -s "$work/$end" ] && sed "s/^/    $end: /" "$work/$end" | tail -12
        done
    else
        echo "ok      $1"
    fi
    rows+=("| \`$1\` | $(version_of "$2") | $result | $4 |")
}

listening() { ss -Hltn "sport = :$port" | grep -q .; }

# start PROGRAM ARGS...: a server on $port, in the background, once it listens.
start() {
    port=$((port + 1))
    while listening; do port=$((port + 1)); done
    "${run[@]}" "${@//PORT/$port}" >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        listening && return
        kill -0 "$server" 2>/dev/null || return
        sleep 0.1
    done
}

# stop [SIGNAL]: waits for the server (with SIGNAL: sends it first); answers with its status.
stop() {
    local status deadline=$((SECONDS + 60))
    [ $# = 0 ] || kill "-$1" "$server" 2>/dev/null
    while kill -0 "$server" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 0.1; done
    if kill -0 "$server" 2>/dev/null; then
        kill -9 "$server" 2>/dev/null
        wait "$server" 2>/dev/null
        server=
        return 124
    fi
    wait "$server"
    status=$?
    server=
    return $status
}

client() { timeout -k 5 120 "${run[@]}" "${@//PORT/$port}" >"$work/client" 2>&1; }

# both LABEL "SERVER" "CLIENT" [PATTERN REMARK]: both ends end by themselves with 0; the client's
# output has the pattern.
both() {
    local label=$1 s c pattern=${4:-} remark=${5:-}
    # shellcheck disable=SC2086  # words are meant to be split
    start $2
    client $3
    c=$?
    stop
    s=$?
    if [ $s = 0 ] && [ $c = 0 ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$work/client"; }; then
        verdict "$label" "${2%% *}" 0 "$remark"
    else
        verdict "$label" "${2%% *}" 1 "server $s, client $c"
    fi
}

# ---- the device ----
client ibv_devices; s=$?
grep -q xsock0 "$work/client"; verdict "ibv_devices" ibv_devices $((s + $?)) ""
client ibv_devinfo -v; s=$?
grep -q 'transport:.*iWARP' "$work/client" && grep -q PORT_ACTIVE "$work/client"
verdict "ibv_devinfo -v" ibv_devinfo $((s + $?)) ""

# ---- librdmacm's examples ----
rounds=1000
both "rping, $rounds rounds, verified" "rping -s -a 127.0.0.1 -p PORT -C $rounds -V" \
    "rping -c -a 127.0.0.1 -p PORT -C $rounds -V"
both "rping over IPv6" "rping -s -a ::1 -p PORT -C 100 -V" "rping -c -a ::1 -p PORT -C 100 -V"
start rping -s -P -a 127.0.0.1 -p PORT
s=0
for _ in 1 2 3; do client rping -c -a 127.0.0.1 -p PORT -C 50 -V || s=1; done
kill -0 "$server" 2>/dev/null || s=1
stop TERM
verdict "rping -P, three clients" rping $s "the server goes on until it is stopped"
both "ucmatose" "ucmatose -b 127.0.0.1 -p PORT" "ucmatose -s 127.0.0.1 -p PORT" "data transfers complete"
both "rdma_server, rdma_client" "rdma_server -p PORT" "rdma_client -s 127.0.0.1 -p PORT" "end 0"
both "rdma_xserver, rdma_xclient" "rdma_xserver -p PORT" "rdma_xclient -s 127.0.0.1 -p PORT" "end 0"
start cmtime -p PORT
client cmtime -s 127.0.0.1 -p PORT -c 100
s=$?
grep -q '^disconnect' "$work/client" || s=1
kill -0 "$server" 2>/dev/null || s=1
stop TERM
verdict "cmtime, 100 connections" cmtime $s "the server goes on until it is stopped"
both "rstream, verified" "rstream -p PORT -S 4096 -I 50 -C 4 -T v" \
    "rstream -s 127.0.0.1 -p PORT -S 4096 -I 50 -C 4 -T v" "custom" "rsockets of the host's librdmacm"
both "riostream, verified" "riostream -p PORT -S 65536 -I 20 -C 4 -T v" \
    "riostream -s 127.0.0.1 -p PORT -S 65536 -I 20 -C 4 -T v" "custom" "rsockets of the host's librdmacm"

# ---- perftest ----
perftest() {  # LABEL PROGRAM ARGS REMARK
    both "$1" "$2 -R -F -p PORT $3" "$2 -R -F -p PORT $3 127.0.0.1" '^ [0-9]+ +[0-9]+ ' "${4:-}"
}
number=500
for operation in send write read atomic; do
    for kind in bw lat; do
        perftest "ib_${operation}_$kind -R" "ib_${operation}_$kind" "-n $number"
    done
done
perftest "ib_write_bw -R -a" ib_write_bw "-a -n 20"
for operation in send write read; do
    perftest "ib_${operation}_bw -R -b" "ib_${operation}_bw" "-b -n $number"
    perftest "ib_${operation}_bw -R -q 8" "ib_${operation}_bw" "-q 8 -n 200"
done
perftest "ib_send_bw -R -e" ib_send_bw "-e -n $number"
perftest "ib_send_lat -R -e" ib_send_lat "-e -n 200"
if [ $full = 1 ]; then
    for operation in send read; do perftest "ib_${operation}_bw -R -a" "ib_${operation}_bw" "-a -n 50"; done
    for operation in send write read; do
        perftest "ib_${operation}_lat -R -a" "ib_${operation}_lat" "-a -n 50"
        perftest "ib_${operation}_bw -R -n 100000 -s 4096" "ib_${operation}_bw" "-n 100000 -s 4096"
    done
    # (Writes have no events: perftest refuses -e for them.)
    perftest "ib_read_bw -R -e" ib_read_bw "-e -n $number"
fi
start ib_write_bw -R -F -p PORT --run_infinitely
"${run[@]}" ib_write_bw -R -F -p $port --run_infinitely 127.0.0.1 >"$work/client" 2>&1 &
c=$!
for _ in $(seq 300); do
    grep -qE '^ 65536 +[0-9]+ ' "$work/client" && break
    sleep 0.1
done
kill -INT $c
wait $c
stop INT
grep -qE '^ 65536 +[0-9]+ ' "$work/client"
verdict "ib_write_bw -R --run_infinitely" ib_write_bw $? "figures every five seconds until stopped"

# ---- qperf, fio ----
start qperf -lp PORT
client qperf -lp $port -cm 1 -t 1 127.0.0.1 rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat \
    rc_rdma_write_bw rc_rdma_write_lat rc_rdma_write_poll_lat
s=$?
[ "$(grep -cE '(bw|latency) +=' "$work/client")" = 8 ] || s=1
stop TERM
verdict "qperf -cm 1, eight rc_ tests" qperf $s "the server goes on until it is stopped"
# fio's rdma engine has no verify of its own: both ends' buffers are files in memory, which are compared
# afterwards. What was written or sent is the client's pattern, whole; what was read is, piece by
# piece, one of the server's eight random buffers (fio chooses which).
fio_pieces() {
    for piece in 0 1 2 3 4 5 6 7; do
        dd if="$1" bs=64k skip=$piece count=1 status=none | sha256sum
    done | sort -u
}
fio_data() {  # VERB
    case $1 in
        read) [ "$(fio_pieces "$work/theirs" | wc -l)" = 8 ] &&
            [ -z "$(comm -13 <(fio_pieces "$work/theirs") <(fio_pieces "$work/ours"))" ] ;;
        *) cmp -s -n 524288 "$work/theirs" "$work/ours" &&
            [ "$(head -c 11 "$work/theirs" | od -An -tx1 | tr -d ' ')" = deadbeefcafe0123456789 ] ;;
    esac
}
for verb in write read send; do
    truncate -s 0 "$work/theirs" "$work/ours"
    truncate -s 1M "$work/theirs" "$work/ours"
    pattern=(--buffer_pattern=0xdeadbeefcafe0123456789)
    [ $verb != read ] || { head -c 1M /dev/urandom >"$work/theirs" && pattern=(); }
    start fio --name=s --ioengine=rdma --port=PORT --rw=read --bs=64k --size=8m --iodepth=8 \
        --iomem=mmapshared:"$work/theirs"
    client fio --name=c --ioengine=rdma --hostname=127.0.0.1 --port=PORT --verb=$verb --rw=write \
        --bs=64k --size=8m --iodepth=8 --iomem=mmapshared:"$work/ours" "${pattern[@]}"
    c=$?
    stop
    s=$?
    [ $s$c = 00 ] && grep -q 'err= 0' "$work/client" && fio_data $verb
    verdict "fio, rdma engine, verb=$verb" fio $? "no verify of its own: both ends' memory is compared"
done

# ---- without rdma_cm ----
run+=(env XSOCK_VERBS_GID=1)
both "ib_write_bw, no rdma_cm, --gid" "ib_write_bw -F -p PORT -n $number" \
    "ib_write_bw -F -p PORT -n $number 127.0.0.1" '^ 65536 ' "the opt-in, not a standard"
# Where perftest sees iWARP, this test makes a region for credit. Its version 4.5+0.17 frees that only
# with -R: after a good run its PD is busy, and both ends exit with 1.
start ib_send_bw -F -p PORT -n $number
client ib_send_bw -F -p PORT -n $number 127.0.0.1
c=$?
stop
s=$?
errors=$(grep -hE "Couldn't|Failed|Unable|error" "$work/server" "$work/client")
busy=$(grep -c 'deallocate PD' <<<"$errors")
[ "$((s + c))" = "$busy" ] && grep -qE '^ 65536 +[0-9]+ ' "$work/client" &&
    ! grep -vE 'deallocate PD|destroy all SEND resources' <<<"$errors" | grep -q .
verdict "ib_send_bw, no rdma_cm, --gid" ib_send_bw $? \
    "the opt-in, not a standard; perftest leaves its credit region registered and exits with 1"
both "ibv_rc_pingpong, --gid" "ibv_rc_pingpong -g 0 -p PORT" "ibv_rc_pingpong -g 0 -p PORT 127.0.0.1" \
    '^1000 iters' "the opt-in, not a standard"
if [ -n "$page" ]; then
    {
        sed '/^<!-- rows -->$/q' "$page"
        echo "| program | version | result | remark |"
        echo "|---|---|---|---|"
        printf '%s\n' "${rows[@]}"
        sed -n '/^<!-- end of rows -->$/,$p' "$page"
    } >"$work/page"
    cp "$work/page" "$page"
fi
echo "$((${#rows[@]} - failed)) of ${#rows[@]} hold"
[ $failed = 0 ]
