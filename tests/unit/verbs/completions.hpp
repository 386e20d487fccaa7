// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <vector>

#include "verbs/datagram_qp.hpp"

namespace xsock::verbs {

/// What was completed, for good.
struct Completions final : CompletionTarget {
    void push(const Wc& wc) override { all.push_back(wc); }
    std::vector<Wc> all;
};

}  // namespace xsock::verbs
