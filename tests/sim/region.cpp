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

void Region::settle(std::uint64_t sequence) {
    while (settled_writes_ < writes_.size() && writes_[settled_writes_].sequence < sequence) {
        const Posted& write = writes_[settled_writes_++];
        apply(settled_, write.offset, write.data);
    }
}

std::vector<std::byte> Region::expected(std::size_t offset, std::size_t n) const {
    std::vector<std::byte> all = settled_;
    for (std::size_t i = settled_writes_; i < writes_.size(); ++i) {
        apply(all, writes_[i].offset, writes_[i].data);
    }
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

bool Region::explains(ConstBytes octets, ConstBytes base, std::size_t offset,
                      std::uint64_t sequence) const {
    for (std::size_t i = 0; i < octets.size(); ++i) {
        if (octets[i] == base[i]) continue;
        const std::size_t at = offset + i;
        const bool written = std::any_of(writes_.begin(), writes_.end(), [&](const Posted& write) {
            return write.sequence >= sequence && at >= write.offset &&
                   at - write.offset < write.data.size() &&
                   write.data[at - write.offset] == octets[i];
        });
        if (!written) return false;
    }
    return true;
}

void Region::check(const char* whose) const {
    const std::uint64_t sequence =
        settled_writes_ < writes_.size() ? writes_[settled_writes_].sequence : ~std::uint64_t{0};
    const ConstBytes now(address, length);
    if (length == 0 || std::memcmp(now.data(), settled_.data(), length) == 0) return;
    if (!explains(now, settled_, 0, sequence)) {
        fail("a region of %s (STag %08x) holds octets that nobody wrote there", whose, stag);
    }
}

}  // namespace xsock::sim
