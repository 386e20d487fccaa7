#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The network between siw guests and programs of the host: a namespace of its own.
#
#   netns.sh up [N]        the namespace SIW_NETNS, a bridge (SIW_NET.1/24), taps vt1..vtN (1)
#   netns.sh down          deletes it
#   netns.sh exec CMD...   runs CMD inside
set -euo pipefail
. "$(dirname "$0")/lib.sh"

inside() { ip netns exec "$SIW_NETNS" "$@"; }
case ${1:-} in
up)
    ip netns add "$SIW_NETNS"
    inside ip link set lo up
    inside ip link add br0 type bridge
    inside ip addr add "$SIW_NET.1/24" dev br0
    inside ip link set br0 up
    for i in $(seq 1 "${2:-1}"); do
        inside ip tuntap add dev "vt$i" mode tap vnet_hdr
        inside ip link set "vt$i" master br0 up
    done
    ;;
down) ip netns del "$SIW_NETNS" ;;
exec)
    shift
    exec ip netns exec "$SIW_NETNS" "$@"
    ;;
*)
    sed -n '3,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
