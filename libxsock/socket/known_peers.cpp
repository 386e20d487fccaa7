// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/known_peers.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <new>

#include "base/listener_registry.hpp"
#include "libxsock/socket/peer_memory.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

std::mutex mutex;  // guards all below
PeerMemory memory;

// Of this thread: each may be in a network namespace of its own.
PeerMemory::Place here(unsigned scope) noexcept {
    struct stat network {};
    if (stat("/proc/thread-self/ns/net", &network) != 0) network.st_ino = 0;
    return {network.st_ino, geteuid(), scope};
}

void renew() { new (&mutex) std::mutex; }

}  // namespace

bool takes_streams(const IpEndpoint& peer, unsigned scope) {
    static std::once_flag once;
    std::call_once(once, [] { call_in_child(renew); });
    const Time now = monotonic_now();
    {
        const std::lock_guard hold(mutex);
        if (memory.is_recent(peer, now) && memory.holds(peer, here(scope), now)) return true;
    }
    const DescriptorChange folders;
    const PeerKnowledge of = look_up_listener(peer, scope);
    if (of.known == PeerKnown::gone) {
        log(LogLevel::info, "registry-stale",
            "%s: the processes that listed it are gone: plain TCP", text_of(peer).c_str());
    }
    if (of.known != PeerKnown::sdp) return false;
    const std::lock_guard hold(mutex);
    return memory.found(peer, of.cookie, here(scope), now);
}

void forget_peer(const IpEndpoint& peer) noexcept {
    const std::lock_guard hold(mutex);
    if (!memory.mark_wrong(peer)) return;
    log(LogLevel::warn, "registry-wrong",
        "the server was listed as one that takes byte streams, and did not; plain TCP from now on");
}

}  // namespace xsock::sockets
