#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The rows of the siw matrix (tests/interop/matrix) with xsock and the kernel module, which it must use,
# in one guest, and the kernel's siw in another. Root, /dev/net/tun, QEMU.
#
#   kernel-matrix.sh [-m short|full] [-k KERNEL] [-r REGEX] [-o FILE] BUILD
#
#   -m   which matrix (short)
#   -k   kernel of both guests: 6.1 (default) or 6.12
#   -r   only rows whose "group: name" matches
#   -o   where the rows go, separated by tabs, as matrix_xsock prints them
set -euo pipefail
SIW_KERNEL=6.1 matrix=short rows='' report=''
usage() { sed -n 's/^#   \(kernel-matrix.sh.*\)/usage: \1/p' "$0"; }
. "$(dirname "$0")/../setup/options.sh"
read_options "m:matrix k:SIW_KERNEL r:rows o:report" "$@"
shift $((OPTIND - 1))
[ $# = 1 ] || { usage >&2 && exit 2; }
case $matrix in
short) brief=--brief ;;
full) brief= ;;
*) usage >&2 && exit 2 ;;
esac
build=$(cd "$1" && pwd)
SIW_NETNS=xsock-siw-$$
export SIW_NETNS
. "$(dirname "$0")/../kernel/lib.sh"
if [ "$(id -u)" != 0 ] || [ ! -c /dev/net/tun ]; then
    skip "no root or no /dev/net/tun: the module is NOT tested against siw"
fi
if [ ! -x "$build/tests/interop/matrix/matrix_siw" ]; then
    skip "no matrix_siw in $build: the module is NOT tested against siw (libibverbs-dev, librdmacm-dev)"
fi
case $rows in *\'*) die "-r: a regular expression without '" ;; esac
siw() { "$VM_DIR/vmctl.py" -n siw "$@"; }
ender=
# shellcheck disable=SC2317  # called by the trap
finish_both() {
    local status=$?
    [ -z "$ender" ] || kill "$ender" 2>/dev/null || true
    siw stop || true
    if [ "$status" != 0 ] && [ -s "$SIW_RUN/siw/console.log" ]; then
        echo "--- siw's console"
        tail -n 40 "$SIW_RUN/siw/console.log"
    fi
    "$VM_DIR/netns.sh" down || true
    (exit $status) || finish
    finish
}
trap finish_both EXIT

build_module
pack_library tests/interop/matrix/matrix_xsock
"$VM_DIR/netns.sh" up 2
"$VM_DIR/run-vm.sh" -n siw -t tap -i 1 -a siw.module=param
start_guest -t tap -i 2
guest_step 60 "load on $SIW_KERNEL" "$load && dmesg -c >/dev/null"

port=7199
cp "$build/tests/interop/matrix/matrix_siw" "$(siw share)/"
siw -T 60 run "cp /share/matrix_siw /tmp/ && (/tmp/matrix_siw $SIW_NET.2 $port >/tmp/log 2>&1 &);
    for i in \$(seq 100); do netstat -ltn | grep -q ':$port ' && exit 0; usleep 50000; done; exit 1"
# A row turns siw's guest off, which the other one cannot.
pid=$(cat "$SIW_RUN/siw/pid")
(until [ -e "$share/off" ]; do sleep 0.05; done && kill -KILL "$pid") &
ender=$!

guest_step 3600 "rows of the $matrix matrix" "cd /x; export LD_LIBRARY_PATH=/x XSOCK_KERNEL=require;
    ./matrix_xsock --guest $SIW_NET.2 --port $port --own $SIW_NET.3 $brief --rows '$rows' \
        --power-off 'touch /share/off' >/share/rows.tsv"
awk -F '\t' '$1 == "FAIL" { printf "    %s: %s\n        %s\n", $2, $3, $5 }' "$share/rows.tsv"
awk -F '\t' '{ n[$1]++ } END { printf "%d pass, %d refused as expected, %d failed\n", n["pass"],
    n["refused"], n["FAIL"] }' "$share/rows.tsv"
[ -z "$report" ] || cp "$share/rows.tsv" "$report"
if [ -z "$rows" ]; then
    guest_step 60 "the module has placed payload" \
        "cd /sys/kernel/debug/ddp && cat counters && grep -q '^placed_octets [1-9]' counters"
    sed -n 's/^placed/    &/p' "$SIW_RUN/out"
fi
guest_step 200 "nothing is left" "$nothing_left"
guest_step 60 "unload, and a clean log" "rmmod ddp_kernel && ! dmesg -c | grep -A 20 -E '$reports'"
[ "$failures" = 0 ] || die "$failures steps failed"
