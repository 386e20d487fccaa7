# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""stunnel4: its Python suite, plugin by plugin. Its clients and servers (asyncio) and stunnel itself run
under xsock. stunnel is built from the source: the suite refuses Debian's where OpenSSL has been updated
since that was compiled."""
import re
import shutil
import sys

import suite

# The name of a case, what it says, and its end.
CASE = re.compile(r"^(\d+\. .*)|^\.{5,} (\w+)$", re.M)
WORDS = {"succeeded": suite.PASSED, "skipped": suite.SKIPPED}
PROGRAMS = ("maketest.py", "plugin_collection.py", "reader.py", "error.py")


class Stunnel(suite.Suite):
    package = "stunnel4"
    carried = 200
    expected = dict.fromkeys(("p14_resume_ticket", "p15_resume_secret", "p23_exec_conn",
                              "p24_delay"),
                             "stunnel's \"exec\" gives one end of a TCP connection to itself to the "
                             "program that it starts: a started connection stays with its process")
    recipe = ("./configure --disable-fips --disable-systemd --disable-libwrap --with-threads=pthread",
              "make -C src -j 2 stunnel", "cd tests/certs && ./maketestcert.sh")

    def groups(self):
        plugins = sorted(file.stem for file in (self.place / "source/tests/plugins").glob("p*.py"))
        return [name for name in plugins if "fips" not in name]

    def run(self, prefix, group):
        tests = self.place / "source" / "tests"
        alone = tests / "alone"  # the suite runs all plugins that it finds beside it
        shutil.rmtree(alone, ignore_errors=True)
        (alone / "plugins").mkdir(parents=True)
        (alone / "logs").mkdir()
        for name in PROGRAMS:
            shutil.copy(tests / name, alone)
        shutil.copy(tests / "plugins" / (group + ".py"), alone / "plugins")
        status, output = self.call(
            [*prefix, sys.executable, "maketest.py", "--program", str(self.place / "source/src/stunnel"),
             "--certs", str(tests / "certs")], cwd=alone)
        cases, last = {}, ""
        for name, word in CASE.findall(output):
            if name:
                last = name
            else:
                cases[last] = WORDS.get(word, suite.FAILED)
        if status is None or not cases:
            cases[suite.END] = suite.FAILED
        return suite.Ran(cases, output)


SUITE = Stunnel
