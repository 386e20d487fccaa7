/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Signal handlers that use the socket of the call that they interrupted, or another one. A call
 * that is not asleep yet, or no longer, may refuse them for some microseconds (EDEADLK): then the
 * next signal asks again, until the call is asleep.
 */
#include "tests/system/stream_semantics/semantics.h"

static volatile int handler_fd;
static volatile sig_atomic_t handled; /* without being refused */

/* ---- the handler takes the urgent byte ----------------------------------------------------------
 */
static volatile sig_atomic_t took, took_error;
static volatile char taken;

static void take_urgent(int number) {
    const int saved = errno;
    char byte = 0;
    int i;
    (void)number;
    /* The signal may be ahead of the byte. */
    for (i = 0; !handled && i < 5000; i++) {
        took = (int)recv(handler_fd, &byte, 1, MSG_OOB);
        took_error = took < 0 ? errno : 0;
        if (took_error == EDEADLK) break;
        if (took_error != EAGAIN) {
            taken = byte;
            handled = 1;
        } else {
            usleep(1000);
        }
    }
    errno = saved;
}

struct sender {
    int fd;
    pthread_t to;
};

static void* send_urgent_later(void* argument) {
    const struct sender* const it = argument;
    int i;
    sleep_ms(50);
    CHECK(send(it->fd, "ab!", 3, MSG_OOB) == 3);
    for (i = 0; !handled; i++) {
        CHECK(i < 400);
        sleep_ms(50);
        if (i > 0 && !handled) CHECK(pthread_kill(it->to, SIGURG) == 0);
    }
    put(it->fd, "de");
    return NULL;
}

static struct sender urgent_sender;

static pthread_t begin_urgent(const int fds[2]) {
    pthread_t thread;
    sigset_t urgent;
    handler_fd = fds[1];
    handle(SIGURG, take_urgent, SA_RESTART);
    CHECK(fcntl(fds[1], F_SETOWN, getpid()) == 0);
    urgent_sender = (struct sender){fds[0], pthread_self()};
    CHECK(sigemptyset(&urgent) == 0 && sigaddset(&urgent, SIGURG) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &urgent, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, send_urgent_later, &urgent_sender) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &urgent, NULL) == 0);
    return thread;
}

static void note_urgent(void) {
    note("recv() in the handler", took, took_error, NULL);
    note("byte", taken, 0, NULL);
}

CASE(an_urgent_byte_is_taken_during_recv) {
    int fds[2];
    char bytes[10];
    size_t got = 0;
    pthread_t thread;
    make_pair(fds);
    thread = begin_urgent(fds);
    while (got < 4) { /* up to the mark, and behind it */
        const ssize_t n = recv(fds[1], bytes + got, sizeof bytes - got, 0);
        CHECK(n > 0);
        got += (size_t)n;
    }
    NOTE(memcmp(bytes, "abde", 4));
    join(thread);
    note_urgent();
    close_pair(fds);
}

CASE(an_urgent_byte_is_taken_during_poll) {
    int fds[2];
    pthread_t thread;
    struct pollfd it;
    make_pair(fds);
    thread = begin_urgent(fds);
    it = (struct pollfd){fds[1], 0, 0};
    while (!handled) {
        const int n = poll(&it, 1, 20000);
        CHECK(n < 0 && errno == EINTR);
    }
    join(thread);
    note_urgent();
    close_pair(fds);
}

CASE(an_urgent_byte_is_taken_during_send) {
    static char block[16 << 20];
    int fds[2];
    pthread_t thread;
    make_pair(fds);
    fill(fds[1]); /* the other end does not read */
    set_time_limit(fds[1], SO_SNDTIMEO, 20000);
    thread = begin_urgent(fds);
    while (!handled) {
        const ssize_t n = send(fds[1], block, sizeof block, 0);
        CHECK(n > 0 || errno == EINTR);
    }
    join(thread);
    note_urgent();
    close_pair(fds);
}

CASE(an_urgent_byte_is_taken_while_the_program_sleeps) {
    int fds[2];
    pthread_t thread;
    make_pair(fds);
    thread = begin_urgent(fds);
    while (!handled) sleep_ms(1);
    join(thread);
    note_urgent();
    close_pair(fds);
}

/* ---- the handler sends, receives and polls ------------------------------------------------------
 */
static volatile long sent, received, polled;
static volatile sig_atomic_t send_error, receive_error;

static void use_it(int number) {
    const int saved = errno;
    char bytes[8];
    struct pollfd it = {handler_fd, POLLOUT, 0};
    (void)number;
    if (handled) return;
    sent = send(handler_fd, "handler", 7, 0);
    send_error = sent < 0 ? errno : 0;
    if (send_error != EDEADLK) {
        received = recv(handler_fd, bytes, sizeof bytes, MSG_DONTWAIT);
        receive_error = received < 0 ? errno : 0;
        polled = poll(&it, 1, 0);
        handled = 1;
    }
    errno = saved;
}

static void note_use(void) {
    note("send() in the handler", sent, send_error, NULL);
    note("recv() in the handler", received, receive_error, NULL);
    note("poll() in the handler", polled, 0, NULL);
}

static void* put_when_handled(void* argument) {
    while (!handled) sleep_ms(1);
    put(*(int*)argument, "abc");
    return NULL;
}

static void use_during_recv(int to_handler[2], int fds[2]) {
    pthread_t signals, data;
    handler_fd = to_handler[1];
    handle(SIGUSR1, use_it, SA_RESTART);
    CHECK(pthread_create(&data, NULL, put_when_handled, &fds[0]) == 0);
    signals = begin_signals(SIGUSR1, 30);
    RECV(fds[1], 10, 0);
    end_signals(signals);
    join(data);
    note_use();
    RECV(to_handler[0], 7, MSG_WAITALL);
}

CASE(a_handler_uses_the_socket_during_recv) {
    int fds[2];
    make_pair(fds);
    use_during_recv(fds, fds);
    close_pair(fds);
}

CASE(a_handler_uses_another_socket_during_recv) {
    int fds[2], other[2];
    make_pair(fds);
    make_pair(other);
    use_during_recv(other, fds);
    close_pair(fds);
    close_pair(other);
}

static volatile sig_atomic_t refused;

static void send_once(int number) {
    const int saved = errno;
    (void)number;
    if (!handled && send(handler_fd, "handler", 7, 0) == 7) handled = 1;
    if (!handled) refused = refused + 1;
    errno = saved;
}

/*
 * However long the call spins before it sleeps (XSOCK_SPIN_US), and it ends. On a busy machine a
 * signal may come in the microseconds in which the call refuses; not in each of three calls.
 */
CASE(a_handler_is_not_refused_during_recv) {
    enum { CALLS = 3 };
    char bytes[10];
    int fds[2], i;
    make_pair(fds);
    handler_fd = fds[1];
    handle(SIGUSR1, send_once, 0);
    for (i = 1; i <= CALLS; i++) {
        pthread_t signals;
        handled = refused = 0;
        signals = begin_signals(SIGUSR1, 100);
        CHECK(recv(fds[1], bytes, sizeof bytes, 0) < 0 && errno == EINTR);
        end_signals(signals);
        if (refused == 0) break;
        if (handled && i < CALLS) CHECK(recv(fds[0], bytes, 7, MSG_WAITALL) == 7);
    }
    NOTE(handled);
    NOTE(refused);
    RECV(fds[0], 7, MSG_WAITALL);
    close_pair(fds);
}

CASE(a_handler_uses_the_socket_during_poll) {
    int fds[2];
    pthread_t signals;
    struct pollfd it;
    make_pair(fds);
    handler_fd = fds[1];
    handle(SIGUSR1, use_it, 0);
    signals = begin_signals(SIGUSR1, 30);
    it = (struct pollfd){fds[1], POLLIN, 0};
    while (!handled) {
        const int n = poll(&it, 1, 20000);
        CHECK(n < 0 && errno == EINTR);
    }
    end_signals(signals);
    note_use();
    RECV(fds[0], 7, MSG_WAITALL);
    close_pair(fds);
}

/* ---- the handler ends what the call waits for ---------------------------------------------------
 */
static void receive_under_signals(int fd, int number) {
    const pthread_t signals = begin_signals(number, 30);
    RECV(fd, 10, 0);
    end_signals(signals);
    NOTE(handled);
}

static void shut_it(int number) {
    const int saved = errno;
    (void)number;
    if (!handled && (shutdown(handler_fd, SHUT_RDWR) == 0 || errno != EDEADLK)) handled = 1;
    errno = saved;
}

/* As servers end: the handler of SIGTERM shuts the socket down that the program waits on. */
CASE(a_handler_shuts_the_socket_down) {
    int fds[2];
    make_pair(fds);
    handler_fd = fds[1];
    handle(SIGTERM, shut_it, SA_RESTART);
    receive_under_signals(fds[1], SIGTERM);
    RECV(fds[0], 10, 0);
    close_pair(fds);
}

static void close_it(int number) {
    const int saved = errno;
    (void)number;
    if (!handled && close(handler_fd) == 0) handled = 1;
    errno = saved;
}

CASE(a_handler_closes_another_socket) {
    int fds[2], other[2];
    make_pair(fds);
    make_pair(other);
    handler_fd = other[1];
    handle(SIGUSR1, close_it, 0);
    receive_under_signals(fds[1], SIGUSR1);
    RECV(other[0], 10, 0);
    close_pair(fds);
    CHECK(close(other[0]) == 0);
}
