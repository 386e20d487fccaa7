// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Plain TCP sockets, the same for both sides of every comparison: cubic, and ports that the kernel
// picks. Failures end the child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/bench.hpp"
#include "bench/pair.hpp"

namespace xsock::bench {

/// Listens on run.server_address; `port` receives the port.
int tcp_listen(const Run& run, std::uint16_t& port);
/// Connects to run.server_address; as a byte stream over iWARP on wish.
int tcp_connect(const Run& run, std::uint16_t port, bool is_stream = false);

/// One plain TCP connection between the two processes, TCP_NODELAY set.
int tcp_server_socket(Child& child, const Run& run);
int tcp_client_socket(Child& child, const Run& run);
void set_nodelay(int fd);
/// The same connection switched to DDPMODE: send() and recv() are messages.
int message_server_socket(Child& child, const Run& run);
int message_client_socket(Child& child, const Run& run);

/// A socket that is not connected yet, or listens: its connections are byte streams over iWARP.
void switch_to_streams(int fd);
/// Fails unless the connection went the way that was asked for: a byte stream over iWARP that is
/// open, or plain TCP. Not while the clock runs.
void check_path(int fd, bool is_stream);

void send_all(int fd, const void* data, std::size_t size);
/// `flags` 0 blocks; MSG_DONTWAIT asks again and again. False at end of file.
bool receive_all(int fd, void* data, std::size_t size, int flags);
/// Sends `data` again and again until the clock, read before every `per_clock`th, is past `end`:
/// the last has 1 in byte 0, the others 0. Waits for a byte that confirms them. @return how many
std::uint64_t send_until(std::int64_t end, int fd, std::span<std::uint8_t> data,
                         std::uint64_t per_clock = 1);

}  // namespace xsock::bench
