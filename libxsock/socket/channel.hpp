// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a socket in DDPMODE carries, over its connection: the socket has the life of it (phases,
// options, fork, accept), a channel has the data. MessageChannel carries messages.
// Socket::ensure_channel() (start.cpp) chooses the class.
//
// A channel exists from the phases `connecting` and `starting` on, and lives as long as its socket.
// Calls of the program come from any thread; what the poller calls is marked.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "base/polled_qp.hpp"
#include "include/xsock/xsock.h"
#include "libxsock/socket/call.hpp"

namespace xsock::sockets {

class Channel {
  public:
    virtual ~Channel() = default;

    // -- calls of the program, once the connection is open or has ended; answers of the ABI --

    virtual ssize_t send(const IovSpan& iovs, const CallMode& mode) = 0;
    /// `out_flags`: MSG_TRUNC, MSG_EOR.
    virtual ssize_t receive(const IovSpan& iovs, const CallMode& mode, int& out_flags) = 0;
    /// FIONREAD, SIOCOUTQ, SIOCATMARK.
    virtual int ioctl(int fd, unsigned long request, void* argument) = 0;
    /// Takes and drops what comes from now on, if `reading`; sends FIN behind what is queued, if
    /// `writing`. From MPA start-up on.
    virtual void shutdown(bool reading, bool writing) = 0;
    /// xsock_fd_endpoint(): null with errno. From MPA start-up on.
    virtual xsock_ep* endpoint(xsock_cq* send_cq, xsock_cq* recv_cq) = 0;
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
    /// The program closes, ahead of PolledQp::release(): what has come and what still comes is
    /// dropped, the endpoint has gone.
    virtual void close() noexcept = 0;

    // -- how it goes --

    /// The poller: the peer has finished.
    void on_peer_closed() noexcept { leave_open(read_, Half::finished); }
    /// The poller: what it ends with, an errno or 0. on_ended() follows.
    void set_error(int error) noexcept { error_.store(error, std::memory_order_release); }
    /// The poller: it has ended, or could not begin.
    void on_ended() noexcept {
        write_.store(Half::finished, std::memory_order_release);
        on_peer_closed();
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

    std::atomic<Half> read_{Half::open}, write_{Half::open};

  private:
    std::atomic<int> error_{0};
};

}  // namespace xsock::sockets
