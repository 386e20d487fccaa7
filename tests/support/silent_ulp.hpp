// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ulp.hpp"

namespace xsock::test {

/// A ULP that sends nothing, drops what it receives and records nothing: for tests that need a call
/// or two of it.
class SilentUlp : public Ulp {
  public:
    UlpdusGiven tx_fill(const UlpduBatch&) override { return {}; }
    void tx_done(std::uint32_t) override {}
    bool tx_intact() override { return true; }
    std::size_t rx_ulpdu(ConstBytes ulpdu) override { return ulpdu.size(); }
    void rx_begin(std::size_t) override {}
    Bytes rx_target() override { return {}; }
    void rx_advance(std::size_t) override {}
    void rx_end(bool) override {}
    void rx_placed(const PlacedWrites&) override {}
    void rx_placed_response(ConstBytes, std::size_t) override {}
    void llp_established(const Negotiated&) override {}
    void llp_failed(StreamError) override {}
    void llp_closed(CloseKind) override {}
    void llp_probe() override {}
};

}  // namespace xsock::test
