// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions of sock_table.h: from the thin layer's handles to sockets in DDPMODE.
#include "libxsock/api.hpp"
#include "libxsock/objects.hpp"
#include "libxsock/readiness/handle.hpp"

namespace xsock::api {

xsock_sock* sock_open(int, int) noexcept {
    errno = EOPNOTSUPP;
    return nullptr;
}
void sock_ref(xsock_sock*) noexcept {}
void sock_unref(xsock_sock*, int) noexcept {}
int sock_setsockopt(xsock_sock*, int, int, int, const void*, socklen_t) noexcept {
    return XSOCK_PASS;
}
int sock_getsockopt(xsock_sock*, int, int, int, void*, socklen_t*) noexcept { return XSOCK_PASS; }
int sock_connect(xsock_sock*, int, const sockaddr*, socklen_t) noexcept { return XSOCK_PASS; }
int sock_listen(xsock_sock*, int, int) noexcept { return XSOCK_PASS; }
int sock_accept(xsock_sock*, int, sockaddr*, socklen_t*, int, xsock_sock**) noexcept {
    return XSOCK_PASS;
}
int sock_shutdown(xsock_sock*, int, int) noexcept { return XSOCK_PASS; }
ssize_t sock_send(xsock_sock*, int, const void*, size_t, int) noexcept { return XSOCK_PASS; }
ssize_t sock_recv(xsock_sock*, int, void*, size_t, int) noexcept { return XSOCK_PASS; }
ssize_t sock_sendmsg(xsock_sock*, int, const msghdr*, int) noexcept { return XSOCK_PASS; }
ssize_t sock_recvmsg(xsock_sock*, int, msghdr*, int) noexcept { return XSOCK_PASS; }
int sock_sendmmsg(xsock_sock*, int, mmsghdr*, unsigned, int) noexcept { return XSOCK_PASS; }
int sock_recvmmsg(xsock_sock*, int, mmsghdr*, unsigned, int, timespec*) noexcept {
    return XSOCK_PASS;
}
int sock_fcntl(xsock_sock*, int, int, long) noexcept { return XSOCK_PASS; }
int sock_ioctl(xsock_sock*, int, unsigned long, void*) noexcept { return XSOCK_PASS; }
int sock_no_stream(xsock_sock*, int, int) noexcept { return XSOCK_PASS; }
xsock_ep* sock_endpoint(xsock_sock*, int, xsock_cq*, xsock_cq*) noexcept {
    errno = ENOTCONN;
    return nullptr;
}
const char* sock_verdict(xsock_sock*) noexcept { return "off"; }
int sock_owns(int) noexcept { return 0; }
int sock_started(xsock_sock*) noexcept { return 0; }
void sock_drain(int) noexcept {}
void sock_forked() noexcept {}

}  // namespace xsock::api

xsock::readiness::Source* xsock::readiness::source_of(xsock_sock*) noexcept { return nullptr; }
