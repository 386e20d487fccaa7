/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * XSOCK_VERBS_PORT_OFFSET: a program that uses one port number for TCP and for RDMA. Both ends are
 * in this process, which has the offset from its environment or sets one.
 *
 *     port_offset [CASE...]     all cases, or the named ones; exit status 1 when one fails
 */
#include <sys/socket.h>

#include "tests/verbs/pair.h"

static int offset;

static struct sockaddr_storage loopback(int family, int port) {
    struct sockaddr_storage address;
    memset(&address, 0, sizeof address);
    address.ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        struct sockaddr_in* const v4 = (struct sockaddr_in*)&address;
        v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        v4->sin_port = htons((uint16_t)port);
    } else {
        struct sockaddr_in6* const v6 = (struct sockaddr_in6*)&address;
        v6->sin6_addr = in6addr_loopback;
        v6->sin6_port = htons((uint16_t)port);
    }
    return address;
}
static int port_in(const struct sockaddr* address) {
    return ntohs(address->sa_family == AF_INET ? ((const struct sockaddr_in*)address)->sin_port
                                               : ((const struct sockaddr_in6*)address)->sin6_port);
}
static socklen_t size_of(int family) {
    return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* A TCP server, as the program itself has one. */
static int tcp_server(int family, int* port) {
    struct sockaddr_storage address = loopback(family, 0);
    socklen_t size = sizeof address;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr*)&address, size_of(family)) != 0) return -1;
    MUST(listen(fd, 4) == 0 && getsockname(fd, (struct sockaddr*)&address, &size) == 0);
    *port = port_in((struct sockaddr*)&address);
    return fd;
}
static int tcp_listens(int family, int port) {
    struct sockaddr_storage address = loopback(family, port);
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd >= 0);
    const int listens = connect(fd, (struct sockaddr*)&address, size_of(family)) == 0;
    close(fd);
    return listens;
}

static struct rdma_cm_id* bound_id(int family, int port) {
    struct sockaddr_storage address = loopback(family, port);
    struct rdma_cm_id* id = NULL;
    MUST(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    if (rdma_bind_addr(id, (struct sockaddr*)&address) == 0) return id;
    const int error = errno;
    CHECK(rdma_destroy_id(id) == 0);
    errno = error;
    return NULL;
}

/* Connects to `port` (from `from`, 0: from any), compares the numbers that both ends show, and
 * sends a message. */
static void exchange(struct rdma_cm_id* listener, int family, int port, int from) {
    struct sockaddr_storage to = loopback(family, port), own = loopback(family, from);
    struct pair p;
    struct ibv_qp_init_attr attr = qp_attr();
    pthread_t thread;
    memset(&p, 0, sizeof p);
    MUST(rdma_create_id(NULL, &p.a, NULL, RDMA_PS_TCP) == 0);
    MUST(rdma_resolve_addr(p.a, from != 0 ? (struct sockaddr*)&own : NULL, (struct sockaddr*)&to,
                           2000) == 0);
    MUST(rdma_resolve_route(p.a, 2000) == 0);
    CHECK(ntohs(rdma_get_dst_port(p.a)) == port);
    MUST(rdma_create_qp(p.a, NULL, &attr) == 0);
    MUST(pthread_create(&thread, NULL, active, &p) == 0);
    MUST(rdma_get_request(listener, &p.b) == 0);
    attr = qp_attr();
    MUST(rdma_create_qp(p.b, NULL, &attr) == 0);
    MUST(rdma_accept(p.b, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK(ntohs(rdma_get_src_port(p.b)) == port, "%d", ntohs(rdma_get_src_port(p.b)));
    CHECK(port_in(rdma_get_local_addr(p.b)) == port);
    CHECK(port_in(rdma_get_peer_addr(p.a)) == port);
    CHECK(rdma_get_src_port(p.a) != 0);
    CHECK(rdma_get_dst_port(p.b) == rdma_get_src_port(p.a));
    CHECK(from == 0 || ntohs(rdma_get_src_port(p.a)) == from);
    MUST((p.mr_a = ibv_reg_mr(p.a->pd, p.data_a, sizeof p.data_a, ALL_ACCESS)) != NULL);
    MUST((p.mr_b = ibv_reg_mr(p.b->pd, p.data_b, sizeof p.data_b, ALL_ACCESS)) != NULL);
    CHECK(post_recv(p.b->qp, p.data_b, 8, p.mr_b->lkey) == 0);
    CHECK(post(p.a->qp, IBV_WR_SEND, p.data_a, 8, p.mr_a->lkey, 0, 0) == 0);
    EXPECT(p.a->send_cq, IBV_WC_SUCCESS);
    EXPECT(p.b->recv_cq, IBV_WC_SUCCESS);
    disconnect_pair(&p);
}

/* valkey: the port of its TCP server, for RDMA too. */
static void number_of_a_tcp_server(int family) {
    int port = 0, from = 0;
    const int fd = tcp_server(family, &port);
    if (fd < 0) {
        printf("SKIPPED %s: no such addresses here\n", case_name);
        return;
    }
    struct rdma_cm_id* const listener = bound_id(family, port);
    MUST(listener != NULL && rdma_listen(listener, 4) == 0);
    CHECK(ntohs(rdma_get_src_port(listener)) == port);
    CHECK(port_in(rdma_get_local_addr(listener)) == port);
    CHECK(tcp_listens(family, port + offset));
    exchange(listener, family, port, 0);
    const int another = tcp_server(family, &from);
    MUST(another >= 0);
    exchange(listener, family, port, from); /* the client's own port is shifted as well */
    CHECK(rdma_destroy_id(listener) == 0);
    close(another);
    close(fd);
}
CASE(number_of_a_tcp_server_v4) { number_of_a_tcp_server(AF_INET); }
CASE(number_of_a_tcp_server_v6) { number_of_a_tcp_server(AF_INET6); }

/* The number that a program is shown for a port of the kernel's choice leads there. */
static void any_port(int family) {
    int port = 0;
    const int fd = tcp_server(family, &port);
    if (fd < 0) {
        printf("SKIPPED %s: no such addresses here\n", case_name);
        return;
    }
    close(fd);
    struct rdma_cm_id* const listener = bound_id(family, 0);
    MUST(listener != NULL && rdma_listen(listener, 4) == 0);
    port = ntohs(rdma_get_src_port(listener));
    CHECK(port != 0 && tcp_listens(family, port + offset), "%d", port);
    exchange(listener, family, port, 0);
    CHECK(rdma_destroy_id(listener) == 0);
}
CASE(any_port_v4) { any_port(AF_INET); }
CASE(any_port_v6) { any_port(AF_INET6); }

/* rdma_getaddrinfo() and rdma_create_ep() speak in the program's numbers. */
CASE(endpoints) {
    struct rdma_addrinfo hints, *passive = NULL, *to = NULL;
    struct ibv_qp_init_attr attr = qp_attr();
    struct pair p;
    pthread_t thread;
    char text[16];
    int port = 0;
    const int fd = tcp_server(AF_INET, &port);
    MUST(fd >= 0);
    memset(&p, 0, sizeof p);
    memset(&hints, 0, sizeof hints);
    snprintf(text, sizeof text, "%d", port);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    MUST(rdma_getaddrinfo("127.0.0.1", text, &hints, &passive) == 0);
    CHECK(port_in(passive->ai_src_addr) == port);
    MUST(rdma_create_ep(&p.listener, passive, NULL, &attr) == 0);
    MUST(rdma_listen(p.listener, 4) == 0);
    CHECK(ntohs(rdma_get_src_port(p.listener)) == port && tcp_listens(AF_INET, port + offset));
    hints.ai_flags = 0;
    MUST(rdma_getaddrinfo("127.0.0.1", text, &hints, &to) == 0);
    CHECK(port_in(to->ai_dst_addr) == port);
    attr = qp_attr();
    MUST(rdma_create_ep(&p.a, to, NULL, &attr) == 0);
    MUST(pthread_create(&thread, NULL, active, &p) == 0);
    MUST(rdma_get_request(p.listener, &p.b) == 0);
    MUST(rdma_accept(p.b, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK(ntohs(rdma_get_src_port(p.b)) == port && ntohs(rdma_get_dst_port(p.a)) == port);
    disconnect_pair(&p);
    rdma_freeaddrinfo(passive);
    rdma_freeaddrinfo(to);
    close(fd);
}

/* What would be no port is an error where the program names it. */
CASE(no_such_port) {
    const int outside = offset > 0 ? 65536 - offset : -offset; /* the nearest of them */
    const int inside = offset > 0 ? outside - 1 : outside + 1;
    struct sockaddr_storage to = loopback(AF_INET, outside), any = loopback(AF_INET, 0);
    struct rdma_cm_id* id = NULL;
    errno = 0;
    CHECK(bound_id(AF_INET, outside) == NULL && errno == EADDRNOTAVAIL, "errno %d", errno);
    MUST(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    errno = 0;
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr*)&to, 2000) == -1 && errno == EADDRNOTAVAIL,
          "errno %d", errno);
    errno = 0;
    CHECK(rdma_resolve_addr(id, (struct sockaddr*)&to, (struct sockaddr*)&any, 2000) == -1 &&
              errno == EADDRNOTAVAIL,
          "errno %d", errno);
    to = loopback(AF_INET, inside);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr*)&to, 2000) == 0);
    CHECK(rdma_destroy_id(id) == 0);
}

/* The same of datagrams, on the device that has them: a number that is shown leads there. */
CASE(any_port_of_datagrams) {
    for (int i = 0; i < 20; ++i) {
        struct sockaddr_storage address = loopback(AF_INET, 0);
        struct rdma_cm_id* id = NULL;
        if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) != 0 && errno == EPROTONOSUPPORT) {
            printf("SKIPPED %s: no datagrams on this device\n", case_name);
            return;
        }
        MUST(id != NULL && rdma_bind_addr(id, (struct sockaddr*)&address) == 0);
        CHECK(rdma_listen(id, 4) == 0);
        const int port = ntohs(rdma_get_src_port(id));
        CHECK(port > 0 && port + offset > 0 && port + offset <= 65535, "%d", port);
        struct sockaddr_storage taken = loopback(AF_INET, port + offset);
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        CHECK(bind(fd, (struct sockaddr*)&taken, sizeof(struct sockaddr_in)) == -1 &&
                  errno == EADDRINUSE,
              "%d", port);
        close(fd);
        CHECK(rdma_destroy_id(id) == 0);
    }
}

int main(int argc, char** argv) {
    MUST(setenv("XSOCK_VERBS_PORT_OFFSET", "1000", 0) == 0);
    offset = atoi(getenv("XSOCK_VERBS_PORT_OFFSET"));
    return run_cases(argc, argv);
}
