#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# xsock, the kernel's siw and plain TCP side by side (siw_guest.c), both ends in one guest over the
# address of its own interface, with CRCs off and on. The guest is emulated (TCG): only ratios mean
# something. Prints rows of a table; the figures themselves go to standard error.
#
#   siw_guest.sh [-k KERNEL] [-r ROUNDS] [-c CPUS] BUILD
#
#   -k KERNEL   6.1 (default) or 6.12
#   -r ROUNDS   default 7
#   -c CPUS     of the guest, default 1: spinning then disturbs no other processor
#   BUILD       where bench/siw_guest was built
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
vm=$here/../tests/interop/vm
rounds=7 cpus=1
usage() { sed -n 's/^#   \(siw_guest.sh.*\)/usage: \1/p' "$0"; }
. "$here/../tests/setup/options.sh"
read_options "k:SIW_KERNEL r:rounds c:cpus" "$@"
shift $((OPTIND - 1))
[ $# = 1 ] || { usage >&2 && exit 2; }
build=$1
SIW_RUN=$(mktemp -d "${TMPDIR:-/tmp}/xsock-siw-bench.XXXXXX")
export SIW_RUN SIW_KERNEL
. "$vm/lib.sh"
address=10.0.2.15 # of a guest behind QEMU's own network

guest() { "$vm/vmctl.py" -n bench -T 1800 run "$@"; }
finish() {
    local status=$?
    trap - EXIT
    "$vm/vmctl.py" -n bench stop || true
    rm -rf "$SIW_RUN"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

program=$build/bench/siw_guest
[ -x "$program" ] || skip "$program was not built (libibverbs-dev, librdmacm-dev)"
SIW_IMAGE=$("$vm/build-image.sh" "$SIW_KERNEL")
export SIW_IMAGE
# TCG moves byte by byte where a processor says that it moves fast (REP MOVSB): every copy would
# weigh several times what it does on hardware.
"$vm/run-vm.sh" -n bench -c "$cpus" -m max,-erms,-fsrm -a siw.module=param >&2

# The program, our libraries, and what they need and the guest may lack.
share=$("$vm/vmctl.py" -n bench share)
mkdir "$share/lib"
cp "$program" "$share/"
cp -L "$build"/libxsock/{libxsock.so.0,libxsock-engine.so} "$share/lib/"
for library in $(ldd "$build/libxsock/libxsock-engine.so" | awk '/=> \//{print $3}'); do
    case $library in
    */libc.so* | */ld-linux*) ;;
    *) cp -L "$library" "$share/lib/" ;;
    esac
done
guest "cp -r /share/lib /share/siw_guest /tmp/"
echo "Linux $(guest "uname -r"), $cpus CPU, $rounds rounds" >&2
for crc in 0 1; do
    guest "echo $crc >/sys/module/siw/parameters/mpa_crc_required;
        LD_LIBRARY_PATH=/tmp/lib /tmp/siw_guest $address $rounds $crc"
done | tee "$SIW_RUN/rows" | grep -v '^|' >&2 || true
echo '| row | CRC | siw / TCP | xsock / TCP | xsock / siw |'
echo '|---|---|---|---|---|'
grep '^|' "$SIW_RUN/rows"
[ "$(grep -c '^|' "$SIW_RUN/rows")" = 6 ] || die "rows are missing"
