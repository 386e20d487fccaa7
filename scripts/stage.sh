#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# One stage of the suite (tests/suite/CMakeLists.txt); also handy by itself:
#
#   stage.sh build PRESET           configures and builds build/PRESET
#   stage.sh test PRESET [ctest...] runs the tests in it; the house rules and the kernel's siw are
#                                   stages of their own and left out
#   stage.sh clang-tidy PRESET      .clang-tidy over every source that PRESET compiles
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case ${1:-} in
build)
    build "$2" all
    ;;
test)
    preset=$2
    shift 2
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
    exec ctest --test-dir "$top/build/$preset" --output-on-failure -j "$jobs" \
        -LE '^(tidy|interop)$' "$@"
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
    sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
