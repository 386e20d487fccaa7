#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The unit tests of the protocol cores on a big-endian machine without CRC instructions: s390x under
# qemu-user. Arguments go to ctest. Exit status 77 when the cross compiler or QEMU is missing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

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
# tests need binfmt_misc, the address of a SIGBUS is the host's, and MADV_WIPEONFORK does nothing.
export GTEST_FILTER='-FaultChain.*:Fault.file_truncated_under_its_mapping_ends_the_call'
GTEST_FILTER+=':Random.forked_child_does_not_repeat_its_parent'

build s390x unit_base unit_mpa unit_ddp_user
exec ctest --test-dir "$top/build/s390x" --output-on-failure --no-tests=error -j "$jobs" \
    -R '^unit_(base|mpa|ddp_user)$' "$@"
