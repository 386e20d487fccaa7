#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds a small Linux 6.1 from Debian's source in which faults of the module show (KASAN, lockdep,
# kmemleak, ODEBUG, fault injection), and prints the folder of an image as build-image.sh makes one;
# a second run finds it in the cache, by the source's version and this recipe. Some 10 minutes on
# two processors; 140 MB are downloaded, 2 GB are needed meanwhile, and 1 GB stays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../interop/vm/lib.sh"
series=6.1
if program=$(missing_program apt-get apt-cache dpkg gcc make flex bison bc tar xz cpio); then
    skip "no $program to build the debug kernel with"
fi
plain=$("$VM_DIR/build-image.sh" "$series")  # its initramfs
version=$(apt-cache policy "linux-source-$series" | sed -n 's/ *Candidate: //p')
recipe=$(cat "$here/debug_kernel.sh" "$here/debug_kernel.config" | sha256sum | cut -c1-16)
if [ -z "$version" ] || [ "$version" = "(none)" ]; then
    image=$(ls -td "$SIW_CACHE"/ddp-debug-*/ 2>/dev/null | head -n 1)
    [ -n "$image" ] || skip "apt knows no linux-source-$series (apt-get update)"
    echo "${image%/}"
    exit
fi
image=$SIW_CACHE/ddp-debug-$version
mkdir -p "$image"
exec 9>"$image/lock"
flock 9
if [ "$(cat "$image/complete" 2>/dev/null)" != "$recipe" ]; then
    say() { echo "debug kernel: $*" >&2; }
    rm -rf "$image/complete" "$image/scratch" "$image/headers"
    mkdir -p "$image/scratch" "$image/headers/build"
    say "downloading linux-source-$series $version"
    (cd "$image/scratch" && apt-get download -o APT::Sandbox::User=root \
        "linux-source-$series=$version") >"$image/log" 2>&1 || {
        tail -n 5 "$image/log" >&2
        skip "the source could not be downloaded"
    }
    dpkg --fsys-tarfile "$image"/scratch/*.deb |
        tar -xO "./usr/src/linux-source-$series.tar.xz" |
        tar -xJ -C "$image/headers/build" --strip-components=1
    rm -rf "$image/scratch"
    cd "$image/headers/build"
    # A kernel that has its users has it; by itself it cannot be asked for.
    sed -i '/^config MMU_NOTIFIER$/,/bool/s/bool$/bool "MMU notifiers"/' mm/Kconfig
    say "compiling, by $(nproc) processors"
    {
        make tinyconfig
        scripts/kconfig/merge_config.sh -m .config "$here/debug_kernel.config"
        make olddefconfig
    } >>"$image/log" 2>&1
    while read -r option; do
        grep -qx "$option" .config || die "the debug kernel has no $option"
    done < <(grep '^CONFIG_' "$here/debug_kernel.config")
    make -j"$(nproc)" bzImage modules >>"$image/log" 2>&1 || {
        grep -E 'error|Error' "$image/log" | head >&2
        die "the debug kernel did not compile ($image/log)"
    }
    cp arch/x86/boot/bzImage "$image/kernel"
    # What modules are built against stays.
    find . \( -name '*.o' -o -name '*.a' -o -name '.*.cmd' \) -not -path './scripts/*' \
        -not -path './tools/*' -delete
    rm -f vmlinux vmlinux.*
    echo "$recipe" >"$image/complete"
    say "$(du -sh "$image" | cut -f1) in $image"
fi
ln -sf "$plain/initramfs.cpio" "$image/initramfs.cpio"
echo "$image"
