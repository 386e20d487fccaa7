// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/region.hpp"

#include <algorithm>

#include "tests/sim/trace.hpp"

namespace xsock::sim {
namespace {
void apply(std::vector<std::byte>& to, std::size_t offset, const std::vector<std::byte>& data) {
    std::copy(data.begin(), data.end(), to.begin() + static_cast<std::ptrdiff_t>(offset));
}
}  // namespace

void Region::apply_before(std::uint64_t sequence) {
    while (applied_writes_ < writes_.size() && writes_[applied_writes_].sequence < sequence) {
        const Posted& write = writes_[applied_writes_++];
        apply(applied_, write.offset, write.data);
    }
}

std::vector<std::byte> Region::expected(std::size_t offset, std::size_t n) const {
    std::vector<std::byte> all = applied_;
    for (std::size_t i = applied_writes_; i < writes_.size(); ++i) {
        apply(all, writes_[i].offset, writes_[i].data);
    }
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

bool Region::explains(ConstBytes bytes, ConstBytes base, std::size_t offset,
                      std::uint64_t sequence) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] == base[i]) continue;
        const std::size_t at = offset + i;
        const bool written = std::any_of(writes_.begin(), writes_.end(), [&](const Posted& write) {
            return write.sequence >= sequence && at >= write.offset &&
                   at - write.offset < write.data.size() &&
                   write.data[at - write.offset] == bytes[i];
        });
        if (!written) return false;
    }
    return true;
}

void Region::check(const char* whose) const {
    const std::uint64_t sequence =
        applied_writes_ < writes_.size() ? writes_[applied_writes_].sequence : ~std::uint64_t{0};
    const ConstBytes now(address, length);
    if (length == 0 || std::memcmp(now.data(), applied_.data(), length) == 0) return;
    if (!explains(now, applied_, 0, sequence)) {
        fail("a region of %s (STag %08x) holds bytes that were never written there", whose, stag);
    }
}

}  // namespace xsock::sim
