// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/known_peers.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>

#include "base/listener_registry.hpp"
#include "base/netlink.hpp"
#include "base/wall_clock.hpp"
#include "libxsock/socket/peer_memory.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

std::mutex memory_mutex;  // guards all below
PeerMemory memory;

// Of the socket: each may be in a network namespace of its own. By /proc it takes 7 us, not 0.3.
std::uint64_t network_of(int fd) noexcept {
    if (const std::uint64_t cookie = network_cookie(fd); cookie != 0) return cookie;
    struct stat network {};
    return stat("/proc/thread-self/ns/net", &network) == 0 ? network.st_ino : 0;
}

void renew() { new (&memory_mutex) std::mutex; }

void renew_in_children() {
    static std::once_flag once;
    std::call_once(once, [] { call_in_child(renew); });
}

// What the registry says, where it has not proved wrong.
PeerKnown ask_registry(int fd, const IpEndpoint& peer, unsigned scope) {
    const Time now = monotonic_now();
    const PeerMemory::Place here{network_of(fd), geteuid(), scope};
    {
        const std::lock_guard hold(memory_mutex);
        if (memory.holds(peer, here, now)) return PeerKnown::sdp;
        if (memory.has_none(peer, here, now)) return PeerKnown::unlisted;
    }
    const PeerKnowledge of = look_up_listener(peer, scope);
    if (of.known == PeerKnown::gone) {
        log(LogLevel::info, "registry-stale",
            "%s: the processes that listed it are gone: plain TCP", text_of(peer).c_str());
    }
    const std::lock_guard hold(memory_mutex);
    if (of.known == PeerKnown::unlisted) memory.found_none(peer, here, now);
    if (of.known != PeerKnown::sdp) return of.known;
    return memory.found(peer, of.cookie, here, now) ? PeerKnown::sdp : PeerKnown::gone;
}

bool learns() {
    static std::once_flag once;
    static bool wanted = false;
    std::call_once(once, [] {
        const auto setting = learn_setting();
        wanted = setting.value_or(false);
        if (setting) return;
        log(LogLevel::error, "bad-setting", "XSOCK_POLICY_LEARN=%s is neither 0 nor 1; ignored",
            secure_getenv("XSOCK_POLICY_LEARN"));
    });
    return wanted;
}

void report_no_entry() {
    static std::once_flag once;
    const int reason = errno;
    if (reason == 0) return;  // there shall be none
    std::call_once(once, [reason] {
        log(LogLevel::warn, "registry-unavailable", "what servers took cannot be kept: %s",
            std::strerror(reason));
    });
}

}  // namespace

PeerTakes takes_streams(int fd, const IpEndpoint& peer, unsigned scope) {
    renew_in_children();
    const DescriptorChange folders;
    switch (ask_registry(fd, peer, scope)) {
        case PeerKnown::sdp:
            return PeerTakes::listed;
        case PeerKnown::gone:
            return PeerTakes::unknown;
        case PeerKnown::unlisted:
        case PeerKnown::elsewhere:
            break;
    }
    if (!learns()) return PeerTakes::unknown;
    const Learned of = look_up_learned(learned_place(fd, peer, scope), wall_clock_now());
    if (of.state != Learned::State::answered) return PeerTakes::unknown;
    log(LogLevel::info, "learned-peer", "%s: took a byte stream %llu s ago: asked",
        text_of(peer).c_str(), static_cast<unsigned long long>(of.age / kSecond));
    return PeerTakes::learned;
}

void AskedPeer::set(int fd, const sockaddr* address, socklen_t length) noexcept {
    place_ = {0, 0, endpoint_of(address, length).value_or(IpEndpoint{})};
    if (place_.peer.port == 0 || !learns()) return;
    const unsigned scope = scope_of(address, length);
    const DescriptorChange query;
    // Of servers of this machine the registry says what holds now.
    if (!is_own_address(place_.peer.address, scope)) {
        place_ = learned_place(fd, place_.peer, scope);
    }
}

void AskedPeer::answered() const noexcept {
    if (place_.network == 0) return;
    try {
        const DescriptorChange folders;
        if (!note_answered(place_, wall_clock_now())) report_no_entry();
    } catch (const std::exception&) {  // no memory: it is not learned
    }
}

void AskedPeer::failed() const noexcept {
    if (place_.peer.port == 0) return;
    {
        const std::lock_guard hold(memory_mutex);
        if (memory.mark_wrong(place_.peer)) {
            log(LogLevel::warn, "registry-wrong",
                "the server was listed as one that takes byte streams, and did not; plain TCP from "
                "now on");
        }
    }
    if (place_.network == 0) return;
    try {
        const DescriptorChange folders;
        if (!note_failed(place_, wall_clock_now())) return;
        log(LogLevel::warn, "learned-wrong",
            "%s: took byte streams before, and did not take this one; plain TCP for %llu s",
            text_of(place_.peer).c_str(), static_cast<unsigned long long>(kLearnedFor / kSecond));
    } catch (const std::exception&) {  // no memory
    }
}

}  // namespace xsock::sockets
