// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/sidr.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "verbs/gid_greeting.hpp"

namespace xsock::verbs {
namespace {

constexpr char kSidrMagic[8] = {'x', 's', 'o', 'c', 'k', '-', 'U', 'D'};
constexpr std::uint8_t kSidrVersion = 1;
enum class SidrType : std::uint8_t { request = 1, answer = 2 };

struct SidrLayout {
    char magic[8];
    std::uint8_t version;
    std::uint8_t type;
    std::uint8_t length[2];  // of the private data; big-endian, as are the next
    std::uint8_t number[4];
    std::uint8_t qp_num[4];
    std::uint8_t qkey[4];
    std::uint8_t status[4];
};
static_assert(sizeof(SidrLayout) == kSidrHeader);

void write_sidr(std::byte* out, SidrType type, const SidrAnswer& fields) noexcept {
    std::memcpy(out, kSidrMagic, sizeof kSidrMagic);
    out[offsetof(SidrLayout, version)] = std::byte{kSidrVersion};
    out[offsetof(SidrLayout, type)] = static_cast<std::byte>(type);
    store_be16(out + offsetof(SidrLayout, length), static_cast<std::uint16_t>(fields.data.size()));
    store_be32(out + offsetof(SidrLayout, number), fields.number);
    store_be32(out + offsetof(SidrLayout, qp_num), fields.qp_num);
    store_be32(out + offsetof(SidrLayout, qkey), fields.qkey);
    store_be32(out + offsetof(SidrLayout, status), fields.status);
    std::copy(fields.data.begin(), fields.data.end(), out + kSidrHeader);
}

/// The fields of a frame of that type, whose private data lie in it.
std::optional<SidrAnswer> read_sidr(ConstBytes frame, SidrType type) noexcept {
    if (frame.size() < kSidrHeader) return std::nullopt;
    const std::byte* const in = frame.data();
    if (std::memcmp(in, kSidrMagic, sizeof kSidrMagic) != 0 ||
        in[offsetof(SidrLayout, version)] != std::byte{kSidrVersion} ||
        in[offsetof(SidrLayout, type)] != static_cast<std::byte>(type)) {
        return std::nullopt;
    }
    const std::size_t length = load_be16(in + offsetof(SidrLayout, length));
    if (length > frame.size() - kSidrHeader) return std::nullopt;
    SidrAnswer fields;
    fields.number = load_be32(in + offsetof(SidrLayout, number));
    fields.qp_num = load_be32(in + offsetof(SidrLayout, qp_num));
    fields.qkey = load_be32(in + offsetof(SidrLayout, qkey));
    fields.status = load_be32(in + offsetof(SidrLayout, status));
    fields.data = frame.subspan(kSidrHeader, length);
    return fields;
}

}  // namespace

std::array<std::byte, kSidrRequestBytes> encode(const SidrRequest& request) noexcept {
    std::array<std::byte, kSidrRequestBytes> octets{};
    write_sidr(octets.data(), SidrType::request, {.number = request.number, .data = request.data});
    return octets;
}

EncodedSidrAnswer encode(const SidrAnswer& answer) noexcept {
    EncodedSidrAnswer encoded;
    encoded.size = kSidrHeader + answer.data.size();
    write_sidr(encoded.memory.data(), SidrType::answer, answer);
    return encoded;
}

std::optional<SidrRequest> decode_sidr_request(ConstBytes frame) noexcept {
    if (frame.size() != kSidrRequestBytes) return std::nullopt;
    const auto fields = read_sidr(frame, SidrType::request);
    if (!fields || (fields->qp_num | fields->qkey | fields->status) != 0) return std::nullopt;
    const ConstBytes padding = frame.subspan(kSidrHeader + fields->data.size());
    if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{}; })) {
        return std::nullopt;
    }
    return SidrRequest{fields->number, fields->data};
}

std::optional<SidrAnswer> decode_sidr_answer(ConstBytes frame) noexcept {
    if (frame.size() > kSidrAnswerBytes) return std::nullopt;
    const auto fields = read_sidr(frame, SidrType::answer);
    if (!fields || frame.size() != kSidrHeader + fields->data.size()) return std::nullopt;
    const bool numbered = fields->qp_num != 0 && fields->qp_num <= kQpNumMax;
    const bool holds =
        fields->status == sidr_status::kAccepted ? numbered : (fields->qp_num | fields->qkey) == 0;
    if (!holds) return std::nullopt;
    return fields;
}

void SidrRepeat::sent(Time now) noexcept {
    wait_ = std::min(2 * wait_, kLongest);
    next_ = now + wait_;
}

void SidrAnswers::add(const SidrKey& key, const EncodedSidrAnswer& answer, Time now) {
    while (!order_.empty() && (order_.front().until <= now || order_.size() >= kMost)) {
        drop_oldest();
    }
    const auto [found, added] = answers_.try_emplace(key, answer);
    if (!added) return;
    try {
        order_.push_back({key, now + kKept});
    } catch (...) {
        answers_.erase(found);
        throw;
    }
}

const EncodedSidrAnswer* SidrAnswers::find(const SidrKey& key, Time now) {
    while (!order_.empty() && order_.front().until <= now) drop_oldest();
    const auto found = answers_.find(key);
    return found != answers_.end() ? &found->second : nullptr;
}

void SidrAnswers::drop_oldest() {
    answers_.erase(order_.front().key);
    order_.pop_front();
}

}  // namespace xsock::verbs
