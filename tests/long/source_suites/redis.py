# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""redis: its Tcl suite, unit by unit, with Debian's programs. Both the servers and tclsh, their client,
run under xsock."""
import re

import suite

# Units that start servers and talk to them by TCP. Left out: corrupt-dump-fuzzer (random), the
# memory and sorting units whose connections are those of all others, and what needs TLS or modules.
UNITS = [
    "unit/auth", "unit/protocol", "unit/keyspace", "unit/scan", "unit/info", "unit/type/list",
    "unit/type/stream", "unit/other", "unit/multi", "unit/quit", "unit/aofrw", "unit/acl",
    "unit/pubsub", "unit/pubsubshard", "unit/slowlog", "unit/introspection",
    "unit/introspection-2", "unit/limits", "unit/obuf-limits", "unit/wait", "unit/pause",
    "unit/querybuf", "unit/pendingquerybuf", "unit/tracking", "unit/shutdown", "unit/networking",
    "unit/client-eviction", "unit/violations", "unit/replybufsize", "unit/cluster",
    "unit/cluster/misc", "unit/cluster/links",
    "integration/block-repl", "integration/replication", "integration/replication-2",
    "integration/replication-3", "integration/replication-4", "integration/replication-psync",
    "integration/replication-buffer", "integration/shutdown", "integration/aof",
    "integration/rdb", "integration/logging", "integration/psync2", "integration/psync2-reg",
    "integration/psync2-pingoff", "integration/psync2-master-restart", "integration/failover",
    "integration/redis-cli", "integration/redis-benchmark",
]
# Their cases have random numbers in their names: all of one name are one case.
RANDOM = ("integration/psync2",)
# It asks the server what a client that has just sent fills of its memory: over loopback the bytes are
# there when send() returns, ours are a moment later. When it fails the unit ends.
LEFT_OUT = "client evicted due to percentage of maxmemory"
COLOUR = re.compile("\x1b\\[[0-9;]*m")
CASE = re.compile(r"^\[(ok|err|exception|skip|ignore|TIMEOUT)\]: (.*?)(?: \(\d+ ms\))?$", re.M)
WORDS = {"ok": suite.PASSED, "skip": suite.SKIPPED, "ignore": suite.SKIPPED}


class Redis(suite.Suite):
    package = "redis"
    carried = 1000
    recipe = ("for program in server cli benchmark check-aof check-rdb; do"
              " ln -sf $(command -v redis-$program) src/; done",)

    def groups(self):
        return UNITS

    def run(self, prefix, group):
        # One client: units that are to be alone run at once, and the order is always the same.
        _, output = self.call([*prefix, "./runtest", "--clients", "1", "--skiptest", LEFT_OUT,
                               "--single", group],
                              cwd=self.place / "source", environment={"LC_ALL": "C.UTF-8"})
        output = COLOUR.sub("", output)
        cases = {}
        for word, name in CASE.findall(output):
            if word in ("exception", "TIMEOUT"):
                continue  # behind it nothing comes
            # Of a failure: the name, and what was wrong.
            name = re.split(r" in tests/", name)[0]
            if group in RANDOM:
                name = re.sub(r"\d+", "N", name)
                if cases.get(name) != suite.FAILED:
                    cases[name] = WORDS.get(word, suite.FAILED)
                continue
            number = 1  # in a loop names occur again
            while "%s #%d" % (name, number) in cases:
                number += 1
            cases["%s #%d" % (name, number)] = WORDS.get(word, suite.FAILED)
        if "The End" not in output:
            cases[suite.END] = suite.FAILED
        return suite.Ran(cases, output)


SUITE = Redis
