// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// setsockopt() and getsockopt() of a socket in DDPMODE.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "libxsock/endpoint.hpp"
#include "libxsock/objects.hpp"
#include "libxsock/socket/socket.hpp"
#include "transport/log.hpp"
#include "transport/tcp.hpp"

namespace xsock::sockets {
namespace {

/// An int that the program gave; EINVAL when it is shorter than one.
bool read_int(const void* value, socklen_t length, int& out) noexcept {
    if (value == nullptr || length < sizeof out) return false;
    std::memcpy(&out, value, sizeof out);
    return true;
}

/// Of an option that could not be read, as the kernel.
int unread(const void* value, socklen_t length) noexcept {
    return no(value == nullptr && length >= sizeof(int) ? EFAULT : EINVAL);
}

int give_int(int result, void* value, socklen_t* length) noexcept {
    if (value == nullptr || length == nullptr) return no(EFAULT);
    const socklen_t n = std::min<socklen_t>(*length, sizeof result);
    std::memcpy(value, &result, n);
    *length = n;
    return 0;
}

}  // namespace

// O_NONBLOCK, which the engine set to accept in poll cycles, is as the program has it again. (Not
// where the flag is that of a parent or child as well, which still accepts in poll cycles.)
void Socket::leave_blocking(int fd) const noexcept {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags >= 0 && !nonblocking_.load()) ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

int Socket::set_mode(int fd, int value) {
    if (value != DDPMODE_OFF && value != DDPMODE_MESSAGE && value != DDPMODE_STREAM) {
        return no(EINVAL);
    }
    const Phase now = phase();
    if (value == DDPMODE_OFF) {
        switch (now) {
            case Phase::plain:
                return XSOCK_PLAIN;
            case Phase::listening:
                listener_.end();  // an accept() elsewhere shall not set the flag again
                if (close_listener()) leave_blocking(fd);
                [[fallthrough]];
            case Phase::fresh:
                break;
            case Phase::undecided:
                if (ensure_progress() == nullptr) return -1;
                progress()->locked([this](PollCycle&) {
                    if (phase() == Phase::undecided) fall_back_to_tcp("off");
                });
                return phase() == Phase::plain ? XSOCK_PLAIN : no(EISCONN);
            case Phase::connecting:
            case Phase::starting:
            case Phase::open:
            case Phase::ended:
                return no(EISCONN);
        }
        mode_on_.store(false);
        listener_entry_.withdraw();
        code_.store("off");
        phase_.store(Phase::plain, std::memory_order_release);
        mode_changed();
        wake_callers();  // accept() checks again
        return XSOCK_PLAIN;
    }
    if (now != Phase::fresh) return now == Phase::plain ? no(EISCONN) : 0;
    // A byte stream's own start-up takes the private data.
    if (value == DDPMODE_STREAM && !options_.private_data.empty()) return no(EINVAL);
    // The program would wait for notifications that never come.
    int zero_copy = 0;
    socklen_t zero_copy_size = sizeof zero_copy;
    if (getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &zero_copy, &zero_copy_size) == 0 &&
        zero_copy != 0) {
        return no(EOPNOTSUPP);
    }
    // Mostly it is neither, which one question tells.
    tcp_info info{};
    socklen_t size = sizeof info;
    const bool told = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    const bool unconnected =
        told && (info.tcpi_state == TCP_CLOSE || info.tcpi_state == TCP_SYN_SENT);
    const bool listens = !unconnected && tcp::check_listening(fd);
    const int flags = ::fcntl(fd, F_GETFL);
    if (value == DDPMODE_STREAM && !listens && flags >= 0 && (flags & O_ASYNC) != 0) {
        log(LogLevel::info, "fallback-async", "a socket with O_ASYNC: plain TCP");
        code_.store("fallback-async");
        phase_.store(Phase::plain, std::memory_order_release);
        return no(EOPNOTSUPP);
    }
    if (listens) {
        options_.mode = value;
        mode_on_.store(true);
        begin_listening(fd);
        return 0;
    }
    if (!unconnected && hint_ == XSOCK_HINT_HANDED_ON && tcp::check_connected(fd)) {
        options_.mode = value;
        mode_on_.store(true);
        phase_.store(Phase::undecided, std::memory_order_release);
        mode_changed();
        return 0;
    }
    if (!unconnected && tcp::check_connected(fd)) {
        options_.mode = value;
        mode_on_.store(true);
        const int result = switch_connected(fd);
        const int error = errno;
        if (result != 0 && phase() == Phase::fresh) {
            mode_on_.store(false);
            options_.mode = DDPMODE_OFF;
        }
        errno = error;
        return result;
    }
    if (told && info.tcpi_state == TCP_SYN_SENT) {
        return no(EALREADY);  // connect() first comes to an end
    }
    options_.mode = value;
    mode_on_.store(true);
    return 0;
}

int Socket::set_option(int fd, int level, int name, const void* value, socklen_t length) {
    const Phase now = phase();
    const bool started = is_begun(now);
    if (level == SOL_XSOCK) {
        if (foreign()) return inherited(fd);
        if (name == DDPSTATUS) return no(ENOPROTOOPT);
        if (name == DDPPRIVATE) {
            // A listener that accepts has a copy, and reads ours for each connection.
            if (started || listener_.is_open()) return no(EISCONN);
            if (options_.mode == DDPMODE_STREAM) return no(EINVAL);
            const socklen_t most = options_.revision == 1 ? 512 : 508;
            if (length > most || (value == nullptr && length != 0)) return no(EINVAL);
            const auto* from = static_cast<const std::byte*>(value);
            options_.private_data.assign(from, from + length);
            return 0;
        }
        int number = 0;
        if (!read_int(value, length, number)) return unread(value, length);
        if (name == DDPMODE) return set_mode(fd, number);
        if (started || listener_.is_open()) return no(EISCONN);
        const bool was_kernel_ready = kernel_ready();
        if (auto r = options_.set(name, number); !r) return no(r.error().code);
        if (kernel_ready() != was_kernel_ready) mode_changed();
        return 0;
    }
    if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
        // The kernel checks and keeps them; what it made of them holds here too.
        if (setsockopt(fd, level, name, value, length) != 0) return -1;
        // One below 0, which the kernel reads as 0, lets no call wait.
        timeval given{};
        std::memcpy(&given, value, sizeof given);
        const Time limit = given.tv_sec < 0 ? 1 : timeout_of(fd, name);
        (name == SO_RCVTIMEO ? receive_timeout_ : send_timeout_).store(limit);
        return 0;
    }
    // As a kernel without it: nothing would ever come to the error queue.
    if (level == SOL_SOCKET && name == SO_ZEROCOPY && on()) return no(ENOPROTOOPT);
    if (!started) return XSOCK_PASS;
    if (level == SOL_SOCKET && name == SO_LINGER) {
        linger how{};
        if (value == nullptr || length < sizeof how) return no(EINVAL);
        std::memcpy(&how, value, sizeof how);
        linger_s_.store(how.l_onoff != 0 ? std::clamp(how.l_linger, 0, 65535) : -1);
        return 0;
    }
    if ((level == SOL_SOCKET && (name == SO_RCVLOWAT || name == SO_OOBINLINE)) ||
        (level == IPPROTO_TCP && (name == TCP_NODELAY || name == TCP_CORK))) {
        // A stream takes it over when TCP has connected.
        if (now == Phase::connecting && options_.mode == DDPMODE_STREAM) return XSOCK_PASS;
        // The kernel's socket carries FPDUs, which such a setting would delay or tear.
        int setting = 0;
        if (!read_int(value, length, setting)) return unread(value, length);
        if (foreign()) return inherited(fd);
        channel_->set_option(level, name, setting);
        return 0;
    }
    if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF) && carries_bytes() &&
        now != Phase::connecting && !foreign()) {
        // What the kernel makes of it holds for the stream, too.
        int bytes = 0;
        socklen_t size = sizeof bytes;
        if (setsockopt(fd, level, name, value, length) != 0) return -1;
        if (getsockopt(fd, level, name, &bytes, &size) == 0 && bytes > 0) {
            channel_->set_option(level, name, bytes);
        }
        return 0;
    }
    if (level == IPPROTO_TCP && name == TCP_ULP) return no(ENOPROTOOPT);  // as above
    if (level == IPPROTO_TCP && name == TCP_REPAIR) return no(EOPNOTSUPP);
    if (now == Phase::connecting && !foreign())
        return set_marked_option(level, name, value, length);
    return XSOCK_PASS;
}

// IP_TOS or IPV6_TCLASS of a SYN that is marked: the program's value comes back behind it.
int Socket::set_marked_option(int level, int name, const void* value, socklen_t length) {
    int answer = XSOCK_PASS;
    progress()->locked([&](PollCycle&) {
        int number = 0;
        if (!syn_mark_.covers(level, name) || !read_int(value, length, number)) return;
        if (number < 0 || number > 255) return;
        syn_mark_.set_program_value(number);
        answer = 0;
    });
    return answer;
}

int Socket::get_marked_option(int level, int name, void* value, socklen_t* length) {
    std::optional<int> number;
    progress()->locked([&](PollCycle&) {
        if (syn_mark_.covers(level, name)) number = syn_mark_.program_value();
    });
    return number ? give_int(*number, value, length) : XSOCK_PASS;
}

int Socket::get_option(int fd, int level, int name, void* value, socklen_t* length) {
    const Phase now = phase();
    const bool started = is_begun(now);
    if (level == SOL_XSOCK) {
        if (value == nullptr || length == nullptr) return no(EFAULT);
        if (name == DDPMODE) return give_int(on() ? options_.mode : DDPMODE_OFF, value, length);
        if (name == DDPSTATUS) return fill_status(value, length);
        if (name == DDPPRIVATE) {
            std::vector<std::byte> data;
            if (!started) {
                data = options_.private_data;
            } else if (foreign()) {
                return inherited(fd);
            } else if (now != Phase::connecting && connection_ != nullptr) {
                progress()->locked([&](PollCycle&) { data = connection_->info().private_data; });
            }
            const std::size_t n = std::min<std::size_t>(data.size(), *length);
            std::copy_n(data.begin(), n, static_cast<std::byte*>(value));
            *length = static_cast<socklen_t>(n);
            return 0;
        }
        auto number = options_.get(name);
        return number ? give_int(*number, value, length) : no(number.error().code);
    }
    if (!started) return XSOCK_PASS;
    if (level == SOL_SOCKET && name == SO_ERROR) {
        if (foreign()) return inherited(fd);
        if (!is_known(now)) progress()->poll();
        return give_int(is_usable() ? channel_->take_error() : 0, value, length);
    }
    if (int answer = 0;
        now != Phase::connecting && !foreign() && channel_->get_option(level, name, answer)) {
        return give_int(answer, value, length);
    }
    if (now == Phase::connecting && !foreign()) {
        const int answer = get_marked_option(level, name, value, length);
        if (answer != XSOCK_PASS) return answer;
    }
    if (level == SOL_SOCKET && name == SO_LINGER) {
        if (value == nullptr || length == nullptr) return no(EFAULT);
        const int seconds = linger_s_.load();
        const linger how{seconds >= 0, std::max(seconds, 0)};
        const socklen_t n = std::min<socklen_t>(*length, sizeof how);
        std::memcpy(value, &how, n);
        *length = n;
        return 0;
    }
    // As a kernel without it: the bytes are FPDUs.
    if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE) return no(ENOPROTOOPT);
    return XSOCK_PASS;
}

namespace {

std::uint32_t status_state(Socket::Phase phase, bool foreign, QpState state) {
    if (foreign) return XSOCK_STATUS_FOREIGN;
    switch (phase) {
        case Socket::Phase::fresh:
            return XSOCK_STATUS_FRESH;
        case Socket::Phase::listening:
            return XSOCK_STATUS_LISTENING;
        case Socket::Phase::connecting:
            return XSOCK_STATUS_CONNECTING;
        case Socket::Phase::undecided:
            return XSOCK_STATUS_UNDECIDED;
        case Socket::Phase::starting:
            return XSOCK_STATUS_STARTING;
        case Socket::Phase::open:
            return state == QpState::peer_closed ? XSOCK_STATUS_PEER_CLOSED
                   : state == QpState::closing   ? XSOCK_STATUS_CLOSING
                                                 : XSOCK_STATUS_OPEN;
        case Socket::Phase::ended:
            return XSOCK_STATUS_ENDED;
        case Socket::Phase::plain:
            return XSOCK_STATUS_PLAIN;
    }
    return XSOCK_STATUS_FRESH;
}

}  // namespace

int Socket::fill_status(void* value, socklen_t* length) {
    xsock_status status{};
    std::size_t size = 0;
    if (*length < sizeof size) return no(EINVAL);
    std::memcpy(&size, value, sizeof size);
    if (size < sizeof size || size > *length) return no(EINVAL);
    status.size = size;
    status.mode = static_cast<std::uint32_t>(on() ? options_.mode : DDPMODE_OFF);
    const bool others = foreign();
    QpState state = QpState::fresh;
    if (!others && (phase() == Phase::connecting || phase() == Phase::starting)) {
        progress()->poll();
    }
    const Phase now = phase();
    if (is_begun(now)) channel_->describe(status);
    if (!others && is_begun(now) && now != Phase::connecting && connection_ != nullptr) {
        QpInfo info;
        progress()->locked([&](PollCycle&) { info = connection_->info(); });
        state = info.state;
        status.enhanced = info.negotiated.enhanced;
        api::fill_info(status, info);
        status.peer = api::peer_of(info.peer);
        status.waiting.tx = connection_->sends_outstanding();
    }
    status.state = status_state(phase(), others, state);
    status.message_limit = static_cast<std::uint32_t>(options_.buffer_size);
    if (counters_ != nullptr) {
        status.accepted = counters_->accepted.load();
        status.started = counters_->started.load();
        status.fallbacks = counters_->fallbacks.load();
        status.refused = counters_->refused.load();
    }
    std::strncpy(status.code, mode_text(), sizeof status.code - 1);
    std::memcpy(value, &status, std::min(size, sizeof status));
    *length = static_cast<socklen_t>(std::min(size, sizeof status));
    return 0;
}

}  // namespace xsock::sockets
