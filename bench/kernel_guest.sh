#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The kernel module beside user level in one guest, two network namespaces and a veth pair of MTU 1500.
# The guest's time counts instructions: figures are thousands of them, and do not mind the host's load.
# Then perftest's ib_write_lat, in a guest of two processors and with the host's time. Prints rows of
# tables; samples go to standard error. What docs/kernel.md shows.
#
#   kernel_guest.sh [-k KERNEL] [-r ROUNDS] BUILD
#
#   -k   6.1 (default) or 6.12
#   -r   rounds (7): in each, every way once
set -euo pipefail
rounds=7
usage() { sed -n 's/^#   \(kernel_guest.sh.*\)/usage: \1/p' "$0" >&2; }
while getopts k:r: option; do
    case $option in
    k) SIW_KERNEL=$OPTARG ;;
    r) rounds=$OPTARG ;;
    *) usage && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# != 1 ]; then usage && exit 2; fi
build=$(cd "$1" && pwd)
. "$(dirname "$0")/../tests/kernel/measure_lib.sh"
start_measuring kernel_loss kernel_rows kernel_release
samples=$SIW_RUN/samples

# spread FIELD PATTERN [FIELD PATTERN]: min / median / max of a field of samples; of two, of the
# ratios within a round.
spread() {
    paste -d' ' <(grep "$2" "$samples" | cut -d, -f"$1") \
        <(if [ $# = 4 ]; then grep "$4" "$samples" | cut -d, -f"$3"; fi) |
        awk 'NF == 2 { $1 /= $2 } NF { print $1 }' | sort -g |
        awk -v ratio=$(($# == 4)) '{ at[NR] = $1 } END {
            if (!NR) exit 1
            form = ratio ? "%.3f / %.3f / %.3f" : "%.1f / %.1f / %.1f"
            printf form, at[1], at[int((NR + 1) / 2)], at[NR] }'
}
take() { guest "$1" | tee -a "$samples" >&2; }

guest "sh /share/guest_path.sh 40000 35000"
for _ in $(seq "$rounds"); do
    for bytes in 228480 57120 14280; do
        for way in user in-order ahead; do
            take "/x/kernel_loss $way late $namespaces $bytes 9"
        done
    done
done
echo "| one segment late, message | user level | in order | behind holes | in order / user | behind holes / user |"
echo "|---|---|---|---|---|---|"
for bytes in 228480 57120 14280; do
    echo "| $bytes B: work after the hole fills | $(spread 7 "^user,late,$bytes,") |" \
        "$(spread 7 "^in-order,late,$bytes,") | $(spread 7 "^ahead,late,$bytes,") |" \
        "$(spread 7 "^in-order,late,$bytes," 7 "^user,late,$bytes,") |" \
        "$(spread 7 "^ahead,late,$bytes," 7 "^user,late,$bytes,") |"
    echo "| $bytes B: the sender's time | $(spread 5 "^user,late,$bytes,") |" \
        "$(spread 5 "^in-order,late,$bytes,") | $(spread 5 "^ahead,late,$bytes,") | | |"
    echo "| $bytes B: percent in place when it fills | | | $(spread 9 "^ahead,late,$bytes,") | | |"
done

guest "sh /share/guest_path.sh 0"
for _ in $(seq "$rounds"); do
    for row in writes aligned sends reads; do
        for kernel in off require; do
            take "XSOCK_KERNEL_OOO=0 /x/kernel_rows $row $kernel $namespaces"
        done
    done
    take "/x/kernel_rows writes require $namespaces | sed s/require/ahead/"
    for row in nobody connects; do
        for kernel in off auto; do take "/x/kernel_rows $row $kernel $namespaces"; done
    done
done
echo
echo "| nothing lost | user level | module | module / user | the target sleeps, user | module |"
echo "|---|---|---|---|---|---|"
row() {  # row NAME KERNEL WORDS
    echo "| $3 | $(spread 3 "^${4:-$1},off,") | $(spread 3 "^$1,$2,") |" \
        "$(spread 3 "^$1,$2," 3 "^${4:-$1},off,") | $(spread 4 "^${4:-$1},off,") |" \
        "$(spread 4 "^$1,$2,") |"
}
row writes require "64 MiB of Writes, in order"
row writes ahead "the same, behind holes, FPDUs of a segment then"
row aligned require "the same in order, FPDUs of a segment for both"
row aligned off "user level: FPDUs of a segment against those of 64 KiB" writes
row sends require "1,000 times 64 B there and back"
row reads require "64 MiB in Reads of 64 KiB, 16 at once"
row nobody auto "64 MiB of Writes as nobody, who may pin 8 MiB"
row connects auto "100 connections"
take "/x/kernel_release"
echo
echo "A region given back while a peer writes into it: $(spread 3 "^release,")"
"${vmctl[@]}" stop

# ---- Two processors, the host's time ----------------------------------------------------------------
mkdir -p "$SIW_RUN/package/verbs"
cp -L "$build"/libxsock/verbs/lib*.so.1 "$SIW_RUN/package/verbs/"
start_guest_with -c 2 -m max,-erms,-fsrm --
messages=5000
for _ in $(seq "$rounds"); do
    for kernel in off require; do
        # shellcheck disable=SC2016  # the guest's shell expands
        guest 'cd /x; export LD_LIBRARY_PATH=/x/verbs:/x XSOCK_SHM=off XSOCK_KERNEL='$kernel';
            time -v ib_write_lat -R -F -n '$messages' >/tmp/s 2>&1 & sleep 2;
            ib_write_lat -R -F -n '$messages' 127.0.0.1 >/tmp/c 2>&1; wait;
            echo write_lat,'$kernel',$(grep "^ *2 " /tmp/c | tr -s " " | cut -d" " -f6),$(
                sed -n "s/.*Voluntary context switches: //p" /tmp/s)' | tee -a "$samples" >&2
    done
done
echo
echo "| two processors | user level | module | module / user | the target sleeps, user | module |"
echo "|---|---|---|---|---|---|"
row write_lat require "\`ib_write_lat\`, 2 B, us; $messages messages"
