# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# shellcheck shell=bash
# How a script begins whose rows are programs. Sourced behind usage(), which tells of these options.
# The script sets before it $rounds, the default of -r, and $network: `own`, a namespace of its own,
# or `host`. What it has then:
#   build      the build folder (-b), absolute
#   rounds     -r
#   markdown   --markdown (-m), or nothing
#   head       1, or nothing (-n)
# What is left of "$@" are rows. Also sources programs_lib.sh.
# shellcheck disable=SC2154
build=build/release head=1 markdown=()
. "$(dirname "$0")/options.sh"
bench_options b:r:mn "$@"
[ "$network" = host ] || in_own_network "$@"
shift $((OPTIND - 1))
build=$(cd "$build" && pwd) || exit 2
. "$(dirname "$0")/programs_lib.sh"
