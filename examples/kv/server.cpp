// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// kv: the server. Fills the table, listens, and then its application sleeps until SIGTERM or
// SIGINT; the library's threads answer the clients' Reads. Once a second it wakes to close the
// endpoints of clients that have left and, if asked to, every so often to change a value.
#include <algorithm>
#include <csignal>
#include <vector>

#include "table.hpp"

/// Writes the value of "key `number`" anew, as any ordinary program would: clients may be reading.
static void put(std::vector<Slot>& table, std::uint64_t number) {
    Slot fresh = {};
    name_key(fresh.key, number);
    std::uint64_t at = home(fresh.key, table.size());
    while (table[at].version != 0 && std::memcmp(table[at].key, fresh.key, sizeof(fresh.key)) != 0)
        at = (at + 1) & (table.size() - 1);
    fresh.version = table[at].version + 1;
    std::snprintf(fresh.value, sizeof(fresh.value), "value of %s", fresh.key);
    fresh.checksum = checksum(fresh);
    table[at] = fresh;
}

static bool has_left(const xsock_ep* ep) {
    XSOCK_INIT(xsock_ep_info, info);
    return xsock_ep_query(ep, &info) != 0 || info.state >= XSOCK_EP_PEER_CLOSED;
}

void serve(const char* port, std::uint64_t keys, unsigned update_ms) {
    std::uint64_t slots = 16;
    while (slots < 2 * keys) slots *= 2;
    std::vector<Slot> table(slots);
    for (std::uint64_t i = 0; i < keys; ++i) put(table, i);

    sigset_t stop;  // blocked before the first call, so that the library's threads never take them
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, nullptr);

    const std::size_t bytes = slots * sizeof(Slot);
    xsock_mr* mr = xsock_mr_register(nullptr, table.data(), bytes, XSOCK_REMOTE_READ, nullptr);
    Geometry geometry = {.magic = kMagic, .slots = slots, .keys = keys, .table = {}};
    check(mr && xsock_mr_key(mr, 0, bytes, &geometry.table) == 0, "register");
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = check(xsock_cq_create(nullptr), "completion queue");
    attr.private_data = &geometry;
    attr.private_data_length = sizeof(geometry);
    xsock_listener* listener = check(xsock_listen(nullptr, port, 128, &attr), "listen");
    std::printf("listening on port %d\n%llu keys in %zu KiB\n", xsock_listener_port(listener),
                static_cast<unsigned long long>(keys), bytes >> 10);
    std::fflush(stdout);

    const double thread = seconds(CLOCK_THREAD_CPUTIME_ID), begin = seconds(CLOCK_MONOTONIC);
    const double process = seconds(CLOCK_PROCESS_CPUTIME_ID);
    const unsigned nap_ms = update_ms != 0 ? std::min(update_ms, 1000u) : 1000;
    const timespec nap = {nap_ms / 1000, static_cast<long>(nap_ms % 1000) * 1'000'000};
    std::vector<xsock_ep*> clients;
    std::size_t came = 0;
    for (std::uint64_t tick = 0; sigtimedwait(&stop, nullptr, &nap) < 0; ++tick) {
        if (update_ms != 0) put(table, tick % keys);
        for (; xsock_ep* ep = xsock_accept(listener, 0); ++came) clients.push_back(ep);
        const auto left = std::partition(clients.begin(), clients.end(),
                                         [](xsock_ep* ep) { return !has_left(ep); });
        std::for_each(left, clients.end(), xsock_ep_close);
        clients.erase(left, clients.end());
    }
    std::printf("%zu clients in %.1f s; CPU time: application thread %.6f s, process %.3f s\n",
                came, seconds(CLOCK_MONOTONIC) - begin, seconds(CLOCK_THREAD_CPUTIME_ID) - thread,
                seconds(CLOCK_PROCESS_CPUTIME_ID) - process);
    std::for_each(clients.begin(), clients.end(), xsock_ep_close);
    xsock_listener_close(listener);
    xsock_mr_deregister(mr);  // before the table goes
}
