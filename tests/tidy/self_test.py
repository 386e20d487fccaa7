#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A check that never fails checks nothing: plants each kind of breach in a copy of the tree, one at
a time, and wants exactly that one found.
"""
import os
import shutil
import subprocess
import sys
import tempfile

import commit_subjects
import include_table
import kernel_mutants
import lint
import log_codes
import overlay_calls
import sizes
import tree
import words

HEAD = "// " + lint.SPDX + "\n"

# Where, what, and a part of the message.
WRONG_INCLUDES = (
    ("mpa/planted.cpp", '#include "ddp_user/segment.hpp"\n', "mpa/ may not include ddp_user/"),
    ("mpa/planted.cpp", "#include <ddp_user/segment.hpp>\n", "mpa/ may not include ddp_user/"),
    ("mpa/planted.cpp", '#include "../ddp_user/segment.hpp"\n', "mpa/ may not include ddp_user/"),
    ("ddp_user/planted.hpp", '  #  include "mpa/stream.hpp"\n', "may not include mpa/"),
    ("ddp_user/planted.cpp", "#include <atomic>\n", "<atomic> has no place in ddp_user/"),
    ("trp/planted.cpp", "#include <sys/socket.h>\n", "<sys/socket.h> has no place in trp/"),
    ("shm/planted.cpp", '#include "mpa/stream.hpp"\n', "shm/ may not include mpa/"),
    ("shm/planted.cpp", "#include <unistd.h>\n", "<unistd.h> has no place in shm/"),
    ("base/planted.hpp", '#include "mpa/stream.hpp"\n', "base/ may not include mpa/"),
    ("transport/planted.cpp", '#include "libxsock/engine.hpp"\n', "may not include libxsock/"),
    ("transport/planted.cpp", '#include "tests/planted.hpp"\n', "may not include tests/"),
    ("verbs/planted.cpp", '#include "libxsock/api.hpp"\n', "verbs/ may not include libxsock/ "),
    ("libxsock/engine/planted.cpp", '#include "libxsock/api.hpp"\n',
     "libxsock/engine/ may not include libxsock/ "),
    ("transport/planted.cpp", '#include "libxsock/engine/runtime.hpp"\n',
     "transport/ may not include libxsock/engine/"),
    ("libxsock/socket/planted.cpp", '#include "transport/connection.hpp"\n',
     "libxsock/ may not include transport/connection.hpp"),
    ("libxsock/poll/planted.hpp", '#include "transport/progress.hpp"\n',
     "libxsock/ may not include transport/progress.hpp"),
    ("examples/planted.c", '#include "base/result.hpp"\n', "examples/ may not include base/"),
    ("examples/planted.c", '#include "include/xsock/xsock.h"\n', "as a user would"),
    ("tools/planted.cpp", '#include "transport/tcp.hpp"\n', "tools/ may not include transport/"),
    ("include/xsock/planted.h", '#include "base/bytes.hpp"\n', "include/ may not include base/"),
    ("mpa/planted.cpp", "#include PLANTED\n", "#include of a macro"),
    ("mpa/planted.cpp", '#include "nowhere.hpp"\n', "no file of the tree is"),
)
ALLOWED_INCLUDES = (
    ("mpa/planted.cpp", '#include "base/bytes.hpp"\n#include <xsock/iwarp.h>\n#include <span>\n'),
    ("examples/planted.c", "#include <xsock/xsock.h>\n#include <sys/socket.h>\n"),
    ("tools/planted.cpp", '#include "mpa/fpdu.hpp"\n#include "ddp_user/segment.hpp"\n'),
    ("verbs/planted.cpp", '#include "libxsock/engine/runtime.hpp"\n'),
    ("libxsock/socket/planted.cpp", '#include "transport/tcp.hpp"\n#include <sys/socket.h>\n'),
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
    ("docs/troubleshooting.md", "## Environment\n## Log codes\n| `mpa-crc` | – | Planted | x |\n",
     "mpa-crc is told as"),
    ("verbs/planted.cpp", 'read_number("XSOCK_PLANTED", n);\n', "XSOCK_PLANTED is missing in docs"),
    ("verbs/planted.cpp", 'getenv("XSOCK_PLANTED");\n', "XSOCK_PLANTED is missing in"),
    ("docs/troubleshooting.md", "## Environment\n| `XSOCK_PLANTED` | x |\n", "no source reads it"),
)
GOOD_CODES = (
    ("transport/planted.cpp", 'catalog(LogLevel::warn, "planted-code");\n'),
    ("examples/planted.c", 'getenv("XSOCK_PLANTED");\n'),
)
GOOD_LINES = (
    ("base/planted.cpp", HEAD + "//" + "-" * 98 + "\n"),
    ("tests/planted.sh", "#!/bin/sh\n# " + lint.SPDX + "\nmktemp -d planted.XXXXXX\n"),
    ("docs/planted.md", "A framework/root/path of no machine.\n"),
)


MEMBERS = "".join("    std::vector<std::pair<int, char>> m%d_{1, 2};\n" % i for i in range(31))
MANY = "".join("    bool b%d_ = false;\n" % i for i in range(6))
# What looks like a member and is none, between 30 that are.
NO_MEMBERS = """class Planted : public Base<int>, Other {
  public:
    Planted(int a, int b) : first_(a), second_{b} { m = {1, 2}; }
    ~Planted() = default;
    virtual int pure(const std::string& text, bool b) const = 0;
    std::function<void(int)> answer() const;
    bool operator==(const Planted&) const = default;
    template <class T, class = std::enable_if_t<(sizeof(T) > 1)>>
    T get() { struct Local { int inner; }; return T{}; }
    static constexpr int kNumber = 1 << 4;
    static int shared_;
    enum class Color { red, green } ;
    using Short = std::pair<int, int>;
    friend class Friend;
    class Forward;

  private:
%s};
""" % "".join("    alignas(64) std::atomic<std::uint64_t> m%d_{0};\n" % i for i in range(30))
WRONG_SIZES = (
    ("base/planted.hpp", "class Planted final {\n" + MEMBERS + "};\n", "Planted has 31 members"),
    ("base/planted.hpp", "template <class T>\nstruct Planted {\n    int a, *b, c[4];\n    struct {\n" +
     MEMBERS[:MEMBERS.index("m28_")] + "one;\n    } inner;\n};\n", "Planted has 32 members"),
    ("verbs/planted.h", "struct planted {\n    int (*call)(int, int);\n" +
     "".join("    unsigned m%d : 3, n%d : 2;\n" % (i, i) for i in range(15)) + "};\n",
     "planted has 31 members"),
    ("transport/planted.hpp", "class Planted {\n" + MANY + "};\n", "Planted has 6 bools"),
    ("transport/planted.hpp", "class Planted {\n    std::atomic<bool> a_{false}, b_{false};\n    struct "
     "{ bool c, d, e; } inner_;\n    unsigned f_ : 1;\n};\n", "Planted has 6 bools"),
    ("mpa/planted.cpp", "\n" * 501, "has 501 lines"),
)
GOOD_SIZES = (
    ("base/planted.hpp", NO_MEMBERS),
    ("base/planted.hpp", "struct StartupConfig {\n" + MANY + "};\n"),
    ("mpa/planted.cpp", HEAD + "// Longer than 500 lines: one table.\n" + "\n" * 500),
    ("tests/planted.cpp", "\n" * 501),
)
WRONG_WORDS = (
    ("base/planted.cpp", "struct Doorbell {};\n", "'Doorbell': wake flag"),
    ("base/planted.hpp", "int tx_lone_bytes;\n", "'tx_lone_bytes': single"),
    ("mpa/planted.cpp", "void kick_gathering();\n", "'kick_gathering': notify"),
    ("docs/planted.md", "The poller and a\ndriver.\n", "'a driver': the poller"),
    ("base/planted.hpp", "// A border\n// table.\n", "'border table': ABI table"),
    ("base/planted.hpp", "// Whoever waits.\n", "'Whoever': name the thread"),
    ("base/doorbell.hpp", "int planted;\n", "the name of the file"),
    (words.LIST, "word planted\n", "neither word, text, path nor allow"),
    (words.LIST, "word (  planted\n", "not a regular expression"),
    (words.LIST, "allow ^x$  planted  why\n" * 21, "more than 20 exemptions"),
)
GOOD_WORDS = (
    ("base/planted.cpp", "// A device driver, alone, on this clone; a pass over memory.\nint clone;\n"),
    ("tests/interop/planted.sh", "# the driver of Linux\n"),
)
WRONG_MUTANTS = (
    ("ddp_kernel/core/runs.c", "int planted;\n", "0 times what mutant runs-unbounded makes wrong"),
    ("tests/kernel/polled.c", "int planted;\n", "no test has the check of mutant tail-first"),
)
WRONG_SUBJECTS = (
    ("a noun phrase", "no `folder: `"),
    ("planted: add a folder", "neither a folder nor a known topic"),
    ("base: " + "x" * 67, "73 characters"),
)
GOOD_SUBJECTS = ("base: " + "x" * 66, "README: say it", "base, mpa: change both",
                 "base/planted: mend a part")


def planted_with(check, top, path, content, before):
    """What `check` says about the copy in which `path` was planted, beyond what it said `before`."""
    file = os.path.join(top, path)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    kept = None
    if os.path.exists(file):
        with open(file) as f:
            kept = f.read()
    with open(file, "w") as f:
        f.write(content)
    after = set(check(top))
    if kept is None:
        os.unlink(file)
    else:
        with open(file, "w") as f:
            f.write(kept)
    return after - before


def check_subjects(expect):
    """In a repository made for it: each commit is checked, and none before `since`."""
    with tempfile.TemporaryDirectory(prefix="xsock-tidy-") as top:
        def git(*arguments):
            return subprocess.run(["git", "-C", top, "-c", "user.name=x", "-c", "user.email=x@x",
                                   *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

        def commit(subject):
            git("commit", "-q", "--allow-empty", "-m", subject)
        git("init", "-q")
        for folder in ("base", "mpa"):
            os.mkdir(os.path.join(top, folder))
            with open(os.path.join(top, folder, "file"), "w") as f:
                f.write("x\n")
        git("add", "-A")
        commit("older than the rule")
        for subject in GOOD_SUBJECTS + tuple(subject for subject, _ in WRONG_SUBJECTS):
            since = git("rev-parse", "HEAD").strip()
            commit(subject)
            found = list(commit_subjects.breaches(top, since))
            message = dict(WRONG_SUBJECTS).get(subject)
            expect(len(found) == (message is not None) and (message or "") in "".join(found),
                   "subject %r: %s" % (subject, found))
        shutil.rmtree(os.path.join(top, ".git"))
        try:
            commit_subjects.subjects(top)
            expect(False, "subjects of a tree without .git")
        except tree.NothingToCheck:
            pass


def check_size_lists(expect, top):
    """What is listed may not grow, and must be off the list once it is within the limit."""
    before = set(sizes.breaches(top))
    for listed, size, message in ((31, 31, ""), (31, 32, "Planted has 32 members; 31 are"),
                                    (31, 30, "Planted is within the limit of members")):
        path = os.path.join(top, "base", "planted.hpp")
        with open(path, "w") as f:
            f.write("struct Planted {\n" + "".join("    int m%d;\n" % i for i in range(size)) + "};\n")
        known = {"members": {**sizes.LARGE_CLASSES, "Planted": listed}, "bools": sizes.MANY_BOOLS,
                 "lines": sizes.LONG_FILES}
        found = set(sizes.breaches(top, known)) - before
        expect(len(found) == bool(message) and message in "".join(found),
               "%d members, %d on the list: %s" % (size, listed, found))
        os.unlink(path)


def main():
    source = tree.top_of(__doc__)
    failures = 0

    def expect(good, what):
        nonlocal failures
        if not good:
            failures += 1
            print("FAILED:", what)

    with tempfile.TemporaryDirectory(prefix="xsock-tidy-") as top:
        # Only what the checks read; and no git, so that the planted files count.
        for path in tree.files(source):
            if path.endswith(tree.SOURCES):
                os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
                shutil.copy(os.path.join(source, path), os.path.join(top, path))
        os.makedirs(os.path.join(top, "tests", "tidy"), exist_ok=True)
        shutil.copy(os.path.join(source, words.LIST), os.path.join(top, words.LIST))
        for check, wrong, allowed in (
                (include_table.breaches, WRONG_INCLUDES, ALLOWED_INCLUDES),
                (lint.breaches, WRONG_LINES, GOOD_LINES),
                (log_codes.breaches, WRONG_CODES, GOOD_CODES),
                (sizes.breaches, WRONG_SIZES, GOOD_SIZES),
                (words.breaches, WRONG_WORDS, GOOD_WORDS),
                (kernel_mutants.breaches, WRONG_MUTANTS, ())):
            before = set(check(top))
            for path, content, message in wrong:
                found = planted_with(check, top, path, content, before)
                expect(len(found) == 1 and message in next(iter(found)),
                       "%r in %s: %s" % (content, path, sorted(found) or "nothing found"))
            for path, content in allowed:
                found = planted_with(check, top, path, content, before)
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
        check_size_lists(expect, top)
    check_subjects(expect)
    print("%d planted, %d failures" % (
        sum(map(len, (WRONG_INCLUDES, ALLOWED_INCLUDES, WRONG_LINES, GOOD_LINES, WRONG_CODES,
                      GOOD_CODES, WRONG_SIZES, GOOD_SIZES, WRONG_SUBJECTS, GOOD_SUBJECTS,
                      WRONG_WORDS, GOOD_WORDS, WRONG_MUTANTS))),
        failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
