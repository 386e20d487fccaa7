// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The protocol of rdma-core's rping. One ping: the client says where its text lies, the server
// fetches it by RDMA Read and says so, the client says where it wants it back, the server puts it
// there by RDMA Write and says so. The messages are Sends of 16 bytes.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/bytes.hpp"
#include "tools/command.hpp"
#include "tools/endpoint.hpp"
#include "tools/ping.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

/// Where a buffer lies, on rping's wire: big-endian. A server's go-ahead has the same length and no
/// meaning.
struct Advertisement {
    std::uint8_t address[8];
    std::uint8_t key[4];
    std::uint8_t size[4];
};
static_assert(sizeof(Advertisement) == 16);  // rping checks the length of each message

constexpr std::uint64_t kReceives = 2;
constexpr std::uint64_t kReadWrId = kReceives;

/// One connection, either end.
class Rping {
  public:
    /// Completions of this connection alone come to `cq` until it is destroyed.
    Rping(const PingOptions& options, xsock_cq* cq)
        : options_(options),
          cq_(cq),
          text_(options.size),
          copy_(options.size),
          timeout_ms_(static_cast<int>(options.timeout_s * 1000)) {}
    ~Rping() {
        // Nothing may be sent from memory that goes with us. After a client's good end nothing is
        // left to send; a server's client has gone first.
        if (ep_ == nullptr || (ended_ && !serving_)) return;
        xsock_ep_abort(ep_.release());
        xsock_wc wc;
        while (xsock_cq_poll(cq_, &wc, 1) == 1) continue;
    }

    void begin(EpPtr ep);
    /// All pings; fewer when interrupted.
    void client();
    void server();
    [[nodiscard]] const RoundTrips& times() const { return times_; }

  private:
    void post_receive(std::uint64_t i);
    /// A completion that went well; false on interrupt or, at a server, at the end of the client.
    bool next(xsock_wc& wc);
    bool await_message(xsock_remote& remote);
    void send(const Advertisement& message);
    Advertisement advertise(const xsock_mr* mr) const;
    void write_text(std::uint64_t ping);
    void show(const char* what, const std::vector<char>& text) const;

    const PingOptions& options_;
    xsock_cq* cq_;
    Advertisement received_[kReceives] = {};
    std::vector<char> text_;  // client: what the server reads
    std::vector<char> copy_;  // client: written by the server; server: read into
    const int timeout_ms_;
    bool serving_ = false;
    bool ended_ = false;
    RoundTrips times_;
    EpPtr ep_;
};

void Rping::post_receive(std::uint64_t i) {
    if (xsock_recv(ep_.get(), i, &received_[i], sizeof received_[i]) != 0 && errno != EPIPE) {
        fail_errno("xsock_recv");
    }
}

void Rping::begin(EpPtr ep) {
    ep_ = std::move(ep);
    for (std::uint64_t i = 0; i < kReceives; ++i) post_receive(i);
}

bool Rping::next(xsock_wc& wc) {
    if (!next_completion(cq_, wc, timeout_ms_)) {
        if (interrupted()) return false;
        fail("nothing came within {:g} s: {}", options_.timeout_s, end_of(ep_.get()));
    }
    if (wc.status == XSOCK_WC_SUCCESS) return true;
    // A client ends by closing: the receives come back unused.
    ended_ = serving_ && wc.op == XSOCK_OP_RECV && info_of(ep_.get()).error == 0;
    if (ended_) return false;
    fail("{} ({})", end_of(ep_.get()), xsock_wc_str(wc.status));
}

bool Rping::await_message(xsock_remote& remote) {
    xsock_wc wc;
    if (!next(wc)) return false;
    if (wc.op != XSOCK_OP_RECV || wc.wr_id >= kReceives || wc.length != sizeof(Advertisement)) {
        fail("the other end is no rping: a message of {} bytes came", wc.length);
    }
    const Advertisement& message = received_[wc.wr_id];
    remote = {};
    remote.to = load_be64(message.address);
    remote.stag = load_be32(message.key);
    remote.length = load_be32(message.size);
    post_receive(wc.wr_id);
    return true;
}

void Rping::send(const Advertisement& message) {
    if (xsock_send(ep_.get(), 0, &message, sizeof message, XSOCK_UNSIGNALED | XSOCK_INLINE) != 0 &&
        errno != EPIPE) {
        fail_errno("xsock_send");
    }
}

Advertisement Rping::advertise(const xsock_mr* mr) const {
    const xsock_remote remote = remote_of(mr, options_.size);
    Advertisement message;
    store_be64(message.address, remote.to);
    store_be32(message.key, remote.stag);
    store_be32(message.size, static_cast<std::uint32_t>(options_.size));
    return message;
}

// "rdma-ping-7: HIJKLM...": rping's text, which moves on by a letter with each ping.
void Rping::write_text(std::uint64_t ping) {
    constexpr unsigned kLetters = 'z' - 'A' + 1;
    const std::string head = fmt::format("rdma-ping-{}: ", ping);
    for (std::size_t i = 0; i + 1 < text_.size(); ++i) {
        text_[i] =
            i < head.size()
                ? head[i]
                : static_cast<char>('A' + static_cast<int>((ping + i - head.size()) % kLetters));
    }
    text_.back() = '\0';
}

void Rping::show(const char* what, const std::vector<char>& text) const {
    if (!options_.verbose) return;
    print_now("{}: {}\n", what, printable(std::string_view(text.data(), strnlen(text.data(), 64))));
}

void Rping::client() {
    const MrPtr text(
        xsock_mr_register(nullptr, text_.data(), text_.size(), XSOCK_REMOTE_READ, ep_.get()));
    const MrPtr copy(
        xsock_mr_register(nullptr, copy_.data(), copy_.size(), XSOCK_REMOTE_WRITE, ep_.get()));
    if (text == nullptr || copy == nullptr) fail_errno("xsock_mr_register");
    const Advertisement source = advertise(text.get());
    const Advertisement sink = advertise(copy.get());
    const std::uint64_t count = options_.count != 0 ? options_.count : 10;
    for (std::uint64_t ping = 0; ping < count && !interrupted(); ++ping) {
        write_text(ping);
        std::fill(copy_.begin(), copy_.end(), '\0');
        xsock_remote nothing;
        const std::uint64_t begin = now_ns();
        send(source);
        if (!await_message(nothing)) return;  // it has read
        send(sink);
        if (!await_message(nothing)) return;  // it has written
        times_.add(static_cast<double>(now_ns() - begin));
        if (text_ != copy_) fail("the text came back changed");
        show("ping data", copy_);
    }
    ended_ = true;
}

void Rping::server() {
    serving_ = true;
    const MrPtr copy(
        xsock_mr_register(nullptr, copy_.data(), copy_.size(), XSOCK_LOCAL_WRITE, ep_.get()));
    if (copy == nullptr) fail_errno("xsock_mr_register");
    const Advertisement go_ahead{};
    for (;;) {
        xsock_remote remote;
        if (!await_message(remote)) return;
        if (remote.length != options_.size) {
            fail("the client's messages have {} bytes; give it -S {}, or us -s {}", remote.length,
                 options_.size, remote.length);
        }
        const std::uint64_t begin = now_ns();
        const auto size = static_cast<std::uint32_t>(options_.size);
        ensure(xsock_read(ep_.get(), kReadWrId, copy_.data(), size, &remote, 0, 0), "xsock_read");
        xsock_wc wc;
        if (!next(wc)) return;
        if (wc.op != XSOCK_OP_READ || wc.length != size) fail("a message in the midst of a Read");
        times_.add(static_cast<double>(now_ns() - begin));
        show("server ping data", copy_);
        send(go_ahead);
        if (!await_message(remote)) return;
        if (remote.length < size) fail("the client lends less memory than before");
        ensure(xsock_write(ep_.get(), 0, copy_.data(), size, &remote, 0, XSOCK_UNSIGNALED),
               "xsock_write");
        send(go_ahead);
    }
}

void print_times(const char* what, const RoundTrips& times) {
    if (times.count() == 0) {
        print_now("no pings\n");
    } else {
        print_now("{} pings; {} {}\n", times.count(), what, times.text());
    }
}

}  // namespace

int rping_client(const PingOptions& options) {
    const CqPtr cq = make_cq();
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq.get();
    EpPtr ep = connect_to(options.host, options.port, attr, options.timeout_s);
    Rping rping(options, cq.get());
    rping.begin(std::move(ep));
    rping.client();
    print_times("ping", rping.times());
    return rping.times().count() > 0 ? kOk : kFailed;
}

int rping_server(const PingOptions& options) {
    const CqPtr cq = make_cq();
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq.get();
    attr.rnr_timeout_ms = -1;  // the next client waits for its turn
    const ListenerPtr listener = listen_on(options.host, options.port, attr);
    while (!interrupted()) {
        EpPtr ep(xsock_accept(listener.get(), 100));
        if (ep == nullptr) continue;
        Rping rping(options, cq.get());
        rping.begin(std::move(ep));
        try {
            rping.server();
        } catch (const Failure& failure) {
            if (options.once) throw;
            print_error("ping", "{}", failure.what());
        }
        print_times("read", rping.times());
        if (options.once) return rping.times().count() > 0 ? kOk : kFailed;
    }
    return kOk;
}

}  // namespace xsock::tools
