// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A byte stream over SDP whose peer says anything. The input drives both: messages of the peer,
// with the right numbers or with those of the input, or raw octets; and what the program does
// meanwhile. What the program reads is compared with the payloads that were taken; no queue
// outgrows what was announced; after an error nothing moves; the answers are messages that decode;
// all memory is given back.
//
// Input: 2 bytes of configuration, then operations: a byte for the kind, then what it needs.
#include <deque>
#include <memory>

#include "stream/byte_stream.hpp"
#include "stream/sdp.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using stream::ByteStream;
using stream::Chunk;

/// Memory of exactly the size that was asked for, where a sanitizer sees a byte beyond it; or of
/// more, so that what comes is appended to what is there.
class Memory final : public stream::ChunkSource {
  public:
    std::size_t chunks = 0;
    bool rounds = false;

    Chunk* take(std::size_t n) noexcept override {
        if (rounds) n = (n + 511) / 512 * 512;
        void* const memory = ::operator new (sizeof(Chunk) + n, std::align_val_t{64});
        auto* const chunk = new (memory) Chunk;
        chunk->capacity = static_cast<std::uint32_t>(n);
        ++chunks;
        return chunk;
    }
    void give(Chunk* chunk) noexcept override {
        --chunks;
        ::operator delete (chunk, std::align_val_t{64});
    }
};

class World {
  public:
    World(fuzz::Input& input, Memory& memory)
        : input_(input),
          memory_(memory),
          config_(config_of(input)),
          sdp_(config_),
          stream_(sdp_, memory, {.send_bytes = 5'000, .receive_bytes = config_.receive_bytes}) {
        const auto hello = stream::encode_hello({.bufs = static_cast<std::uint16_t>(limit_),
                                                 .desired_remote_size = 500,
                                                 .local_size = 200});
        FUZZ_CHECK(sdp_.take_hello(hello) == StreamError::none);
        memory_.rounds = config_.max_adverts % 2 == 0;
    }
    ~World() {
        for (Chunk* chunk : under_way_) stream_.tx_done(chunk);
    }

    void run() {
        while (!input_.empty()) {
            step();
            check();
        }
        read(~std::size_t{0});
    }

  private:
    static stream::SdpConfig config_of(fuzz::Input& input) {
        const unsigned a = input.next_byte(), b = input.next_byte();
        stream::SdpConfig config;
        config.buffer_bytes = 37 + a * 2;
        config.receive_bytes = config.buffer_bytes * (2 + (b & 15)) + a;
        config.message_bytes = 100;
        config.max_adverts = static_cast<std::uint16_t>(1 + (b >> 4));
        return config;
    }

    void step() {
        switch (input_.next_byte() % 10) {
            case 0: {  // anything
                const std::size_t n = input_.next_byte();
                return give(input_.take(n));
            }
            case 1:
            case 2:
            case 3:
                return give(message(/*honest=*/true));
            case 4:
                return give(message(/*honest=*/false));
            case 5:
                return read(input_.next_byte());
            case 6:
                return transmit(input_.next_byte() % 4);
            case 7:
                return send();
            case 8:
                return mode();
            default:
                return other();
        }
    }

    /// A message with its fields from the input.
    std::vector<std::byte> message(bool honest) {
        static constexpr std::uint8_t kMids[] = {SDP_DATA,
                                                 SDP_DATA,
                                                 SDP_DATA,
                                                 SDP_DISCONN,
                                                 SDP_ABORT_CONN,
                                                 SDP_SEND_SM,
                                                 SDP_RDMA_WR_COMPL,
                                                 SDP_RDMA_RD_COMPL,
                                                 SDP_MODE_CHANGE,
                                                 SDP_SRC_AVAIL_CANCEL,
                                                 SDP_SINK_AVAIL_CANCEL,
                                                 SDP_SINK_CANCEL_ACK,
                                                 SDP_CH_RCV_BUF,
                                                 SDP_CH_RCV_BUF_ACK,
                                                 SDP_SUSP_COMM,
                                                 SDP_SUSP_COMM_ACK,
                                                 SDP_SINK_AVAIL,
                                                 SDP_SRC_AVAIL};
        stream::SdpMessage m;
        m.header.mid = kMids[input_.next_byte() % std::size(kMids)];
        m.header.flags = static_cast<std::uint8_t>(input_.next_byte() & 0x0b);
        const unsigned what = input_.next_byte();
        m.octets = what * 100;
        m.mode = static_cast<stream::SdpMode>(what % 3);
        m.send_half = (what & 0x80) != 0;
        m.length = 1 + what * 10;
        m.stag = 1 + what % 3;
        m.address = what;
        m.non_discards = potential_ - what % 2;
        const bool has_payload = m.header.mid >= SDP_SINK_AVAIL;
        const std::size_t payload = has_payload ? input_.next_byte() : 0;
        if (honest) {
            m.header.mseq = mseq_ + 1;
            m.header.mseq_ack = acked_;
            m.header.bufs = static_cast<std::uint16_t>(limit_ - acked_);
        } else {
            m.header.mseq = mseq_ + input_.next_byte() % 3;
            m.header.mseq_ack = acked_ + input_.next_byte() - 128;
            m.header.bufs = static_cast<std::uint16_t>(input_.word());
        }
        std::vector<std::byte> octets(stream::header_octets(m.header.mid) + payload);
        for (std::size_t i = octets.size() - payload; i < octets.size(); ++i) {
            octets[i] = static_cast<std::byte>(next_value_++);
        }
        stream::encode(m, payload, octets);
        return octets;
    }

    void give(const std::vector<std::byte>& octets) {
        Chunk* const chunk = memory_.take(octets.size());
        std::copy(octets.begin(), octets.end(), chunk->data());
        chunk->end = static_cast<std::uint32_t>(octets.size());
        const bool was_over = stream_.error() != StreamError::none;
        const stream::RxNews news = stream_.rx(chunk);
        FUZZ_CHECK(!was_over || (!news.kept && !news.data));
        if (stream_.error() == StreamError::none) {
            stream::SdpMessage m;
            FUZZ_CHECK(stream::decode(octets, m) == StreamError::none);
            mseq_ = m.header.mseq;
            acked_ = m.header.mseq_ack;
            limit_ = acked_ + m.header.bufs;
            taken_.insert(taken_.end(), m.payload.begin(), m.payload.end());
            if (!closed_) unread_ += m.payload.size();
            if ((m.header.flags & SDP_FLAG_OOB_PRES) != 0) {
                marked_ = true;
                ++marks_;  // its byte may be passed over
            }
        } else {
            FUZZ_CHECK(!news.kept);
        }
        if (!news.kept) memory_.give(chunk);
    }

    void read(std::size_t most) {
        stream_.flush();
        for (;;) {
            ConstBytes piece;
            if (stream_.peek(most, {&piece, 1}) == 0) break;
            most -= piece.size();
            FUZZ_CHECK(piece.size() <= taken_.size());
            if (!marked_) {
                FUZZ_CHECK(std::equal(piece.begin(), piece.end(), taken_.begin()));
                taken_.erase(taken_.begin(),
                             taken_.begin() + static_cast<std::ptrdiff_t>(piece.size()));
            }
            unread_ -= piece.size();
            stream_.consume(piece.size());
            if (most == 0) break;
        }
        if (stream_.urgent() == ByteStream::Urgent::there) stream_.take_urgent();
    }

    void transmit(unsigned most) {
        for (unsigned i = 0; i <= most; ++i) {
            stream::TxMessage out;
            if (!stream_.tx(out)) break;
            FUZZ_CHECK(stream_.error() == StreamError::none);
            stream::SdpMessage m;
            FUZZ_CHECK(stream::decode(out.bytes, m) == StreamError::none);
            FUZZ_CHECK(m.header.mseq == ++ours_ && m.payload.size() <= 100 - 16);
            FUZZ_CHECK(static_cast<std::int32_t>(limit_ - m.header.mseq) >= 0);
            if (m.carries_stream()) ++potential_;
            if (out.chunk != nullptr) under_way_.push_back(out.chunk);
            acked_ = ours_;
        }
        while (under_way_.size() > most) {
            stream_.tx_done(under_way_.front());
            under_way_.pop_front();
        }
    }

    /// In two steps, between which anything may happen.
    void send() {
        const std::size_t n = 1 + input_.next_byte();
        if (filling_.empty()) {
            if (stream_.send_room() == 0) return;
            filling_ = stream_.send_prepare(n);
            FUZZ_CHECK(!filling_.empty() && filling_.size() <= n);
            if ((n & 1) != 0) return;
        }
        std::fill(filling_.begin(), filling_.end(), std::byte{'s'});
        stream_.send_commit(filling_.size(), (n & 8) != 0, now_);
        filling_ = {};
        if ((n & 0x70) == 0x70) stream_.mark_urgent();
    }

    void mode() {
        (void)sdp_.change_send_mode(static_cast<stream::SdpMode>(input_.next_byte() % 3));
    }

    void other() {
        switch (input_.next_byte() % 6) {
            case 0:
                return stream_.finish();
            case 1:
                (void)stream_.abort();
                return;
            case 2:
                now_ += 600'000;
                (void)stream_.on_time(now_);
                return;
            case 3:
                return stream_.set_urgent_inline((now_ & 1) == 0);
            case 4:
                return stream_.on_eof();
            default:
                (void)stream_.close_receiving();
                closed_ = true;
                unread_ = 0;
                taken_.clear();
                marked_ = true;  // nothing can be read any more
                return;
        }
    }

    void check() {
        // Urgent messages may take what is kept back: two more.
        FUZZ_CHECK(unread_ <= config_.receive_bytes + 2 * config_.buffer_bytes + marks_);
        FUZZ_CHECK(stream_.readable() <= unread_);
        FUZZ_CHECK(stream_.send_queued() <= 5'000);
        FUZZ_CHECK(stream_.error() != StreamError::none ||
                   static_cast<std::int32_t>(sdp_.credit()) >= 0);
    }

    fuzz::Input& input_;
    Memory& memory_;
    const stream::SdpConfig config_;
    stream::Sdp sdp_;
    ByteStream stream_;
    std::deque<Chunk*> under_way_;
    std::deque<std::byte> taken_;
    std::size_t unread_ = 0, marks_ = 0;
    Bytes filling_;
    bool marked_ = false, closed_ = false;
    unsigned next_value_ = 0;
    Time now_ = kSecond;
    std::uint32_t mseq_ = 0, acked_ = 0, limit_ = 20, ours_ = 0, potential_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    Memory memory;
    {
        World world(input, memory);
        world.run();
    }
    FUZZ_CHECK(memory.chunks == 0);
    return 0;
}
