// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/system/traffic.hpp"

namespace xsock::test {
namespace {

constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;
constexpr std::uint32_t kPoolBytes = 512 * 1024;

// The same random bytes in every process: a message says where in them its payload begins.
const std::vector<unsigned char>& pool() {
    static const std::vector<unsigned char> bytes = [] {
        std::vector<unsigned char> made(kPoolBytes);
        Rng rng(42);
        for (std::size_t i = 0; i < made.size(); i += 8) {
            const std::uint64_t word = rng.next();
            std::memcpy(&made[i], &word, 8);
        }
        return made;
    }();
    return bytes;
}

bool same(const unsigned char* bytes, std::uint32_t pool_offset, std::uint32_t length) {
    return length == 0 || std::memcmp(bytes, pool().data() + pool_offset, length) == 0;
}

}  // namespace

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            die("seed %llu: %s:%d: %s; %s", static_cast<unsigned long long>(options_.seed), \
                __FILE__, __LINE__, #condition, state().c_str());                           \
        }                                                                                   \
    } while (false)

Traffic::Traffic(const TrafficOptions& options)
    : options_(options),
      rng_(options.seed),
      window_(std::size_t{kSlots} * options.bytes_max + options.bytes_max * 2),
      headers_(options.sq_depth),
      receive_buffers_(options.rq_depth),
      receive_posted_(options.rq_depth) {
    std::memcpy(window_.data() + std::size_t{kSlots} * options_.bytes_max, pool().data(),
                std::size_t{2} * options_.bytes_max);
    for (auto& buffer : receive_buffers_) buffer.resize(sizeof(Message) + options_.bytes_max);
    mr_ = xsock_mr_register(nullptr, window_.data(), window_.size(),
                            XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, nullptr);
    REQUIRE(mr_ != nullptr);
    REQUIRE(xsock_mr_key(mr_, 0, window_.size(), &key_) == 0);
}

Traffic::~Traffic() {
    CHECK(closed_ || ep_ == nullptr);
    CHECK(outstanding() == 0);
    REQUIRE(xsock_mr_deregister(mr_) == 0);
}

void Traffic::fill(xsock_ep_attr& attr) {
    attr.sq_depth = options_.sq_depth;
    attr.rq_depth = options_.rq_depth;
    attr.context = this;
    attr.rnr_timeout_ms = -1;
    attr.private_data = key_.bytes;
    attr.private_data_length = sizeof key_.bytes;
}

void Traffic::attach(xsock_ep* ep) {
    ep_ = ep;
    for (std::size_t i = 0; i < receive_buffers_.size(); ++i) post_receive(i);
}

void Traffic::begin() {
    peer_ = memory_of_peer(ep_);
    CHECK(peer_.length == window_.size());
    begun_ = true;
}

void Traffic::start(int fd, xsock_ep_attr& attr, int timeout_ms) {
    fill(attr);
    xsock_ep* const ep = xsock_ep_create(fd, &attr);
    REQUIRE(ep != nullptr);
    attach(ep);
    if (xsock_ep_wait(ep, timeout_ms) != 0) die("start-up: %m");
    begin();
}

std::string Traffic::state() const {
    char text[256];
    std::snprintf(text, sizeof text,
                  "%llu operations, %zu sends and %zu receives outstanding, acks owed %zu, "
                  "done sent %d received %d, failed %d",
                  static_cast<unsigned long long>(operations_), sends_.size(),
                  receives_outstanding_, acks_owed_.size(), done_sent_, done_received_, failed_);
    std::string all = text;
    if (ep_ != nullptr && !closed_) {
        XSOCK_INIT(xsock_ep_info, info);
        if (xsock_ep_query(ep_, &info) == 0) {
            std::snprintf(text, sizeof text, ", endpoint state %u, error %d %.80s", info.state,
                          info.error, info.error_text);
            all += text;
        }
    }
    return all;
}

// ---- posting ---------------------------------------------------------------

void Traffic::post_receive(std::size_t slot) {
    auto& buffer = receive_buffers_[slot];
    // In pieces, so that placement crosses their ends.
    xsock_sge sges[3];
    const auto size = static_cast<std::uint32_t>(buffer.size());
    const std::uint32_t first = 1 + rng_.below(2 * sizeof(Message));
    const std::uint32_t second = rng_.below(size - first);
    sges[0] = {buffer.data(), first, 0};
    sges[1] = {buffer.data() + first, second, 0};
    sges[2] = {buffer.data() + first + second, size - first - second, 0};
    if (xsock_post_recv(ep_, kReceiveId | slot, sges, 3) != 0) {
        // Behind the last words of the peer, which may not have been taken from the queue yet.
        CHECK(errno == EPIPE && (options_.may_fail || done_received_ || done_sent_));
        return;
    }
    CHECK(!receive_posted_[slot]);
    receive_posted_[slot] = true;
    receive_order_.push_back(slot);
    ++receives_outstanding_;
}

// `message` is what a Send carries in front; `to` the peer's address for Writes and Reads.
bool Traffic::post(Entry entry, const Message* message, std::uint64_t to) {
    entry.wr_id = next_wr_id_;
    const bool control = message != nullptr && message->kind != kData;
    // One more must follow an unsignaled one, or its end is never learned.
    const bool last = sends_.size() + 1 >= std::min(target_, options_.sq_depth);
    entry.signaled = control || last || !last_signaled_ || !rng_.one_in(3);
    XSOCK_INIT(xsock_wr, wr);
    wr.wr_id = entry.wr_id;
    wr.op = entry.op;
    std::array<xsock_sge, XSOCK_MAX_SGE> sges{};
    std::uint32_t count = 0;
    if (message != nullptr) {
        Message& header = headers_[entry.wr_id % headers_.size()];
        header = *message;
        sges[count++] = {&header, sizeof header, 0};
    }
    if (entry.op == XSOCK_OP_READ) {
        entry.read.resize(entry.length);
        sges[count++] = {entry.read.data(), entry.length, 0};
    } else {
        unsigned char* at = const_cast<unsigned char*>(pool().data()) + entry.pool_offset;
        std::uint32_t left = entry.length;
        for (std::uint32_t pieces = rng_.below(kParts); left > 0; --pieces) {
            const std::uint32_t n = pieces == 0 ? left : 1 + rng_.below(left);
            sges[count++] = {at, n, 0};
            at += n;
            left -= n;
        }
    }
    std::uint32_t total = 0;
    for (std::uint32_t i = 0; i < count; ++i) total += sges[i].length;
    wr.sge = sges.data();
    wr.sge_count = count;
    wr.remote.to = to;
    wr.remote.stag = peer_.stag;
    if (!entry.signaled) wr.flags |= XSOCK_UNSIGNALED;
    if (entry.op != XSOCK_OP_READ && total <= XSOCK_MAX_INLINE && rng_.one_in(2)) {
        wr.flags |= XSOCK_INLINE;
    }
    if (rng_.one_in(8)) wr.flags |= XSOCK_FENCE;
    if (entry.op == XSOCK_OP_SEND && rng_.one_in(4)) wr.flags |= XSOCK_SOLICITED;
    if (xsock_post(ep_, &wr) != 0) {
        // Fewer than sq_depth are outstanding, so only the end of the connection is an excuse.
        CHECK(errno == EPIPE && options_.may_fail);
        refused_ = true;
        return false;
    }
    last_signaled_ = entry.signaled;
    ++next_wr_id_;
    ++operations_;
    bytes_ += total;
    sends_.push_back(std::move(entry));
    return true;
}

bool Traffic::send(const Message& message) {
    Entry entry;
    entry.op = XSOCK_OP_SEND;
    entry.length = message.length;
    entry.pool_offset = message.pool_offset;
    Message numbered = message;
    numbered.sequence = sequence_out_;
    if (!post(std::move(entry), &numbered, 0)) return false;
    ++sequence_out_;
    return true;
}

std::uint32_t Traffic::random_length() {
    switch (rng_.below(4)) {
        case 0:
            return rng_.below(128);
        case 1:
            return rng_.below(std::min(2048u, options_.bytes_max));
        default:
            return rng_.below(options_.bytes_max);
    }
}

bool Traffic::post_random() {
    const std::uint32_t length = random_length();
    const std::uint32_t pool_offset = rng_.below(kPoolBytes - options_.bytes_max);
    const std::uint32_t what = options_.only_reads ? 1 : rng_.below(3);
    if (what == 0) {
        const auto slot = static_cast<std::uint32_t>(
            std::find(slot_busy_.begin(), slot_busy_.end(), false) - slot_busy_.begin());
        if (slot < kSlots) {
            Entry entry;
            entry.op = XSOCK_OP_WRITE;
            entry.length = length;
            entry.pool_offset = pool_offset;
            const std::uint32_t skip = rng_.below(options_.bytes_max - length);
            if (!post(std::move(entry), nullptr,
                      peer_.to + std::uint64_t{slot} * options_.bytes_max + skip)) {
                return false;
            }
            slot_busy_[slot] = true;
            slot_written_[slot] = {kWrote, 0, 0, pool_offset, slot * options_.bytes_max + skip,
                                   length};
            to_announce_.push_back(slot);
            return true;
        }
    }
    if (what == 1 && options_.reads) {
        Entry entry;
        entry.op = XSOCK_OP_READ;
        entry.length = length;
        entry.pool_offset = rng_.below(options_.bytes_max);
        const std::uint64_t to =
            peer_.to + std::uint64_t{kSlots} * options_.bytes_max + entry.pool_offset;
        return post(std::move(entry), nullptr, to);
    }
    return send({kData, 0, length, pool_offset, 0, 0});
}

void Traffic::pump() {
    if (!begun_ || failed_ || closed_) return;
    if (sends_.empty()) target_ = 1 + rng_.below(options_.sq_depth);
    const auto room = [&] { return sends_.size() < options_.sq_depth; };
    while (room() && !acks_owed_.empty()) {
        if (!send({kAck, 0, 0, 0, acks_owed_.front(), 0})) return;
        acks_owed_.pop_front();
    }
    while (room() && !to_announce_.empty()) {
        if (!send(slot_written_[to_announce_.front()])) return;
        to_announce_.pop_front();
    }
    if (finishing_) {
        const bool answered =
            std::find(slot_busy_.begin(), slot_busy_.end(), true) == slot_busy_.end();
        if (!done_sent_ && answered && room()) done_sent_ = send({kDone, 0, 0, 0, 0, 0});
        return;
    }
    while (room() && sends_.size() < target_) {
        if (!post_random()) return;
    }
}

// ---- completions -----------------------------------------------------------

void Traffic::on_completion(const xsock_wc& wc) {
    CHECK(wc.context == this);
    if (wc.op == XSOCK_OP_RECV) {
        on_receive_completion(wc);
    } else {
        on_send_completion(wc);
    }
}

void Traffic::on_send_completion(const xsock_wc& wc) {
    const bool success = wc.status == XSOCK_WC_SUCCESS;
    CHECK(success || options_.may_fail || closed_);
    if (options_.ordered) {
        CHECK(!(success && over_));
        while (!sends_.empty() && sends_.front().wr_id != wc.wr_id) {
            // Skipped: it succeeded without a completion, which only unsignaled ones may.
            CHECK(!sends_.front().signaled && !over_);
            sends_.pop_front();
        }
    }
    const auto found = std::find_if(sends_.begin(), sends_.end(),
                                    [&](const Entry& e) { return e.wr_id == wc.wr_id; });
    CHECK(found != sends_.end());  // never posted, or completed twice
    CHECK(found->op == wc.op);
    CHECK(found->signaled || !success);
    if (success && wc.op == XSOCK_OP_READ) {
        CHECK(wc.length == found->length);
        CHECK(same(found->read.data(), found->pool_offset, found->length));
    }
    if (!options_.ordered && success) {
        // Unsignaled ones just before it are done as well; signaled ones have completions of
        // their own on the way, perhaps in another thread's hands.
        auto at = found;
        while (at != sends_.begin() && !std::prev(at)->signaled) --at;
        sends_.erase(at, std::next(found));
    } else {
        sends_.erase(found);
    }
    if (success) return;
    failed_ = true;
    // When a peer has finished, Reads cannot be answered any more; Sends and Writes still go.
    if (wc.op == XSOCK_OP_READ && wc.status == XSOCK_WC_FLUSHED) return;
    over_ = true;
}

void Traffic::on_receive_completion(const xsock_wc& wc) {
    const std::size_t slot = wc.wr_id & ~kReceiveId;
    CHECK((wc.wr_id & kReceiveId) != 0 && slot < receive_posted_.size());
    CHECK(receive_posted_[slot]);
    receive_posted_[slot] = false;
    --receives_outstanding_;
    if (options_.ordered) {
        CHECK(receive_order_.front() == slot);
        receive_order_.pop_front();
    }
    if (wc.status != XSOCK_WC_SUCCESS) {
        CHECK(options_.may_fail || done_received_ || closed_);
        receives_flushed_ = true;
        return;
    }
    CHECK(!(options_.ordered && receives_flushed_));
    on_message(receive_buffers_[slot].data(), wc.length);
    if (!closed_) post_receive(slot);
}

void Traffic::on_message(const unsigned char* bytes, std::uint32_t length) {
    Message message;
    CHECK(length >= sizeof message);
    std::memcpy(&message, bytes, sizeof message);
    CHECK(length == sizeof message + message.length);
    CHECK(message.pool_offset <= kPoolBytes - message.length);
    CHECK(same(bytes + sizeof message, message.pool_offset, message.length));
    if (options_.ordered) CHECK(message.sequence == sequence_in_);
    ++sequence_in_;
    switch (static_cast<Kind>(message.kind)) {
        case kData:
            return;
        case kWrote:
            // The Write came before this Send, so its bytes are there (RFC 5041 §5.3).
            CHECK(message.slot + message.slot_bytes <= window_.size());
            CHECK(same(window_.data() + message.slot, message.pool_offset, message.slot_bytes));
            acks_owed_.push_back(message.slot / options_.bytes_max);
            return;
        case kAck:
            CHECK(message.slot < kSlots && slot_busy_[message.slot]);
            slot_busy_[message.slot] = false;
            return;
        case kDone:
            CHECK(!done_received_);
            done_received_ = true;
            return;
    }
    CHECK(false);
}

void Traffic::close(bool abort) {
    CHECK(!closed_ && ep_ != nullptr);
    closed_ = true;
    REQUIRE((abort ? xsock_ep_abort(ep_) : xsock_ep_close(ep_)) == 0);
}

}  // namespace xsock::test
