# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""MariaDB: tests of its main and replication suites (Debian's package mariadb-test). The clients
connect by TCP, which they do not by themselves; replicas do anyway."""
import pathlib
import re
import subprocess
import tempfile

import suite

FOLDER = pathlib.Path("/usr/share/mysql/mysql-test")
CASE = re.compile(r"^(\w+\.\S+(?: '[^']*')?)(?: w\d+)? +\[ (pass|fail|skipped|disabled) ", re.M)
WORDS = {"pass": suite.PASSED, "skipped": suite.SKIPPED, "disabled": suite.SKIPPED}
# Of each group: tests whose connections are many, long, large or ended early.
GROUPS = {
    "queries": "select join subselect group_by union order_by insert update delete lock multi_update",
    "connections": "connect kill kill_processlist-6619 init_connect max_statement_time "
                   "change_user wait_timeout user_limits reset_connection grant grant2",
    "protocol": "ps ps_1general type_blob compress packet ssl ssl_compress openssl_1 sp loaddata "
                "flush trigger view",
    "replication": "rpl.rpl_row_basic_2myisam rpl.rpl_insert rpl.rpl_stm_loadfile rpl.rpl_gtid_basic "
                   "rpl.rpl_packet rpl.rpl_ssl rpl.rpl_semi_sync rpl.rpl_parallel_retry "
                   "rpl.rpl_heartbeat_basic rpl.rpl_connection rpl.rpl_stop_slave",
}


class Mariadb(suite.Suite):
    carried = 100

    def prepare(self):
        if not (FOLDER / "mtr").exists():
            raise suite.Missing("no mariadb-test")
        self.version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "mariadb-test"],
                                      stdout=subprocess.PIPE, text=True, check=False).stdout

    def groups(self):
        return list(GROUPS)

    def run(self, prefix, group):
        tests = [test if "." in test else "main." + test for test in GROUPS[group].split()]
        with tempfile.TemporaryDirectory(prefix="x.", dir="/tmp") as folder:
            more = pathlib.Path(folder) / "tcp.cnf"
            more.write_text("[mysqltest]\nprotocol=tcp\n")
            _, output = self.call(
                [*prefix, "./mtr", "--vardir=%s/var" % folder, "--defaults-extra-file=%s" % more,
                 "--force", "--force", "--retry=1", "--max-test-fail=0", "--nowarnings", *tests],
                cwd=FOLDER)
        cases = {name: WORDS.get(word, suite.FAILED) for name, word in CASE.findall(output)}
        if "Completed:" not in output:
            cases[suite.END] = suite.FAILED
        return suite.Ran(cases, output)


SUITE = Mariadb
