// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/handed_on.hpp"

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <string>

#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

struct Count {
    std::atomic<std::uint32_t> generation{0};
    std::atomic<unsigned long> uses{0};
};
Count count;

IpEndpoint own_address(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    if (fd < 0 || getsockname(fd, name, &length) != 0) return {};
    return endpoint_of(name, length).value_or(IpEndpoint{});
}

}  // namespace

void note_refused(int fd, const IpEndpoint& peer) noexcept {
    const int saved = errno;
    const std::uint32_t now = process_generation();
    // A forked child has its parent's count before it.
    if (count.generation.exchange(now) != now) count.uses.store(0);
    if (count.uses.fetch_add(1) != 0) return;
    try {
        const bool client = peer.port != 0;
        const unsigned port = client ? peer.port : own_address(fd).port;
        const std::string where = client ? text_of(peer) : "*:" + std::to_string(port);
        log(LogLevel::warn, "handed-on",
            "a started connection is of use in the process alone that started it; the line 'use "
            "tcp %s %s %s' of the policy keeps it plain",
            client ? "client" : "server", program_invocation_short_name,
            port != 0 ? where.c_str() : "*:*");
    } catch (const std::exception&) {  // no memory for the line
    }
    errno = saved;
}

unsigned long refused_uses() noexcept {
    return count.generation.load() == process_generation() ? count.uses.load() : 0;
}

}  // namespace xsock::sockets
