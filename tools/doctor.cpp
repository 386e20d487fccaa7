// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock doctor: looks for what could go wrong and says how to mend it.
#include <unistd.h>

#include <cstdio>

#include "tools/checks.hpp"
#include "tools/command.hpp"
#include "tools/endpoint.hpp"
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
        std::printf("%s%-8s%s %-22s %s\n", colours ? kColours[level] : "",
                    verdict_name(finding.verdict), colours ? "\x1b[0m" : "",
                    finding.subject.c_str(), printable(finding.text).c_str());
        if (!finding.mend.empty()) std::printf("%-31s -> %s\n", "", finding.mend.c_str());
    }
    std::printf("\n%u OK, %u notes, %u warnings, %u failures\n", counts[0], counts[1], counts[2],
                counts[3]);
}

void print_json(const Findings& findings) {
    Json json;
    json.object()("failed", findings.failed()).key("findings").array();
    for (const Finding& finding : findings.list()) {
        json.object();
        json("verdict", verdict_name(finding.verdict))("subject", finding.subject);
        json("text", finding.text)("mend", finding.mend);
        json.end();
    }
    json.end().end();
    json.print();
}

}  // namespace

const char* verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::ok:
            return "OK";
        case Verdict::note:
            return "note";
        case Verdict::warning:
            return "warning";
        case Verdict::failure:
            return "failure";
    }
    return "?";
}

bool Findings::failed() const {
    for (const Finding& finding : list_) {
        if (finding.verdict == Verdict::failure) return true;
    }
    return false;
}

int doctor_command(int argc, char** argv) {
    bool json = false;
    bool brief = false;
    double patience_s = 5;
    std::string program;
    Options options("doctor", "[options] [HOST PORT]",
                    "Looks for what could go wrong on this machine and says how to mend it. With "
                    "HOST and PORT, tries\nthat peer instead: TCP, then MPA. With --program, looks "
                    "at a program for the verbs face.");
    options.flag('j', "json", json, "as JSON")
        .flag('b', "brief", brief, "leave out what is well")
        .text('p', "program", "PROGRAM", program,
              "whether PROGRAM finds all it was linked against on xsock's\nverbs libraries; it is "
              "not run")
        .real('W', "timeout", "S", patience_s, 0.05, 600, "longest wait for the peer; default 5")
        .epilogue(
            "A peer sees a connection that ends as soon as start-up has ended.\n"
            "Exit status: 0, or 1 when something fails.");
    if (const auto status = options.parse(argc, argv)) return *status;
    const auto& arguments = options.arguments();
    std::string host;
    std::string port;
    if (arguments.size() > 2) return options.wrong("'%s' is too much", arguments.back());
    if (!arguments.empty()) {
        if (!parse_host(arguments[0], host, port)) {
            return options.wrong("'%s' is no host", arguments[0]);
        }
        if (arguments.size() == 2) port = arguments[1];
        if (port.empty()) return options.wrong("which port of %s?", host.c_str());
    }

    if (!program.empty() && !host.empty()) return options.wrong("a program or a peer, not both");

    catch_interrupts();
    Findings findings;
    if (!program.empty()) {
        check_program(findings, program);
    } else if (host.empty()) {
        check_kernel(findings);
        check_limits(findings);
        check_processors(findings);
        check_crc(findings);
        check_settings(findings);
        check_engine(findings);
        check_loopback(findings);
        check_overlay(findings);
        check_statistics(findings);
        check_verbs(findings);
        check_devices(findings);
        check_tcp_settings(findings);
        check_firewall(findings);
    } else {
        check_peer(findings, host, port, patience_s);
    }
    if (json) {
        print_json(findings);
    } else {
        print_text(findings, brief);
    }
    return findings.failed() ? kFailed : kOk;
}

}  // namespace xsock::tools
