// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// kv: the client. Looks keys up by RDMA Read, many at once; the server's program takes no part.
#include <vector>

#include "table.hpp"

namespace {

struct Lookup {
    Slot slot;             // where the Read goes
    char key[16];          // what is looked for
    bool present;          // whether it must be found
    std::uint64_t at;      // the slot that is being read
    std::uint64_t probes;  // slots seen
};

struct Client {
    xsock_ep* ep;
    Geometry geometry;
    xsock_remote table;
    std::uint64_t reads = 0, torn = 0;

    void read(Lookup& lookup, std::uint64_t id) {
        const std::uint64_t offset = lookup.at * sizeof(Slot);
        check(xsock_read(ep, id, &lookup.slot, sizeof(Slot), &table, offset, 0) == 0, "read");
        ++reads;
    }
    /// Begins the search for a pseudo-random key; one in 16 is not there.
    void begin(Lookup& lookup, std::uint64_t id, std::uint64_t count) {
        lookup = {};
        lookup.present = count % 16 != 15;
        const std::uint64_t number = hash(&count, sizeof(count)) % geometry.keys;
        name_key(lookup.key, number + (lookup.present ? 0 : geometry.keys));
        lookup.at = home(lookup.key, geometry.slots);
        read(lookup, id);
    }
    /// A slot has been read. True: the look-up is over; false: another Read is under way.
    bool advance(Lookup& lookup, std::uint64_t id) {
        const Slot& slot = lookup.slot;
        const bool intact = slot.checksum == checksum(slot);
        const bool found = std::memcmp(slot.key, lookup.key, sizeof(slot.key)) == 0;
        const bool over =
            intact && (found || slot.version == 0 || ++lookup.probes == geometry.slots);
        if (!over) {
            torn += intact ? 0 : 1;
            if (intact) lookup.at = (lookup.at + 1) & (geometry.slots - 1);
            return read(lookup, id), false;
        }
        const std::string value = std::string("value of ") + lookup.key;
        if (found == lookup.present &&
            (!found || value.compare(0, 32, slot.value, strnlen(slot.value, 32)) == 0))
            return true;
        throw std::runtime_error(std::string("wrong answer for ") + lookup.key);
    }
};

}  // namespace

void look_up(const char* host, const char* port, std::uint64_t lookups, std::size_t under_way) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = check(xsock_cq_create(nullptr), "completion queue");
    Client client = {.ep = check(xsock_connect(host, port, &attr, 10'000), "connect"),
                     .geometry = {},
                     .table = {}};
    XSOCK_INIT(xsock_ep_info, info);
    check(xsock_ep_query(client.ep, &info) == 0, "query");
    std::memcpy(&client.geometry, info.private_data, sizeof(Geometry));
    const Geometry& geometry = client.geometry;
    xsock_key_read(&geometry.table, &client.table);
    if (info.private_data_length != sizeof(Geometry) || geometry.magic != kMagic ||
        geometry.keys == 0)
        throw std::runtime_error("the server is not a kv server of this kind");

    std::vector<Lookup> table(under_way);
    std::uint64_t begun = 0, done = 0;
    const double begin = seconds(CLOCK_MONOTONIC);
    for (std::size_t id = 0; id < under_way && begun < lookups; ++id)
        client.begin(table[id], id, begun++);
    while (done < lookups) {
        xsock_wc wc[64];
        const int n = xsock_cq_wait(attr.send_cq, wc, 1, 64, 10'000);
        if (n == 0) errno = ETIMEDOUT;
        check(n > 0, "wait");
        for (int i = 0; i < n; ++i) {
            if (wc[i].status != XSOCK_WC_SUCCESS)
                throw std::runtime_error(xsock_wc_str(wc[i].status));
            Lookup& lookup = table[wc[i].wr_id];
            if (!client.advance(lookup, wc[i].wr_id)) continue;
            ++done;
            if (begun < lookups) client.begin(lookup, wc[i].wr_id, begun++);
        }
    }
    const double elapsed = seconds(CLOCK_MONOTONIC) - begin;
    std::printf("%llu lookups, all right, in %.3f s: %.0f lookups/s; %.2f Reads each, %llu torn\n",
                static_cast<unsigned long long>(done), elapsed, static_cast<double>(done) / elapsed,
                static_cast<double>(client.reads) / static_cast<double>(done),
                static_cast<unsigned long long>(client.torn));
    xsock_ep_close(client.ep);
}
