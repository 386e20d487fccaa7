#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Open MPI over libfabric's "verbs;ofi_rxm" on the drop-in libraries, and over UCX on the device that
# looks like RoCE, and MPICH over UCX: ranks on one machine, then in two network namespaces, every byte
# checked (mpi_exchange.c). No other way is left to the ranks (pml cm, mtl ofi of that provider; pml ucx with
# the transports ib and self; no shared memory), and the bytes that each one's device moved are told at
# its end.
#
#   mpi.sh BUILD
. "$(dirname "$0")/lib.sh"
need mpirun.openmpi mpicc.openmpi mpiexec.mpich mpicc.mpich ip
[ "$(id -u)" = 0 ] || skip "making network namespaces needs root"
here=$(realpath "$(dirname "$0")")
veth=$here/../../bench/veth.sh

for mpi in openmpi mpich; do
    LD_LIBRARY_PATH='' mpicc.$mpi -O2 -o "$work/$mpi" "$here/mpi_exchange.c" 2>"$work/log" || {
        cat "$work/log"
        skip "mpicc.$mpi does not build"
    }
done
space=xsm$$
last_things() { "$veth" down $space; }
"$veth" up $space 1500 || skip "no network namespaces here"

# rsh that goes into the other namespace: mpirun calls it as `agent HOST COMMAND`.
cat >"$work/agent" <<SCRIPT
#!/bin/sh
shift
exec ip netns exec $space-b sh -c "\$*"
SCRIPT
chmod +x "$work/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tmpdir_base=$work
export XSOCK_LOG=off XSOCK_VERBS_SUMMARY=1
over_verbs=(mpirun.openmpi --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'
    -x LD_LIBRARY_PATH)
over_roce=(env -u LD_LIBRARY_PATH UCX_TLS=ib,self mpirun.openmpi --mca pml ucx --mca osc ucx -x UCX_TLS)

# job NAME RANKS COMMAND...: the command starts the ranks.
job() {
    local name=$1 ranks=$2 status least
    shift 2
    timeout -k 5 150 ip netns exec $space-a "$@" >"$work/log" 2>&1
    status=$?
    grep -q "^$ranks ranks, 0 wrong bytes" "$work/log" || status=96
    # (Ranks that connect to each other at once refuse one of the two connections.)
    # A ring of 5.5 MB and more goes out of every rank by its device, and as much comes in.
    least=$(sed -n 's/^xsock: verbs: .*errors; \([0-9]*\) bytes sent, \([0-9]*\) received.*/\1\n\2/p' \
        "$work/log" | sort -n | sed -n 1p)
    [ "$(grep -c '^xsock: verbs: ' "$work/log")" = "$ranks" ] &&
        [ "${least:-0}" -gt 5500000 ] || [ $status != 0 ] || status=98
    verdict "$name: at least ${least:-0} bytes each way in each rank" $status
    [ $status = 0 ] || tail -n 15 "$work/log"
}
# open_mpi NAME RANKS MPIRUN-ARGUMENTS...: by the command in `over`, each rank under that in `under`.
open_mpi() {
    local name=$1 ranks=$2
    shift 2
    job "Open MPI, $name" "$ranks" "${over[@]}" --mca btl self --oversubscribe -np "$ranks" "$@" \
        -x XSOCK_LOG -x XSOCK_VERBS_SUMMARY "${under[@]}" "$work/openmpi"
}
jobs() { # NAME
    open_mpi "$1, 2 ranks on a machine" 2
    open_mpi "$1, 4 ranks on a machine" 4
    open_mpi "$1, 2 + 2 ranks in two namespaces" 4 --mca plm rsh --mca plm_rsh_agent "$work/agent" \
        --host 198.18.77.1:2,198.18.77.2:2 --map-by node --mca oob_tcp_if_include v0
}
over=("${over_verbs[@]}") under=()
jobs libfabric
# Of each rank's own: the namespaces have different addresses, which are the GIDs.
over=("${over_roce[@]}") under=("$build/tools/xsock" run --roce --)
jobs UCX
for ranks in 2 4; do
    job "MPICH, UCX, $ranks ranks on a machine" $ranks env -u LD_LIBRARY_PATH MPIR_CVAR_NOLOCAL=1 \
        UCX_TLS=ib,self mpiexec.mpich -n $ranks "${under[@]}" "$work/mpich"
done
exit $failed
