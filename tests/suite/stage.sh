#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# One stage of the suite (tests/suite/CMakeLists.txt); also handy by itself:
#
#   stage.sh build PRESET [TARGET...]   configures and builds build/PRESET
#   stage.sh test PRESET [PART [ctest...]]   runs tests in it. PART: cases (the default), timing,
#                                       apps, apps-both, apps-long, programs, impairment (labels:
#                                       tests/CMakeLists.txt), roce-20: unmodified programs on the
#                                       device that looks like RoCE, 20 times each
#   stage.sh clang-tidy PRESET          .clang-tidy over every source that PRESET compiles
#
# XSOCK_INNER_TESTS: only the tests whose names match this regular expression.
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"

case ${1:-} in
build)
    preset=$2
    shift 2
    # Tests run beside builds, and shall not wait for them.
    [ "$(nice)" -ge 10 ] || renice -n 10 $$ >/dev/null
    build "$preset" "${@:-all}"
    # Finds the cases of the programs now: parts that run side by side would do it at once.
    [ $# != 0 ] || ctest --test-dir "$top/build/$preset" -N >/dev/null
    ;;
test)
    preset=$2
    part=${3:-cases}
    shift $(($# < 3 ? $# : 3))
    case $part in
    # Many of them sleep.
    cases) set -- -LE '^(timing|apps|apps_long|programs|impairment|tidy|interop)$' -j $((jobs + 2)) "$@" ;;
    timing) set -- -L '^timing$' -j 1 "$@" ;;
    # They wait for a peer or for time to pass, each in a network of its own.
    apps) set -- -L '^apps$' -j $((jobs + 1)) "$@" ;;
    apps-both)
        export XSOCK_APPS_BOTH=1
        set -- -L '^apps$' -j $((jobs + 1)) "$@"
        ;;
    programs) set -- -L '^programs$' -j $((jobs + 1)) "$@" ;;
    apps-long) set -- -L '^apps_long$' -j $((jobs + 1)) "$@" ;;
    roce-20)
        set -- -R '^verbs_(fabric|gloo|mpi|pyverbs_roce|roce|summary|ucx|unprivileged)$' \
            --repeat until-fail:20 -j $((jobs + 1)) "$@"
        ;;
    impairment) set -- -L '^impairment$' -j $((jobs + 1)) "$@" ;;
    *) die "no part $part" ;;
    esac
    if [ -n "${XSOCK_INNER_TESTS:-}" ]; then
        set -- "$@" -R "$XSOCK_INNER_TESTS" --no-tests=ignore
    else
        set -- "$@" --no-tests=error
    fi
    # A report names the line; a leak is as bad as a crash.
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:${ASAN_OPTIONS:-}
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}
    # Threads in a child that forked are what some tests are about.
    export TSAN_OPTIONS=second_deadlock_stack=1:halt_on_error=1:die_after_fork=0:${TSAN_OPTIONS:-}
    # ctest keeps its log and its times in the folder that it is pointed at: each part has its own,
    # so that parts of one build may run side by side.
    folder=$top/build/$preset/parts/$part
    mkdir -p "$folder"
    printf 'subdirs("%s")\n' "$top/build/$preset" >"$folder/CTestTestfile.cmake"
    exec "$top/tests/suite/cases.py" "$folder" "$top/build/unsteady.txt" "$@"
    ;;
clang-tidy)
    program=$(command -v run-clang-tidy-14 || true)
    [ -n "$program" ] || {
        echo "SKIPPED: clang-tidy-14 is not installed" >&2
        exit 77
    }
    exec "$program" -quiet -p "$top/build/$2" -j "$jobs" \
        "^$top/(base|mpa|ddp_user|transport|libxsock|tools|examples|verbs)/.*"
    ;;
*)
    sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
