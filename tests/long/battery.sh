#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Everything that takes too long for each change, in parts. What has passed on this commit is not run
# again: call it as often as there is time. Every part appends a line to the results file.
#
#   battery.sh [OPTION...] [PART...]    all parts, or those named
#
#   --list          the parts, and how they stand on this commit
#   --again         also those that have passed
#   --results FILE  build/battery/results.tsv: commit, part, passed, failed or skipped, when it
#                   began, seconds, what it says of itself; a part's output is FILE's folder/PART.log
#   --cycles N      of each kill- part; 100000
#   --minutes N     of the soak; 120
#   --cpu-minutes N of each fuzz- part; 30
#
# Exit status 1: a part failed; 77: a part lacks something of this machine, and none failed.
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"
export XSOCK_SHM=${XSOCK_SHM-off} XSOCK_KERNEL=${XSOCK_KERNEL-off}  # as tests/CMakeLists.txt

results=$top/build/battery/results.tsv
cycles=100000
minutes=120
cpu_minutes=30
again=
list=
asked=()
while [ $# -gt 0 ]; do
    case $1 in
    --list) list=1 ;;
    --again) again=1 ;;
    --results) results=$(realpath -m "${2:?--results needs a file}") && shift ;;
    --cycles) cycles=${2:?--cycles needs a number} && shift ;;
    --minutes) minutes=${2:?--minutes needs a number} && shift ;;
    --cpu-minutes) cpu_minutes=${2:?--cpu-minutes needs a number} && shift ;;
    -h | --help) sed -n '3,18s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) sed -n '3,18s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    *) asked+=("$1") ;;
    esac
    shift
done

stage=$top/tests/suite/stage.sh
parts=(clang tsan clang-tidy faults faults-asan faults-shm shared-memory)
parts+=(kill-start kill-traffic kill-close)
for source in "$top"/tests/fuzz/*_fuzz.cpp; do
    name=${source##*/}
    parts+=("fuzz-${name%_fuzz.cpp}")
done
parts+=(stream-programs)
for name in redis libuv haproxy stunnel curl mariadb; do parts+=("source-$name"); done
parts+=(siw-matrix soak)

commit=$(git -C "$top" rev-parse HEAD)
[ -z "$(git -C "$top" status --porcelain --untracked-files=no)" ] || commit+=+changes

suite() { # PRESET: all cases, then those that measure time
    "$stage" build "$1"
    "$stage" test "$1" cases
    "$stage" test "$1" timing
}

faults() { # PRESET
    local folder=$top/build/$1/tests/system/faults program role status=0
    "$stage" build "$1" system_faults system_faults_verbs system_faults_datagrams
    for role in client server; do
        for program in xsock ddpmode; do
            "$folder/system_faults" $program $role || status=1
        done
        LD_LIBRARY_PATH=$top/build/$1/libxsock/verbs "$folder/system_faults_verbs" verbs $role ||
            status=1
        XSOCK_VERBS=roce LD_LIBRARY_PATH=$top/build/$1/libxsock/verbs \
            "$folder/system_faults_datagrams" datagrams $role || status=1
    done
    return $status
}

part() {
    case $1 in
    clang | tsan) suite "$1" ;;
    clang-tidy) "$stage" build clang && "$stage" clang-tidy clang ;;
    faults) faults release ;;
    faults-shm) XSOCK_SHM=auto faults release ;;
    shared-memory) XSOCK_SHM=auto suite release ;;
    faults-asan) ASAN_OPTIONS=detect_leaks=1:${ASAN_OPTIONS:-} faults asan ;;
    kill-*)
        "$stage" build release system_kill_cycles
        "$top/build/release/tests/system/system_kill_cycles" "${1#kill-}" "$cycles" "$RANDOM"
        ;;
    fuzz-*) "$top/tests/long/fuzz.sh" -c -s $((cpu_minutes * 60)) "${1#fuzz-}" ;;
    stream-programs) "$stage" build release && "$stage" test release programs ;;
    source-*)
        "$stage" build release && "$top/tests/long/source-suites.sh" "${1#source-}"
        ;;
    siw-matrix) "$top/tests/long/siw-matrix.sh" ;;
    soak) "$top/tests/long/soak.sh" -m "$minutes" -k loss-1 ;;
    *) die "no part $1; there are: ${parts[*]}" ;;
    esac
}

# The last word on a part of this commit, or "-".
standing() {
    local found=
    [ ! -e "$results" ] ||
        found=$(awk -F'\t' -v c="$commit" -v p="$1" '$1 == c && $2 == p { s = $3 } END { print s }' \
            "$results")
    printf '%s' "${found:--}"
}

[ ${#asked[@]} -gt 0 ] || asked=("${parts[@]}")
for name in "${asked[@]}"; do
    [[ " ${parts[*]} " == *" $name "* ]] || die "no part $name; there are: ${parts[*]}"
done
if [ -n "$list" ]; then
    for name in "${parts[@]}"; do printf '%-24s %s\n' "$name" "$(standing "$name")"; done
    exit 0
fi

mkdir -p "${results%/*}"
for name in "${asked[@]}"; do
    [ -n "$again" ] || [ "$(standing "$name")" != passed ] || continue
    log=${results%/*}/$name.log
    began=$(date +%s)
    say "$name (${log#"$top"/})"
    status=0
    # A process of its own: within a condition `set -e` would mean nothing.
    (part "$name") >"$log" 2>&1 & wait $! || status=$?
    word=failed
    [ $status != 0 ] || word=passed
    [ $status != 77 ] || word=skipped
    # What counts: cases, points, connections, executions, rounds.
    said=$(grep -aE 'tests passed|cases passed|points, |connections of|runs in|rounds in|rows|SKIPPED' "$log" |
        tail -n 8 | tr '\t\n' ' ;' || true)
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$commit" "$name" $word "$(date -d "@$began" -u +%FT%TZ)" \
        $(($(date +%s) - began)) "$said" >>"$results"
    [ $word = passed ] || tail -n 5 "$log"
done

say "commit $commit"
status=0
for name in "${asked[@]}"; do
    word=$(standing "$name")
    printf '%-24s %s\n' "$name" "$word"
    case $word in
    passed) ;;
    skipped) [ $status != 0 ] || status=77 ;;
    *) status=1 ;;
    esac
done
exit $status
