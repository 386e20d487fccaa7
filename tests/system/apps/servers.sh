#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Unmodified servers and clients on loopback, each without the overlay and with it (lib.sh).
#   servers.sh BUILD [SCENARIO...]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs_init "${1:?usage: servers.sh BUILD [SCENARIO...]}"
shift

a_file() {  # a_file NAME MIB: bytes that differ
    head -c $(($2 << 20)) /dev/urandom >"$1"
}

iperf() {
    local port
    port=$(free_port)
    begin server iperf3 -s -p "$port" -B 127.0.0.1
    wait_for 10 answers "$port"
    for direction in "" -R "-P 4" --bidir "-Z"; do
        # shellcheck disable=SC2086
        run iperf3 -c 127.0.0.1 -p "$port" -t 1 --json $direction >client.json
        /usr/bin/python3 -c '
import json
end = json.load(open("client.json"))["end"]
assert end["sum_received"]["bytes"] > 1 << 20, end' || return 1
    done
    stop_all
    seen iperf
}

redis() {
    local port
    port=$(free_port)
    begin server redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$PWD"
    wait_for 10 answers "$port"
    run redis-benchmark -p "$port" -n 10000 -c 20 -q -t set,get,lpush,lrange_100 -P 4 >benchmark.txt
    tr '\r' '\n' <benchmark.txt | grep -q 'LPUSH: .*requests per second'
    # BGSAVE forks a child that exits; the server must not notice.
    [ "$(run redis-cli -p "$port" set key value)" = OK ]
    run redis-cli -p "$port" bgsave
    wait_for 20 test -s dump.rdb
    [ "$(run redis-cli -p "$port" get key)" = value ]
    run redis-cli -p "$port" shutdown nosave || true
    stop_all
    seen redis-check-rdb redis-benchmark redis-cli
}

web() {
    local port user=
    port=$(free_port)
    [ "$(id -u)" -ne 0 ] || user="user root;"
    mkdir root
    a_file root/large 24
    echo small >root/small
    cat >nginx.conf <<CONF
$user
daemon off;
worker_processes 2;
pid $PWD/nginx.pid;
error_log $PWD/error.log;
events { worker_connections 512; }
http {
    access_log off;
    sendfile on;
    client_body_temp_path $PWD/body;
    proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi;
    uwsgi_temp_path $PWD/uwsgi;
    scgi_temp_path $PWD/scgi;
    server {
        listen 127.0.0.1:$port reuseport;
        root $PWD/root;
        location /proxied/ { proxy_pass http://127.0.0.1:$port/; }
    }
}
CONF
    begin server nginx -e "$PWD/error.log" -p "$PWD" -c "$PWD/nginx.conf"
    wait_for 10 answers "$port"
    run wrk -t 2 -c 32 -d 2s "http://127.0.0.1:$port/small" >wrk.txt
    grep -q 'Requests/sec' wrk.txt
    if grep -E 'Non-2xx|Socket errors' wrk.txt; then return 1; fi
    run curl -sS --fail -o got "http://127.0.0.1:$port/proxied/large"
    cmp got root/large
    # shellcheck disable=SC2086
    run curl -sS --fail --parallel $(seq -f "-o got%g http://127.0.0.1:$port/large" 5)
    for i in 1 2 3 4 5; do cmp "got$i" root/large; done
    # A reload starts new workers and ends old ones, which hand over descriptors.
    kill -HUP "$(cat nginx.pid)"
    sleep 0.5
    [ "$(run curl -sS --fail "http://127.0.0.1:$port/small")" = small ]
    stop_all
    seen nginx wrk curl
}

memcache() {
    local port user=
    port=$(free_port)
    [ "$(id -u)" -ne 0 ] || user="-u root"
    # shellcheck disable=SC2086
    begin server memcached $user -l 127.0.0.1 -p "$port" -U 0
    wait_for 10 answers "$port"
    run /usr/bin/python3 "$here/memcache_client.py" "$port"
    stop_all
    seen memcached python
}

netcat() {
    local port
    port=$(free_port)
    a_file sent 16
    begin server sh -c 'exec nc -l -N 127.0.0.1 "$1" <reply >received' sh "$port"
    a_file reply 1
    stop_all
    begin server sh -c 'exec nc -l -N 127.0.0.1 "$1" <reply >received' sh "$port"
    sleep 0.5
    run nc -N 127.0.0.1 "$port" <sent >got
    wait_for 10 cmp sent received
    cmp reply got
    seen "nc(.openbsd)?"
}

ssh_loopback() {
    local port made= sshd
    port=$(free_port)
    sshd=$(command -v sshd)
    if [ "$(id -u)" -eq 0 ] && [ ! -d /run/sshd ]; then
        mkdir -m 755 /run/sshd
        made=/run/sshd
    fi
    chmod 700 .
    ssh-keygen -q -t ed25519 -N '' -f host_key
    ssh-keygen -q -t ed25519 -N '' -f user_key
    cp user_key.pub authorized_keys
    cat >sshd_config <<CONF
Port $port
ListenAddress 127.0.0.1
HostKey $PWD/host_key
AuthorizedKeysFile $PWD/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp
CONF
    begin server "$sshd" -D -e -f "$PWD/sshd_config"
    wait_for 10 answers "$port"
    local to="-F none -p $port -i $PWD/user_key -o BatchMode=yes -o StrictHostKeyChecking=no"
    to="$to -o UserKnownHostsFile=$PWD/known -o LogLevel=ERROR -o IdentitiesOnly=yes"
    a_file sent 16
    # shellcheck disable=SC2086
    run ssh $to 127.0.0.1 cat <sent >got
    cmp sent got
    local status=0
    # shellcheck disable=SC2086
    run ssh $to 127.0.0.1 'exit 42' || status=$?
    [ $status -eq 42 ]
    # shellcheck disable=SC2086
    run sftp -q ${to/-p $port/-P $port} -b - 127.0.0.1 <<SFTP
get $PWD/sent $PWD/fetched
SFTP
    cmp sent fetched
    stop_all
    [ -z "$made" ] || rmdir "$made"
    seen ssh sshd
}

node_host() {
    local node
    node=$(command -v nodejs || command -v node)
    run "$node" "$here/node_host.js"
    seen node
}

iostream() {
    run "$build/tests/system/system_iostream"
    seen system_iostream
}

# jemalloc beside the overlay, in both orders of preloading.
jemalloc() {
    local library
    library=$(find /usr/lib -name libjemalloc.so.2 2>/dev/null | head -n 1)
    [ -n "$library" ] || { echo "no libjemalloc.so.2"; return 1; }
    LD_PRELOAD=$library run "$build/tests/system/system_iostream"
    if [ "$mode" = with ]; then
        LD_PRELOAD="$library $build/libxsock/libxsock-preload.so" \
            XSOCK_SUMMARY=$dir/summary "$build/tests/system/system_iostream"
    fi
    seen system_iostream
}

wanted() { [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
only=("$@")
! wanted iperf || scenario iperf iperf3
! wanted redis || scenario redis redis-server redis-benchmark redis-cli
! wanted web || scenario web nginx wrk curl
! wanted memcache || scenario memcache memcached
! wanted netcat || scenario netcat nc
! wanted ssh || scenario ssh_loopback sshd ssh ssh-keygen sftp
! wanted node || scenario node_host nodejs
! wanted iostream || scenario iostream
! wanted jemalloc || scenario jemalloc
programs_verdict
