#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A check that never fails checks nothing: plants each kind of breach in a copy of the tree, one at
a time, and wants exactly that one found.

    self_test.py [TREE]
"""
import os
import shutil
import sys
import tempfile

import house_rules
import include_table
import log_codes
import overlay_calls
import tree

HEAD = "// " + house_rules.SPDX + "\n"

# Where, what, and a part of the complaint.
WRONG_INCLUDES = (
    ("mpa/planted.cpp", '#include "ddp_user/segment.hpp"\n', "mpa/ may not include ddp_user/"),
    ("mpa/planted.cpp", "#include <ddp_user/segment.hpp>\n", "mpa/ may not include ddp_user/"),
    ("mpa/planted.cpp", '#include "../ddp_user/segment.hpp"\n', "mpa/ may not include ddp_user/"),
    ("ddp_user/planted.hpp", '  #  include "mpa/stream.hpp"\n', "may not include mpa/"),
    ("ddp_user/planted.cpp", "#include <atomic>\n", "<atomic> has no place in ddp_user/"),
    ("trp/planted.cpp", "#include <sys/socket.h>\n", "<sys/socket.h> has no place in trp/"),
    ("base/planted.hpp", '#include "mpa/stream.hpp"\n', "base/ may not include mpa/"),
    ("transport/planted.cpp", '#include "libxsock/engine.hpp"\n', "may not include libxsock/"),
    ("transport/planted.cpp", '#include "tests/planted.hpp"\n', "may not include tests/"),
    ("examples/planted.c", '#include "base/result.hpp"\n', "examples/ may not include base/"),
    ("examples/planted.c", '#include "include/xsock/xsock.h"\n', "as a user would"),
    ("tools/planted.cpp", '#include "transport/tcp.hpp"\n', "tools/ may not include transport/"),
    ("include/xsock/planted.h", '#include "base/bytes.hpp"\n', "include/ may not include base/"),
    ("mpa/planted.cpp", "#include PLANTED\n", "#include of a macro"),
)
ALLOWED_INCLUDES = (
    ("mpa/planted.cpp", '#include "base/bytes.hpp"\n#include <xsock/iwarp.h>\n#include <span>\n'),
    ("examples/planted.c", "#include <xsock/xsock.h>\n#include <sys/socket.h>\n"),
    ("tools/planted.cpp", '#include "mpa/fpdu.hpp"\n#include "ddp_user/segment.hpp"\n'),
    ("tests/planted.cpp", '#include "transport/tcp.hpp"\n#include "libxsock/engine.hpp"\n'),
)
WRONG_LINES = (
    ("base/planted.cpp", "int planted;\n", "no SPDX line"),
    ("base/planted.cpp", HEAD + "//" + "-" * 99 + "\n", "101 columns"),
    ("base/planted.cpp", HEAD + "int planted; \n", "white space at the end"),
    ("base/planted.cpp", HEAD + "// TO" + "DO\n", "TO" + "DO: do it"),
    ("docs/planted.md", "See /wor" + "k/main.\n", "a path of one machine"),
    ("docs/planted.md", "No end", "no newline at the end"),
)
WRONG_CODES = (
    ("transport/planted.cpp", 'log(LogLevel::warn, "planted-code", "%d", 1);\n',
     "the code planted-code is not explained"),
    ("libxsock/planted.cpp", 'xsock::log(xsock::LogLevel::info,\n    "planted-code", "");\n',
     "the code planted-code is not explained"),
    ("docs/troubleshooting.md", "## Environment\n## Log codes\n| `planted-code` | x |\n",
     "no source says planted-code"),
    ("verbs/planted.cpp", 'read_number("XSOCK_PLANTED", n);\n', "XSOCK_PLANTED is missing in docs"),
    ("verbs/planted.cpp", 'getenv("XSOCK_PLANTED");\n', "XSOCK_PLANTED is missing in"),
    ("docs/troubleshooting.md", "## Environment\n| `XSOCK_PLANTED` | x |\n", "nobody reads it"),
)
GOOD_CODES = (
    ("transport/planted.cpp", 'catalog(LogLevel::warn, "planted-code");\n'),
    ("examples/planted.c", 'getenv("XSOCK_PLANTED");\n'),
)
GOOD_LINES = (
    ("base/planted.cpp", HEAD + "//" + "-" * 98 + "\n"),
    ("scripts/planted.sh", "#!/bin/sh\n# " + house_rules.SPDX + "\nmktemp -d planted.XXXXXX\n"),
    ("docs/planted.md", "A framework/root/path of no machine.\n"),
)


def complaints(check, top, path, content):
    """What `check` says about the copy in which `path` was planted, as against the copy before."""
    file = os.path.join(top, path)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    before = set(check(top))
    with open(file, "w") as f:
        f.write(content)
    after = set(check(top))
    os.unlink(file)
    return after - before


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    failures = 0

    def expect(good, what):
        nonlocal failures
        if not good:
            failures += 1
            print("FAILED:", what)

    with tempfile.TemporaryDirectory(prefix="xsock-tidy-") as top:
        # Only what the checks look at; and no git, so that the planted files count.
        for path in tree.files(source):
            if path.endswith(tree.SOURCES):
                os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
                shutil.copy(os.path.join(source, path), os.path.join(top, path))
        for check, wrong, allowed in (
                (include_table.breaches, WRONG_INCLUDES, ALLOWED_INCLUDES),
                (house_rules.breaches, WRONG_LINES, GOOD_LINES),
                (log_codes.breaches, WRONG_CODES, GOOD_CODES)):
            for path, content, complaint in wrong:
                found = complaints(check, top, path, content)
                expect(len(found) == 1 and complaint in next(iter(found)),
                       "%r in %s: %s" % (content, path, sorted(found) or "nothing found"))
            for path, content in allowed:
                found = complaints(check, top, path, content)
                expect(not found, "%r in %s: %s" % (content, path, sorted(found)))
        os.makedirs(os.path.join(top, "docs"), exist_ok=True)
        shutil.copy(os.path.join(source, overlay_calls.PAGE), os.path.join(top, overlay_calls.PAGE))
        expect(not list(overlay_calls.breaches(top)), "breaches of the overlay's list as it is")
        listed = os.path.join(top, overlay_calls.LIST)
        with open(listed) as f:
            content = f.read()
        with open(listed, "w") as f:
            f.write(content.replace("    KEEP(tee,", '    CALL(planted, int, (int fd), "words") '
                                    "\\\n    KEEP(tee,", 1))
        found = list(overlay_calls.breaches(top))
        expect(len(found) == 2 and "the table is not that of" in found[0] and
               "planted has no function" in found[1], "a planted call: %s" % found)
    print("%d planted, %d failures" % (sum(map(len, (WRONG_INCLUDES, ALLOWED_INCLUDES, WRONG_LINES,
                                                     GOOD_LINES, WRONG_CODES, GOOD_CODES))),
                                     failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
