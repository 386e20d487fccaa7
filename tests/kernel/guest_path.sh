#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Run in the guest by scripts that measure there, by busybox's shell: the namespaces a and b, joined
# by a veth pair of MTU 1500 without offloads (with them 64 KiB are lost at once).
#
#   guest_path.sh ROUND-TRIP [LATE [NETEM...]]
#
#   ROUND-TRIP   in us, half of it each way
#   LATE         so much longer, in us, take segments of priority 6 from a to b (0); lost: all of
#                them are lost
#   NETEM...     what else becomes of what a sends to b: loss 1%
tc=/sbin/tc ip=/bin/ip
round_trip=$1
late=${2:-0}
[ $# -lt 2 ] && shift || shift 2
set -e
if [ ! -e /run/netns/a ]; then
    for side in a b; do $ip netns add $side; done
    $ip link add v0 netns a type veth peer name v0 netns b
    for side in a b; do
        [ $side = a ] && host=1 || host=2
        $ip -n $side link set lo up
        $ip -n $side address add 198.18.79.$host/24 dev v0
        $ip -n $side link set v0 mtu 1500 up
        $ip netns exec $side /sbin/ethtool -K v0 tso off gso off gro off >/dev/null
        $ip -n $side route change 198.18.79.0/24 dev v0 initcwnd 200 initrwnd 400
        # A segment that is late is not taken for lost, and what one connection has learned does
        # not count for the next.
        $ip netns exec $side sh -c 'cd /proc/sys/net/ipv4 && echo 1 >tcp_no_metrics_save &&
            echo 0 >tcp_slow_start_after_idle && echo "4096 8388608 33554432" >tcp_rmem &&
            echo "4096 4194304 33554432" >tcp_wmem'
    done
fi
case $late in
0 | lost) recovery=1 reordering=3 early=3 ;;
*) recovery=0 reordering=300 early=0 ;;
esac
$ip netns exec a sh -c "cd /proc/sys/net/ipv4 && echo $recovery >tcp_recovery &&
    echo $reordering >tcp_reordering && echo $early >tcp_early_retrans"
for side in a b; do $ip netns exec $side $tc qdisc del dev v0 root 2>/dev/null || true; done
half=$((round_trip / 2))
[ $half = 0 ] && [ "$late" = 0 ] && [ $# = 0 ] && exit
$ip netns exec b $tc qdisc add dev v0 root netem delay ${half}us limit 100000
if [ "$late" = 0 ]; then
    # shellcheck disable=SC2086,SC2048
    $ip netns exec a $tc qdisc add dev v0 root netem delay ${half}us limit 100000 $*
else
    $ip netns exec a $tc qdisc add dev v0 root handle 1: prio
    case $late in
    lost) $ip netns exec a $tc qdisc add dev v0 parent 1:1 netem loss 100% ;;
    *) $ip netns exec a $tc qdisc add dev v0 parent 1:1 netem delay $((half + late))us limit 100000 ;;
    esac
    $ip netns exec a $tc qdisc add dev v0 parent 1:2 netem delay ${half}us limit 100000
    $ip netns exec a $tc qdisc add dev v0 parent 1:3 netem delay ${half}us limit 100000
fi
