#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# gloo's ibverbs device, which PyTorch uses, on the device that looks like RoCE: sums of four ranks,
# each checked (gloo_allreduce.cpp).
#
#   gloo.sh BUILD
own_network=1
. "$(dirname "$0")/lib.sh"
unset LD_LIBRARY_PATH
need g++
here=$(realpath "$(dirname "$0")")
g++ -std=c++17 -O2 -o "$work/allreduce" "$here/gloo_allreduce.cpp" -lgloo -libverbs -pthread 2>"$work/log" || {
    cat "$work/log"
    skip "no libgloo-dev here"
}
export XSOCK_SHM=${XSOCK_SHM:-off}
mkdir "$work/ranks"
for rank in 0 1 2 3; do
    timeout -k 5 120 "$build/tools/xsock" run --roce --summary -- "$work/allreduce" $rank 4 "$work/ranks" \
        >"$work/out$rank" 2>&1 &
    pids+=($!)
done
status=0
for rank in 0 1 2 3; do
    wait "${pids[$rank]}" || status=1
    grep -q "^rank $rank of 4: 0 wrong sums" "$work/out$rank" || status=96
    # 60 sums of a million floats: three of four parts go out of every rank, twice.
    grep -qE 'verbs: 3 connections, 0 refused, 0 ended by errors; [0-9]{9} bytes sent' "$work/out$rank" || status=97
done
[ $status = 0 ] || sed 's/^/    /' "$work"/out?
verdict "gloo, 4 ranks: AllreduceRing, AllreduceRingChunked" $status
exit $failed
