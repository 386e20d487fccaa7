/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#ifndef XSOCK_BENCH_LOOPBACK_ADDRESS_H
#define XSOCK_BENCH_LOOPBACK_ADDRESS_H

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* 127.0.0.1 and a port that the command line has. */
static struct sockaddr_in loopback_address(const char* port) {
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)strtoul(port, NULL, 10));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

#endif /* XSOCK_BENCH_LOOPBACK_ADDRESS_H */
