/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A host that exports libuv's names, as node does, but whose functions end the process: the engine
 * must not meet them. */
#include <stdlib.h>

#include "tests/system/host_loopback.h"

#define TRAP(name)                                                   \
    __attribute__((visibility("default"))) int name(void);           \
    int name(void) {                                                 \
        fprintf(stderr, "the engine called the host's " #name "\n"); \
        _Exit(1);                                                    \
    }
TRAP(uv_loop_init)
TRAP(uv_loop_close)
TRAP(uv_run)
TRAP(uv_stop)
TRAP(uv_walk)
TRAP(uv_close)
TRAP(uv_is_closing)
TRAP(uv_async_init)
TRAP(uv_async_send)
TRAP(uv_timer_init)
TRAP(uv_timer_start)
TRAP(uv_timer_stop)
TRAP(uv_poll_init)
TRAP(uv_poll_start)
TRAP(uv_poll_stop)
TRAP(uv_prepare_init)
TRAP(uv_prepare_start)
TRAP(uv_check_init)
TRAP(uv_check_start)

int main(void) {
    const char* wrong = loopback_exchange(500);

    if (wrong == NULL) wrong = loopback_exchange(500);
    puts(wrong ? wrong : "a host with uv_* of its own");
    return wrong != NULL;
}
