#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Runs the libFuzzer targets of tests/fuzz under ASan and UBSan.
#
#   fuzz.sh [-c] [-s SECONDS] [NAME...]     each target, or the named ones, for SECONDS
#                                           (XSOCK_FUZZ_SECONDS, or 300)
#
#   -c   SECONDS of the processor: on a busy machine a target runs until it has had them, and an
#        input may take two minutes, since much else may run meanwhile, instead of 20 s
#
# What they discover is kept in the cache folder and goes on from there the next time; inputs worth
# a test belong into tests/fuzz/corpus/NAME/. A crash leaves its input in build/fuzz/crashes/.
# Exit status 77 when clang is missing.
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"

seconds=${XSOCK_FUZZ_SECONDS:-300} of_processor= input_limit=20
while getopts cs: option; do
    case $option in
    c) of_processor=1 input_limit=120 ;;
    s) seconds=$OPTARG ;;
    *) sed -n '3,13s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))

command -v clang++-14 >/dev/null || {
    echo "SKIPPED: no clang++-14: nothing is fuzzed" >&2
    exit 77
}
names=("$@")
if [ ${#names[@]} = 0 ]; then
    for source in "$top"/tests/fuzz/*_fuzz.cpp; do
        [ -e "$source" ] || continue
        source=${source##*/}
        names+=("${source%_fuzz.cpp}")
    done
fi
[ ${#names[@]} -gt 0 ] || die "no tests/fuzz/*_fuzz.cpp"

build fuzz fuzzers
crashes=$top/build/fuzz/crashes
found=${XDG_CACHE_HOME:-$HOME/.cache}/xsock/fuzz
mkdir -p "$crashes"
export ASAN_OPTIONS=detect_leaks=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}

fuzz_one() {
    local name=$1 corpus=$top/tests/fuzz/corpus/$1 log=$top/build/fuzz/$1.log extra=()
    local runs=0 spent=0
    mkdir -p "$found/$name"
    [ ! -d "$corpus" ] || extra+=("$corpus")
    [ ! -f "$top/tests/fuzz/$name.dict" ] || extra+=("-dict=$top/tests/fuzz/$name.dict")
    while [ $spent -lt "$seconds" ]; do
        if ! "$top/build/fuzz/tests/fuzz/fuzz_$name" -max_total_time=$((seconds - spent)) \
            -timeout=$input_limit -rss_limit_mb=4096 -max_len=16384 -print_final_stats=1 \
            -artifact_prefix="$crashes/$name-" "$found/$name" "${extra[@]}" >"$log" 2>&1; then
            say "$name: FAILED"
            tail -n 60 "$log"
            return 1
        fi
        runs=$((runs + $(sed -n 's/^stat::number_of_executed_units: *//p' "$log")))
        spent=$seconds
        if [ -n "$of_processor" ]; then
            times >"$log.times"  # not in $(): a subshell has run no programs
            spent=$(awk -F'[ms ]+' 'NR == 2 { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' \
                "$log.times")
        fi
    done
    say "$name: clean, $runs runs in $seconds s${of_processor:+ of the processor}, \
$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)"
}

# As many at once as there are processors, in the order of their names.
failures=0
running=()
reap() {
    local pid=${running[0]}
    running=("${running[@]:1}")
    wait "$pid" || failures=$((failures + 1))
}
trap '[ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null' EXIT
for name in "${names[@]}"; do
    [ ${#running[@]} -lt "$jobs" ] || reap
    fuzz_one "$name" &
    running+=($!)
done
while [ ${#running[@]} -gt 0 ]; do reap; done
[ $failures = 0 ] || die "$failures of ${#names[@]} targets failed; inputs in build/fuzz/crashes"
