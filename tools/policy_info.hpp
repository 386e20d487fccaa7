// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock info --policy: what the policy of the byte-stream mode says of a program and an address.
#pragma once

#include <string>

#include "base/policy.hpp"

namespace xsock::tools {

/// `program` as a user names it: a path's last part counts. Answers with the exit status: a policy
/// that does not hold is a failure.
[[nodiscard]] int policy_info(const std::string& program, const IpEndpoint& endpoint, bool json);

/// "FILE:LINE: REASON"; without the line where it is the file as a whole.
[[nodiscard]] std::string policy_error_text(const std::string& path, const PolicyError& error);

}  // namespace xsock::tools
