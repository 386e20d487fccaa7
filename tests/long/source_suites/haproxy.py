# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""haproxy: its regression tests, with Debian's haproxy and varnish's varnishtest (vtest is the same
program, and not packaged). Clients and servers are threads of varnishtest, on both sides of haproxy.
Its summaries are the ones that count: it ends haproxy by SIGINT, behind which none is written."""
import re
import shutil
import tempfile

import suite

CASE = re.compile(r"^# +top  TEST (\S+) (passed|FAILED|skipped|TIMED OUT)", re.M)
WORDS = {"passed": suite.PASSED, "skipped": suite.SKIPPED}


class Haproxy(suite.Suite):
    package = "haproxy"
    carried = 300

    def groups(self):
        return sorted({str(file.parent.relative_to(self.place / "source" / "reg-tests"))
                       for file in (self.place / "source" / "reg-tests").glob("**/*.vtc")})

    def run(self, prefix, group):
        with tempfile.TemporaryDirectory(prefix="x.", dir="/tmp") as folder:  # for long socket names
            _, output = self.call(
                [*prefix, "scripts/run-regtests.sh", "--v", "--vtestparams", "-t 60",
                 "reg-tests/" + group],
                cwd=self.place / "source", environment={
                    "TMPDIR": folder, "VTEST_PROGRAM": "varnishtest",
                    "HAPROXY_PROGRAM": shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")})
        cases = {name.rpartition("/")[2]: WORDS.get(word, suite.FAILED)
                 for name, word in CASE.findall(output)}
        return suite.Ran(cases, output)


SUITE = Haproxy
