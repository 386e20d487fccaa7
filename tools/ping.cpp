// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock ping: round trips of Sends and Reads, in the manner of ping(8).
//
// The protocol: the client's private data is a Hello with the size of its messages; the server's is
// one with the size granted and the key of a region of that size. Each Send of the client comes
// back as a Send; what it Reads is the pattern of the region.
#include "tools/ping.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <list>

#include "base/bytes.hpp"
#include "tools/command.hpp"
#include "tools/endpoint.hpp"
#include "tools/json.hpp"
#include "tools/options.hpp"
#include "tools/stats_reader.hpp"
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
    std::uint8_t size[4];  // bytes of a message
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
    struct Kind {
        const char* name;
        bool wanted;
        double (PingClient::*round_trip)();  // ns; negative: time ran out, or interrupted
        RoundTrips times;
    };

    /// Waits for the completion of `id`; false when time ran out or on interrupt.
    bool await(std::uint64_t id);
    double send_round();
    double read_round();
    void round(std::uint64_t sequence);
    void print_summary() const;
    [[nodiscard]] Json report() const;

    const PingOptions& options_;
    std::array<Kind, 2> kinds_;
    CqPtr cq_;
    std::vector<std::byte> out_, in_;
    EpPtr ep_;
    xsock_remote remote_{};
    std::uint64_t rounds_ = 0;
    std::uint64_t lost_ = 0;
    std::string peer_;
    std::string path_, shm_reason_;
    std::string error_;
};

PingClient::PingClient(const PingOptions& options)
    : options_(options),
      kinds_{{{"send", options.sends || !options.reads, &PingClient::send_round, {}},
              {"read", options.reads || !options.sends, &PingClient::read_round, {}}}},
      cq_(make_cq()),
      out_(options.size),
      in_(options.size) {
    for (std::size_t i = 0; i < out_.size(); ++i) out_[i] = pattern(i);
    const Hello hello = make_hello(options.size);
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq_.get();
    attr.private_data = &hello;
    attr.private_data_length = sizeof hello;
    ep_ = connect_to(options.host, options.port, attr, options.timeout_s);
    peer_ = options.host + " port " + options.port;
    const xsock_ep_info info = info_of(ep_.get());
    path_ = path_name(static_cast<std::uint8_t>(info.path));
    shm_reason_ = info.shm_reason;
    Hello answer;
    if (!read_hello(info, answer)) {
        fail("{} speaks iWARP, but is no 'xsock ping --listen'", peer_);
    }
    if (load_be32(answer.version) != kVersion) {
        fail("{} speaks version {} of this protocol, and we {}", peer_, load_be32(answer.version),
             kVersion);
    }
    xsock_key_read(&answer.key, &remote_);
    if (load_be32(answer.size) != options.size || remote_.length < options.size) {
        fail("{} does not take messages of {} bytes", peer_, options.size);
    }
    if (!options.json) {
        fmt::print("PING {}: {} bytes, MPA revision {}, CRC {}{}, {}\n", peer_, options.size,
                   info.mpa_revision, info.crc != 0 ? "on" : "off", peer_words(info),
                   path_words(info));
    }
}

bool PingClient::await(std::uint64_t id) {
    const auto limit_ms = static_cast<int>(options_.timeout_s * 1000);
    xsock_wc wc;
    while (next_completion(cq_.get(), wc, limit_ms)) {
        if (wc.status != XSOCK_WC_SUCCESS) {
            fail("{}: {} ({})", peer_, end_of(ep_.get()), xsock_wc_str(wc.status));
        }
        if (wc.wr_id == id) return true;
    }
    return false;
}

double PingClient::send_round() {
    const auto size = static_cast<std::uint32_t>(options_.size);
    ensure(xsock_recv(ep_.get(), kReceiveId, in_.data(), size), "xsock_recv");
    const std::uint64_t begin = now_ns();
    ensure(xsock_send(ep_.get(), kSendId, out_.data(), size, XSOCK_UNSIGNALED), "xsock_send");
    return await(kReceiveId) ? static_cast<double>(now_ns() - begin) : -1;
}

double PingClient::read_round() {
    const auto size = static_cast<std::uint32_t>(options_.size);
    const std::uint64_t begin = now_ns();
    ensure(xsock_read(ep_.get(), kReadId, in_.data(), size, &remote_, 0, 0), "xsock_read");
    return await(kReadId) ? static_cast<double>(now_ns() - begin) : -1;
}

void PingClient::round(std::uint64_t sequence) {
    std::string line = fmt::format("{} bytes from {}: seq={}", options_.size, peer_, sequence);
    ++rounds_;
    for (Kind& kind : kinds_) {
        if (!kind.wanted) continue;
        std::fill(in_.begin(), in_.end(), std::byte{0});
        const double took = (this->*kind.round_trip)();
        if (took < 0 && interrupted()) {
            --rounds_;  // neither answered nor lost
            return;
        }
        if (took < 0) {
            ++lost_;
            fail("{}: no answer within {:g} s", peer_, options_.timeout_s);
        }
        if (in_ != out_) fail("{}: a {} did not bring back what was there", peer_, kind.name);
        kind.times.add(took);
        line += fmt::format(" {}={}", kind.name, time_text(took));
    }
    if (!options_.quiet && !options_.json) print_now("{}\n", line);
}

int PingClient::run() {
    try {
        for (std::uint64_t i = 1; !interrupted(); ++i) {
            round(i);
            if (i == options_.count) break;
            if (!interrupted()) sleep_for(options_.interval_s);
        }
    } catch (const Failure& failure) {
        error_ = failure.what();        // what was measured before is worth telling
        xsock_ep_abort(ep_.release());  // before its buffers go
    }
    if (options_.json) {
        print_json(report());
    } else {
        print_summary();
    }
    if (!error_.empty()) print_error("ping", "{}", error_);
    return error_.empty() && rounds_ > 0 ? kOk : kFailed;
}

void PingClient::print_summary() const {
    fmt::print("\n--- {} xsock ping statistics ---\n{} round trip{}, {} lost\n", peer_, rounds_,
               rounds_ == 1 ? "" : "s", lost_);
    for (const Kind& kind : kinds_) {
        if (kind.times.count() > 0) fmt::print("{} {}\n", kind.name, kind.times.text());
    }
}

Json PingClient::report() const {
    Json json = object({{"host", options_.host},
                        {"port", options_.port},
                        {"path", path_},
                        {"shm_reason", shm_reason_},
                        {"bytes", options_.size},
                        {"rounds", rounds_},
                        {"lost", lost_}});
    for (const Kind& kind : kinds_) {
        const RoundTrips& times = kind.times;
        if (times.count() == 0) continue;
        json[kind.name] = object({{"count", times.count()},
                                  {"min_us", times.min() / 1e3},
                                  {"avg_us", times.average() / 1e3},
                                  {"max_us", times.max() / 1e3},
                                  {"mdev_us", times.deviation() / 1e3}});
    }
    if (!error_.empty()) json["error"] = error_;
    return json;
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
    void handle_pending();
    void answer(Guest& guest, const xsock_wc& wc);
    template <typename... T>
    void say(fmt::format_string<T...> format, T&&... values) const {
        if (!options_.quiet) print_now(format, std::forward<T>(values)...);
    }

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
    listener_ = listen_on(options.host, options.port, attr);
}

void PingServer::handle_pending() {
    EpPtr ep(xsock_accept(listener_.get(), guests_.empty() ? 200 : 0));
    if (ep == nullptr) return;
    const xsock_ep_info info = info_of(ep.get());
    Hello asked;
    if (!read_hello(info, asked) || load_be32(asked.version) != kVersion) {
        static constexpr char kWords[] = "this is xsock ping; another protocol or version came";
        xsock_ep_reject(ep.get(), kWords, sizeof kWords - 1);
        say("refused a client that is no xsock ping of version {}\n", kVersion);
        return;
    }
    const std::uint32_t size = load_be32(asked.size);
    if (size > kPingMaxSize || guests_.size() >= kMaxClients) {
        const char* words = size > kPingMaxSize ? "message too large" : "too many clients";
        xsock_ep_reject(ep.get(), words, std::strlen(words));
        say("refused a client: {}\n", words);
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
    say("client {}: messages of {} bytes\n", guest.number, size);
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
        handle_pending();
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
            say("a client left: {}\n", end_of(guest->ep.get()));
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

double RoundTrips::deviation() const {
    return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_));
}

std::string RoundTrips::text() const {
    return fmt::format("min/avg/max/mdev = {:.3f}/{:.3f}/{:.3f}/{:.3f} us", min_ / 1e3, mean_ / 1e3,
                       max_ / 1e3, deviation() / 1e3);
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
        .number('s', "size", "BYTES", ping.size, 1, kPingMaxSize,
                "of a message, up to 1048576; default 56, rping 64")
        .real('W', "timeout", "S", ping.timeout_s, 0.001, 3600,
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
    ping.port = rping ? kRpingPort : kPort;
    if (rping && ping.size == default_size) ping.size = 64;
    if (rping && ping.size < 32) return options.wrong("rping's text has at least 32 bytes");
    const auto status = ping.listen ? options.take_address(ping.host, ping.port)
                                    : options.take_host(ping.host, ping.port);
    if (status) return *status;
    catch_interrupts();
    try {
        if (rping) return ping.listen ? rping_server(ping) : rping_client(ping);
        return ping.listen ? ping_server(ping) : ping_client(ping);
    } catch (const Failure& failure) {
        print_error("ping", "{}", failure.what());
        return kFailed;
    }
}

}  // namespace xsock::tools
