#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds a small Linux from Debian's source in which faults of the module show, and prints the folder of
# an image as build-image.sh makes one; a second run finds it in the cache, by the source's version and
# this recipe. Some 10 minutes on two processors; 140 to 170 MB are downloaded, 2 GB are needed
# meanwhile, and 1 to 2 GB stay.
#
#   debug_kernel.sh kasan    Debian 12's 6.1 with KASAN, lockdep, ODEBUG, kmemleak and fault injection
#   debug_kernel.sh kcsan    Debian's newest (sid) with KCSAN, which excludes KASAN, and fault injection;
#                            one that is in the cache is taken until it is deleted there
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../interop/vm/lib.sh"
kind=${1:-}
case $kind in
kasan | kcsan) ;;
*) sed -n '8,10s/^# *//p' "$0" >&2 && exit 2 ;;
esac
if program=$(missing_program apt-get apt-cache dpkg gcc make flex bison bc tar xz cpio); then
    skip "no $program to build the debug kernel with"
fi
say() { echo "debug kernel: $*" >&2; }
plain=$("$VM_DIR/build-image.sh" 6.1)  # its initramfs
config=("$here/debug_kernel.config" "$here/debug_$kind.config")
recipe=$(cat "$here/debug_kernel.sh" "${config[@]}" | sha256sum | cut -c1-16)
in_cache=$(grep -lx "$recipe" "$SIW_CACHE/ddp-$kind"-*/complete 2>/dev/null | tail -n 1 || true)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Which source there is: `package`, `version`, and how apt is asked for it.
apt=()
package=linux-source-6.1
if [ "$kind" = kcsan ] && [ -z "$in_cache" ]; then
    mkdir -p "$scratch/lists/partial" "$scratch/archives/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian sid main" >"$scratch/sources"
    apt=(-o Dir::Etc::SourceList="$scratch/sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$scratch/lists" -o Dir::Cache="$scratch/archives"
        -o APT::Sandbox::User=root)
    apt-get "${apt[@]}" -o APT::Update::Error-Mode=any update >"$scratch/log" 2>&1 ||
        skip "what sid has could not be read: $(tail -n 1 "$scratch/log")"
    package=$(apt-cache "${apt[@]}" search --names-only '^linux-source-[0-9.]+$' |
        cut -d' ' -f1 | sort -V | tail -n 1)
    [ -n "$package" ] || skip "sid has no linux-source"
fi
version=
if [ "$kind" = kasan ] || [ -z "$in_cache" ]; then
    version=$(apt-cache "${apt[@]}" policy "$package" | sed -n 's/ *Candidate: //p')
fi
if [ -z "$version" ] || [ "$version" = "(none)" ]; then
    [ -n "$in_cache" ] || skip "apt knows no $package (apt-get update)"
    image=$(dirname "$in_cache")
else
    image=$SIW_CACHE/ddp-$kind-$version
fi

mkdir -p "$image"
exec 9>"$image/lock"
flock 9
if [ "$(cat "$image/complete" 2>/dev/null)" != "$recipe" ]; then
    rm -rf "$image/complete" "$image/headers"
    mkdir -p "$image/headers/build"
    say "downloading $package $version"
    (cd "$scratch" && apt-get "${apt[@]}" download -o APT::Sandbox::User=root \
        "$package=$version") >"$image/log" 2>&1 || {
        tail -n 5 "$image/log" >&2
        skip "the source could not be downloaded"
    }
    dpkg --fsys-tarfile "$scratch"/*.deb | tar -xO "./usr/src/$package.tar.xz" |
        tar -xJ -C "$image/headers/build" --strip-components=1
    cd "$image/headers/build"
    # A kernel that has its users has it; by itself it cannot be asked for.
    sed -i '/^config MMU_NOTIFIER$/,/bool/s/bool$/bool "MMU notifiers"/' mm/Kconfig
    say "compiling, by $(nproc) processors"
    {
        make tinyconfig
        scripts/kconfig/merge_config.sh -m .config "${config[@]}"
        make olddefconfig
    } >>"$image/log" 2>&1
    while read -r option; do
        grep -qx "$option" .config || die "the debug kernel has no $option"
    done < <(grep -h '^CONFIG_' "${config[@]}")
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
