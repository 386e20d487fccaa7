#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A soak: mixed verified operations between two network namespaces over a lossy link, round after
# round with new seeds, and in some rounds an end that is killed or a connection that is reset. Says
# after each round how much memory, how many descriptors and TCP sockets are in use; stops at the first
# failure, whose seed it names.
#
#   soak.sh [-b BUILD] [-m MINUTES] [-k KIND] [-r ROUND]     build/release, 30 minutes, KINDs at random
#
# KIND: an impairment that connections outlive (impairment.sh), loss-1 for example. ROUND: the first
# one's number, which is its seed: a soak that was cut short goes on from there.
#
# Exit status 77: this machine lacks something (root, iptables, network namespaces).
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"

build_folder=$top/build/release
minutes=30
kind_asked=
round=1
usage() { sed -n '3,14s/^# \{0,1\}//p' "$0"; }
. "$top/tests/setup/options.sh"
read_options "b:build_folder m:minutes k:kind_asked r:round" "$@"
for number in "$minutes" "$round"; do [[ $number =~ ^[1-9][0-9]*$ ]] || die "no number: $number"; done
program=$build_folder/tests/system/system_impairment
[ -x "$program" ] || build release system_impairment

sound="loss-0.1 loss-1 loss-5 rate mtu-changes resegmented address-gone cable-pulled"
ends="killed half-open reset-from-the-way silent stopped"
[ -z "$kind_asked" ] || [[ " $sound mtu-1280 mtu-9000 " == *" $kind_asked "* ]] || die "no $kind_asked; there are: $sound"
end=$(($(date +%s) + minutes * 60))
first=$round
while [ "$(date +%s)" -lt $end ]; do
    export XSOCK_IMPAIRMENT_SEED=$round
    # shellcheck disable=SC2206
    kinds=($sound)
    # shellcheck disable=SC2206
    killers=($ends)
    kind=${kind_asked:-${kinds[RANDOM % ${#kinds[@]}]}}
    seconds=$((10 + RANDOM % 30))
    "$top/tests/system/impairment.sh" "$program" $seconds "$kind" || exit $?
    "$top/tests/system/impairment.sh" "$program" $((10 + RANDOM % 6)) \
        "${killers[RANDOM % ${#killers[@]}]}" || exit $?
    say "round $round: $(awk '/^MemAvailable/ { print int($2 / 1024) " MiB available" }' \
        /proc/meminfo), $(awk '{ print $1 }' /proc/sys/fs/file-nr) descriptors, $(awk \
        '$1 == "TCP:" { print $3 " TCP sockets" }' /proc/net/sockstat)"
    round=$((round + 1))
done
say "$((round - first)) rounds in $minutes minutes: clean"
