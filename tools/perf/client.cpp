// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The measuring side of `xsock perf`. Each row is measured in rounds, DDP and plain TCP in turn
// over connections of the same path, and their ratio is taken round by round: what disturbs the
// machine meanwhile disturbs both.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>

#include "tools/command.hpp"
#include "tools/fd.hpp"
#include "tools/perf/connections.hpp"
#include "tools/perf/perf.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {
namespace {

constexpr int kAnswerMs = 30'000;
constexpr std::uint64_t kFirstCount = 16;  // of the search for how many fit into the time

std::vector<std::uint64_t> usual_sizes(Measure measure) {
    switch (measure) {
        case Measure::latency:
            return {64, 4096, 65536};
        case Measure::bandwidth:
            return {4096, 65536, 1u << 20};
        case Measure::rate:
            return {64};
    }
    return {};
}

class Client {
  public:
    explicit Client(const ClientOptions& options);
    Report run();

  private:
    int connect_one(int limit_s);
    void connect_control();
    void expect(Kind kind) const {
        if (receive_control(control_.get(), kAnswerMs).kind != kind) {
            fail("the server is confused");
        }
    }
    void open();
    /// Nanoseconds of a sample of `count` messages; latency: the median of a round trip.
    double sample(const Row& row, bool plain, std::uint64_t count, double* took = nullptr);
    std::uint64_t find_count(const Row& row, bool plain);
    void run_row(Row& row);
    double figure(const Row& row, double nanoseconds, std::uint64_t count) const;
    void show_progress(const Row& row, const std::string& what);
    [[nodiscard]] std::vector<Row> plan() const;

    const ClientOptions& options_;
    Addresses addresses_{nullptr, &freeaddrinfo};
    const addrinfo* address_ = nullptr;  // the one that answered
    std::string peer_;
    Fd control_;
    std::uint64_t token_ = 0;
    std::unique_ptr<DdpConnections> ddp_;
    std::unique_ptr<TcpConnections> tcp_;
    const bool progress_;
    std::size_t row_number_ = 0, row_count_ = 0;
};

Client::Client(const ClientOptions& options)
    : options_(options), progress_(!options.quiet && isatty(STDERR_FILENO) == 1) {
    connect_control();
}

void Client::connect_control() {
    addresses_ = resolve(options_.host, options_.port);
    int why = ECONNREFUSED;
    for (address_ = addresses_.get(); address_ != nullptr; address_ = address_->ai_next) {
        control_ = Fd(connect_one(10));
        if (control_.good()) break;
        why = errno;
    }
    if (!control_.good()) {
        fail("{} port {}: {}", options_.host, options_.port,
             why == ECONNREFUSED ? "refused: start 'xsock perf server' there" : std::strerror(why));
    }
    peer_ = address_text(*address_);
}

/// A connected, blocking socket, or -1 with errno.
int Client::connect_one(int limit_s) {
    const int fd = socket(address_->ai_family, SOCK_STREAM | SOCK_CLOEXEC, address_->ai_protocol);
    if (fd < 0) return -1;
    const timeval limit{limit_s, 0};  // connect() honours it too
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, address_->ai_addr, address_->ai_addrlen) == 0) return fd;
    const int error = errno == EINPROGRESS || errno == EAGAIN ? ETIMEDOUT : errno;
    close(fd);
    errno = error;
    return -1;
}

std::vector<Row> Client::plan() const {
    std::vector<Row> rows;
    for (const Measure measure : options_.measures) {
        const auto sizes = options_.sizes.empty() ? usual_sizes(measure) : options_.sizes;
        for (const Op op : options_.ops) {
            for (const std::uint64_t size : sizes) rows.push_back({measure, op, size, {}, {}, {}});
        }
    }
    return rows;
}

void Client::open() {
    Control wish;
    wish.kind = Kind::hello;
    send_control(control_.get(), wish);
    const Control welcome = receive_control(control_.get(), kAnswerMs);
    if (welcome.kind != Kind::welcome) fail("{} is no 'xsock perf server'", peer_);
    token_ = welcome.token;

    std::uint64_t largest = 1;
    for (const Row& row : plan()) largest = std::max(largest, row.size);
    wish.kind = Kind::open;
    wish.token = token_;
    wish.size = largest;
    wish.depth = options_.depth;
    wish.connections = options_.connections;
    wish.flags = options_.no_crc ? kNoCrc : 0;
    send_control(control_.get(), wish);
    (void)receive_control(control_.get(), kAnswerMs);
    ddp_ = std::make_unique<DdpConnections>(static_cast<std::uint32_t>(largest),
                                            static_cast<std::uint32_t>(options_.depth),
                                            !options_.no_crc);
    tcp_ = std::make_unique<TcpConnections>(static_cast<std::uint32_t>(largest));
    for (std::uint32_t i = 0; i < options_.connections; ++i) {
        Fd plain(connect_one(10));
        char words[kMagicBytes + sizeof(DataHello)] = {};
        DataHello hello{};
        std::memcpy(hello.magic, kControlMagic, sizeof kControlMagic);
        store_be64(hello.token, token_);
        store_be32(hello.index, i);
        std::memcpy(words, kDataMagic, kMagicBytes);
        std::memcpy(words + kMagicBytes, &hello, sizeof hello);
        if (!plain.good() || send(plain.get(), words, sizeof words, MSG_NOSIGNAL) != sizeof words) {
            fail_errno("a plain connection to {}", peer_);
        }
        tcp_->adopt(std::move(plain), i);
        const int carried = connect_one(10);
        if (carried < 0) fail_errno("a connection to {}", peer_);
        ddp_->connect(carried, token_, i);
    }
    expect(Kind::opened);
}

double Client::sample(const Row& row, bool plain, std::uint64_t count, double* took) {
    std::vector<double> times;
    Sample s;
    s.test = row.measure == Measure::latency ? Test::latency : Test::stream;
    s.op = row.op;
    s.size = static_cast<std::uint32_t>(row.size);
    s.depth = static_cast<std::uint32_t>(options_.depth);
    s.count = count;
    s.client = true;
    s.polling = options_.polling;
    s.both_ways = options_.both_ways && s.test == Test::stream;
    if (s.test == Test::latency) {
        times.reserve(count);
        s.times = &times;
    }
    Control wish;
    wish.kind = Kind::sample;
    wish.token = token_;
    wish.op = s.op;
    wish.test = s.test;
    wish.size = s.size;
    wish.depth = s.depth;
    wish.count = count;
    wish.flags =
        (s.polling ? kPolling : 0) | (s.both_ways ? kBothWays : 0) | (plain ? kPlainTcp : 0);
    if (!plain) ddp_->prepare(s);
    send_control(control_.get(), wish);
    expect(Kind::ready);
    const double whole = plain ? tcp_->run(s) : ddp_->run(s);
    expect(Kind::done);
    if (took != nullptr) *took = whole;
    return s.test == Test::latency ? median(std::move(times)) : whole;
}

/// How many messages fill the time of a sample.
std::uint64_t Client::find_count(const Row& row, bool plain) {
    if (options_.count != 0) return options_.count;
    const double wanted = options_.seconds * 1e9;
    std::uint64_t count = kFirstCount;
    for (;;) {
        double took = 0;
        (void)sample(row, plain, count, &took);
        if (took >= wanted / 8 || count >= Limits::count / 16) {
            const double fits = static_cast<double>(count) * wanted / std::max(took, 1.0);
            return static_cast<std::uint64_t>(
                std::clamp(fits, 4.0, static_cast<double>(Limits::count)));
        }
        count *= took < wanted / 64 ? 8 : 2;
    }
}

double Client::figure(const Row& row, double nanoseconds, std::uint64_t count) const {
    const double ways = options_.both_ways ? 2 : 1;
    const double messages =
        static_cast<double>(count) * static_cast<double>(options_.connections) * ways;
    switch (row.measure) {
        case Measure::latency:
            // One way, as ib_send_lat has it; a Read is a round trip by nature.
            return row.op == Op::read ? nanoseconds : nanoseconds / 2;
        case Measure::bandwidth:
            return messages * static_cast<double>(row.size) * 1e9 / nanoseconds;
        case Measure::rate:
            return messages * 1e9 / nanoseconds;
    }
    return 0;
}

void Client::show_progress(const Row& row, const std::string& what) {
    if (!progress_) return;
    fmt::print(stderr, "\r\x1b[K[{}/{}] {} {} {}: {}", row_number_, row_count_,
               measure_name(row.measure), op_name(row.op), bytes_text(row.size), what);
    std::fflush(stderr);
}

void Client::run_row(Row& row) {
    ++row_number_;
    show_progress(row, "how many fit");
    std::uint64_t counts[2] = {find_count(row, false), 0};
    if (!options_.no_tcp) counts[1] = find_count(row, true);
    for (std::uint64_t round = 0; round < options_.rounds; ++round) {
        show_progress(row, fmt::format("round {} of {}", round + 1, options_.rounds));
        // In turn, and each first in turn.
        for (int turn = 0; turn < 2; ++turn) {
            const bool plain = (turn == 1) != (round % 2 == 1);
            if (plain && options_.no_tcp) continue;
            const std::uint64_t count = counts[plain ? 1 : 0];
            const double value = figure(row, sample(row, plain, count), count);
            (plain ? row.tcp : row.ddp).push_back(value);
        }
        if (!options_.no_tcp) row.ratios.push_back(row.ddp.back() / row.tcp.back());
    }
}

Report Client::run() {
    open();
    Report report;
    report.options = options_;
    report.peer = peer_;
    report.crc = ddp_->crc();
    report.rows = plan();
    row_count_ = report.rows.size();
    for (Row& row : report.rows) run_row(row);
    if (progress_) std::fputs("\r\x1b[K", stderr);
    Control bye;
    bye.kind = Kind::done;
    bye.token = token_;
    send_control(control_.get(), bye);
    return report;
}

}  // namespace

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

int measure(const ClientOptions& options) {
    Report report;
    {
        Client client(options);
        report = client.run();
    }
    if (options.json) {
        print_report_json(report);
    } else {
        print_table(report);
    }
    if (!options.svg.empty()) write_svg(report, options.svg);
    return kOk;
}

}  // namespace xsock::tools::perf
