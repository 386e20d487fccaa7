#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What is installed of the kernel module: DKMS builds it for the guest's kernel (docs/kernel.md), and
# the udev rule names the group that is made.
#
#   dkms_test.sh BUILD
#
# Exit status 77: something is missing (root, dkms, packages to build the guest with).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: dkms_test.sh BUILD}" && pwd)
. "$here/../interop/vm/lib.sh"
[ "$(id -u)" = 0 ] || skip "no root: DKMS is NOT tested"
if program=$(missing_program dkms unshare modinfo cmake make gcc); then
    skip "no $program: DKMS is NOT tested (tests/setup/packages.txt)"
fi
image=$("$VM_DIR/build-image.sh" "$SIW_KERNEL")
release=$(basename "$image")
release=${release#siw-}
work=$(mktemp -d "${TMPDIR:-/tmp}/xsock-dkms.XXXXXX")
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/usr" --component ddp_kernel >/dev/null
sources=$(ls -d "$work"/usr/src/ddp_kernel-*)
version=${sources##*-}
group=$(sed -n 's/.*GROUP="\([a-z]*\)".*/\1/p' "$work/usr/lib/udev/rules.d/60-ddp.rules")
grep -q "^g $group " "$work/usr/lib/sysusers.d/ddp.conf" || die "nothing makes the group '$group'"

# DKMS makes a key to sign with where the machine has none: not in this machine's folder.
mkdir "$work/tree"
# shellcheck disable=SC2016  # the inner shell expands
unshare -m sh -ec '
    mount -t tmpfs none /var/lib/dkms
    options="--dkmstree $1/tree --sourcetree $1/usr/src"
    dkms add -m ddp_kernel -v "$2" $options
    dkms build -m ddp_kernel -v "$2" -k "$3" --kernelsourcedir "$4/headers/build" $options
' sh "$work" "$version" "$release" "$image" >"$work/log" 2>&1 || {
    cat "$work/log" "$work/tree/ddp_kernel/$version/build/make.log" 2>/dev/null || true
    die "DKMS did not build the module"
}
module=$(find "$work/tree/ddp_kernel/$version/$release" -name 'ddp_kernel.ko*')
[ -n "$module" ] || die "DKMS has built no ddp_kernel.ko"
modinfo -F vermagic "$module" | grep -q "^$release " ||
    die "built for $(modinfo -F vermagic "$module"), not for $release"
echo "ok       ddp_kernel $version by DKMS for $release"
