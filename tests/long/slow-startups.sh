#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# A crowd of connections that never end their start-up, toward each kind of listener, for as long as
# you like: honest clients beside it must be ready within a second. Says how long they took.
#
#   slow-startups.sh [-b BUILD] [-s SECONDS] [-r RATE]     build/release, 60 s, 1000 connections a second
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"
export XSOCK_SHM=${XSOCK_SHM-off} XSOCK_KERNEL=${XSOCK_KERNEL-off}  # as tests/CMakeLists.txt

build_folder=$top/build/release
export XSOCK_SLOW_STARTUPS_SECONDS=60 XSOCK_SLOW_STARTUPS_RATE=1000 XSOCK_SLOW_STARTUPS_LIMIT_MS=1000
usage() { sed -n '3,6s/^# \{0,1\}//p' "$0"; }
. "$top/tests/setup/options.sh"
read_options "b:build_folder s:XSOCK_SLOW_STARTUPS_SECONDS r:XSOCK_SLOW_STARTUPS_RATE" "$@"
[ -x "$build_folder/tests/verbs/verbs_slow_startups" ] || build release verbs_slow_startups
exec "$top/tests/support/own_network.sh" \
    env LD_LIBRARY_PATH="$build_folder/libxsock/verbs" "$build_folder/tests/verbs/verbs_slow_startups"
