#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Runs a command in a network namespace of its own, without ports of other programs; in this one
# where none can be made (that takes root).
#   own_network.sh COMMAND ARGUMENTS...
PATH=$PATH:/usr/sbin:/sbin
if [ -z "${XSOCK_OWN_NETWORK:-}" ] && unshare --net true 2>/dev/null; then
    export XSOCK_OWN_NETWORK=1
    exec unshare --net -- bash -c 'ip link set lo up && exec "$@"' - "$@"
fi
exec "$@"
