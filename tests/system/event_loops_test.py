# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Event loops of Python over sockets in DDPMODE, as programs write them: to be run with the preload
library. Each test is a server and clients in one process; every byte is checked, and that the
messages did go by iWARP.

    LD_PRELOAD=.../libxsock-preload.so pytest-3 tests/system/event_loops_test.py -k edges
"""
import asyncio
import errno
import os
import random
import select
import selectors
import signal
import socket
import threading
import time
import traceback

SOL_XSOCK = 0x5853
DDPMODE = 1
DDPREQUIRE = 3

LIMIT = 20  # seconds; nothing that works comes near it


def ddp_socket(require=False):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(SOL_XSOCK, DDPMODE, 1)
    if require:
        s.setsockopt(SOL_XSOCK, DDPREQUIRE, 1)
    return s


def listener(backlog=128, require=False):
    s = ddp_socket(require)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    s.listen(backlog)
    return s


def client(address):
    s = ddp_socket(True)
    s.connect(address)
    return s


def payload(seed, size):
    return random.Random(seed).randbytes(size)


# ---- asyncio -------------------------------------------------------------------------------------

async def asyncio_echo(clients=20, rounds=30):
    async def serve(reader, writer):
        while True:
            data = await reader.read(65536)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, sock=listener())
    address = server.sockets[0].getsockname()

    async def talk(number):
        s = ddp_socket(True)
        s.setblocking(False)
        await asyncio.get_running_loop().sock_connect(s, address)
        reader, writer = await asyncio.open_connection(sock=s)
        for i in range(rounds):
            data = payload(number * 1000 + i, random.Random(i).choice((1, 64, 4096, 60000)))
            writer.write(data)
            await writer.drain()
            assert await reader.readexactly(len(data)) == data
            if i % 10 == 0:
                await asyncio.sleep(0.01)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(talk(n) for n in range(clients)))
    server.close()
    await server.wait_closed()


def test_asyncio():
    asyncio.run(asyncio.wait_for(asyncio_echo(), LIMIT))


def test_asyncio_timers_and_threads():
    """Timers, a thread that calls in, and a peer that stays silent, in one loop."""
    async def main():
        loop = asyncio.get_running_loop()
        served, quiet = pair()
        quiet.setblocking(False)
        done = asyncio.Event()
        thread = threading.Timer(0.2, lambda: loop.call_soon_threadsafe(done.set))
        thread.start()
        ticks = 0
        reading = asyncio.ensure_future(loop.sock_recv(quiet, 10))
        while not done.is_set():
            await asyncio.sleep(0.01)
            ticks += 1
        assert 3 < ticks < 40, ticks
        served.send(b"at last")
        assert await reading == b"at last"
        thread.join()
        for s in (quiet, served):
            s.close()

    asyncio.run(asyncio.wait_for(main(), LIMIT))


# ---- selectors, poll, select, epoll --------------------------------------------------------------

def selector_echo(make):
    """A non-blocking server on one selector, with DDPMODE and plain clients on one port."""
    a = listener()
    a.setblocking(False)
    stop_read, stop_write = os.pipe()
    failures = []

    def serve():
        selector = make()
        selector.register(a, selectors.EVENT_READ, None)
        selector.register(stop_read, selectors.EVENT_READ, "stop")
        while True:
            for key, events in selector.select(LIMIT):
                if key.data == "stop":
                    selector.close()
                    return
                if key.data is None:
                    try:
                        s, _ = a.accept()
                    except BlockingIOError:
                        continue
                    s.setblocking(False)
                    selector.register(s, selectors.EVENT_READ, [s, b""])
                    continue
                s, pending = key.data
                try:
                    if events & selectors.EVENT_READ:
                        data = s.recv(65536)
                        if not data:
                            selector.unregister(s)
                            s.close()
                            continue
                        key.data[1] += data
                    if key.data[1]:
                        sent = s.send(key.data[1])
                        key.data[1] = key.data[1][sent:]
                except BlockingIOError:
                    pass
                selector.modify(s, selectors.EVENT_READ | (
                    selectors.EVENT_WRITE if key.data[1] else 0), key.data)

    def talk(number):
        try:
            if number % 4 == 3:
                s = socket.create_connection(a.getsockname())
            else:
                s = client(a.getsockname())
            s.settimeout(LIMIT)
            for i in range(40):
                data = payload(number * 1000 + i, (1, 64, 3000)[i % 3])
                s.sendall(data)
                back = b""
                while len(back) < len(data):
                    piece = s.recv(65536)
                    assert piece, "end of file"
                    back += piece
                assert back == data
            s.close()
        except BaseException:
            failures.append(traceback.format_exc())

    server = threading.Thread(target=serve)
    server.start()
    clients = [threading.Thread(target=talk, args=(n,)) for n in range(12)]
    for t in clients:
        t.start()
    for t in clients:
        t.join()
    os.write(stop_write, b"x")
    server.join(LIMIT)
    assert not server.is_alive()
    assert not failures, failures[0]
    for fd in (stop_read, stop_write):
        os.close(fd)
    a.close()


def test_epoll_selector():
    selector_echo(selectors.EpollSelector)


def test_poll_selector():
    selector_echo(selectors.PollSelector)


def test_select_selector():
    selector_echo(selectors.SelectSelector)


def pair():
    """A server's end and a client's."""
    a = listener()
    made = []
    t = threading.Thread(target=lambda: made.append(client(a.getsockname())))
    t.start()
    s, _ = a.accept()
    select.select([s], [], [], 0)  # looks at the peer, which has been waiting for that
    t.join(LIMIT)
    c, = made
    c.send(b"first")
    assert s.recv(100) == b"first"
    a.close()
    return s, c


def test_poll_bits():
    s, c = pair()
    p = select.poll()
    p.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    assert dict(p.poll(0)) == {s.fileno(): select.POLLOUT}
    c.send(b"x")
    deadline = time.monotonic() + LIMIT
    while dict(p.poll(0)) != {s.fileno(): select.POLLIN | select.POLLOUT}:
        assert time.monotonic() < deadline
    assert s.recv(10) == b"x"
    c.shutdown(socket.SHUT_WR)
    wanted = select.POLLIN | select.POLLOUT | select.POLLRDHUP
    while dict(p.poll(0)) != {s.fileno(): wanted}:
        assert time.monotonic() < deadline
    assert s.recv(10) == b""
    s.close()
    c.close()


def expect_edge(e, sender, receiver, message):
    sender.send(message)
    assert e.poll(LIMIT) == [(receiver.fileno(), select.EPOLLIN)]
    assert e.poll(0) == []
    assert receiver.recv(100) == message


def test_edges():
    """Edge-triggered epoll: one event for each arrival, none for what was seen."""
    s, c = pair()
    s.setblocking(False)
    e = select.epoll()
    e.register(s, select.EPOLLIN | select.EPOLLET)
    assert e.poll(0.05) == []
    for i in range(20):
        expect_edge(e, c, s, b"m%d" % i)
        try:
            s.recv(100)
            raise AssertionError("a message from nowhere")
        except BlockingIOError:
            pass
    e.modify(s, select.EPOLLOUT | select.EPOLLONESHOT)
    assert e.poll(LIMIT) == [(s.fileno(), select.EPOLLOUT)]
    assert e.poll(0.05) == []
    number = s.fileno()
    c.close()
    e.modify(number, select.EPOLLIN | select.EPOLLRDHUP)
    (fd, events), = e.poll(LIMIT)
    assert fd == number and events & select.EPOLLRDHUP
    s.close()
    assert e.poll(0.05) == []
    e.close()


def test_writable():
    """A reader that does not read: not writable in the end, and again once it reads."""
    s, c = pair()
    c.setblocking(False)
    sent = 0
    p = select.poll()
    p.register(c, select.POLLOUT)
    block = payload(1, 60000)
    quiet = 0
    while quiet < 3:
        try:
            c.send(block)
            sent += 1
            quiet = 0
        except BlockingIOError:
            quiet += 1 if not p.poll(100) else 0
        assert sent < 100000
    for _ in range(sent):
        assert s.recv(1 << 20) == block
    assert p.poll(LIMIT * 1000) == [(c.fileno(), select.POLLOUT)]
    c.send(b"again")
    assert s.recv(100) == b"again"
    s.close()
    c.close()


def test_connect_in_progress():
    a = listener()
    s = ddp_socket(True)
    s.setblocking(False)
    code = s.connect_ex(a.getsockname())
    assert code == errno.EINPROGRESS, code
    accepted = []
    t = threading.Thread(target=lambda: accepted.append(a.accept()[0].recv(10)))
    t.start()
    _, writable, _ = select.select([], [s], [], LIMIT)
    assert writable == [s]
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    s.send(b"hello")
    t.join(LIMIT)
    assert accepted == [b"hello"]
    s.close()
    a.close()
    # No listener there.
    gone = socket.socket()
    gone.bind(("127.0.0.1", 0))
    address = gone.getsockname()
    gone.close()
    s = ddp_socket(True)
    s.setblocking(False)
    code = s.connect_ex(address)
    if code == errno.EINPROGRESS:
        p = select.poll()
        p.register(s, select.POLLOUT)
        assert p.poll(LIMIT * 1000)[0][1] & (select.POLLERR | select.POLLHUP)
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
    else:
        assert code == errno.ECONNREFUSED, code
    s.close()


def test_required_listener():
    """Readable means that accept() returns one whose start-up has ended."""
    a = listener(require=True)
    a.setblocking(False)
    e = select.epoll()
    e.register(a, select.EPOLLIN)
    silent = socket.create_connection(a.getsockname())
    assert e.poll(0.2) == []
    c = ddp_socket(True)
    t = threading.Thread(target=c.connect, args=(a.getsockname(),))
    t.start()
    assert e.poll(LIMIT) == [(a.fileno(), select.EPOLLIN)]
    s, _ = a.accept()
    t.join(LIMIT)
    c.send(b"x")
    assert s.recv(10) == b"x"
    for x in (silent, c, s, a, e):
        x.close()


def test_fallback_in_a_set():
    """A peer that turns out to be plain goes on in the set, slow as it may be."""
    a = listener()
    e = select.epoll()
    plain = socket.create_connection(a.getsockname())
    slow = socket.create_connection(a.getsockname())
    seen = {}
    conns = {}
    for _ in range(2):
        s, peer = a.accept()
        s.setblocking(False)
        e.register(s, select.EPOLLIN | select.EPOLLET)
        conns[s.fileno()] = s
        seen[s.fileno()] = (peer, b"")

    def write():
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        for byte in b"MPA ID Req Fram? no":
            slow.sendall(bytes([byte]))
            time.sleep(0.01)
        plain.sendall(b"more")
        plain.shutdown(socket.SHUT_WR)
        slow.shutdown(socket.SHUT_WR)

    t = threading.Thread(target=write)
    t.start()
    open_ones = set(conns)
    deadline = time.monotonic() + LIMIT
    while open_ones:
        assert time.monotonic() < deadline, seen
        for fd, _ in e.poll(LIMIT):
            while True:
                try:
                    data = conns[fd].recv(100)
                except BlockingIOError:
                    break
                peer, before = seen[fd]
                seen[fd] = (peer, before + data)
                if not data:
                    open_ones.discard(fd)
                    break
    t.join()
    by_peer = dict(seen.values())
    assert by_peer[plain.getsockname()] == b"GET / HTTP/1.0\r\n\r\nmore", by_peer
    assert by_peer[slow.getsockname()] == b"MPA ID Req Fram? no", by_peer
    for x in list(conns.values()) + [plain, slow, a]:
        x.close()
    assert e.poll(0.05) == []
    e.close()


def test_server_speaks_first():
    """A program that polls for room to write and writes first has decided for plain TCP."""
    a = listener()
    plain = socket.create_connection(a.getsockname())
    s, _ = a.accept()
    s.setblocking(False)
    assert select.select([], [s], [], LIMIT)[1] == [s]
    s.send(b"220 ready\r\n")
    assert plain.recv(100) == b"220 ready\r\n"
    plain.send(b"HELO\r\n")
    assert select.select([s], [], [], LIMIT)[0] == [s]
    assert s.recv(100) == b"HELO\r\n"
    for x in (a, plain, s):
        x.close()


def test_nested():
    s, c = pair()
    inner, outer = select.epoll(), select.epoll()
    outer.register(inner.fileno(), select.EPOLLIN)
    inner.register(s, select.EPOLLIN)
    assert outer.poll(0.05) == []
    c.send(b"x")
    assert outer.poll(LIMIT) == [(inner.fileno(), select.EPOLLIN)]
    p = select.poll()
    p.register(inner.fileno(), select.POLLIN)
    assert p.poll(LIMIT * 1000) == [(inner.fileno(), select.POLLIN)]
    assert inner.poll(LIMIT) == [(s.fileno(), select.EPOLLIN)]
    assert s.recv(10) == b"x"
    assert inner.poll(0) == []
    assert outer.poll(0.05) == []
    for x in (s, c, inner, outer):
        x.close()


def test_signals():
    """A handler runs although the loop sleeps, and the sleep goes on behind it."""
    s, c = pair()
    hits = []
    before = signal.signal(signal.SIGALRM, lambda *_: hits.append(time.monotonic()))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.003)
    e = select.epoll()
    e.register(s, select.EPOLLIN)
    begin = time.monotonic()
    try:
        assert e.poll(0.3) == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begin >= 0.3
    # Held back, all of them would be one at the end. On a busy machine far fewer come than were set.
    assert len(hits) > 3, len(hits)
    for x in (s, c, e):
        x.close()


def test_in_a_set_before_the_option():
    """Descriptors that are in epoll sets before they are in DDPMODE stay in them."""
    a = socket.socket()
    a.bind(("127.0.0.1", 0))
    a.listen(8)
    sets = [select.epoll(), select.epoll()]
    for e in sets:
        e.register(a, select.EPOLLIN)
    a.setsockopt(SOL_XSOCK, DDPMODE, 1)
    a.setsockopt(SOL_XSOCK, DDPREQUIRE, 1)

    c = socket.socket()
    c.setblocking(False)
    out, into = select.epoll(), select.epoll()
    out.register(c, select.EPOLLOUT | select.EPOLLONESHOT)
    into.register(c, select.EPOLLIN | select.EPOLLET)
    out.poll(0), into.poll(0)  # a fresh socket is hung up
    c.setsockopt(SOL_XSOCK, DDPMODE, 1)
    c.setsockopt(SOL_XSOCK, DDPREQUIRE, 1)
    assert out.poll(0) == []
    out.modify(c, select.EPOLLOUT | select.EPOLLONESHOT)
    assert c.connect_ex(a.getsockname()) == errno.EINPROGRESS
    for e in sets:
        assert e.poll(LIMIT) == [(a.fileno(), select.EPOLLIN)]
    s, _ = a.accept()
    for e in sets:
        assert e.poll(0) == []
    # Start-up has ended, not only TCP's.
    assert out.poll(LIMIT) == [(c.fileno(), select.EPOLLOUT)]
    assert out.poll(0.05) == []
    c.send(b"one")
    assert s.recv(100) == b"one"
    for i in range(20):
        expect_edge(into, s, c, b"m%d" % i)
    try:
        into.register(c, select.EPOLLIN)
        raise AssertionError("in the set twice")
    except FileExistsError:
        pass
    into.unregister(c)
    s.send(b"unseen")
    assert into.poll(0.05) == []
    # One that never is in DDPMODE, after one that was: by the same number, and not told of.
    number = c.fileno()
    c.close()
    p = socket.socket()
    assert p.fileno() == number
    out.register(p, select.EPOLLHUP)
    assert out.poll(LIMIT) == [(number, select.EPOLLHUP)]
    for x in [s, a, p, out, into] + sets:
        x.close()


def test_asleep_before_the_first_member():
    """Threads that sleep in epoll_wait() when the set gets its first member in DDPMODE hear of it."""
    for limit in (None, LIMIT):
        e = select.epoll()
        r, w = os.pipe()
        e.register(r, select.EPOLLIN)
        heard = []

        def sleep():
            # Python goes on with what is left of the time when a signal seems to have come.
            heard.append(e.poll(limit, 1))

        threads = [threading.Thread(target=sleep) for _ in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.2)
        s, c = pair()
        time.sleep(0.1)
        assert heard == []
        e.register(c, select.EPOLLIN | select.EPOLLET)
        time.sleep(0.1)
        assert heard == []
        for i in range(3):
            s.send(b"%d" % i)
            deadline = time.monotonic() + LIMIT
            while len(heard) <= i:
                assert time.monotonic() < deadline, heard
                time.sleep(0.001)
        os.write(w, b"x")
        for t in threads:
            t.join(LIMIT)
            assert not t.is_alive()
        assert heard == [[(c.fileno(), select.EPOLLIN)]] * 3 + [[(r, select.EPOLLIN)]], heard
        for x in (s, c, e):
            x.close()
        os.close(r)
        os.close(w)


def test_asleep_while_a_member_joins():
    """As before, in a set that has had such members already; without threads who moves the bytes?"""
    e = select.epoll()
    s, c = pair()
    e.register(c, select.EPOLLIN | select.EPOLLET)
    e.unregister(c)
    heard = []
    threads = [threading.Thread(target=lambda: heard.append(e.poll(LIMIT, 1))) for _ in range(3)]
    for t in threads:
        t.start()
    time.sleep(0.1)
    e.register(c, select.EPOLLIN | select.EPOLLET)
    time.sleep(0.1)
    for i in range(3):
        s.send(b"%d" % i)
        deadline = time.monotonic() + LIMIT / 2
        while len(heard) <= i:
            assert time.monotonic() < deadline, heard
            time.sleep(0.001)
    for t in threads:
        t.join(LIMIT)
    assert heard == [[(c.fileno(), select.EPOLLIN)]] * 3, heard
    for x in (s, c, e):
        x.close()


def test_in_a_set_before_it_listens():
    a = ddp_socket(True)
    a.bind(("127.0.0.1", 0))
    a.setblocking(False)
    e = select.epoll()
    e.register(a, select.EPOLLIN | select.EPOLLET)
    e.poll(0)
    a.listen(8)
    assert e.poll(0.05) == []
    for _ in range(3):
        t = threading.Thread(target=lambda: client(a.getsockname()).close())
        t.start()
        assert e.poll(LIMIT) == [(a.fileno(), select.EPOLLIN)]
        s, _ = a.accept()
        t.join(LIMIT)
        s.close()
    a.close()
    e.close()


def test_switched_in_a_set():
    """A connection that both ends switch while it is in a set."""
    a = socket.socket()
    a.bind(("127.0.0.1", 0))
    a.listen(8)
    c = socket.create_connection(a.getsockname())
    s, _ = a.accept()
    e = select.epoll()
    for end in (s, c):
        end.setblocking(False)
        e.register(end, select.EPOLLIN)
    assert e.poll(0) == []
    for end in (c, s):
        try:
            end.setsockopt(SOL_XSOCK, DDPMODE, 1)
        except BlockingIOError:
            pass
    p = select.poll()
    for end in (s, c):
        p.register(end, select.POLLOUT)
    deadline = time.monotonic() + LIMIT
    while len(p.poll(100)) < 2:
        assert time.monotonic() < deadline
    assert e.poll(0.05) == []  # the frames of start-up are not the program's
    for i in range(10):
        c.send(b"there")
        assert e.poll(LIMIT) == [(s.fileno(), select.EPOLLIN)]
        assert s.recv(100) == b"there"
        s.send(b"back")
        assert e.poll(LIMIT) == [(c.fileno(), select.EPOLLIN)]
        assert c.recv(100) == b"back"
        assert e.poll(0) == []
    # Messages: bytes would come as one.
    c.send(b"one")
    c.send(b"two")
    time.sleep(0.1)
    for message in (b"one", b"two"):
        assert e.poll(LIMIT) == [(s.fileno(), select.EPOLLIN)]
        assert s.recv(100) == message
    for x in (s, c, a, e):
        x.close()


def test_threads_on_one_set():
    """Workers that share one epoll descriptor, one-shot, as thread pools do."""
    a = listener()
    e = select.epoll()
    conns, lock, failures = {}, threading.Lock(), []
    workers, clients, rounds = 4, 16, 50
    over = threading.Event()

    def work():
        try:
            while not over.is_set():
                for fd, _ in e.poll(0.1, 1):
                    with lock:
                        s = conns.get(fd)
                    if s is None:
                        continue
                    while True:
                        try:
                            data = s.recv(65536)
                        except BlockingIOError:
                            e.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
                            break
                        if not data:
                            with lock:
                                del conns[fd]
                            s.close()
                            break
                        s.send(data)
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for t in threads:
        t.start()

    def talk(number):
        try:
            s = client(a.getsockname())
            s.settimeout(LIMIT)
            for i in range(rounds):
                data = payload(number * 1000 + i, 200)
                s.send(data)
                assert s.recv(1000) == data
            s.close()
        except BaseException:
            failures.append(traceback.format_exc())

    talkers = [threading.Thread(target=talk, args=(n,)) for n in range(clients)]
    for t in talkers:
        t.start()
    for _ in range(clients):
        s, _ = a.accept()
        s.setblocking(False)
        with lock:
            conns[s.fileno()] = s
        e.register(s, select.EPOLLIN | select.EPOLLONESHOT)
    for t in talkers:
        t.join()
    over.set()
    for t in threads:
        t.join()
    assert not failures, failures[0]
    for s in conns.values():
        s.close()
    a.close()
    e.close()


def test_many():
    """More than a thousand sockets in one set, of which few are active."""
    count = 1100
    a = listener(4096)
    e = select.epoll()
    e.register(a, select.EPOLLIN)
    served, clients = {}, []
    for i in range(count):
        c = ddp_socket(True)
        c.setblocking(False)
        code = c.connect_ex(a.getsockname())
        assert code in (0, errno.EINPROGRESS), code
        clients.append(c)
        if i % 50 == 49 or i == count - 1:
            wanted = len(clients)
            while len(served) < wanted:
                for fd, _ in e.poll(LIMIT, 64):
                    if fd == a.fileno():
                        s, peer = a.accept()
                        s.setblocking(False)
                        served[s.fileno()] = s
                        e.register(s, select.EPOLLIN)
    waiting = select.epoll()
    for c in clients:
        waiting.register(c, select.EPOLLOUT | select.EPOLLONESHOT)
    started = 0
    deadline = time.monotonic() + LIMIT
    while started < count:
        assert time.monotonic() < deadline, started
        # Their start-up is served by the threads that wait for either set.
        started += len(waiting.poll(0.05, 256))
        e.poll(0)
    rng = random.Random(3)
    for i in range(300):
        c = rng.choice(clients)
        c.send(b"%d" % i)
        (fd, events), = e.poll(LIMIT)
        assert events == select.EPOLLIN
        assert served[fd].recv(100) == b"%d" % i
    for s in list(served.values()) + clients + [a, e, waiting]:
        s.close()
