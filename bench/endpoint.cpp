// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "bench/endpoint.hpp"

#include "bench/socket.hpp"

namespace xsock::bench {
namespace {

constexpr int kStartupMs = 10'000;

xsock_ep_attr attributes(xsock_cq* cq, Depths depths) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq;
    attr.sq_depth = depths.send;
    attr.rq_depth = depths.receive;
    return attr;
}

xsock_cq* new_cq() {
    XSOCK_INIT(xsock_cq_attr, attr);
    attr.depth = 1024;
    xsock_cq* cq = xsock_cq_create(&attr);
    if (cq == nullptr) fail_errno("xsock_cq_create");
    return cq;
}

}  // namespace

Endpoint server_endpoint(Child& child, const Run& run, Depths depths) {
    Endpoint end{.cq = new_cq()};
    const xsock_ep_attr attr = attributes(end.cq, depths);
    std::uint16_t port = 0;
    xsock_listener* listener = xsock_listener_create(tcp_listen(run, port), &attr);
    if (listener == nullptr) fail_errno("xsock_listener_create");
    child.tell(port);
    end.ep = xsock_accept(listener, kStartupMs);
    if (end.ep == nullptr) fail_errno("xsock_accept");
    must(xsock_listener_close(listener), "xsock_listener_close");
    check_crc(end.ep);
    return end;
}

Endpoint client_endpoint(Child& child, const Run& run, Depths depths) {
    Endpoint end{.cq = new_cq()};
    const xsock_ep_attr attr = attributes(end.cq, depths);
    end.ep = xsock_ep_create(tcp_connect(run, child.hear<std::uint16_t>()), &attr);
    if (end.ep == nullptr) fail_errno("xsock_ep_create");
    must(xsock_ep_wait(end.ep, kStartupMs), "start-up");
    check_crc(end.ep);
    return end;
}

void Completions::fail_completion(const xsock_wc& wc) {
    fail("operation %u: %s", wc.op, xsock_wc_str(wc.status));
}

xsock_mr* share_memory(Child& child, void* address, std::size_t length, unsigned access) {
    xsock_mr* mr = xsock_mr_register(nullptr, address, length, access, nullptr);
    if (mr == nullptr) fail_errno("xsock_mr_register");
    xsock_key key{};
    must(xsock_mr_key(mr, 0, length, &key), "xsock_mr_key");
    child.tell(key);
    return mr;
}

xsock_remote shared_memory(Child& child) {
    const auto key = child.hear<xsock_key>();
    xsock_remote remote{};
    xsock_key_read(&key, &remote);
    return remote;
}

void check_crc(const xsock_ep* ep) {
    XSOCK_INIT(xsock_ep_info, info);
    must(xsock_ep_query(ep, &info), "xsock_ep_query");
    if (info.state != XSOCK_EP_ESTABLISHED) fail("not established: %s", info.error_text);
    if (info.crc == 0) fail("CRCs are off on this connection");
}

}  // namespace xsock::bench
