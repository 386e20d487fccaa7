/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "libxsock/overlay/policy.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/shared.h"
#include "libxsock/overlay/summary.h"

int policy_wanted;
static char program[256]; /* programs such as sshd write their state over the name itself */

void policy_init(void) {
    const char* const stream = secure_getenv("XSOCK_STREAM");
    const char* const policy = secure_getenv("XSOCK_POLICY");
    policy_wanted = (stream != NULL && *stream != '\0') || (policy != NULL && *policy != '\0');
    if (policy_wanted) strncpy(program, program_invocation_short_name, sizeof program - 1);
}

static int option(int fd, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return LIBC(getsockopt)(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

/* (There is no other domain of that type and protocol.) */
static int is_tcp(int fd) {
    return option(fd, SO_PROTOCOL) == IPPROTO_TCP && option(fd, SO_TYPE) == SOCK_STREAM;
}

static int set(int fd, int name, int value) {
    return overlay_setsockopt(fd, SOL_XSOCK, name, &value, sizeof value);
}

/* A server that starts and hands its listening socket to another program (socket activation, a
 * re-executed server): asked when that one accepts. One that hands on what it has accepted (inetd,
 * by exec; node's cluster, by SCM_RIGHTS): asked when the other one has it. */
enum asked { ASKED_CONNECT, ASKED_FAST_OPEN, ASKED_LISTEN, ASKED_ACCEPT, ASKED_HANDED_ON };

static enum xsock_policy_role role_of(enum asked asked) {
    switch (asked) {
        case ASKED_CONNECT:
            return XSOCK_POLICY_CLIENT;
        case ASKED_FAST_OPEN:
            return XSOCK_POLICY_FAST_OPEN;
        case ASKED_LISTEN:
        case ASKED_ACCEPT:
            return XSOCK_POLICY_LISTENER;
        case ASKED_HANDED_ON:
            break;
    }
    return XSOCK_POLICY_ACCEPTED;
}

/* Servers call listen() again (nginx). */
static int listens_again(int fd) { return summary_may_be_wanted() && summary_listens(fd); }

/* -1 with errno: it is wanted carried, and cannot be. 1: what it accepts is plain. */
static int apply(int fd, enum asked asked, const struct sockaddr* address, socklen_t length) {
    const struct xsock_engine* const engine = xsock_engine_open();
    int mode;
    int before;
    if (engine == NULL) return 0; /* told by the log */
    before = overlay_begin();
    mode = engine->socket_policy(program, role_of(asked), fd, address, length);
    overlay_end(before);
    if (mode == XSOCK_POLICY_TCP || mode == XSOCK_POLICY_UNKNOWN_PEER) {
        if (asked == ASKED_CONNECT || asked == ASKED_FAST_OPEN ||
            (asked == ASKED_LISTEN && !listens_again(fd))) {
            summary_plain(mode == XSOCK_POLICY_TCP ? "policy-tcp" : "unknown-peer");
        }
        return asked == ASKED_ACCEPT;
    }
    if (asked == ASKED_FAST_OPEN) {
        if (mode != XSOCK_POLICY_SDP) {
            summary_plain("fast-open");
            return 0;
        }
        errno = EOPNOTSUPP; /* as a kernel without it: programs go on with connect() */
        return -1;
    }
    if (asked == ASKED_HANDED_ON) {
        overlay_hint(fd, XSOCK_HINT_HANDED_ON);
        if (set(fd, DDPMODE, DDPMODE_STREAM) == 0) summary_received(fd);
        return 0;
    }
    if (set(fd, DDPMODE, DDPMODE_STREAM) != 0) {
        if (fd_has(fd)) return 0;
        if (asked == ASKED_CONNECT && mode != XSOCK_POLICY_SDP) summary_plain("fallback-no-watch");
        return mode != XSOCK_POLICY_SDP ? 0 : -1;
    }
    if (mode == XSOCK_POLICY_SDP) return set(fd, DDPREQUIRE, 1);
    /* A server that is listed takes it, and accepts when it comes to that: as with TCP, however
     * long that takes. One that has taken it before may not any more, and stay silent. */
    if (asked != ASKED_CONNECT || mode == XSOCK_POLICY_LEARNED) return 0;
    return set(fd, DDPSTARTUP, INT_MAX);
}

static int apply_by_own_address(int fd, enum asked asked) {
    struct sockaddr_storage local;
    socklen_t length = sizeof local;
    const int saved = errno;
    int result = 0;
    if (!overlay_inside() && is_tcp(fd) &&
        LIBC(getsockname)(fd, (struct sockaddr*)&local, &length) == 0) {
        result = apply(fd, asked, (const struct sockaddr*)&local, length);
    }
    if (result >= 0) errno = saved;
    return result;
}

int policy_listen_slow(int fd) { return apply_by_own_address(fd, ASKED_LISTEN); }

int policy_accept_slow(int fd) {
    const int saved = errno;
    int plain = 0;
    if (!fd_has(fd) && option(fd, SO_ACCEPTCONN) == 1) {
        plain = apply_by_own_address(fd, ASKED_ACCEPT) == 1;
    }
    errno = saved;
    return plain;
}

static int is_connected(int fd) {
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    return LIBC(getpeername)(fd, (struct sockaddr*)&peer, &length) == 0;
}

/* Where the peer says something else than a Request, or the program speaks first, it turns out to
 * be plain, as one that this process has accepted. */
void policy_handed_on_slow(int fd) {
    const int saved = errno;
    if (!fd_has(fd) && is_connected(fd)) apply_by_own_address(fd, ASKED_HANDED_ON);
    errno = saved;
}

void policy_adopt_slow(void) {
    DIR* const all = overlay_is_first() ? opendir("/proc/self/fd") : NULL;
    const struct dirent* entry;
    if (all == NULL) return;
    while ((entry = readdir(all)) != NULL) {
        const int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(all)) continue;
        if (fd_join(fd)) {
            overlay_stdio_follow(fd);
        } else {
            policy_handed_on_slow(fd);
        }
    }
    closedir(all);
}

/* One that has a peer, or is getting one, stays as it is: its mode is for connections to come. */
static int apply_by_peer(int fd, enum asked asked, const struct sockaddr* address,
                         socklen_t length) {
    const int saved = errno;
    int result = 0;
    if (!overlay_inside() && overlay_hint_of(fd) == XSOCK_HINT_NONE && address != NULL &&
        length >= sizeof(sa_family_t) &&
        (address->sa_family == AF_INET || address->sa_family == AF_INET6) && is_tcp(fd)) {
        result = apply(fd, asked, address, length);
    }
    if (result == 0) errno = saved;
    return result;
}

int policy_connect_slow(int fd, const struct sockaddr* address, socklen_t length) {
    return apply_by_peer(fd, ASKED_CONNECT, address, length);
}

int policy_fast_open_slow(int fd, const struct sockaddr* address, socklen_t length) {
    return apply_by_peer(fd, ASKED_FAST_OPEN, address, length);
}
