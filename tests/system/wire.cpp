// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection between two processes on which every operation happens once and in a known order,
// for captures of the wire (wireshark_test.sh). Data is checked at both ends.
//
//   wire [--address A] [--revision N] [--client-markers] [--server-markers] [--no-crc]
//        [--bytes N] [--rtr N] [--end close|terminate|abort]
//
// --bytes is the size of the large Send, Write and Read.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "include/xsock/iwarp.h"
#include "include/xsock/xsock.h"
#include "tests/system/process.hpp"

namespace xsock::test {
namespace {

struct Plan {
    std::string address = "127.0.0.1";
    std::uint32_t revision = 2;
    bool client_markers = false, server_markers = false, crc = true;
    std::uint32_t bytes = 9000, rtr = 0;
    std::string end = "close";
    int peer_port = 0;
};

constexpr int kLimitMs = 60'000;
constexpr std::uint32_t kReceives = 16;
constexpr std::uint32_t kWriteTo = 8, kReadFrom = 1 << 20;  // offsets in the window
constexpr std::uint32_t kOtherBytes = 100;                  // of a Write with Immediate
constexpr unsigned char kOther = 0x5a;
constexpr std::uint64_t kWriteImmediate = 0x0102030405060708, kSendImmediate = 0x01020304;

unsigned char pattern(std::size_t i) { return static_cast<unsigned char>(i * 7 + i / 251); }

class Peer {
  public:
    explicit Peer(const Plan& plan)
        : plan_(plan), window_(kReadFrom + plan.bytes), receives_(kReceives) {
        REQUIRE(plan.bytes >= kOtherBytes && plan.bytes <= kReadFrom - kWriteTo);
        for (auto& buffer : receives_) buffer.resize(plan.bytes);
        for (std::size_t i = 0; i < plan.bytes; ++i) window_[kReadFrom + i] = pattern(i);
        out_.resize(plan.bytes);
        for (std::size_t i = 0; i < out_.size(); ++i) out_[i] = pattern(i);
        cq_ = xsock_cq_create(nullptr);
        REQUIRE(cq_ != nullptr);
        mr_ = xsock_mr_register(nullptr, window_.data(), window_.size(),
                                XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE | XSOCK_REMOTE_ATOMIC,
                                nullptr);
        REQUIRE(mr_ != nullptr && xsock_mr_key(mr_, 0, window_.size(), &key_) == 0);
    }

    void start(int fd, bool client) {
        XSOCK_INIT(xsock_ep_attr, attr);
        attr.send_cq = cq_;
        attr.role = client ? XSOCK_ROLE_INITIATOR : XSOCK_ROLE_RESPONDER;
        attr.mpa_revision = plan_.revision;
        attr.private_data = key_.bytes;
        attr.private_data_length = sizeof key_.bytes;
        if (client) attr.rtr = plan_.rtr;
        if (!plan_.crc) attr.flags |= XSOCK_EP_NO_CRC;
        if (client ? plan_.client_markers : plan_.server_markers) attr.flags |= XSOCK_EP_MARKERS;
        ep_ = xsock_ep_create(fd, &attr);
        REQUIRE(ep_ != nullptr);
        for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(i);
        REQUIRE(xsock_ep_wait(ep_, kLimitMs) == 0);
        remote_ = memory_of_peer(ep_);
    }

    // -- what it does, one after the other --

    void run(std::uint16_t op, std::uint32_t flags, const void* data, std::uint32_t length,
             std::uint32_t stag, std::uint64_t to, int status = XSOCK_WC_SUCCESS) {
        XSOCK_INIT(xsock_wr, wr);
        const xsock_sge sge{const_cast<void*>(data), length, 0};
        wr.wr_id = ++posted_;
        wr.op = op;
        wr.flags = flags;
        wr.sge = &sge;
        wr.sge_count = length != 0 ? 1 : 0;
        wr.remote.stag = stag;
        wr.remote.to = to;
        wr.operand = op == XSOCK_OP_COMPARE_SWAP ? 6 : 5;
        wr.compare = 5;
        wr.immediate = op == XSOCK_OP_SEND_IMM ? kSendImmediate : kWriteImmediate;
        REQUIRE(xsock_post(ep_, &wr) == 0);
        while (completed_ < posted_ && !ended_) take();
        if (last_status_ != status) {
            die("operation %u: %s, not %s", op, xsock_wc_str(last_status_), xsock_wc_str(status));
        }
    }
    void send(const void* data, std::uint32_t length, std::uint32_t flags = 0,
              std::uint32_t stag = 0) {
        run(XSOCK_OP_SEND, flags, data, length, stag, 0);
    }
    void send_word(const char* word) { send(word, 4); }
    void write(std::uint32_t length) {
        run(XSOCK_OP_WRITE, 0, out_.data(), length, remote_.stag, remote_.to + kWriteTo);
    }
    void read(std::uint32_t length) {
        std::vector<unsigned char> in(std::max(1u, length), 0xee);
        run(XSOCK_OP_READ, 0, in.data(), length, remote_.stag, remote_.to + kReadFrom);
        for (std::size_t i = 0; i < length; ++i) REQUIRE(in[i] == pattern(i));
    }
    void atomics() {
        std::uint64_t old = 99;
        run(XSOCK_OP_FETCH_ADD, 0, &old, 8, remote_.stag, remote_.to);
        REQUIRE(old == 0);
        run(XSOCK_OP_COMPARE_SWAP, 0, &old, 8, remote_.stag, remote_.to);
        REQUIRE(old == 5);
    }
    /// What the peer's two atomics leave.
    void expect_atomics() {
        std::uint64_t word = 0;
        std::memcpy(&word, window_.data(), sizeof word);
        REQUIRE(word == 6);
    }
    void immediate() {
        const std::vector<unsigned char> other(kOtherBytes, kOther);
        run(XSOCK_OP_WRITE_IMM, 0, other.data(), kOtherBytes, remote_.stag, remote_.to + kWriteTo);
    }
    /// Whether both ends know Sends with Immediate.
    [[nodiscard]] bool has_send_immediate() const {
        xsock_ep_info info;
        std::memset(&info, 0, sizeof info);
        info.size = sizeof info;
        REQUIRE(xsock_ep_query(ep_, &info) == 0);
        return (info.peer.features & MPA_FEATURE_SEND_IMMEDIATE) != 0;
    }
    void send_immediate() {
        run(XSOCK_OP_SEND_IMM, 0, out_.data(), 20, 0, 0);
        run(XSOCK_OP_SEND_IMM, XSOCK_SOLICITED, nullptr, 0, 0, 0);
    }
    /// The next message of the peer.
    std::vector<unsigned char> receive() {
        while (messages_.empty() && !ended_) take();
        REQUIRE(!messages_.empty());
        auto message = std::move(messages_.front());
        messages_.erase(messages_.begin());
        last_immediate_ = immediates_.front();
        immediates_.erase(immediates_.begin());
        return message;
    }
    void expect_word(const char* word) {
        const auto message = receive();
        if (message.size() != 4 || std::memcmp(message.data(), word, 4) != 0) {
            die("expected '%s', got %zu bytes", word, message.size());
        }
    }
    void expect_written(std::uint32_t length, bool other_first) {
        for (std::size_t i = 0; i < length; ++i) {
            const bool is_other = other_first && i < kOtherBytes;
            REQUIRE(window_[kWriteTo + i] == (is_other ? kOther : pattern(i)));
        }
    }
    /// Of the latest message that receive() gave.
    [[nodiscard]] std::uint64_t last_immediate() const { return last_immediate_; }
    /// A region that this peer alone may use, and may invalidate.
    void offer_invalidation() {
        xsock_mr* const mr = xsock_mr_register(nullptr, window_.data(), 64, XSOCK_REMOTE_READ, ep_);
        REQUIRE(mr != nullptr);
        const std::uint32_t stag = htonl(xsock_mr_stag(mr));
        send(&stag, sizeof stag);
    }
    void use_bad_stag() {
        // Done for TCP when it was written; its refusal ends the connection.
        XSOCK_INIT(xsock_wr, wr);
        const xsock_sge sge{out_.data(), 10, 0};
        wr.wr_id = ++posted_;
        wr.op = XSOCK_OP_READ;
        wr.sge = &sge;
        wr.sge_count = 1;
        wr.remote.stag = remote_.stag ^ 0x5a5a;
        wr.remote.to = remote_.to;
        REQUIRE(xsock_post(ep_, &wr) == 0);
        while (completed_ < posted_ && !ended_) take();
        REQUIRE(last_status_ == XSOCK_WC_REMOTE_ACCESS);
    }
    void end(const std::string& how) {
        if (how == "abort") {
            REQUIRE(xsock_ep_abort(ep_) == 0);
        } else {
            REQUIRE(xsock_ep_close(ep_) == 0);
        }
        const std::uint64_t limit = now_us() + 60'000'000u;
        while (xsock_cq_destroy(cq_) != 0) {
            REQUIRE(now_us() < limit);
            xsock_wc wc;
            (void)xsock_cq_wait(cq_, &wc, 0, 1, 10);
        }
    }
    /// Until the peer has ended the connection: in order, or by an error.
    void wait_end(bool by_error) {
        while (!ended_) take();
        XSOCK_INIT(xsock_ep_info, info);
        REQUIRE(xsock_ep_query(ep_, &info) == 0);
        REQUIRE((info.error != 0) == by_error);
    }

  private:
    void post_receive(std::uint32_t i) {
        REQUIRE(xsock_recv(ep_, 1000 + i, receives_[i].data(),
                           static_cast<std::uint32_t>(receives_[i].size())) == 0);
    }
    void take() {
        xsock_wc wc;
        const int n = xsock_cq_wait(cq_, &wc, 1, 1, kLimitMs);
        if (n != 1) die("nothing completes");
        if (wc.op == XSOCK_OP_RECV) {
            if (wc.status != XSOCK_WC_SUCCESS) {
                ended_ = true;
                return;
            }
            const auto i = static_cast<std::uint32_t>(wc.wr_id - 1000);
            messages_.emplace_back(receives_[i].begin(),
                                   receives_[i].begin() + static_cast<std::ptrdiff_t>(wc.length));
            immediates_.push_back(wc.immediate);
            post_receive(i);
            return;
        }
        ++completed_;
        last_status_ = wc.status;
    }

    const Plan plan_;
    std::vector<unsigned char> window_, out_;
    std::vector<std::vector<unsigned char>> receives_;
    std::vector<std::vector<unsigned char>> messages_;
    std::vector<std::uint64_t> immediates_;  // of each message
    std::uint64_t last_immediate_ = 0;
    xsock_cq* cq_ = nullptr;
    xsock_mr* mr_ = nullptr;
    xsock_key key_{};
    xsock_remote remote_{};
    xsock_ep* ep_ = nullptr;
    std::uint64_t posted_ = 0, completed_ = 0;
    int last_status_ = 0;
    bool ended_ = false;
};

sockaddr_storage address_of(const Plan& plan, int port, socklen_t& size) {
    sockaddr_storage storage{};
    if (plan.address.find(':') != std::string::npos) {
        auto& in6 = reinterpret_cast<sockaddr_in6&>(storage);
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(static_cast<std::uint16_t>(port));
        REQUIRE(inet_pton(AF_INET6, plan.address.c_str(), &in6.sin6_addr) == 1);
        size = sizeof in6;
    } else {
        auto& in = reinterpret_cast<sockaddr_in&>(storage);
        in.sin_family = AF_INET;
        in.sin_port = htons(static_cast<std::uint16_t>(port));
        REQUIRE(inet_pton(AF_INET, plan.address.c_str(), &in.sin_addr) == 1);
        size = sizeof in;
    }
    return storage;
}

void client(const Plan& plan) {
    socklen_t size = 0;
    sockaddr_storage address = address_of(plan, plan.peer_port, size);
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
    Peer peer(plan);
    peer.start(fd, true);
    const auto offer = peer.receive();
    REQUIRE(offer.size() == 4);
    std::uint32_t stag = 0;
    std::memcpy(&stag, offer.data(), 4);

    std::vector<unsigned char> message(plan.bytes);
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = pattern(i);
    peer.send(message.data(), 64);
    peer.send(message.data(), 1, XSOCK_SOLICITED);
    peer.send(message.data(), 3, XSOCK_INVALIDATE, ntohl(stag));
    peer.send(nullptr, 0);
    peer.send(message.data(), plan.bytes);
    peer.write(1);
    peer.write(plan.bytes);
    peer.read(5);
    peer.read(plan.bytes);
    peer.atomics();
    peer.immediate();
    if (peer.has_send_immediate()) peer.send_immediate();
    peer.send_word("done");
    peer.expect_word("bye!");
    peer.expect_written(plan.bytes, /*other_first=*/false);
    if (plan.end == "terminate") peer.use_bad_stag();
    peer.end(plan.end);
}

void serve(const Plan& plan, const std::vector<std::string>& arguments) {
    socklen_t size = 0;
    sockaddr_storage address = address_of(plan, 0, size);
    const int listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener, generic, size) == 0 && listen(listener, 1) == 0);
    REQUIRE(getsockname(listener, generic, &size) == 0);
    const int port = ntohs(plan.address.find(':') != std::string::npos
                               ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                               : reinterpret_cast<sockaddr_in&>(address).sin_port);
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--peer", std::to_string(port)});
    Child child(all);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    REQUIRE(fd >= 0);
    close(listener);

    Peer peer(plan);
    peer.start(fd, false);
    peer.offer_invalidation();
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{1}, std::size_t{3}, std::size_t{0},
                                    std::size_t{plan.bytes}}) {
        const auto message = peer.receive();
        REQUIRE(message.size() == bytes);
        for (std::size_t i = 0; i < bytes; ++i) REQUIRE(message[i] == pattern(i));
    }
    (void)peer.receive();
    REQUIRE(peer.last_immediate() == kWriteImmediate);
    if (peer.has_send_immediate()) {
        for (const std::size_t bytes : {20, 0}) {
            REQUIRE(peer.receive().size() == bytes);
            REQUIRE(peer.last_immediate() == kSendImmediate);
        }
    }
    peer.expect_word("done");
    peer.expect_atomics();
    peer.expect_written(plan.bytes, /*other_first=*/true);
    peer.write(plan.bytes);
    peer.read(300);
    peer.send_word("bye!");
    peer.wait_end(plan.end != "close");
    peer.end("close");
    const int status = child.status();
    if (status != 0) die("the client failed: %d", status);
}

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    using namespace xsock::test;
    Plan plan;
    bool no_crc = false;
    parse_only_options(argc, argv,
                       {{"--client-markers", &plan.client_markers},
                        {"--server-markers", &plan.server_markers},
                        {"--no-crc", &no_crc}},
                       {{"--address", into(plan.address)},
                        {"--revision", into(plan.revision)},
                        {"--bytes", into(plan.bytes)},
                        {"--rtr", into(plan.rtr)},
                        {"--end", into(plan.end)},
                        {"--peer", into(plan.peer_port)}});
    plan.crc = !no_crc;
    if (plan.peer_port != 0) {
        Child::end_with_parent();
        client(plan);
    } else {
        serve(plan, {argv + 1, argv + argc});
    }
    return 0;
}
