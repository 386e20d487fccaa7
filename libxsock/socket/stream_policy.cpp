// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the policy of the byte-stream mode (docs/policy.md) decides for a socket of the program. It
// is read at the first question, once for the process and its children.
#include <sys/socket.h>

#include <exception>
#include <memory>
#include <mutex>

#include "base/policy_file.hpp"
#include "libxsock/api.hpp"
#include "libxsock/socket/known_peers.hpp"
#include "transport/log.hpp"
#include "transport/plain_sockets.hpp"

namespace xsock::api {
namespace {

using sockets::PeerTakes;
using sockets::takes_streams;

constexpr const char* kCode = "bad-policy";

void report(const LoadedPolicy& loaded) {
    if (const std::string setting = log_setting(loaded.policy.log); !setting.empty()) {
        log_set_default(setting.c_str());
    }
    if (!loaded.stream_error.empty()) {
        log(LogLevel::error, kCode, "XSOCK_STREAM: %s; ignored", loaded.stream_error.c_str());
    }
    if (loaded.error && loaded.error->line != 0) {
        log(LogLevel::error, kCode, "%s:%u: %s; the defaults hold", loaded.path.c_str(),
            loaded.error->line, loaded.error->reason.c_str());
    } else if (loaded.error) {
        log(LogLevel::error, kCode, "%s: %s; the defaults hold", loaded.path.c_str(),
            loaded.error->reason.c_str());
    }
    for (const PolicyNote& note : loaded.policy.notes) {
        log(LogLevel::warn, kCode, "%s:%u: %s", loaded.path.c_str(), note.line, note.text.c_str());
    }
}

const LoadedPolicy& policy() {
    // Not a guarded static: a child forked amid the reading would wait for ever. A once_flag is
    // begun anew there.
    static std::once_flag once;
    static const LoadedPolicy* loaded = nullptr;
    std::call_once(once, [] {
        auto found = std::make_unique<const LoadedPolicy>(load_policy());
        report(*found);
        loaded = found.release();
    });
    return *loaded;
}

// What the policy says; why, where it is plain.
struct Decision {
    int answer = XSOCK_POLICY_TCP;
    PlainReason reason = PlainReason::policy_tcp;
};

Decision decide(const char* program, xsock_policy_role asked, int fd, const sockaddr* address,
                socklen_t length) {
    const auto endpoint = endpoint_of(address, length);
    if (!endpoint) return {};
    const bool is_fast_open = asked == XSOCK_POLICY_FAST_OPEN;
    const bool connects = asked == XSOCK_POLICY_CLIENT || is_fast_open;
    const PolicyRole role = connects ? PolicyRole::client : PolicyRole::server;
    switch (policy().decide(role, program, *endpoint).mode) {
        case PolicyMode::tcp:
            if (log_enabled(LogLevel::info)) {
                log(LogLevel::info, "policy-tcp", "%s %s: plain TCP, as the policy says",
                    connects ? "to" : "listening at", text_of(*endpoint).c_str());
            }
            return {};
        case PolicyMode::both:
            if (!connects) return {XSOCK_POLICY_BOTH, PlainReason::none};
            if (is_fast_open) {
                // The bytes of the call go with the SYN.
                log(LogLevel::info, "fast-open", "%s: plain TCP: connected by MSG_FASTOPEN",
                    text_of(*endpoint).c_str());
                return {XSOCK_POLICY_BOTH, PlainReason::fast_open};
            }
            switch (takes_streams(fd, *endpoint, scope_of(address, length))) {
                case PeerTakes::listed:
                    return {XSOCK_POLICY_BOTH, PlainReason::none};
                case PeerTakes::learned:
                    return {XSOCK_POLICY_LEARNED, PlainReason::none};
                case PeerTakes::unknown:
                    break;
            }
            if (log_enabled(LogLevel::info)) {
                log(LogLevel::info, "unknown-peer", "%s: plain TCP: not known to take byte streams",
                    text_of(*endpoint).c_str());
            }
            return {XSOCK_POLICY_UNKNOWN_PEER, PlainReason::unknown_peer};
        case PolicyMode::sdp:
            return {XSOCK_POLICY_SDP, PlainReason::none};
    }
    return {};
}

PlainRole plain_role(xsock_policy_role role) {
    switch (role) {
        case XSOCK_POLICY_CLIENT:
        case XSOCK_POLICY_FAST_OPEN:
            return PlainRole::client;
        case XSOCK_POLICY_LISTENER:
            return PlainRole::listener;
        case XSOCK_POLICY_ACCEPTED:
            break;
    }
    return PlainRole::server;
}

}  // namespace

int socket_policy(const char* program, xsock_policy_role role, int fd, const sockaddr* address,
                  socklen_t length) noexcept {
    Decision decision;
    try {
        decision = decide(program, role, fd, address, length);
    } catch (const std::exception&) {
        log(LogLevel::error, kCode, "no memory to decide by the policy: plain TCP");
    }
    // A listener is noted in any case: what is accepted is known by it.
    if (decision.reason != PlainReason::none || role == XSOCK_POLICY_LISTENER) {
        note_plain_socket(fd, decision.reason, plain_role(role));
    }
    return decision.answer;
}

}  // namespace xsock::api
