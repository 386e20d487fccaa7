#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The kernel module in a guest: built against the headers of Debian's kernel, loaded there, asked
# everything of abi.c, records.c, allowed.c, segments.c, release.c, polled.c, loss.c, small_window.c and
# abi_fuzz.c, and used by this build's engine at both ends of connections whose Writes it must place. At
# the end nothing of it may be left, the module unloads, and the kernel's log is clean.
#
#   guest_test.sh [--kernel 6.1|6.12] [--programs] [--fuzz SECONDS] BUILD
#
#   --kernel    which of Debian's kernels (SIW_KERNEL, or 6.1)
#   --programs  also unmodified verbs programs
#   --fuzz      how long random requests are made (5), of which then the counts are shown
#   BUILD       where the library and tools were built
#
# Exit status 77: something is missing (QEMU, packages to build the guest with).
set -euo pipefail
programs=
fuzz=
usage() { sed -n 's/^#   \(guest_test.sh.*\)/usage: \1/p' "$0" >&2; }
while [ $# -gt 1 ]; do
    case $1 in
    --kernel) SIW_KERNEL=$2 && shift ;;
    --programs) programs=1 ;;
    --fuzz) fuzz=$2 && shift ;;
    *) usage && exit 2 ;;
    esac
    shift
done
if [ $# != 1 ] || [ "${1#-}" != "$1" ]; then usage && exit 2; fi
build=$(cd "$1" && pwd)
. "$(dirname "$0")/lib.sh"
build_module

# ---- What the guest is given ----------------------------------------------------------------------
pack_programs
pack_library tools/xsock examples/putget examples/echo_socket libxsock/libxsock-preload.so \
    tests/system/system_wire
mkdir "$SIW_RUN/package/verbs"
cp -L "$build"/libxsock/verbs/lib*.so.1 "$SIW_RUN/package/verbs/"
# perftest is the guest's own.
pingpong=$(command -v ibv_rc_pingpong || true)
if [ -n "$pingpong" ]; then
    cp -L "$pingpong" "$SIW_RUN/package/"
else
    echo "no ibv_rc_pingpong here (ibverbs-utils): verbs without rdma_cm are NOT tested"
fi
start_guest -c 2
cp "$here/guest_engine.sh" "$share/"

# ---- Steps ----------------------------------------------------------------------------------------
step() { guest_step $((150 + ${fuzz:-0})) "$@"; }  # step WORDS COMMAND
step "load on $SIW_KERNEL" "$load"
trace=/sys/kernel/tracing
step "requests (abi)" "mount -t tracefs none $trace; echo 1 >$trace/events/ddp_kernel/enable; /x/abi"
step "placing in order (records)" '/x/records'
step "what may be written to (allowed)" '/x/allowed'
step "segments that no kernel sends (segments)" "$segments"
step "memory taken back while it is written to (release)" '/x/release 2'
step "the last octets of a Write, which programs poll (polled)" '/x/polled'
# shellcheck disable=SC2016
step "tracepoints, and counters" 'cd '$trace'; echo 0 >events/ddp_kernel/enable;
    for event in bind unbind placed not_placed revoke release stale; do
        grep -q " ddp_$event: " trace || { echo "no $event in:"; tail trace; exit 1; }; done;
    for counter in bound unbound placed_octets not_placed_region revoked released stale; do
        grep -q "^$counter [1-9]" /sys/kernel/debug/ddp/counters ||
            { cat /sys/kernel/debug/ddp/counters; exit 1; }; done'
# shellcheck disable=SC2016
step "placing behind holes (loss)" 'ip link set lo mtu 1500 &&
    /sbin/tc qdisc add dev lo root netem loss 0.5% delay 2ms && /x/loss; r=$?;
    /sbin/tc qdisc del dev lo root; ip link set lo mtu 65536; exit $r'
for loss in 1 3; do
    # shellcheck disable=SC2016
    step "small windows, $loss % lost (small_window)" 'ip link set lo mtu 1500 &&
        /sbin/tc qdisc add dev lo root netem loss '$loss'% delay 100us && /x/small_window 24; r=$?;
        /sbin/tc qdisc del dev lo root; ip link set lo mtu 65536; exit $r'
done
# shellcheck disable=SC2016
step "random requests (abi_fuzz)" 'ip link set lo mtu 1500 &&
    /sbin/tc qdisc add dev lo root netem loss 0.5% delay 1ms && /x/abi_fuzz '"${fuzz:-5}"'; r=$?;
    /sbin/tc qdisc del dev lo root; ip link set lo mtu 65536; exit $r'
[ -z "$fuzz" ] || grep -e '^ok' -e '^#' "$SIW_RUN/out" | sed 's/^/         /'
step "the engine: put and got" 'sh /share/guest_engine.sh putget'
step "the engine: pinned memory, and what xsock stat says" 'sh /share/guest_engine.sh stat'
step "the engine: each operation, with markers and over IPv6 too" 'sh /share/guest_engine.sh wire'
[ -z "$programs" ] || step "the engine: verbs programs" 'sh /share/guest_engine.sh verbs'
step "the engine: a socket in DDPMODE, and the exit summary" 'sh /share/guest_engine.sh socket'
step "the engine: a user who may not lock so much memory" 'sh /share/guest_engine.sh nobody'
step "the engine: both ends killed under traffic" 'sh /share/guest_engine.sh kill'
guest_step 200 "nothing is left" "$nothing_left"
step "unload, and a clean log" "rmmod ddp_kernel && ! dmesg | grep -E '$reports'"
[ "$failures" = 0 ] || die "$failures steps failed"
