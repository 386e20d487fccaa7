#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Starts one siw guest in the background and waits until it answers. Stop it with vmctl.py stop.
#
#   run-vm.sh [-n NAME] [-i ID] [-t user|tap] [-f HOSTPORT:GUESTPORT]... [-d FILE.pcap]
#             [-a "kernel arguments"] [-c CPUS] [-m MODEL] [-M MIB] [-I]
#
#   -t user   (default) QEMU's own network, no privilege: the guest is 10.0.2.15 and reaches the
#             host's 127.0.0.1 as 10.0.2.2; -f forwards a port of 127.0.0.1 to the guest
#   -t tap    tap vtID in the namespace SIW_NETNS (netns.sh up first): the guest is SIW_NET.(ID+1)
#   -d        writes every frame of the guest's NIC into FILE.pcap (user network; for taps run
#             tcpdump on br0 in the namespace)
#   -I        the guest's time counts instructions, a nanosecond each, and idle time is skipped
#   -a        e.g. "siw.module=param siw.options=mpa_crc_required=1" (guest/init)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

name=guest id=1 network=user forwards= capture= kernel_arguments= cpus=1 model=max memory=512 clock=
while getopts n:i:t:f:d:a:c:m:M:I option; do
    case $option in
    n) name=$OPTARG ;;
    i) id=$OPTARG ;;
    t) network=$OPTARG ;;
    f) forwards=$forwards,hostfwd=tcp:127.0.0.1:${OPTARG%%:*}-:${OPTARG##*:} ;;
    d) capture=$OPTARG ;;
    a) kernel_arguments=$OPTARG ;;
    c) cpus=$OPTARG ;;
    m) model=$OPTARG ;;
    M) memory=$OPTARG ;;
    I) clock=1 ;;
    *) exit 2 ;;
    esac
done
if program=$(missing_program qemu-system-x86_64 python3 cpio); then skip "no $program"; fi
image=${SIW_IMAGE:-$(newest_image "$SIW_KERNEL")}
[ -f "$image/complete" ] || die "no image; run build-image.sh"

folder=$SIW_RUN/$name
mkdir -p "$folder/share"
if python3 -B "$VM_DIR/vmctl.py" -n "$name" alive; then die "$name is already running"; fi
rm -f "$folder/agent.sock" "$folder/pid"
# The kernel unpacks cpio archives one behind the other: the image's, then ours with /init.
(cd "$VM_DIR/guest" && echo init | cpio -o -H newc -R 0:0 --quiet) |
    cat "$image/initramfs.cpio" - >"$folder/initramfs.cpio"

launcher=()
case $network in
user)
    netdev=user,id=n0,ipv6=off$forwards
    address="siw.ip=10.0.2.15/24 siw.gateway=10.0.2.2"
    ;;
tap)
    netdev=tap,id=n0,ifname=vt$id,script=no,downscript=no,vhost=off
    address=siw.ip=$SIW_NET.$((id + 1))/24
    launcher=(ip netns exec "$SIW_NETNS")
    ;;
*) die "unknown network $network" ;;
esac
# One processor: QEMU counts no more than that.
threads=multi counting=()
if [ "$clock" ]; then
    threads=single cpus=1 counting=(-icount shift=0,sleep=off)
    kernel_arguments="nohz=on $kernel_arguments"
fi
# TCG, not KVM: it works in every virtual machine and container. Panic ends the process, so that a
# kernel bug shows as a guest that went away and not as a test that waits. A busy host takes the
# processor from the guest for seconds: that is no fault of its kernel, which shall not log it as
# one.
# Sockets, not cores: a kernel without ACPI finds no more than one processor in each.
qemu=(qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none
    -machine q35,hpet=off -accel tcg,thread=$threads,tb-size=128 -cpu "$model" -smp "$cpus,sockets=$cpus" "${counting[@]}" -m "$memory"
    -kernel "$image/kernel" -initrd "$folder/initramfs.cpio"
    -append "console=ttyS0 quiet loglevel=4 oops=panic panic=-1 nokaslr mitigations=off audit=0 \
selinux=0 apparmor=0 tsc=reliable no_timer_check cryptomgr.notests random.trust_cpu=on \
rcupdate.rcu_cpu_stall_suppress=1 nowatchdog 8250.nr_uarts=1 net.ifnames=0 $address $kernel_arguments"
    -serial "file:$folder/console.log"
    -netdev "$netdev" -device "virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:77:00:$(
        printf %02x "$id"
    )"
    -device virtio-serial-pci -chardev "socket,id=agent,path=$folder/agent.sock,server=on,wait=off"
    -device virtserialport,chardev=agent,name=siw.agent
    -virtfs "local,path=$folder/share,mount_tag=share,security_model=none,multidevs=remap"
    -object rng-builtin,id=rng0 -device virtio-rng-pci,rng=rng0)
[ -z "$capture" ] || qemu+=(-object "filter-dump,id=dump0,netdev=n0,file=$capture")

start=$SECONDS
setsid "${launcher[@]}" "${qemu[@]}" </dev/null >"$folder/qemu.log" 2>&1 &
echo $! >"$folder/pid"
python3 -B "$VM_DIR/vmctl.py" -n "$name" wait "${SIW_BOOT_SECONDS:-600}" || {
    tail -n 5 "$folder/qemu.log" "$folder/console.log" >&2 || true
    exit 1
}
rm -f "$folder/initramfs.cpio"
echo "$name: up after $((SECONDS - start)) s, $(basename "$image"), $network network"
