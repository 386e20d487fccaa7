// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#define _GNU_SOURCE
#include "socket_calls.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>
#include <linux/tcp.h>

#include "ddp_test.h"

#define MAPPED 65536

/* It makes close() wait, or the socket silent, whose peer TCP then keeps for minutes. */
static bool is_left_out(int level, int name)
{
	switch (level) {
	case SOL_SOCKET:
		return name == SO_LINGER || name == SO_MAX_PACING_RATE || name == SO_BINDTOIFINDEX;
	case IPPROTO_TCP:
		return name == TCP_LINGER2 || name == TCP_WINDOW_CLAMP || name == TCP_TX_DELAY;
	case IPPROTO_IP:
		return name == IP_MINTTL;
	default:
		return false;
	}
}

static void set_something(int s)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6 };
	const int level = levels[below(4)], name = (int)below(80);
	const int value = (int)(below(2) ? below(3) : below(UINT32_MAX));

	if (!is_left_out(level, name))
		setsockopt(s, level, name, &value, sizeof(value));
}

static void get_something(int s)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6 };
	uint8_t value[256];
	socklen_t size = below(sizeof(value));

	getsockopt(s, levels[below(4)], (int)below(80), value, &size);
}

/* Pages of the queue as memory. */
static void receive_mapped(int s)
{
	struct tcp_zerocopy_receive request = { .length = MAPPED };
	socklen_t size = sizeof(request);
	void *memory = mmap(NULL, MAPPED, PROT_READ, MAP_SHARED, s, 0);

	if (memory == MAP_FAILED)
		return;
	request.address = (uintptr_t)memory;
	getsockopt(s, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &request, &size);
	munmap(memory, MAPPED);
}

static void splice_something(int s)
{
	int ends[2];

	if (pipe2(ends, O_NONBLOCK))
		return;
	splice(s, NULL, ends[1], NULL, 1 + below(9000), SPLICE_F_NONBLOCK);
	close(ends[0]);
	close(ends[1]);
}

static void ask_something(int s)
{
	static const unsigned long requests[] = { SIOCINQ, SIOCOUTQ, SIOCATMARK, SIOCOUTQNSD };
	struct pollfd poll_fd = { .fd = s, .events = POLLIN | POLLOUT | POLLPRI };
	int answer;

	ioctl(s, requests[below(4)], &answer);
	poll(&poll_fd, 1, 0);
}

void call_something(int s)
{
	struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
	socklen_t size = sizeof(address);

	fcntl(s, F_SETFL, O_NONBLOCK | (below(2) ? O_ASYNC : 0));
	switch (below(11)) {
	case 0:
		close(accept4(s, NULL, NULL, SOCK_NONBLOCK));
		break;
	case 1:
		listen(s, 1);
		break;
	case 2:
		if (below(2))
			getpeername(s, (struct sockaddr *)&address, &size);
		connect(s, (struct sockaddr *)&address, size);
		break;
	case 3:
		getsockname(s, (struct sockaddr *)&address, &size);
		bind(s, (struct sockaddr *)&address, size);
		break;
	case 4:
		shutdown(s, (int)below(3));
		break;
	case 5:
		receive_mapped(s);
		break;
	case 6:
		splice_something(s);
		break;
	case 7:
		ask_something(s);
		break;
	case 8:
		get_something(s);
		break;
	default:
		set_something(s);
		break;
	}
}
