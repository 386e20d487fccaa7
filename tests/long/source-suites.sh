#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The test suites of other projects, with the programs' connections carried as byte streams: each
# group of cases runs without xsock and then under `xsock run --stream=both`, and what passed without
# must pass with it. The suites come from Debian's sources (source_suites/fetch.sh).
#
#   source-suites.sh [OPTION...] [SUITE[/GROUP]...]    all suites, or those named
#
#   --list          the suites; with a name, its groups
#   --again         also what the results file has of this commit and version
#   --build FOLDER  build/release
#   --results FILE  build/source-suites/results.jsonl: a line for each run of a group; what the runs
#                   printed lies beside it
#
# It can be interrupted, and goes on where it was. Exit status 1: a case fails under xsock that
# passes without, and that source_suites/ does not expect; 77: nothing could run.
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"
export XSOCK_SHM=${XSOCK_SHM-off} XSOCK_KERNEL=${XSOCK_KERNEL-off}  # as tests/CMakeLists.txt

case " $* " in
*' -h '* | *' --help '*) sed -n '3,16s/^# \{0,1\}//p' "$0" && exit 0 ;;
*' --list '*) ;;
*) setup source-suites ;;
esac
# Debian's: another Python may be the first of the path.
exec /usr/bin/python3 -B "$top/tests/long/source_suites/main.py" "$@"
