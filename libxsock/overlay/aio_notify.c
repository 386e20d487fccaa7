/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "libxsock/overlay/aio_notify.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* With no signal blocked, as libc does. */
static void* call_function(void* argument) {
    struct sigevent* const event = argument;
    const struct sigevent copy = *event;
    sigset_t none;
    free(event);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    copy.sigev_notify_function(copy.sigev_value);
    return NULL;
}

/* A detached thread, with the signals that are blocked here. */
static int start(void* (*run)(void*), void* argument, const pthread_attr_t* given) {
    pthread_attr_t attributes;
    pthread_t thread;
    int error;
    if (given != NULL) return pthread_create(&thread, given, run, argument);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

int aio_start_thread(void* (*run)(void*), void* argument) {
    static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t set, before;
    size_t i;
    int error;
    sigfillset(&set);
    for (i = 0; i < sizeof raised / sizeof raised[0]; i++) sigdelset(&set, raised[i]);
    pthread_sigmask(SIG_SETMASK, &set, &before);
    error = start(run, argument, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void aio_notify(const struct sigevent* event) {
    if (event->sigev_notify == SIGEV_SIGNAL) {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        info.si_signo = event->sigev_signo;
        info.si_code = SI_ASYNCIO;
        info.si_pid = getpid();
        info.si_uid = getuid();
        info.si_value = event->sigev_value;
        syscall(SYS_rt_sigqueueinfo, info.si_pid, info.si_signo, &info);
    } else if (event->sigev_notify == SIGEV_THREAD) {
        struct sigevent* const copy = malloc(sizeof *copy);
        if (copy == NULL) return;
        *copy = *event;
        if (start(call_function, copy, event->sigev_notify_attributes) != 0) free(copy);
    }
}
