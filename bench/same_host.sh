#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Two processes of one host through shared memory, beside plain TCP in turns, in one table:
# xsock_bench's shm rows. Some ten minutes on an idle machine with 15 rounds. The rows with 10,000
# connections want `ulimit -n` 20,512 or more; with less they use as many as it permits.
set -u -o pipefail
usage() {
    cat <<'USAGE'
usage: bench/same_host.sh [-b BUILD] [-r ROUNDS] [-s SECONDS] [-m]

  -b BUILD    folder of the build; default build/release
  -r ROUNDS   default 15
  -s SECONDS  timed part of each sample; default 0.15
  -m          a Markdown table

A sample whose connection went over TCP is an error (XSOCK_SHM=require). Exit status: 0 all were
measured, 1 one was not, 2 wrong use.
USAGE
}
build=build/release rounds=15 seconds=0.15 markdown=()
. "$(dirname "$0")/options.sh"
bench_options b:r:s:m "$@"
no_more_arguments "${@:OPTIND}"
find_bench

status=0
python3 "$here/table.py" head "${markdown[@]}" base memory
# Rows that are figures of the same samples stand in one line.
while read -r rows; do
    "$bench" --rows "$rows" --rounds "$rounds" --seconds "$seconds" --json </dev/null |
        python3 "$here/table.py" rows "${markdown[@]}" || status=1
done <<'ROWS'
shm_send_lat_64_poll
shm_write_lat_64_poll
shm_read_lat_64
shm_message_lat_64_poll
shm_message_lat_64_block,shm_send_lat_64_block_nospin
shm_rate_64_16
shm_rate_64_256
shm_write_bw_1m,shm_cpu_per_gib
shm_write_bw_copies
shm_message_bw_1m
shm_p99_beside_writes
shm_conn_10k
shm_processes_1k
shm_beside_10k_idle
shm_startup_first,shm_startup_later
shm_idle_end,shm_link_memory
ROWS
exit $status
