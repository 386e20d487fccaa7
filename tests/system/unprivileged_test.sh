#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Runs a program with 64 KiB of lockable memory, and as nobody when we are root.
#   unprivileged_test.sh PROGRAM ARGUMENTS...
set -eu
program=$1
shift
ulimit -l 64
if [ "$(id -u)" != 0 ]; then
    exec "$program" "$@"
fi
command -v runuser >/dev/null || {
    echo "SKIP  no runuser here"
    exit 77
}
# The user nobody may be unable to read the build folder: what is needed is copied to one it can.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$(dirname "$(ldd "$program" | sed -n 's/.*libxsock\.so\.0 => \([^ ]*\) .*/\1/p')")
cp -L "$folder"/libxsock.so.0 "$work"/
for engine in "$folder"/libxsock-engine.so "$folder"/xsock/libxsock-engine.so; do
    [ -e "$engine" ] && cp -L "$engine" "$work"/
done
cp "$program" "$work/program"
chmod -R a+rX "$work"
LD_LIBRARY_PATH=$work runuser -u nobody -- "$work/program" "$@"
