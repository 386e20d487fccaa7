// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Requests: sizes, what is refused, and by which error. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp_test.h"

static void hello(int domain)
{
	struct {
		struct ddp_hello known;
		uint64_t later;
	} longer = { .later = 0 };
	struct ddp_hello answer;
	uint32_t abi = 0;

	CHECK(ioctl(domain, DDP_IOC_HELLO, &answer) == 0 && answer.abi == DDP_ABI &&
	      answer.recv_min == DDP_RECV_MIN && answer.features & DDP_FEATURE_CRC &&
	      answer.features & DDP_FEATURE_MARKERS,
	      "HELLO answers");
	CHECK(ioctl(domain, _IOWR(DDP_IOC_MAGIC, 1, abi), &abi) == 0 && abi == DDP_ABI,
	      "a shorter structure is answered in part");
	longer.later = 0;
	CHECK(ioctl(domain, _IOC(_IOC_READ | _IOC_WRITE, DDP_IOC_MAGIC, 1, sizeof(longer)),
		    &longer) == 0 && longer.known.abi == DDP_ABI, "a longer one, if zero");
	longer.later = 1;
	FAILS(ioctl(domain, _IOC(_IOC_READ | _IOC_WRITE, DDP_IOC_MAGIC, 1, sizeof(longer)),
		    &longer), E2BIG, "a longer one that asks for more is refused");
	FAILS(ioctl(domain, _IO(DDP_IOC_MAGIC, 1)), ENOTTY, "without a structure");
	FAILS(ioctl(domain, _IOWR(DDP_IOC_MAGIC, 99, abi), &abi), ENOTTY, "an unknown request");
	FAILS(ioctl(domain, DDP_IOC_HELLO, NULL), EFAULT, "a null pointer");
	FAILS(ioctl(domain, DDP_IOC_STATS, (void *)-4096L), EFAULT, "a kernel pointer");
}

static int add(int domain, struct ddp_region region)
{
	return ioctl(domain, DDP_IOC_REGION, &region);
}

static void regions(int domain)
{
	size_t page = 4096;
	uint8_t *memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ddp_region good = {
		.address = (uintptr_t)memory + 100, .length = 3 * page, .stag = 1,
		.pd = 1, .rights = DDP_RIGHT_WRITE,
	}, bad;
	void *read_only = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int device = open("/dev/zero", O_RDWR);
	int memfd = memfd_create("test", 0);
	void *shared, *gone;

	CHECK(add(domain, good) == 0, "a region that starts and ends inside of pages");
	CHECK(domain_stats(domain).pinned_bytes == 4 * page, "its pages are pinned");
	FAILS(add(domain, good), EEXIST, "the same STag");
#define REFUSED(error, what, ...)                       \
	do {                                            \
		bad = good;                             \
		bad.stag = 2;                           \
		__VA_ARGS__;                            \
		FAILS(add(domain, bad), error, what);   \
	} while (0)
	REFUSED(EINVAL, "STag 0", bad.stag = 0);
	REFUSED(EINVAL, "no length", bad.length = 0);
	REFUSED(EINVAL, "a flag", bad.flags = 2);
	REFUSED(EINVAL, "no right", bad.rights = 0);
	REFUSED(EINVAL, "an unknown right", bad.rights |= 0x80);
	REFUSED(EINVAL, "a sink that may be written", bad.rights |= DDP_RIGHT_READ_SINK);
	REFUSED(E2BIG, "too long", bad.length = 1ull << 40);
	REFUSED(EOVERFLOW, "wraps", bad.address = ULONG_MAX - 10);
	REFUSED(EOVERFLOW, "a kernel address", bad.address = 0xffff888000000000ul);
	REFUSED(EOVERFLOW, "TO wraps", bad.first_to = UINT64_MAX - 1);
	REFUSED(EFAULT, "not mapped", bad.address = page);
	REFUSED(EFAULT, "read-only", bad.address = (uintptr_t)read_only; bad.length = 1);
	REFUSED(ENOENT, "no such parent", bad.parent = 77);
	REFUSED(ERANGE, "a view beyond its parent", bad.parent = 1; bad.length++);
	REFUSED(ERANGE, "a view before its parent", bad.parent = 1; bad.address--);
	REFUSED(ERANGE, "a view behind its parent", bad.parent = 1; bad.address += 1 << 20);

	gone = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap((char *)gone + page, page);
	REFUSED(EFAULT, "a gap", bad.address = (uintptr_t)gone; bad.length = 3 * page);
	shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, device, 0);
	bad = good;
	bad.stag = 3;
	bad.address = (uintptr_t)shared;
	bad.length = page;
	CHECK(add(domain, bad) == 0, "a private mapping of /dev/zero is anonymous");
	REQUIRE(ftruncate(memfd, (off_t)page) == 0, "ftruncate");
	bad.stag = 4;
	bad.address = (uintptr_t)mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	CHECK(add(domain, bad) == 0, "a memfd");

	bad = good;
	bad.stag = 5;
	bad.parent = 1;
	bad.length = 10;
	CHECK(add(domain, bad) == 0 && domain_stats(domain).pinned_bytes == 6 * page,
	      "a view pins nothing");
	bad.stag = 6;
	bad.parent = 5;
	FAILS(add(domain, bad), EINVAL, "a view of a view");
	CHECK(stag_request(domain, DDP_IOC_CHECK, 1) == 0, "CHECK of what is found");
	CHECK(stag_request(domain, DDP_IOC_CHECK, 5) == 0, "and of a view");
	CHECK(stag_request(domain, DDP_IOC_REVOKE, 1) == 0, "REVOKE");
	FAILS(stag_request(domain, DDP_IOC_CHECK, 1), ENOENT, "CHECK of what is revoked");
	FAILS(stag_request(domain, DDP_IOC_CHECK, 5), ENOENT, "and of its view");
	FAILS(stag_request(domain, DDP_IOC_SHOW, 1), ENOENT, "SHOW of what is revoked");
	CHECK(stag_request(domain, DDP_IOC_REVOKE, 1) == 0, "REVOKE again");
	bad.parent = 1;
	FAILS(add(domain, bad), ENOENT, "a view of what is revoked");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, 1) == 0, "RELEASE");
	FAILS(stag_request(domain, DDP_IOC_RELEASE, 1), ENOENT, "RELEASE again");
	FAILS(stag_request(domain, DDP_IOC_REVOKE, 1), ENOENT, "REVOKE of what is released");
	CHECK(domain_stats(domain).pinned_bytes == 2 * page, "unpinned, though a view is left");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, 5) == 0, "RELEASE of the view");
	CHECK(add(domain, good) == 0, "its STag is free again");
}

static void hidden(int domain)
{
	void *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ddp_region region = {
		.address = (uintptr_t)memory, .length = 8192, .stag = 50,
		.pd = 1, .rights = DDP_RIGHT_WRITE, .flags = DDP_REGION_HIDDEN,
	}, view = region;

	view.stag = 51;
	view.parent = 50;
	view.flags = 0;
	CHECK(add(domain, region) == 0, "a hidden region");
	FAILS(stag_request(domain, DDP_IOC_CHECK, 50), ENOENT, "CHECK does not find it");
	FAILS(add(domain, view), ENOENT, "it has no views");
	CHECK(stag_request(domain, DDP_IOC_SHOW, 50) == 0, "SHOW");
	CHECK(stag_request(domain, DDP_IOC_SHOW, 50) == 0, "SHOW again");
	CHECK(stag_request(domain, DDP_IOC_CHECK, 50) == 0, "now it is found");
	CHECK(add(domain, view) == 0, "and has views");
	munmap((char *)memory + 4096, 4096);
	FAILS(stag_request(domain, DDP_IOC_CHECK, 50), ESTALE, "unmapped: it is stale");
	FAILS(stag_request(domain, DDP_IOC_CHECK, 51), ESTALE, "and so is the view");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, 50) == 0, "RELEASE");
	FAILS(stag_request(domain, DDP_IOC_CHECK, 51), ENOENT, "a view without its parent");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, 51) == 0, "RELEASE of the view");
	FAILS(stag_request(domain, DDP_IOC_CHECK, 50), ENOENT, "CHECK of what is released");
	FAILS(stag_request(domain, DDP_IOC_SHOW, 50), ENOENT, "SHOW of what is released");
	region.length = 4096;
	CHECK(add(domain, region) == 0 && stag_request(domain, DDP_IOC_REVOKE, 50) == 0,
	      "a hidden one is revoked");
	FAILS(stag_request(domain, DDP_IOC_SHOW, 50), ENOENT, "and stays so");
	CHECK(stag_request(domain, DDP_IOC_RELEASE, 50) == 0, "until RELEASE");
}

static void files(int domain)
{
	/* A file of a disk's file system; the guest's share is one. */
	int file = open("/share/pinned", O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct ddp_region region = { .stag = 100, .length = 4096, .rights = DDP_RIGHT_WRITE };
	void *memory;

	if (file < 0 || ftruncate(file, 4096) ||
	    (memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0)) ==
	    MAP_FAILED) {
		REQUIRE(false, "a file to map");
		return;
	}
	region.address = (uintptr_t)memory;
	FAILS(ioctl(domain, DDP_IOC_REGION, &region), EOPNOTSUPP, "memory of a file");
	close(file);
	unlink("/share/pinned");
}

static void memlock(void)
{
	struct rlimit limit = { 8 * 4096, 8 * 4096 };
	int status, child = fork();

	if (!child) {
		int domain;
		bool refused, held;

		/* The capability lifts the limit: become another user. */
		domain = open(DDP_DEVICE, O_RDWR);
		refused = setrlimit(RLIMIT_MEMLOCK, &limit) || setuid(65534);
		held = region_add(domain, 1, mmap(NULL, 65536, PROT_READ | PROT_WRITE,
						  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
				  65536, DDP_RIGHT_WRITE) < 0 && errno == ENOMEM;
		_exit(!refused && held ? 0 : 1);
	}
	waitpid(child, &status, 0);
	CHECK(status == 0, "RLIMIT_MEMLOCK holds for those without the capability");
}

/* In a guest that has no processor for a while the peer's FIN takes its time. */
static bool wait_unbound(int domain)
{
	for (int i = 0; i < 100 && domain_stats(domain).sockets != 0; i++)
		usleep(50000);
	return domain_stats(domain).sockets == 0;
}

static void sockets(int domain)
{
	int udp = socket(AF_INET, SOCK_DGRAM, 0), idle = socket(AF_INET, SOCK_STREAM, 0);
	int unix_pair[2], ends[2], other[2];
	struct ddp_bind bind = { .pd = 1, .qp = 1, .rights = 1 };

	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, unix_pair) == 0, "socketpair");
	tcp_pair(ends);
	tcp_pair(other);
	FAILS(ulp_set(idle), ENOTCONN, "ULP of a socket that is not connected");
	bind.socket = 9999;
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), EBADF, "BIND of no descriptor");
	bind.socket = domain;
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), ENOTSOCK, "BIND of the domain");
	bind.socket = udp;
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), EOPNOTSUPP, "BIND of UDP");
	bind.socket = unix_pair[0];
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), EOPNOTSUPP, "BIND of UNIX");
	bind.socket = ends[1];
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), ENOPROTOOPT, "BIND without the ULP");
	REQUIRE(ulp_set(ends[1]) == 0, "ULP");
	bind.flags = 0x80;
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), EINVAL, "an unknown flag");
	bind.flags = DDP_BIND_CRC;
	bind.qp = 0;
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), EINVAL, "no QP");
	bind.qp = 1;
	CHECK(ioctl(domain, DDP_IOC_BIND, &bind) == 0, "BIND");
	FAILS(ioctl(domain, DDP_IOC_BIND, &bind), EALREADY, "BIND twice");
	CHECK(domain_stats(domain).sockets == 1, "the domain counts it");
	FAILS(setsockopt(ends[1], IPPROTO_TCP, 31, "tls", 3), EEXIST, "another ULP");
	if (setsockopt(other[1], IPPROTO_TCP, 31, "tls", 3) == 0)
		FAILS(ulp_set(other[1]), EEXIST, "the ULP beside kTLS");
	shutdown(ends[0], SHUT_RDWR);
	close(ends[0]);
	close(ends[1]);
	CHECK(wait_unbound(domain), "close() ends the binding");
}

/* The end that was connected, of IPv6 as well: to an address of IPv4, which is mapped. */
static int connected_socket(int family, int *far)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6 };
	struct sockaddr_in *const plain = (struct sockaddr_in *)&address;
	socklen_t size = sizeof(*plain);
	int listener = socket(AF_INET, SOCK_STREAM, 0), s = socket(family, SOCK_STREAM, 0);
	in_port_t port;

	*plain = (struct sockaddr_in){ .sin_family = AF_INET };
	plain->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	REQUIRE(bind(listener, (struct sockaddr *)plain, size) == 0 && listen(listener, 1) == 0 &&
		getsockname(listener, (struct sockaddr *)plain, &size) == 0, "listen");
	port = plain->sin_port;
	if (family == AF_INET6) {
		address = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = port };
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr);
		size = sizeof(address);
	}
	REQUIRE(connect(s, (struct sockaddr *)&address, size) == 0, "connect");
	*far = accept(listener, NULL, NULL);
	close(listener);
	return s;
}

/* What programs do to a socket, done to one that is bound. */
static void calls(int domain, int family)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	int far, s = connected_socket(family, &far), number = AF_INET;

	REQUIRE(bind_socket(domain, s, DDP_BIND_CRC) == 0, "BIND");
	FAILS(accept(s, NULL, NULL), EINVAL, "accept()");
	FAILS(accept4(s, NULL, NULL, SOCK_NONBLOCK), EINVAL, "accept4()");
	FAILS(listen(s, 1), EINVAL, "listen()");
	CHECK(getpeername(s, (struct sockaddr *)&address, &size) == 0, "getpeername()");
	FAILS(connect(s, (struct sockaddr *)&address, size), EISCONN, "connect()");
	FAILS(bind(s, (struct sockaddr *)&address, size), EINVAL, "bind()");
	if (family == AF_INET6)
		FAILS(setsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &number, sizeof(number)), EBUSY,
		      "it does not become one of IPv4");
	CHECK(send(s, "octet", 5, 0) == 5 && shutdown(s, SHUT_WR) == 0, "send() and shutdown()");
	CHECK(domain_stats(domain).sockets == 1, "it is bound as before");
	close(far);
	close(s);
	CHECK(wait_unbound(domain), "until close()");
}

static void foreign(int domain)
{
	struct ddp_hello hello;
	int status, child = fork();

	if (!child) {
		errno = 0;
		_exit(ioctl(domain, DDP_IOC_HELLO, &hello) < 0 && errno == EPERM ? 0 : 1);
	}
	waitpid(child, &status, 0);
	CHECK(status == 0, "a child may not use its parent's domain");
}

static long live(const char *what)
{
	char path[64];
	long n = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/debug/ddp/%s", what);
	file = fopen(path, "r");
	REQUIRE(file && fscanf(file, "%ld", &n) == 1, "debugfs");
	fclose(file);
	return n;
}

static bool wait_live(const char *what, long n)
{
	for (int i = 0; i < 1000 && live(what) != n; i++)
		usleep(1000);
	return live(what) == n;
}

/*
 * A program opens a domain, pins, binds a socket, forks and dies; its child keeps the descriptors
 * until `hold` ends.
 */
static void pin_and_die(int hold, int s)
{
	int domain = open(DDP_DEVICE, O_RDWR);
	char end;

	region_make(domain, 1, 16 * 4096, DDP_RIGHT_WRITE);
	if (bind_socket(domain, s, DDP_BIND_CRC))
		_exit(1);
	if (fork() == 0) {
		while (read(hold, &end, 1) > 0)
			;
		errno = 0;
		_exit(stag_request(domain, DDP_IOC_RELEASE, 1) < 0 && errno == EPERM ? 0 : 1);
	}
	_exit(0);
}

static void heirs(void)
{
	long domains = live("domains"), regions = live("regions"), pages = live("pages");
	int hold[2], ends[2], status, child;
	struct record record;
	uint8_t octets[64];

	REQUIRE(pipe(hold) == 0, "pipe");
	REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "to hear of the child's child");
	tcp_pair(ends);
	child = fork();
	if (!child) {
		close(hold[1]);
		pin_and_die(hold[0], ends[1]);
	}
	waitpid(child, &status, 0);
	CHECK(status == 0, "a program has pinned, forked and died");
	CHECK(wait_live("pages", pages) && wait_live("regions", regions),
	      "its regions end with it, though a child keeps the domain");
	CHECK(live("domains") == domains + 1, "which stays open");
	send_all(ends[0], octets, fpdu_write(octets, 1, 0, "late", 4, true));
	record = record_wait(ends[1], 1000);
	CHECK(record.type == DDP_RECORD_ULPDU, "and a Write to them goes up");
	close(hold[1]);
	close(hold[0]);
	close(ends[0]);
	close(ends[1]);
	CHECK(wait_live("domains", domains), "until the child ends");
	CHECK(waitpid(-1, &status, 0) > 0 && status == 0, "which may release nothing");
}

int main(void)
{
	int domain = domain_open();

	hello(domain);
	regions(domain);
	hidden(domain);
	files(domain);
	memlock();
	sockets(domain);
	calls(domain, AF_INET);
	calls(domain, AF_INET6);
	foreign(domain);
	heirs();
	return end_checks();
}
