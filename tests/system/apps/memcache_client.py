#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""memcached's text protocol, as far as a test needs it: values of many sizes, from several threads,
come back as they went.

    memcache_client.py PORT
"""
import socket
import sys
import threading

failures = []


def client(port, number):
    try:
        with socket.create_connection(("127.0.0.1", port)) as s, s.makefile("rb") as answers:
            for i in range(200):
                key = b"k%d-%d" % (number, i)
                value = bytes((number + i + j) % 251 for j in range(i * 37 % 20000))
                s.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
                assert answers.readline() == b"STORED\r\n"
                s.sendall(b"get %s\r\n" % key)
                assert answers.readline() == b"VALUE %s 0 %d\r\n" % (key, len(value))
                assert answers.read(len(value) + 2) == value + b"\r\n"
                assert answers.readline() == b"END\r\n"
    except Exception as e:  # a thread's failure must end the program
        failures.append(repr(e))


threads = [threading.Thread(target=client, args=(int(sys.argv[1]), n)) for n in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
