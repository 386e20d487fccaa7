#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# rdma-core's own Python tests (Debian's python3-pyverbs, in its documentation) on the drop-in
# libraries. They run in a network namespace with an address to reach, and in a mount namespace whose
# /sys/class names the interface of the device, which is how they find that address. Queue pairs
# that are connected without rdma_cm find each other by XSOCK_VERBS_GID; completions wait for the
# peer (XSOCK_VERBS_ACK), as the tests expect of those that rdma_cm connects too.
#
#   pyverbs.sh BUILD [REPORT]     fails when a test fails that is not in pyverbs.known, or when fewer
#                                 than 50 run; REPORT gets every test with its result and the
#                                 reason why it was skipped
. "$(dirname "$0")/lib.sh"
known=$(realpath "$(dirname "$0")")/pyverbs.known
report=${2:-$work/report}
source=/usr/share/doc/rdma-core/tests
[ -f $source/run_tests.py ] || skip "no rdma-core tests in $source (python3-pyverbs, with its documentation)"
/usr/bin/python3 -c 'import pyverbs.device' 2>/dev/null || skip "no pyverbs here"
[ "$(id -u)" = 0 ] || skip "making namespaces needs root"
need unshare ip

cp -rL "$source" "$work/tests"
gunzip -q "$work"/tests/*.gz
cat >"$work/inside" <<'SCRIPT'
#!/bin/bash
set -eu
ip link set lo up
ip link add v0 type veth peer name v1
ip address add 198.18.78.1/24 dev v0
ip link set v0 up
ip link set v1 up
mount -t tmpfs none /sys/class
mkdir -p /sys/class/infiniband/xsock0/device/net/v0
cd "$1"
exec timeout -k 5 240 /usr/bin/python3 -B tests/run_tests.py --dev xsock0 -v
SCRIPT
XSOCK_LOG=off XSOCK_VERBS_GID=1 XSOCK_VERBS_ACK=1 unshare --mount --net bash "$work/inside" "$work" \
    >"$work/log" 2>&1
status=$?

# One line for each test: its name, and what became of it.
/usr/bin/python3 -B - "$work/log" "$known" "$report" <<'SCRIPT'
import re
import sys

text = open(sys.argv[1], errors="replace").read()
known = {}
for line in open(sys.argv[2]):
    line = line.split("#", 1)
    if line[0].strip():
        known[line[0].strip()] = line[1].strip() if len(line) > 1 else ""
if not re.search(r"^Ran \d+ tests", text, re.M):
    print("FAILED  the tests did not come to their end")
    print(text[-2000:])
    sys.exit(1)
results = {}
# "name (module.Class.name)", perhaps a line of its description, "... result"
pattern = re.compile(r"^(test_\w+) \((tests\.[\w.]+)\)(?:\n(?!test_)[^\n]*?)? ?\.\.\. ?"
                     r"(?:(?!\ntest_|\n=====).)*?(ok|FAIL|ERROR|skipped [^\n]*)$", re.M | re.S)
for match in pattern.finditer(text):
    results[match.group(2)] = match.group(3)
for match in re.finditer(r"^(FAIL|ERROR): \w+ \((tests\.[\w.]+)\)", text, re.M):
    results[match.group(2)] = match.group(1)
with open(sys.argv[3], "w") as out:
    for name in sorted(results):
        out.write("%s %s\n" % (name, results[name]))
ok = sorted(n for n, r in results.items() if r == "ok")
bad = sorted(n for n, r in results.items() if r in ("FAIL", "ERROR"))
skipped = [n for n, r in results.items() if r.startswith("skipped")]
print("%d passed, %d failed, %d skipped themselves" % (len(ok), len(bad), len(skipped)))
failed = False
for name in bad:
    if name in known:
        print("known   %s: %s" % (name, known[name]))
    else:
        print("FAILED  " + name)
        failed = True
for name in sorted(known):
    if results.get(name) == "ok":
        print("note    %s passes this time" % name)
if len(ok) + len(bad) < 50:
    print("FAILED  only %d ran" % (len(ok) + len(bad)))
    failed = True
sys.exit(failed)
SCRIPT
verdict "rdma-core's Python tests (status $status)" $?
exit $failed
