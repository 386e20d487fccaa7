// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/known_peers.hpp"

#include <array>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/listener_registry.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

struct Asked {
    IpEndpoint peer;
    std::uint64_t cookie = 0;
    bool wrong = false;
};

constexpr std::size_t kMost = 256;  // the oldest goes

std::mutex mutex;                // guards all below
std::array<Asked, kMost> asked;  // port 0: none
std::size_t next_to_go = 0;

Asked* find(const IpEndpoint& peer) noexcept {
    for (Asked& a : asked) {
        if (a.peer == peer) return &a;
    }
    return nullptr;
}

/// False: that socket was wrong.
bool note(const IpEndpoint& peer, std::uint64_t cookie) {
    const std::lock_guard hold(mutex);
    if (Asked* const known = find(peer)) {
        if (known->cookie != cookie) *known = {peer, cookie, false};
        return !known->wrong;
    }
    asked[next_to_go++ % kMost] = {peer, cookie, false};
    return true;
}

void renew() { new (&mutex) std::mutex; }

}  // namespace

bool takes_streams(const IpEndpoint& peer, unsigned scope) {
    static std::once_flag once;
    std::call_once(once, [] { call_in_child(renew); });
    const DescriptorChange folders;
    const PeerKnowledge of = look_up_listener(peer, scope);
    if (of.known == PeerKnown::gone) {
        log(LogLevel::info, "registry-stale",
            "%s: the processes that listed it are gone: plain TCP", text_of(peer).c_str());
    }
    return of.known == PeerKnown::sdp && note(peer, of.cookie);
}

void forget_peer(const IpEndpoint& peer) noexcept {
    const std::lock_guard hold(mutex);
    Asked* const known = find(peer);
    if (known == nullptr || known->wrong) return;
    known->wrong = true;
    log(LogLevel::warn, "registry-wrong",
        "the server was listed as one that takes byte streams, and did not; plain TCP from now on");
}

}  // namespace xsock::sockets
