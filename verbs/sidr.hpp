// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a client of RDMA_PS_UDP learns the number of a server's UD queue pair: a request and an
// answer (as InfiniBand's SIDR, volume 1 §12.11), each one UDP datagram
// (docs/wire.md). A request is longer than any answer, so that a forged one gains nothing. Frames,
// when a request is repeated, and which answers are kept for those that are. Sans-IO.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "base/bytes.hpp"

namespace xsock::verbs {

inline constexpr std::size_t kSidrHeader = 28;
inline constexpr std::size_t kSidrRequestData = 180;  ///< private data, at most
inline constexpr std::size_t kSidrAnswerData = 136;   ///< the same
/// Each request has just so many octets: what its private data do not fill is zero.
inline constexpr std::size_t kSidrRequestBytes = kSidrHeader + kSidrRequestData;
inline constexpr std::size_t kSidrAnswerBytes = kSidrHeader + kSidrAnswerData;  ///< at most
static_assert(kSidrAnswerBytes < kSidrRequestBytes);

/// What became of a request: the values that InfiniBand has, of which programs are told.
namespace sidr_status {
inline constexpr std::uint32_t kAccepted = 0;
inline constexpr std::uint32_t kUnsupported = 1;  ///< nobody listens there
inline constexpr std::uint32_t kRejected = 2;     ///< by the program
}  // namespace sidr_status

struct SidrRequest {
    std::uint32_t number = 0;  ///< random; the answer repeats it
    ConstBytes data;           ///< the program's private data, up to kSidrRequestData
};

struct SidrAnswer {
    std::uint32_t number = 0;
    std::uint32_t status = sidr_status::kAccepted;
    std::uint32_t qp_num = 0;  ///< 1 to 0xffffff if accepted; else 0
    std::uint32_t qkey = 0;    ///< 0 unless accepted
    ConstBytes data;           ///< up to kSidrAnswerData
};

/// @pre data is no longer than that
std::array<std::byte, kSidrRequestBytes> encode(const SidrRequest& request) noexcept;
struct EncodedSidrAnswer {
    std::array<std::byte, kSidrAnswerBytes> memory{};
    std::size_t size = 0;
    [[nodiscard]] ConstBytes octets() const noexcept { return ConstBytes(memory).first(size); }
};
/// @pre data is no longer than that
EncodedSidrAnswer encode(const SidrAnswer& answer) noexcept;

/// Nothing: not just so long, another version, or a field that is not as encode() writes it. `data`
/// is part of `frame`.
std::optional<SidrRequest> decode_sidr_request(ConstBytes frame) noexcept;
/// The same. Every status is taken.
std::optional<SidrAnswer> decode_sidr_answer(ConstBytes frame) noexcept;

/// When a request that has no answer is sent again: after 50 ms, 100, 200 ... at most a second.
class SidrRepeat {
  public:
    static constexpr Time kFirst = 50 * kMillisecond, kLongest = kSecond;

    /// @param now the request was sent for the first time
    /// @param limit it is given up so long after
    SidrRepeat(Time now, Time limit) noexcept : next_(now + kFirst), until_(now + limit) {}
    /// When to call sent() or, from then on, to give up.
    [[nodiscard]] Time due() const noexcept { return next_ < until_ ? next_ : until_; }
    [[nodiscard]] bool is_over(Time now) const noexcept { return now >= until_; }
    /// It was sent again.
    void sent(Time now) noexcept;

  private:
    Time wait_ = kFirst;
    Time next_, until_;
};

/// What a server knows a request by: where it came from, and its number.
struct SidrKey {
    std::array<std::uint8_t, 16> address{};  ///< IPv4 in the mapped form
    std::uint16_t port = 0;
    std::uint32_t number = 0;
    auto operator<=>(const SidrKey&) const = default;
};

/// Answers that were sent: one may be lost, and then its request comes again. The oldest go when
/// there are too many.
class SidrAnswers {
  public:
    static constexpr std::size_t kMost = 1024;
    static constexpr Time kKept = 30 * kSecond;  ///< as long as a client repeats itself

    /// Throws std::bad_alloc, and has changed nothing then.
    void add(const SidrKey& key, const EncodedSidrAnswer& answer, Time now);
    /// Null: there is none, or not any more. Valid until the next call.
    const EncodedSidrAnswer* find(const SidrKey& key, Time now);
    [[nodiscard]] std::size_t size() const noexcept { return answers_.size(); }

  private:
    struct Kept {
        SidrKey key;
        Time until;
    };
    void drop_oldest();

    std::map<SidrKey, EncodedSidrAnswer> answers_;
    std::deque<Kept> order_;  ///< the oldest first; one for each of them
};

}  // namespace xsock::verbs
