#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What becomes of messages on paths that lose or reorder segments: by plain TCP, and by an xsock
# target at user level, with the kernel module in order, and with it behind holes (bench/kernel_loss.c).
# One guest, two network namespaces, a veth pair of MTU 1500; its time counts instructions, so that the
# host's load does not matter. What docs/kernel.md shows.
#
#   kernel-loss.sh [-k KERNEL] [-o FOLDER] [-l "LOSS..."] [-t "RTT..."] [-s "BYTES..."] [-n COUNT]
#                  [-w "WAY..."] [-m "MODE..."] BUILD
#
#   -k   6.1 (default) or 6.12
#   -o   where kernel-loss.csv, .md and .svg go (.); samples that the first has are not taken again
#   -l   percent lost, or reorder: 1 % of the segments pass those before them
#        ("0 0.1 0.5 1 2 3 5 reorder")
#   -t   round trips in us ("200 2000 20000")
#   -s   bytes of a message ("14280 57120 228480 1048576")
#   -n   messages of a sample; of 1 MiB a fourth (100)
#   -w   ways ("tcp user in-order ahead")
#   -m   modes of kernel_loss ("ping stream"); lost draws the segments that are lost from a fixed
#        sequence, and is only in the csv, with how many were lost behind it
set -euo pipefail
out=. losses="0 0.1 0.5 1 2 3 5 reorder" round_trips="200 2000 20000"
sizes="14280 57120 228480 1048576" count=100 ways="tcp user in-order ahead" modes="ping stream"
usage() { sed -n '/^#   kernel-loss.sh/,/BUILD$/s/^#   //p' "$0" | sed '1s/^/usage: /'; }
. "$(dirname "$0")/../setup/options.sh"
read_options "k:SIW_KERNEL o:out l:losses t:round_trips s:sizes n:count w:ways m:modes" "$@"
shift $((OPTIND - 1))
[ $# = 1 ] || { usage >&2 && exit 2; }
build=$(cd "$1" && pwd)
mkdir -p "$out"
. "$(dirname "$0")/../kernel/measure_lib.sh"
start_measuring kernel_loss

csv=$out/kernel-loss.csv
touch "$csv"
failures=0
path=
# sample PATH COMMAND: unless it is there; PATH as guest_path.sh has it
sample() {
    local line key=$round_trip,$loss,$way,$mode,$bytes,$messages
    if grep -q "^$key," "$csv"; then return; fi
    if [ "$path" != "$1" ] || [ "$mode" = lost ]; then
        guest "sh /share/guest_path.sh $1"
        path=$1
    fi
    if line=$(guest "$2"); then
        echo "$round_trip,$loss,$line" | tee -a "$csv"
    else
        echo "kernel-loss.sh: $key: $line" >&2
        failures=$((failures + 1))
    fi
}
# Segments that the path has lost.
drops="/sbin/tc -n a -s qdisc show dev v0 | sed -n '/parent 1:1/,/dropped/s/.*dropped \([0-9]*\).*/\1/p'"
for bytes in $sizes; do
    messages=$count
    [ "$bytes" -le 500000 ] || messages=$(((count + 3) / 4))
    for loss in $losses; do
        case $loss in
        0) netem= ;;
        reorder) netem="reorder 1%" ;;
        *) netem="loss $loss%" ;;
        esac
        for round_trip in $round_trips; do
            for mode in $modes; do
                for way in $ways; do
                    case $mode in
                    lost)
                        [ "$loss" != reorder ] || continue
                        sample "$round_trip lost" "line=\$(/x/kernel_loss $way $mode $namespaces \
                            $bytes $messages $loss) && echo \$line,\$($drops)"
                        ;;
                    *)
                        sample "$round_trip 0 $netem" \
                            "/x/kernel_loss $way $mode $namespaces $bytes $messages"
                        ;;
                    esac
                done
            done
        done
    done
done
python3 -B "$top/bench/kernel_loss_report.py" "$csv" "$out/kernel-loss.md" "$out/kernel-loss.svg"
[ "$failures" = 0 ] || die "$failures samples failed"
