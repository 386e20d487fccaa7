#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The stage `programs` of ./test: unmodified programs under the overlay and without it.
#   all.sh BUILD [--both]     --both: CPython's tests without the overlay as well
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: all.sh BUILD [--both]}
shift
status=0
for part in servers.sh python_suites.py; do
    if [ $part = servers.sh ]; then
        "$here/$part" "$build"
    else
        "$here/$part" "$build" "$@"
    fi
    case $? in
    0) ;;
    77) [ $status -ne 0 ] || status=77 ;;
    *) status=1 ;;
    esac
done
exit $status
