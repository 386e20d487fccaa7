#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs a program for which a system call fails with EPERM, as seccomp profiles make it.

    refuse_call.py memfd_create|unix-sockets PROGRAM [ARGUMENT...]
"""
import ctypes
import errno
import os
import platform
import socket
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF: a word of seccomp_data; jump; answer
NUMBER, ARGUMENT = 0, 16  # of seccomp_data: its offsets, bytes
CALLS = {"x86_64": {"memfd_create": 319, "socket": 41, "socketpair": 53},
         "aarch64": {"memfd_create": 279, "socket": 198, "socketpair": 199}}


def filter_of(what):
    """The program: one instruction is {code u16, jt u8, jf u8, k u32}."""
    calls = CALLS[platform.machine()]
    lines = [(LOAD, 0, 0, NUMBER)]
    if what == "memfd_create":
        lines += [(EQUAL, 0, 1, calls["memfd_create"]), (RETURN, 0, 0, REFUSE)]
    elif what == "unix-sockets":
        lines += [(EQUAL, 1, 0, calls["socket"]), (EQUAL, 0, 3, calls["socketpair"]),
                  (LOAD, 0, 0, ARGUMENT), (EQUAL, 0, 1, socket.AF_UNIX), (RETURN, 0, 0, REFUSE)]
    else:
        sys.exit(__doc__)
    lines.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines), len(lines)


def main():
    code, count = filter_of(sys.argv[1])
    text = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", count, ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                 (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*call) != 0:
            sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
