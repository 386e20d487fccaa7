// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/qp_numbers.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verbs/addresses.hpp"

namespace xsock::verbs {
namespace {

int make_socket(sockaddr_storage& any) noexcept {
    any = {};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int off = 0;
    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) {
        any.ss_family = AF_INET6;
        return fd;
    }
    if (fd >= 0) close(fd);
    any.ss_family = AF_INET;
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

}  // namespace

QpIndices::QpIndices(bool last_usable) : count_(last_usable ? kIndices : kIndices - 1) {
    for (std::size_t i = 0; i < kIndices; ++i) resting_[i] = static_cast<std::uint8_t>(i);
    for (std::size_t i = count_; i > 1; --i) {
        std::swap(resting_[i - 1], resting_[random_u32() % i]);
    }
}

std::optional<std::uint8_t> QpIndices::take(std::uint32_t random) noexcept {
    if (count_ == 0) return std::nullopt;
    const std::size_t drawn = random % std::min(count_, kDrawn);
    const std::uint8_t index = resting_[drawn];
    std::copy(resting_.begin() + static_cast<std::ptrdiff_t>(drawn) + 1,
              resting_.begin() + static_cast<std::ptrdiff_t>(count_),
              resting_.begin() + static_cast<std::ptrdiff_t>(drawn));
    --count_;
    return index;
}

void QpIndices::give(std::uint8_t index) noexcept {
    if (count_ < kIndices) resting_[count_++] = index;
}

QpNumbers::~QpNumbers() { close_all(); }

void QpNumbers::close_all() noexcept {
    for (const Port& port : ports_) close(port.fd);
    ports_.clear();
}

Result<QpNumbers::Port> QpNumbers::open_port() const {
    const unsigned choices = range_.high - range_.low + 1u;
    const unsigned first = random_u32() % choices;
    int error = EADDRINUSE;
    for (unsigned i = 0; i < choices; ++i) {
        sockaddr_storage any;
        const int fd = make_socket(any);
        if (fd < 0) return Error{errno, "no socket for a port of QP numbers"};
        auto* const address = reinterpret_cast<sockaddr*>(&any);
        set_port(address, static_cast<std::uint16_t>(range_.low + (first + i) % choices));
        // Without SO_REUSEADDR: two processes could have one port, until both listen.
        socklen_t size = sizeof any;
        if (::bind(fd, address, length_of(address)) == 0 && getsockname(fd, address, &size) == 0) {
            const std::uint16_t port = port_of(address);
            return Port{fd, port, QpIndices(port != 65535)};
        }
        error = errno;
        close(fd);
        if (error != EADDRINUSE && error != EACCES) break;
    }
    return Error{error, "no port for QP numbers"};
}

Result<std::uint32_t> QpNumbers::take(const std::function<bool(std::uint32_t)>& is_taken) {
    if (!uses_ports_) {
        do {
            counted_ = (counted_ + 1) & 0xffffff;  // as wide as InfiniBand's
        } while (counted_ < 2 || (is_taken && is_taken(counted_)));
        return counted_;
    }
    auto found = std::find_if(ports_.begin(), ports_.end(),
                              [](const Port& port) { return !port.indices.empty(); });
    if (found == ports_.end()) {
        ports_.reserve(ports_.size() + 1);
        auto opened = open_port();
        if (!opened) return opened.error();
        ports_.push_back(*opened);
        found = ports_.end() - 1;
    }
    return std::uint32_t{found->port} << 8 | *found->indices.take(random_u32());
}

void QpNumbers::give(std::uint32_t qp_num) noexcept {
    for (Port& port : ports_) {  // none, where numbers are counted
        if (port.port == port_in(qp_num)) port.indices.give(static_cast<std::uint8_t>(qp_num));
    }
}

bool QpNumbers::has_port(std::uint16_t port) const noexcept {
    return std::any_of(ports_.begin(), ports_.end(), [&](const Port& p) { return p.port == port; });
}

}  // namespace xsock::verbs
