// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// QP numbers that say where to connect: TCP port << 8 | index. Programs that do without rdma_cm
// tell each other GID and QP number, and those are all that finds the process. It takes a port with
// its first QP, and another for every 256; each is held by a bound socket, on which the rendezvous
// listens when it is first needed. With the engine's mutex held.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/port_range.hpp"
#include "base/random.hpp"
#include "base/result.hpp"

namespace xsock::verbs {

/// The indices of one port. One that was given back rests as long as it can: a peer's greeting that
/// means the QP of before must not find another. Among those that have rested longest one is
/// drawn, for the port is known to anybody and the index shall be guessed at least.
class QpIndices {
  public:
    static constexpr std::size_t kIndices = 256;
    static constexpr std::size_t kDrawn = 64;  ///< so many may be next, while there are as many

    /// @param last_usable false: 255 is never given (of port 65535 it would be 0xFFFFFF)
    explicit QpIndices(bool last_usable);
    /// `random`: any number. Nothing where all are taken.
    std::optional<std::uint8_t> take(std::uint32_t random) noexcept;
    void give(std::uint8_t index) noexcept;
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  private:
    std::array<std::uint8_t, kIndices> resting_;  // the longest first
    std::size_t count_ = 0;
};

constexpr std::uint16_t port_in(std::uint32_t qp_num) noexcept {
    return static_cast<std::uint16_t>(qp_num >> 8);
}

class QpNumbers {
  public:
    QpNumbers() = default;
    ~QpNumbers();
    QpNumbers(const QpNumbers&) = delete;
    QpNumbers& operator=(const QpNumbers&) = delete;

    /// Numbers have ports in them from now on; before, they are just counted.
    void use_ports(PortRange range) noexcept {
        range_ = range;
        uses_ports_ = true;
    }
    /// Throws std::bad_alloc; an errno where there is no port. `is_taken`: of numbers that are
    /// counted.
    Result<std::uint32_t> take(const std::function<bool(std::uint32_t)>& is_taken = {});
    void give(std::uint32_t qp_num) noexcept;
    /// A port that this process has taken.
    [[nodiscard]] bool has_port(std::uint16_t port) const noexcept;

    struct Port {
        int fd = -1;  ///< a TCP socket that is bound to it: dual-stack, any address
        std::uint16_t port = 0;
        QpIndices indices;
    };
    /// In the order in which they were taken; none ever goes.
    [[nodiscard]] const std::vector<Port>& ports() const noexcept { return ports_; }
    /// In a forked child: the parent's.
    void close_all() noexcept;

  private:
    Result<Port> open_port() const;

    bool uses_ports_ = false;
    std::uint32_t counted_ = random_u32() & 0xffff;
    PortRange range_;
    std::vector<Port> ports_;
};

}  // namespace xsock::verbs
