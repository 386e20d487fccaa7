// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a socket in DDPMODE carries, over its connection: the socket has the life of it (phases,
// options, fork, accept), a channel has the data. MessageChannel carries messages, StreamChannel a
// byte stream.
// Socket::ensure_channel() (start.cpp) chooses the class.
//
// A channel exists from the phases `connecting` and `starting` on, and lives as long as its socket.
// Calls of the program come from any thread; what the poller calls is marked.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/polled_qp.hpp"
#include "include/xsock/xsock.h"
#include "libxsock/socket/call.hpp"

namespace xsock::sockets {

/// Copies of more than so many bytes are made without the lock of a channel's data.
inline constexpr std::size_t kCopiedUnderLock = 4096;

class Channel {
  public:
    virtual ~Channel() = default;

    // -- calls of the program, once the connection is open or has ended; answers of the ABI --

    virtual ssize_t send(const IovSpan& iovs, const CallMode& mode) = 0;
    /// A send that is done without waiting, system calls or points of cancellation: bytes that
    /// others go ahead of. False: nothing has changed, and send() is to be called.
    [[nodiscard]] virtual bool append(const IovSpan& iovs) noexcept = 0;
    /// `out_flags`: MSG_TRUNC, MSG_EOR.
    virtual ssize_t receive(const IovSpan& iovs, const CallMode& mode, int& out_flags) = 0;
    /// FIONREAD, SIOCOUTQ, SIOCATMARK. `fd`: TCP's, if that carries the data; else -1.
    virtual int ioctl(int fd, unsigned long request, void* argument) = 0;
    /// Takes and drops what comes from now on, if `reading`; sends FIN behind what is queued, if
    /// `writing`. From MPA start-up on.
    virtual void shutdown(bool reading, bool writing) = 0;
    /// xsock_fd_endpoint(): null with errno. From MPA start-up on.
    virtual xsock_ep* endpoint(xsock_cq* send_cq, xsock_cq* recv_cq) = 0;
    /// An option of the kernel's byte stream (TCP_NODELAY, TCP_CORK, SO_RCVLOWAT, SO_OOBINLINE,
    /// SO_SNDBUF, SO_RCVBUF) that the program sets once start-up has begun.
    virtual void set_option(int level, int name, int value) = 0;
    /// One that the kernel does not know the answer of. False: it does.
    [[nodiscard]] virtual bool get_option(int level, int name, int& value) const = 0;
    /// Its figures for DDPSTATUS.
    virtual void describe(xsock_status& status) const noexcept = 0;

    /// What is ready while the connection is open; as readiness::Source::events().
    [[nodiscard]] virtual std::uint32_t events() const noexcept = 0;

    // -- the socket, for the connection --

    /// Makes the channel the one that provides receives and is told of completions. `owner` keeps
    /// it alive.
    virtual void join(PolledQpAttr& attr, std::shared_ptr<void> owner) = 0;
    /// The connection made with these attributes. Before any thread can know of it.
    virtual void attach(PolledQp& qp) noexcept = 0;
    /// Private data of our Request. The poller, as are the next two.
    [[nodiscard]] virtual std::vector<std::byte> request() = 0;
    /// The peer's Request, by its private data, and those of our Reply. False: it is refused.
    [[nodiscard]] virtual bool answer(std::span<const std::byte> request,
                                      std::vector<std::byte>& reply) = 0;
    /// Start-up has ended; the private data of the peer. False: they are not an answer to ours.
    [[nodiscard]] virtual bool begin(std::span<const std::byte> private_data) = 0;
    /// The program closes, ahead of PolledQp::release(): what has come and what still comes is
    /// dropped, the endpoint has gone. False: something is still to be sent. Then the channel asks
    /// for PolledQp::End::release when that has gone, or the connection ends, and the poller calls
    /// `released` once.
    [[nodiscard]] virtual bool close(std::function<void()> released) = 0;
    /// Behind a close() that was false: `released` is being called, or was.
    [[nodiscard]] bool has_closed() const noexcept {
        return closed_.load(std::memory_order_acquire);
    }
    /// What a connection that ended with `error`, an errno or 0, means to the program.
    [[nodiscard]] virtual int end_error(int error) noexcept { return error; }

    // -- how it goes --

    /// The poller: the peer has finished.
    virtual void on_peer_closed() noexcept { leave_open(read_, Half::finished); }
    /// The poller: what it ends with, an errno or 0. on_ended() follows.
    void set_error(int error) noexcept { error_.store(error, std::memory_order_release); }
    /// The poller: it has ended, or could not begin.
    virtual void on_ended() noexcept {
        write_.store(Half::finished, std::memory_order_release);
        leave_open(read_, Half::finished);
    }
    [[nodiscard]] bool is_write_shut() const noexcept { return write_.load() == Half::shut; }
    /// SO_ERROR, told once.
    int take_error() noexcept { return error_.exchange(0); }
    [[nodiscard]] bool has_error() const noexcept {
        return error_.load(std::memory_order_acquire) != 0;
    }
    /// The errno of a call that was not reported.
    void keep_error(int error) noexcept {
        int told = 0;
        error_.compare_exchange_strong(told, error);
    }

  protected:
    /// A direction of the connection.
    enum class Half : std::uint8_t {
        open,
        shut,      ///< by shutdown()
        finished,  ///< by the peer, or with the connection
    };
    static void leave_open(std::atomic<Half>& half, Half next) noexcept {
        Half open = Half::open;
        half.compare_exchange_strong(open, next);
    }

    void set_closed() noexcept { closed_.store(true, std::memory_order_release); }

    std::atomic<Half> read_{Half::open}, write_{Half::open};

  private:
    std::atomic<bool> closed_{false};
    std::atomic<int> error_{0};
};

}  // namespace xsock::sockets
