# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Data stores and brokers in the byte-stream mode while the way between both ends is cut for some
seconds, or resets their connections. What was cut goes on; what was reset ends, at both ends.

    tests/support/own_network.sh pytest-3 tests/system/stream_network_chaos_test.py --build build/release
"""
import time

import pytest

from stream_runs import CUT, RESET, carried, full, on_the_way, wait_for
from stream_stores import MariaDb, Memcached, Mosquitto, Postgres, Redis, loaded

STORES = [Redis, Memcached, Postgres, MariaDb, Mosquitto]


@pytest.mark.parametrize("kind", STORES)
@full
def test_a_way_that_is_cut_for_some_seconds(xsock, tmp_path, kind):
    with loaded(kind, xsock, tmp_path) as (store, load):
        with on_the_way(CUT):
            time.sleep(3)
        said = load.end(ask=lambda: None)
        assert store.is_right(said) and carried(said) > 0, said
        assert store.is_intact()
        assert carried(store.end()) > 1


@pytest.mark.parametrize("kind", STORES)
@full
def test_connections_that_are_reset_from_the_way(xsock, tmp_path, kind):
    with loaded(kind, xsock, tmp_path) as (store, load):
        before = store.connections()
        with on_the_way(RESET):
            wait_for("end of all connections", lambda: store.connections() == 0)
        # Some programs end then, some connect again: those go on until they have done their work.
        load.process.wait(timeout=120)
        wait_for("end of the others", lambda: store.connections() == 0)
        assert before > 0 and store.is_intact()
        done = store.run(*store.load(), stream="both")
        assert store.is_right(done.stdout) and carried(done.stderr) > 0, done
        assert carried(store.end()) > 1  # the listener is one
