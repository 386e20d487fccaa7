// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/listener_entry.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>

#include "base/ip_address.hpp"
#include "base/listener_registry.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

std::mutex entries_mutex;  // around all that is written
ListenerEntry* published = nullptr;

}  // namespace

// In a forked child: a thread that is not here may have held the lock, and what is listed is the
// parent's.
void ListenerEntry::forget_all() noexcept {
    new (&entries_mutex) std::mutex;
    published = nullptr;
}

void ListenerEntry::publish(int listening) noexcept {
    if (generation_.load(std::memory_order_relaxed) == process_generation()) return;
    static std::once_flag once;
    const int saved = errno;
    try {
        std::call_once(once, [] { call_in_child(forget_all); });
        const std::lock_guard hold(entries_mutex);
        if (generation_.load(std::memory_order_relaxed) == process_generation()) return;
        const DescriptorChange folders;
        path_ = entry_for(listening);
        next_ = published;
        link_ = &published;
        if (next_ != nullptr) next_->link_ = &next_;
        published = this;
        generation_.store(process_generation(), std::memory_order_relaxed);
    } catch (const std::exception&) {
        log(LogLevel::warn, "registry-unavailable", "no memory");
    }
    errno = saved;
}

std::string ListenerEntry::entry_for(int listening) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    std::uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    if (getsockname(listening, name, &length) != 0 ||
        getsockopt(listening, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) {
        return {};
    }
    const auto endpoint = endpoint_of(name, length);
    if (!endpoint) return {};
    std::string path = publish_listener(endpoint->port, cookie);
    if (path.empty() && errno != 0) {
        log(LogLevel::warn, "registry-unavailable",
            "%s: %s; clients of this machine are plain where no line of their policy names us",
            registry_folder(geteuid()).c_str(), std::strerror(errno));
    }
    return path;
}

void ListenerEntry::withdraw_locked() noexcept {
    if (generation_.load(std::memory_order_relaxed) != process_generation()) return;
    withdraw_listener(path_);
    path_.clear();
    *link_ = next_;
    if (next_ != nullptr) next_->link_ = link_;
    generation_.store(kNever, std::memory_order_relaxed);
}

void ListenerEntry::withdraw() noexcept {
    if (generation_.load(std::memory_order_relaxed) != process_generation()) return;
    const std::lock_guard hold(entries_mutex);
    withdraw_locked();
}

void ListenerEntry::withdraw_all() noexcept {
    const std::lock_guard hold(entries_mutex);
    while (published != nullptr) published->withdraw_locked();
}

}  // namespace xsock::sockets
