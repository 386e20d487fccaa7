// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One-sided put and get. The server registers memory and hands out its key in the private data of
// the MPA Reply; the client Writes into that memory, Reads it back and compares. The server's
// program takes no part until a Send tells it that all is done.
#include <xsock/xsock.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kTimeoutMs = 10'000;
using ByteVector = std::vector<unsigned char>;

/// Throws errno in words if `good` (a pointer or a bool) is not; otherwise answers it.
template <class T>
T check(T good, const char* what) {
    if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    return good;
}

/// Waits for the next completion, which must be a good one.
void wait(xsock_cq* cq, int timeout_ms) {
    xsock_wc wc;
    const int n = xsock_cq_wait(cq, &wc, 1, 1, timeout_ms);
    if (n == 0) errno = ETIMEDOUT;
    check(n == 1, "wait");
    if (wc.status != XSOCK_WC_SUCCESS) throw std::runtime_error(xsock_wc_str(wc.status));
}

unsigned long long sum(const ByteVector& memory) {
    return std::accumulate(memory.begin(), memory.end(), 0ull);
}

void serve(const char* port) {
    ByteVector memory(16u << 20);
    constexpr unsigned kAccess = XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE;
    xsock_mr* mr = xsock_mr_register(nullptr, memory.data(), memory.size(), kAccess, nullptr);
    xsock_key key;
    check(mr && xsock_mr_key(mr, 0, memory.size(), &key) == 0, "register");
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = check(xsock_cq_create(nullptr), "completion queue");
    attr.private_data = &key;
    attr.private_data_length = sizeof(key);
    xsock_listener* listener = check(xsock_listen(nullptr, port, 1, &attr), "listen");
    std::printf("listening on port %d\n", xsock_listener_port(listener));
    std::fflush(stdout);
    xsock_ep* ep = check(xsock_accept(listener, XSOCK_FOREVER), "accept");
    check(xsock_recv(ep, 0, nullptr, 0) == 0, "receive");
    wait(attr.send_cq, XSOCK_FOREVER);  // a Send is delivered after the Writes before it
    std::printf("the client is done; bytes in memory add up to %llu\n", sum(memory));
    xsock_ep_close(ep);
    xsock_listener_close(listener);
    xsock_mr_deregister(mr);  // before `memory` goes
}

void put_get(const char* host, const char* port) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = check(xsock_cq_create(nullptr), "completion queue");
    xsock_ep* ep = check(xsock_connect(host, port, &attr, kTimeoutMs), "connect");
    XSOCK_INIT(xsock_ep_info, info);
    xsock_key key;
    check(xsock_ep_query(ep, &info) == 0, "query");
    if (info.private_data_length != sizeof(key)) throw std::runtime_error("the server sent no key");
    std::memcpy(&key, info.private_data, sizeof(key));
    xsock_remote remote;
    xsock_key_read(&key, &remote);

    ByteVector put(remote.length), got(remote.length);
    for (std::size_t i = 0; i < put.size(); ++i) put[i] = static_cast<unsigned char>(i ^ i >> 8);
    const auto length = static_cast<std::uint32_t>(put.size());
    check(xsock_write(ep, 1, put.data(), length, &remote, 0, XSOCK_UNSIGNALED) == 0, "write");
    check(xsock_read(ep, 2, got.data(), length, &remote, 0, 0) == 0, "read");
    wait(attr.send_cq, kTimeoutMs);  // the server answers a Read only after the Writes before it
    if (put != got) throw std::runtime_error("read back something else than was written");
    check(xsock_send(ep, 3, nullptr, 0, 0) == 0, "send");
    wait(attr.send_cq, kTimeoutMs);
    std::printf("put and got %u bytes; they add up to %llu\n", length, sum(put));
    xsock_ep_close(ep);
}

}  // namespace

int main(int argc, char** argv) try {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "server" && argc == 3) return serve(argv[2]), 0;
    if (mode == "client" && argc == 4) return put_get(argv[2], argv[3]), 0;
    std::fputs("usage: putget server PORT (0: any free port)\n       putget client HOST PORT\n",
               mode == "--help" ? stdout : stderr);
    return mode == "--help" ? 0 : 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "putget: %s\n", error.what());
    return 1;
}
