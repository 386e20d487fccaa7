#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Breaks the rules of the kernel module one by one (tests/kernel/mutants.py) and runs the test that has
# to find each: a unit program, or a program in a guest that has the broken module. The check that is
# named there must be the one that fails. First each test has to pass with nothing broken.
#
#   kernel-mutants.sh [-k KERNEL] [NAME...]      all mutants, or those named
#
#   -k   6.1 (default) or 6.12
#
# Exit status 1: a mutant was not found; 77: something is missing (QEMU).
set -euo pipefail
export LC_ALL=C
SIW_KERNEL=6.1
usage() { sed -n 's/^#   \(kernel-mutants.sh .*[.]\]\).*/usage: \1/p' "$0"; }
. "$(dirname "$0")/../setup/options.sh"
read_options "k:SIW_KERNEL" "$@"
shift $((OPTIND - 1))
mutants=$(cd "$(dirname "$0")/../kernel" && pwd)/mutants.py
tree=$(cd "$(dirname "$0")/../.." && pwd)
# A copy, whose builds go on from those of the last run: what is as it was keeps its time.
copy=$tree/build/mutants
mkdir -p "$copy"
exec 9>"$copy/.lock"
flock -n 9 || { echo "another run uses $copy" >&2 && exit 1; }
touch "$copy/.files"
(cd "$tree" && git ls-files -co --exclude-standard | while read -r file; do
    [ ! -e "$file" ] || echo "$file"
done | sort) >"$copy/.wanted"
comm -23 "$copy/.files" "$copy/.wanted" | (cd "$copy" && xargs -r -d '\n' rm -f)
while read -r file; do
    cmp -s "$tree/$file" "$copy/$file" && continue
    mkdir -p "$(dirname "$copy/$file")"
    cp -p --no-preserve=timestamps "$tree/$file" "$copy/$file"
done <"$copy/.wanted"
mv "$copy/.wanted" "$copy/.files"
. "$copy/tests/kernel/lib.sh"
cd "$copy"

declare -A test_of
names=()
list=$("$mutants" list)
while read -r name test; do
    test_of[$name]=$test
    [ $# != 0 ] || names+=("$name")
done <<<"$list"
for name in "$@"; do
    [ -n "${test_of[$name]:-}" ] || die "no mutant $name; there are: ${!test_of[*]}"
    names+=("$name")
done

# ---- Tests ------------------------------------------------------------------------------------------
# Each answers 0: the check held; 1: it did not; 2: it could not be tried; 3: something else failed.
unit() {  # unit PROGRAM CASE
    local status=0
    bash -c '. tests/setup/lib.sh && build release "$1"' - "$1" >"$SIW_RUN/out" 2>&1 </dev/null ||
        return 2
    bash tests/support/own_network.sh env XSOCK_SHM=off XSOCK_KERNEL=off \
        timeout 300 "build/release/tests/unit/$1" --gtest_brief=1 --gtest_filter="$2" \
        >"$SIW_RUN/out" 2>&1 || status=$?
    grep -q '^\[=*\] 0 tests' "$SIW_RUN/out" && return 2  # no such case
    case $status in
    0) ;;
    124) return 3 ;;
    *) return 1 ;;
    esac
}
guest_up=
boot() {
    [ -z "$guest_up" ] || "${vmctl[@]}" stop || true
    start_guest -c 2 >/dev/null
    guest_up=1
    "${vmctl[@]}" -T 300 run "$load && rmmod ddp_kernel" >"$SIW_RUN/boot" 2>&1 ||
        die "the guest does not start: $(tail -n 1 "$SIW_RUN/boot")"
}
in_guest() {  # in_guest COMMAND CHECK
    local command=$1 status=0 seconds=200
    (build_module) >"$SIW_RUN/out" 2>&1 || return 2
    [ -x "$SIW_RUN/package/abi" ] || pack_programs
    [ -n "$guest_up" ] || boot
    strip -g "$SIW_RUN/source/ddp_kernel/ddp_kernel.ko" -o "$share/ddp_kernel.ko"
    "${vmctl[@]}" -T 30 run 'insmod /share/ddp_kernel.ko' >"$SIW_RUN/out" 2>&1 || return 2
    case $command in
    /x/segments) command=$segments ;;
    /x/records) seconds=60 ;;  # it takes a second or two, and may wait for ever
    nothing_left) command="/x/abi >/dev/null; /x/records >/dev/null; $nothing_left" ;;
    esac
    # Into a file: of a guest that does not answer, what it has printed is there.
    rm -f "$share/out"
    "${vmctl[@]}" -T "$seconds" run "( $command ) >/share/out 2>&1" >"$SIW_RUN/out" 2>&1 || status=1
    [ ! -e "$share/out" ] || cat "$share/out" >>"$SIW_RUN/out"
    if [ $status = 0 ]; then
        "${vmctl[@]}" -T 30 run 'rmmod ddp_kernel' >"$SIW_RUN/out" 2>&1 || return 3
        return 0
    fi
    # What the mutant has left is not the next one's.
    boot
    grep -qE "^(not ok [0-9]+ )?$2" "$SIW_RUN/out" || return 3
    return 1
}
run_test() {  # run_test TEST CHECK
    case $1 in
    unit_*) unit "$1" "$2" ;;
    *) in_guest "$1" "$2" ;;
    esac
}

found=0
tried=' '
for name in "${names[@]}"; do
    test=${test_of[$name]}
    check=$("$mutants" check-of "$name")
    case $test in unit_*) of="$test $check" ;; *) of=$test ;; esac
    if [[ $tried != *" $of;"* ]]; then
        run_test "$test" "$check" || { cat "$SIW_RUN/out" && die "$of fails with nothing broken"; }
        tried+="$of; "
    fi
    status=0
    "$mutants" make "$name" "$copy"
    run_test "$test" "$check" || status=$?
    "$mutants" undo "$name" "$copy"
    case $status in
    0) echo "NOT FOUND  $name: $("$mutants" rule "$name") ($test)" ;;
    1)
        echo "found      $name: $("$mutants" rule "$name") ($of: $check)"
        found=$((found + 1))
        ;;
    2) cat "$SIW_RUN/out" && die "$name does not compile, or is not loaded" ;;
    *)
        echo "NOT FOUND  $name: $("$mutants" rule "$name") ($of), though something else failed:"
        tail -n 5 "$SIW_RUN/out" | sed 's/^/               /'
        ;;
    esac
done
echo "$found of ${#names[@]} mutants were found"
[ "$found" = ${#names[@]} ] || exit 1
