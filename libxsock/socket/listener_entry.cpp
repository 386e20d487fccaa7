// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/listener_entry.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "base/ip_address.hpp"
#include "base/listener_registry.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {

void ListenerEntry::publish(int listening) noexcept {
    const std::uint32_t now = process_generation();
    std::uint32_t before = generation_.load(std::memory_order_relaxed);
    if (before == now || !generation_.compare_exchange_strong(before, now)) return;
    const int saved = errno;
    try {
        const DescriptorChange folders;
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        std::uint64_t cookie = 0;
        socklen_t size = sizeof cookie;
        auto* const name = reinterpret_cast<sockaddr*>(&address);
        if (getsockname(listening, name, &length) == 0 &&
            getsockopt(listening, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0) {
            const auto endpoint = endpoint_of(name, length);
            path_ = endpoint ? publish_listener(endpoint->port, cookie) : std::string();
        }
        if (path_.empty() && errno != 0) {
            log(LogLevel::warn, "registry-unavailable",
                "%s: %s; clients of this machine are plain where no line of their policy names us",
                registry_folder(geteuid()).c_str(), std::strerror(errno));
        }
    } catch (const std::exception&) {
        log(LogLevel::warn, "registry-unavailable", "no memory");
    }
    errno = saved;
}

void ListenerEntry::withdraw() noexcept {
    if (generation_.load(std::memory_order_relaxed) != process_generation()) return;
    withdraw_listener(path_);
    path_.clear();
    generation_.store(kNever, std::memory_order_relaxed);
}

}  // namespace xsock::sockets
