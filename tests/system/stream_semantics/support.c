/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The transcript, and what cases share. */
#include <stdatomic.h>
#include <time.h>

#include "tests/system/stream_semantics/semantics.h"

enum { PATIENCE_MS = 20000, MOST_SHOWN = 64 };

int is_carried;

/* ---- the transcript ---------------------------------------------------------------------------
 */
void note(const char* label, long value, int error, const char* more) {
    printf("%s = %ld", label, value);
    if (error != 0) printf(" %s", strerrorname_np(error));
    if (more != NULL) printf(" %s", more);
    printf("\n");
    fflush(stdout);
}

/* Bytes as text, the first of them. */
static void to_text(const char* bytes, size_t count, char* text) {
    size_t i;
    *text++ = '"';
    for (i = 0; i < count && i < MOST_SHOWN; i++) {
        const char c = bytes[i];
        *text++ = c >= ' ' && c <= '~' ? c : '?';
    }
    strcpy(text, count > MOST_SHOWN ? "\"..." : "\"");
}

void note_recv(const char* label, int fd, size_t bytes, int flags) {
    char room[4096], text[MOST_SHOWN + 8] = "";
    ssize_t n;
    CHECK(bytes <= sizeof room);
    memset(room, '-', sizeof room);
    errno = 0;
    n = recv(fd, room, bytes, flags);
    if (n >= 0) to_text(room, (size_t)n < bytes ? (size_t)n : bytes, text);
    note(label, n, n < 0 ? errno : 0, n >= 0 ? text : NULL);
}

void note_text(const char* label, const char* text) {
    char shown[MOST_SHOWN + 8];
    to_text(text, strlen(text), shown);
    note(label, 0, 0, shown);
}

void note_events(const char* label, int fd) {
    static const struct {
        short bit;
        const char* name;
    } names[] = {{POLLIN, "IN"},   {POLLPRI, "PRI"}, {POLLOUT, "OUT"},  {POLLRDHUP, "RDHUP"},
                 {POLLHUP, "HUP"}, {POLLERR, "ERR"}, {POLLNVAL, "NVAL"}};
    struct pollfd it = {fd, POLLIN | POLLPRI | POLLOUT | POLLRDHUP, 0};
    char text[64] = "";
    size_t i;
    const int n = poll(&it, 1, 0);
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        if ((it.revents & names[i].bit) == 0) continue;
        if (*text != '\0') strcat(text, "|");
        strcat(text, names[i].name);
    }
    note(label, n, 0, text);
}

void note_option(const char* label, int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    errno = 0;
    if (getsockopt(fd, level, name, &value, &length) != 0) {
        note(label, -1, errno, NULL);
    } else {
        note(label, value, 0, length == sizeof value ? NULL : "of another length");
    }
}

void note_set_option(const char* label, int fd, int level, int name, int value) {
    const int result = set_option(fd, level, name, value);
    note(label, result, result < 0 ? errno : 0, NULL);
}

/* ---- sockets ----------------------------------------------------------------------------------
 */
int make_socket(void) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    return fd;
}

int make_listener(struct sockaddr_in* address) {
    socklen_t length = sizeof *address;
    const int fd = make_socket();
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(fd, (struct sockaddr*)address, length) == 0 && listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr*)address, &length) == 0);
    return fd;
}

int goes_by_iwarp(int fd) {
    struct xsock_status status = {.size = sizeof status};
    socklen_t length = sizeof status;
    return getsockopt(fd, SOL_XSOCK, DDPSTATUS, &status, &length) == 0 &&
           status.mode == DDPMODE_STREAM && status.state == XSOCK_STATUS_OPEN;
}

static void say(int from, int to) {
    char bytes[8];
    CHECK(send(from, "hello", 5, 0) == 5);
    CHECK(recv(to, bytes, 5, MSG_WAITALL) == 5 && memcmp(bytes, "hello", 5) == 0);
}

void make_pair_with(int fds[2], int level, int name, int value) {
    struct sockaddr_in address;
    const int from = make_socket();
    socklen_t length = sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = make_socket();
    if (name != 0) {
        CHECK(set_option(from, level, name, value) == 0);
        CHECK(set_option(fds[0], level, name, value) == 0);
    }
    CHECK(bind(from, (struct sockaddr*)&address, length) == 0 && listen(from, 16) == 0);
    CHECK(getsockname(from, (struct sockaddr*)&address, &length) == 0);
    CHECK(connect(fds[0], (struct sockaddr*)&address, sizeof address) == 0);
    fds[1] = accept(from, NULL, NULL);
    CHECK(fds[1] >= 0 && close(from) == 0);
    say(fds[0], fds[1]);
    say(fds[1], fds[0]);
    CHECK(goes_by_iwarp(fds[0]) == is_carried && goes_by_iwarp(fds[1]) == is_carried);
}

void make_pair(int fds[2]) { make_pair_with(fds, 0, 0, 0); }

void close_pair(int fds[2]) { CHECK(close(fds[0]) == 0 && close(fds[1]) == 0); }

int set_option(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

void set_nonblocking(int fd) { CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0); }

void set_time_limit(int fd, int name, int ms) {
    const struct timeval time = {ms / 1000, ms % 1000 * 1000L};
    CHECK(setsockopt(fd, SOL_SOCKET, name, &time, sizeof time) == 0);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */
void sleep_ms(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) CHECK(errno == EINTR);
}

long now_ms(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int waiting_in(int fd) {
    int bytes = -1;
    CHECK(ioctl(fd, FIONREAD, &bytes) == 0);
    return bytes;
}

void arrived(int fd, int bytes) {
    int i;
    for (i = 0; waiting_in(fd) < bytes; i++) {
        CHECK(i < PATIENCE_MS);
        sleep_ms(1);
    }
}

void until(int fd, short events) {
    struct pollfd it = {fd, events, 0};
    int n;
    do {
        n = poll(&it, 1, PATIENCE_MS);
    } while (n < 0 && errno == EINTR);
    CHECK(n == 1);
}

void put(int fd, const char* text) {
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

long fill(int fd) {
    static const char block[64 * 1024];
    long sent = 0;
    int quiet;
    for (quiet = 0; quiet < 10;) {
        const ssize_t n = send(fd, block, sizeof block, MSG_DONTWAIT);
        if (n > 0) {
            sent += n;
            quiet = 0;
            continue;
        }
        CHECK(errno == EAGAIN);
        sleep_ms(30);
        quiet++;
    }
    return sent;
}

void take(int fd, long bytes) {
    static char block[64 * 1024];
    while (bytes > 0) {
        const ssize_t n =
            recv(fd, block, bytes < (long)sizeof block ? (size_t)bytes : sizeof block, 0);
        CHECK(n > 0);
        bytes -= n;
    }
}

struct later {
    int fd, ms, signal;
    const char* text;
    pthread_t thread;
};

static pthread_t start(void* (*run)(void*), struct later of) {
    struct later* const it = malloc(sizeof *it);
    pthread_t thread;
    CHECK(it != NULL);
    *it = of;
    CHECK(pthread_create(&thread, NULL, run, it) == 0);
    return thread;
}

static void* do_put(void* argument) {
    struct later* const it = argument;
    sleep_ms(it->ms);
    put(it->fd, it->text);
    free(it);
    return NULL;
}

pthread_t put_later(int fd, const char* text, int ms) {
    return start(do_put, (struct later){.fd = fd, .text = text, .ms = ms});
}

static atomic_int signals_end;

static void* do_signal(void* argument) {
    struct later* const it = argument;
    for (;;) {
        sleep_ms(it->ms);
        if (atomic_load(&signals_end)) break;
        CHECK(pthread_kill(it->thread, it->signal) == 0);
    }
    free(it);
    return NULL;
}

pthread_t begin_signals(int signal, int ms) {
    atomic_store(&signals_end, 0);
    return start(do_signal, (struct later){.signal = signal, .ms = ms, .thread = pthread_self()});
}

void end_signals(pthread_t thread) {
    atomic_store(&signals_end, 1);
    join(thread);
}

void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }

void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    CHECK(sigaction(signal, &action, NULL) == 0);
}
