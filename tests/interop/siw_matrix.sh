#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# xsock and the Linux kernel's siw, in a guest that is booted for it: rdma-core's rping there and
# `xsock ping --rping` here in both directions, then the matrix (tests/interop/matrix). As root over a tap, so that TCP segments
# arrive as they were sent; otherwise through QEMU's user network, which cuts the stream anew: siw
# takes a CRC that lies across two segments for a wrong one, so that only small pings are sure there
# and the matrix is left out.
#
#   siw_matrix.sh [--full] [--kernel 6.1|6.12] [--rows REGEX] [--report FILE] BUILD
#
#   --full      all rows of the matrix, not only the short one of ./test
#   --kernel    which of Debian's kernels the guest runs (SIW_KERNEL, or 6.1)
#   --rows      only rows whose "group: name" matches
#   --report    the pings and the rows, separated by tabs, as matrix_xsock prints them
#   BUILD       where tools and tests/interop were built
#
# Exit status 77: something is missing (QEMU, packages to build the guest with, the programs).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n 's/^#   \(siw_matrix.sh.*\)/usage: \1/p' "$0" >&2; }
brief=--brief report= rows=
while [ $# -gt 1 ]; do
    case $1 in
    --full) brief= ;;
    --kernel) SIW_KERNEL=$2 && shift ;;
    --rows) rows=$2 && shift ;;
    --report) report=$2 && shift ;;
    *) usage && exit 2 ;;
    esac
    shift
done
if [ $# != 1 ] || [ "${1#-}" != "$1" ]; then usage && exit 2; fi
build=$1
SIW_RUN=$(mktemp -d "${TMPDIR:-/tmp}/xsock-siw.XXXXXX")
SIW_NETNS=xsock-siw-$$
export SIW_RUN SIW_NETNS SIW_KERNEL
. "$here/vm/lib.sh"

guest() { "$here/vm/vmctl.py" -n siw -T 60 run "$@"; }
own_server=
network=
finish() {
    local status=$?
    trap - EXIT
    [ -z "$own_server" ] || kill "$own_server" 2>/dev/null || true
    "$here/vm/vmctl.py" -n siw stop || true
    if [ "$status" != 0 ] && [ "$status" != 77 ] && [ -s "$SIW_RUN/siw/console.log" ]; then
        echo "--- the guest's console"
        tail -n 40 "$SIW_RUN/siw/console.log"
    fi
    [ "$network" != tap ] || "$here/vm/netns.sh" down || true
    rm -rf "$SIW_RUN"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

if program=$(missing_program qemu-system-x86_64 python3 cpio); then
    skip "no $program: xsock is NOT tested against the kernel's siw (tests/setup/packages.txt)"
fi
SIW_IMAGE=$("$here/vm/build-image.sh" "$SIW_KERNEL")
export SIW_IMAGE

# ---- One guest, and where each side finds the other ------------------------------------------------
port=7174       # siw listens
own_port=7175   # xsock listens
if [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ] && "$here/vm/netns.sh" up 1 2>"$SIW_RUN/netns.log"; then
    network=tap
    own=("$here/vm/netns.sh" exec)
    siw_address=$SIW_NET.2 siw_bind=$SIW_NET.2 siw_port=$port
    own_address=$SIW_NET.1 own_bind=$SIW_NET.1
    sizes="64 4096 60000"
    "$here/vm/run-vm.sh" -n siw -t tap -i 1 -a siw.module=param
else
    ip netns del "$SIW_NETNS" 2>/dev/null || true
    network=user
    own=(env)
    read -r siw_port own_port <<<"$(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in held))')"
    siw_address=127.0.0.1 siw_bind=10.0.2.15
    own_address=10.0.2.2 own_bind=127.0.0.1
    sizes="64 512"
    "$here/vm/run-vm.sh" -n siw -t user -f "$siw_port:$port"
fi

# ---- Steps --------------------------------------------------------------------------------------
count=10
failures=0
verdict() { # status, what
    if [ "$1" = 0 ]; then
        echo "ok    $2"
    else
        echo "FAIL  $2"
        failures=$((failures + 1))
    fi
}
ping_verdict() { # status, what
    verdict "$@"
    printf '%s\trping\t%s\t0\t\n' "$([ "$1" = 0 ] && echo pass || echo FAIL)" "$2" \
        >>"$SIW_RUN/pings.tsv"
}
# The i-th ping carries "rdma-ping-<i>": all of them must have come, in order, none twice.
all_pings() { # file
    [ "$(grep -ao 'rdma-ping-[0-9]*' "$1")" = "$(seq -f 'rdma-ping-%g' 0 $((count - 1)))" ]
}
siw_serves() { # size
    guest "(rping -s -a $siw_bind -p $port -v -C $count -S $1 >/tmp/server.log 2>&1 &);
        for i in \$(seq 100); do netstat -ltn | grep -q ':$port ' && exit 0; usleep 50000; done;
        exit 1"
}
siw_served() { # file
    guest "for i in \$(seq 100); do pidof rping >/dev/null || break; usleep 50000; done;
        cat /tmp/server.log; ! pidof rping >/dev/null" >"$1" && all_pings "$1"
}
show() { for file in "$@"; do echo "--- $(basename "$file")" && cut -c1-100 "$file" | tail -n 20; done; }

xsock_pings_siw() { # size
    local mine=$SIW_RUN/xsock-client.log its=$SIW_RUN/siw-server.log
    : >"$mine"
    siw_serves "$1" && timeout 60 "${own[@]}" "$xsock" ping --rping -v -c $count -s "$1" \
        "$siw_address" "$siw_port" >"$mine" 2>&1 && all_pings "$mine" && siw_served "$its" && return
    guest "killall -q rping; cat /tmp/server.log" >"$its" 2>&1 || true
    show "$mine" "$its"
    return 1
}
siw_pings_xsock() { # size
    local mine=$SIW_RUN/xsock-server.log its=$SIW_RUN/siw-client.log status=0
    # Replaced by the program in one process, so that the pid is its own.
    "${own[@]}" "$xsock" ping --rping --listen --once -v -s "$1" "$own_bind:$own_port" \
        >"$mine" 2>&1 &
    own_server=$!
    for _ in $(seq 100); do
        "${own[@]}" ss -Hltn "sport = :$own_port" 2>/dev/null | grep -q . && break
        sleep 0.05
    done
    guest "timeout 50 rping -c -V -a $own_address -p $own_port -C $count -S $1 -v" >"$its" 2>&1 ||
        status=1
    # It ends by itself once its client has gone.
    for _ in $(seq 100); do
        kill -0 "$own_server" 2>/dev/null || break
        sleep 0.05
    done
    kill "$own_server" 2>/dev/null && status=1
    wait "$own_server" || status=1
    own_server=
    all_pings "$its" && all_pings "$mine" || status=1
    [ $status = 0 ] || show "$mine" "$its"
    return $status
}

# siw with itself first: when that fails, the fault is the rig's.
siw_serves 4096
guest "rping -c -a $siw_bind -p $port -C $count -S 4096 -v" >"$SIW_RUN/self.log" 2>&1 || true
if ! all_pings "$SIW_RUN/self.log" || ! siw_served "$SIW_RUN/siw-server.log"; then
    show "$SIW_RUN/self.log" "$SIW_RUN/siw-server.log"
    die "siw does not even reach itself: the rig is broken"
fi
verdict 0 "siw and siw, $count pings of 4096 bytes"

xsock=$build/tools/xsock
[ -x "$xsock" ] || skip "$xsock was not built: xsock is NOT tested against the kernel's siw"
for size in $sizes; do
    status=0
    xsock_pings_siw "$size" || status=1
    ping_verdict $status "xsock ping --rping, siw's rping -s, $count pings of $size bytes"
    status=0
    siw_pings_xsock "$size" || status=1
    ping_verdict $status "siw's rping -c, xsock ping --rping --listen, $count pings of $size bytes"
done

# ---- The matrix -----------------------------------------------------------------------------------
matrix=$build/tests/interop/matrix
skipped=
control_port=7199
if [ "$network" != tap ]; then
    echo "SKIPPED: the matrix needs root and /dev/net/tun: only pings were tried" >&2
    skipped=1
elif [ ! -x "$matrix/matrix_siw" ]; then
    echo "SKIPPED: matrix_siw was not built (libibverbs-dev, librdmacm-dev): only pings were tried" >&2
    skipped=1
    [ -n "$report" ] && failures=$((failures + 1))
else
    cp "$matrix/matrix_siw" "$("$here/vm/vmctl.py" -n siw share)/"
    guest "cp /share/matrix_siw /tmp/ &&
        (/tmp/matrix_siw $SIW_NET.2 $control_port >/tmp/matrix.log 2>&1 &);
        for i in \$(seq 100); do netstat -ltn | grep -q ':$control_port ' && exit 0; usleep 50000; done;
        exit 1"
    release=$(guest "uname -r" | tr -d '\r\n')
    # The last row turns the guest off.
    status=0
    # shellcheck disable=SC2086
    "${own[@]}" "$matrix/matrix_xsock" --guest "$SIW_NET.2" --port $control_port --own "$SIW_NET.1" \
        $brief --rows "$rows" --power-off "kill -KILL $(cat "$SIW_RUN/siw/pid")" \
        >"$SIW_RUN/matrix.tsv" || status=1
    awk -F '\t' '$1 == "FAIL" {printf "FAIL  %s: %s\n      %s\n", $2, $3, $5}' \
        "$SIW_RUN/matrix.tsv"
    verdict $status "matrix with Linux $release: $(awk -F '\t' '{n[$1]++}
        END {printf "%d pass, %d refused as expected, %d failed", n["pass"], n["refused"], n["FAIL"]}' \
        "$SIW_RUN/matrix.tsv")"
    [ -z "$report" ] ||
        { echo "# Linux $release" && cat "$SIW_RUN/pings.tsv" "$SIW_RUN/matrix.tsv"; } >"$report"
fi
[ "$failures" != 0 ] || [ -z "$skipped" ] || exit 77
exit $((failures > 0))
