// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's check of a program for the device that looks like RoCE: whether it gets xsock's verbs
// libraries, whether a preload can lead it to the device's files, and whether there are addresses
// and ports for its queue pairs.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/port_range.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/executable.hpp"
#include "tools/paths.hpp"
#include "tools/roce.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr const char* kTreeAdvice =
    "'xsock info --roce --tree FOLDER' writes the files, for a mount or an option of the program";

void check_files(Findings& findings, const std::string& program) {
    const char* const subject = "device files";
    const std::string preload = roce_preload();
    if (preload.empty()) {
        findings.failure(subject,
                         "libxsock-rdma-files.so, which leads programs to them, is missing",
                         "reinstall xsock");
        return;
    }
    if (const std::string why = preload_refusal(preload); !why.empty()) {
        findings.failure(subject, why, "install xsock elsewhere");
        return;
    }
    const ProgramFile file = read_program_file(program);
    if (file.elf && file.elf->go) {
        findings.warning(subject,
                         fmt::format("{} has the Go runtime in it, which opens files without libc: "
                                     "no preload leads it to them",
                                     program),
                         kTreeAdvice);
        return;
    }
    for (const std::string& folder : roce_tree_parents()) {
        if (access(folder.c_str(), W_OK | X_OK) != 0) continue;
        findings.ok(subject, fmt::format("below {}; a preload leads the program there", folder));
        return;
    }
    findings.warning(subject, "there is no folder to write them to: the program goes on without",
                     "set TMPDIR to a folder that may be written to");
}

void check_gids(Findings& findings) {
    const char* const wanted = std::getenv("XSOCK_VERBS_INTERFACES");
    const verbs::GidList gids = roce_gids();
    if (gids.empty()) {
        findings.failure("GIDs",
                         wanted != nullptr && *wanted != '\0'
                             ? fmt::format("no interface of {} is up and has an address", wanted)
                             : "no interface that is up has an address",
                         "XSOCK_VERBS_INTERFACES names interfaces; it has those with addresses "
                         "when it is not set");
        return;
    }
    findings.ok("GIDs", fmt::format("{}, the first {} ({})", gids.size(),
                                    verbs::gid_text(gids.front().gid), gids.front().interface));
}

/// May a process have it for its QP numbers?
bool is_free(std::uint16_t port) {
    const int off = 0;
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = false;
    if (fd >= 0) {
        bound = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
                bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
    } else {  // no IPv6
        sockaddr_in any4{};
        any4.sin_family = AF_INET;
        any4.sin_port = htons(port);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bound = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&any4), sizeof any4) == 0;
    }
    if (fd >= 0) close(fd);
    return bound;
}

void check_ports(Findings& findings) {
    const char* const subject = "ports";
    const char* const value = std::getenv("XSOCK_VERBS_PORTS");
    if (value == nullptr || *value == '\0') {
        findings.note(subject,
                      "peers dial any TCP port of this machine that the kernel chooses, one for "
                      "every 256 queue pairs of a process",
                      "behind a firewall, XSOCK_VERBS_PORTS=LOW-HIGH says which");
        return;
    }
    const auto range = parse_ports(value);
    if (!range) {
        findings.failure(
            subject,
            fmt::format("XSOCK_VERBS_PORTS={} is no range of ports such as 7000-7099: ignored",
                        value),
            "write it as LOW-HIGH");
        return;
    }
    unsigned free = 0;
    for (unsigned port = range->low; port <= range->high; ++port) {
        free += is_free(static_cast<std::uint16_t>(port)) ? 1 : 0;
    }
    const std::string text = fmt::format(
        "{} of the {} of XSOCK_VERBS_PORTS={} are free; a process takes one for every "
        "256 queue pairs",
        free, range->high - range->low + 1, value);
    if (free == 0) {
        findings.failure(subject, text, "name other ports");
    } else {
        findings.ok(subject, text);
    }
}

}  // namespace

void check_roce(Findings& findings, const std::string& name) {
    check_program(findings, name);
    const Executable program = find_executable(name);
    // What nothing can be preloaded into gets neither libraries nor files.
    if (program.path.empty() || !program.refusal.empty()) {
        if (!program.refusal.empty())
            findings.note("device files", "none without a preload", kTreeAdvice);
        return;
    }
    check_files(findings, program.path);
    check_gids(findings);
    check_ports(findings);
}

}  // namespace xsock::tools
