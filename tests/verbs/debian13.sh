#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Debian 13's UCX, perftest and ibverbs-utils on the device that looks like RoCE, with their own
# dynamic linker and C library, on libraries that were built here; in a user namespace, so without any
# privilege. The rows of roce.sh and ucx.sh. The first time it downloads the programs (20 MB).
#
#   debian13.sh BUILD [--all]        --all: as that of ucx.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "${1:?the build folder}")
shift
if [ -z "${XSOCK_DEBIAN13:-}" ]; then
    XSOCK_DEBIAN13=$("$here/debian13_programs.sh") || exit $?
    export XSOCK_DEBIAN13 XSOCK_OWN_NETWORK=1
    unshare --user --net true 2>/dev/null || {
        echo "SKIPPED: no user namespaces here"
        exit 77
    }
    exec unshare --user --map-root-user --net -- "$0" "$build" "$@"
fi
ip link set lo up
PATH=$XSOCK_DEBIAN13/bin:$PATH
# With MPI in it, ucx_perftest asks for two ranks where it has no terminal.
export XSOCK_UCX_PERFTEST="-P 0"
# UCX 1.18's Puts and atomics end by an operation that it has for mlx5 alone: of rc_verbs, on any device,
# its memory domain never has the key for it (flush_rkey). They go on, and exit 0.
export XSOCK_UCX_KNOWN='flush\(remote\) is not supported|error during flush: Unsupported operation'
status=0
"$here/roce.sh" "$build" || status=$?
"$here/ucx.sh" "$build" "$@" || status=$?
exit $status
