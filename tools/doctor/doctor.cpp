// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock doctor: looks for what could go wrong and says how to mend it.
#include <unistd.h>

#include <algorithm>

#include "tools/command.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/endpoint.hpp"
#include "tools/executable.hpp"
#include "tools/json.hpp"
#include "tools/options.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

void print_text(const Findings& findings, bool brief) {
    const bool colours = isatty(STDOUT_FILENO) == 1;
    static constexpr const char* kColours[] = {"\x1b[32m", "\x1b[36m", "\x1b[33m", "\x1b[31m"};
    unsigned counts[4] = {};
    for (const Finding& finding : findings.list()) {
        const auto level = static_cast<std::size_t>(finding.verdict);
        ++counts[level];
        if (brief && finding.verdict == Verdict::ok) continue;
        fmt::print("{}{:8}{} {:22} {}\n", colours ? kColours[level] : "",
                   verdict_name(finding.verdict), colours ? "\x1b[0m" : "", finding.subject,
                   printable(finding.text));
        if (!finding.mend.empty()) fmt::print("{:31} -> {}\n", "", finding.mend);
    }
    fmt::print("\n{} OK, {} notes, {} warnings, {} failures\n", counts[0], counts[1], counts[2],
               counts[3]);
}

Json report_json(const Findings& findings) {
    Json list = Json::array();
    for (const Finding& finding : findings.list()) {
        list.push_back(object({{"verdict", verdict_name(finding.verdict)},
                               {"subject", finding.subject},
                               {"text", finding.text},
                               {"mend", finding.mend}}));
    }
    return object({{"failed", findings.failed()}, {"findings", list}});
}

}  // namespace

const char* verdict_name(Verdict verdict) {
    static constexpr const char* kNames[] = {"OK", "note", "warning", "failure"};
    return kNames[static_cast<std::size_t>(verdict)];
}

bool Findings::failed() const {
    return std::any_of(list_.begin(), list_.end(),
                       [](const Finding& f) { return f.verdict == Verdict::failure; });
}

int doctor_command(int argc, char** argv) {
    bool json = false;
    bool brief = false;
    double timeout_s = 5;
    std::string program, for_roce;
    Options options(
        "doctor", "[options] [HOST PORT | PROGRAM]",
        "Looks for what could go wrong on this machine and says how to mend it. With "
        "HOST and PORT, tries\nthat peer instead: TCP, then MPA. With PROGRAM, says "
        "whether the overlay can see its sockets;\nwith --program or --roce, looks at a "
        "program for the verbs API.");
    options.flag('j', "json", json, "as JSON")
        .flag('b', "brief", brief, "leave out what is well")
        .text('p', "program", "PROGRAM", program,
              "whether PROGRAM finds all it was linked against on xsock's\nverbs libraries; it is "
              "not run")
        .text(0, "roce", "PROGRAM", for_roce,
              "the same for the device that looks like RoCE, and whether\nPROGRAM gets its files, "
              "GIDs and ports")
        .real('W', "timeout", "S", timeout_s, 0.05, 600, "longest wait for the peer; default 5")
        .epilogue(
            "A peer sees a connection that ends as soon as start-up has ended.\n"
            "Exit status: 0, or 1 when something fails.");
    if (const auto status = options.parse(argc, argv)) return *status;
    std::string host;
    std::string port;
    std::string overlaid;  // a program for the overlay
    if (!options.arguments().empty()) {
        if (const auto status = options.take_host(host, port)) return *status;
        if (port.empty()) {
            overlaid = options.arguments()[0];
            if (overlaid.find('/') == overlaid.npos && find_executable(overlaid).path.empty()) {
                return options.wrong("there is no program {}; or which port of {}?", overlaid,
                                     host);
            }
        }
    }
    const int wanted = !program.empty() + !for_roce.empty() + !host.empty();
    if (wanted > 1) return options.wrong("one program or one peer at a time");

    catch_interrupts();
    Findings findings;
    if (!program.empty()) {
        check_program(findings, program);
    } else if (!for_roce.empty()) {
        check_roce(findings, for_roce);
    } else if (!overlaid.empty()) {
        check_program_file(findings, overlaid);
    } else if (host.empty()) {
        check_kernel(findings);
        check_limits(findings);
        check_processors(findings);
        check_crc(findings);
        check_loss_recovery(findings);
        check_shm(findings);
        check_kernel_module(findings);
        check_settings(findings);
        check_engine(findings);
        check_loopback(findings);
        check_overlay(findings);
        check_statistics(findings);
        check_verbs(findings);
        check_devices(findings);
        check_tcp_settings(findings);
        check_congestion(findings);
        check_firewall(findings);
    } else {
        check_peer(findings, host, port, timeout_s);
    }
    if (json) {
        print_json(report_json(findings));
    } else {
        print_text(findings, brief);
    }
    return findings.failed() ? kFailed : kOk;
}

}  // namespace xsock::tools
