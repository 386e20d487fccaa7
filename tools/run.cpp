// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock run: starts a program with the overlay preloaded. Without --summary it becomes the program
// (exec), so that nothing stands between it and its parent; with it, it waits for the program and
// passes signals on.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tools/command.hpp"
#include "tools/executable.hpp"
#include "tools/options.hpp"
#include "tools/paths.hpp"
#include "tools/settings.hpp"
#include "tools/summary.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

// As env(1), nice(1) and others have it.
constexpr int kRunItself = 125;  // xsock run failed
constexpr int kCannotExec = 126;
constexpr int kNotFound = 127;

constexpr const char* kPreload = "libxsock-preload.so";

/// Puts the overlay in front of what LD_PRELOAD has. False after a complaint.
bool preload() {
    const std::string path = part_path(kPreload);
    if (path.empty()) {
        complain("run", "%s is not beside %s; reinstall xsock", kPreload, library_path().c_str());
        return false;
    }
    if (path.find_first_of(": \t") != path.npos) {
        complain("run", "%s: LD_PRELOAD cannot name a path with blanks or colons", path.c_str());
        return false;
    }
    std::string list = path;
    if (const char* before = std::getenv("LD_PRELOAD"); before != nullptr && *before != '\0') {
        list += std::string(":") + before;
    }
    setenv("LD_PRELOAD", list.c_str(), 1);
    return true;
}

/// Puts the drop-in libibverbs and librdmacm in front of the host's. False after a complaint.
bool drop_in_verbs() {
    constexpr const char* kLibrary = "verbs/libibverbs.so.1";
    std::string path = part_path(kLibrary);
    if (path.empty()) {
        complain("run",
                 "%s is not beside %s: this xsock was built without the verbs face (it wants "
                 "libibverbs-dev and librdmacm-dev)",
                 kLibrary, library_path().c_str());
        return false;
    }
    path.resize(path.rfind('/'));
    if (path.find_first_of(":;") != path.npos) {
        complain("run", "%s: LD_LIBRARY_PATH cannot name a path with colons", path.c_str());
        return false;
    }
    if (const char* before = std::getenv("LD_LIBRARY_PATH"); before != nullptr && *before != '\0') {
        path += std::string(":") + before;
    }
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
    return true;
}

}  // namespace

int run_command(int argc, char** argv) {
    bool summary = false, verbs = false, by_gid = false;
    Options options(
        "run", "[options] [--] PROGRAM [ARGUMENT...]",
        "Runs a program under the overlay: its sockets that ask for DDPMODE are carried over "
        "iWARP,\nall others are passed through untouched.");
    options.stop_at_argument();
    options.flag('s', "summary", summary,
                 "at the end say on standard error how many sockets were\nseen, carried and passed "
                 "through, and why");
    options.flag('v', "verbs", verbs,
                 "give the program an RDMA device, xsock0, instead of the overlay:\nlibibverbs and "
                 "librdmacm over xsock (see xsock-verbs(7))");
    options.flag(
        0, "gid", by_gid,
        "with --verbs: let programs that do without rdma_cm find each\nother by their GIDs; "
        "both ends must be xsock");
    options.heading("Settings, as the environment has them (see xsock(7))");
    for (const Setting& setting : settings()) {
        if (setting.option == nullptr) continue;
        options.other(
            0, setting.option, setting.what,
            [&setting](std::string_view value) {
                std::string wrong = setting.check(value);
                if (wrong.empty()) setenv(setting.variable, std::string(value).c_str(), 1);
                return wrong;
            },
            setting.help);
    }
    options.epilogue(
        "Exit status: the program's; 125 when xsock run itself failed, 126 when the program cannot "
        "be\nexecuted or preloaded, 127 when it is not found.");
    if (const auto status = options.parse(argc, argv))
        return *status == kUsage ? kRunItself : *status;
    if (options.arguments().empty()) {
        (void)options.wrong("which program?");
        return kRunItself;
    }

    std::vector<char*> arguments = options.arguments();
    const Executable program = find_executable(arguments[0]);
    if (program.path.empty()) {
        complain("run", "%s: %s", arguments[0], std::strerror(program.error));
        return program.error == ENOENT || program.error == ENOTDIR ? kNotFound : kCannotExec;
    }
    if (!program.refusal.empty()) {
        complain("run", "%s", program.refusal.c_str());
        return kCannotExec;
    }
    if (by_gid && !verbs) {
        (void)options.wrong("--gid goes with --verbs");
        return kRunItself;
    }
    if (verbs) {
        if (!drop_in_verbs()) return kRunItself;
        if (by_gid) setenv("XSOCK_VERBS_GID", "1", 1);
        if (summary) setenv("XSOCK_VERBS_SUMMARY", "1", 1);
    } else if (!preload()) {
        return kRunItself;
    }
    arguments.push_back(nullptr);
    if (summary && !verbs) return run_with_summary(program.path, arguments.data());
    execv(program.path.c_str(), arguments.data());
    complain("run", "%s: %s", program.path.c_str(), std::strerror(errno));
    return errno == ENOENT ? kNotFound : kCannotExec;
}

}  // namespace xsock::tools
