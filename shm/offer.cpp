// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/offer.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "include/xsock/iwarp.h"
#include "shm/bytes_of.hpp"

namespace xsock::shm {
namespace {

void put(const IpEndpoint& endpoint, iwarp_octet* address, iwarp_octet* port) noexcept {
    std::memcpy(address, endpoint.address.octets.data(), endpoint.address.octets.size());
    store_be16(port, endpoint.port);
}

IpEndpoint take(const iwarp_octet* address, const iwarp_octet* port) noexcept {
    IpEndpoint out;
    std::memcpy(out.address.octets.data(), address, out.address.octets.size());
    out.port = load_be16(port);
    return out;
}

}  // namespace

std::array<char, 33> text_of(const Key& key) noexcept {
    constexpr char kDigits[] = "0123456789abcdef";
    std::array<char, 33> text{};
    for (std::size_t i = 0; i < key.size(); ++i) {
        const auto byte = std::to_integer<unsigned>(key[i]);
        text[2 * i] = kDigits[byte >> 4];
        text[2 * i + 1] = kDigits[byte & 15];
    }
    return text;
}

std::vector<std::byte> encode(const Offer& offer) {
    mpa_tlv_shm_offer value{};
    value.version = MPA_SHM_VERSION;
    std::memcpy(value.key, offer.key.data(), offer.key.size());
    store_be64(value.token, offer.token);
    put(offer.local, value.local_address, value.local_port);
    put(offer.peer, value.peer_address, value.peer_port);
    return bytes_of(value);
}

std::vector<std::byte> encode(const Answer& answer) {
    mpa_tlv_shm_answer value{};
    value.result = answer.shared_memory ? 1 : 0;
    value.reason = static_cast<iwarp_octet>(answer.reason);
    store_be64(value.link, answer.link);
    store_be16(value.slot, answer.slot);
    store_be32(value.generation, answer.generation);
    return bytes_of(value);
}

std::optional<Offer> decode_offer(ConstBytes value) noexcept {
    mpa_tlv_shm_offer read;
    if (value.size() < sizeof read) return std::nullopt;
    std::memcpy(&read, value.data(), sizeof read);
    if (read.version != MPA_SHM_VERSION) return std::nullopt;
    Offer offer;
    std::memcpy(offer.key.data(), read.key, offer.key.size());
    offer.token = load_be64(read.token);
    offer.local = take(read.local_address, read.local_port);
    offer.peer = take(read.peer_address, read.peer_port);
    return offer;
}

std::optional<Answer> decode_answer(ConstBytes value) noexcept {
    mpa_tlv_shm_answer read;
    if (value.size() < sizeof read) return std::nullopt;
    std::memcpy(&read, value.data(), sizeof read);
    if (read.result > 1) return std::nullopt;
    return Answer{.shared_memory = read.result == 1,
                  .reason = static_cast<Reason>(read.reason),
                  .link = load_be64(read.link),
                  .slot = load_be16(read.slot),
                  .generation = load_be32(read.generation)};
}

}  // namespace xsock::shm
