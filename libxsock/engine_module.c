/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libxsock-engine.so: everything is in the static libraries; this reference makes the linker take
 * them.
 */
#include "libxsock/engine_table.h"

const void* xsock_engine_anchor(void);
const void* xsock_engine_anchor(void) { return (const void*)xsock_engine_table; }

#ifdef XSOCK_WITH_VERBS
extern const struct xsock_verbs* xsock_verbs_table(void);
const void* xsock_verbs_anchor(void);
const void* xsock_verbs_anchor(void) { return (const void*)xsock_verbs_table; }
#endif
