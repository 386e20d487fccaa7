# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Servers that store data or pass messages on, each with a folder and a port of its own:

    with Redis(xsock, "both", tmp_path) as redis: ...

`xsock` and `stream` are those of stream_runs.command(); the other end has a mode of its own."""
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from stream_runs import Server, command, free_port, run, serving, wait_for

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib/postgresql/15/bin"


def need(*programs):
    """Their paths; the case is skipped where one is not there."""
    found = [shutil.which(program, path=PATH) for program in programs]
    for program, path in zip(programs, found):
        if path is None:
            pytest.skip(program + " is not there")
    return found


def family(pid):
    """It, and all that it started."""
    pids = [pid]
    for one in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pids += children(one)
    return pids


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


class Store:
    """A server between __enter__() and __exit__()."""
    program = ""
    package = ""  # of Debian
    user = {}  # of Popen: for programs that refuse root

    def __init__(self, xsock, stream, folder):
        self.xsock, self.stream = xsock, stream
        self.port = free_port()
        self.folder = folder / ("%s-%d" % (self.program, self.port))
        self.folder.mkdir()
        self.server = None
        self.stack = contextlib.ExitStack()

    def argv(self):
        raise NotImplementedError

    def prepare(self):
        """Before the server starts."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.stack = stack
            self.prepare()
            self.server = stack.enter_context(serving(
                command(self.xsock, self.stream, *self.argv()), self.folder / "log", self.port,
                **self.user))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    # Some seconds of work for the other end, and what is right about it.

    def prepare_load(self):
        """Once; without xsock."""

    def load(self):
        """The program and its arguments."""
        raise NotImplementedError

    def endless_load(self):
        """One that the end of the server ends."""
        return self.load()

    def is_right(self, said):
        """Of a load that ended well, by what it said."""
        raise NotImplementedError

    def is_intact(self):
        """What the server holds, whatever became of a load."""
        raise NotImplementedError

    def connections(self):
        """At the server's port: all that TCP still has, but for TIME-WAIT and LISTEN."""
        with open("/proc/net/tcp", encoding="ascii") as lines:
            return sum(words[1].endswith(":%04X" % self.port) and words[3] not in ("06", "0A")
                       for words in map(str.split, lines))

    def end(self):
        """The server's last words."""
        return self.server.end()

    def run(self, *argv, stream=None, **more):
        """A program at the other end: as the server's user, whom `both` believes."""
        return run(command(self.xsock, stream, *argv), **self.user, **more)


class Redis(Store):
    program = "redis-server"
    package = "redis-server"

    def __init__(self, xsock, stream, folder, *more):
        need("redis-server", "redis-cli", "redis-benchmark")
        super().__init__(xsock, stream, folder)
        self.more = more

    def argv(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                "--enable-debug-command", "yes", "--dir", str(self.folder), *self.more]

    def cli_command(self, *words, stream=None):
        return command(self.xsock, stream, "redis-cli", "-p", str(self.port), *words)

    def cli(self, *words, stream=None, **more):
        return run(self.cli_command(*words, stream=stream), **more)

    def load(self):
        return ["redis-benchmark", "-p", str(self.port), "--csv", "-n", "400000", "-c", "50", "-P",
                "4", "-t", "set,incr", "-d", "300"]

    def endless_load(self):
        """(redis-benchmark sends again and again where a send fails)"""
        return ["redis-cli", "-p", str(self.port), "-r", "-1", "incr", "n"]

    def is_right(self, said):
        return '"INCR"' in said and "rror" not in said

    def is_intact(self):
        return (self.get("ping") == "PONG" and
                int(self.get("get", "counter:__rand_int__") or 0) <= 400000 and
                self.get("strlen", "key:__rand_int__") in ("300", "0"))

    def benchmark(self, *words, stream=None):
        done = self.run("redis-benchmark", "-p", str(self.port), "--csv", *words, stream=stream)
        assert "rror" not in done.stdout, done.stdout
        return done

    def get(self, *words):
        """What a client without xsock is told: `both` answers it as it comes."""
        return self.cli("--raw", *words).stdout.rstrip("\n")


    def kill_saving_child(self):
        """How many there were."""
        killed = 0
        for pid in children(self.server.process.pid):
            for child in children(pid):
                os.kill(child, signal.SIGKILL)
                killed += 1
        return killed


class Memcached(Store):
    program = "memcached"
    package = "memcached"

    def argv(self):
        need("memcached", "memcaslap", "memccapable")
        return ["memcached", *(["-u", "root"] if os.getuid() == 0 else []), "-l", "127.0.0.1", "-p",
                str(self.port), "-U", "0", "-c", "2000"]

    def load(self, *words):
        """It verifies what it reads."""
        return ["memcaslap", "-s", "127.0.0.1:%d" % self.port, "-v", "1.0", "-c", "32", "-T", "2",
                *(words or ("-t", "4s"))]

    def is_right(self, said):
        return all(word + ": 0\n" in said for word in ("verify_misses", "verify_failed"))

    def is_intact(self):
        return self.is_right(self.run(*self.load("-x", "1000")).stdout)


class Postgres(Store):
    """Refuses root: it runs as `postgres` then, which is to reach the build and the folder."""
    program = "postgres"
    package = "postgresql-15"

    def __init__(self, xsock, stream, folder):
        self.path, self.initdb, self.pgbench, self.psql = need("postgres", "initdb", "pgbench",
                                                               "psql")
        super().__init__(xsock, stream, folder)
        if os.getuid() == 0:
            entry = pwd.getpwnam("postgres")
            self.user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def prepare(self):
        # pytest's folders are closed to others.
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="xsock-postgres-"))
        if self.user:
            os.chown(folder, self.user["user"], self.user["group"])
            if subprocess.run([self.xsock or "true", "--version"], check=False, cwd="/",
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              **self.user).returncode != 0:
                pytest.skip("the user postgres cannot reach the build")
        self.user["cwd"] = folder
        self.user["env"] = dict(os.environ, LC_ALL="C.UTF-8", HOME=folder, PGHOST="127.0.0.1",
                                PGPORT=str(self.port), PGUSER="postgres", PGDATABASE="postgres",
                                PGSSLMODE="disable")
        self.data = os.path.join(folder, "data")
        self.initialise()

    def initialise(self):
        run([self.initdb, "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync",
             "--no-instructions"], **self.user)

    def argv(self):
        return [self.path, "-D", self.data, "-p", str(self.port), "-c", "unix_socket_directories=",
                "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=60"]

    def prepare_load(self):
        self.run(self.pgbench, "-iq", "-s", "2")

    def load(self):
        return [self.pgbench, "-c", "8", "-j", "2", "-T", "4"]

    def is_right(self, said):
        return "failed transactions: 0 " in said and "aborted" not in said

    def is_intact(self):
        return self.sql("""
            SELECT (SELECT sum(abalance) FROM pgbench_accounts) = sum,
                   (SELECT sum(bbalance) FROM pgbench_branches) = sum,
                   (SELECT sum(tbalance) FROM pgbench_tellers) = sum
            FROM (SELECT coalesce(sum(delta), 0) AS sum FROM pgbench_history) AS deltas
            """).stdout == "t|t|t\n"

    def sql(self, text, stream=None, **more):
        return self.run(self.psql, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, stream=stream,
                        **more)

    def end(self):
        """SIGINT: sessions are ended."""
        return self.server.end(ask=lambda: self.server.process.send_signal(signal.SIGINT))


class Standby(Postgres):
    """Follows another one, whose files it gets by pg_basebackup."""

    def __init__(self, first):
        super().__init__(first.xsock, first.stream, first.folder)
        self.first = first
        self.backup = None

    def initialise(self):
        backup = need("pg_basebackup")[0]
        self.backup = run(command(self.xsock, self.stream, backup, "-D", self.data, "-R", "-X",
                                  "stream", "-c", "fast", "-h", "127.0.0.1", "-p",
                                  str(self.first.port)), **self.user)


class MariaDb(Store):
    program = "mariadbd"
    package = "mariadb-server"

    def __init__(self, xsock, stream, folder):
        self.path, self.install = need("mariadbd", "mariadb-install-db", "mariadb", "sysbench")[:2]
        super().__init__(xsock, stream, folder)

    def prepare(self):
        self.own = ["--user=root"] if os.getuid() == 0 else []
        run([self.install, "--no-defaults", "--datadir=%s/data" % self.folder, *self.own,
             "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
             "--innodb-flush-log-at-trx-commit=0"])

    def argv(self):
        return [self.path, "--no-defaults", "--datadir=%s/data" % self.folder, *self.own,
                "--bind-address=127.0.0.1", "--port=%d" % self.port,
                "--socket=%s/socket" % self.folder, "--skip-name-resolve",
                "--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M"]

    def sql(self, text, stream=None, **more):
        return self.run("mariadb", "--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P",
                        str(self.port), "-u", "root", "--max-allowed-packet=64M", "-BN", "-e", text,
                        stream=stream, **more)

    def sysbench(self, *words):
        return ["sysbench", "oltp_read_write", "--mysql-host=127.0.0.1", "--mysql-user=root",
                "--mysql-port=%d" % self.port, "--mysql-db=test", "--tables=2",
                "--table-size=2000", *words]

    def prepare_load(self):
        self.sql("CREATE DATABASE test")
        self.run(*self.sysbench("prepare"))

    def load(self):
        return self.sysbench("--threads=8", "--time=4", "run")

    def is_right(self, said):
        return "total number of events:" in said and "FATAL" not in said

    def is_intact(self):
        """Each transaction leaves as many rows as there were."""
        return self.sql("SELECT count(*) FROM test.sbtest1; SELECT count(*) FROM test.sbtest2; "
                        "CHECK TABLE test.sbtest1, test.sbtest2").stdout == (
                            "2000\n2000\n" + "".join("test.sbtest%d\tcheck\tstatus\tOK\n" % n
                                                     for n in (1, 2)))


class Mosquitto(Store):
    program = "mosquitto"
    package = "mosquitto"

    def argv(self):
        path = need("mosquitto", "mosquitto_pub", "mosquitto_sub")[0]
        (self.folder / "conf").write_text(
            "listener %d 127.0.0.1\nallow_anonymous true\n%s" %
            (self.port, "user root\n" if os.getuid() == 0 else ""))
        return [path, "-v", "-c", str(self.folder / "conf")]

    def load(self):
        """A subscriber, and what it is told for 4 s."""
        return ["sh", "-c", 'to="-h 127.0.0.1 -p $1 -q 1 -t t"; mosquitto_sub $to -C 400 -W 60 & '
                'sleep 0.3; mosquitto_pub $to -m word --repeat 400 --repeat-delay 0.01; wait', "sh",
                str(self.port)]

    def is_right(self, said):
        return said.count("word\n") == 400

    def is_intact(self):
        return self.run(*self.client("mosquitto_rr", "-W", "60", "-V", "5", "-t", "x", "-e", "x",
                                     "-m", "here")).stdout == "here\n"

    def client(self, name, *words):
        return [name, "-h", "127.0.0.1", "-p", str(self.port), *words]


class Stunnel(Store):
    """TLS in front of a server at `plain_port`; `accept` of `client` is the way into it."""
    program = "stunnel4"
    package = "stunnel4"

    def __init__(self, xsock, stream, folder, to, client=False):
        super().__init__(xsock, stream, folder)
        self.to, self.client = to, client

    def argv(self):
        path = need("stunnel4", "openssl")[0]
        if not self.client:
            run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                 "/CN=localhost", "-keyout", str(self.folder / "key"), "-out",
                 str(self.folder / "cert")])
        (self.folder / "conf").write_text(
            "foreground = yes\npid =\n[one]\nclient = %s\n%saccept = 127.0.0.1:%d\n"
            "connect = 127.0.0.1:%d\n" % (
                "yes" if self.client else "no",
                "" if self.client else "cert = %s/cert\nkey = %s/key\n" % (self.folder, self.folder),
                self.port, self.to))
        return [path, str(self.folder / "conf")]


def signal_all(pid, number):
    for one in family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, number)


@contextlib.contextmanager
def loaded(kind, xsock, folder, endless=False):
    """A store, and a load under way."""
    with kind(xsock, "both", folder) as store:
        store.prepare_load()
        argv = store.endless_load() if endless else store.load()
        load = Server(command(xsock, "both", *argv), folder / "load", **store.user)
        try:
            wait_for("connection of the load", lambda: store.connections() > 0 or
                     load.process.poll() is not None)
            time.sleep(0.7)
            assert load.process.poll() is None, load.said()
            yield store, load
        finally:
            signal_all(load.process.pid, signal.SIGKILL)
            load.kill()
