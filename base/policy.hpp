// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The policy of the byte-stream mode: which program's connections are carried, by the address and
// port of a listener or of a peer. The grammar is libsdp's (docs/policy.md). Text in, rules out: no
// I/O here (base/policy_file.hpp has it). In base/, because both the engine's sockets and the
// program `xsock` decide by it. A Policy does not change once it is parsed; then any thread may use
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip_address.hpp"

namespace xsock {

// Of a file. What is longer is refused, so that no file makes a program's start slow.
inline constexpr std::size_t kMaxPolicyBytes = 1024 * 1024;
inline constexpr std::size_t kMaxPolicyLine = 4096;
inline constexpr std::size_t kMaxPolicyRules = 4096;
inline constexpr std::size_t kMaxPolicyProgram = 255;

enum class PolicyMode : std::uint8_t {
    tcp,   ///< untouched
    both,  ///< server: each peer as it comes; client: carried where that is known to work
    sdp,   ///< carried or refused, as DDPREQUIRE asks
};

enum class PolicyRole : std::uint8_t {
    server,  ///< matched at listen(), with the local address
    client,  ///< matched at connect(), with the address of the peer
};

struct PolicyRule {
    PolicyMode mode = PolicyMode::both;
    PolicyRole role = PolicyRole::server;
    std::string program = "*";         ///< pattern of fnmatch(3)
    std::optional<IpNetwork> network;  ///< nothing: any address
    std::uint16_t first_port = 0;
    std::uint16_t last_port = 65535;
    unsigned line = 0;  ///< of the file, from 1

    [[nodiscard]] bool matches(PolicyRole wanted, const std::string& name,
                               const IpEndpoint& endpoint) const;
};

/// What the file's `log` lines come to.
struct PolicyLog {
    enum class Destination : std::uint8_t { standard_error, syslog, file };
    Destination destination = Destination::standard_error;
    std::string file;
    unsigned min_level = 9;  ///< libsdp's: 9 errors, 1 everything
    unsigned line = 0;       ///< of the last of them; 0: there is none
};

/// Line 0 means the file as a whole, here and below.
struct PolicyError {
    unsigned line = 0;
    std::string reason;
};
/// What holds of the file, and its author may not expect.
struct PolicyNote {
    unsigned line = 0;
    std::string text;
};

/// A file's contents.
struct Policy {
    std::vector<PolicyRule> rules;  ///< the first that matches decides
    PolicyLog log;
    std::vector<PolicyNote> notes;
};

/// Takes the text of a file. An answer says what is wrong with the first line that is; `policy`
/// then has no rules, and the caller reports it and goes on by the defaults.
[[nodiscard]] std::optional<PolicyError> parse_policy(std::string_view text, Policy& policy);

/// "tcp", "both", "sdp", or "ddp", which is sdp.
[[nodiscard]] std::optional<PolicyMode> parse_policy_mode(std::string_view word);
/// The ADDRESS:PORT of one connection, as a rule writes them, without networks and ranges.
[[nodiscard]] std::optional<IpEndpoint> parse_endpoint(std::string_view text);

[[nodiscard]] const char* text_of(PolicyMode mode);
[[nodiscard]] const char* text_of(PolicyRole role);
/// A line that parses to the same rule.
[[nodiscard]] std::string text_of(const PolicyRule& rule);
/// XSOCK_LOG's value that does what the `log` lines say; "" when there are none.
[[nodiscard]] std::string log_setting(const PolicyLog& log);

/// Where a decision comes from, the strongest first. The program's own setsockopt() is above all.
enum class PolicySource : std::uint8_t {
    file,           ///< a rule of the file
    known_program,  ///< built in: the program hands started sockets to other processes
    environment,    ///< XSOCK_STREAM
    built_in,       ///< both for all
};

struct PolicyDecision {
    PolicyMode mode = PolicyMode::both;
    PolicySource source = PolicySource::built_in;
    const PolicyRule* rule = nullptr;  ///< of the policy, when the source is its file
};

/// Decides for one listener or connection of `program`, the name that it was started by without
/// folders: read it when the program starts, for some write their state over it (setproctitle).
/// `stream` is XSOCK_STREAM; it takes the place of "both for all" only.
[[nodiscard]] PolicyDecision decide(const Policy& policy, std::optional<PolicyMode> stream,
                                    PolicyRole role, const std::string& program,
                                    const IpEndpoint& endpoint);

}  // namespace xsock
