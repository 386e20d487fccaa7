// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/stream_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/parse_size.hpp"
#include "transport/fork.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

constexpr std::uint64_t kLimitLeast = 1 << 20, kLimitMost = std::uint64_t{1} << 50;
/// Of what is left, one stream gets at most this part; of the limit, one of n streams its n-th part
/// of this one. Both together: the sum of 64 times 4 MiB and of the shares of 20,000 more is less
/// than 1 GiB.
constexpr std::uint64_t kPartOfRest = 16, kPartOfLimit = 8;

std::uint64_t limit_setting() noexcept {
    const char* const text = std::getenv("XSOCK_STREAM_MEMORY");
    if (text == nullptr || *text == '\0') return StreamMemory::kDefaultLimit;
    if (const auto limit = parse_stream_memory(text)) return *limit;
    log(LogLevel::error, "bad-setting",
        "XSOCK_STREAM_MEMORY=%s is not a size from 1M to 1048576G; ignored", text);
    return StreamMemory::kDefaultLimit;
}

alignas(StreamMemory) std::byte the_memory[sizeof(StreamMemory)];

StreamMemory& memory() noexcept {
    return *std::launder(reinterpret_cast<StreamMemory*>(the_memory));
}

void begin_anew() noexcept {
    const std::uint64_t limit = memory().limit();
    new (the_memory) StreamMemory(limit);
}

}  // namespace

std::optional<std::uint64_t> parse_stream_memory(std::string_view text) noexcept {
    const std::optional<std::uint64_t> bytes = parse_size(text, kLimitMost);
    return bytes && *bytes >= kLimitLeast ? bytes : std::nullopt;
}

StreamMemory& StreamMemory::instance() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        new (the_memory) StreamMemory(limit_setting());
        call_in_child(begin_anew);
    });
    return memory();
}

std::uint64_t StreamMemory::share(std::uint64_t asked) const noexcept {
    const std::uint64_t rest = limit_ > granted_ ? limit_ - granted_ : 0;
    std::uint64_t most = rest / kPartOfRest;
    if (streams_ > kUnshared) most = std::min(most, limit_ / kPartOfLimit / streams_);
    return std::max(std::min(asked, most), kLeast);
}

std::uint64_t StreamMemory::add(std::uint64_t asked) noexcept {
    const std::lock_guard hold(lock_);
    ++streams_;
    const std::uint64_t granted = share(asked);
    granted_ += granted;
    return granted;
}

std::uint64_t StreamMemory::change(std::uint64_t granted, std::uint64_t asked) noexcept {
    const std::lock_guard hold(lock_);
    granted_ -= granted;
    const std::uint64_t now = share(asked);
    granted_ += now;
    return now;
}

void StreamMemory::remove(std::uint64_t granted) noexcept {
    const std::lock_guard hold(lock_);
    granted_ -= granted;
    --streams_;
}

StreamGrant::~StreamGrant() {
    // Else it was a parent's.
    if (bytes_ != 0 && generation_ == process_generation()) {
        StreamMemory::instance().remove(bytes_);
    }
}

std::uint64_t StreamGrant::ask(std::uint64_t bytes) noexcept {
    StreamMemory& memory = StreamMemory::instance();
    const bool again = bytes_ != 0 && generation_ == process_generation();
    generation_ = process_generation();
    bytes_ = again ? memory.change(bytes_, bytes) : memory.add(bytes);
    return bytes_;
}

}  // namespace xsock::sockets
