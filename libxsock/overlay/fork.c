/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "libxsock/overlay/fork.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libxsock/engine/engine_open.h"
#include "libxsock/overlay/fd_table.h"
#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/summary.h"

_Atomic uint32_t fork_generation;
_Atomic uint32_t fork_count;
_Atomic uint32_t* _Atomic fork_page;

/* The page is cleared in a forked child and shared by a vforked one: it tells the three kinds of
 * process apart together with this. */
static _Atomic pid_t owner;

static int is_renewed(_Atomic uint32_t* page) {
    return atomic_load(page) != 0 && atomic_load(&owner) == getpid();
}

/* This process has one thread still, or its threads meet at the lock of fork_renew(). */
static void renew(_Atomic uint32_t* page) {
    overlay_forked();
    summary_forked();
    fd_table_forked();
    overlay_wait_forked();
    overlay_stdio_forked();
    overlay_aio_forked();
    atomic_fetch_add(&fork_generation, 1);
    atomic_fetch_add(&fork_count, 1);
    if (page == NULL) return;
    atomic_store(&owner, getpid());
    atomic_store(page, 1);
}

/* The engine has a handler of its own, and is told only where no handlers ran. */
static void forked(void) {
    _Atomic uint32_t* const page = atomic_load(&fork_page);
    if (page == NULL || !is_renewed(page)) renew(page);
}

void fork_renew(void) {
    static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;
    _Atomic uint32_t* const page = atomic_load(&fork_page);
    pthread_mutex_lock(&renewing);
    if (!is_renewed(page)) {
        xsock_engine_opened->socket_forked();
        renew(page);
    }
    pthread_mutex_unlock(&renewing);
}

static void count_in_parent(void) { atomic_fetch_add(&fork_count, 1); }

static void watch(void) { pthread_atfork(NULL, count_in_parent, forked); }

void fork_watch(void) {
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    pthread_once(&watching, watch);
}

int fork_detect(void) {
    void* page;
    if (atomic_load(&fork_page) != NULL) return 0;
    fork_watch();
    page =
        mmap(NULL, sizeof *fork_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return -1;
    /* Linux before 4.14 has no such advice: there only fork() itself is noticed. */
    madvise(page, sizeof *fork_page, MADV_WIPEONFORK);
    atomic_store((_Atomic uint32_t*)page, 1);
    atomic_store(&owner, getpid());
    atomic_store(&fork_page, page);
    return 0;
}

int fork_shares_memory(void) {
    fork_notice();
    return atomic_load(&owner) != getpid();
}
