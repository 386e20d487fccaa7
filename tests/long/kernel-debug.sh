#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The kernel module in a debug kernel (tests/kernel/debug_kernel.sh): the guest's tests, then stress,
# the ABI's fuzzer, and the module unloaded and loaded under traffic. Any report in the kernel's log
# fails it, as does a leak. Prints what it has counted, and how much of the module has run.
#
#   kernel-debug.sh [-k KIND] [-t SECONDS] [-p PARTS] BUILD
#
#   -k   kasan (default): Debian 12's 6.1, faults of memory and locks, leaks, coverage
#        kcsan: Debian's newest kernel, data races; of those that are the kernel's own the
#        titles are printed, and no more
#   -t   of the parts together (3600)
#   -p   which long parts, each for its share of -t, which lets it be done in pieces
#        ("stress killed release fuzz reload"):
#        stress   Writes with every octet checked, many behind holes               6 of 16
#        killed   the same, with ends that are killed soon                         2
#        release  memory that is taken back while it is written to                 1
#        fuzz     random requests                                                  4
#        reload   the module unloaded and loaded under traffic                     3
set -euo pipefail
seconds=3600 kind=kasan parts="stress killed release fuzz reload"
usage() { sed -n 's/^#   \(kernel-debug.sh.*\)/usage: \1/p' "$0"; }
. "$(dirname "$0")/../setup/options.sh"
read_options "k:kind t:seconds p:parts" "$@"
shift $((OPTIND - 1))
case $#$kind in
1kasan | 1kcsan) ;;
*) usage >&2 && exit 2 ;;
esac
case $seconds in '' | *[!0-9]* | ?????????*) usage >&2 && exit 2 ;; esac
[ "$seconds" -ge 16 ] || { echo "-t: 16 or more" >&2 && exit 2; }
for part in $parts; do
    case $part in
    stress | killed | release | fuzz | reload) ;;
    *) usage >&2 && exit 2 ;;
    esac
done
build=$(cd "$1" && pwd)
# shellcheck disable=SC2031  # a shell of its own: both libraries name their functions alike
(. "$(dirname "$0")/../setup/lib.sh" && setup kernel-debug)
SIW_IMAGE=$("$(dirname "$0")/../kernel/debug_kernel.sh" "$kind")
. "$(dirname "$0")/../kernel/lib.sh"
arguments=
case $kind in
kasan) build_module GCOV_PROFILE=y ;;
kcsan)
    build_module
    nm "$SIW_RUN/source/ddp_kernel/ddp_kernel.ko" | grep ' U __tsan_' >/dev/null ||
        die "the module was compiled without KCSAN"
    # One of some 400 accesses is watched, not of 4,000.
    arguments="kcsan.skip_watch=400"
    ;;
esac
pack_programs
pack_library tests/system/system_wire
start_guest -c 2 -M 2048 -a "log_buf_len=16M $arguments"
cp "$here/guest_engine.sh" "$share/"

# Prints reports in the kernel's log since the last call; true: there are some. A data race stands
# between two lines of ====, and is ours if a function of the module made one of the accesses, or
# called at most two deep what did. lock_sock() is not: it tries the lock and who owns it in one word,
# of which the owner of the lock reads a part. The titles of others go to `races`, unless another report
# is among their lines.
reports="$reports|KASAN|ODEBUG|possible .*deadlock|inconsistent|suspicious"
races=$SIW_RUN/races
reported() {
    "${vmctl[@]}" -T 60 run 'dmesg -c' >"$SIW_RUN/log" || { echo "the log cannot be read" && return; }
    awk -v races="$races" -v reports="$reports" '
        { sub(/^\[ *[0-9.]+\] /, "") }
        /=======/ { end_part(); next }
        { part = part $0 "\n" }
        /BUG: KCSAN: / { title = $0; sub(/.*BUG: KCSAN: /, "", title) }
        $0 ~ reports && !/BUG: KCSAN: / { other = 1 }
        / by (task|interrupt)/ { frames = 3 }
        frames > 0 && /^ / { ours = ours || /\[ddp_kernel\]/; frames-- }
        END { end_part() }
        function end_part() {
            if (title != "" && (!ours || title ~ /lock_sock_nested/) && !other) print title >>races
            else printf "%s", part
            part = title = ""; ours = frames = other = 0
        }' "$SIW_RUN/log" >"$SIW_RUN/kept" || { echo "the log was not read" && return; }
    grep -A 40 -E "$reports" "$SIW_RUN/kept"
}
step() {  # step SECONDS WORDS COMMAND
    guest_step "$@"
    grep '^#' "$SIW_RUN/out" | sed 's/^/         /' || true
    if reported >"$SIW_RUN/found"; then
        echo "FAILED   $2: the kernel reports"
        sed 's/^/    /' "$SIW_RUN/found"
        failures=$((failures + 1))
    fi
}
# lossy COMMAND [NETEM]: over a loopback that loses segments
lossy() {
    echo "ip link set lo mtu 1500; /sbin/tc qdisc add dev lo root netem ${2:-loss 1% delay 500us};
        $1; r=\$?; /sbin/tc qdisc del dev lo root; ip link set lo mtu 65536; (exit \$r)"
}
step 60 "two processors" "dmesg -c >/dev/null; [ \$(grep -c ^processor /proc/cpuinfo) = 2 ]"
step 300 "load" "$load"
step 300 "requests" '/x/abi'
step 300 "placing in order" '/x/records'
step 300 "what may be written to" '/x/allowed'
step 300 "segments that no kernel sends" "$segments"
step 300 "the last octets of a Write" '/x/polled'
step 300 "failing allocations" '/x/failing'
# KCSAN makes longer what it watches: up to the module's time-outs.
case $kind in
kasan)
    step 600 "placing behind holes" "$(lossy /x/loss)"
    step 900 "small windows" "$(lossy '/x/small_window 10 slow')"
    ;;
kcsan) step 600 "placing behind holes" "$(lossy '/x/loss slow')" ;;
esac
step 300 "each operation of the engine" "sh /share/guest_engine.sh wire 25"
# A fourth of the segments come late, the others ahead of them.
mixed="loss 1% delay 5ms reorder 75%"
for part in $parts; do
    case $part in
    stress)
        time=$((seconds * 6 / 16))
        step $((time + 300)) "stress" "$(lossy "/x/stress $time 4 20000" "$mixed")"
        ;;
    killed)
        time=$((seconds * 2 / 16))
        step $((time + 300)) "ends that are killed" "$(lossy "/x/stress $time 4" "$mixed")"
        ;;
    release)
        time=$((seconds / 16))
        step $((time + 300)) "memory taken back" "/x/release $time"
        ;;
    fuzz)
        time=$((seconds * 4 / 16))
        step $((time + 300)) "random requests" "$(lossy "/x/abi_fuzz $time")"
        grep ' accepted, ' "$SIW_RUN/out" | sed 's/^ok [0-9]*/         #/' || true
        ;;
    reload)
        time=$((seconds * 3 / 16 + 10))  # so that there is a load in the shortest run
        # Short-lived pairs, so that now and then there is none.
        step $((time + 300)) "unloaded and loaded under traffic" "$(lossy "
            /x/reload /share/ddp_kernel.ko & reload=\$!; /x/stress $time 1 1500; r=\$?;
            kill \$reload; wait \$reload && (exit \$r)")"
        ;;
    esac
done
step 200 "nothing is left" "$nothing_left"
step 120 "unload" 'rmmod ddp_kernel'
if [ "$kind" = kcsan ]; then
    step 60 "accesses were watched" "cd /sys/kernel/debug && grep -E 'enabled|watchpoints|races' kcsan |
        sed 's/^/# /' && grep -qx 'enabled: 1' kcsan"
    echo "data races of the kernel's own, which are not looked into:"
    [ ! -e "$races" ] || sort "$races" | uniq -c | sort -rn | sed 's/^/    /'
    [ "$failures" = 0 ] || die "$failures steps failed"
    exit
fi
# shellcheck disable=SC2016
step 300 "no leak" 'echo scan >/sys/kernel/debug/kmemleak && sleep 6 &&
    echo scan >/sys/kernel/debug/kmemleak && ! grep -A 20 . /sys/kernel/debug/kmemleak'

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
