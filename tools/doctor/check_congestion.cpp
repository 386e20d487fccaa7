// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's check of TCP's congestion control: which one, whether XSOCK_CONGESTION can be had, and
// what one that paces costs inside the machine, where no path is to be spared.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tools/doctor/checks.hpp"
#include "tools/endpoint.hpp"
#include "tools/fd.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr int kRounds = 3;
constexpr std::uint64_t kRoundNs = 40'000'000;
constexpr std::size_t kWrite = 64 * 1024;

/// 0 or an errno.
int choose(int fd, const std::string& control) {
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control.data(),
                      static_cast<socklen_t>(control.size())) == 0
               ? 0
               : errno;
}

/// Bytes a second of one TCP connection over loopback; 0 where it cannot be tried.
double rate_inside(const std::string& control) {
    const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Fd from(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener.get(), at, size) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), at, &size) != 0 || choose(from.get(), control) != 0 ||
        connect(from.get(), at, size) != 0) {
        return 0;
    }
    const Fd to(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!to.good()) return 0;
    std::thread reader([&to] {
        std::vector<char> bytes(4 * kWrite);
        while (recv(to.get(), bytes.data(), bytes.size(), 0) > 0) {
        }
    });
    const std::vector<char> bytes(kWrite);
    const std::uint64_t begin = now_ns();
    std::uint64_t sent = 0;
    while (now_ns() - begin < kRoundNs) {
        const ssize_t n = send(from.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += static_cast<std::uint64_t>(n);
    }
    shutdown(from.get(), SHUT_WR);
    reader.join();  // by then all has arrived
    return static_cast<double>(sent) * 1e9 / static_cast<double>(now_ns() - begin);
}

/// One that does not pace and that this process may use; empty: none.
std::string unpaced() {
    for (const char* name : {"cubic", "reno"}) {
        const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (choose(fd.get(), name) == 0) return name;
    }
    return {};
}

void check_pacing(Findings& findings, const std::string& control) {
    const std::string other = unpaced();
    double paced = 0, plain = 0;
    for (int round = 0; round < kRounds && !other.empty(); ++round) {
        paced = std::max(paced, rate_inside(control));
        plain = std::max(plain, rate_inside(other));
    }
    std::string text = control + " paces what it sends, also inside the machine";
    if (paced == 0 || plain == 0) {
        findings.note("congestion control", text + "; no other may be tried here");
        return;
    }
    text += fmt::format(": one TCP connection over loopback moves {}/s, with {} {}/s",
                        bytes_text(static_cast<std::uint64_t>(paced)), other,
                        bytes_text(static_cast<std::uint64_t>(plain)));
    findings.note(
        "congestion control", text,
        fmt::format("XSOCK_CONGESTION={} for programs whose peers are on this machine, or "
                    "congestion of struct xsock_ep_attr for such connections",
                    other));
}

void check_chosen(Findings& findings, const char* chosen) {
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    switch (choose(fd.get(), chosen)) {
        case 0:
            return;
        case ENOENT:
            findings.warning(
                "congestion control",
                fmt::format("XSOCK_CONGESTION: the kernel has no {}; connections go without",
                            chosen),
                "sysctl net.ipv4.tcp_available_congestion_control names those it has");
            return;
        case EPERM:
            findings.warning(
                "congestion control",
                fmt::format("XSOCK_CONGESTION: {} is not permitted; connections go without",
                            chosen),
                "add it to net.ipv4.tcp_allowed_congestion_control");
            return;
        default:
            findings.warning("congestion control",
                             fmt::format("XSOCK_CONGESTION: {} cannot be set", chosen), "unset it");
            return;
    }
}

}  // namespace

void check_congestion(Findings& findings) {
    const std::string text = file_text("/proc/sys/net/ipv4/tcp_congestion_control");
    const std::string control(trimmed(text));
    if (control.starts_with("bbr")) {
        check_pacing(findings, control);
    } else if (!control.empty()) {
        findings.ok("congestion control", control);
    }
    const char* const chosen = std::getenv("XSOCK_CONGESTION");
    if (chosen != nullptr && *chosen != '\0') check_chosen(findings, chosen);
}

}  // namespace xsock::tools
