#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Tails of round trips on paths that lose segments: what docs/performance.md shows. Two network
# namespaces joined by a veth pair without offloads (with them 64 KiB are lost at once), or by a wire
# that takes 1 ms each way (tun_delay); both ends lose segments at random, by netfilter. Needs root.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: bench/loss.sh [-b BUILD] [-l "PERCENT..."] [-s SECONDS] [-r ROUNDS] [-o FOLDER]

  -b BUILD      folder of the build; default build/release
  -l "P..."     losses in percent; default "0 0.1 0.5 1 5"
  -s SECONDS    of a sample; default 5
  -r ROUNDS     default 3
  -o FOLDER     where loss.csv, loss.md and loss.svg go; default .
USAGE
}

build=build/release losses="0 0.1 0.5 1 5" seconds=5 rounds=3 out=.
. "$(dirname "$0")/../tests/setup/options.sh"
read_options "b:build l:losses s:seconds r:rounds o:out" "$@"
here=$(dirname "$0")
[ "$(id -u)" = 0 ] || { echo "loss.sh: needs root, for network namespaces" >&2; exit 77; }
[ -x "$build/bench/loss_bench" ] || { echo "loss.sh: $build/bench/loss_bench is not built" >&2; exit 2; }

name=xsock-loss-$$
wire=
end() {
    [ -z "$wire" ] || kill "$wire" 2>/dev/null || true
    "$here/veth.sh" down "$name"
}
trap end EXIT
"$here/veth.sh" up "$name" 1500
for side in a b; do
    ip netns exec "$name-$side" ethtool -K v0 tso off gso off gro off >/dev/null
done
"$build/bench/tun_delay" "$name-a" "$name-b" 1000 >"$out/tun.out" &
wire=$!
for _ in $(seq 100); do
    grep -q ready "$out/tun.out" && break
    sleep 0.05
done
rm -f "$out/tun.out"
ip -n "$name-a" address add 198.18.78.1/30 dev t0
ip -n "$name-b" address add 198.18.78.2/30 dev t0
for side in a b; do ip -n "$name-$side" link set t0 up txqueuelen 8000; done

: >"$out/loss.csv"
for path in veth:198.18.77.1 2ms:198.18.78.1; do
    for percent in $losses; do
        for side in a b; do
            ip netns exec "$name-$side" iptables -F INPUT
            [ "$percent" = 0 ] || ip netns exec "$name-$side" iptables -A INPUT -p tcp -m statistic \
                --mode random --probability "$(awk "BEGIN { print $percent / 100 }")" -j DROP
        done
        echo "loss.sh: ${path%%:*}, $percent % lost" >&2
        "$build/bench/loss_bench" "$name-a" "$name-b" "${path#*:}" "$seconds" "$rounds" |
            sed "s/^/${path%%:*},$percent,/" >>"$out/loss.csv"
    done
done
/usr/bin/python3 -B "$here/loss_report.py" "$out/loss.csv" "$out/loss.md" "$out/loss.svg"
cat "$out/loss.md"
