# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Data stores and brokers in the byte-stream mode: toward a peer without xsock, and while one end is
stopped for some seconds or killed. Nothing hangs, and what is answered and stored is right.

    pytest-3 tests/system/stream_data_chaos_test.py --build build/release
"""
import signal
import time

import pytest

from stream_runs import TIMEOUT, carried, full, plain, wait_for
from stream_stores import MariaDb, Memcached, Mosquitto, Postgres, Redis, loaded, signal_all

STORES = [Redis, Memcached, Postgres, MariaDb, Mosquitto]


@pytest.mark.parametrize("without", ["client", "server"])
@pytest.mark.parametrize("kind", STORES)
@full
def test_one_end_without_xsock(xsock, row, tmp_path, kind, without):
    modes = (None, "both") if without == "server" else ("both", None)
    with kind(xsock, modes[0], tmp_path) as store:
        store.prepare_load()
        done = store.run(*store.load(), stream=modes[1])
        assert store.is_right(done.stdout) and store.is_intact(), done
        said = (done.stderr if without == "server" else store.end())
    assert carried(said) <= 1 and plain(said), "the server's listener at most: " + said
    row(kind.package, "the %s without xsock" % without, said, one_end=True)


@pytest.mark.parametrize("end", ["client", "server"])
@pytest.mark.parametrize("kind", STORES)
@full
def test_one_end_stops_for_some_seconds(xsock, tmp_path, kind, end):
    with loaded(kind, xsock, tmp_path) as (store, load):
        pid = (load if end == "client" else store.server).process.pid
        signal_all(pid, signal.SIGSTOP)
        time.sleep(3)
        signal_all(pid, signal.SIGCONT)
        said = load.end(ask=lambda: None)
        assert store.is_right(said) and carried(said) > 0, said
        assert store.is_intact()
        store.end()


@pytest.mark.parametrize("kind", STORES)
@full
def test_a_killed_client_leaves_nothing_behind(xsock, tmp_path, kind):
    with loaded(kind, xsock, tmp_path) as (store, load):
        signal_all(load.process.pid, signal.SIGKILL)
        wait_for("end of its connections", lambda: store.connections() == 0)
        assert store.is_intact()
        done = store.run(*store.load(), stream="both")
        assert store.is_right(done.stdout) and carried(done.stderr) > 0, done
        assert carried(store.end()) > 1  # the listener is one


# (mosquitto's clients wait for another one)
@pytest.mark.parametrize("kind", STORES[:-1])
@full
def test_a_killed_server_ends_its_client(xsock, tmp_path, kind):
    with loaded(kind, xsock, tmp_path, endless=True) as (store, load):
        signal_all(store.server.process.pid, signal.SIGKILL)
        load.process.wait(timeout=TIMEOUT)
        assert carried(load.said()) > 0, load.said()
