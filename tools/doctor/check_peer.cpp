// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// doctor's check of a peer: does its name resolve, does it take TCP connections, does it speak MPA?
// The start-up is our own state machine (mpa/startup.hpp) over a plain socket, so that what comes
// back can be checked byte by byte.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "mpa/startup.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/endpoint.hpp"
#include "tools/fd.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr std::uint64_t kLastWords = 1'000'000'000;

/// Waits for `events`; false when time is over.
bool wait_for(const Fd& fd, short events, std::uint64_t deadline) {
    for (std::uint64_t now = now_ns(); now < deadline; now = now_ns()) {
        pollfd p{fd.get(), events, 0};
        const auto ms =
            static_cast<int>(std::min<std::uint64_t>((deadline - now) / 1'000'000 + 1, 60'000));
        const int n = poll(&p, 1, ms);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
    return false;
}

/// 0, or why there is no connection (errno).
int connect_to(const Fd& fd, const addrinfo& address, std::uint64_t deadline) {
    if (!fd.good()) return errno;
    if (connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(fd, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void explain_connect(Findings& findings, const std::string& where, int error) {
    const char* words = std::strerror(error);
    const char* mend = "";
    switch (error) {
        case ECONNREFUSED:
            words = "refused: the machine is there, but no program listens on that port";
            mend =
                "start the program there; is it the right port, and does it listen on this "
                "address?";
            break;
        case ETIMEDOUT:
            words = "no answer at all";
            mend = "a firewall that drops packets, a machine that is off, or a wrong address";
            break;
        case EHOSTUNREACH:
        case ENETUNREACH:
            words = "there is no way to that address";
            mend = "ip route get ADDRESS tells which way packets would go";
            break;
        case EACCES:
        case EPERM:
            words = "a packet filter of this machine forbids the connection";
            mend = "look at the rules for outgoing packets (nft list ruleset)";
            break;
        default:
            break;
    }
    findings.failure("TCP", where + ": " + words, mend);
}

/// What a start-up came to.
struct Attempt {
    mpa::Startup::State state = mpa::Startup::State::idle;
    std::string bytes;  // the first that came
    bool closed = false, reset = false;
    std::uint64_t took_ns = 0;
    Negotiated negotiated;
    Implementation peer;
    std::string private_data;
    double rtt_us = 0;
    unsigned mss = 0;
};

/// Connects and sends a Request of this revision. Nothing: no connection (findings has why).
std::optional<Attempt> attempt(Findings& findings, const addrinfo& address, std::uint8_t revision,
                               double timeout_s, bool report) {
    const auto timeout = static_cast<std::uint64_t>(timeout_s * 1e9);
    const Fd connection(
        socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
    const std::string where = address_text(address);
    const std::uint64_t begin = now_ns();
    if (const int error = connect_to(connection, address, begin + timeout); error != 0) {
        if (report) explain_connect(findings, where, error);
        return {};
    }
    const std::uint64_t connected = now_ns();
    const int fd = connection.get();
    Attempt result;
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
        result.rtt_us = info.tcpi_rtt;
        result.mss = info.tcpi_snd_mss;
    }
    if (report) {
        findings.ok("TCP",
                    fmt::format("{}: connected in {}, segments of up to {} bytes", where,
                                time_text(static_cast<double>(connected - begin)), result.mss));
        if (result.mss != 0 && result.mss < 1000) {
            findings.warning("TCP", "the segments are very small",
                             "look for a small MTU on the way (ip link, tunnels)");
        }
    }

    mpa::StartupConfig config;
    config.revision = revision;
    config.negotiate_depths = revision >= 2;
    config.timeout = kNever;
    mpa::Startup startup(std::move(config));
    startup.begin(0);
    const std::uint64_t asked = now_ns();
    const std::uint64_t deadline = asked + timeout;
    const auto starting = [&] {
        return startup.state() == mpa::Startup::State::await_reply ||
               startup.state() == mpa::Startup::State::exchanging;
    };
    while (starting()) {
        const ConstBytes out = startup.tx();
        if (!out.empty()) {
            const ssize_t n = send(fd, out.data(), out.size(), MSG_NOSIGNAL);
            if (n > 0) startup.tx_commit(static_cast<std::size_t>(n));
            if (n < 0 && errno != EAGAIN && errno != EINTR) {
                result.reset = true;
                break;
            }
        }
        if (!starting() || !wait_for(connection, POLLIN, deadline)) break;
        std::array<std::byte, 1024> in{};
        const ssize_t n = recv(fd, in.data(), in.size(), 0);
        if (n == 0) {
            result.closed = true;
            break;
        }
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR) continue;
            result.reset = true;
            break;
        }
        const auto bytes = static_cast<std::size_t>(n);
        if (result.bytes.size() < 256) {
            result.bytes.append(reinterpret_cast<const char*>(in.data()), bytes);
        }
        (void)startup.rx(ConstBytes(in).first(bytes));
    }
    if (startup.state() == mpa::Startup::State::await_reply && !result.closed && !result.reset) {
        // It is no MPA peer any more. One that reads lines may tell what it is.
        static constexpr char kLines[] = "\r\n\r\n";
        if (send(fd, kLines, sizeof kLines - 1, MSG_NOSIGNAL) > 0 &&
            wait_for(connection, POLLIN, now_ns() + kLastWords)) {
            char in[64];
            const ssize_t n = recv(fd, in, sizeof in, 0);
            if (n > 0) result.bytes.append(in, static_cast<std::size_t>(n));
        }
    }
    result.state = startup.state();
    result.took_ns = now_ns() - asked;
    result.negotiated = startup.negotiated();
    if (startup.peer()) result.peer = *startup.peer();
    const ConstBytes data = startup.private_data();
    result.private_data.assign(reinterpret_cast<const char*>(data.data()), data.size());
    return result;
}

void describe(Findings& findings, const Attempt& result) {
    const auto flags = result.bytes.size() > 16 ? static_cast<unsigned char>(result.bytes[16]) : 0;
    const Negotiated& n = result.negotiated;
    findings.ok("MPA", fmt::format("answered in {}: revision {}, CRC {}, markers {}, {}",
                                   time_text(static_cast<double>(result.took_ns)), n.revision,
                                   n.crc ? "on" : "off",
                                   (flags & MPA_FLAG_MARKERS) != 0 ? "wanted" : "not wanted",
                                   n.peer_is_xsock ? "an xsock" : "not an xsock"));
    if (result.peer.name[0] != '\0') {
        findings.ok("MPA", fmt::format("it is {} {}, with features {:#x}", result.peer.name.data(),
                                       result.peer.version.data(), result.peer.features));
    }
    if (n.enhanced) {
        findings.ok(
            "MPA",
            fmt::format("of 16 Reads each way it serves {} of ours and sends {} of its own at once",
                        n.ord, n.ird));
    } else {
        findings.note("MPA", "it does not negotiate how many Reads are served at once (revision 1)",
                      "set ird and ord alike at both ends");
    }
    if (!n.crc) {
        findings.note("MPA", "CRCs are off at both ends: damage is not noticed");
    }
    if (!n.peer_is_xsock) {
        findings.note("MPA",
                      "toward other implementations FPDUs are of segment size; a larger MTU helps");
    }
    if (!result.private_data.empty()) {
        findings.ok("private data",
                    fmt::format("{} bytes: {}", result.private_data.size(),
                                printable(std::string_view(result.private_data).substr(0, 60))));
    }
}

void explain(Findings& findings, const Attempt& result, double timeout_s) {
    if (result.state == mpa::Startup::State::rejected) {
        findings.warning("MPA",
                         "it speaks MPA, and its program said no" +
                             (result.private_data.empty()
                                  ? std::string()
                                  : ": " + printable(std::string_view(result.private_data))),
                         "the program expects other private data; its own client will know");
        return;
    }
    if (result.negotiated.extensions) {
        findings.failure("MPA", "it is an xsock, but its extension frame is missing or malformed",
                         "XSOCK_EXTENSIONS=0 does without");
        return;
    }
    if (!result.bytes.empty()) {
        const std::string guess = guess_protocol(result.bytes);
        const std::string start = printable(std::string_view(result.bytes).substr(0, 40));
        findings.failure(
            "MPA",
            guess.empty() ? fmt::format("another protocol: it began with \"{}\"", start)
                          : fmt::format("another protocol, {}: it began with \"{}\"", guess, start),
            "is it the right port?");
        return;
    }
    if (result.reset || result.closed) {
        findings.failure(
            "MPA",
            fmt::format("it {} the connection at our Request", result.reset ? "reset" : "closed"),
            "it speaks another protocol, or turns us away; its log may say why");
        return;
    }
    findings.failure(
        "MPA", fmt::format("it takes the connection and says nothing for {:g} s", timeout_s),
        "another protocol that waits for its client, a program that does not accept, or "
        "one that is stopped");
}

}  // namespace

std::string guess_protocol(std::string_view bytes) {
    const auto starts = [&](std::string_view with) { return bytes.substr(0, with.size()) == with; };
    if (starts("HTTP/")) return "HTTP";
    if (starts("SSH-")) return "SSH";
    if (starts(std::string_view("\x15\x03", 2)) || starts(std::string_view("\x16\x03", 2))) {
        return "TLS";
    }
    if (starts("220 ") || starts("220-")) return "SMTP or FTP";
    if (starts("+OK")) return "POP3";
    if (starts("* OK")) return "IMAP";
    if (starts("-ERR") || starts("-DENIED") || starts("-NOAUTH")) return "redis";
    if (starts("ERROR\r\n")) return "memcached";
    if (starts("RFB ")) return "VNC";
    if (starts("<?xml") || starts("<html") || starts("<!DOCTYPE")) return "HTTP";
    if (bytes.size() >= 5 && bytes[4] == '\x0a' && bytes[3] == '\0') return "MySQL";
    if (starts(MPA_KEY_REQUEST)) return "MPA, but it asks instead of answering: it connects too";
    return {};
}

void check_peer(Findings& findings, const std::string& host, const std::string& port,
                double timeout_s) {
    Addresses addresses{nullptr, &freeaddrinfo};
    try {
        addresses = resolve(host, port);
    } catch (const Failure& failure) {
        findings.failure(
            "name", failure.what(),
            "is the name spelt right, and does the resolver know it (getent hosts NAME)?");
        return;
    }
    for (const addrinfo* address = addresses.get(); address != nullptr;
         address = address->ai_next) {
        const auto result = attempt(findings, *address, 2, timeout_s, true);
        if (!result) continue;
        if (result->state == mpa::Startup::State::established) {
            describe(findings, *result);
            return;
        }
        if (result->bytes.empty() && (result->closed || result->reset)) {
            // Some that know revision 1 only hang up instead of answering.
            const auto second = attempt(findings, *address, 1, timeout_s, false);
            if (second && second->state == mpa::Startup::State::established) {
                describe(findings, *second);
                findings.note("MPA", "it hangs up at revision 2", "set mpa_revision to 1");
                return;
            }
        }
        explain(findings, *result, timeout_s);
        return;
    }
}

}  // namespace xsock::tools
