// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "base/ulp.hpp"

namespace xsock::test {

/// A ULP that takes a complete ULPDU as it takes one in steps.
class StepwiseUlp : public Ulp {
  public:
    std::size_t rx_ulpdu(ConstBytes ulpdu) override {
        rx_begin(ulpdu.size());
        for (std::size_t at = 0; at < ulpdu.size();) {
            const Bytes target = rx_target();
            if (target.empty()) return at;
            std::copy_n(ulpdu.begin() + static_cast<std::ptrdiff_t>(at), target.size(),
                        target.begin());
            rx_advance(target.size());
            at += target.size();
        }
        rx_end(true);
        return ulpdu.size();
    }
    // Most LLPs place nothing by themselves.
    void rx_placed(const PlacedWrites&) override { std::abort(); }
    void rx_placed_response(ConstBytes, std::size_t) override { std::abort(); }
};

}  // namespace xsock::test
