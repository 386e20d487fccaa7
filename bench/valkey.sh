#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# valkey 8.1 over RDMA (unmodified under `xsock run --verbs`, CRC on) beside the same programs over
# plain TCP, on loopback: SETs of 32 bytes by one client, and by 50 clients with pipelines of 16.
# Each round measures every figure once, TCP and RDMA in turns, so that what disturbs the machine
# disturbs both. Prints, for each figure, the least, the median and the most, and the same of the
# ratio of RDMA to TCP in the same round.
#
#   valkey.sh [-r ROUNDS] [-n SETS] [-f] BUILD
#
#   -r ROUNDS    default 7
#   -n SETS      how many SETs the one client makes in each round, default 30000; the 50 clients make
#                20 times as many. (Not by time: valkey-benchmark's --duration waits over RDMA for
#                the channel to be writable, which a completion channel never is.)
#   -f           server and clients on any processor; otherwise each has one of its own, as in
#                verbs.sh
#   BUILD        the build folder
#
# tests/verbs/valkey_build.sh makes the programs (minutes and network, the first time). Compare well
# at `nice -n -20`.
set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=7 number=30000 free=
usage() { sed -n 's/^#   \(valkey.sh.*\)/usage: \1/p' "$0" >&2; }
while getopts r:n:f option; do
    case $option in
    r) rounds=$OPTARG ;;
    n) number=$OPTARG ;;
    f) free=1 ;;
    *) usage && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# != 1 ]; then usage && exit 2; fi
build=$(cd "$1" && pwd) || exit 2
for program in ss taskset timeout; do
    command -v $program >/dev/null || { echo "SKIPPED: no $program here"; exit 77; }
done
[ -e "$build/libxsock/verbs/libibverbs.so.1" ] && [ -x "$build/tools/xsock" ] ||
    { echo "SKIPPED: the verbs API or the program xsock is not built"; exit 77; }
valkey=$("$here/../tests/verbs/valkey_build.sh") || exit
work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-bench.XXXXXX")
servers=()
# shellcheck disable=SC2317  # called by the trap
cleanup() {
    [ ${#servers[@]} = 0 ] || { kill "${servers[@]}" && wait "${servers[@]}"; } 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
die() {
    echo "valkey.sh: $1" >&2
    [ ! -s "${2:-}" ] || tail -n 5 "$2" | cut -c1-200 >&2
    exit 1
}
export XSOCK_LOG=off XSOCK_SHM=${XSOCK_SHM-off} XSOCK_KERNEL=${XSOCK_KERNEL-off}
on_server=() on_client=()
if [ -z "$free" ] && [ "$(nproc)" -ge 2 ]; then
    on_server=(taskset -c 0) on_client=(taskset -c 1)
fi
xsock=("$build/tools/xsock" run --verbs --)

# Three ports: TCP's server; RDMA's server, which listens for TCP too.
port=$((20000 + RANDOM % 20000))
while ss -Htan "sport >= :$port and sport <= :$((port + 2))" | grep -q .; do
    port=$((20000 + RANDOM % 20000))
done
rdma_port=$((port + 2))
# start NAME COMMAND...: a server that keeps nothing on disk, once it listens on port PORT.
start() {
    local name=$1 listens=$2 pid
    shift 2
    "${on_server[@]}" "$@" --bind 127.0.0.1 --save '' --appendonly no --dir "$work" \
        >"$work/$name.log" 2>&1 &
    pid=$!
    servers+=("$pid")
    for _ in $(seq 100); do
        ss -Hltn "sport = :$listens" | grep -q . && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    die "the server for $name does not listen" "$work/$name.log"
}
start TCP "$port" "$valkey/valkey-server" --port "$port"
start RDMA "$rdma_port" "${xsock[@]}" "$valkey/valkey-server" --port $((port + 1)) \
    --rdma-bind 127.0.0.1 --rdma-port "$rdma_port"

# sets NAME OPTIONS...: remembers the SETs per second that valkey-benchmark counts.
sets() {
    local name=$1 figure
    shift
    timeout -k 2 120 "${on_client[@]}" "$@" -t set -d 32 --csv \
        >"$work/client" 2>&1 || die "valkey-benchmark over ${name%.*} failed" "$work/client"
    figure=$(sed -n 's/^"SET","\([0-9.]*\)".*/\1/p' "$work/client")
    [ -n "$figure" ] || die "valkey-benchmark over ${name%.*} printed no figure" "$work/client"
    echo "$figure" >>"$work/$name"
}
tcp=("$valkey/valkey-benchmark" -p "$port")
rdma=("${xsock[@]}" "$valkey/valkey-benchmark" --rdma -p "$rdma_port")
for ((round = 1; round <= rounds; ++round)); do
    sets TCP.1 "${tcp[@]}" -c 1 -n "$number"
    sets RDMA.1 "${rdma[@]}" -c 1 -n "$number"
    sets TCP.50 "${tcp[@]}" -c 50 -P 16 -n $((number * 20))
    sets RDMA.50 "${rdma[@]}" -c 50 -P 16 -n $((number * 20))
done

three() {  # three FORMAT
    sort -g | awk -v f="$1 $1 $1" '
        { v[NR] = $1 }
        END { printf f, v[1], v[int((NR + 1) / 2)], v[NR] }'
}
echo "valkey: $(cat "$valkey/versions")"
for clients in 1 50; do
    title="SET, 32 B, SETs per s, 1 client"
    [ $clients = 1 ] || title="SET, 32 B, SETs per s, 50 clients, -P 16"
    printf '\n%-42s %8s %8s %8s   %8s %8s %8s\n' "$title" least median most "/ TCP" median most
    printf '%-42s %s\n' TCP "$(three %8.0f <"$work/TCP.$clients")"
    printf '%-42s %s   %s\n' RDMA "$(three %8.0f <"$work/RDMA.$clients")" \
        "$(paste "$work/RDMA.$clients" "$work/TCP.$clients" | awk '{ print $1 / $2 }' |
            three %8.3g)"
done
