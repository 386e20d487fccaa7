// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One end of a link beside a process that changes every shared byte whenever it is looked at: no
// access beyond the memory, no word stored that is not ours, connections are told in an order that
// makes sense, what is kept for them stays within their credit, and all of it can be ended.
//
// Input: what our end does, and between, for each load, how its answer differs from the memory.
// Records that make sense are written by the target itself, as the peer would.
#include <array>
#include <cstring>
#include <memory>

#include "shm/link.hpp"
#include "tests/fuzz/input.hpp"
#include "tests/support/stepwise_ulp.hpp"

namespace {

using namespace xsock;
using namespace xsock::shm;
using ByteVector = std::vector<std::byte>;

constexpr Layout kLayout{.ring_bytes = 64 << 10, .slots = 8};
constexpr std::size_t kLine = SharedMemory::kLine;

class HostileMemory final : public SharedMemory::Interposer {
  public:
    explicit HostileMemory(fuzz::Input& input) : input_(input), bytes_(kLayout.bytes()) {}

    bool hostile = false;  ///< else it answers what is there

    std::uint32_t load32(std::size_t at) override { return change(load<std::uint32_t>(at)); }
    std::uint64_t load64(std::size_t at) override { return change(load<std::uint64_t>(at)); }
    void store32(std::size_t at, std::uint32_t value, bool) override { store(at, &value, 4); }
    void store64(std::size_t at, std::uint64_t value) override { store(at, &value, 8); }
    std::uint32_t exchange32(std::size_t at, std::uint32_t value) override {
        const auto was = change(load<std::uint32_t>(at));
        FUZZ_CHECK(at == kLayout.wake_at(Side::acceptor) || at == kLayout.wake_at(Side::creator));
        std::memcpy(bytes_.data() + at, &value, sizeof value);
        return was;
    }
    void fence() override {}
    void copy_out(std::size_t at, Bytes to) override {
        check(at, to.size());
        std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
        if (!hostile || to.size() < 8) return;
        for (unsigned n = input_.next_byte() % 4; n != 0; --n) {
            to[input_.next_byte() % 8] = static_cast<std::byte>(input_.next_byte());
        }
    }
    void copy_in(std::size_t at, ConstBytes from) override { store(at, from.data(), from.size()); }
    Bytes room(std::size_t at, std::size_t bytes) override {
        check_ours(at, bytes);
        return Bytes(bytes_).subspan(at, bytes);
    }
    void room_written(std::size_t at, std::size_t bytes) override { check_ours(at, bytes); }

    Bytes bytes() { return bytes_; }

  private:
    static bool within(std::size_t at, std::size_t bytes, std::size_t begin, std::size_t end) {
        return at >= begin && at <= end && bytes <= end - at;
    }
    void check(std::size_t at, std::size_t bytes) const {
        FUZZ_CHECK(within(at, bytes, 0, bytes_.size()));
    }
    /// Our ring, our line of words, our lines of credit.
    static void check_ours(std::size_t at, std::size_t bytes) {
        const RingPlace ring = kLayout.ring_of(Side::acceptor);
        bool ours = within(at, bytes, ring.at, ring.at + ring.bytes);
        const std::size_t words = kLayout.tail_at(Side::acceptor);
        ours |= within(at, bytes, words, words + kLine);
        for (std::uint16_t slot = 0; slot < kLayout.slots; ++slot) {
            const std::size_t credit = kLayout.credit_at(slot, Side::acceptor);
            ours |= within(at, bytes, credit, credit + kLine);
        }
        FUZZ_CHECK(ours);
    }
    void store(std::size_t at, const void* from, std::size_t bytes) {
        check_ours(at, bytes);
        if (bytes != 0) std::memcpy(bytes_.data() + at, from, bytes);
    }
    template <typename T>
    T load(std::size_t at) const {
        check(at, sizeof(T));
        T value;
        std::memcpy(&value, bytes_.data() + at, sizeof value);
        return value;
    }
    template <typename T>
    T change(T value) {
        return hostile ? input_.altered(value, kLine, kRecordHeader) : value;
    }

    fuzz::Input& input_;
    ByteVector bytes_;
};

/// What a connection is told, and what it sends.
class End final : public test::StepwiseUlp, public Stream::Owner {
  public:
    explicit End(CreditPool& pool) : stream_(std::make_unique<Stream>(*this, *this, pool)) {}

    Stream& stream() { return *stream_; }
    bool blocked = false;
    unsigned to_send = 0;

    void resume() {
        blocked = false;
        feed();
    }
    void open() {
        if (stream_->state() != Llp::State::started) return;
        stream_->open(Llp::Opening::first, {}, 0);
        if (stream_->has_early()) take(stream_->take_early());
        if (fin_ && unconsumed_.empty()) stream_->rx_eof(0);
    }
    void check() const { FUZZ_CHECK(unconsumed_.size() <= CreditPool::kMost + 2 * kMulpdu); }

    // -- Stream::Owner --
    void on_rx(ConstBytes bytes) override {
        FUZZ_CHECK(!fin_ && !over_ && stream_->state() != Llp::State::started);
        take(bytes);
    }
    void on_fin(bool aborted) override {
        FUZZ_CHECK(!over_ && !aborted_ && (!fin_ || aborted));
        fin_ = true;
        aborted_ = aborted;
        if (unconsumed_.empty()) stream_->rx_eof(0);
    }
    void on_room() override { FUZZ_CHECK(stream_->status().tx_allowed || over_); }
    void on_link_end(StreamError why) override {
        FUZZ_CHECK(!over_ && why == StreamError::shm_garbage);
        over_ = true;
        stream_->lost();
    }

    // -- Ulp --
    UlpdusGiven tx_fill(const UlpduBatch& batch) override {
        std::size_t n = 0, at = 0;
        while (to_send != 0 && n < batch.sizes.size()) {
            const std::size_t size = 14 + to_send % 700;
            if (size > batch.small || batch.bytes(size) > batch.room.size() - at) break;
            std::fill_n(batch.room.begin() + static_cast<std::ptrdiff_t>(at + batch.before), size,
                        std::byte{7});
            batch.sizes[n++] = static_cast<std::uint16_t>(size);
            at += batch.bytes(size);
            --to_send;
        }
        if (to_send == 0) return {n, false, false};
        --to_send;
        batch.described->header_size = 14;
        batch.described->payload[0] = payload_;
        batch.described->payload[0] =
            batch.described->payload[0].first(std::min(payload_.size(), batch.mulpdu - 14));
        batch.described->payload_count = 1;
        return {n, true, to_send != 0};
    }
    void tx_done(std::uint32_t) override {}
    bool tx_intact() override { return true; }
    void rx_begin(std::size_t bytes) override {
        FUZZ_CHECK(left_ == 0 && bytes <= kMulpdu);
        left_ = bytes;
    }
    Bytes rx_target() override {
        return blocked ? Bytes{} : Bytes(room_).first(std::min(left_, room_.size()));
    }
    void rx_advance(std::size_t n) override {
        FUZZ_CHECK(n <= left_);
        left_ -= n;
    }
    void rx_end(bool) override { FUZZ_CHECK(left_ == 0); }
    void llp_established(const Negotiated&) override {}
    void llp_failed(StreamError) override {}
    void llp_closed(CloseKind) override {}
    void llp_probe() override {}

  private:
    void take(ConstBytes bytes) {
        FUZZ_CHECK(!bytes.empty());
        const bool waits = !unconsumed_.empty();
        unconsumed_.insert(unconsumed_.end(), bytes.begin(), bytes.end());
        unconsumed_.shrink_to_fit();
        if (!waits) feed();
        check();
    }
    void feed() {
        if (unconsumed_.empty() || over_) return;
        const ByteVector bytes = unconsumed_;
        const Llp::Rx rx = stream_->rx(bytes, 0);
        FUZZ_CHECK(rx.taken <= bytes.size());
        unconsumed_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(rx.taken), bytes.end());
        FUZZ_CHECK(unconsumed_.empty() || blocked || rx.boundary);
    }

    static inline const std::array<std::byte, 3000> payload_{};
    std::array<std::byte, 900> room_{};
    std::size_t left_ = 0;
    ByteVector unconsumed_;
    bool fin_ = false, aborted_ = false, over_ = false;
    std::unique_ptr<Stream> stream_;
};

class World final : public Link::Owner {
  public:
    explicit World(fuzz::Input& input)
        : input_(input),
          memory_(input),
          link_(SharedMemory(Bytes(unused()).first(kLayout.bytes()), &memory_), kLayout,
                Side::acceptor, *this),
          peer_(SharedMemory(memory_.bytes()), kLayout.ring_of(Side::creator)) {
        link_.writer().allow(kLayout.ring_bytes);
    }
    ~World() {
        memory_.hostile = false;
        for (auto& end : ends_) end.reset();
        FUZZ_CHECK(pool_.left() == kPool);
    }
    void step();

    Stream* on_open(std::uint64_t token) override {
        const auto which = static_cast<std::size_t>(token % (ends_.size() + 2));
        if (which >= ends_.size() || ends_[which] != nullptr) return nullptr;
        return &make(which).stream();
    }

  private:
    static constexpr std::size_t kPool = std::size_t{1} << 20;
    static Bytes unused() {
        struct alignas(kLine) Line {
            std::byte bytes[kLine];
        };
        static std::vector<Line> lines(kLayout.bytes() / kLine + 1);
        return {reinterpret_cast<std::byte*>(lines.data()), lines.size() * kLine};
    }
    End& make(std::size_t which) {
        ends_[which] = std::make_unique<End>(pool_);
        if (input_.next_byte() % 4 != 0) {
            ends_[which]->stream().open(Llp::Opening::first, {}, 0);
        }
        return *ends_[which];
    }
    End* end() { return ends_[input_.next_byte() % ends_.size()].get(); }
    void peer_record(RecordKind kind);

    fuzz::Input& input_;
    HostileMemory memory_;
    CreditPool pool_{kPool};
    std::array<std::unique_ptr<End>, 4> ends_;
    Link link_;
    RingWriter peer_;
    std::array<std::uint32_t, kLayout.slots> generation_{};
    ByteVector scratch_ = ByteVector(Link::kScratch);
};

/// As a peer writes it, more or less.
void World::peer_record(RecordKind kind) {
    const unsigned how = input_.next_byte();
    const auto slot = static_cast<std::uint16_t>(how % 4 * 2);
    ByteVector body;
    if (kind == RecordKind::open) {
        ++generation_[slot];
        body = ByteVector(8, std::byte{0});
        body[0] = static_cast<std::byte>(input_.next_byte());
    } else if (kind == RecordKind::fin) {
        body = ByteVector(1, static_cast<std::byte>(how >> 7));
    } else {
        body = ByteVector(input_.next_byte() * ((how & 64) != 0 ? 60 : 2), std::byte{3});
    }
    const auto split = static_cast<std::uint8_t>((how & 128) != 0 && body.size() > 18 ? 18 : 0);
    if (peer_.begin(record_extent(body.size(), split), RingWriter::Use::control) == 0) return;
    peer_.copy_in(0, split, ConstBytes(body).first(split));
    peer_.copy_in(split, split, ConstBytes(body).subspan(split));
    peer_.add({.kind = kind, .split = split, .slot = slot, .generation = generation_[slot]},
              body.size());
    peer_.publish();
    const std::uint64_t credit = std::uint64_t{generation_[slot]} << 32 | 4000u;
    std::memcpy(memory_.bytes().data() + kLayout.credit_at(slot, Side::creator), &credit,
                sizeof credit);
}

void World::step() {
    const unsigned what = input_.next_byte();
    memory_.hostile = (what & 16) != 0;
    switch (what % 16) {
        case 0:
        case 1:
        case 2:
            return peer_record(RecordKind::data);
        case 3:
            return peer_record(RecordKind::open);
        case 4:
            return peer_record(RecordKind::fin);
        case 5:
        case 6:
        case 7:
            link_.poll(scratch_, (what & 32) != 0 ? SIZE_MAX : 500);
            static_cast<void>(link_.end_cycle((what & 64) != 0));
            return;
        case 8:
            if (link_.begin_sleep()) link_.end_sleep();
            return;
        case 9:
        case 10:
            if (End* const e = end()) {
                e->to_send = input_.next_byte();
                e->stream().tx_prepare({}, 4000, 0);
            }
            return;
        case 11:
            if (End* const e = end()) e->blocked = true;
            return;
        case 12:
            if (End* const e = end()) {
                if ((what & 32) != 0) e->open();
                e->resume();
            }
            return;
        case 13:
            if (End* const e = end()) e->stream().finish((what & 32) != 0);
            return;
        case 14:
            ends_[input_.next_byte() % ends_.size()].reset();
            return;
        default: {
            const std::size_t which = input_.next_byte() % ends_.size();
            if (ends_[which] == nullptr) link_.open(make(which).stream(), 1);
            return;
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    World world(input);
    while (!input.empty()) world.step();
    return 0;
}
