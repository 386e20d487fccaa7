// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One end of a connection made of the protocol cores and a plain socket, without the transport and
// what it needs: so it can be built for a machine for which there is a compiler and nothing else.
// Two of them, of different byte orders, exchange every kind of operation both ways with CRCs and
// markers, and check every byte (tests/long/test-s390x.sh).
//
//   endian serve|drive PORT [--revision N] [--no-markers]      on 127.0.0.1; "listening" when it is
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <memory>

#include "base/completion_queue.hpp"
#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "base/recv_queue.hpp"
#include "base/send_queue.hpp"
#include "ddp_user/connection.hpp"
#include "mpa/extension_frame.hpp"
#include "mpa/stream.hpp"
#include "tests/system/process.hpp"

namespace xsock::test {
namespace {

constexpr std::uint32_t kLargest = 300'000;
constexpr std::array<std::uint32_t, 11> kSizes = {0,    1,    3,     4,     1427,    1428,
                                                  1429, 4096, 65535, 65536, kLargest};
constexpr std::uint32_t kData = 64;  // where in the window bytes go; the counter lies before
constexpr std::uint32_t kReceives = 8;
constexpr std::uint64_t kAdded = 0x0102030405060708;
const Implementation kImplementation{.features = 0xf8f7f6f5f4f3f2f1,
                                     .delayed_ack_ms = 0x1234,
                                     .name = Implementation::text("endian"),
                                     .version = Implementation::text("1")};
static_assert((0xf8f7f6f5f4f3f2f1 & MPA_FEATURE_DELAYED_ACK) != 0);

std::byte pattern(std::size_t i, std::size_t size) {
    return static_cast<std::byte>(i * 7 + i / 251 + size);
}

class End final : public ddp::Connection::Delegate {
  public:
    End(int fd, bool initiator, std::uint8_t revision, bool markers)
        : fd_(fd),
          revision_(revision),
          markers_(markers),
          reader_(epochs_),
          memory_(epochs_),
          window_(kData + kLargest),
          scratch_(mpa::kMinTxScratch * 2) {
        RegionAttr region;
        region.address = window_.data();
        region.length = window_.size();
        region.access = kRemoteRead | kRemoteWrite | kRemoteAtomic | kLocalWrite;
        region.pd = 1;
        auto stag = memory_.add(region);
        REQUIRE(stag.ok());

        ddp::ConnectionConfig config;
        config.stream.pd = 1;
        config.stream.memory = &memory_;
        config.stream.sq = &sq_;
        config.stream.rq = &rq_;
        config.stream.send_cq = config.stream.recv_cq = &cq_;
        connection_ = std::make_unique<ddp::Connection>(config, *this);

        mpa::Config mpa;
        mpa.startup.role = initiator ? mpa::Role::initiator : mpa::Role::responder;
        mpa.startup.revision = revision;
        mpa.startup.negotiate_depths = revision >= 2;
        mpa.startup.markers = markers;
        mpa.startup.private_data.resize(12);
        store_be32(mpa.startup.private_data.data(), *stag);
        store_be64(mpa.startup.private_data.data() + 4,
                   reinterpret_cast<std::uintptr_t>(window_.data()));
        mpa::append_tlv(mpa.startup.extension_tlvs, kImplementation);
        mpa_ = std::make_unique<mpa::Stream>(std::move(mpa), connection_->stream());
        for (std::uint32_t i = 0; i < kReceives; ++i) {
            receives_[i].resize(kLargest);
            post_receive(i);
        }
        reader_.enter();
        connection_->start(*mpa_, {}, now());
        reader_.leave();
    }

    void run() {
        while (connection_->state() != QpState::established) step();
        REQUIRE(mpa_->peer() == kImplementation);
        const ConstBytes key = mpa_->private_data();
        REQUIRE(key.size() == 12);
        stag_ = load_be32(key.data());
        to_ = load_be64(key.data() + 4);

        std::vector<std::byte> out(kLargest), in(kLargest);
        std::uint64_t counter = 0;
        for (const std::uint32_t size : kSizes) {
            for (std::size_t i = 0; i < size; ++i) out[i] = pattern(i, size);
            one(SendOpcode::send, out.data(), size, 0);
            one(SendOpcode::write, out.data(), size, kData);
            std::fill(in.begin(), in.end(), std::byte{0xee});
            one(SendOpcode::read, in.data(), size, kData);
            REQUIRE(std::equal(in.begin(), in.begin() + size, out.begin()));
            // A number in host order there and here, in network order between.
            std::uint64_t was = ~std::uint64_t{0};
            one(SendOpcode::fetch_add, reinterpret_cast<std::byte*>(&was), 8, 0);
            REQUIRE(was == counter);
            counter += kAdded;
        }
        while (messages_ < kSizes.size()) step();
        // The peer's last operation may still be under way: it says when not.
        const std::byte word{1};
        one(SendOpcode::send, const_cast<std::byte*>(&word), 1, 0);
        while (!peer_over_) step();
        std::uint64_t mine = 0;
        std::memcpy(&mine, window_.data(), sizeof mine);
        REQUIRE(mine == kAdded * kSizes.size());
        connection_->shutdown(now());
        while (!connection_->ended()) step();
        REQUIRE(connection_->state() == QpState::closed);
        const Negotiated& n = mpa_->negotiated();
        std::printf("%s-endian: %zu operations, revision %u, CRC %s, markers %s\n",
                    std::endian::native == std::endian::big ? "big" : "little",
                    kSizes.size() * 4 + 1, n.revision, n.crc ? "on" : "off",
                    n.markers_rx && n.markers_tx ? "on" : "off");
        REQUIRE(n.crc && n.revision == revision_ && n.markers_rx == markers_ &&
                n.markers_tx == markers_);
    }

  private:
    static Time now() { return now_us() * 1000; }

    Llp& data_layer(Llp& startup) override { return startup; }
    void on_started() override {}
    void on_state(QpState state) override {
        if (state == QpState::error) die("%s", stream_error_info(connection_->stream_error()).text);
    }
    void on_rnr() override {}
    void finish() override { shutdown(fd_, SHUT_WR); }
    void close(bool) override { ::close(fd_); }

    void post_receive(std::uint32_t i) {
        const Sge sge{receives_[i].data(), kLargest, 0};
        REQUIRE(rq_.post({.wr_id = 1000 + i, .sges = {&sge, 1}}).ok());
    }

    void one(SendOpcode opcode, std::byte* data, std::uint32_t size, std::uint32_t offset) {
        const Sge sge{data, size, 0};
        const Atomic atomic{.operand = kAdded};
        SendWr wr;
        wr.wr_id = ++posted_;
        wr.opcode = opcode;
        wr.remote_stag = stag_;
        wr.remote_to = to_ + offset;
        wr.sges = {&sge, size != 0 ? 1u : 0u};
        if (opcode == SendOpcode::fetch_add) wr.atomic = &atomic;
        REQUIRE(sq_.post(wr).ok());
        while (completed_ < posted_) step();
    }

    void step() {
        const std::uint64_t limit = 120'000'000u;
        if (now_us() - begun_ > limit) die("nothing moves any more");
        pollfd wait{fd_, static_cast<short>(POLLIN | (blocked_ ? POLLOUT : 0)), 0};
        (void)poll(&wait, 1, connection_->peer_finished() ? 0 : 2);
        reader_.enter();
        connection_->resume(now());
        receive();
        if (connection_->next_timeout(now()) <= now()) connection_->on_time(now());
        transmit();
        connection_->update(now());
        reader_.leave();
        Wc wc[16];
        for (std::size_t i = 0, n = cq_.take(wc); i < n; ++i) complete(wc[i]);
    }

    void receive() {
        if (!connection_->rx_wanted()) return;
        std::array<std::byte, 65536> buffer;
        const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
        if (n > 0) connection_->rx(ConstBytes(buffer).first(static_cast<std::size_t>(n)), now());
        if (n == 0) connection_->rx_eof(now());
        connection_->resume(now());
    }

    void transmit() {
        blocked_ = false;
        while (!blocked_ && !connection_->ended() && connection_->tx_wanted()) {
            const TxBatch batch = connection_->tx_prepare(scratch_, 256 * 1024, now());
            if (batch.bytes == 0) return;
            const int count = static_cast<int>(std::min<std::size_t>(batch.iov.size(), 512));
            const ssize_t n = writev(fd_, batch.iov.data(), count);
            if (n < 0) {
                REQUIRE(errno == EAGAIN);
                blocked_ = true;
                return;
            }
            connection_->tx_commit(static_cast<std::size_t>(n), now());
        }
    }

    void complete(const Wc& wc) {
        if (wc.opcode != WcOpcode::recv) {
            REQUIRE(wc.status == WcStatus::success && wc.wr_id == completed_ + 1);
            ++completed_;
            return;
        }
        if (wc.status != WcStatus::success) return;  // the peer has finished
        const auto slot = static_cast<std::uint32_t>(wc.wr_id - 1000);
        if (messages_ == kSizes.size()) {
            REQUIRE(wc.byte_len == 1);
            peer_over_ = true;
        } else {
            const std::uint32_t size = kSizes[messages_++];
            REQUIRE(wc.byte_len == size);
            for (std::size_t i = 0; i < size; ++i) {
                REQUIRE(receives_[slot][i] == pattern(i, size));
            }
        }
        post_receive(slot);
    }

    const int fd_;
    const std::uint8_t revision_;
    const bool markers_;
    Epochs epochs_;
    Epochs::Reader reader_;
    MemoryTable memory_;
    SendQueue sq_{64};
    RecvQueue rq_{64};
    CompletionQueue cq_{256};
    std::vector<std::byte> window_, scratch_;
    std::array<std::vector<std::byte>, kReceives> receives_;
    std::unique_ptr<ddp::Connection> connection_;
    std::unique_ptr<mpa::Stream> mpa_;
    std::uint32_t stag_ = 0;
    std::uint64_t to_ = 0;
    std::uint64_t posted_ = 0, completed_ = 0;
    std::size_t messages_ = 0;
    bool blocked_ = false, peer_over_ = false;
    const std::uint64_t begun_ = now_us();
};

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    using namespace xsock::test;
    if (argc < 3) die("usage: endian serve|drive PORT [--revision N] [--no-markers]");
    const bool server = std::string(argv[1]) == "serve";
    std::uint8_t revision = 2;
    bool markers = true;
    for (int i = 3; i < argc; ++i) {
        if (std::string(argv[i]) == "--no-markers") {
            markers = false;
        } else if (std::string(argv[i]) == "--revision" && i + 1 < argc) {
            revision = static_cast<std::uint8_t>(std::stoul(argv[++i]));
        } else {
            die("unknown option %s", argv[i]);
        }
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoul(argv[2])));
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (server) {
        socklen_t size = sizeof address;
        REQUIRE(bind(fd, any, size) == 0 && listen(fd, 1) == 0);
        REQUIRE(getsockname(fd, any, &size) == 0);
        std::printf("listening on port %u\n", ntohs(address.sin_port));
        std::fflush(stdout);
        fd = accept(fd, nullptr, nullptr);
        REQUIRE(fd >= 0);
    } else {
        REQUIRE(connect(fd, any, sizeof address) == 0);
    }
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    End end(fd, !server, revision, markers);
    end.run();
    return 0;
}
