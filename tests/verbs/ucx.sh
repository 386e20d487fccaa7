#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# UCX, unmodified, on the device that looks like RoCE, on loopback: its own program of measurement,
# over reliable queue pairs, over datagrams alone, and over what it chooses of the two. Both ends exit
# 0 without a warning, and the summary says that the device has carried what they sent.
#
#   ucx.sh BUILD [--all]        --all: every test of UCP, in three sizes
#
# XSOCK_UCX_PERFTEST: options of ucx_perftest; XSOCK_UCX_KNOWN: a pattern of errors that are not the
# device's (debian13.sh).
own_network=1
. "$(dirname "$0")/lib.sh"
unset LD_LIBRARY_PATH
need ucx_info ucx_perftest
xsock=$build/tools/xsock
[ -e "$build/libxsock/libxsock-rdma-files.so" ] && [ -x "$xsock" ] || skip "the device's files are not built"
export XSOCK_SHM=${XSOCK_SHM:-off} UCX_LOG_LEVEL=warn UCX_NET_DEVICES=xsock0:1
run=("$xsock" run --roce --summary --)
read -ra options <<<"${XSOCK_UCX_PERFTEST:-}"

"${run[@]}" ucx_info -d >"$work/out" 2>&1
status=$?
for transport in rc_verbs ud_verbs; do
    grep -q "Transport: $transport" "$work/out" || status=1
done
! grep -E 'WARN|ERROR' "$work/out" || status=1
for atomic in atomic_add atomic_fadd atomic_cswap; do
    grep -q "$atomic: 64 bit" "$work/out" || status=1
done
verdict "ucx_info -d: rc_verbs, ud_verbs, atomics" $status


# perftest TRANSPORTS BYTES-AT-LEAST TEST [OPTION...]: so much has passed.
perftest() {
    local transports=$1 least=$2 test=$3 server client s bytes
    shift 3
    port=$((port + 1))
    UCX_TLS=$transports timeout -k 5 200 "${run[@]}" ucx_perftest "${options[@]}" -p $port >"$work/server" 2>&1 &
    server=$!
    await_listener $server
    UCX_TLS=$transports timeout -k 5 200 "${run[@]}" ucx_perftest 127.0.0.1 "${options[@]}" -p $port -t "$test" "$@" >"$work/client" 2>&1
    client=$?
    wait $server
    s=$?
    ! grep -E 'WARN|ERROR' "$work/server" "$work/client" | grep -vE "${XSOCK_UCX_KNOWN:-^$}" || s=98
    bytes=$(sed -nE 's/.* errors; ([0-9]+) bytes sent, ([0-9]+) received.*/\1 \2/p' "$work/client" | awk '{print $1 + $2}')
    [ "${bytes:-0}" -ge "$least" ] || s=99
    [ "$s$client" = 00 ] || sed 's/^/    /' "$work/server" "$work/client"
    verdict "ucx_perftest -t $test $* over $transports" $((s + client))
}

# The example of a client and a server that find each other by rdma_cm. UCX listens on the same number
# by TCP too, unless it is told not to: either that, or an offset. The server has no end: it takes one
# client after another. What it says of the last iteration is the client's message.
example=/usr/share/doc/libucx-dev/examples/ucp_client_server.c
client_server() {
    local way=$1 address=$2 six=() server client s=0 bytes n
    shift 2
    [[ $address != *:* ]] || six=(-6)
    port=$((port + 1))
    timeout -k 5 200 "${run[@]}" stdbuf -oL "$work/client_server" "${six[@]}" -c "$way" -p $port "$@" >"$work/server" 2>&1 &
    server=$!
    pids+=($server)
    await_listener $server
    for n in 1 2; do
        timeout -k 5 60 "${run[@]}" "$work/client_server" "${six[@]}" -a "$address" -c "$way" -p $port "$@" >"$work/client" 2>&1
        client=$?
        bytes=$(sed -nE 's/.* errors; ([0-9]+) bytes sent, ([0-9]+) received.*/\1 \2/p' "$work/client" | awk '{print $1 + $2}')
        [ $client = 0 ] && [ "${bytes:-0}" -ge 1000 ] || s=$((n * 100 + client))
        ! grep -E 'WARN|ERROR' "$work/client" || s=98
    done
    kill $server 2>/dev/null
    wait $server
    [ "$(grep -c 'UCX data message' "$work/server")" -ge 2 ] || s=97
    ! grep -E 'WARN|ERROR' "$work/server" || s=98
    [ $s = 0 ] || sed 's/^/    /' "$work/server" "$work/client"
    verdict "ucp_client_server -c $way${*:+ $*}, $address" $s
}
if [ -n "${XSOCK_DEBIAN13:-}" ]; then
    echo "note    ucp_client_server is not in Debian 13's packages that were fetched"
elif [ -e $example ] && gcc -o "$work/client_server" $example -lucp -lucs 2>"$work/out"; then
    export UCX_SOCKADDR_TLS_PRIORITY=rdmacm
    for way in stream tag am; do
        client_server $way 127.0.0.1
        client_server $way ::1
    done
    client_server tag 127.0.0.1 -s 1000000 -i 20
    unset UCX_SOCKADDR_TLS_PRIORITY
    export XSOCK_VERBS_PORT_OFFSET=1000
    client_server am 127.0.0.1
    unset XSOCK_VERBS_PORT_OFFSET
else
    echo "SKIPPED: ucp_client_server cannot be built"
    sed 's/^/    /' "$work/out"
fi

if [ "${2:-}" = --all ]; then
    for transports in rc_v ud_v ib; do
        for test in tag_lat tag_sync_lat tag_bw stream_lat stream_bw ucp_put_lat ucp_put_bw ucp_get ucp_am_lat ucp_am_bw; do
            for size in 1 4096 1048576; do perftest $transports $((size * 20)) $test -n 20 -w 2 -s $size; done
        done
        for test in ucp_add ucp_fadd ucp_swap ucp_cswap; do perftest $transports 160 $test -n 20 -w 2 -s 8; done
    done
    # Below UCP, where the program names device and transport itself.
    for transport in rc_verbs ud_verbs; do
        for test in am_lat am_bw; do perftest all 160 $test -d xsock0:1 -x $transport -n 20 -w 2 -s 8; done
    done
    for test in put_lat put_bw get; do perftest all 80000 $test -d xsock0:1 -x rc_verbs -D zcopy -n 20 -w 2 -s 4096; done
    for test in add_lat fadd cswap; do perftest all 160 $test -d xsock0:1 -x rc_verbs -n 20 -w 2 -s 8; done
    exit $failed
fi
for transports in rc_v ud_v; do
    perftest $transports 8000 tag_lat -n 500 -w 10
    perftest $transports 4096000 ucp_put_bw -n 1000 -w 10 -s 4096
    perftest $transports 4000 ucp_fadd -n 500 -w 10 -s 8
done
exit $failed
