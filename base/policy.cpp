// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Matching and deciding; the parser is policy_parser.cpp.
#include "base/policy.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace xsock {
namespace {

// A started connection belongs to one process. These hand it to another one as a matter of course:
// to a helper without rights (sshd), to a copy of themselves that stays behind (ssh) or receives a
// log (pg_basebackup), to two that read and write it (rsync), to the program that serves it (inetd
// and its like, postscreen), or to the process of the user who logged in (Dovecot, vsftpd).
constexpr const char* kHandOver[] = {
    "sshd",
    "sshd-session",
    "sshd-auth",
    "ssh",
    "rsync",
    "inetd",
    "xinetd",
    "inetutils-inetd",
    "rlinetd",
    "tcpserver",
    "tcpsvd",
    "s6-tcpserver*",
    "git-daemon",
    "imap-login",
    "pop3-login",
    "submission-login",
    "managesieve-login",
    "postscreen",
    "vsftpd",
    "pg_basebackup",
};

/// As fnmatch(3), and without it for the patterns that most rules have.
bool name_matches(const char* pattern, const std::string& name) {
    if (std::strcmp(pattern, "*") == 0) return true;
    if (std::strpbrk(pattern, "*?[\\") == nullptr) return name == pattern;
    return fnmatch(pattern, name.c_str(), 0) == 0;
}

bool hands_over(const std::string& program) {
    return std::any_of(std::begin(kHandOver), std::end(kHandOver),
                       [&](const char* known) { return name_matches(known, program); });
}

}  // namespace

bool PolicyRule::matches(PolicyRole wanted, const std::string& name,
                         const IpEndpoint& endpoint) const {
    return role == wanted && endpoint.port >= first_port && endpoint.port <= last_port &&
           (!network || network->contains(endpoint.address)) && name_matches(program.c_str(), name);
}

PolicyDecision decide(const Policy& policy, std::optional<PolicyMode> stream, PolicyRole role,
                      const std::string& program, const IpEndpoint& endpoint) {
    const auto rule = std::find_if(
        policy.rules.begin(), policy.rules.end(),
        [&](const PolicyRule& candidate) { return candidate.matches(role, program, endpoint); });
    if (rule != policy.rules.end()) return {rule->mode, PolicySource::file, &*rule};
    if (hands_over(program)) return {PolicyMode::tcp, PolicySource::known_program, nullptr};
    if (stream) return {*stream, PolicySource::environment, nullptr};
    return {PolicyMode::both, PolicySource::built_in, nullptr};
}

const char* text_of(PolicyMode mode) {
    switch (mode) {
        case PolicyMode::tcp:
            return "tcp";
        case PolicyMode::both:
            return "both";
        case PolicyMode::sdp:
            return "sdp";
    }
    return "";
}

const char* text_of(PolicyRole role) { return role == PolicyRole::server ? "server" : "client"; }

std::string text_of(const PolicyRule& rule) {
    std::string text = std::string("use ") + text_of(rule.mode) + " " + text_of(rule.role) + " " +
                       rule.program + " " + (rule.network ? text_of(*rule.network) : "*") + ":";
    if (rule.first_port == 0 && rule.last_port == 65535) return text + "*";
    text += std::to_string(rule.first_port);
    if (rule.first_port != rule.last_port) text += "-" + std::to_string(rule.last_port);
    return text;
}

std::string log_setting(const PolicyLog& log) {
    if (log.line == 0) return {};
    const char* level = "debug";
    if (log.min_level > 9) {
        level = "off";
    } else if (log.min_level == 9) {
        level = "error";
    } else if (log.min_level == 8) {
        level = "warn";
    } else if (log.min_level >= 5) {
        level = "info";
    }
    const bool to_file = log.destination == PolicyLog::Destination::file && log.file[0] == '/';
    return to_file ? std::string(level) + ":" + log.file : level;
}

}  // namespace xsock
