// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the byte streams of a process may hold together of bytes that have come and that the program
// has not read (XSOCK_STREAM_MEMORY). Each stream tells its peer how much it may send, and keeps
// that promise; so the bound is one on promises, made at the start: later streams get smaller ones.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/spin_lock.hpp"

namespace xsock::sockets {

/// Any thread.
class StreamMemory {
  public:
    /// What a stream gets at least, although there is no more.
    static constexpr std::uint64_t kLeast = 2048;
    /// So many streams get what they ask for, unless one asks for a sixteenth of what is left.
    static constexpr std::uint64_t kUnshared = 64;
    static constexpr std::uint64_t kDefaultLimit = std::uint64_t{1} << 30;

    explicit StreamMemory(std::uint64_t limit) noexcept : limit_(limit) {}

    /// One more stream. @return bytes, of `asked` ones; at least kLeast
    [[nodiscard]] std::uint64_t add(std::uint64_t asked) noexcept;
    /// The stream that holds `granted` asks for another size, as add().
    [[nodiscard]] std::uint64_t change(std::uint64_t granted, std::uint64_t asked) noexcept;
    void remove(std::uint64_t granted) noexcept;
    [[nodiscard]] std::uint64_t granted() const noexcept { return granted_; }
    [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

    /// The process's; a forked child begins anew.
    static StreamMemory& instance() noexcept;

  private:
    [[nodiscard]] std::uint64_t share(std::uint64_t asked) const noexcept;

    SpinLock lock_;
    const std::uint64_t limit_;
    std::uint64_t granted_ = 0, streams_ = 0;
};

/// As base/parse_size.hpp; nothing when it is none, or out of range.
[[nodiscard]] std::optional<std::uint64_t> parse_stream_memory(std::string_view text) noexcept;

/// One stream's. A single thread at a time.
class StreamGrant {
  public:
    StreamGrant() = default;
    ~StreamGrant();
    StreamGrant(const StreamGrant&) = delete;
    StreamGrant& operator=(const StreamGrant&) = delete;
    /// As StreamMemory::add() the first time, and change() then.
    [[nodiscard]] std::uint64_t ask(std::uint64_t bytes) noexcept;

  private:
    std::uint64_t bytes_ = 0;       // 0: has not asked yet
    std::uint32_t generation_ = 0;  // of the process that it was granted in
};

}  // namespace xsock::sockets
