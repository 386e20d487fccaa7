# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Sourced by the scripts beside it: real programs, each scenario without the overlay and with it.
# What fails under the overlay and not without it is a failure of the overlay; what fails without it
# is the machine's, and is said too. A program that is not installed is a line of its own.
set -u -o pipefail
PATH=$PATH:/usr/sbin:/sbin

programs_init() {  # programs_init BUILD
    build=$(cd "$1" && pwd) || exit 2
    xsock=$build/tools/xsock
    [ -x "$xsock" ] || { echo "$xsock is not built" >&2; exit 2; }
    work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-programs.XXXXXX") || exit 2
    pids=()
    failed=0 absent=0 broken=0
    trap programs_end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

stop_all() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do
        # Ten seconds to end by itself, as its summary wants.
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    pids=()
}

# shellcheck disable=SC2317  # called by the trap
programs_end() {
    stop_all
    rm -rf "$work"
}

have() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { missing=$program; return 1; }
    done
}

free_port() {
    /usr/bin/python3 -c '
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for SECONDS COMMAND...
wait_for() {
    local tries=$(($1 * 20))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Begins a program in the background, under the overlay or not; its output goes to $dir/NAME.log.
begin() {  # begin NAME COMMAND...
    local name=$1
    shift
    if [ "$mode" = with ]; then
        XSOCK_SUMMARY=$dir/summary "$xsock" run -- "$@" >"$dir/$name.log" 2>&1 &
    else
        "$@" >"$dir/$name.log" 2>&1 &
    fi
    pids+=($!)
}

# Runs a program in the foreground, under the overlay or not.
run() {
    if [ "$mode" = with ]; then
        XSOCK_SUMMARY=$dir/summary timeout 120 "$xsock" run -- "$@"
    else
        timeout 120 "$@"
    fi
}

# Sees to it that the overlay was there at all: PROGRAM left a line about TCP sockets.
seen() {  # seen PROGRAM...
    local program
    [ "$mode" = with ] || return 0
    for program in "$@"; do
        grep -Eq "^xsock-summary 1 .* program=.*/$program[0-9.]*\$" "$dir/summary" || {
            echo "no summary line of $program" >&2
            cat "$dir/summary" >&2
            return 1
        }
    done
}

# scenario NAME [PROGRAM...]: runs function NAME without and with the overlay, if PROGRAMs are there.
scenario() {
    local name=$1 began=$SECONDS without
    shift
    if ! have "$@"; then
        echo "absent  $name: no $missing here"
        absent=$((absent + 1))
        return
    fi
    for mode in without with; do
        dir=$work/$name-$mode
        mkdir "$dir"
        : >"$dir/summary"
        (cd "$dir" && pids=() && trap stop_all EXIT && set -e && "$name") >"$dir/log" 2>&1
        local status=$?
        if [ $mode = without ]; then
            without=$status
            continue
        fi
        if [ $status -eq 0 ]; then
            echo "ok      $name ($((SECONDS - began)) s)"
        elif [ $without -ne 0 ]; then
            echo "broken  $name fails without the overlay, too:"
            sed 's/^/        /' "$work/$name-without/log" | tail -n 20
            broken=$((broken + 1))
        else
            echo "FAILED  $name under the overlay:"
            tail -n 30 "$dir"/*.log "$dir/log" | sed 's/^/        /'
            failed=$((failed + 1))
        fi
    done
    rm -rf "$work/$name-with" "$work/$name-without"
}

programs_verdict() {
    [ $failed -eq 0 ] || exit 1
    [ $broken -eq 0 ] || { echo "SKIPPED: $broken scenarios do not work here without the overlay"; exit 77; }
    [ $absent -eq 0 ] || { echo "SKIPPED: $absent scenarios lack their programs"; exit 77; }
    exit 0
}
