// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data connections of a perf session and what runs over them, the same code at both ends. One
// class carries samples over DDP, the other over plain TCP; client and server run their halves of a
// sample at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/endpoint.hpp"
#include "tools/fd.hpp"
#include "tools/perf/protocol.hpp"

namespace xsock::tools::perf {

/// No byte has moved for this long, or for up to twice as long: the other end is given up.
inline constexpr int kStallMs = 30'000;

/// One sample, as both ends understand it.
struct Sample {
    Test test = Test::latency;
    Op op = Op::send;
    std::uint32_t size = 0;
    std::uint32_t depth = 1;
    std::uint64_t count = 0;
    bool client = false;
    bool polling = false;
    bool both_ways = false;
    std::vector<double>* times = nullptr;  ///< client, latency: where each round trip (ns) goes
};

/// Endpoints over one completion queue. Throws Failure when anything goes wrong.
class DdpConnections {
  public:
    /// `size`: of the largest message, bytes. `stall_ms`: as kStallMs.
    DdpConnections(std::uint32_t size, std::uint32_t depth, bool crc, int stall_ms = kStallMs);
    ~DdpConnections();
    DdpConnections(const DdpConnections&) = delete;
    DdpConnections& operator=(const DdpConnections&) = delete;

    /// Client: begins start-up on a connected socket (taken) and waits for its end.
    void connect(int fd, std::uint64_t token, std::uint32_t index);
    /// Server: the same as responder; checks the token. Answers with the index.
    std::uint32_t accept(int fd, std::uint64_t token);
    [[nodiscard]] std::size_t size() const { return connections_.size(); }
    [[nodiscard]] bool crc() const;

    /// Posts what must lie ready before the other end begins. Both ends, before run().
    void prepare(const Sample& sample);
    /// This end's half. Client: answers with the nanoseconds it took.
    double run(const Sample& sample);

  private:
    struct Connection {
        EpPtr ep;
        xsock_remote remote{};
        std::uint64_t receives_left = 0;  // messages to come that no receive is posted for yet
        std::uint64_t to_send = 0, in_flight = 0, unsignaled = 0;
        std::uint64_t to_receive = 0;            // messages with payload
        bool done_due = false, ack_due = false;  // from the other end
        bool done_owed = false, ack_owed = false;
    };

    EpPtr start(int fd, bool initiator, std::uint64_t token, std::uint32_t index);
    void adopt(EpPtr ep, std::uint32_t index, const xsock_key& key);
    void post_receive(std::size_t i);
    std::uint32_t take(xsock_wc* wc, std::uint32_t max, bool spin);
    [[nodiscard]] std::uint64_t bytes_moved() const;
    xsock_wc take_one(bool spin);
    void await_receive(bool spin, std::uint32_t length);
    void send(Connection& connection, std::uint32_t length, std::uint32_t flags);
    void fill(Connection& connection, const Sample& sample);
    void on_completion(const xsock_wc& wc, const Sample& sample);
    [[nodiscard]] static bool finished(const Connection& connection);
    double run_stream(const Sample& sample);
    double run_latency(const Sample& sample);

    const std::uint32_t max_size_, max_depth_;
    const bool want_crc_;
    const int stall_ms_;
    std::uint64_t moved_ = 0;  // bytes_moved(), when it was last asked whether it stands still
    CqPtr cq_;
    std::vector<char> out_, in_, region_;
    MrPtr mr_;
    std::vector<Connection> connections_;
};

/// Plain TCP connections. Throws Failure when anything goes wrong.
class TcpConnections {
  public:
    explicit TcpConnections(std::uint32_t size);

    /// Takes a connected socket whose hello was exchanged.
    void adopt(Fd fd, std::uint32_t index);
    double run(const Sample& sample);

  private:
    double run_stream(const Sample& sample);
    double run_latency(const Sample& sample);
    void send_all(int fd, std::size_t bytes, bool spin);
    void receive_all(int fd, std::size_t bytes, bool spin);

    std::vector<char> out_, in_;
    std::vector<Fd> fds_;
};

}  // namespace xsock::tools::perf
