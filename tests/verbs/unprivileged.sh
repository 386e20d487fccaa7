#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# rping, perftest and ibv_devinfo where RDMA is usually impossible: as nobody, with 64 KiB of
# lockable memory, with no capabilities and no way to gain any, in a user namespace of its own, and
# without /dev/infiniband and /sys/class/infiniband. On the device that looks like RoCE also perftest
# and pingpongs without rdma_cm, and UCX.
#
#   unprivileged.sh BUILD
own_network=1
. "$(dirname "$0")/lib.sh"
need rping ibv_devinfo ib_write_bw setpriv unshare

if [ -e /dev/infiniband ]; then echo "note: this machine has /dev/infiniband"; fi

# A program of this machine's users may not look into the build folder: what is needed is copied.
mkdir -p "$work/lib/verbs"
cp -L "$drop_in"/lib*.so.1 "$work/lib/verbs/"
cp -L "$build/libxsock/libxsock-engine.so" "$work/lib/"
roce=
if [ -e "$build/libxsock/libxsock-rdma-files.so" ] && command -v ucx_perftest >/dev/null; then
    roce=1
    cp -L "$build"/libxsock/libxsock{.so.0,-rdma-files.so} "$build/tools/xsock" "$work/lib/"
else
    echo "SKIPPED  UCX and its like: no ucx_perftest, or the device's files are not built"
fi
cat >"$work/programs" <<'SCRIPT'
#!/bin/bash
# programs LIBRARIES PORT: each program's two ends; status 0 if all ended well.
set -u
export LD_LIBRARY_PATH=$1 XSOCK_LOG=off
port=$2 roce=$3
ulimit -l 64 || exit 3
listens() {  # waits for a listener, at most half a minute
    for _ in $(seq 300); do
        grep -q ":$(printf %04X "$1") .* 0A " /proc/net/tcp && return
        sleep 0.1
    done
}
ibv_devinfo -d xsock0 >/dev/null || exit 4
rping -s -a 127.0.0.1 -p "$port" -C 100 -v >/dev/null 2>&1 &
server=$!
listens "$port"
timeout -k 5 60 rping -c -a 127.0.0.1 -p "$port" -C 100 -v >/dev/null || exit 5
wait "$server" || exit 6
# 8 MiB are registered: far more than may be locked.
ib_write_bw -R -p "$((port + 1))" -s 4194304 -n 20 >/dev/null 2>&1 &
server=$!
listens "$((port + 1))"
timeout -k 5 60 ib_write_bw -R -p "$((port + 1))" -s 4194304 -n 20 127.0.0.1 >/dev/null 2>&1 || exit 7
wait "$server" || exit 8
[ -n "$roce" ] || exit 0

# A server, then a client of it.
ends() {
    LD_LIBRARY_PATH=$lib "$lib/xsock" run --roce -- "$@" >/dev/null 2>&1 &
    server=$!
    listens "$port"
    LD_LIBRARY_PATH=$lib timeout -k 5 60 "$lib/xsock" run --roce -- "$@" 127.0.0.1 >/dev/null 2>&1 &&
        wait "$server"
}
lib=${LD_LIBRARY_PATH%/verbs}
ends ibv_rc_pingpong -g 0 -c -p "$port" || exit 10
ends ibv_ud_pingpong -g 0 -c -p "$port" || exit 11
ends ib_write_bw -p "$port" -s 4194304 -n 20 || exit 12
export UCX_TLS=rc_v,self UCX_NET_DEVICES=xsock0:1 UCX_WARN_UNUSED_ENV_VARS=n
ends ucx_perftest -t tag_lat -n 1000 -p "$port" || exit 13
SCRIPT
chmod -R a+rX "$work" && chmod a+x "$work/programs"

# Below the ports that the kernel gives to clients: an unused port stays unused.
port=$((20000 + $$ % 10000))
in_use() { grep -qE ":($(printf '%04X|%04X' "$port" $((port + 1)))) " /proc/net/tcp /proc/net/tcp6; }
run() {
    local name=$1
    shift
    while in_use; do port=$((port + 2)); done
    "$@" "$work/programs" "$work/lib/verbs" "$port" "$roce"
    verdict "$name" $?
    port=$((port + 2))
}

if [ "$(id -u)" = 0 ]; then
    run "nobody, 64 KiB to lock, no new privileges" \
        setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --inh-caps=-all \
        --bounding-set=-all --
    as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --)
else
    run "an ordinary user, 64 KiB to lock, no new privileges" setpriv --no-new-privs --
    as_nobody=()
fi
# Its own user and network namespace: root of nothing; the loopback there has to be brought up.
inside=("${as_nobody[@]}" unshare --user --map-root-user --net --)
if "${inside[@]}" true 2>/dev/null; then
    cat >"$work/in_namespace" <<'SCRIPT'
#!/bin/bash
ip link set lo up || exit 9
exec "$@"
SCRIPT
    chmod a+rx "$work/in_namespace"
    run "a user and network namespace of nobody's" "${inside[@]}" "$work/in_namespace"
else
    echo "SKIPPED  user namespaces are not allowed here"
fi
exit $failed
