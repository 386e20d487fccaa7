// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The mark on the SYN of a client that is going to send an MPA Request: DSCP 11 (001011, of pool 2,
// for experimental and local use: RFC 2474 §6, RFC 8436). A server that would speak first sees it
// when it accepts, and waits for the Request. A network may clear it: then the connection looks
// like any other.
#pragma once

#include <sys/socket.h>

#include "base/bytes.hpp"

namespace xsock::sockets {

/// The value of IP_TOS or IPV6_TCLASS that is the mark; the two low bits are ECN's.
constexpr int kSynMark = 11 << 2;

/// The client's side, around TCP's connect(). Not locked: one thread at a time.
class SynMark {
  public:
    /// The SYN of the connect() to come is marked. Where that cannot be done it is not.
    void set(int fd, const sockaddr* address, socklen_t length) noexcept;
    /// TCP is connected, or will not be: the socket has what the program set.
    void restore(int fd) noexcept;
    /// The option stands for the mark now; the program's value is here.
    [[nodiscard]] bool covers(int level, int name) const noexcept {
        return is_set_ && level == level_ && name == name_;
    }
    [[nodiscard]] int program_value() const noexcept { return value_; }
    void set_program_value(int value) noexcept { value_ = value; }

  private:
    bool is_set_ = false;
    int level_ = 0, name_ = 0;
    int value_ = 0;
    int priority_ = 0;  // SO_PRIORITY, which IP_TOS changes
};

/// The server's side. The listening socket keeps the SYNs of connections to come; also one for
/// which another process has asked this. False: it cannot, or the program has it keep them for
/// itself.
bool save_syns(int listening) noexcept;
/// Of an accepted socket of such a listener; asked once, for the kernel drops it then.
[[nodiscard]] bool had_marked_syn(int accepted) noexcept;
/// What a listening socket keeps of a SYN without data, from the IP header on; empty: none was
/// found.
[[nodiscard]] ConstBytes without_link_header(ConstBytes headers) noexcept;
/// IP header and TCP header of a SYN.
[[nodiscard]] bool is_marked_syn(ConstBytes headers) noexcept;

}  // namespace xsock::sockets
