#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A storage stack in user space over the drop-in libraries, on loopback: tgtd serves a disk by iSER
# (the payload moves by RDMA Write and RDMA Read), libiscsi's tools and qemu-io use it. What they
# write is read back and compared by them, and compared with the file behind the disk by this script.
#
#   iser.sh BUILD [--full]       --full: more of iscsi-test-cu's suites
own_network=1
. "$(dirname "$0")/lib.sh"
full=0
[ "${2:-}" != --full ] || full=1
need tgtd tgtadm iscsi-inq iscsi-readcapacity16 iscsi-perf iscsi-test-cu ss cmp
# tgtd's own socket lies where TGT_IPC_SOCKET says, so that no other tgtd is met.
export TGT_IPC_SOCKET=$work/ipc XSOCK_LOG=off XSOCK_VERBS_SUMMARY=1

port=$((20000 + $$ % 10000))
while ss -Hltn "sport = :$port or sport = :$((port + 1))" | grep -q .; do port=$((port + 2)); done
control=$((port % 30000))
target=iqn.2004-10.org.xsock:disk
disk=iser://127.0.0.1:$port/$target/1
size=$((64 << 20))
truncate -s $size "$work/disk"

tgtd -f -C $control --iser "port=$port,pool_sz_mb=64" --iscsi "portal=127.0.0.1:$((port + 1))" \
    >"$work/tgtd" 2>&1 &
server=$!
trap 'kill -9 $server 2>/dev/null; wait $server 2>/dev/null; clean_up' EXIT
admin() { LD_LIBRARY_PATH='' tgtadm -C $control --lld iser "$@"; }
for _ in $(seq 300); do
    ss -Hltn "sport = :$port" | grep -q . && admin --mode target --op show >/dev/null 2>&1 && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
admin --mode target --op new --tid 1 --targetname $target &&
    admin --mode logicalunit --op new --tid 1 --lun 1 --backing-store "$work/disk" &&
    admin --mode target --op bind --tid 1 --initiator-address ALL
verdict "tgtd, iSER target" $?
# By iSER, tgtd lets only those initiators in whom it knows by name too.
host=iqn.2004-10.org.xsock:host
for name in $host $host-2 iqn.2008-11.org.linux-kvm; do
    admin --mode target --op bind --tid 1 --initiator-name $name || failed=1
done

# client LABEL PROGRAM ARGS...: must end with 0, and have said that a connection was made over verbs.
client() {
    local label=$1 status
    shift
    timeout -k 5 120 "$@" >"$work/client" 2>&1
    status=$?
    [ $status != 0 ] || grep -q 'verbs: [1-9][0-9]* connections, 0 refused, 0 ended by errors' \
        "$work/client" || status=98
    verdict "$label" $status
    [ $status = 0 ] || tail -n 8 "$work/client" "$work/tgtd"
    return $status
}

client "iscsi-inq" iscsi-inq -i $host $disk
grep -q 'Product:VIRTUAL-DISK' "$work/client" || verdict "iscsi-inq names the disk" 1
client "iscsi-readcapacity16" iscsi-readcapacity16 -i $host $disk
grep -q "Total size:$size" "$work/client" || verdict "iscsi-readcapacity16 tells the size" 1

# Patterns of several sizes and at odd places, written and read back by qemu-io, one across a 4 KiB
# boundary of the disk's, then random bytes; this script compares them with the file behind the
# disk. (libiscsi 1.19 takes less than 512 KiB by iSER in one request.)
if command -v qemu-io >/dev/null && qemu-img --help | grep -qw iser; then
    head -c 262144 /dev/urandom >"$work/random"
    client "qemu-io, patterns written and read back" qemu-io -f raw \
        -c 'write -P 0x5a 1M 256k' -c 'write -P 0xc3 17k 3k' -c 'write -P 0x7e 8190k 5k' \
        -c "write -s $work/random 4M 256k" -c 'aio_write -P 0x11 2M 64k' \
        -c 'aio_write -P 0x22 2112k 64k' -c 'aio_write -P 0x33 2176k 64k' -c 'aio_flush' \
        -c 'read -P 0x5a 1M 256k' -c 'read -P 0xc3 17k 3k' -c 'read -P 0x7e 8190k 5k' \
        -c 'read -P 0x22 2112k 64k' -c 'read -P 0 0 17k' $disk
    ! grep -q 'Pattern verification failed' "$work/client" &&
        [ "$(grep -cE '^(wrote|read) ' "$work/client")" = 12 ]
    verdict "qemu-io finds what it wrote" $?
    # tgtd fetched all by RDMA Read: the bytes of the connection have it.
    sent=$(sed -n 's/.*errors; \([0-9]*\) bytes sent.*/\1/p' "$work/client")
    [ "${sent:-0}" -gt 729088 ]
    verdict "the payload went over verbs: ${sent:-0} bytes" $?
    # same OFFSET BYTES FILE: the disk has there what FILE begins with.
    same() { cmp -s -n "$2" -i "$1:0" "$work/disk" "$3"; }
    filled() { head -c "$2" /dev/zero | tr '\0' "\\$1"; }
    same $((4 << 20)) 262144 "$work/random" && same $((1 << 20)) 262144 <(filled 132 262144) &&
        same $((17 << 10)) 3072 <(filled 303 3072) && same $((8190 << 10)) 5120 <(filled 176 5120) &&
        same $((2 << 20)) 65536 <(filled 021 65536) &&
        same $((2112 << 10)) 65536 <(filled 042 65536) &&
        same $((2176 << 10)) 65536 <(filled 063 65536)
    verdict "the file behind the disk has what was written" $?
else
    echo "SKIPPED  no qemu-io with its iSER driver (qemu-utils, qemu-block-extra)"
fi

client "iscsi-perf, random reads" iscsi-perf -i $host -r -m 8 -b 64 -t 1 $disk
grep -oE 'iops average [0-9]+ \([0-9]+ MB/s\)' "$work/client" | tail -n 1

# libiscsi's own tests write to the disk, and read and compare. Its iSER transport counts on fresh
# memory being zero, which it is not when a first session has been freed: the tunable sees to that.
# ALL.Read10.Async and Write10.Async post more than its pool has and crash inside libiscsi.
suites="Read10.Simple Read10.BeyondEol Write10.Simple"
[ $full = 0 ] || suites="$suites WriteVerify10 OrWrite Read16 Write16 Verify10 ReadCapacity16"
for suite in $suites; do
    GLIBC_TUNABLES=glibc.malloc.perturb=255 timeout -k 5 120 \
        iscsi-test-cu -i $host -I $host-2 -d -n -t "ALL.$suite" $disk >"$work/client" 2>&1
    status=$?
    # After its last word libiscsi's thread may still touch what its session has freed, and abort.
    ! grep -q 'Tests completed with return value: 0' "$work/client" ||
        case $status in 134 | 139) status=0 ;; esac
    awk '$1 == "asserts" { ran = $3; bad = $5 } END { exit !(ran > 0 && bad == 0) }' \
        "$work/client" || status=97
    verdict "iscsi-test-cu ALL.$suite" $status
    [ $status = 0 ] || tail -n 12 "$work/client" "$work/tgtd"
done

# tgtd waits for RDMA_CM_EVENT_TIMEWAIT_EXIT, which iWARP has not, before it lets a connection go, so
# it cannot end by itself; SIGTERM it ignores.
kill -0 "$server" 2>/dev/null
verdict "tgtd still serves" $?
admin --mode target --op show | grep -q "Target 1: $target"
verdict "tgtd answers tgtadm" $?
! grep 'handle_wc_error.*op:' "$work/tgtd" | head -n 5 | grep .
verdict "no request failed" $?
exit $failed
