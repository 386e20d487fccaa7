// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An opt-in for programs that do without rdma_cm (XSOCK_VERBS_GID=1): plain perftest,
// ibv_rc_pingpong. They exchange GID and QP number by means of their own; here the GID holds an
// IPv4 address and the TCP port of a listening socket of the process, and the QP numbers travel as
// private data of an ordinary MPA start-up. Not a standard: both ends must be xsock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "verbs/addresses.hpp"
#include "verbs/engine.hpp"

namespace xsock::verbs {

class Bootstrap {
  public:
    /// Null when it cannot listen.
    static std::unique_ptr<Bootstrap> create(VerbsState& engine);

    /// Those that a GID has room for beside a port: IPv4.
    [[nodiscard]] std::vector<LocalAddress> usable(std::vector<LocalAddress> all) const;
    [[nodiscard]] ibv_gid gid_of(const sockaddr_storage& address) const noexcept;

    /// The QP goes to RTR: its peer is `asked.ah_attr.grh.dgid` and `asked.dest_qp_num`. Begins and
    /// returns at once. 0 or an errno.
    int connect(VerbsState& engine, Qp& qp);
    /// The QP is reset or destroyed.
    void forget(Qp& qp);

  private:
    struct Dialing;
    struct Arrived;

    void accept_some(VerbsState& engine);
    void on_bytes(VerbsState& engine, std::uint64_t number, unsigned readiness);
    void match(VerbsState& engine, Qp& qp);
    void dial(VerbsState& engine, std::uint32_t qp_num);
    void drop(VerbsState& engine, std::uint64_t number);

    int listen_fd_ = -1;
    Loop::Token listen_token_ = 0;
    std::uint16_t port_ = 0;
    std::unordered_map<std::uint32_t, std::shared_ptr<Dialing>> dialing_;  // by our QP number
    std::map<std::uint64_t, std::shared_ptr<Arrived>> arrived_;            // oldest first
    std::uint64_t numbers_ = 0;
};

}  // namespace xsock::verbs
