// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/perf/connections.hpp"
#include "tools/text.hpp"

// Besides payload, Sends carry two words: ack (no byte), "all of yours has come", and done (one
// byte, where payload does not travel by Sends), "I am through". Payload has at least one byte.
namespace xsock::tools::perf {
namespace {

constexpr std::uint32_t kAckLength = 0;
constexpr std::uint32_t kDoneLength = 1;
constexpr int kStartMs = 10'000;
constexpr std::uint64_t kWordId = 1, kReceiveId = 2, kPayloadId = 3;

std::uint64_t window(const Sample& sample) { return std::uint64_t{sample.depth} * 2; }

}  // namespace

DdpConnections::DdpConnections(std::uint32_t size, std::uint32_t depth, bool crc, int stall_ms)
    : max_size_(std::max(size, 16u)),
      max_depth_(depth),
      want_crc_(crc),
      stall_ms_(stall_ms),
      cq_(make_cq()),
      out_(max_size_, 'o'),
      in_(max_size_),
      region_(max_size_, 'r') {
    mr_.reset(xsock_mr_register(nullptr, region_.data(), region_.size(),
                                XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, nullptr));
    if (mr_ == nullptr) fail_errno("no memory region");
}

DdpConnections::~DdpConnections() {
    // Nothing may be sent from memory that goes with us.
    for (Connection& c : connections_) {
        if (c.ep != nullptr) xsock_ep_abort(c.ep.release());
    }
}

bool DdpConnections::crc() const {
    return !connections_.empty() && info_of(connections_[0].ep.get()).crc != 0;
}

EpPtr DdpConnections::start(int fd, bool initiator, std::uint64_t token, std::uint32_t index) {
    DataHello hello{};
    std::memcpy(hello.magic, kControlMagic, sizeof kControlMagic);
    store_be64(hello.token, token);
    store_be32(hello.index, index);
    ensure(xsock_mr_key(mr_.get(), 0, region_.size(), &hello.key), "xsock_mr_key");
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq_.get();
    attr.role = initiator ? XSOCK_ROLE_INITIATOR : XSOCK_ROLE_RESPONDER;
    attr.flags = (initiator ? 0 : XSOCK_EP_DEFER) | (want_crc_ ? 0 : XSOCK_EP_NO_CRC);
    attr.sq_depth = max_depth_ + 8;
    attr.rq_depth = 2 * max_depth_ + 8;
    attr.ird = attr.ord = static_cast<std::uint16_t>(std::max(max_depth_, 16u));
    attr.rnr_timeout_ms = -1;
    if (initiator) {
        attr.private_data = &hello;
        attr.private_data_length = sizeof hello;
    }
    EpPtr ep(xsock_ep_create(fd, &attr));
    if (ep == nullptr) fail_errno("xsock_ep_create");
    ensure(xsock_ep_wait(ep.get(), kStartMs), "iWARP does not start");
    return ep;
}

void DdpConnections::adopt(EpPtr ep, std::uint32_t index, const xsock_key& key) {
    if (connections_.size() <= index) connections_.resize(index + 1);
    Connection& c = connections_[index];
    if (c.ep != nullptr) fail("two connections with one number");
    xsock_key_read(&key, &c.remote);
    ensure(xsock_ep_set_context(ep.get(), reinterpret_cast<void*>(std::uintptr_t{index})),
           "xsock_ep_set_context");
    c.ep = std::move(ep);
}

void DdpConnections::connect(int fd, std::uint64_t token, std::uint32_t index) {
    EpPtr ep = start(fd, true, token, index);
    const xsock_ep_info info = info_of(ep.get());
    DataHello answer{};
    if (info.private_data_length < sizeof answer) fail("the server's Reply lacks its key");
    std::memcpy(&answer, info.private_data, sizeof answer);
    adopt(std::move(ep), index, answer.key);
}

std::uint32_t DdpConnections::accept(int fd, std::uint64_t token) {
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
    ensure(xsock_mr_key(mr_.get(), 0, region_.size(), &answer.key), "xsock_mr_key");
    ensure(xsock_ep_accept(ep.get(), &answer, sizeof answer), "xsock_ep_accept");
    ensure(xsock_ep_wait(ep.get(), kStartMs), "iWARP does not start");
    adopt(std::move(ep), index, asked.key);
    return index;
}

// ---- posting and taking ---------------------------------------------------

void DdpConnections::post_receive(std::size_t i) {
    Connection& c = connections_[i];
    ensure(xsock_recv(c.ep.get(), kReceiveId, in_.data(), max_size_), "xsock_recv");
    --c.receives_left;
}

std::uint64_t DdpConnections::bytes_moved() const {
    std::uint64_t bytes = 0;
    for (const Connection& c : connections_) {
        if (c.ep == nullptr) continue;
        const xsock_ep_info info = info_of(c.ep.get());
        bytes += info.tx_bytes + info.rx_bytes;
    }
    return bytes;
}

std::uint32_t DdpConnections::take(xsock_wc* wc, std::uint32_t max, bool spin) {
    std::uint64_t deadline = 0;
    for (;;) {
        const int n = spin ? xsock_cq_poll(cq_.get(), wc, static_cast<int>(max))
                           : xsock_cq_wait(cq_.get(), wc, 1, static_cast<int>(max), 200);
        if (n < 0) fail_errno("xsock_cq_poll");
        for (int i = 0; i < n; ++i) {
            if (wc[i].status == XSOCK_WC_SUCCESS) continue;
            const auto c = reinterpret_cast<std::uintptr_t>(wc[i].context);
            fail("{} ({})",
                 c < connections_.size() ? end_of(connections_[c].ep.get()).c_str() : "?",
                 xsock_wc_str(wc[i].status));
        }
        if (n > 0) return static_cast<std::uint32_t>(n);
        if (interrupted()) fail("interrupted");
        const std::uint64_t now = now_ns();
        const std::uint64_t limit = now + static_cast<std::uint64_t>(stall_ms_) * 1'000'000u;
        if (deadline == 0) deadline = limit;
        if (now < deadline) continue;
        // An end that is written to, or read from, has no completion before the word done.
        const std::uint64_t moved = bytes_moved();
        if (moved == std::exchange(moved_, moved)) fail("nothing moved for {} s", stall_ms_ / 1e3);
        deadline = limit;
    }
}

xsock_wc DdpConnections::take_one(bool spin) {
    xsock_wc wc;
    (void)take(&wc, 1, spin);
    return wc;
}

void DdpConnections::send(Connection& c, std::uint32_t length, std::uint32_t flags) {
    ensure(xsock_send(c.ep.get(), kWordId, out_.data(), length, flags), "xsock_send");
}

void DdpConnections::prepare(const Sample& sample) {
    const bool latency = sample.test == Test::latency;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        Connection& c = connections_[i];
        if (c.ep == nullptr) fail("a connection is missing");
        c.to_send = c.in_flight = c.unsignaled = c.to_receive = 0;
        c.done_due = c.ack_due = c.done_owed = c.ack_owed = false;
        c.receives_left = 0;
        if (latency) {
            if (i > 0) continue;
            // Send, Write: a message for each ping and each pong. Read: the word done.
            c.receives_left = sample.op == Op::read ? (sample.client ? 0 : 1) : sample.count;
        } else {
            const bool sends = sample.client || sample.both_ways;
            const bool receives = !sample.client || sample.both_ways;
            c.to_send = sends ? sample.count : 0;
            switch (sample.op) {
                case Op::send:
                    c.to_receive = receives ? sample.count : 0;
                    c.ack_due = sends;
                    c.ack_owed = receives;
                    break;
                case Op::write:
                    c.done_owed = c.ack_due = sends;
                    c.done_due = c.ack_owed = receives;
                    break;
                case Op::read:
                    c.done_owed = sends;
                    c.done_due = receives;
                    break;
            }
            c.receives_left = c.to_receive + (c.done_due ? 1 : 0) + (c.ack_due ? 1 : 0);
        }
        const std::uint64_t first = latency ? 2 : window(sample);
        for (std::uint64_t n = 0; n < first && c.receives_left > 0; ++n) post_receive(i);
    }
}

double DdpConnections::run(const Sample& sample) {
    return sample.test == Test::latency ? run_latency(sample) : run_stream(sample);
}

// ---- latency --------------------------------------------------------------

void DdpConnections::await_receive(bool spin, std::uint32_t length) {
    const xsock_wc wc = take_one(spin);
    if (wc.op != XSOCK_OP_RECV || wc.length != length) {
        fail("a message of {} bytes came, not of {}", wc.length, length);
    }
    if (connections_[0].receives_left > 0) post_receive(0);
}

double DdpConnections::run_latency(const Sample& sample) {
    Connection& c = connections_.at(0);
    const bool spin = sample.polling;
    // A Write completes nothing at the peer; the word behind it does, in the same FPDU batch.
    const auto say = [&] {
        if (sample.op == Op::send) {
            ensure(xsock_send(c.ep.get(), kPayloadId, out_.data(), sample.size, XSOCK_UNSIGNALED),
                   "xsock_send");
            return;
        }
        ensure(xsock_write(c.ep.get(), kPayloadId, out_.data(), sample.size, &c.remote, 0,
                           XSOCK_UNSIGNALED | XSOCK_MORE),
               "xsock_write");
        send(c, kDoneLength, XSOCK_UNSIGNALED);
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
            ensure(xsock_read(c.ep.get(), kPayloadId, in_.data(), sample.size, &c.remote, 0, 0),
                   "xsock_read");
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
        send(c, kDoneLength, 0);
        (void)take_one(spin);
    }
    return took;
}

// ---- streams --------------------------------------------------------------

bool DdpConnections::finished(const Connection& c) {
    return c.to_send == 0 && c.in_flight == 0 && c.to_receive == 0 && !c.done_due && !c.ack_due &&
           !c.done_owed && !c.ack_owed;
}

/// Posts as much as the depth allows, and the words that are due.
void DdpConnections::fill(Connection& c, const Sample& sample) {
    const std::uint64_t signal_every = std::max<std::uint64_t>(1, sample.depth / 4);
    while (c.to_send > 0 && c.in_flight < sample.depth) {
        --c.to_send;
        ++c.in_flight;
        ++c.unsignaled;
        const bool signal = c.unsignaled == signal_every || c.to_send == 0;
        const bool more = c.to_send > 0 && c.in_flight < sample.depth;
        const std::uint32_t flags = (signal ? 0 : XSOCK_UNSIGNALED) | (more ? XSOCK_MORE : 0);
        // What one completion stands for travels with it.
        const std::uint64_t id = kPayloadId + c.unsignaled;
        if (signal) c.unsignaled = 0;
        int result = 0;
        switch (sample.op) {
            case Op::send:
                result = xsock_send(c.ep.get(), id, out_.data(), sample.size, flags);
                break;
            case Op::write:
                result = xsock_write(c.ep.get(), id, out_.data(), sample.size, &c.remote, 0, flags);
                break;
            case Op::read:
                result = xsock_read(c.ep.get(), id, in_.data(), sample.size, &c.remote, 0, flags);
                break;
        }
        if (result != 0) fail_errno("xsock_{}", sample.op == Op::send ? "send" : "write or read");
    }
    // Writes are followed at once; Reads must have come.
    if (c.done_owed && c.to_send == 0 && (sample.op != Op::read || c.in_flight == 0)) {
        c.done_owed = false;
        send(c, kDoneLength, XSOCK_UNSIGNALED);
    }
    if (c.ack_owed && c.to_receive == 0 && !c.done_due) {
        c.ack_owed = false;
        send(c, kAckLength, XSOCK_UNSIGNALED);
    }
}

void DdpConnections::on_completion(const xsock_wc& wc, const Sample& sample) {
    const auto i = reinterpret_cast<std::uintptr_t>(wc.context);
    if (i >= connections_.size()) fail("a completion of no connection");
    Connection& c = connections_[i];
    if (wc.op != XSOCK_OP_RECV) {
        const std::uint64_t stands_for = wc.wr_id - kPayloadId;
        if (wc.wr_id < kPayloadId || stands_for > c.in_flight) fail("a completion too many");
        c.in_flight -= stands_for;
        return;
    }
    if (c.receives_left > 0) post_receive(i);
    if (wc.length == kAckLength && c.ack_due) {
        c.ack_due = false;
    } else if (sample.op == Op::send && wc.length == sample.size && c.to_receive > 0) {
        --c.to_receive;
    } else if (sample.op != Op::send && wc.length == kDoneLength && c.done_due) {
        c.done_due = false;
    } else {
        fail("an unexpected message of {} bytes", wc.length);
    }
}

double DdpConnections::run_stream(const Sample& sample) {
    const std::uint64_t begin = now_ns();
    for (Connection& c : connections_) fill(c, sample);
    const auto all_finished = [&] {
        return std::all_of(connections_.begin(), connections_.end(),
                           [](const Connection& l) { return finished(l); });
    };
    while (!all_finished()) {
        xsock_wc wc[32];
        const std::uint32_t n = take(wc, 32, sample.polling);
        for (std::uint32_t i = 0; i < n; ++i) on_completion(wc[i], sample);
        for (Connection& c : connections_) fill(c, sample);
    }
    return static_cast<double>(now_ns() - begin);
}

}  // namespace xsock::tools::perf
