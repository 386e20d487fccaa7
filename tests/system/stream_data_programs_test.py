# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Data stores and brokers of Debian in the byte-stream mode, both ends under `xsock run --stream`.
What they answer is checked, and what was carried is what their exit summaries say.

    pytest-3 tests/system/stream_data_programs_test.py --build build/release
"""
import hashlib
import random
import re
import subprocess

import pytest

import compatibility
from stream_runs import TIMEOUT, Server, carried, command, full, plain, run, wait_for
from stream_stores import MariaDb, Memcached, Mosquitto, Postgres, Redis, Standby, Stunnel


def test_rows_become_a_page(tmp_path):
    file = tmp_path / "rows"
    for count in (3, 5):
        compatibility.append(file, "bash", "one thing", count, {"unknown-peer": 1}, False)
    compatibility.append(file, "bash", "another, client plain", 2, {}, True)
    compatibility.append(file, "bash", "another, server plain", 2, {"unknown-peer": 4}, True)
    with open(file, encoding="utf-8") as lines:
        page = compatibility.page(lines)
    version = compatibility.version("bash")
    assert version != "?"
    assert "\n| bash | %s | one thing | 5 | 1 `unknown-peer` |\n\n" % version in page, page
    assert page.endswith("\n| bash | another | no socket | 4 `unknown-peer` |\n"), page


# ---- redis ----------------------------------------------------------------

@pytest.mark.parametrize("pipeline", [1, 16])
def test_redis_benchmark(xsock, row, tmp_path, pipeline):
    with Redis(xsock, "both", tmp_path) as redis:
        done = redis.benchmark("-n", "20000", "-c", "50", "-P", str(pipeline), "-t",
                               "set,get,incr,lpush,lrange_100,mset", stream="both")
        assert len(done.stdout.splitlines()) >= 6, done.stdout
        assert carried(done.stderr) >= 6 * 50 and not plain(done.stderr), done.stderr
        assert redis.get("get", "counter:__rand_int__") == "20000"
        assert redis.get("llen", "mylist") == "40000"
        said = redis.server.end()
    assert carried(said) >= 6 * 50, said
    row("redis-server", "redis-benchmark -P %d, 50 clients" % pipeline, said, done.stderr)


def test_redis_publishes(xsock, row, tmp_path):
    count = 3000
    with Redis(xsock, "both", tmp_path) as redis:
        got = tmp_path / "got"
        listener = Server(redis.cli_command("--raw", "psubscribe", "c*", stream="both"), got)
        try:
            wait_for("subscription", lambda: redis.get("publish", "nobody", "") == "0" and
                     redis.get("pubsub", "numpat") == "1")
            words = "".join("publish c%d word-%d\n" % (n % 7, n) for n in range(count))
            sent = redis.cli(stream="both", input=words)
            assert carried(sent.stderr) == 1 and sent.stdout.split() == ["1"] * count, sent.stderr
            wait_for("last word", lambda: "word-%d\n" % (count - 1) in listener.said())
            said = redis.server.end()
            heard = listener.end(ask=lambda: listener.process.terminate(), status=(-15, 143, 0, 1))
        finally:
            listener.kill()
    assert re.findall(r"^word-(\d+)$", heard, re.M) == [str(n) for n in range(count)]
    row("redis-server", "publish and psubscribe of redis-cli", said, sent.stderr)


def test_redis_pipe(xsock, row, tmp_path):
    count = 100_000
    commands = "".join("SET key:%d value:%d:%s\r\n" % (n, n, "x" * (n % 300))
                       for n in range(count))
    with Redis(xsock, "both", tmp_path) as redis, Redis(None, None, tmp_path) as other:
        done = redis.cli("--pipe", stream="both", input=commands)
        assert "errors: 0, replies: %d" % count in done.stdout and carried(done.stderr) == 1
        other.cli("--pipe", input=commands)
        digest = redis.get("debug", "digest")
        assert digest == other.get("debug", "digest") and len(digest) == 40
        said = redis.server.end()
    assert carried(said) >= 2, said
    row("redis-server", "redis-cli --pipe, 100,000 commands", said, done.stderr)


# The child that saves has its parent's connections too, while clients close theirs, and is killed.
@full
def test_redis_saves_while_clients_close(xsock, row, tmp_path):
    with Redis(xsock, "both", tmp_path, "--rdb-key-save-delay", "2000") as redis:
        redis.cli("debug", "populate", "2000")
        killed = 0
        for keep in ("1", "0", "0"):
            assert "started" in redis.get("bgsave")
            load = subprocess.Popen(
                command(xsock, "both", "redis-benchmark", "-p", str(redis.port), "-n", "6000", "-c",
                        "300", "-k", keep, "-t", "set,get", "--csv"),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                wait_for("sets", lambda: redis.get("get", "key:__rand_int__") != "")
                killed += redis.kill_saving_child()
                out, said = load.communicate(timeout=TIMEOUT)
            finally:
                load.kill()
            assert load.returncode == 0 and '"GET"' in out and "rror" not in out, (out, said)
            assert carried(said) >= 300 and not plain(said), said
            redis.cli("del", "key:__rand_int__")
            wait_for("end of the child", lambda: "rdb_bgsave_in_progress:0" in
                     redis.get("info", "persistence"))
        assert killed == 3 and redis.get("dbsize") == "2000"
        redis.cli("config", "set", "rdb-key-save-delay", "0")
        redis.cli("save")
        said = redis.server.end()
    assert carried(said) >= 900, said
    row("redis-server", "BGSAVE under load, the saving child killed", said)


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_redis_replica(xsock, row, tmp_path, diskless):
    sync = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"]
    with Redis(xsock, "both", tmp_path, *sync) as first:
        first.cli("debug", "populate", "20000", "key", "1000")
        with Redis(xsock, "both", tmp_path, "--replicaof", "127.0.0.1 %d" % first.port) as second:
            wait_for("link", lambda: "master_link_status:up" in second.get("info", "replication"))
            first.benchmark("-n", "20000", "-c", "20", "-P", "8", "-r", "1000", "-t", "set,lpush",
                            stream="both")
            assert first.get("wait", "1", "60000") == "1"
            assert first.get("debug", "digest") == second.get("debug", "digest")
            replica_said = second.server.end()
        said = first.server.end()
    assert carried(replica_said) == 2, "its listener and the link: " + replica_said
    row("redis-server", "a replica, %s sync" % ("diskless" if diskless == "yes" else "file"), said,
        replica_said)


# ---- memcached ------------------------------------------------------------

@full
def test_memcached(xsock, row, tmp_path):
    with Memcached(xsock, "both", tmp_path) as store:
        done = store.run(*store.load("-x", "20000"), stream="both")
        assert store.is_right(done.stdout), done.stdout
        assert carried(done.stderr) == 32 and not plain(done.stderr), done.stderr
        conforms = store.run("memccapable", "-h", "127.0.0.1", "-p", str(store.port), stream="both")
        assert "All tests passed" in conforms.stdout and "[FAIL]" not in conforms.stdout
        assert carried(conforms.stderr) >= 2 and not plain(conforms.stderr), conforms.stderr
        said = store.server.end()
    assert carried(said) >= 34 and not plain(said), said
    row("memcached", "memcaslap, 32 clients, and memccapable", said, done.stderr, conforms.stderr)


# ---- PostgreSQL -----------------------------------------------------------

def test_postgresql_pgbench(xsock, row, tmp_path):
    with Postgres(xsock, "both", tmp_path) as store:
        made = store.run(store.pgbench, "-iq", "-s", "2", stream="both")
        assert carried(made.stderr) == 1, made.stderr
        reads = store.run(store.pgbench, "-S", "-c", "8", "-j", "2", "-t", "1000", stream="both")
        writes = store.run(store.pgbench, "-c", "8", "-j", "2", "-t", "100", stream="both")
        for done, count in ((reads, 8000), (writes, 800)):
            assert "processed: %d/%d\n" % (count, count) in done.stdout, done.stdout
            assert "failed transactions: 0 " in done.stdout, done.stdout
            assert carried(done.stderr) >= 8 and not plain(done.stderr), done.stderr
        assert store.sql("SELECT count(*) FROM pgbench_history").stdout == "800\n"
        assert store.is_intact()
        said = store.end()
    # (and two of psql; the listener, which the postmaster closes in a signal handler)
    assert carried(said) >= 18 and plain(said) == {"fallback-not-mpa": 2}, said
    row("postgresql-15", "pgbench: -i, -S and TPC-B, 8 clients", said, made.stderr, reads.stderr,
        writes.stderr)


@full
def test_postgresql_psql(xsock, row, tmp_path):
    rows = "".join("%d\tword %d %s\n" % (n, n, "y" * (n % 500)) for n in range(40_000))
    with Postgres(xsock, "both", tmp_path) as store:
        store.sql("CREATE TABLE t (n int, word text)")
        sent = store.sql("COPY t FROM STDIN", stream="both", input=rows)
        back = store.sql("COPY (SELECT * FROM t ORDER BY n) TO STDOUT", stream="both")
        assert back.stdout == rows
        large = store.sql("SELECT repeat('0123456789abcdef', 1 << 21)", stream="both").stdout
        assert large == "0123456789abcdef" * (1 << 21) + "\n"
        assert carried(sent.stderr) == carried(back.stderr) == 1, sent.stderr + back.stderr
        said = store.end()
    assert carried(said) >= 3, said
    row("postgresql-15", "psql: COPY both ways, a value of 32 MiB", said, sent.stderr, back.stderr)


# libpq's calls that do not block: connecting, queries, notifications, cancelling.
ASYNCHRONOUS = """
import select, sys, psycopg2, psycopg2.extensions as e
def wait(c):
    while (state := c.poll()) != e.POLL_OK:
        read, write = ([c], []) if state == e.POLL_READ else ([], [c])
        assert any(select.select(read, write, [], 60)), "nothing in 60 s"
many = [psycopg2.connect("", async_=1) for _ in range(10)]
for c in many: wait(c)
cursors = [c.cursor() for c in many]
for n, cursor in enumerate(cursors): cursor.execute("SELECT %s, repeat('z', 1000000)", (n,))
for n, (c, cursor) in enumerate(zip(many, cursors)):
    wait(c)
    assert cursor.fetchall() == [(n, "z" * 1000000)]
cursors[0].execute("LISTEN news"); wait(many[0])
for n in range(100):
    cursors[1].execute("SELECT pg_notify('news', %s)", (str(n),)); wait(many[1])
heard = []
while len(heard) < 100:
    assert select.select([many[0]], [], [], 60)[0], heard
    many[0].poll()
    heard += [n.payload for n in many[0].notifies]; many[0].notifies.clear()
assert heard == [str(n) for n in range(100)], heard
slow = psycopg2.connect("")
import threading
threading.Timer(0.5, slow.cancel).start()
try:
    slow.cursor().execute("SELECT pg_sleep(100)")
    sys.exit("not cancelled")
except e.QueryCanceledError:
    slow.rollback()
cursor = slow.cursor()
cursor.execute("SELECT 1"); assert cursor.fetchall() == [(1,)]
"""


@full
def test_postgresql_asynchronous_calls(xsock, row, tmp_path):
    python = "/usr/bin/python3"  # that which psycopg2 is installed for
    if run([python, "-c", "import psycopg2"], status=(0, 1)).returncode != 0:
        pytest.skip("python3-psycopg2 is not there")
    with Postgres(xsock, "both", tmp_path) as store:
        done = store.run(python, "-c", ASYNCHRONOUS, stream="both")
        assert carried(done.stderr) == 12 and not plain(done.stderr), done.stderr
        said = store.end()
    assert carried(said) >= 12, said
    row("postgresql-15", "libpq's asynchronous calls: queries, LISTEN, cancel", said, done.stderr)


# ---- MariaDB: the server speaks first -------------------------------------

def test_mariadb(xsock, row, tmp_path):
    with MariaDb(xsock, "both", tmp_path) as store:
        store.prepare_load()
        done = store.run(*store.sysbench("--threads=8", "--events=400", "--time=0", "run"),
                         stream="both")
        assert re.search(r"transactions: +400 ", done.stdout), done.stdout
        assert re.search(r"total number of events: +400\n", done.stdout), done.stdout
        assert carried(done.stderr) == 8 and not plain(done.stderr), done.stderr
        blob = hashlib.sha256(b"q" * (20 << 20)).hexdigest()
        asked = store.sql("SELECT SHA2(REPEAT('q', 20 << 20), 256); SELECT REPEAT('q', 20 << 20)",
                          stream="both")
        assert asked.stdout == blob + "\n" + "q" * (20 << 20) + "\n" and carried(asked.stderr) == 1
        assert store.is_intact()
        said = store.server.end()
    assert carried(said) >= 10, said
    row("mariadb-server", "sysbench oltp_read_write, 8 clients; a value of 20 MiB", said,
        done.stderr, asked.stderr)


@full
def test_mariadb_slap(xsock, row, tmp_path):
    with MariaDb(xsock, "both", tmp_path) as store:
        done = store.run("mariadb-slap", "--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P",
                         str(store.port), "-u", "root", "--auto-generate-sql", "--concurrency=20",
                         "--iterations=5", "--number-of-queries=2000", "--create-schema=slap",
                         stream="both")
        assert "Average number of seconds" in done.stdout and carried(done.stderr) >= 100, done
        said = store.server.end()
    assert carried(said) >= 100, said
    row("mariadb-server", "mariadb-slap, 20 clients", said, done.stderr)


# ---- mosquitto, stunnel ---------------------------------------------------

@full
def test_mosquitto(xsock, row, tmp_path):
    count = 500
    words = ["%d %s" % (n, "w" * (n * 7 % 900)) for n in range(count)]
    with Mosquitto(xsock, "both", tmp_path) as broker:
        listener = Server(command(xsock, "both", *broker.client(
            "mosquitto_sub", "-q", "1", "-t", "news/#", "-C", str(count), "-W", str(TIMEOUT))),
                          tmp_path / "heard")
        try:
            # Its subscription is there when a word arrives.
            wait_for("subscription", lambda: broker.run(*broker.client(
                "mosquitto_pub", "-r", "-t", "ready", "-m", "")) and
                     "SUBSCRIBE" in broker.server.said())
            sent = broker.run(*broker.client("mosquitto_pub", "-q", "1", "-t", "news/one", "-l"),
                              stream="both", input="\n".join(words) + "\n")
            heard = listener.end(ask=lambda: None)
        finally:
            listener.kill()
        assert heard.split("\nxsock: ")[0].splitlines() == words
        large = tmp_path / "large"
        large.write_bytes(random.Random(3).randbytes(5_000_000))
        back = tmp_path / "back"
        broker.run(*broker.client("mosquitto_pub", "-q", "1", "-r", "-t", "file", "-f", str(large)),
                   stream="both")
        with open(back, "wb") as into:
            got = subprocess.run(
                command(xsock, "both", *broker.client("mosquitto_sub", "-t", "file", "-C", "1", "-N")),
                stdout=into, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True)
        assert back.read_bytes() == large.read_bytes()
        assert carried(heard) == carried(sent.stderr) == carried(got.stderr) == 1
        said = broker.server.end()
    assert carried(said) >= 5, said
    row("mosquitto", "mosquitto_pub and mosquitto_sub: 500 messages, one of 5 MB", said, heard,
        sent.stderr)


@full
def test_stunnel_before_redis(xsock, row, tmp_path):
    with Redis(xsock, "both", tmp_path) as redis, \
            Stunnel(xsock, "both", tmp_path, redis.port) as far, \
            Stunnel(xsock, "both", tmp_path, far.port, client=True) as near:
        redis.port, port = near.port, redis.port
        done = redis.benchmark("-n", "3000", "-c", "20", "-t", "set,get,lrange_100", stream="both")
        assert carried(done.stderr) >= 60 and not plain(done.stderr), done.stderr
        word = "".join(random.Random(4).choices("abcdef", k=3_000_000))
        redis.cli("-x", "set", "large", input=word)
        assert redis.get("get", "large") == word
        redis.port = port
        said = [store.server.end() for store in (near, far, redis)]
    assert min(map(carried, said)) >= 60, said
    row("stunnel4", "TLS between redis-benchmark and redis-server", *said, done.stderr)


# The standby connects in a child that its postmaster forks in a signal handler, which interrupted
# select() on the listener. The child never returns from it, and its connection is carried too.
@full
def test_postgresql_standby(xsock, row, tmp_path):
    with Postgres(xsock, "both", tmp_path) as first:
        first.prepare_load()
        with Standby(first) as second:
            first.run(first.pgbench, "-c", "4", "-t", "100", stream="both")
            wanted = first.sql("SELECT pg_current_wal_lsn()").stdout.strip()
            wait_for("replay", lambda: second.sql(
                "SELECT pg_last_wal_replay_lsn() >= '%s'" % wanted).stdout == "t\n")
            assert second.sql("SELECT count(*) FROM pgbench_history").stdout == "400\n"
            assert second.is_intact()
            standby_said = second.end()
        said = first.end()
    assert plain(second.backup.stderr) == {"policy-tcp": 2}, second.backup.stderr
    assert "streaming" in standby_said and "FATAL:  could not" not in standby_said, standby_said
    assert "did not ask for DDPMODE" not in standby_said, standby_said
    row("postgresql-15", "pg_basebackup and a standby", said, second.backup.stderr, standby_said)
