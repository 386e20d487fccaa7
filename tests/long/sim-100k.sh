#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Many simulated worlds (tests/sim) on every processor.
#
#   sim-100k.sh [-b BUILD] [-n SEEDS] [-f FIRST] [-l | -k] [-r]
#
# SEEDS worlds from seed FIRST on (100000, or XSOCK_SIM_SEEDS; 1), in chunks; -l: over links; -k: with
# a kernel module below each end. A chunk that is done is noted in BUILD/sim/, so that an interrupted
# run goes on where it was; -r forgets the notes, and so does a new build of the program. A failure
# prints its seed and the command that repeats it. BUILD: build/release, which is built first if it is
# the default.
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"

build_folder=
seeds=${XSOCK_SIM_SEEDS:-100000}
first=1
restart=
layer=()
chunk=500
while getopts b:n:f:lkrh option; do
    case $option in
    b) build_folder=$OPTARG ;;
    n) seeds=$OPTARG ;;
    f) first=$OPTARG ;;
    l) layer=(--links) ;;
    k) layer=(--records) ;;
    r) restart=1 ;;
    *) sed -n '3,12s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
done
if [ -z "$build_folder" ]; then
    build_folder=$top/build/release
    mkdir -p "$build_folder"
    build release sim >"$build_folder/sim-build.log" 2>&1 || {
        tail -n 40 "$build_folder/sim-build.log" >&2
        die "the build failed"
    }
fi
program=$build_folder/tests/sim/sim
[ -x "$program" ] || die "no program $program"
notes=$build_folder/sim${layer[*]}
mkdir -p "$notes"
for note in "$notes"/*.done; do
    [ -e "$note" ] || continue
    if [ -n "$restart" ] || [ "$program" -nt "$note" ]; then rm -f "$note"; fi
done

# One chunk: seeds $1 to $2.
run_chunk() {
    local log=$notes/$1-$2
    [ ! -e "$log.done" ] || return 0
    if "$program" "${layer[@]}" --seeds "$1..$2" >"$log.log" 2>&1; then
        mv "$log.log" "$log.done"
    else
        tail -n 5 "$log.log"
        return 1
    fi
}

failures=0
finished=0
running=()
started=$(date +%s)
reap() {
    wait "${running[0]}" || failures=$((failures + 1))
    running=("${running[@]:1}")
    finished=$((finished + chunk))
    [ $finished -le "$seeds" ] || finished=$seeds
    if [ -t 1 ]; then
        printf '\r%d of %d worlds, %d s, %d chunks failed ' "$finished" "$seeds" \
            $(($(date +%s) - started)) "$failures"
    elif [ $((finished % 10000)) = 0 ]; then
        say "$finished of $seeds worlds, $(($(date +%s) - started)) s, $failures chunks failed"
    fi
}
trap '[ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null' EXIT
last=$((first + seeds - 1))
for ((from = first; from <= last; from += chunk)); do
    to=$((from + chunk - 1))
    [ $to -le $last ] || to=$last
    [ ${#running[@]} -lt "$jobs" ] || reap
    run_chunk $from $to &
    running+=($!)
done
while [ ${#running[@]} -gt 0 ]; do reap; done
[ ! -t 1 ] || echo
[ $failures = 0 ] || die "$failures chunks failed; logs in $notes"
say "$seeds worlds, none failed"
