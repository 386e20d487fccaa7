// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finds and reads the policy of this process: the environment (XSOCK_POLICY, XSOCK_STREAM) and the
// files (docs/policy.md). Called once, when the first socket wants it, and by the program `xsock`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/policy.hpp"

namespace xsock {

/// A place where a policy may lie, and what is there.
struct PolicyPlace {
    std::string path;
    std::string
        state;  ///< "taken", "not there", "behind the one that is taken", or an error's text
};

/// What was found. With an error the policy has no rules: the caller reports it and goes on by the
/// defaults.
struct LoadedPolicy {
    Policy policy;
    std::string path;                  ///< of the file that was taken; "" if there is none
    std::optional<PolicyError> error;  ///< why that file does not hold
    std::optional<PolicyMode> stream;  ///< XSOCK_STREAM
    std::string stream_error;          ///< what is wrong with its value; "" if nothing is
    std::vector<PolicyPlace> places;   ///< in the order in which they are tried

    [[nodiscard]] PolicyDecision decide(PolicyRole role, const std::string& program,
                                        const IpEndpoint& endpoint) const {
        return xsock::decide(policy, stream, role, program, endpoint);
    }
};

/// XSOCK_POLICY alone, where it is set; otherwise the first that exists of XDG_CONFIG_HOME's (or
/// ~/.config's) xsock/policy and /etc/xsock/policy. A setuid program's caller chooses none of these
/// but the last: secure_getenv(3).
[[nodiscard]] LoadedPolicy load_policy();

/// Reads and parses one file. Regular files only, and none longer than kMaxPolicyBytes: it does not
/// block. As parse_policy() otherwise.
[[nodiscard]] std::optional<PolicyError> read_policy_file(const std::string& path, Policy& policy);

}  // namespace xsock
