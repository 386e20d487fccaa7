# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Servers and clients of Java, node, Python, PHP and Ruby, unmodified, under `xsock run --stream`.

    pytest-3 tests/system/stream_language_programs_test.py --build build/release
"""
import random
import signal
import subprocess
import sys

import pytest

from stream_runs import TIMEOUT, free_port, full
from stream_servers import (ENDS, await_port, chaos, check_chaos, check_client, check_server,
                            goes_on, note, program, run, running)

SIZE = 3_000_000


def pattern():
    return random.Random(7).randbytes(SIZE)


# ---- Java -----------------------------------------------------------------
# What a program says to its peer: lines and bytes go both ways, the peer echoes until the end.

JAVA = {
    "HttpServe": """
import com.sun.net.httpserver.*;
import java.net.*;
import java.nio.file.*;
import java.util.concurrent.*;
public class HttpServe {
    public static void main(String[] a) throws Exception {
        HttpServer s = HttpServer.create(
            new InetSocketAddress("127.0.0.1", Integer.parseInt(a[0])), 50);
        s.setExecutor(Executors.newFixedThreadPool(4));
        s.createContext("/", e -> {
            byte[] all = e.getRequestBody().readAllBytes();
            e.sendResponseHeaders(200, all.length);
            e.getResponseBody().write(all);
            e.close();
        });
        s.createContext("/end", e -> {
            e.sendResponseHeaders(200, -1);
            e.close();
            new Thread(() -> { s.stop(0); System.exit(0); }).start();
        });
        s.start();
    }
}
""",
    "HttpAsk": """
import java.net.*;
import java.net.http.*;
import java.nio.file.*;
import java.util.*;
public class HttpAsk {
    public static void main(String[] a) throws Exception {
        byte[] all = Files.readAllBytes(Path.of(a[1]));
        String to = "http://127.0.0.1:" + a[0];
        HttpClient c = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (int n = 0; n < 5; n++) {
            HttpResponse<byte[]> r = c.send(
                HttpRequest.newBuilder(URI.create(to + "/")).POST(
                    HttpRequest.BodyPublishers.ofByteArray(all)).build(),
                HttpResponse.BodyHandlers.ofByteArray());
            if (r.statusCode() != 200 || !Arrays.equals(r.body(), all))
                throw new Exception("other");
        }
        HttpURLConnection u = (HttpURLConnection) new URL(to + "/").openConnection();
        u.setDoOutput(true);
        u.getOutputStream().write(all);
        if (!Arrays.equals(u.getInputStream().readAllBytes(), all)) throw new Exception("other");
        c.send(HttpRequest.newBuilder(URI.create(to + "/end")).build(),
               HttpResponse.BodyHandlers.discarding());
        System.exit(0);
    }
}
""",
    "NioServe": """
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;
public class NioServe {
    public static void main(String[] a) throws Exception {
        int left = Integer.parseInt(a[1]);
        Selector selector = Selector.open();
        ServerSocketChannel s = ServerSocketChannel.open();
        s.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(a[0])));
        s.configureBlocking(false);
        s.register(selector, SelectionKey.OP_ACCEPT);
        while (left > 0) {
            selector.select();
            Iterator<SelectionKey> keys = selector.selectedKeys().iterator();
            while (keys.hasNext()) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel c = s.accept();
                    if (c == null) continue;
                    c.configureBlocking(false);
                    c.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(1 << 16));
                    continue;
                }
                SocketChannel c = (SocketChannel) key.channel();
                ByteBuffer b = (ByteBuffer) key.attachment();
                if (key.isReadable()) {
                    if (c.read(b) < 0) {
                        c.close();
                        left--;
                        continue;
                    }
                    b.flip();
                }
                c.write(b);
                if (b.hasRemaining()) {
                    key.interestOps(SelectionKey.OP_WRITE);
                } else {
                    b.clear();
                    key.interestOps(SelectionKey.OP_READ);
                }
            }
        }
    }
}
""",
    "SocketAsk": """
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
public class SocketAsk {
    public static void main(String[] a) throws Exception {
        byte[] all = Files.readAllBytes(Path.of(a[1]));
        InetSocketAddress to = new InetSocketAddress("127.0.0.1", Integer.parseInt(a[0]));
        Socket c = new Socket();
        c.connect(to, 60000);
        c.setSoTimeout(60000);
        c.setTcpNoDelay(true);
        OutputStream out = c.getOutputStream();
        Thread writer = new Thread(() -> {
            try {
                out.write(all);
                c.shutdownOutput();
            } catch (IOException e) {
                throw new RuntimeException(e);
            }
        });
        writer.start();
        if (!Arrays.equals(c.getInputStream().readAllBytes(), all)) throw new Exception("other");
        writer.join();
        c.close();
        // By channels: connect in the background, transferTo().
        SocketChannel s = SocketChannel.open();
        s.configureBlocking(false);
        Selector selector = Selector.open();
        SelectionKey key = s.register(selector, SelectionKey.OP_CONNECT);
        if (!s.connect(to)) {
            while (selector.select() == 0) { }
            s.finishConnect();
        }
        key.cancel();
        selector.close();
        s.configureBlocking(true);
        FileChannel file = FileChannel.open(Path.of(a[1]));
        Thread sender = new Thread(() -> {
            try {
                long at = 0;
                while (at < all.length) at += file.transferTo(at, all.length - at, s);
                s.shutdownOutput();
            } catch (IOException e) {
                throw new RuntimeException(e);
            }
        });
        sender.start();
        ByteBuffer back = ByteBuffer.allocate(all.length + 1);
        while (s.read(back) >= 0) { }
        sender.join();
        if (!Arrays.equals(Arrays.copyOf(back.array(), back.position()), all))
            throw new Exception("other");
        s.close();
    }
}
""",
    "SocketServe": """
import java.io.*;
import java.net.*;
public class SocketServe {
    public static void main(String[] a) throws Exception {
        ServerSocket s = new ServerSocket(Integer.parseInt(a[0]), 50,
                                          InetAddress.getByName("127.0.0.1"));
        Thread[] all = new Thread[Integer.parseInt(a[1])];
        for (int n = 0; n < all.length; n++) {
            Socket c = s.accept();
            all[n] = new Thread(() -> {
                try (c) {
                    c.getInputStream().transferTo(c.getOutputStream());
                } catch (IOException e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            all[n].start();
        }
        for (Thread t : all) t.join();
        // accept() in one thread ends when another closes.
        Thread waits = new Thread(() -> {
            try {
                s.accept();
                System.exit(2);
            } catch (IOException e) {
                System.out.println("closed");
            }
        });
        waits.start();
        Thread.sleep(200);
        s.close();
        waits.join();
    }
}
""",
}


@pytest.fixture(name="java", scope="session")
def java_fixture(tmp_path_factory):
    """java with the classes above."""
    folder = tmp_path_factory.mktemp("classes")
    for name, text in JAVA.items():
        (folder / (name + ".java")).write_text(text)
    subprocess.run([program("javac"), "-nowarn", "-d", str(folder),
                    *(str(folder / (name + ".java")) for name in JAVA)], check=True,
                   timeout=TIMEOUT)
    return [program("java"), "-Xmx200m", "-XX:+UseSerialGC", "-cp", str(folder)]


@pytest.fixture(name="word", scope="session")
def word_fixture(tmp_path_factory):
    file = tmp_path_factory.mktemp("word") / "word"
    file.write_bytes(pattern())
    return file


@ENDS
@full
def test_java_http_server_and_clients(xsock, row, tmp_path, ends, java, word):
    port = free_port()
    with running(xsock, ends[0], tmp_path, *java, "HttpServe", str(port)) as server:
        await_port(xsock, server, port)
        _, said = run(xsock, ends[1], *java, "HttpAsk", str(port), str(word))
        check_client(ends, said, 2)
        summary = check_server(ends, server.wait(), 2)
    note(row, ends, "openjdk-17-jdk-headless",
         "com.sun.net.httpserver, java.net.http, HttpURLConnection", said, summary)


@pytest.mark.parametrize("serve", ["NioServe", "SocketServe"])
@ENDS
@full
def test_java_sockets_and_channels(xsock, row, tmp_path, ends, java, word, serve):
    port = free_port()
    with running(xsock, ends[0], tmp_path, *java, serve, str(port), "2") as server:
        await_port(xsock, server, port)
        _, said = run(xsock, ends[1], *java, "SocketAsk", str(port), str(word))
        check_client(ends, said, 2)
        summary = check_server(ends, server.wait(), 2)
    note(row, ends, "openjdk-17-jdk-headless", serve + ": Socket, SocketChannel, transferTo",
         said, summary)


# ---- node -----------------------------------------------------------------

NODE_SERVER = """
const net = require('net'), http = require('http');
const port = Number(process.argv[1]);
const echo = net.createServer({allowHalfOpen: true}, c => {
    c.pipe(c);
    c.on('error', e => { console.error(e); process.exit(1); });
});
const web = http.createServer((q, r) => {
    if (q.url == '/end') {
        r.end(() => { echo.close(); web.close(); web.closeIdleConnections(); });
        return;
    }
    q.pipe(r);
});
echo.listen(port, '127.0.0.1');
web.listen(Number(process.argv[2]), '127.0.0.1');
"""

NODE_CLIENT = """
const net = require('net'), http = require('http'), fs = require('fs');
const [port, web, file] = process.argv.slice(1);
const word = fs.readFileSync(file);
function same(chunks, what) {
    if (!Buffer.concat(chunks).equals(word)) { console.error('other: ' + what); process.exit(1); }
}
function echo() {
    return new Promise(done => {
        const back = [];
        const c = net.connect(Number(port), '127.0.0.1', () => fs.createReadStream(file).pipe(c));
        c.on('data', d => back.push(d));
        c.on('end', () => { same(back, 'net'); done(); });
    });
}
const agent = new http.Agent({keepAlive: true, maxSockets: 4});
function ask() {
    return new Promise(done => {
        const back = [];
        const q = http.request({port: web, host: '127.0.0.1', method: 'POST', agent}, r => {
            r.on('data', d => back.push(d));
            r.on('end', () => { same(back, 'http'); done(); });
        });
        q.end(word);
    });
}
const many = [];
for (let n = 0; n < 5; n++) many.push(echo(), ask(), ask());
Promise.all(many).then(() => {
    agent.destroy();
    http.get({port: web, host: '127.0.0.1', path: '/end', agent: false}, r => r.resume());
});
"""


@ENDS
@full
def test_node_net_and_http(xsock, row, tmp_path, ends, word):
    port, web = free_port(), free_port()
    with running(xsock, ends[0], tmp_path, program("node"), "-e", NODE_SERVER, str(port),
                 str(web)) as server:
        for each in (port, web):
            await_port(xsock, server, each)
        _, said = run(xsock, ends[1], "node", "-e", NODE_CLIENT, str(port), str(web), str(word))
        check_client(ends, said, 10)
        summary = check_server(ends, server.wait(), 10)
    note(row, ends, "nodejs", "net and http, servers and clients", said, summary)


# The first process accepts, and sends what it has accepted to the others.
NODE_CLUSTER = """
const cluster = require('cluster'), http = require('http');
if (cluster.isPrimary) {
    let left = 2;
    cluster.on('exit', () => { if (--left == 0) process.exit(0); });
    process.on('SIGTERM', () => cluster.disconnect());
    cluster.fork();
    cluster.fork();
} else {
    http.createServer((q, r) => q.pipe(r)).listen(Number(process.argv[2]),
                                                      '127.0.0.1');
}
"""


@ENDS
@full
def test_node_cluster(xsock, row, tmp_path, ends, word):
    port = free_port()
    (tmp_path / "cluster.js").write_text(NODE_CLUSTER)
    with running(xsock, ends[0], tmp_path, program("node"), str(tmp_path / "cluster.js"),
                 str(port)) as server:
        await_port(xsock, server, port)
        for _ in range(4):
            got, said = run(xsock, ends[1], program("curl"), "-sS", "--fail", "--data-binary",
                            "@" + str(word), "http://127.0.0.1:%d/" % port)
            assert got == word.read_bytes()
            check_client(ends, said)
        summary = check_server(ends, server.end(), 4)
    note(row, ends, "nodejs", "cluster, curl", said, summary)


# ---- Python ---------------------------------------------------------------

URLLIB = """
import concurrent.futures, hashlib, sys, urllib.request
def ask(n):
    with urllib.request.urlopen("http://127.0.0.1:%s/word" % sys.argv[1], timeout=100) as answer:
        return answer.read()
with open(sys.argv[2], "rb") as file:
    word = file.read()
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    assert all(got == word for got in threads.map(ask, range(30)))
"""


@ENDS
@full
def test_python_http_server(xsock, row, tmp_path, ends, word):
    port = free_port()
    with running(xsock, ends[0], tmp_path, sys.executable, "-m", "http.server", "-b", "127.0.0.1",
                 "-d", str(word.parent), str(port)) as server:
        await_port(xsock, server, port)
        _, said = run(xsock, ends[1], sys.executable, "-c", URLLIB, str(port), str(word))
        check_client(ends, said, 30)
        # A KeyboardInterrupt, which it ends well by.
        summary = check_server(ends, server.end(signal.SIGINT, status=0), 30)
    note(row, ends, "python3", "http.server, urllib", said, summary)


ASYNCIO_SERVER = """
import asyncio, sys
async def main():
    left, ended = int(sys.argv[2]), asyncio.Event()
    async def echo(reader, writer):
        nonlocal left
        while some := await reader.read(1 << 16):
            writer.write(some)
            await writer.drain()
        writer.write_eof()
        writer.close()
        await writer.wait_closed()
        left -= 1
        if left == 0:
            ended.set()
    async with await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1])):
        await ended.wait()
asyncio.run(main())
"""

ASYNCIO_CLIENT = """
import asyncio, sys
async def ask(word):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    async def send():
        for at in range(0, len(word), 100_000):
            writer.write(word[at:at + 100_000])
            await writer.drain()
        writer.write_eof()
    sent = asyncio.create_task(send())
    back = await reader.read()
    await sent
    assert back == word, (len(back), len(word))
    writer.close()
    await writer.wait_closed()
async def sends_file(name, word):
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    back = asyncio.create_task(reader.read())
    with open(name, "rb") as file:
        assert await loop.sendfile(writer.transport, file, fallback=False) == len(word)
    writer.write_eof()
    assert await back == word
    writer.close()
async def main():
    with open(sys.argv[3], "rb") as file:
        word = file.read()
    await asyncio.gather(sends_file(sys.argv[3], word),
                         *(ask(word) for _ in range(int(sys.argv[2]) - 1)))
asyncio.run(main())
"""


@ENDS
@full
def test_python_asyncio(xsock, row, tmp_path, ends, word):
    port = free_port()
    with running(xsock, ends[0], tmp_path, sys.executable, "-c", ASYNCIO_SERVER, str(port),
                 "20") as server:
        await_port(xsock, server, port)
        _, said = run(xsock, ends[1], sys.executable, "-c", ASYNCIO_CLIENT, str(port), "20",
                      str(word))
        check_client(ends, said, 20)
        summary = check_server(ends, server.wait(), 20)
    note(row, ends, "python3", "asyncio: streams, sendfile", said, summary)


# ---- PHP ------------------------------------------------------------------

PHP_PAGE = """<?php
$all = file_get_contents('php://input');
header('Content-Length: ' . strlen($all));
echo $all;
"""

PHP_CLIENT = """
$word = file_get_contents($argv[2]);
for ($n = 0; $n < 10; $n++) {
    $context = stream_context_create(['http' => ['method' => 'POST', 'content' => $word,
        'header' => 'Content-Type: application/octet-stream']]);
    $back = file_get_contents("http://127.0.0.1:$argv[1]/page.php", false, $context);
    if ($back !== $word) { fwrite(STDERR, "other: POST\\n"); exit(1); }
    $c = stream_socket_client("tcp://127.0.0.1:$argv[1]", $errno, $error, 60);
    fwrite($c, "GET /word HTTP/1.0\\r\\n\\r\\n");
    $back = stream_get_contents($c);
    if (substr($back, strpos($back, "\\r\\n\\r\\n") + 4) !== $word) {
        fwrite(STDERR, "other: GET\\n"); exit(1);
    }
    fclose($c);
}
"""


@ENDS
@full
def test_php_server_and_stream_socket_client(xsock, row, tmp_path, ends, word):
    port = free_port()
    served = tmp_path / "served"
    served.mkdir()
    (served / "page.php").write_text(PHP_PAGE)
    (served / "word").write_bytes(word.read_bytes())
    with running(xsock, ends[0], tmp_path, program("php"), "-d", "post_max_size=10M", "-S",
                 "127.0.0.1:%d" % port, "-t", str(served)) as server:
        await_port(xsock, server, port)
        _, said = run(xsock, ends[1], "php", "-r", PHP_CLIENT, "--", str(port), str(word))
        check_client(ends, said, 20)
        summary = check_server(ends, server.end(signal.SIGINT), 20)
    note(row, ends, "php-cli", "php -S, stream_socket_client", said, summary)


# ---- Ruby -----------------------------------------------------------------

RUBY_SERVER = """
require 'socket'
require 'webrick'
echo = TCPServer.new('127.0.0.1', ARGV[0].to_i)
web = WEBrick::HTTPServer.new(BindAddress: '127.0.0.1', Port: ARGV[1].to_i, AccessLog: [],
                              Logger: WEBrick::Log.new(nil, 0), DocumentRoot: ARGV[2])
threads = (1..5).map do
  Thread.new(echo) { |s| c = s.accept; IO.copy_stream(c, c); c.close }
end
stop = Thread.new { threads.each(&:join); STDIN.read; web.shutdown }
web.start
stop.join
"""

RUBY_CLIENT = """
require 'net/http'
require 'socket'
word = File.binread(ARGV[2])
5.times do
  c = TCPSocket.new('127.0.0.1', ARGV[0].to_i)
  sends = Thread.new { IO.copy_stream(ARGV[2], c); c.close_write }
  back = c.read
  sends.join
  abort 'other: socket' unless back == word
  c.close
end
Net::HTTP.start('127.0.0.1', ARGV[1].to_i) do |http|
  5.times { abort 'other: http' unless http.get('/word').body == word }
end
"""


@ENDS
@full
def test_ruby_sockets_and_webrick(xsock, row, tmp_path, ends, word):
    port, web = free_port(), free_port()
    with running(xsock, ends[0], tmp_path, program("ruby"), "-e", RUBY_SERVER, str(port), str(web),
                 str(word.parent), stdin=subprocess.PIPE) as server:
        for each in (port, web):
            await_port(xsock, server, each)
        _, said = run(xsock, ends[1], "ruby", "-e", RUBY_CLIENT, str(port), str(web), str(word))
        check_client(ends, said, 6)
        server.process.stdin.close()
        summary = check_server(ends, server.wait(), 6)
    note(row, ends, "ruby", "TCPServer, TCPSocket, WEBrick, Net::HTTP", said, summary)


# ---- killed and stopped ---------------------------------------------------

ECHO = {
    "java": lambda java, port: [*java, "NioServe", port, "1000"],
    "node": lambda java, port: [program("node"), "-e", NODE_SERVER, port, "0"],
    "asyncio": lambda java, port: [sys.executable, "-c", ASYNCIO_SERVER, port, "1000"],
}


@pytest.mark.parametrize("language", ECHO)
@chaos
@full
def test_echo_servers_killed_and_stopped(xsock, tmp_path, java, language, victim, how):
    port = free_port()
    sent = b"".join(random.Random(n).randbytes(50_000_000) for n in range(6))
    (tmp_path / "sent").write_bytes(sent)
    argv = ECHO[language](java, str(port))
    with running(xsock, "both", tmp_path, *argv, name="server") as server:
        await_port(xsock, server, port)
        with open(tmp_path / "sent", "rb") as file, running(
                xsock, "both", tmp_path, program("socat"), "-t", str(TIMEOUT), "-",
                "TCP:127.0.0.1:%d" % port, stdin=file, name="client") as client:
            check_chaos(server, client, victim, how, sent, client.out_path)
        # The two others end with the error, as they do by TCP.
        if victim != "server" and language == "asyncio" or goes_on(how):
            got, said = run(xsock, "both", "socat", "-t", str(TIMEOUT), "-",
                            "TCP:127.0.0.1:%d" % port, input=b"and others")
            assert got == b"and others"
            check_client(("both", "both"), said)
