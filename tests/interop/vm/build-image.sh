#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Builds the kernel and the initramfs of the siw guest from Debian packages and prints the folder
# they are in; a second run finds them in the cache. Debian ships the driver's source but does not
# enable it (CONFIG_RDMA_SIW), so that siw.ko is compiled here against the packaged headers. Nothing
# is installed and no privilege is needed: packages are downloaded (some 230 MB), unpacked, and
# removed again. What stays is about 190 MB for each kernel version.
#
#   build-image.sh [6.1|6.12]    which of Debian's kernels (SIW_KERNEL, or 6.1)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ "$(uname -m)" = x86_64 ] || skip "the siw guest is built on x86-64 only"
if program=$(missing_program apt-get apt-cache dpkg gcc make depmod cpio python3 tar xz zstd strip); then
    skip "no $program to build the siw guest with (tests/setup/packages.txt, section test)"
fi

# ---- Which kernel ------------------------------------------------------------------------------
series=${1:-$SIW_KERNEL}
case $series in
6.1) meta_package=linux-image-amd64 ;;
6.12) meta_package=linux-image-6.12-amd64 ;; # bookworm-security
*) die "no kernel $series: 6.1 and 6.12 are those of Debian 12" ;;
esac
recipe=$(cat "$VM_DIR/build-image.sh" "$VM_DIR/extract_vmlinux.py" | sha256sum | cut -c1-16)
image_package=$(apt-cache depends "$meta_package" 2>/dev/null |
    awk '/Depends: linux-image-/ {print $2; exit}')
if [ -z "$image_package" ]; then
    image=$(newest_image "$series")
    [ -n "$image" ] || skip "apt knows no $meta_package (apt-get update) and no image is cached"
    echo "$image"
    exit 0
fi
release=${image_package#linux-image-}         # 6.1.0-NN-amd64, 6.12.NNN+deb12-amd64
abi=${release%-amd64}                         # 6.1.0-NN, 6.12.NNN+deb12
kbuild=linux-kbuild-$abi # 6.12 has one for each release, 6.1 one for all
apt-cache show --no-all-versions "$kbuild" >/dev/null 2>&1 || kbuild=linux-kbuild-$series
image=$SIW_CACHE/siw-$release
if [ "$(cat "$image/complete" 2>/dev/null)" = "$recipe" ]; then
    touch "$image/complete" 2>/dev/null || true # the newest, should apt not answer one day
    echo "$image"
    exit 0
fi

# One builder at a time; the second one finds the first one's work.
mkdir -p "$image"
exec 9>"$image/lock"
flock 9
if [ "$(cat "$image/complete" 2>/dev/null)" = "$recipe" ]; then
    echo "$image"
    exit 0
fi
rm -f "$image/complete"
scratch=$image/scratch
rm -rf "$scratch"
mkdir -p "$scratch/debs"
say() { echo "siw image: $*" >&2; }

# ---- Packages ----------------------------------------------------------------------------------
kernel_packages="$image_package linux-headers-$release linux-headers-$abi-common
    $kbuild linux-source-$series"
user_packages="busybox-static kmod libkmod2 iproute2 ethtool tcpdump qperf perftest
    rdma-core libibverbs1 ibverbs-providers ibverbs-utils librdmacm1 rdmacm-utils libibumad3
    libc6 libpci3 libpcap0.8 libnl-3-200 libnl-route-3-200 libmnl0 libbpf1 libelf1 libcap2 libdb5.3
    libtirpc3 libbsd0 libmd0 zlib1g libssl3 liblzma5 libzstd1 libxtables12 libselinux1
    libpcre2-8-0 libdbus-1-3 libsystemd0 libgcrypt20 libgpg-error0 liblz4-1 libgssapi-krb5-2
    libkrb5-3 libk5crypto3 libcom-err2 libkrb5support0 libkeyutils1 libudev1 libgcc-s1"
say "downloading packages for Linux $release"
# shellcheck disable=SC2086
(cd "$scratch/debs" &&
    apt-get download -o APT::Sandbox::User=root $kernel_packages $user_packages) \
    >"$scratch/download.log" 2>&1 || {
    tail -n 5 "$scratch/download.log" >&2
    older=$(newest_image "$series")
    [ -n "$older" ] || skip "the packages of the siw guest ($series) could not be downloaded"
    say "download failed: using $older"
    echo "$older"
    exit 0
}
deb() { ls "$scratch/debs/$1"_*.deb; }
unpack() { # folder, packages...
    local folder=$1 package
    shift
    mkdir -p "$folder"
    for package in "$@"; do dpkg -x "$(deb "$package")" "$folder"; done
}

say "unpacking"
kernel_root=$scratch/kernel
user_root=$scratch/user
headers=$image/headers
rm -rf "$headers"
unpack "$kernel_root" "$image_package"
# shellcheck disable=SC2086
unpack "$user_root" $user_packages
unpack "$headers" "linux-headers-$release" "linux-headers-$abi-common" "$kbuild"
# The packaged Makefile includes its sibling by absolute path. The headers stay in the image: what
# is compiled against them fits its kernel (tests/kernel).
sed -i "s|^include /usr/src/|include $headers/usr/src/|" \
    "$headers/usr/src/linux-headers-$release/Makefile"
ln -sfn "usr/src/linux-headers-$release" "$headers/build"

# ---- siw.ko, as shipped and with its constants as parameters --------------------------------------
say "compiling siw.ko"
mkdir -p "$scratch/source"
dpkg --fsys-tarfile "$(deb "linux-source-$series")" |
    tar -xO "./usr/src/linux-source-$series.tar.xz" |
    tar -xJ -C "$scratch/source" --strip-components=4 --wildcards '*/drivers/infiniband/sw/siw/*'
cp -r "$scratch/source/siw" "$scratch/plain"
cp -r "$scratch/source/siw" "$scratch/param"
# CRC, peer-to-peer and GSO behaviour are compile-time constants in Linux; tests choose them when
# the module is loaded (siw.module=param siw.options=...) or while it runs (/sys/module/siw).
for name in zcopy_tx try_gso loopback_enabled mpa_crc_required mpa_crc_strict siw_tcp_nagle \
    peer_to_peer; do
    sed -i "s/^const bool $name\b/bool $name/" "$scratch/param/siw_main.c"
    sed -i "s/^extern const bool $name\b/extern bool $name/" "$scratch/param/siw.h"
    echo "module_param($name, bool, 0644);" >>"$scratch/param/siw_main.c"
done
echo "module_param(mpa_version, byte, 0644);" >>"$scratch/param/siw_main.c"
for variant in plain param; do
    # No BTF: that would need pahole.
    make -s -C "$headers/usr/src/linux-headers-$release" M="$scratch/$variant" CONFIG_RDMA_SIW=m \
        CONFIG_DEBUG_INFO_BTF_MODULES= CC=gcc modules >"$scratch/$variant.log" 2>&1 || {
        tail -n 20 "$scratch/$variant.log" >&2
        die "siw.ko ($variant) did not compile"
    }
    strip -g "$scratch/$variant/siw.ko"
done
modules=$kernel_root/lib/modules/$release
mkdir -p "$modules/extra"
cp "$scratch/plain/siw.ko" "$modules/extra/"
depmod -b "$kernel_root" "$release"

# ---- initramfs ---------------------------------------------------------------------------------
say "packing the initramfs"
root=$scratch/root
mkdir -p "$root"/{bin,sbin,etc/libibverbs.d,proc,sys,dev,tmp,run,root,share,var/run,usr/bin} \
    "$root"/{usr/sbin,usr/lib,lib64,opt/siw,lib/modules/$release}
cp "$user_root/bin/busybox" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
cp "$scratch/param/siw.ko" "$root/opt/siw/siw-param.ko"

# Modules needed for boot go into /etc/modules.boot in load order; the others only have to be there.
python3 - "$modules" "$root/lib/modules/$release" "$root/etc/modules.boot" <<'PY'
import lzma, os, shutil, sys

source, target, order_file = sys.argv[1:]
boot = ("virtio_pci virtio_net virtio_console crc32c_generic crc32c-intel siw rdma_ucm ib_uverbs "
        "9pnet_virtio 9p").split()
more = "sch_netem sch_tbf sch_prio ib_umad tun veth tls".split()


def plain(name):
    return os.path.basename(name).split(".ko")[0].replace("-", "_")


path, needs = {}, {}
for line in open(os.path.join(source, "modules.dep")):
    file, others = line.split(":")
    path[plain(file)] = file
    needs[plain(file)] = [plain(other) for other in others.split()]
builtin = {plain(line.strip()) for line in open(os.path.join(source, "modules.builtin"))}

ordered = []


def add(name):
    """A module goes in after everything it needs."""
    if name in builtin or name in ordered:
        return
    if name not in path:
        print("siw image: no module", name, "in this kernel", file=sys.stderr)
        return
    for other in needs[name]:
        add(other)
    ordered.append(name)


def unpacked(name):
    """6.12's modules are compressed; busybox loads only plain ones."""
    return path[name][:-3] if path[name].endswith(".xz") else path[name]


for name in boot:
    add(plain(name))
with open(order_file, "w") as f:
    for name in ordered:
        f.write("/lib/modules/%s/%s\n" % (os.path.basename(source), unpacked(name)))
for name in more:
    add(plain(name))
for name in ordered:
    file = os.path.join(target, unpacked(name))
    os.makedirs(os.path.dirname(file), exist_ok=True)
    reader = lzma.open if path[name].endswith(".xz") else open
    with reader(os.path.join(source, path[name]), "rb") as packed, open(file, "wb") as plain_file:
        shutil.copyfileobj(packed, plain_file)
for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
    shutil.copy(os.path.join(source, name), target)
PY
depmod -b "$root" "$release"

# Programs, and the libraries they need as the unpacked packages resolve them.
loader=$user_root/lib64/ld-linux-x86-64.so.2
libraries=$user_root/lib/x86_64-linux-gnu:$user_root/usr/lib/x86_64-linux-gnu
place() { # a file of the unpacked packages -> the same place in the image
    local place=$root${1#"$user_root"}
    [ -e "$place" ] && return
    mkdir -p "$(dirname "$place")"
    cp -L "$1" "$place"
    chmod 755 "$place"
}
put() {
    place "$1"
    local library
    "$loader" --library-path "$libraries" --list "$1" 2>/dev/null | awk '/=> \//{print $3}' |
        while read -r library; do
            case $library in
            "$user_root"/*) place "$library" ;;
            *) die "$(basename "$1") needs $library, which no package of the guest has" ;;
            esac
        done
}
cp -L "$loader" "$root/lib64/"
for program in /bin/ip /sbin/tc /usr/bin/rdma /usr/bin/rping /usr/bin/ucmatose /usr/bin/rstream \
    /usr/bin/ibv_devices /usr/bin/ibv_devinfo /usr/bin/ib_send_bw /usr/bin/ib_send_lat \
    /usr/bin/ib_write_bw /usr/bin/ib_write_lat /usr/bin/ib_read_bw /usr/bin/ib_read_lat \
    /usr/bin/qperf /usr/bin/tcpdump /sbin/ethtool /bin/kmod; do
    put "$user_root$program"
done
for library in librdmacm.so.1 libibverbs/libsiw-rdmav34.so rsocket/librspreload.so; do
    put "$user_root/usr/lib/x86_64-linux-gnu/$library"
done
# pthread_exit() loads this one by name.
put "$(ls "$user_root"/{,usr/}lib/x86_64-linux-gnu/libgcc_s.so.1 2>/dev/null | head -n 1)"
for tool in modprobe insmod rmmod lsmod modinfo; do ln -sf ../bin/kmod "$root/sbin/$tool"; done
cp "$user_root/etc/libibverbs.d/siw.driver" "$root/etc/libibverbs.d/"
printf '/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n' >"$root/etc/ld.so.conf"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"

# /init is not in here: run-vm.sh appends it, so that changing it asks for no new image.
(cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --null -o -H newc -R 0:0 --quiet) \
    >"$image/initramfs.cpio"
# Uncompressed, booted through PVH: unpacking under TCG costs about four seconds a boot.
if python3 "$VM_DIR/extract_vmlinux.py" "$kernel_root/boot/vmlinuz-$release" "$image/kernel" >&2; then
    strip -g "$image/kernel" 2>/dev/null || true
else
    cp "$kernel_root/boot/vmlinuz-$release" "$image/kernel"
fi
rm -rf "$scratch"
echo "$recipe" >"$image/complete"
say "$(du -sh "$image" | cut -f1) in $image"
echo "$image"
