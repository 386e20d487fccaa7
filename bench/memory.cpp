// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What registration costs, and what an idle connection weighs.
#include <sys/mman.h>

#include <algorithm>

#include "bench/endpoint.hpp"
#include "bench/many_connections.hpp"
#include "bench/resident.hpp"

namespace xsock::bench::memory {
namespace {

constexpr std::uint32_t kFlags = XSOCK_INLINE | XSOCK_UNSIGNALED;
using Message = std::array<std::uint8_t, many_connections::kSize>;

}  // namespace

// Registration needs no peer.
void register_server(Child&, const Run&) {}

// Figure 0: ns to register 1 GiB that was never touched, the median of groups of 32.
void register_client(Child& child, const Run& run) {
    constexpr std::size_t kLength = std::size_t{1} << 30;
    constexpr std::size_t kGroup = 32;
    void* const memory = mmap(nullptr, kLength, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail_errno("mmap");
    std::array<xsock_mr*, kGroup> group{};
    std::vector<double> took_ns;
    const std::int64_t start = now_ns();
    const std::int64_t warm = start + to_ns(warm_up_seconds(run));
    const std::int64_t end = warm + to_ns(run.seconds);
    for (std::int64_t before = now_ns(); before < end; before = now_ns()) {
        for (xsock_mr*& mr : group) {
            mr = xsock_mr_register(nullptr, memory, kLength, XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE,
                                   nullptr);
        }
        const std::int64_t after = now_ns();
        if (before >= warm) took_ns.push_back(static_cast<double>(after - before) / kGroup);
        for (xsock_mr* mr : group) {
            if (mr == nullptr) fail("xsock_mr_register failed");
            must(xsock_mr_deregister(mr), "xsock_mr_deregister");
        }
    }
    if (took_ns.empty()) fail("no registration ended in time");
    std::nth_element(took_ns.begin(), took_ns.begin() + took_ns.size() / 2, took_ns.end());
    child.report({took_ns[took_ns.size() / 2], 0, 0, 0});
}

// Each connection has `depth` echoes, one by one. Figures: 0 KiB for each end, of the heavier
// process; 1 server's; 2 client's. The first connections are not counted: they pay for queues and
// threads that all share.
namespace {
constexpr unsigned kUncounted = 16;
}

void idle_server(Child& child, const Run& run) {
    many_connections::Connections all = many_connections::open_server(child, run);
    std::vector<Message> slots(64);
    const auto post = [&](std::uint64_t slot) {
        const xsock_sge sge{
            .address = slots[slot].data(), .length = many_connections::kSize, .lkey = 0};
        must(xsock_srq_post_recv(all.srq, slot, &sge, 1), "xsock_srq_post_recv");
    };
    for (std::uint64_t slot = 0; slot < slots.size(); slot++) post(slot);
    Completions completions(all.cq);
    const auto serve = [&](unsigned connections) {
        many_connections::accept_some(all, connections);
        child.meet();
        for (unsigned echoed = 0; echoed < connections * run.depth;) {
            for (const xsock_wc& wc : completions.wait()) {
                must(xsock_send(static_cast<xsock_ep*>(wc.context), 0, slots[wc.wr_id].data(),
                                many_connections::kSize, kFlags),
                     "xsock_send");
                post(wc.wr_id);
                echoed++;
            }
        }
        child.meet();
        wait_until_quiet();
    };
    serve(kUncounted);
    const double before = resident_kib();
    serve(run.connections);
    child.tell((resident_kib() - before) / run.connections);
}

void idle_client(Child& child, const Run& run) {
    many_connections::ClientConnections all = many_connections::open_client(child, false);
    // All buffers are the benchmark's, there and touched before the first reading.
    std::vector<Message> slots(run.connections + kUncounted, Message{1});
    all.eps.reserve(run.connections + kUncounted);
    Completions completions(all.cq);
    const Message message{};
    const auto use = [&](unsigned connections) {
        const std::size_t first = all.eps.size();
        many_connections::connect_some(all, run, connections);
        child.meet();
        for (std::size_t i = first; i < all.eps.size(); i++) {
            for (unsigned n = 0; n < run.depth; n++) {
                must(xsock_recv(all.eps[i], i, slots[i].data(), many_connections::kSize),
                     "xsock_recv");
                must(xsock_send(all.eps[i], 0, message.data(), many_connections::kSize, kFlags),
                     "xsock_send");
                completions.wait();
            }
        }
        child.meet();
        wait_until_quiet();
    };
    use(kUncounted);
    const double before = resident_kib();
    use(run.connections);
    const double ours = (resident_kib() - before) / run.connections;
    const auto theirs = child.hear<double>();
    child.report({std::max(ours, theirs), theirs, ours, 0});
}

}  // namespace xsock::bench::memory
