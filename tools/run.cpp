// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock run: starts a program with the overlay preloaded. Without --summary it becomes the program
// (exec), so that nothing stands between it and its parent; with it, it waits for the program and
// passes signals on.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/policy_file.hpp"
#include "tools/command.hpp"
#include "tools/executable.hpp"
#include "tools/options.hpp"
#include "tools/paths.hpp"
#include "tools/policy_info.hpp"
#include "tools/roce.hpp"
#include "tools/settings.hpp"
#include "tools/summary.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr const char* kPreload = "libxsock-preload.so";

/// Puts the overlay in front of what LD_PRELOAD has. False: an error was printed.
bool preload() {
    const std::string path = part_path(kPreload);
    if (path.empty()) {
        print_error("run", "{} is not beside {}; reinstall xsock", kPreload, library_path());
        return false;
    }
    if (const std::string why = preload_refusal(path); !why.empty()) {
        print_error("run", "{}", why);
        return false;
    }
    setenv("LD_PRELOAD", in_front_of("LD_PRELOAD", path).c_str(), 1);
    return true;
}

/// Puts the drop-in libibverbs and librdmacm in front of the host's. False: an error was printed.
bool drop_in_verbs() {
    constexpr const char* kLibrary = "verbs/libibverbs.so.1";
    std::string path = part_path(kLibrary);
    if (path.empty()) {
        print_error("run",
                    "{} is not beside {}: this xsock was built without the verbs API (it wants "
                    "libibverbs-dev and librdmacm-dev)",
                    kLibrary, library_path());
        return false;
    }
    path.resize(path.rfind('/'));
    if (path.find_first_of(":;") != path.npos) {
        print_error("run", "{}: LD_LIBRARY_PATH cannot name a path with colons", path);
        return false;
    }
    setenv("LD_LIBRARY_PATH", in_front_of("LD_LIBRARY_PATH", path).c_str(), 1);
    return true;
}

/// Hands the byte-stream mode and its policy to the program; `policy` may be empty. False: an error
/// was printed.
bool set_stream(const Options& options, const std::string& stream, const std::string& policy) {
    if (!parse_policy_mode(stream)) {
        (void)options.wrong("--stream={}: none of both, sdp, tcp", printable(stream));
        return false;
    }
    setenv("XSOCK_STREAM", stream.c_str(), 1);
    if (policy.empty()) return true;
    // Absolute: the program, and those that it starts, may change their folders.
    std::error_code failed;
    const std::string path = std::filesystem::absolute(policy, failed).string();
    Policy parsed;
    if (const auto error = read_policy_file(path, parsed)) {
        print_error("run", "{}", policy_error_text(policy, *error));
        return false;
    }
    for (const PolicyNote& note : parsed.notes) {
        print_error("run", "{}", policy_error_text(policy, {note.line, note.text}));
    }
    setenv("XSOCK_POLICY", path.c_str(), 1);
    return true;
}

}  // namespace

int run_command(int argc, char** argv) {
    bool summary = false, verbs = false, by_gid = false, roce = false, no_crc = false;
    std::string stream, policy;
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
    options.flag(0, "roce", roce,
                 "the same with a device that looks like RoCE, and its files: for\nprograms that "
                 "refuse iWARP or do without rdma_cm; the wire is TCP\n(see xsock-verbs(7))");
    options.flag(
        0, "gid", by_gid,
        "with --verbs: let programs that do without rdma_cm find each\nother by their GIDs; "
        "both ends must be xsock");
    options.flag(0, "no-crc", no_crc,
                 "with --verbs or --roce: ask for no CRCs; there are none where\nthe peer asks for "
                 "none either");
    options.flag_text(
        "stream", "both|sdp|tcp", "both", stream,
        "carry the program's TCP connections in the\nbyte-stream mode, as the policy says; the "
        "value, both\nwithout one, holds where no line of it decides");
    options.text(0, "policy", "FILE", policy,
                 "with --stream: the policy, in place of the user's and the\nsystem's file");
    options.heading("Settings, as the environment has them (see xsock(7))");
    for (const Setting& setting : settings()) {
        if (setting.option == nullptr) continue;
        options.other(
            0, setting.option, setting.what,
            [&setting](const std::string& value) {
                std::string wrong = setting.check(value);
                if (wrong.empty()) setenv(setting.variable, value.c_str(), 1);
                return wrong;
            },
            setting.help);
    }
    options.epilogue(
        "Exit status: the program's; 125 when xsock run itself failed, 126 when the program cannot "
        "be\nexecuted or preloaded, 127 when it is not found.");
    if (const auto status = options.parse(argc, argv))
        return *status == kUsage ? kRunFailed : *status;
    if (options.arguments().empty()) {
        (void)options.wrong("which program?");
        return kRunFailed;
    }

    const std::string& name = options.arguments()[0];
    const Executable program = find_executable(name);
    if (program.path.empty()) {
        print_error("run", "{}: {}", name, std::strerror(program.error));
        return program.error == ENOENT || program.error == ENOTDIR ? kNotFound : kCannotExec;
    }
    if (!program.refusal.empty()) {
        print_error("run", "{}", program.refusal);
        return kCannotExec;
    }
    if (roce) verbs = true;
    if (by_gid && !verbs) {
        (void)options.wrong("--gid goes with --verbs");
        return kRunFailed;
    }
    if (no_crc && !verbs) {
        (void)options.wrong("--no-crc goes with --verbs or --roce");
        return kRunFailed;
    }
    if (stream.empty() && !policy.empty()) {
        (void)options.wrong("--policy goes with --stream");
        return kRunFailed;
    }
    if (verbs && !stream.empty()) {
        (void)options.wrong("--stream or --verbs, not both");
        return kRunFailed;
    }
    if (!stream.empty() && !set_stream(options, stream, policy)) return kRunFailed;
    if (verbs) {
        if (!drop_in_verbs()) return kRunFailed;
        if (roce && !set_roce()) return kRunFailed;
        if (by_gid) setenv("XSOCK_VERBS_GID", "1", 1);
        if (no_crc) setenv("XSOCK_VERBS_CRC", "0", 1);
        if (summary) setenv("XSOCK_VERBS_SUMMARY", "1", 1);
    } else if (!preload()) {
        return kRunFailed;
    }
    const std::vector<char*> arguments = exec_arguments(options.arguments());
    if (summary && !verbs) return run_with_summary(program.path, arguments.data());
    execv(program.path.c_str(), arguments.data());
    print_error("run", "{}: {}", program.path, std::strerror(errno));
    return errno == ENOENT ? kNotFound : kCannotExec;
}

}  // namespace xsock::tools
