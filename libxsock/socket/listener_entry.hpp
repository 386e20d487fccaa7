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

    /// Publishes it, unless this process has: each process that uses the socket says so. Any
    /// thread; takes no lock. Where it cannot be done clients stay plain, with one log line.
    void publish(int listening) noexcept;
    /// What this process has said. Not beside publish().
    void withdraw() noexcept;

  private:
    static constexpr std::uint32_t kNever = ~std::uint32_t{0};
    std::atomic<std::uint32_t> generation_{kNever};  // of the process that has published it
    std::string path_;
};

}  // namespace xsock::sockets
