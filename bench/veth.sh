#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Two network namespaces NAME-a (198.18.77.1) and NAME-b (198.18.77.2), joined by a veth pair with
# its default offloads. xsock_bench calls this; it needs root and iproute2, and exits 77 without.
#
#   veth.sh up NAME MTU
#   veth.sh down NAME
set -eu

verb=${1:?up or down}
name=${2:?name}

down() {
    ip netns delete "$name-a" 2>/dev/null || true
    ip netns delete "$name-b" 2>/dev/null || true
}

if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
    echo "veth.sh: skipped: needs root and ip (iproute2)" >&2
    exit 77
fi

case $verb in
up)
    mtu=${3:?mtu}
    trap 'status=$?; [ $status = 0 ] || down; exit $status' EXIT
    ip netns add "$name-a"
    ip netns add "$name-b"
    ip link add v0 netns "$name-a" mtu "$mtu" type veth peer name v0 netns "$name-b" mtu "$mtu"
    ip -n "$name-a" address add 198.18.77.1/24 dev v0
    ip -n "$name-b" address add 198.18.77.2/24 dev v0
    for end in a b; do
        ip -n "$name-$end" link set lo up
        ip -n "$name-$end" link set v0 up
    done
    ;;
down)
    down
    ;;
*)
    echo "usage: veth.sh up NAME MTU | down NAME" >&2
    exit 2
    ;;
esac
