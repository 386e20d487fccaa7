// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock ping: round trips of Sends and Reads, in the manner of ping(8).
//
// The protocol: the client's private data is a Hello with the size of its messages; the server's is
// one with the size granted and the key of a region of that size. Each Send of the client comes
// back as a Send; what it Reads is the pattern of the region.
#include "tools/ping.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <list>

#include "base/bytes.hpp"
#include "tools/command.hpp"
#include "tools/endpoint.hpp"
#include "tools/json.hpp"
#include "tools/options.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

constexpr const char* kPort = "7472";
constexpr const char* kRpingPort = "7174";
constexpr std::size_t kMaxClients = 64;
constexpr char kMagic[8] = {'x', 's', 'o', 'c', 'k', 'p', 'n', 'g'};
constexpr std::uint32_t kVersion = 1;

/// Private data of both ends. Numbers are big-endian.
struct Hello {
    char magic[8];
    std::uint8_t version[4];
    std::uint8_t size[4];  // octets of a message
    xsock_key key;         // of the server
};
static_assert(sizeof(Hello) == 40);

Hello make_hello(std::uint64_t size) {
    Hello hello{};
    std::memcpy(hello.magic, kMagic, sizeof kMagic);
    store_be32(hello.version, kVersion);
    store_be32(hello.size, static_cast<std::uint32_t>(size));
    return hello;
}

/// The peer's Hello. False when there is none.
bool read_hello(const xsock_ep_info& info, Hello& hello) {
    if (info.private_data_length < sizeof hello) return false;
    std::memcpy(&hello, info.private_data, sizeof hello);
    return std::memcmp(hello.magic, kMagic, sizeof kMagic) == 0;
}

std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 31 + 7); }

// ---- client ---------------------------------------------------------------

enum WorkId : std::uint64_t { kSendId = 1, kReceiveId, kReadId };

class PingClient {
  public:
    explicit PingClient(const PingOptions& options);
    int run();

  private:
    /// Waits for the completion of `id`; false when time ran out or on interrupt.
    bool await(std::uint64_t id);
    bool send_round();
    bool read_round();
    void round(std::uint64_t sequence);
    void print_summary() const;
    void print_json() const;

    const PingOptions& options_;
    const bool sends_, reads_;
    CqPtr cq_;
    std::vector<std::byte> out_, in_;
    EpPtr ep_;
    xsock_remote remote_{};
    RoundTrips send_times_, read_times_;
    std::uint64_t rounds_ = 0;
    std::uint64_t lost_ = 0;
    std::string peer_;
    std::string error_;
};

PingClient::PingClient(const PingOptions& options)
    : options_(options),
      sends_(options.sends || !options.reads),
      reads_(options.reads || !options.sends),
      cq_(make_cq()),
      out_(options.size),
      in_(options.size) {
    for (std::size_t i = 0; i < out_.size(); ++i) out_[i] = pattern(i);
    const Hello hello = make_hello(options.size);
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq_.get();
    attr.private_data = &hello;
    attr.private_data_length = sizeof hello;
    const int patience_ms = static_cast<int>(options.patience_s * 1000);
    ep_.reset(xsock_connect(options.host.c_str(), options.port.c_str(), &attr, patience_ms));
    peer_ = options.host + " port " + options.port;
    if (ep_ == nullptr) fail("%s: %s", peer_.c_str(), connect_error(errno).c_str());
    const xsock_ep_info info = info_of(ep_.get());
    Hello answer;
    if (!read_hello(info, answer)) {
        fail("%s speaks iWARP, but is no 'xsock ping --listen'", peer_.c_str());
    }
    if (load_be32(answer.version) != kVersion) {
        fail("%s speaks version %u of this protocol, and we %u", peer_.c_str(),
             load_be32(answer.version), kVersion);
    }
    xsock_key_read(&answer.key, &remote_);
    if (load_be32(answer.size) != options.size || remote_.length < options.size) {
        fail("%s does not take messages of %llu octets", peer_.c_str(),
             static_cast<unsigned long long>(options.size));
    }
    if (!options.json) {
        std::printf("PING %s: %llu octets, MPA revision %u, CRC %s%s\n", peer_.c_str(),
                    static_cast<unsigned long long>(options.size), info.mpa_revision,
                    info.crc != 0 ? "on" : "off", info.peer_is_xsock != 0 ? ", xsock" : "");
    }
}

bool PingClient::await(std::uint64_t id) {
    const auto limit_ms = static_cast<int>(options_.patience_s * 1000);
    xsock_wc wc;
    while (next_completion(cq_.get(), wc, limit_ms)) {
        if (wc.status != XSOCK_WC_SUCCESS) {
            fail("%s: %s (%s)", peer_.c_str(), end_of(ep_.get()).c_str(), xsock_wc_str(wc.status));
        }
        if (wc.wr_id == id) return true;
    }
    return false;
}

bool PingClient::send_round() {
    std::fill(in_.begin(), in_.end(), std::byte{0});
    const auto size = static_cast<std::uint32_t>(options_.size);
    if (xsock_recv(ep_.get(), kReceiveId, in_.data(), size) != 0) fail_errno("xsock_recv");
    const std::uint64_t begin = now_ns();
    if (xsock_send(ep_.get(), kSendId, out_.data(), size, XSOCK_UNSIGNALED) != 0) {
        fail_errno("xsock_send");
    }
    if (!await(kReceiveId)) return false;
    send_times_.add(static_cast<double>(now_ns() - begin));
    if (in_ != out_) fail("%s: a message came back changed", peer_.c_str());
    return true;
}

bool PingClient::read_round() {
    std::fill(in_.begin(), in_.end(), std::byte{0});
    const auto size = static_cast<std::uint32_t>(options_.size);
    const std::uint64_t begin = now_ns();
    if (xsock_read(ep_.get(), kReadId, in_.data(), size, &remote_, 0, 0) != 0) {
        fail_errno("xsock_read");
    }
    if (!await(kReadId)) return false;
    read_times_.add(static_cast<double>(now_ns() - begin));
    if (in_ != out_) fail("%s: what was read is not what lies there", peer_.c_str());
    return true;
}

void PingClient::round(std::uint64_t sequence) {
    std::string line =
        format("%llu octets from %s: seq=%llu", static_cast<unsigned long long>(options_.size),
               peer_.c_str(), static_cast<unsigned long long>(sequence));
    const auto times = [&](const char* name, bool (PingClient::*kind)()) {
        const std::uint64_t begin = now_ns();
        if (!(this->*kind)()) return false;
        line += format(" %s=%s", name, time_text(static_cast<double>(now_ns() - begin)).c_str());
        return true;
    };
    ++rounds_;
    const bool answered = (!sends_ || times("send", &PingClient::send_round)) &&
                          (!reads_ || times("read", &PingClient::read_round));
    if (!answered) {
        if (interrupted()) {
            --rounds_;  // neither answered nor lost
            return;
        }
        ++lost_;
        fail("%s: no answer within %g s", peer_.c_str(), options_.patience_s);
    }
    if (!options_.quiet && !options_.json) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
    }
}

int PingClient::run() {
    try {
        for (std::uint64_t i = 1; !interrupted(); ++i) {
            round(i);
            if (i == options_.count) break;
            timespec pause{};
            pause.tv_sec = static_cast<std::time_t>(options_.interval_s);
            pause.tv_nsec =
                static_cast<long>((options_.interval_s - static_cast<double>(pause.tv_sec)) * 1e9);
            if (!interrupted()) nanosleep(&pause, nullptr);
        }
    } catch (const Failure& failure) {
        error_ = failure.what();        // what was measured before is worth telling
        xsock_ep_abort(ep_.release());  // before its buffers go
    }
    if (options_.json) {
        print_json();
    } else {
        print_summary();
    }
    if (!error_.empty()) complain("ping", "%s", error_.c_str());
    return error_.empty() && rounds_ > 0 ? kOk : kFailed;
}

void PingClient::print_summary() const {
    std::printf("\n--- %s xsock ping statistics ---\n%llu round trip%s, %llu lost\n", peer_.c_str(),
                static_cast<unsigned long long>(rounds_), rounds_ == 1 ? "" : "s",
                static_cast<unsigned long long>(lost_));
    const auto print = [](const char* name, const RoundTrips& times) {
        if (times.count() == 0) return;
        std::printf("%s min/avg/max/mdev = %.3f/%.3f/%.3f/%.3f us\n", name, times.min() / 1e3,
                    times.average() / 1e3, times.max() / 1e3, times.deviation() / 1e3);
    };
    print("send", send_times_);
    print("read", read_times_);
}

void PingClient::print_json() const {
    Json json;
    json.object();
    json("host", options_.host)("port", options_.port)("octets", options_.size);
    json("rounds", rounds_)("lost", lost_);
    const auto print = [&](const char* name, const RoundTrips& times) {
        if (times.count() == 0) return;
        json.key(name).object();
        json("count", times.count())("min_us", times.min() / 1e3);
        json("avg_us", times.average() / 1e3)("max_us", times.max() / 1e3);
        json("mdev_us", times.deviation() / 1e3);
        json.end();
    };
    print("send", send_times_);
    print("read", read_times_);
    if (!error_.empty()) json("error", error_);
    json.end();
    json.print();
}

// ---- server ---------------------------------------------------------------

/// One client of the server: two messages, so that the next may come while the last is echoed.
struct Guest {
    EpPtr ep;
    std::uintptr_t number = 0;  // its context: never used again, unlike an address
    std::uint32_t size = 0;
    std::vector<std::byte> messages[2];
    bool gone = false;
};

class PingServer {
  public:
    explicit PingServer(const PingOptions& options);
    ~PingServer() {
        // Nothing may be sent from memory that goes with us.
        for (Guest& guest : guests_) xsock_ep_abort(guest.ep.release());
    }
    int run();

  private:
    void admit();
    void answer(Guest& guest, const xsock_wc& wc);
    void say(const char* format, ...) __attribute__((format(printf, 2, 3)));

    const PingOptions& options_;
    CqPtr cq_;
    std::vector<std::byte> region_;
    MrPtr mr_;
    std::list<Guest> guests_;
    ListenerPtr listener_;
    std::uintptr_t served_ = 0;
};

PingServer::PingServer(const PingOptions& options)
    : options_(options), cq_(make_cq()), region_(kPingMaxSize) {
    for (std::size_t i = 0; i < region_.size(); ++i) region_[i] = pattern(i);
    mr_.reset(
        xsock_mr_register(nullptr, region_.data(), region_.size(), XSOCK_REMOTE_READ, nullptr));
    Hello hello = make_hello(0);
    if (mr_ == nullptr || xsock_mr_key(mr_.get(), 0, region_.size(), &hello.key) != 0) {
        fail_errno("no region");
    }
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq_.get();
    attr.flags = XSOCK_EP_EVENTS | XSOCK_EP_DEFER;
    attr.rq_depth = 4;
    attr.sq_depth = 4;
    attr.linger_ms = 1000;
    listener_.reset(xsock_listen(options.host.empty() ? nullptr : options.host.c_str(),
                                 options.port.c_str(), 64, &attr));
    if (listener_ == nullptr) {
        fail_errno("cannot listen on %s port %s",
                   options.host.empty() ? "any address" : options.host.c_str(),
                   options.port.c_str());
    }
    std::printf("listening on port %d\n", xsock_listener_port(listener_.get()));
    std::fflush(stdout);
}

void PingServer::say(const char* format, ...) {
    if (options_.quiet) return;
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::fflush(stdout);
}

void PingServer::admit() {
    EpPtr ep(xsock_accept(listener_.get(), guests_.empty() ? 200 : 0));
    if (ep == nullptr) return;
    const xsock_ep_info info = info_of(ep.get());
    Hello asked;
    if (!read_hello(info, asked) || load_be32(asked.version) != kVersion) {
        static constexpr char kWords[] = "this is xsock ping; another protocol or version came";
        xsock_ep_reject(ep.get(), kWords, sizeof kWords - 1);
        say("refused a client that is no xsock ping of version %u\n", kVersion);
        return;
    }
    const std::uint32_t size = load_be32(asked.size);
    if (size > kPingMaxSize || guests_.size() >= kMaxClients) {
        const char* words = size > kPingMaxSize ? "message too large" : "too many clients";
        xsock_ep_reject(ep.get(), words, std::strlen(words));
        say("refused a client: %s\n", words);
        return;
    }
    Guest& guest = guests_.emplace_back();
    guest.number = ++served_;
    guest.size = size;
    for (std::uint64_t i = 0; i < 2; ++i) {
        guest.messages[i].resize(size);
        if (xsock_recv(ep.get(), i, guest.messages[i].data(), size) != 0) guest.gone = true;
    }
    Hello hello = make_hello(size);
    if (xsock_mr_key(mr_.get(), 0, size, &hello.key) != 0 ||
        xsock_ep_set_context(ep.get(), reinterpret_cast<void*>(guest.number)) != 0 ||
        xsock_ep_accept(ep.get(), &hello, sizeof hello) != 0) {
        guest.gone = true;
    }
    guest.ep = std::move(ep);
    say("client %llu: messages of %u octets\n", static_cast<unsigned long long>(guest.number),
        size);
}

void PingServer::answer(Guest& guest, const xsock_wc& wc) {
    if (wc.op == XSOCK_OP_CONNECTED) return;
    if (wc.op == XSOCK_OP_CLOSED || wc.status != XSOCK_WC_SUCCESS) {
        guest.gone = true;
        return;
    }
    if (wc.op == XSOCK_OP_SEND) {  // its buffer takes the next message
        if (xsock_recv(guest.ep.get(), wc.wr_id, guest.messages[wc.wr_id].data(), guest.size) !=
            0) {
            guest.gone = true;
        }
        return;
    }
    if (wc.op != XSOCK_OP_RECV || wc.wr_id > 1) return;
    if (xsock_send(guest.ep.get(), wc.wr_id, guest.messages[wc.wr_id].data(), wc.length, 0) != 0) {
        guest.gone = true;
    }
}

int PingServer::run() {
    while (!interrupted()) {
        admit();
        xsock_wc wc;
        if (guests_.empty()) continue;
        if (next_completion(cq_.get(), wc, 20)) {
            for (Guest& guest : guests_) {
                if (guest.number == reinterpret_cast<std::uintptr_t>(wc.context)) answer(guest, wc);
            }
        } else {
            for (Guest& guest : guests_) {  // one that died before it had its context
                if (info_of(guest.ep.get()).state >= XSOCK_EP_ERROR) guest.gone = true;
            }
        }
        for (auto guest = guests_.begin(); guest != guests_.end();) {
            if (!guest->gone) {
                ++guest;
                continue;
            }
            say("a client left: %s\n", end_of(guest->ep.get()).c_str());
            xsock_ep_abort(guest->ep.release());  // nothing of it touches its memory any more
            guest = guests_.erase(guest);
            if (options_.once && guests_.empty()) return kOk;
        }
    }
    return kOk;
}

}  // namespace

// ---- both -----------------------------------------------------------------

void RoundTrips::add(double ns) {
    min_ = count_ == 0 ? ns : std::min(min_, ns);
    max_ = std::max(max_, ns);
    ++count_;
    const double delta = ns - mean_;
    mean_ += delta / static_cast<double>(count_);
    squares_ += delta * (ns - mean_);
}

double RoundTrips::average() const { return mean_; }

double RoundTrips::deviation() const {
    return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_));
}

int ping_client(const PingOptions& options) { return PingClient(options).run(); }
int ping_server(const PingOptions& options) { return PingServer(options).run(); }

int ping_command(int argc, char** argv) {
    PingOptions ping;
    bool rping = false;
    Options options("ping", "[options] HOST [PORT]  |  --listen [options] [[ADDRESS:]PORT]",
                    "Measures round trips of Sends and RDMA Reads to an 'xsock ping --listen', or "
                    "speaks rping's\nprotocol to rdma-core's rping.");
    options.number('c', "count", "N", ping.count, 1, 1'000'000'000, "stop after N round trips")
        .real('i', "interval", "S", ping.interval_s, 0, 3600, "seconds between them; default 1")
        .number('s', "size", "OCTETS", ping.size, 1, kPingMaxSize,
                "of a message, up to 1048576; default 56, rping 64")
        .real('W', "timeout", "S", ping.patience_s, 0.001, 3600,
              "longest wait for an answer; default 10")
        .flag(0, "send", ping.sends, "Sends only")
        .flag(0, "read", ping.reads, "Reads only")
        .flag('q', "quiet", ping.quiet, "the summary only")
        .flag('j', "json", ping.json, "the summary as JSON")
        .flag('l', "listen", ping.listen, "be the server")
        .flag('1', "once", ping.once, "server: end when the clients have left")
        .flag('r', "rping", rping,
              "speak rping's protocol: with --listen as 'rping -s', otherwise\n"
              "as 'rping -c'; the size must be the other end's -S")
        .flag('v', "verbose", ping.verbose, "with --rping: show the text that travels")
        .epilogue(
            "The default port is 7472, that of rping 7174. IPv6 addresses with a port: "
            "[ADDRESS]:PORT.");
    const std::uint64_t default_size = ping.size;
    if (const auto status = options.parse(argc, argv)) return *status;
    const auto& arguments = options.arguments();
    if (arguments.size() > (ping.listen ? 1u : 2u)) {
        return options.wrong("'%s' is too much", arguments.back());
    }
    ping.port = rping ? kRpingPort : kPort;
    if (rping && ping.size == default_size) ping.size = 64;
    if (rping && ping.size < 32) return options.wrong("rping's text has at least 32 octets");
    if (ping.listen) {
        if (arguments.size() == 1) {
            const std::string_view word = arguments[0];
            if (word.find_first_not_of("0123456789") == word.npos) {
                ping.port = word;
            } else if (!parse_host(word, ping.host, ping.port)) {
                return options.wrong("'%s' is no address", arguments[0]);
            }
        }
    } else {
        if (arguments.empty()) return options.wrong("which host?");
        if (!parse_host(arguments[0], ping.host, ping.port)) {
            return options.wrong("'%s' is no host", arguments[0]);
        }
        if (arguments.size() == 2) ping.port = arguments[1];
    }
    catch_interrupts();
    try {
        if (rping) return ping.listen ? rping_server(ping) : rping_client(ping);
        return ping.listen ? ping_server(ping) : ping_client(ping);
    } catch (const Failure& failure) {
        complain("ping", "%s", failure.what());
        return kFailed;
    }
}

}  // namespace xsock::tools
