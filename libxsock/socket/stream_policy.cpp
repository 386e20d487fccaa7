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

}  // namespace

int socket_policy(const char* program, int listening, int fd, const sockaddr* address,
                  socklen_t length) noexcept {
    try {
        const auto endpoint = endpoint_of(address, length);
        if (!endpoint) return XSOCK_POLICY_TCP;
        const PolicyRole role = listening != 0 ? PolicyRole::server : PolicyRole::client;
        switch (policy().decide(role, program, *endpoint).mode) {
            case PolicyMode::tcp:
                if (log_enabled(LogLevel::info)) {
                    log(LogLevel::info, "policy-tcp", "%s %s: plain TCP, as the policy says",
                        listening != 0 ? "listening at" : "to", text_of(*endpoint).c_str());
                }
                return XSOCK_POLICY_TCP;
            case PolicyMode::both:
                if (listening != 0) return XSOCK_POLICY_BOTH;
                switch (takes_streams(fd, *endpoint, scope_of(address, length))) {
                    case PeerTakes::listed:
                        return XSOCK_POLICY_BOTH;
                    case PeerTakes::learned:
                        return XSOCK_POLICY_LEARNED;
                    case PeerTakes::unknown:
                        break;
                }
                if (log_enabled(LogLevel::info)) {
                    log(LogLevel::info, "unknown-peer",
                        "%s: plain TCP: not known to take byte streams",
                        text_of(*endpoint).c_str());
                }
                return XSOCK_POLICY_UNKNOWN_PEER;
            case PolicyMode::sdp:
                return XSOCK_POLICY_SDP;
        }
    } catch (const std::exception&) {
        log(LogLevel::error, kCode, "no memory to decide by the policy: plain TCP");
    }
    return XSOCK_POLICY_TCP;
}

}  // namespace xsock::api
