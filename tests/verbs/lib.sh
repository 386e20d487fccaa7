# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Common to the scripts of tests/verbs. Sourced with the build folder in $1; sets `drop_in` (the
# drop-in libraries), `work` (a folder that goes at the end) and `failed` (0).
#
# own_network=1, set before: the script starts again in a network namespace of its own, where it may
# make one. No ports of other programs are there.
if [ -n "${own_network:-}" ] && [ -z "${XSOCK_OWN_NETWORK:-}" ] && unshare --net true 2>/dev/null; then
    export XSOCK_OWN_NETWORK=1
    exec unshare --net -- bash -c 'ip link set lo up && exec "$@"' - "$0" "$@"
fi
set -u
build=$(realpath "${1:?the build folder}")
drop_in=$build/libxsock/verbs
work=$(mktemp -d /tmp/xsock-verbs.XXXXXX)
failed=0
pids=()

clean_up() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    [ "$(type -t last_things)" != function ] || last_things
    rm -rf "$work"
}
trap clean_up EXIT

skip() {
    echo "SKIPPED: $*"
    exit 77
}
need() {
    local program
    for program; do command -v "$program" >/dev/null || skip "no $program here"; done
}

# verdict NAME STATUS: counts it.
verdict() {
    if [ "$2" = 0 ]; then
        echo "ok      $1"
    else
        echo "FAILED  $1 (status $2)"
        failed=1
    fi
}

[ -e "$drop_in/libibverbs.so.1" ] || skip "the drop-in libraries are not built"
export LD_LIBRARY_PATH=$drop_in

# Of a script with a network of its own: a port for each try, and whether somebody listens on it, by
# TCP (state 0A) or UDP (07).
port=$((20000 + $$ % 10000))
port_is_taken() { grep -qE ":$(printf %04X $port) [0-9A-F:]+ (0A|07) " /proc/net/{tcp,udp}{,6}; }
# await_listener PID: until it is taken, PID has ended, or 30 s have passed.
await_listener() {
    for _ in $(seq 300); do
        port_is_taken && break
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
}
