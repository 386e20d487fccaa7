// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/record_receiver.hpp"

#include <algorithm>
#include <cstring>

#include "base/fault.hpp"
#include "base/place.hpp"
#include "include/xsock/ddp_uapi.h"
#include "include/xsock/iwarp.h"
#include "mpa/fpdu.hpp"

namespace xsock::mpa {
namespace {

/// Bodies are structures of the host's byte order.
template <typename T>
T read_as(const std::byte* bytes) noexcept {
    T out;
    std::memcpy(&out, bytes, sizeof out);
    return out;
}

/// Is this what a run of Writes can be?
bool sound(const ddp_placed& run) noexcept {
    constexpr unsigned kTaggedV1 = DDP_FLAG_TAGGED | DDP_VERSION;
    const bool last = (run.last_control & DDP_FLAG_LAST) != 0;
    return run.fpdus != 0 && run.fpdus <= run.wire && run.octets <= run.wire &&
           run.messages <= run.fpdus && (!last || run.messages != 0) &&
           run.message_octets <= run.octets && run.last_length <= run.message_octets &&
           (run.last_control & (kTaggedV1 | DDP_VERSION_MASK)) == kTaggedV1 &&
           (run.last_rdmap & RDMAP_OPCODE_MASK) == RDMAP_WRITE;
}

std::uint64_t padding(std::uint32_t length) noexcept {
    return DDP_RECORD_BYTES(length) - sizeof(ddp_record) - length;
}

}  // namespace

std::size_t RecordReceiver::consume(ConstBytes bytes, Ulp& ulp) {
    ConstBytes in = bytes;
    bool room = true;
    while (!in.empty() && room && stream_error() == StreamError::none) {
        switch (step_) {
            case Step::header:
                take_header(in, ulp);
                break;
            case Step::raw:
                room = take_raw(in, ulp);
                break;
            case Step::ulpdu:
                room = take_ulpdu(in, ulp);
                break;
            case Step::body:
                take_body(in, ulp);
                break;
            case Step::skip:
                skip(in);
                break;
        }
    }
    return bytes.size() - in.size();
}

/// Takes bytes until so many of them are held; true once they are.
bool RecordReceiver::gather(ConstBytes& in, std::size_t bytes) {
    const std::size_t n = std::min(bytes - have_, in.size());
    std::copy_n(in.begin(), n, held_.begin() + have_);
    have_ = static_cast<std::uint8_t>(have_ + n);
    in = in.subspan(n);
    return have_ == bytes;
}

void RecordReceiver::take_header(ConstBytes& in, Ulp& ulp) {
    if (!gather(in, sizeof(ddp_record))) return;
    have_ = 0;
    begin(ulp);
}

/// A record begins: what is wrong with its length is seen here.
void RecordReceiver::begin(Ulp& ulp) {
    const auto record = read_as<ddp_record>(held_.data());
    type_ = record.type;
    length_ = left_ = record.length;
    to_skip_ = padding(length_);
    // What other records stand for begins and ends where FPDUs do.
    const bool inside = !octets_.between_fpdus();
    switch (type_) {
        case DDP_RECORD_RAW:
            step_ = length_ != 0 ? Step::raw : Step::header;
            return;
        case DDP_RECORD_ULPDU:
            if (inside || length_ > MPA_ULPDU_MAX) return fail();
            step_ = Step::ulpdu;
            if (length_ != 0) return;
            // There is no byte to wait for.
            ulp.rx_begin(0);
            ulp.rx_end(true);
            return end_ulpdu();
        case DDP_RECORD_PLACED:
            if (inside || length_ < sizeof(ddp_placed)) return fail();
            step_ = Step::body;
            return;
        case DDP_RECORD_RESPONSE:
            if (inside || length_ < sizeof(ddp_response)) return fail();
            step_ = Step::body;
            return;
        default:
            to_skip_ += length_;
            step_ = to_skip_ != 0 ? Step::skip : Step::header;
            return;
    }
}

void RecordReceiver::skip(ConstBytes& in) {
    const std::uint64_t n = std::min<std::uint64_t>(to_skip_, in.size());
    in = in.subspan(static_cast<std::size_t>(n));
    to_skip_ -= n;
    if (to_skip_ == 0) step_ = Step::header;
}

bool RecordReceiver::take_raw(ConstBytes& in, Ulp& ulp) {
    const std::size_t offered = std::min<std::size_t>(left_, in.size());
    const std::size_t n = octets_.consume(in.first(offered), ulp);
    in = in.subspan(n);
    left_ -= static_cast<std::uint32_t>(n);
    stream_octets_ += n;
    if (left_ == 0) step_ = to_skip_ != 0 ? Step::skip : Step::header;
    return n == offered;
}

/// False: there is no room now.
bool RecordReceiver::take_ulpdu(ConstBytes& in, Ulp& ulp) {
    if (begun_ || in.size() < left_) return ulpdu_in_steps(in, ulp);
    const std::size_t taken = ulp.rx_ulpdu(in.first(left_));
    in = in.subspan(taken);
    left_ -= static_cast<std::uint32_t>(taken);
    begun_ = left_ != 0;
    if (begun_) return false;
    end_ulpdu();
    return true;
}

bool RecordReceiver::ulpdu_in_steps(ConstBytes& in, Ulp& ulp) {
    if (!begun_) ulp.rx_begin(length_);
    begun_ = true;
    const Bytes target = ulp.rx_target();
    if (target.empty()) return false;
    const std::size_t n = std::min({target.size(), in.size(), std::size_t{left_}});
    {
        const fault::Touch touch(1, target.data(), n);
        place(target.data(), in.data(), n);
    }
    ulp.rx_advance(n);
    in = in.subspan(n);
    left_ -= static_cast<std::uint32_t>(n);
    if (left_ != 0) return true;
    ulp.rx_end(true);
    end_ulpdu();
    return true;
}

void RecordReceiver::end_ulpdu() {
    begun_ = false;
    delivered_any_ = true;
    stream_octets_ += octets_.skip_fpdu(length_);
    step_ = to_skip_ != 0 ? Step::skip : Step::header;
}

void RecordReceiver::take_body(ConstBytes& in, Ulp& ulp) {
    if (type_ == DDP_RECORD_PLACED) {
        if (!gather(in, sizeof(ddp_placed))) return;
        placed(ulp);
        end_body(sizeof(ddp_placed));
    } else {
        if (!gather(in, sizeof(ddp_response))) return;
        response(ulp);
        end_body(sizeof(ddp_response));
    }
}

/// What a later module has put behind what we know is skipped.
void RecordReceiver::end_body(std::size_t known) {
    have_ = 0;
    to_skip_ += length_ - known;
    step_ = to_skip_ != 0 ? Step::skip : Step::header;
}

void RecordReceiver::placed(Ulp& ulp) {
    static_assert(sizeof(ddp_placed) <= kMostKnown);
    const auto run = read_as<ddp_placed>(held_.data());
    if (!sound(run)) return fail();
    passed(run.wire);
    ulp.rx_placed({.segments = run.fpdus,
                   .messages = run.messages,
                   .bytes = run.octets,
                   .last_bytes = run.message_octets,
                   .last_ended = (run.last_control & DDP_FLAG_LAST) != 0});
}

void RecordReceiver::response(Ulp& ulp) {
    static_assert(sizeof(ddp_response) <= kMostKnown);
    static_assert(sizeof(ddp_response::header) == sizeof(ddp_tagged));
    const auto one = read_as<ddp_response>(held_.data());
    if (one.length > MPA_ULPDU_MAX - sizeof(ddp_tagged) || one.length > one.wire) return fail();
    passed(one.wire);
    const ConstBytes header =
        ConstBytes(held_).subspan(offsetof(ddp_response, header), sizeof(ddp_tagged));
    ulp.rx_placed_response(header, one.length);
}

void RecordReceiver::passed(std::uint64_t wire) {
    delivered_any_ = true;
    stream_octets_ += wire;
    octets_.skip(wire);
}

}  // namespace xsock::mpa
