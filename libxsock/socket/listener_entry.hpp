// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A listening socket's entry in the registry of this machine (base/listener_registry.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace xsock::sockets {

class ListenerEntry {
  public:
    ListenerEntry() = default;
    ~ListenerEntry() { withdraw(); }
    ListenerEntry(const ListenerEntry&) = delete;
    ListenerEntry& operator=(const ListenerEntry&) = delete;

    /// Publishes it, unless this process has: each process that uses the socket says so. Where it
    /// cannot be done clients stay plain, with one log line. Any thread.
    void publish(int listening) noexcept;
    /// What this process has said. Any thread.
    void withdraw() noexcept;
    /// Before exec(): those of all sockets of this process, for what comes may not know of us. A
    /// process that goes on publishes them again when it uses them.
    static void withdraw_all() noexcept;

  private:
    static constexpr std::uint32_t kNever = ~std::uint32_t{0};
    static void forget_all() noexcept;
    static std::string entry_for(int listening);
    void withdraw_locked() noexcept;

    std::atomic<std::uint32_t> generation_{kNever};  // of the process that has published it
    std::string path_;                               // with the list's lock
    ListenerEntry *next_ = nullptr, **link_ = nullptr;
};

}  // namespace xsock::sockets
