#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# libfabric's verbs provider on the drop-in libraries and on the device that looks like RoCE: fi_info,
# and fi_pingpong with data checked, by connected endpoints and by ofi_rxm on top of them; on the
# latter also by datagrams, and by ofi_rxd on top of them. libfabric leaves loopback interfaces out, so the
# two ends live in two network namespaces joined by a veth pair.
#
#   fabric.sh BUILD
. "$(dirname "$0")/lib.sh"
need fi_info fi_pingpong ip ss
[ "$(id -u)" = 0 ] || skip "making network namespaces needs root"

space=xsv$$
last_things() { "$build_top/bench/veth.sh" down $space; }
build_top=$(realpath "$(dirname "$0")/../..")
"$build_top/bench/veth.sh" up $space 1500 || skip "no network namespaces here"
in_a() { ip netns exec $space-a env XSOCK_LOG=off "${under[@]}" "$@"; }
in_b() { ip netns exec $space-b env XSOCK_LOG=off "${under[@]}" "$@"; }
under=()

in_a fi_info -p verbs >"$work/info" 2>&1
verdict "fi_info -p verbs" $?
grep -q 'domain: xsock0' "$work/info" || {
    verdict "fi_info names xsock0" 1
    head -20 "$work/info"
}

pingpong() {
    local name="fi_pingpong $*${under[*]:+ (RoCE)}" server
    in_a timeout -k 5 60 fi_pingpong "$@" -c -I 50 >"$work/server" 2>&1 &
    server=$!
    pids=("$server")
    for _ in $(seq 200); do # its port for the exchange of addresses
        [ -z "$(ip netns exec $space-a ss -Hltn 'sport = :47592')" ] || break
        sleep 0.1
    done
    in_b timeout -k 5 60 fi_pingpong "$@" -c -I 50 198.18.77.1 >"$work/client" 2>&1
    local status=$?
    wait "$server" || status=$?
    pids=()
    # A line for each size from 64 bytes on; of datagrams up to 4 KiB.
    [ "$(grep -cE '^[0-9]+[kmg]? ' "$work/client")" -ge 4 ] || status=99
    verdict "$name" $status
    [ $status = 0 ] || tail -n 5 "$work/server" "$work/client"
}
pingpong -p verbs -e msg
pingpong -p "verbs;ofi_rxm" -e rdm
under=(env -u LD_LIBRARY_PATH "$build/tools/xsock" run --roce --)
pingpong -p verbs -e msg
pingpong -p "verbs;ofi_rxm" -e rdm
pingpong -p verbs -e dgram
pingpong -p "verbs;ofi_rxd" -e rdm
exit $failed
