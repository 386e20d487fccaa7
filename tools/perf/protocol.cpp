// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/perf/protocol.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "tools/endpoint.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {

ControlMessage encode(const Control& control) {
    ControlMessage m{};
    std::memcpy(m.magic, kControlMagic, sizeof kControlMagic);
    store_be32(m.version, control.version);
    store_be32(m.kind, static_cast<std::uint32_t>(control.kind));
    store_be64(m.token, control.token);
    store_be32(m.op, static_cast<std::uint32_t>(control.op));
    store_be32(m.test, static_cast<std::uint32_t>(control.test));
    store_be32(m.flags, control.flags);
    store_be64(m.size, control.size);
    store_be64(m.depth, control.depth);
    store_be64(m.connections, control.connections);
    store_be64(m.count, control.count);
    std::memcpy(m.text, control.text.data(), std::min(control.text.size(), sizeof m.text - 1));
    return m;
}

bool decode(const ControlMessage& m, Control& control) {
    if (std::memcmp(m.magic, kControlMagic, sizeof kControlMagic) != 0) return false;
    const std::uint32_t kind = load_be32(m.kind);
    const std::uint32_t op = load_be32(m.op);
    const std::uint32_t test = load_be32(m.test);
    if (kind < static_cast<std::uint32_t>(Kind::hello) ||
        kind > static_cast<std::uint32_t>(Kind::refused) ||
        op > static_cast<std::uint32_t>(Op::read) ||
        test > static_cast<std::uint32_t>(Test::stream)) {
        return false;
    }
    control.kind = static_cast<Kind>(kind);
    control.version = load_be32(m.version);
    control.token = load_be64(m.token);
    control.op = static_cast<Op>(op);
    control.test = static_cast<Test>(test);
    control.flags = load_be32(m.flags);
    control.size = load_be64(m.size);
    control.depth = load_be64(m.depth);
    control.connections = load_be64(m.connections);
    control.count = load_be64(m.count);
    control.text = printable(std::string_view(m.text, strnlen(m.text, sizeof m.text)));
    return control.size <= Limits::size && control.depth <= Limits::depth &&
           control.connections <= Limits::connections && control.count <= Limits::count;
}

void send_control(int fd, const Control& control) {
    const ControlMessage message = encode(control);
    const auto* at = reinterpret_cast<const char*>(&message);
    for (std::size_t sent = 0; sent < sizeof message;) {
        const ssize_t n = send(fd, at + sent, sizeof message - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail_errno("the other end is gone");
        sent += static_cast<std::size_t>(n);
    }
}

Control receive_control(int fd, int limit_ms) {
    ControlMessage message;
    auto* at = reinterpret_cast<char*>(&message);
    const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(limit_ms) * 1'000'000u;
    for (std::size_t have = 0; have < sizeof message;) {
        const std::uint64_t now = now_ns();
        if (interrupted()) fail("interrupted");
        if (now >= deadline) fail("the other end says nothing for {} s", limit_ms / 1000);
        pollfd p{fd, POLLIN, 0};
        const auto left_ms = static_cast<int>((deadline - now) / 1'000'000u + 1);
        if (poll(&p, 1, std::min(left_ms, 200)) <= 0) continue;
        const ssize_t n = recv(fd, at + have, sizeof message - have, MSG_DONTWAIT);
        if (n == 0) fail("the other end closed the session");
        if (n < 0 && errno != EAGAIN && errno != EINTR) fail_errno("the other end is gone");
        if (n > 0) have += static_cast<std::size_t>(n);
    }
    Control control;
    if (!decode(message, control)) fail("the other end is no xsock perf, or asks for too much");
    if (control.kind == Kind::refused) fail("the server refuses: {}", control.text);
    return control;
}

}  // namespace xsock::tools::perf
