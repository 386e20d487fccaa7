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

import pytest

from stream_runs import command, free_port, run, serving

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib/postgresql/15/bin"


def need(*programs):
    """Their paths; the case is skipped where one is not there."""
    found = [shutil.which(program, path=PATH) for program in programs]
    for program, path in zip(programs, found):
        if path is None:
            pytest.skip(program + " is not there")
    return found


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


class Store:
    """A server between __enter__() and __exit__()."""
    program = ""
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

    def run(self, *argv, stream=None, **more):
        """A program at the other end: as the server's user, whom `both` believes."""
        return run(command(self.xsock, stream, *argv), **self.user, **more)


class Redis(Store):
    program = "redis-server"

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

    def argv(self):
        need("memcached", "memcaslap", "memccapable")
        return ["memcached", *(["-u", "root"] if os.getuid() == 0 else []), "-l", "127.0.0.1", "-p",
                str(self.port), "-U", "0", "-c", "2000"]

    def memcaslap(self, *words, stream=None):
        """Verifies what it reads."""
        done = self.run("memcaslap", "-s", "127.0.0.1:%d" % self.port, "-v", "1.0", *words,
                        stream=stream)
        for word in ("get_misses", "verify_misses", "verify_failed"):
            assert word + ": 0\n" in done.stdout, done.stdout
        return done


class Postgres(Store):
    """Refuses root: it runs as `postgres` then, which is to reach the build and the folder."""
    program = "postgres"

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
        run([self.initdb, "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync",
             "--no-instructions"], **self.user)

    def argv(self):
        return [self.path, "-D", self.data, "-p", str(self.port), "-c", "unix_socket_directories=",
                "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=60"]

    def sql(self, text, stream=None, **more):
        return self.run(self.psql, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, stream=stream,
                        **more)

    def end(self):
        """SIGINT: sessions are ended."""
        return self.server.end(ask=lambda: self.server.process.send_signal(signal.SIGINT))


class MariaDb(Store):
    program = "mariadbd"

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

    def sysbench(self, test, *words, stream=None):
        return self.run("sysbench", test, "--mysql-host=127.0.0.1", "--mysql-port=%d" % self.port,
                        "--mysql-user=root", "--mysql-db=test", "--tables=2", "--table-size=2000",
                        *words, stream=stream)


class Mosquitto(Store):
    program = "mosquitto"

    def argv(self):
        path = need("mosquitto", "mosquitto_pub", "mosquitto_sub")[0]
        (self.folder / "conf").write_text(
            "listener %d 127.0.0.1\nallow_anonymous true\n%s" %
            (self.port, "user root\n" if os.getuid() == 0 else ""))
        return [path, "-v", "-c", str(self.folder / "conf")]

    def client(self, name, *words):
        return [name, "-h", "127.0.0.1", "-p", str(self.port), *words]


class Stunnel(Store):
    """TLS in front of a server at `plain_port`; `accept` of `client` is the way into it."""
    program = "stunnel4"

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
