#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Byte streams over iWARP beside the same programs on plain TCP, in one table: xsock_bench's stream
# rows, then whole programs (stream_programs.sh). Some ten minutes on an idle machine with 7 rounds.
set -u -o pipefail
usage() {
    cat <<'USAGE'
usage: bench/stream.sh [-b BUILD] [-r ROUNDS] [-s SECONDS] [-m]

  -b BUILD    folder of the build; default build/release
  -r ROUNDS   default 7
  -s SECONDS  timed part of each sample of xsock_bench; default 0.4
  -m          a Markdown table

As root it also measures over a veth pair that it makes for itself, and programs in a network namespace
of its own. Exit status: 0 all were measured, 1 one was not, 2 wrong use.
USAGE
}
build=build/release rounds=7 seconds=0.4 markdown=()
. "$(dirname "$0")/options.sh"
bench_options b:r:s:m "$@"
no_more_arguments "${@:OPTIND}"
find_bench
export XSOCK_SHM=off XSOCK_KERNEL=off  # over TCP

table() { python3 "$here/table.py" "$1" "${markdown[@]}" "${@:2}"; }
status=0
table head plain stream
# Rows that are figures of the same samples stand in one line.
while read -r rows; do
    "$bench" --rows "$rows" --rounds "$rounds" --seconds "$seconds" --json </dev/null |
        table rows || status=1
done <<'ROWS'
stream_rate_64,stream_rate_64_cpu
stream_rate_64_nodelay
stream_rtt_64,stream_rtt_64_cpu,stream_rtt_64_nospin
stream_rtt_64_poll
stream_rtt_64_one_cpu
stream_idle_cpu,stream_idle_switches
stream_bw_1m,stream_bw_1m_cpu
stream_bw_veth_9000,stream_bw_veth_9000_cpu
stream_conn_10k
stream_idle_memory
stream_used_memory
ROWS
"$here/stream_programs.sh" -n -b "$build" -r "$rounds" "${markdown[@]/#--markdown/-m}" || status=1
exit $status
