#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The unit tests of the protocol cores on a big-endian machine without CRC instructions: s390x under
# qemu-user; then exchanges with this machine. Exit status 77 when the cross compiler or QEMU is
# missing.
#   test-s390x.sh [--built] [CTEST-ARGUMENTS...]     --built: build/s390x and build/release are there
set -euo pipefail
. "$(dirname "$0")/../setup/lib.sh"

for program in s390x-linux-gnu-g++ qemu-s390x-static; do
    command -v "$program" >/dev/null || {
        echo "SKIPPED: no $program: nothing is tested on a big-endian machine" >&2
        exit 77
    }
done
[ -d /usr/src/googletest ] || {
    echo "SKIPPED: no /usr/src/googletest (package googletest) to build for s390x" >&2
    exit 77
}

# What qemu-user 7.2 does otherwise than Linux, whatever the byte order: gtest's re-executed death
# tests need binfmt_misc, the address of a SIGBUS is the host's, and MADV_WIPEONFORK does nothing. What
# counts processor time counts the emulation's. It knows neither SO_COOKIE nor sock_diag.
export GTEST_FILTER='-FaultChain.*:Fault.file_truncated_under_its_mapping_ends_the_call'
GTEST_FILTER+=':SharedRange.a_file_that_ends_is_replaced'
GTEST_FILTER+=':Random.forked_child_does_not_repeat_its_parent'
GTEST_FILTER+=':Epochs.a_thread_of_real_time_priority_sleeps_while_it_waits'
GTEST_FILTER+=':FindListener.*:Registry.*'

built=
[ "${1:-}" != --built ] || { built=1 && shift; }
[ -n "$built" ] || build s390x unit_base unit_mpa unit_ddp_user interop_endian
ctest --test-dir "$top/build/s390x" --output-on-failure --no-tests=error -j "$jobs" \
    -R '^unit_(base|mpa|ddp_user)$' "$@"

# Big and little: an end of each byte order, each in both roles, over loopback; every kind of
# operation both ways, CRCs and markers, every byte and every number checked.
[ -n "$built" ] || build release interop_endian
little=("$top/build/release/tests/interop/interop_endian")
big=(qemu-s390x-static -L /usr/s390x-linux-gnu "$top/build/s390x/tests/interop/interop_endian")
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
exchange() { # ARRAY-OF-THE-SERVER ARRAY-OF-THE-CLIENT OPTION...
    local -n first=$1 second=$2
    local port= i
    shift 2
    : >"$work/out"
    timeout 300 "${first[@]}" serve 0 "$@" >"$work/out" 2>&1 &
    server=$!
    for ((i = 0; i < 600; i++)); do
        port=$(sed -n 's/^listening on port //p' "$work/out")
        [ -n "$port" ] && break
        sleep 0.1
    done
    timeout 300 "${second[@]}" drive "$port" "$@" || die "the connecting end failed"
    wait "$server" || die "the listening end failed: $(cat "$work/out")"
    server=
    sed 1d "$work/out"
}
exchange big little
exchange little big
exchange big little --revision 1 --no-markers
exchange little big --revision 1 --no-markers
say "big and little endian understand each other"
