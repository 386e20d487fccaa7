/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Loading, and the copy that counts when there are two. */
#include "libxsock/overlay/shared.h"

#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/policy.h"
#include "libxsock/overlay/summary.h"

#define OURS \
    { XSOCK_OVERLAY_VERSION, sizeof(struct xsock_overlay), fd_get, fd_put }
static const struct xsock_overlay own = OURS;
const struct xsock_overlay xsock_overlay = OURS;

const struct xsock_overlay* overlay_first(void) {
    /* The name is one that a library loaded earlier may define as well: then it is that one's. */
    const struct xsock_overlay* const first = &xsock_overlay;
    const int known = first->version == XSOCK_OVERLAY_VERSION && first->size == sizeof own;
    return known ? first : &own;
}

int overlay_is_first(void) { return overlay_first()->get == own.get; }

/* No thread, no memory, no engine (but policy_adopt(), under a policy): a program that uses no
 * DDPMODE pays for this alone. */
__attribute__((constructor)) static void loaded(void) {
    libc_find_all();
    policy_init();
    summary_init();
    policy_adopt();
}
