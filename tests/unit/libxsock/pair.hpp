// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two endpoints joined over loopback TCP in one process, for tests of the C interface.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "include/xsock/xsock.h"
#include "tests/support/pattern.hpp"
#include "tests/unit/loopback.hpp"

namespace xsock::test {

inline constexpr int kLimitMs = 20'000;  // only reached by a failure

/// A connected TCP pair over 127.0.0.1.
inline void tcp_pair(int& client, int& server) {
    const LoopbackPair pair = loopback_pair();
    client = pair.client;
    server = pair.server;
}

/// For tests of endpoints that share one completion queue, which `attr` names.
class OneQueue : public ::testing::Test {
  protected:
    void SetUp() override {
        cq = xsock_cq_create(nullptr);
        ASSERT_NE(cq, nullptr);
        attr.size = sizeof attr;
        attr.send_cq = cq;
    }
    void TearDown() override { EXPECT_EQ(xsock_cq_destroy(cq), 0) << strerror(errno); }

    xsock_cq* cq = nullptr;
    xsock_ep_attr attr{};
};

struct PairOptions {
    std::function<void(xsock_ep_attr& client, xsock_ep_attr& server)> adjust;
    bool wait = true;
    int send_buffer = 0;  ///< of the client's TCP, bytes; 0: the kernel's choice
};

class Pair {
  public:
    explicit Pair(const PairOptions& options = {}) {
        client_cq = xsock_cq_create(nullptr);
        server_cq = xsock_cq_create(nullptr);
        XSOCK_INIT(xsock_ep_attr, client_attr);
        XSOCK_INIT(xsock_ep_attr, server_attr);
        client_attr.send_cq = client_cq;
        server_attr.send_cq = server_cq;
        client_attr.role = XSOCK_ROLE_INITIATOR;
        server_attr.role = XSOCK_ROLE_RESPONDER;
        if (options.adjust) options.adjust(client_attr, server_attr);
        int client_fd = -1, server_fd = -1;
        tcp_pair(client_fd, server_fd);
        if (const int n = options.send_buffer; n != 0) {
            EXPECT_EQ(setsockopt(client_fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof n), 0);
        }
        server = xsock_ep_create(server_fd, &server_attr);
        client = xsock_ep_create(client_fd, &client_attr);
        EXPECT_NE(server, nullptr) << strerror(errno);
        EXPECT_NE(client, nullptr) << strerror(errno);
        if (options.wait) {
            EXPECT_EQ(xsock_ep_wait(client, kLimitMs), 0) << strerror(errno);
            EXPECT_EQ(xsock_ep_wait(server, kLimitMs), 0) << strerror(errno);
        }
    }
    ~Pair() {
        if (client != nullptr) xsock_ep_abort(client);
        if (server != nullptr) xsock_ep_abort(server);
        EXPECT_EQ(xsock_cq_destroy(client_cq), 0) << strerror(errno);
        EXPECT_EQ(xsock_cq_destroy(server_cq), 0) << strerror(errno);
    }
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;

    xsock_cq* client_cq = nullptr;
    xsock_cq* server_cq = nullptr;
    xsock_ep* client = nullptr;
    xsock_ep* server = nullptr;
};

/// The next completion; fails the test when none comes.
inline xsock_wc next(xsock_cq* cq) {
    xsock_wc wc{};
    wc.status = 0xffff;
    EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs), 1) << "no completion came";
    return wc;
}

/// A registered region, and what its peers need to reach it.
struct Region {
    Region(void* at, std::size_t bytes, unsigned access)
        : mr(xsock_mr_register(nullptr, at, bytes, access, nullptr)) {
        xsock_key key{};
        EXPECT_EQ(xsock_mr_key(mr, 0, bytes, &key), 0);
        xsock_key_read(&key, &remote);
    }
    ~Region() { EXPECT_EQ(xsock_mr_deregister(mr), 0); }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    xsock_mr* const mr;
    xsock_remote remote{};
};

inline xsock_ep_info query(const xsock_ep* ep) {
    XSOCK_INIT(xsock_ep_info, info);
    EXPECT_EQ(xsock_ep_query(ep, &info), 0);
    return info;
}

inline std::vector<unsigned char> pattern(std::size_t n, unsigned seed = 1) {
    return pattern_of<std::vector<unsigned char>>(n, seed);
}

}  // namespace xsock::test
