#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The kernel module in a debug kernel (tests/kernel/debug_kernel.sh): the guest's tests, then stress,
# the ABI's fuzzer, and the module unloaded and loaded under traffic. Any report in the kernel's log
# fails it, as does a leak. Prints what it has counted, and how much of the module has run.
#
#   kernel-debug.sh [-t SECONDS] BUILD
#
#   -t   of stress and fuzzing together (3600): two, one and one of four parts
set -euo pipefail
seconds=3600
usage() { sed -n 's/^#   \(kernel-debug.sh.*\)/usage: \1/p' "$0"; }
. "$(dirname "$0")/../setup/options.sh"
read_options "t:seconds" "$@"
shift $((OPTIND - 1))
[ $# = 1 ] || { usage >&2 && exit 2; }
build=$(cd "$1" && pwd)
# shellcheck disable=SC2031  # a shell of its own: both libraries name their functions alike
(. "$(dirname "$0")/../setup/lib.sh" && setup kernel-debug)
SIW_IMAGE=$("$(dirname "$0")/../kernel/debug_kernel.sh")
. "$(dirname "$0")/../kernel/lib.sh"
build_module GCOV_PROFILE=y
pack_programs
pack_library tests/system/system_wire
start_guest -c 2 -M 2048
cp "$here/guest_engine.sh" "$share/"

# Reports of KASAN, lockdep, ODEBUG and the like; then the rest of the log is not looked at again.
clean="! dmesg -c | grep -A 40 -E '$reports|KASAN|ODEBUG|possible .*deadlock|inconsistent|suspicious'"
step() {  # step SECONDS WORDS COMMAND
    guest_step "$@"
    grep '^#' "$SIW_RUN/out" | sed 's/^/         /' || true
    if ! "${vmctl[@]}" -T 60 run "$clean" >"$SIW_RUN/log" 2>&1; then
        echo "FAILED   $2: the kernel reports"
        sed 's/^/    /' "$SIW_RUN/log"
        failures=$((failures + 1))
    fi
}
# lossy COMMAND [NETEM]: over a loopback that loses segments
lossy() {
    echo "ip link set lo mtu 1500; /sbin/tc qdisc add dev lo root netem ${2:-loss 1% delay 500us};
        $1; r=\$?; /sbin/tc qdisc del dev lo root; ip link set lo mtu 65536; (exit \$r)"
}
step 300 "load" "$load; dmesg -c >/dev/null; ls /dev/ddp"
step 300 "requests" '/x/abi'
step 300 "placing in order" '/x/records'
step 300 "segments that no kernel sends" "$segments"
step 300 "failing allocations" '/x/failing'
step 600 "placing behind holes" "$(lossy /x/loss)"
step 900 "small windows" "$(lossy '/x/small_window 10')"
step 300 "each operation of the engine" "sh /share/guest_engine.sh wire"
# A fourth of the segments come late, the others ahead of them.
step $((seconds / 2 + 300)) "stress" "$(lossy "/x/stress $((seconds / 2)) 4" \
    "loss 1% delay 5ms reorder 75%")"
step $((seconds / 4 + 300)) "random requests" "$(lossy "/x/abi_fuzz $((seconds / 4))")"
# Short-lived pairs, so that now and then there is none.
step $((seconds / 4 + 300)) "unloaded and loaded under traffic" "$(lossy "
    (n=0; while [ ! -e /tmp/over ]; do
        rmmod ddp_kernel 2>/dev/null && insmod /share/ddp_kernel.ko && n=\$((n + 1)); done;
        echo \"# \$n times unloaded\") & loads=\$!;
    /x/stress $((seconds / 4)) 1 3000; r=\$?; touch /tmp/over; wait \$loads; (exit \$r)")"
# shellcheck disable=SC2016
step 120 "nothing is left" "$nothing_left"
step 120 "unload" 'rmmod ddp_kernel'
step 300 "no leak" 'echo scan >/sys/kernel/debug/kmemleak; sleep 6;
    echo scan >/sys/kernel/debug/kmemleak; ! grep -A 20 . /sys/kernel/debug/kmemleak'

# What has run, of all that were loaded: the kernel keeps it when a module goes.
mkdir "$share/coverage"
# shellcheck disable=SC2016  # the guest's shell expands
"${vmctl[@]}" -T 120 run 'find /sys/kernel/debug/gcov -name "*.gcda" | while read -r file; do
    cat "$file" >"/share/coverage/${file##*/}"; done'
coverage=$SIW_RUN/source/ddp_kernel
for file in "$share"/coverage/*.gcda; do
    [ -e "$file" ] || die "the kernel has kept nothing of what has run"
    source=$(find "$coverage" -name "$(basename "$file" .gcda).gcno")
    cp "$file" "${source%.gcno}.gcda"
done
echo "coverage: lines that have run, branches that were taken"
find "$coverage" -name '*.gcda' | sort | xargs gcov -b -n -s "$coverage" |
    awk -v folder="$coverage/" '
        /^File/ { file = $2; gsub(/\047/, "", file); sub(folder, "", file); next }
        file !~ /^(core\/)?[a-z]+\.c$/ { next }
        /^Lines executed/ { split($2, of, ":"); lines = of[2] " of " $4 }
        /^Taken/ { printf "    %-16s lines %s, branches %s of %s\n", file, lines, substr($4, 6), $6
            n++ }
        END { exit !n }'
[ "$failures" = 0 ] || die "$failures steps failed"
