# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Sourced by the scripts that make a table: their options.

# bench_options LETTERS "$@": -b, -r, -s, -m, -n, as far as LETTERS (of getopts) has them, into build,
# rounds, seconds, markdown and head; -h: usage() of the caller. What follows them is behind OPTIND.
bench_options() {
    local letters=$1 option
    shift
    OPTIND=1
    # shellcheck disable=SC2034  # the caller reads them
    while getopts "${letters}h" option; do
        case $option in
        b) build=$OPTARG ;;
        r) rounds=$OPTARG ;;
        s) seconds=$OPTARG ;;
        m) markdown=(--markdown) ;;
        n) head= ;;
        h) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
        esac
    done
    [[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "${0##*/}: -r $rounds is no number" >&2 && exit 2; }
}

no_more_arguments() { [ $# = 0 ] || { usage >&2 && exit 2; }; }

# The folder of the scripts, and xsock_bench of $build, into here and bench.
find_bench() {
    here=$(cd "$(dirname "$0")" && pwd)
    bench=$build/bench/xsock_bench
    [ -x "$bench" ] || { echo "${0##*/}: $bench is not built" >&2 && exit 2; }
}

# in_own_network "$@": runs the script again in a network namespace of its own, if that can be made.
in_own_network() {
    [ -n "${XSOCK_OWN_NETWORK:-}" ] ||
        exec "$(dirname "$0")/../tests/support/own_network.sh" env XSOCK_OWN_NETWORK=1 "$0" "$@"
}
