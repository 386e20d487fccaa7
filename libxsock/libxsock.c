/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libxsock.so: the public functions, each a call through the engine's table. The libc names that
 * the library exports too are in overlay/.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libxsock/engine/engine_open.h"
#include "libxsock/overlay/fd_table.h"
#include "libxsock/overlay/shared.h"

#define CALL(type, name, failed, parameters, arguments)                \
    XSOCK_API type xsock_##name parameters {                           \
        const struct xsock_engine* const engine = xsock_engine_open(); \
        if (engine == NULL) return failed;                             \
        return engine->name arguments;                                 \
    }
XSOCK_FUNCTIONS(CALL)

/* The descriptor may be in the table of the preload library. */
XSOCK_API struct xsock_ep* xsock_fd_endpoint(int fd, struct xsock_cq* send_cq,
                                             struct xsock_cq* recv_cq) {
    const struct xsock_overlay* const overlay = overlay_first();
    struct fd_handle* handle;
    struct xsock_ep* ep = NULL;
    int saved;
    if (xsock_engine_open() == NULL) return NULL;
    handle = overlay->get(fd);
    if (handle == NULL || XSOCK_IS_SET(handle->sock)) {
        errno = fcntl(fd, F_GETFD) < 0 ? EBADF : ENOTCONN;
    } else {
        ep = xsock_engine_opened->socket_endpoint(handle->sock, fd, send_cq, recv_cq);
    }
    saved = errno;
    overlay->put(handle);
    errno = saved;
    return ep;
}

/* Needs no engine: reading what a peer sent. */
XSOCK_API void xsock_key_read(const struct xsock_key* key, struct xsock_remote* remote) {
    const uint8_t* o = key->bytes;
    int i;

    memset(remote, 0, sizeof *remote);
    for (i = 0; i < 8; i++) remote->to = remote->to << 8 | o[i];
    for (i = 8; i < 16; i++) remote->length = remote->length << 8 | o[i];
    for (i = 16; i < 20; i++) remote->stag = remote->stag << 8 | o[i];
    for (i = 20; i < 24; i++) remote->access = remote->access << 8 | o[i];
}
