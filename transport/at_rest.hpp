// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where a call of the program lets signals in while it waits. The libc overlay refuses calls of a
// handler that interrupted one of the engine (EDEADLK): it may hold locks. At these points it holds
// none, so a handler may use sockets, the one of that call among them. Any thread.
#pragma once

#include <fcntl.h>

namespace xsock {

/// What this thread is doing, as the overlay sees it: socket_on_rest() in
/// libxsock/engine/socket_table.h.
using RestHook = int (*)(int state);
constexpr int kRestBegin = -1, kRestAsk = -2;
void set_rest_hook(RestHook hook) noexcept;

/// This thread holds no lock of ours, as long as this lives.
class AtRest {
  public:
    AtRest() noexcept;
    ~AtRest();
    AtRest(const AtRest&) = delete;
    AtRest& operator=(const AtRest&) = delete;

  private:
    const int before_;
};

/// The same, asleep as a leader of progresses (docs/threading.md): a call that a handler makes
/// meanwhile does not wait, for no thread would lead.
class AtRestAsLeader {
  public:
    AtRestAsLeader() noexcept;
    ~AtRestAsLeader();
    AtRestAsLeader(const AtRestAsLeader&) = delete;
    AtRestAsLeader& operator=(const AtRestAsLeader&) = delete;

  private:
    AtRest rest_;
};
/// This call is of a handler that interrupted such a sleep, in the same process.
[[nodiscard]] bool leads_below() noexcept;

/// SIGURG for `owner`. Inside a call of the program it waits until the call is at rest, or over: a
/// handler that it runs finds no lock held. Keeps errno.
void raise_urgent(const f_owner_ex& owner) noexcept;
/// What waits. The calling thread holds no lock of ours, or no signal gets through to it. Keeps
/// errno.
void raise_deferred_slow() noexcept;
[[gnu::tls_model("initial-exec")]] extern thread_local constinit bool urgent_is_deferred;
inline void raise_deferred() noexcept {
    if (urgent_is_deferred) [[unlikely]]
        raise_deferred_slow();
}

}  // namespace xsock
