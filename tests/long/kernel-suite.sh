#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Tests of the library over TCP in a guest with the kernel module: cases of the C API, of sockets in
# DDPMODE and of byte streams where it is used wherever it can be, then random verified traffic and
# sudden ends where it is required. What must be left of them in the kernel is nothing.
#
#   kernel-suite.sh [-k KERNEL] BUILD
#
#   -k   6.1 (default) or 6.12
set -euo pipefail
SIW_KERNEL=6.1
usage() { sed -n 's/^#   \(kernel-suite.sh.*\)/usage: \1/p' "$0"; }
. "$(dirname "$0")/../setup/options.sh"
read_options "k:SIW_KERNEL" "$@"
shift $((OPTIND - 1))
[ $# = 1 ] || { usage >&2 && exit 2; }
# shellcheck disable=SC2034  # used by lib.sh
build=$(cd "$1" && pwd)
. "$(dirname "$0")/../kernel/lib.sh"
build_module
pack_programs
pack_library tools/xsock libxsock/libxsock-preload.so tests/unit/unit_{libxsock,socket} \
    tests/system/system_{stress,kill,kill_cycles,stream_semantics}
start_guest -c 2 -M 2048

clean="! dmesg -c | grep -A 20 -E '$reports'"
# step WORDS COMMAND [COUNTER]: and the counter must have grown meanwhile, that of placed payload
step() {
    local count="sed -n 's/^${3:-placed_octets} //p' /sys/kernel/debug/ddp/counters"
    guest_step 1200 "$1" "cd /x; export LD_LIBRARY_PATH=/x XSOCK_SHM=off; before=\$($count); $2 ||
        exit 1; [ \$((\$($count) - before)) -gt 0 ] || { echo the module had no part; exit 1; }; $clean"
}
guest_step 60 "load on $SIW_KERNEL" "$load && dmesg -c >/dev/null"
# The guest's processors may be the host's only in part: what measures time is left out.
step "the C API (unit_libxsock)" "XSOCK_KERNEL=auto ./unit_libxsock --gtest_brief=1 \
    --gtest_filter=-ProgressOf.no_thread_burns_cpu_when_nothing_happens"
step "sockets in DDPMODE (unit_socket)" "XSOCK_KERNEL=auto ./unit_socket --gtest_brief=1" bound
# By `sdp`: the guest's kernel does not tell which socket a connection would reach. Then none is plain;
# and 6.1 has no RWF_NOWAIT for sockets.
cases=$(sed -n 's/^CASE(\(.*\)) {$/\1/p' "$here"/../system/stream_semantics/*.c |
    grep -vx -e fast_open_is_plain -e calls_with_an_offset | tr '\n' ' ')
step "byte streams (system_stream_semantics)" \
    "XSOCK_KERNEL=auto ./xsock run --stream=sdp -- ./system_stream_semantics $cases" bound
for progress in both app thread; do
    step "random verified traffic, progress by $progress" \
        "XSOCK_KERNEL=require XSOCK_PROGRESS=$progress ./system_stress --seconds 10 --seed 1"
done
step "random verified traffic in small FPDUs" \
    "XSOCK_KERNEL=require XSOCK_FPDU_LIMIT=512 ./system_stress --seconds 10 --seed 8"
step "killed at any moment" "XSOCK_KERNEL=require ./system_kill 1 20"
for variant in traffic close; do
    step "killed in $variant, 300 times" "XSOCK_KERNEL=require ./system_kill_cycles $variant 300"
done
guest_step 200 "nothing is left" "$nothing_left"
guest_step 60 "unload, and a clean log" "rmmod ddp_kernel && $clean"
[ "$failures" = 0 ] || die "$failures steps failed"
