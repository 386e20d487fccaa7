#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Compares two builds of xsock_bench, row by row, in turns. Each round measures OLD, NEW, and OLD again:
# NEW / OLD is what is asked, OLD / OLD says what the machine alone makes of one build.
set -euo pipefail

rounds=21
seconds=0.2
rows=
keep=
usage() {
    cat <<'USAGE'
usage: bench/compare.sh [-r ROUNDS] [-s SECONDS] [-R ROW,ROW...] [-k DIRECTORY] OLD NEW

OLD and NEW are build directories (build/release) or xsock_bench programs.

  -r ROUNDS     rounds for each row (21)
  -s SECONDS    timed part of each sample (0.2)
  -R ROW,...    only these rows; without it all that both builds have, except those over veth
                (which need root) and conn_10k (which is slow)
  -k DIRECTORY  keep the samples there, one JSON file each

A row is worse when the 95 % interval of the median of its paired ratios NEW / OLD (turned over where
more is better) lies wholly above both 1.03 and the interval of OLD against itself. Exit status: 0 no
row is worse, 1 one is, 2 wrong use or a sample failed.
USAGE
}
. "$(dirname "$0")/../tests/setup/options.sh"
read_options "r:rounds s:seconds R:rows k:keep" "$@"
shift $((OPTIND - 1))
[ $# = 2 ] || { usage >&2 && exit 2; }
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "compare.sh: -r $rounds is no number of rounds" >&2 && exit 2; }

program_of() {
    if [ -d "$1" ]; then set -- "$1/bench/xsock_bench"; fi
    [ -x "$1" ] || { echo "compare.sh: $1 cannot be run" >&2 && return 1; }
    readlink -f "$1"
}
old=$(program_of "$1") || exit 2
new=$(program_of "$2") || exit 2

rows_of() { "$1" --help | sed -n '/The rows:$/,$s/^  \([a-z0-9_]*\)$/\1/p'; }
if [ -z "$rows" ]; then
    rows=$(comm -12 <(rows_of "$old" | sort) <(rows_of "$new" | sort) |
        grep -v -e _veth_ -e '^conn_10k$' | paste -sd,)
fi

if [ -n "$keep" ]; then mkdir -p "$keep"; else
    keep=$(mktemp -d)
    trap 'rm -rf "$keep"' EXIT
fi
measure() {  # measure PROGRAM NAME ROUND
    "$1" --rows "$rows" --rounds 1 --seconds "$seconds" --json >"$keep/$3-$2.json" || {
        echo "compare.sh: $1 failed in round $3" >&2
        exit 2
    }
}
for ((round = 1; round <= rounds; round++)); do
    [ ! -t 2 ] || printf '\rround %d of %d ' "$round" "$rounds" >&2
    measure "$old" old "$round"
    measure "$new" new "$round"
    measure "$old" again "$round"
done
[ ! -t 2 ] || printf '\n' >&2
exec python3 "$(dirname "$0")/compare.py" "$keep" "$rounds"
