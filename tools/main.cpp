// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The program `xsock`: finds the sub-command and runs it.
#include <xsock/xsock.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "tools/command.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr Command kCommands[] = {
    {"run", "runs a program under the overlay", run_command},
    {"info", "what this xsock is, can and was told", info_command},
    {"doctor", "what could go wrong, and how to mend it", doctor_command},
    {"stat", "every DDP connection of this user", stat_command},
    {"perf", "latency, bandwidth and message rate beside plain TCP", perf_command},
    {"decode", "the MPA, DDP and RDMAP traffic in a capture file", decode_command},
    {"ping", "round trips of Sends and Reads; rping", ping_command},
};

void help() {
    std::printf(
        "usage: xsock COMMAND [options]\n\n"
        "Extended sockets: iWARP in user space over ordinary TCP.\n\nCommands:\n");
    for (const Command& command : kCommands) {
        std::printf("  %-10s %s\n", command.name, command.summary);
    }
    std::printf(
        "\n'xsock COMMAND --help' tells more, as does xsock-COMMAND(1).\n"
        "'xsock --version' prints the version.\n");
}

const Command* find(std::string_view name) {
    for (const Command& command : kCommands) {
        if (name == command.name) return &command;
    }
    return nullptr;
}

int dispatch(int argc, char** argv) {
    if (argc < 2) {
        help();
        return kUsage;
    }
    const std::string_view word = argv[1];
    if (word == "--help" || word == "-h" || (word == "help" && argc == 2)) {
        help();
        return kOk;
    }
    if (word == "--version" || word == "-V") {
        std::printf("xsock %d.%d.%d\n", XSOCK_VERSION_MAJOR, XSOCK_VERSION_MINOR,
                    XSOCK_VERSION_PATCH);
        return kOk;
    }
    if (word == "help") {
        const Command* command = find(argv[2]);
        char option[] = "--help";
        char* arguments[] = {argv[2], option, nullptr};
        if (command != nullptr) return command->run(2, arguments);
        complain(nullptr, "there is no command '%s'; see 'xsock --help'", argv[2]);
        return kUsage;
    }
    const Command* command = find(word);
    if (command == nullptr) {
        complain(nullptr, "there is no command '%s'; see 'xsock --help'", argv[1]);
        return kUsage;
    }
    return command->run(argc - 1, argv + 1);
}

}  // namespace
}  // namespace xsock::tools

int main(int argc, char** argv) {
    try {
        const int status = xsock::tools::dispatch(argc, argv);
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
            xsock::tools::complain(nullptr, "standard output cannot be written");
            return status == 0 ? xsock::tools::kFailed : status;
        }
        return status;
    } catch (const std::exception& e) {
        xsock::tools::complain(nullptr, "%s", e.what());
        return xsock::tools::kFailed;
    }
}
