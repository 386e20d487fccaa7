// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The program `xsock`: finds the sub-command and runs it.
#include <xsock/xsock.h>

#include <algorithm>
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
    {"decode", "the MPA, DDP, RDMAP and SDP traffic in a capture file", decode_command},
    {"ping", "round trips of Sends and Reads; rping", ping_command},
};

void help() {
    fmt::print(
        "usage: xsock COMMAND [options]\n\nExtended sockets: iWARP in user space over ordinary "
        "TCP.\n\nCommands:\n");
    for (const Command& command : kCommands) {
        fmt::print("  {:10} {}\n", command.name, command.summary);
    }
    fmt::print(
        "\n'xsock COMMAND --help' tells more, as does xsock-COMMAND(1).\n'xsock --version' prints "
        "the version.\n");
}

const Command* find(std::string_view name) {
    const auto* command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                       [&](const Command& c) { return name == c.name; });
    return command != std::end(kCommands) ? command : nullptr;
}

int dispatch(int argc, char** argv) {
    const std::string_view word = argc > 1 ? argv[1] : "";
    const bool help_asked = word == "help";
    if (argc < 2 || word == "--help" || word == "-h" || (help_asked && argc == 2)) {
        help();
        return argc < 2 ? kUsage : kOk;
    }
    if (word == "--version" || word == "-V") {
        fmt::print("xsock {}.{}.{}\n", XSOCK_VERSION_MAJOR, XSOCK_VERSION_MINOR,
                   XSOCK_VERSION_PATCH);
        return kOk;
    }
    char** words = argv + (help_asked ? 2 : 1);
    const Command* command = find(words[0]);
    if (command == nullptr) {
        print_error(nullptr, "there is no command '{}'; see 'xsock --help'", words[0]);
        return kUsage;
    }
    if (!help_asked) return command->run(argc - 1, words);
    char option[] = "--help";
    char* arguments[] = {words[0], option, nullptr};
    return command->run(2, arguments);
}

}  // namespace
}  // namespace xsock::tools

int main(int argc, char** argv) {
    try {
        const int status = xsock::tools::dispatch(argc, argv);
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
            xsock::tools::print_error(nullptr, "standard output cannot be written");
            return status == 0 ? xsock::tools::kFailed : status;
        }
        return status;
    } catch (const std::exception& e) {
        xsock::tools::print_error(nullptr, "{}", e.what());
        return xsock::tools::kFailed;
    }
}
