/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Addresses and events of rdma_cm, for programs that test them. Included once, instead of
 * datagrams.h. */
#ifndef XSOCK_TESTS_VERBS_CM_EVENTS_H
#define XSOCK_TESTS_VERBS_CM_EVENTS_H

#include <dirent.h>

#include "tests/verbs/datagrams.h"

/* Status of RDMA_CM_EVENT_REJECTED on the device that looks like RoCE. */
enum { NOBODY_LISTENS = 8, PROGRAM_REJECTED = 28 };

static union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
} address;

static inline struct sockaddr* at(const char* text, int port) {
    memset(&address, 0, sizeof address);
    if (strchr(text, ':') != NULL) {
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons((uint16_t)port);
        MUST(inet_pton(AF_INET6, text, &address.v6.sin6_addr) == 1);
    } else {
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = htons((uint16_t)port);
        MUST(inet_pton(AF_INET, text, &address.v4.sin_addr) == 1);
    }
    return &address.any;
}
static inline socklen_t length_at(void) {
    return address.any.sa_family == AF_INET ? sizeof address.v4 : sizeof address.v6;
}

/* The next event of a channel, within the time limit; NULL: none. */
static inline struct rdma_cm_event* event_within(struct rdma_event_channel* channel, int ms) {
    struct pollfd fd = {channel->fd, POLLIN, 0};
    struct rdma_cm_event* event = NULL;
    if (poll(&fd, 1, ms) == 1) MUST(rdma_get_cm_event(channel, &event) == 0);
    return event;
}
static inline struct rdma_cm_event* expect_event(struct rdma_event_channel* channel,
                                                 enum rdma_cm_event_type type) {
    struct rdma_cm_event* const event = event_within(channel, LIMIT_S * 1000);
    MUST(event != NULL);
    CHECK(event->event == type, "%s, status %d", rdma_event_str(event->event), event->status);
    return event;
}
static inline void expect_and_ack(struct rdma_event_channel* channel,
                                  enum rdma_cm_event_type type) {
    CHECK(rdma_ack_cm_event(expect_event(channel, type)) == 0);
}

/* How many this process has open. */
static inline int descriptors(void) {
    DIR* const folder = opendir("/proc/self/fd");
    int n = 0;
    MUST(folder != NULL);
    while (readdir(folder) != NULL) ++n;
    closedir(folder);
    return n;
}

#endif /* XSOCK_TESTS_VERBS_CM_EVENTS_H */
