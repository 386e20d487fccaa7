// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connections that come in on the ports of QP numbers: the MPA Request of each is peeked, with the
// greeting in it, and given to the owner, who connects a QP, keeps it for later, or has it
// rejected. With the engine's mutex held.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "transport/startup_table.hpp"
#include "verbs/gid_greeting.hpp"
#include "verbs/loop.hpp"

namespace xsock::verbs {

class QpNumbers;
class VerbsState;

/// A connection whose greeting has come. Its Request is still to be read.
struct GreetedConnection {
    int fd = -1;  ///< owned
    Greeting greeting;
    ibv_gid peer{};  ///< the address that TCP shows

    GreetedConnection() = default;
    GreetedConnection(const GreetedConnection&) = delete;
    GreetedConnection& operator=(const GreetedConnection&) = delete;
    GreetedConnection(GreetedConnection&& from) noexcept;
    GreetedConnection& operator=(GreetedConnection&& from) noexcept;
    ~GreetedConnection();

    /// Answers the Request by a Reply that rejects, and closes. `name`: what the Reply has
    /// instead of the Request's Greeting::attempt.
    void reject(GreetingRefusal why, std::optional<std::uint32_t> name = {}) noexcept;
};

class GidListener {
  public:
    using Handler = std::function<void(GreetedConnection connection)>;
    GidListener(VerbsState& engine, Handler handler);
    ~GidListener();

    /// On all ports of `numbers` on which it does not listen yet. 0 or an errno. May throw
    /// std::bad_alloc.
    int listen(const QpNumbers& numbers);

  private:
    struct Reading;

    void accept_some(int listen_fd, Loop::Token token);
    void read_request(int fd);
    void on_bytes(Reading& reading, unsigned readiness);
    void drop(Reading& reading);
    bool make_room(Time min_age = 0);

    VerbsState& engine_;
    const Handler handler_;
    std::size_t listening_ = 0;  // ports
    StartupTable table_;
    std::unordered_map<Reading*, std::unique_ptr<Reading>> reading_;
};

}  // namespace xsock::verbs
