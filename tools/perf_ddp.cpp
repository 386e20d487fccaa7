// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/perf_lanes.hpp"
#include "tools/text.hpp"

// Besides payload, Sends carry two words: ack (no octet), "all of yours has come", and done (one
// octet, where payload does not travel by Sends), "I am through". Payload has at least one octet.
namespace xsock::tools::perf {
namespace {

constexpr std::uint32_t kAckLength = 0;
constexpr std::uint32_t kDoneLength = 1;
constexpr int kStartMs = 10'000;
constexpr std::uint64_t kWordId = 1, kReceiveId = 2, kPayloadId = 3;

std::uint64_t window(const Sample& sample) { return std::uint64_t{sample.depth} * 2; }

}  // namespace

DdpLanes::DdpLanes(std::uint32_t size, std::uint32_t depth, bool crc)
    : max_size_(std::max(size, 16u)),
      max_depth_(depth),
      want_crc_(crc),
      cq_(make_cq()),
      out_(max_size_, 'o'),
      in_(max_size_),
      region_(max_size_, 'r') {
    mr_.reset(xsock_mr_register(nullptr, region_.data(), region_.size(),
                                XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, nullptr));
    if (mr_ == nullptr) fail_errno("no memory region");
}

DdpLanes::~DdpLanes() {
    // Nothing may be sent from memory that goes with us.
    for (Lane& lane : lanes_) {
        if (lane.ep != nullptr) xsock_ep_abort(lane.ep.release());
    }
}

bool DdpLanes::crc() const { return !lanes_.empty() && info_of(lanes_[0].ep.get()).crc != 0; }

EpPtr DdpLanes::start(int fd, bool initiator, std::uint64_t token, std::uint32_t index) {
    DataHello hello{};
    std::memcpy(hello.magic, kControlMagic, sizeof kControlMagic);
    store_be64(hello.token, token);
    store_be32(hello.index, index);
    if (xsock_mr_key(mr_.get(), 0, region_.size(), &hello.key) != 0) fail_errno("xsock_mr_key");
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq_.get();
    attr.role = initiator ? XSOCK_ROLE_INITIATOR : XSOCK_ROLE_RESPONDER;
    attr.flags = (initiator ? 0 : XSOCK_EP_DEFER) | (want_crc_ ? 0 : XSOCK_EP_NO_CRC);
    attr.sq_depth = max_depth_ + 8;
    attr.rq_depth = 2 * max_depth_ + 8;
    attr.ird = attr.ord = static_cast<std::uint16_t>(std::max(max_depth_, 16u));
    attr.receive_wait_ms = -1;
    if (initiator) {
        attr.private_data = &hello;
        attr.private_data_length = sizeof hello;
    }
    EpPtr ep(xsock_ep_create(fd, &attr));
    if (ep == nullptr) fail_errno("xsock_ep_create");
    if (xsock_ep_wait(ep.get(), kStartMs) != 0) fail_errno("iWARP does not start");
    return ep;
}

void DdpLanes::adopt(EpPtr ep, std::uint32_t index, const xsock_key& key) {
    if (lanes_.size() <= index) lanes_.resize(index + 1);
    Lane& lane = lanes_[index];
    if (lane.ep != nullptr) fail("two connections with one number");
    xsock_key_read(&key, &lane.remote);
    if (xsock_ep_set_context(ep.get(), reinterpret_cast<void*>(std::uintptr_t{index})) != 0) {
        fail_errno("xsock_ep_set_context");
    }
    lane.ep = std::move(ep);
}

void DdpLanes::connect(int fd, std::uint64_t token, std::uint32_t index) {
    EpPtr ep = start(fd, true, token, index);
    const xsock_ep_info info = info_of(ep.get());
    DataHello answer{};
    if (info.private_data_length < sizeof answer) fail("the server's Reply lacks its key");
    std::memcpy(&answer, info.private_data, sizeof answer);
    adopt(std::move(ep), index, answer.key);
}

std::uint32_t DdpLanes::accept(int fd, std::uint64_t token) {
    EpPtr ep = start(fd, false, token, 0);
    const xsock_ep_info info = info_of(ep.get());
    DataHello asked{};
    if (info.private_data_length >= sizeof asked) {
        std::memcpy(&asked, info.private_data, sizeof asked);
    }
    const std::uint32_t index = load_be32(asked.index);
    if (std::memcmp(asked.magic, kControlMagic, sizeof kControlMagic) != 0 ||
        load_be64(asked.token) != token || index >= Limits::connections) {
        static constexpr char kWords[] = "not of this session";
        xsock_ep_reject(ep.get(), kWords, sizeof kWords - 1);
        fail("a connection that is not of this session");
    }
    DataHello answer = asked;
    if (xsock_mr_key(mr_.get(), 0, region_.size(), &answer.key) != 0) fail_errno("xsock_mr_key");
    if (xsock_ep_accept(ep.get(), &answer, sizeof answer) != 0) fail_errno("xsock_ep_accept");
    if (xsock_ep_wait(ep.get(), kStartMs) != 0) fail_errno("iWARP does not start");
    adopt(std::move(ep), index, asked.key);
    return index;
}

// ---- posting and taking ---------------------------------------------------

void DdpLanes::post_receive(std::size_t i) {
    Lane& lane = lanes_[i];
    if (xsock_recv(lane.ep.get(), kReceiveId, in_.data(), max_size_) != 0) {
        fail_errno("xsock_recv");
    }
    --lane.receives_left;
}

std::uint32_t DdpLanes::take(xsock_wc* wc, std::uint32_t max, bool spin) {
    std::uint64_t deadline = 0;
    for (;;) {
        const int n = spin ? xsock_cq_poll(cq_.get(), wc, static_cast<int>(max))
                           : xsock_cq_wait(cq_.get(), wc, 1, static_cast<int>(max), 200);
        if (n < 0) fail_errno("xsock_cq_poll");
        for (int i = 0; i < n; ++i) {
            if (wc[i].status == XSOCK_WC_SUCCESS) continue;
            const auto lane = reinterpret_cast<std::uintptr_t>(wc[i].context);
            fail("%s (%s)", lane < lanes_.size() ? end_of(lanes_[lane].ep.get()).c_str() : "?",
                 xsock_wc_str(wc[i].status));
        }
        if (n > 0) return static_cast<std::uint32_t>(n);
        if (interrupted()) fail("interrupted");
        const std::uint64_t now = now_ns();
        if (deadline == 0) deadline = now + std::uint64_t{kStallMs} * 1'000'000u;
        if (now >= deadline) fail("nothing moved for %d s", kStallMs / 1000);
    }
}

xsock_wc DdpLanes::take_one(bool spin) {
    xsock_wc wc;
    (void)take(&wc, 1, spin);
    return wc;
}

void DdpLanes::send(Lane& lane, std::uint32_t length, std::uint32_t flags) {
    if (xsock_send(lane.ep.get(), kWordId, out_.data(), length, flags) != 0) {
        fail_errno("xsock_send");
    }
}

void DdpLanes::prepare(const Sample& sample) {
    const bool latency = sample.test == Test::latency;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = lanes_[i];
        if (lane.ep == nullptr) fail("a connection is missing");
        lane.to_send = lane.in_flight = lane.unsignaled = lane.to_receive = 0;
        lane.done_due = lane.ack_due = lane.done_owed = lane.ack_owed = false;
        lane.receives_left = 0;
        if (latency) {
            if (i > 0) continue;
            // Send, Write: a message for each ping and each pong. Read: the word done.
            lane.receives_left = sample.op == Op::read ? (sample.client ? 0 : 1) : sample.count;
        } else {
            const bool sends = sample.client || sample.both_ways;
            const bool receives = !sample.client || sample.both_ways;
            lane.to_send = sends ? sample.count : 0;
            switch (sample.op) {
                case Op::send:
                    lane.to_receive = receives ? sample.count : 0;
                    lane.ack_due = sends;
                    lane.ack_owed = receives;
                    break;
                case Op::write:
                    lane.done_owed = lane.ack_due = sends;
                    lane.done_due = lane.ack_owed = receives;
                    break;
                case Op::read:
                    lane.done_owed = sends;
                    lane.done_due = receives;
                    break;
            }
            lane.receives_left = lane.to_receive + (lane.done_due ? 1 : 0) + (lane.ack_due ? 1 : 0);
        }
        const std::uint64_t first = latency ? 2 : window(sample);
        for (std::uint64_t n = 0; n < first && lane.receives_left > 0; ++n) post_receive(i);
    }
}

double DdpLanes::run(const Sample& sample) {
    return sample.test == Test::latency ? run_latency(sample) : run_stream(sample);
}

// ---- latency --------------------------------------------------------------

void DdpLanes::await_receive(bool spin, std::uint32_t length) {
    const xsock_wc wc = take_one(spin);
    if (wc.op != XSOCK_OP_RECV || wc.length != length) {
        fail("a message of %u octets came, not of %u", wc.length, length);
    }
    if (lanes_[0].receives_left > 0) post_receive(0);
}

double DdpLanes::run_latency(const Sample& sample) {
    Lane& lane = lanes_.at(0);
    const bool spin = sample.polling;
    // A Write tells nobody; the word behind it does, in the same FPDU batch.
    const auto say = [&] {
        if (sample.op == Op::send) {
            if (xsock_send(lane.ep.get(), kPayloadId, out_.data(), sample.size, XSOCK_UNSIGNALED) !=
                0) {
                fail_errno("xsock_send");
            }
            return;
        }
        if (xsock_write(lane.ep.get(), kPayloadId, out_.data(), sample.size, &lane.remote, 0,
                        XSOCK_UNSIGNALED | XSOCK_MORE) != 0) {
            fail_errno("xsock_write");
        }
        send(lane, kDoneLength, XSOCK_UNSIGNALED);
    };
    const std::uint32_t heard = sample.op == Op::send ? sample.size : kDoneLength;
    const std::uint64_t begin = now_ns();
    if (!sample.client) {
        if (sample.op == Op::read) {
            await_receive(spin, kDoneLength);
            return 0;
        }
        for (std::uint64_t i = 0; i < sample.count; ++i) {
            await_receive(spin, heard);
            say();
        }
        return 0;
    }
    std::uint64_t before = begin;
    for (std::uint64_t i = 0; i < sample.count; ++i) {
        if (sample.op == Op::read) {
            if (xsock_read(lane.ep.get(), kPayloadId, in_.data(), sample.size, &lane.remote, 0,
                           0) != 0) {
                fail_errno("xsock_read");
            }
            if (const xsock_wc wc = take_one(spin); wc.op != XSOCK_OP_READ) {
                fail("an unexpected message");
            }
        } else {
            say();
            await_receive(spin, heard);
        }
        const std::uint64_t now = now_ns();
        if (sample.times != nullptr) sample.times->push_back(static_cast<double>(now - before));
        before = now;
    }
    const auto took = static_cast<double>(before - begin);
    if (sample.op == Op::read) {
        send(lane, kDoneLength, 0);
        (void)take_one(spin);
    }
    return took;
}

// ---- streams --------------------------------------------------------------

bool DdpLanes::finished(const Lane& lane) {
    return lane.to_send == 0 && lane.in_flight == 0 && lane.to_receive == 0 && !lane.done_due &&
           !lane.ack_due && !lane.done_owed && !lane.ack_owed;
}

/// Posts as much as the depth allows, and the words that are due.
void DdpLanes::fill(Lane& lane, const Sample& sample) {
    const std::uint64_t signal_every = std::max<std::uint64_t>(1, sample.depth / 4);
    while (lane.to_send > 0 && lane.in_flight < sample.depth) {
        --lane.to_send;
        ++lane.in_flight;
        ++lane.unsignaled;
        const bool signal = lane.unsignaled == signal_every || lane.to_send == 0;
        const bool more = lane.to_send > 0 && lane.in_flight < sample.depth;
        const std::uint32_t flags = (signal ? 0 : XSOCK_UNSIGNALED) | (more ? XSOCK_MORE : 0);
        // What one completion stands for travels with it.
        const std::uint64_t id = kPayloadId + lane.unsignaled;
        if (signal) lane.unsignaled = 0;
        int result = 0;
        switch (sample.op) {
            case Op::send:
                result = xsock_send(lane.ep.get(), id, out_.data(), sample.size, flags);
                break;
            case Op::write:
                result = xsock_write(lane.ep.get(), id, out_.data(), sample.size, &lane.remote, 0,
                                     flags);
                break;
            case Op::read:
                result =
                    xsock_read(lane.ep.get(), id, in_.data(), sample.size, &lane.remote, 0, flags);
                break;
        }
        if (result != 0) fail_errno("xsock_%s", sample.op == Op::send ? "send" : "write or read");
    }
    // Writes are followed at once; Reads must have come.
    if (lane.done_owed && lane.to_send == 0 && (sample.op != Op::read || lane.in_flight == 0)) {
        lane.done_owed = false;
        send(lane, kDoneLength, XSOCK_UNSIGNALED);
    }
    if (lane.ack_owed && lane.to_receive == 0 && !lane.done_due) {
        lane.ack_owed = false;
        send(lane, kAckLength, XSOCK_UNSIGNALED);
    }
}

void DdpLanes::on_completion(const xsock_wc& wc, const Sample& sample) {
    const auto i = reinterpret_cast<std::uintptr_t>(wc.context);
    if (i >= lanes_.size()) fail("a completion of nobody's");
    Lane& lane = lanes_[i];
    if (wc.op != XSOCK_OP_RECV) {
        const std::uint64_t stands_for = wc.wr_id - kPayloadId;
        if (wc.wr_id < kPayloadId || stands_for > lane.in_flight) fail("a completion too many");
        lane.in_flight -= stands_for;
        return;
    }
    if (lane.receives_left > 0) post_receive(i);
    if (wc.length == kAckLength && lane.ack_due) {
        lane.ack_due = false;
    } else if (sample.op == Op::send && wc.length == sample.size && lane.to_receive > 0) {
        --lane.to_receive;
    } else if (sample.op != Op::send && wc.length == kDoneLength && lane.done_due) {
        lane.done_due = false;
    } else {
        fail("an unexpected message of %u octets", wc.length);
    }
}

double DdpLanes::run_stream(const Sample& sample) {
    const std::uint64_t begin = now_ns();
    for (Lane& lane : lanes_) fill(lane, sample);
    const auto all_finished = [&] {
        return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& l) { return finished(l); });
    };
    while (!all_finished()) {
        xsock_wc wc[32];
        const std::uint32_t n = take(wc, 32, sample.polling);
        for (std::uint32_t i = 0; i < n; ++i) on_completion(wc[i], sample);
        for (Lane& lane : lanes_) fill(lane, sample);
    }
    return static_cast<double>(now_ns() - begin);
}

}  // namespace xsock::tools::perf
