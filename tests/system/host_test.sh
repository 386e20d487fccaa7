#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Runs the engine inside a host. Exit status 77: this machine lacks it.
#   host_test.sh node SHIM SCRIPT
#   host_test.sh jemalloc PROGRAM...
#   host_test.sh jemalloc-overlay LIBXSOCK-PRELOAD.SO PROGRAM...   in both orders of preloading
set -u
skip() {
    echo "SKIP  $*"
    exit 77
}
case ${1:?usage: host_test.sh node|jemalloc|jemalloc-overlay ...} in
node)
    node=$(command -v node || command -v nodejs) || skip "no node here"
    LD_PRELOAD=$2 exec "$node" "$3"
    ;;
jemalloc | jemalloc-overlay)
    how=$1
    library=
    for folder in "/usr/lib/$(uname -m)-linux-gnu" /usr/lib64 /usr/lib; do
        [ -e "$folder/libjemalloc.so.2" ] && library=$folder/libjemalloc.so.2 && break
    done
    [ -n "$library" ] || skip "no libjemalloc.so.2 here"
    shift
    if [ "$how" = jemalloc-overlay ]; then
        overlay=$1
        shift
        LD_PRELOAD="$library $overlay" "$@" && LD_PRELOAD="$overlay $library" exec "$@"
        exit
    fi
    # Memory that crosses the ABI would end the process here.
    for progress in both app thread; do
        LD_PRELOAD=$library XSOCK_PROGRESS=$progress "$@" || exit
    done
    ;;
*) exit 2 ;;
esac
