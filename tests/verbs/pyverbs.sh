#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# rdma-core's own Python tests (Debian's python3-pyverbs, in its documentation) on the drop-in
# libraries, in a network namespace with an address to reach.
#
#   pyverbs.sh BUILD [--roce] [--report FILE] [--page docs/verbs.md]
#
# --roce: on the device that looks like RoCE, by `xsock run`. Else on the iWARP one, in a mount
# namespace whose /sys/class names the interface of the device, which is how they find that address;
# queue pairs that are connected without rdma_cm find each other by XSOCK_VERBS_GID, and completions
# wait for the peer (XSOCK_VERBS_ACK), as the tests expect of those that rdma_cm connects too.
#
# Fails when a test fails, one that must hold does not (pyverbs.expected, of the iWARP device without
# what is in its second part), or a test of pyverbs.refused does not end with its refusal. --report:
# every test with its result, and the reason why it was skipped. --page: the numbers, and reasons of
# skips, go into the compatibility page.
. "$(dirname "$0")/lib.sh"
folder=$(realpath "$(dirname "$0")")
report=$work/report device=iwarp results=()
shift
while [ $# -gt 0 ]; do
    case $1 in
        --roce) device=roce; shift ;;
        --report) report=$(realpath "${2:?a file}"); shift 2 ;;
        --page) results+=(--page "$(realpath "${2:?a file}")"); shift 2 ;;
        *) echo "unknown argument: $1" >&2; exit 2 ;;
    esac
done
source=/usr/share/doc/rdma-core/tests
[ -f $source/run_tests.py ] || skip "no rdma-core tests in $source (python3-pyverbs, with its documentation)"
/usr/bin/python3 -c 'import pyverbs.device' 2>/dev/null || skip "no pyverbs here"
[ "$(id -u)" = 0 ] || skip "making namespaces needs root"
need unshare ip

cp -rL "$source" "$work/tests"
gunzip -q "$work"/tests/*.gz
if [ $device = iwarp ]; then
    sed '/^# ---- /,$d' "$folder/pyverbs.expected" >"$work/expected"
    results+=(--refused "$folder/pyverbs.refused")
    # unittest tells them apart as expected failures.
    sed -n 's/^tests\.\([a-z0-9_]*\)\.[A-Za-z0-9]*\.\([a-z0-9_]*\) .*/\1 \2/p' "$folder/pyverbs.refused" |
        while read -r module test; do
            grep -q "def $test(self)" "$work/tests/$module.py" || echo "note    there is no $test"
            sed -i "s/^\( *\)def $test(self)/\1@unittest.expectedFailure\n&/" "$work/tests/$module.py"
        done
else
    cp "$folder/pyverbs.expected" "$work/expected"
fi
cat >"$work/inside" <<'SCRIPT'
#!/bin/bash
set -eu
ip link set lo up
ip link add v0 type veth peer name v1
ip address add 198.18.78.1/24 dev v0
ip link set v0 up
ip link set v1 up
if [ "$2" = iwarp ]; then
    mount -t tmpfs none /sys/class
    mkdir -p /sys/class/infiniband/xsock0/device/net/v0
fi
cd "$1"
shift 2
exec timeout -k 5 240 "$@" /usr/bin/python3 -B tests/run_tests.py --dev xsock0 -v
SCRIPT
run=() own=(--net)
export XSOCK_LOG=off
if [ $device = iwarp ]; then
    own+=(--mount)
    export XSOCK_VERBS_GID=1 XSOCK_VERBS_ACK=1
else
    unset LD_LIBRARY_PATH
    run=("$build/tools/xsock" run --roce --)
fi
unshare "${own[@]}" bash "$work/inside" "$work" $device "${run[@]}" >"$work/log" 2>&1
status=$?

/usr/bin/python3 -B "$folder/pyverbs_results.py" --device $device --expected "$work/expected" \
    "${results[@]}" "$work/log" "$report"
verdict "rdma-core's Python tests, $device (status $status)" $?
exit $failed
