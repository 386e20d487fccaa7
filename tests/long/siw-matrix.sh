#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The whole siw matrix, with each of Debian's kernels, and docs/interop.md from what it found. Some 380
# rows a kernel; half an hour on a quiet machine. Root, QEMU and the packages of section [test].
#
#   siw-matrix.sh [-b BUILD] [-k KERNEL]... [-r REGEX]
#
#   -b BUILD    where xsock was built; build/release, built first, if not given
#   -k KERNEL   6.1 or 6.12; both if not given
#   -r REGEX    only rows whose "group: name" matches; docs/interop.md is then left alone
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"

build_folder=
kernels=()
rows=
while getopts b:k:r:h option; do
    case $option in
    b) build_folder=$OPTARG ;;
    k) kernels+=("$OPTARG") ;;
    r) rows=$OPTARG ;;
    *) sed -n '3,10s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
done
[ ${#kernels[@]} -gt 0 ] || kernels=(6.1 6.12)
if [ -z "$build_folder" ]; then
    build_folder=$top/build/release
    mkdir -p "$build_folder"
    build release xsock_program matrix_xsock matrix_siw >"$build_folder/siw-build.log" 2>&1 || {
        tail -n 40 "$build_folder/siw-build.log" >&2
        die "the build failed"
    }
fi
reports=$build_folder/siw-matrix
mkdir -p "$reports"
status=0
for kernel in "${kernels[@]}"; do
    rm -f "$reports/$kernel.tsv"
    "$top/tests/interop/siw_matrix.sh" --full --kernel "$kernel" --rows "$rows" \
        --report "$reports/$kernel.tsv" "$build_folder" || status=$?
    [ $status != 77 ] || exit 77
    [ -s "$reports/$kernel.tsv" ] || die "no report for Linux $kernel"
done
files=("${kernels[@]/%/.tsv}")
if [ -z "$rows" ]; then
    python3 -B "$top/tests/interop/matrix/table.py" "${files[@]/#/$reports/}" >"$reports/interop.md"
    cp "$reports/interop.md" "$top/docs/interop.md"
    echo "docs/interop.md is written"
fi
exit $status
