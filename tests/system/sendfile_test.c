/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sendfile() and splice() with sockets that are carried as byte streams. Each case runs on plain
 * sockets, which is the kernel's answer, then on byte streams, and on those by number through
 * syscall(); results, errno and what arrived must be the same.
 *
 *   sendfile_test [CASE ...]
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "tests/support/cases.h"
#include "tests/support/monotonic.h"
#include "tests/system/kernel_notes.h"

/* How a case runs. */
static struct {
    int mode;
    int by_number;
} now;

static ssize_t send_file(int out, int in, off_t* at, size_t count) {
    errno = 0;
    if (now.by_number) return syscall(SYS_sendfile, out, in, at, count);
    return sendfile(out, in, at, count);
}

static ssize_t splice_it(int in, off64_t* in_at, int out, off64_t* out_at, size_t count,
                         unsigned flags) {
    errno = 0;
    if (now.by_number) return syscall(SYS_splice, in, in_at, out, out_at, count, flags);
    return splice(in, in_at, out, out_at, count, flags);
}

/* Results with their errno. */
static void note_result(int line, long result) { note_at(line, result, result < 0 ? errno : 0); }
#define SENDFILE(...) note_result(__LINE__, send_file(__VA_ARGS__))
#define SPLICE(...) note_result(__LINE__, splice_it(__VA_ARGS__))

static void begin_pair(int fds[2]) { pair_of(now.mode, fds); }

/* Memory that is not there, and memory that can only be read, whose number is 10. */
static off_t *nowhere, *read_only;

/* ---- bytes --------------------------------------------------------------------------------------
 * That of each place in a file, or in a stream, is known.
 */
static unsigned char byte_at(size_t at) { return (unsigned char)(at * 7 + at / 251 + at / 65521); }

static void fill(unsigned char* to, size_t at, size_t bytes) {
    size_t i;
    for (i = 0; i < bytes; i++) to[i] = byte_at(at + i);
}

/* A file of so many of them, at its begin. */
static int file_of(size_t bytes) {
    unsigned char some[1 << 16];
    const int file = memfd_create("sendfile", MFD_CLOEXEC);
    size_t at, n;
    CHECK(file >= 0);
    for (at = 0; at < bytes; at += n) {
        n = bytes - at < sizeof some ? bytes - at : sizeof some;
        fill(some, at, n);
        CHECK(write(file, some, n) == (ssize_t)n);
    }
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    return file;
}

/* The next `bytes` of the stream, or pipe, are those from `at` on. */
static void expect(int fd, size_t at, size_t bytes) {
    unsigned char some[1 << 16], wanted[1 << 16];
    while (bytes > 0) {
        const ssize_t n = read(fd, some, bytes < sizeof some ? bytes : sizeof some);
        CHECK(n > 0);
        fill(wanted, at, (size_t)n);
        CHECK(memcmp(some, wanted, (size_t)n) == 0);
        at += (size_t)n;
        bytes -= (size_t)n;
    }
}

static void expect_end(int fd) {
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
}

static void expect_nothing(int fd) {
    char byte;
    CHECK_ERROR(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

static void expect_text(int fd, const char* text) {
    char in[64];
    const size_t length = strlen(text);
    size_t got = 0;
    while (got < length) {
        const ssize_t n = read(fd, in + got, length - got);
        CHECK(n > 0);
        got += (size_t)n;
    }
    CHECK(memcmp(in, text, length) == 0);
}

static void put(int fd, const char* text) {
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static int waiting_in(int fd) {
    int bytes = -1;
    CHECK(ioctl(fd, FIONREAD, &bytes) == 0);
    return bytes;
}

static void sleep_ms(int ms) {
    const struct timespec time = {0, ms * 1000000L};
    CHECK(nanosleep(&time, NULL) == 0);
}

/* So many bytes are there to read. */
static void arrived(int fd, int bytes) {
    int i;
    for (i = 0; waiting_in(fd) < bytes; i++) {
        CHECK(i < 20000);
        sleep_ms(1);
    }
    CHECK(waiting_in(fd) == bytes);
}

static void set_nonblocking(int fd) { CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0); }

enum { LIMIT_MS = 50 };

static void limit(int fd, int name) {
    const struct timeval time = {0, LIMIT_MS * 1000};
    CHECK(setsockopt(fd, SOL_SOCKET, name, &time, sizeof time) == 0);
}

/* ---- signals ------------------------------------------------------------------------------------
 */
static volatile sig_atomic_t signals;
static void on_signal(int number) {
    (void)number;
    signals = signals + 1;
}

static void handle(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(number, &action, NULL) == 0);
    signals = 0;
}

/* ---- threads ------------------------------------------------------------------------------------
 */
struct reader {
    int fd;
    size_t bytes; /* those there were */
    pthread_t thread;
};

/* All to the end, from place 0 on. */
static void* read_all(void* argument) {
    struct reader* const r = argument;
    unsigned char some[1 << 16], wanted[1 << 16];
    ssize_t n;
    while ((n = read(r->fd, some, sizeof some)) > 0) {
        fill(wanted, r->bytes, (size_t)n);
        CHECK(memcmp(some, wanted, (size_t)n) == 0);
        r->bytes += (size_t)n;
    }
    CHECK(n == 0);
    return NULL;
}

static void start_reader(struct reader* r, int fd) {
    r->fd = fd;
    r->bytes = 0;
    CHECK(pthread_create(&r->thread, NULL, read_all, r) == 0);
}

static size_t end_reader(struct reader* r) {
    CHECK(pthread_join(r->thread, NULL) == 0);
    return r->bytes;
}

/* A call of splice() in a thread of its own. */
struct splicer {
    int in, out;
    ssize_t result;
    int error;
    pthread_t thread;
};

static void* splice_once(void* argument) {
    struct splicer* const s = argument;
    s->result = splice_it(s->in, NULL, s->out, NULL, 100, 0);
    s->error = errno;
    return NULL;
}

static void start_splicer(struct splicer* s, int in, int out) {
    s->in = in;
    s->out = out;
    CHECK(pthread_create(&s->thread, NULL, splice_once, s) == 0);
    sleep_ms(100); /* it waits by now; the case holds if it does not */
}

/* ---- sendfile: what is sent, and from where -----------------------------------------------------
 */
enum { SOME = 100000 };

CASE(positions_of_the_file) {
    int fds[2];
    const int file = file_of(SOME);
    off_t at = 1000;
    begin_pair(fds);
    SENDFILE(fds[0], file, NULL, 40000);
    VALUE(lseek(file, 0, SEEK_CUR));
    expect(fds[1], 0, 40000);
    SENDFILE(fds[0], file, &at, 5000); /* the file stays where it is */
    VALUE(at);
    VALUE(lseek(file, 0, SEEK_CUR));
    expect(fds[1], 1000, 5000);
    SENDFILE(fds[0], file, NULL, 0);
    VALUE(lseek(file, 0, SEEK_CUR));
    SENDFILE(fds[0], file, &at, 0);
    VALUE(at);
    SENDFILE(fds[0], file, NULL, 10 * SOME); /* beyond its end */
    VALUE(lseek(file, 0, SEEK_CUR));
    expect(fds[1], 40000, SOME - 40000);
    SENDFILE(fds[0], file, NULL, 10);
    at = SOME - 1;
    SENDFILE(fds[0], file, &at, 10);
    VALUE(at);
    expect(fds[1], SOME - 1, 1);
    at = SOME + 1;
    SENDFILE(fds[0], file, &at, 10);
    VALUE(at);
    expect_nothing(fds[1]);
    CHECK(close(file) == 0);
    close_pair(fds);
}

CASE(counts_that_are_huge) {
    int fds[2];
    const int file = file_of(SOME);
    off_t at = 3;
    begin_pair(fds);
    SENDFILE(fds[0], file, NULL, SIZE_MAX);
    SENDFILE(fds[0], file, NULL, (size_t)SSIZE_MAX + 1);
    SENDFILE(fds[0], file, &at, SSIZE_MAX); /* the end would be no offset */
    VALUE(at);
    VALUE(lseek(file, 0, SEEK_CUR));
    SENDFILE(fds[0], file, NULL, SSIZE_MAX);
    VALUE(lseek(file, 0, SEEK_CUR));
    expect(fds[1], 0, SOME);
    SENDFILE(fds[0], file, &at, SSIZE_MAX - 3);
    VALUE(at);
    expect(fds[1], 3, SOME - 3);
    at = -1;
    SENDFILE(fds[0], file, &at, 10);
    VALUE(at);
    expect_nothing(fds[1]);
    CHECK(close(file) == 0);
    close_pair(fds);
}

/* The bytes have gone, but what the call says is that the number could not be stored. */
CASE(offsets_that_are_not_there) {
    int fds[2];
    const int file = file_of(SOME);
    begin_pair(fds);
    SENDFILE(fds[0], file, nowhere, 10);
    SENDFILE(fds[0], file, nowhere, 0);
    SENDFILE(fds[0], -1, nowhere, 10);
    expect_nothing(fds[1]);
    SENDFILE(fds[0], file, read_only, 100);
    expect(fds[1], 10, 100);
    SENDFILE(fds[0], -1, read_only, 100);
    VALUE(lseek(file, 0, SEEK_CUR));
    CHECK(close(file) == 0);
    close_pair(fds);
}

CASE(files_that_cannot_be_sent) {
    int fds[2], pipes[2], other[2], plain[2], more[2];
    size_t i;
    begin_pair(fds);
    begin_pair(more);
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
    pair_of(DDPMODE_OFF, plain);
    put(pipes[1], "pipe"), put(other[1], "unix"), put(plain[1], "tcp"), put(more[1], "more");
    {
        const int files[] = {-1,
                             12345,
                             open("/dev/null", O_WRONLY),
                             open("/tmp", O_PATH),
                             open("/proc/self/exe", O_PATH),
                             open("/tmp", O_RDONLY | O_DIRECTORY),
                             pipes[0],
                             pipes[1],
                             other[0],
                             plain[0],
                             more[0],
                             fds[0],
                             epoll_create1(0)};
        for (i = 0; i < sizeof files / sizeof *files; i++) {
            off_t at = 0;
            if (i >= 2) CHECK(files[i] >= 0);
            SENDFILE(fds[0], files[i], NULL, 10);
            SENDFILE(fds[0], files[i], &at, 10);
            SENDFILE(fds[0], files[i], NULL, 0);
            SENDFILE(fds[0], files[i], NULL, SIZE_MAX);
            VALUE(at);
        }
        close(files[2]), close(files[3]), close(files[4]), close(files[5]), close(files[12]);
    }
    expect_nothing(fds[1]);
    /* What was in them is in them. */
    expect_text(pipes[0], "pipe"), expect_text(other[0], "unix");
    expect_text(plain[0], "tcp"), expect_text(more[0], "more");
    close_pair(pipes), close_pair(other), close_pair(plain), close_pair(more), close_pair(fds);
}

/* The socket is the file that is read: the kernel moves its bytes to a pipe, and to nothing else.
 */
CASE(sockets_are_sent_to_pipes_only) {
    int fds[2], pipes[2];
    off_t at = 0;
    const int file = memfd_create("sendfile", 0);
    begin_pair(fds);
    CHECK(file >= 0 && pipe(pipes) == 0);
    put(fds[1], "text of a socket");
    arrived(fds[0], 16);
    SENDFILE(file, fds[0], NULL, 4);
    SENDFILE(file, fds[0], &at, 4);
    SENDFILE(-1, fds[0], NULL, 4);
    SENDFILE(-1, fds[0], &at, 4);
    SENDFILE(pipes[1], fds[0], &at, 4);
    SENDFILE(pipes[1], fds[0], nowhere, 4);
    SENDFILE(pipes[0], fds[0], NULL, 4);
    SENDFILE(pipes[1], fds[0], NULL, 0);
    SENDFILE(pipes[1], fds[0], NULL, SIZE_MAX);
    SENDFILE(pipes[1], fds[0], NULL, 5);
    expect_text(pipes[0], "text ");
    SENDFILE(pipes[1], fds[0], NULL, 100);
    expect_text(pipes[0], "of a socket");
    set_nonblocking(fds[0]);
    SENDFILE(pipes[1], fds[0], NULL, 100);
    CHECK(close(file) == 0);
    close_pair(pipes), close_pair(fds);
}

CASE(a_device) {
    int fds[2];
    char in[64], zeros[64] = "";
    const int zero = open("/dev/zero", O_RDONLY);
    off_t at = 100;
    begin_pair(fds);
    CHECK(zero >= 0);
    SENDFILE(fds[0], zero, NULL, 30);
    SENDFILE(fds[0], zero, &at, 34);
    CHECK(recv(fds[1], in, 64, MSG_WAITALL) == 64 && memcmp(in, zeros, 64) == 0);
    CHECK(close(zero) == 0);
    close_pair(fds);
}

CASE(a_large_file) {
    enum { LARGE = 64 << 20 };
    int fds[2];
    const int file = file_of(LARGE);
    struct reader reader;
    size_t sent = 0;
    begin_pair(fds);
    start_reader(&reader, fds[1]);
    while (sent < LARGE) {
        const ssize_t n = send_file(fds[0], file, NULL, LARGE - sent);
        CHECK(n > 0);
        sent += (size_t)n;
    }
    VALUE(lseek(file, 0, SEEK_CUR));
    VALUE(send_file(fds[0], file, NULL, 1));
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    VALUE(end_reader(&reader));
    CHECK(close(file) == 0);
    close_pair(fds);
}

/* ---- sendfile: partly ---------------------------------------------------------------------------
 * How much fits in differs.
 */
enum { MUCH = 24 << 20 };

/* Until nothing more goes: the errno. */
static int send_until_full(int fd, int file) {
    for (;;) {
        const off_t before = lseek(file, 0, SEEK_CUR);
        const ssize_t n = send_file(fd, file, NULL, MUCH);
        CHECK(lseek(file, 0, SEEK_CUR) == before + (n > 0 ? n : 0));
        CHECK(n != 0 && n < MUCH);
        if (n < 0) return errno;
    }
}

/* A receiver that is slow, or has not run yet, makes room once more. */
static void until_it_stays_full(int fd, int file, off_t* at) {
    int quiet;
    for (quiet = 0; quiet < 10; quiet++) {
        if (send_file(fd, file, at, 100000) > 0) quiet = 0;
        sleep_ms(20);
    }
}

CASE(a_full_socket_that_does_not_block) {
    int fds[2];
    const int file = file_of(MUCH);
    struct reader reader;
    off_t at;
    begin_pair(fds);
    set_nonblocking(fds[0]);
    VALUE(send_until_full(fds[0], file));
    at = lseek(file, 0, SEEK_CUR);
    until_it_stays_full(fds[0], file, &at);
    CHECK(at > 0 && at < MUCH);
    {
        const off_t full = at;
        VALUE(send_file(fds[0], file, &at, 100000));
        CHECK(errno == EAGAIN && at == full);
    }
    start_reader(&reader, fds[1]);
    while (at < MUCH) {
        struct pollfd p = {fds[0], POLLOUT, 0};
        ssize_t n;
        CHECK(poll(&p, 1, 20000) == 1);
        n = send_file(fds[0], file, &at, MUCH);
        CHECK(n > 0 || (n < 0 && errno == EAGAIN));
    }
    VALUE(send_file(fds[0], file, &at, MUCH));
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    VALUE(end_reader(&reader));
    CHECK(close(file) == 0);
    close_pair(fds);
}

CASE(a_time_limit) {
    int fds[2];
    const int file = file_of(MUCH);
    struct reader reader;
    begin_pair(fds);
    limit(fds[0], SO_SNDTIMEO);
    VALUE(send_until_full(fds[0], file));
    start_reader(&reader, fds[1]);
    while (lseek(file, 0, SEEK_CUR) < MUCH) {
        const long long begin = monotonic_ms();
        const ssize_t n = send_file(fds[0], file, NULL, MUCH);
        CHECK(n > 0 || (n < 0 && errno == EAGAIN && monotonic_ms() - begin >= LIMIT_MS - 1));
    }
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    VALUE(end_reader(&reader));
    CHECK(close(file) == 0);
    close_pair(fds);
}

/* Ticks go on, so that none is too early. */
static void tick(int on) {
    const struct itimerval every = {{0, on ? 20000 : 0}, {0, on ? 20000 : 0}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

CASE(a_signal_interrupts) {
    int fds[2];
    const int file = file_of(MUCH);
    struct reader reader;
    begin_pair(fds);
    handle(SIGALRM, on_signal);
    tick(1);
    VALUE(send_until_full(fds[0], file));
    CHECK(signals > 0);
    tick(0);
    start_reader(&reader, fds[1]);
    while (lseek(file, 0, SEEK_CUR) < MUCH) CHECK(send_file(fds[0], file, NULL, MUCH) > 0);
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    VALUE(end_reader(&reader));
    CHECK(close(file) == 0);
    close_pair(fds);
}

/* ---- sendfile and splice: ends ------------------------------------------------------------------
 */
CASE(a_half_that_is_shut) {
    int fds[2], pipes[2];
    const int file = file_of(SOME);
    off_t at = 5;
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    handle(SIGPIPE, on_signal);
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    SENDFILE(fds[0], file, NULL, 10);
    VALUE(signals);
    SENDFILE(fds[0], file, &at, 10);
    VALUE(at);
    VALUE(lseek(file, 0, SEEK_CUR));
    VALUE(signals);
    SENDFILE(fds[0], file, NULL, 0);
    CHECK(lseek(file, 0, SEEK_END) == SOME);
    SENDFILE(fds[0], file, NULL, 10);
    VALUE(signals);
    put(pipes[1], "stays");
    SPLICE(pipes[0], NULL, fds[0], NULL, 10, 0);
    VALUE(waiting_in(pipes[0]));
    CHECK(signals > 0);
    expect_end(fds[1]);
    CHECK(close(file) == 0);
    close_pair(pipes), close_pair(fds);
}

CASE(a_peer_that_has_gone) {
    int fds[2];
    const int file = file_of(MUCH);
    begin_pair(fds);
    handle(SIGPIPE, on_signal);
    CHECK(close(fds[1]) == 0);
    for (;;) {
        off_t at = 0;
        const ssize_t n = send_file(fds[0], file, &at, 1000);
        if (n < 0) break;
        CHECK(n > 0 && n <= 1000);
        sleep_ms(1);
    }
    CHECK(errno == EPIPE || errno == ECONNRESET);
    SENDFILE(fds[0], file, NULL, 10);
    CHECK(signals > 0);
    VALUE(lseek(file, 0, SEEK_CUR));
    CHECK(close(fds[0]) == 0 && close(file) == 0);
}

/* The connection goes while a call waits: part of it went, and the next call is told. */
static void* reset_later(void* argument) {
    const struct linger now_at_once = {1, 0};
    const int fd = *(const int*)argument;
    sleep_ms(200);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now_at_once, sizeof now_at_once) == 0);
    CHECK(close(fd) == 0);
    return NULL;
}

CASE(a_reset_behind_a_part) {
    int fds[2];
    const int file = file_of(MUCH);
    pthread_t thread;
    ssize_t n;
    begin_pair(fds);
    handle(SIGPIPE, on_signal);
    CHECK(pthread_create(&thread, NULL, reset_later, &fds[1]) == 0);
    n = send_file(fds[0], file, NULL, MUCH);
    CHECK(n > 0 && n < MUCH && lseek(file, 0, SEEK_CUR) == n);
    CHECK(pthread_join(thread, NULL) == 0);
    n = send_file(fds[0], file, NULL, MUCH);
    CHECK(n < 0 && (errno == EPIPE || errno == ECONNRESET));
    if (now.mode != DDPMODE_OFF) CHECK(errno == ECONNRESET && signals == 0);
    SENDFILE(fds[0], file, NULL, MUCH);
    CHECK(signals > 0);
    CHECK(close(fds[0]) == 0 && close(file) == 0);
}

/* ---- splice -------------------------------------------------------------------------------------
 */
CASE(from_a_pipe) {
    int fds[2], pipes[2];
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    put(pipes[1], "hello");
    SPLICE(pipes[0], NULL, fds[0], NULL, 100, 0);
    expect_text(fds[1], "hello");
    put(pipes[1], "two parts");
    SPLICE(pipes[0], NULL, fds[0], NULL, 4, SPLICE_F_MORE | SPLICE_F_MOVE);
    SPLICE(pipes[0], NULL, fds[0], NULL, 100, SPLICE_F_GIFT | SPLICE_F_NONBLOCK);
    expect_text(fds[1], "two parts");
    SPLICE(pipes[0], NULL, fds[0], NULL, 100, SPLICE_F_NONBLOCK);
    set_nonblocking(pipes[0]);
    SPLICE(pipes[0], NULL, fds[0], NULL, 100, 0);
    put(pipes[1], "the last");
    CHECK(close(pipes[1]) == 0);
    SPLICE(pipes[0], NULL, fds[0], NULL, 100, SPLICE_F_MORE);
    expect_text(fds[1], "the last");
    SPLICE(pipes[0], NULL, fds[0], NULL, 100, 0);
    CHECK(close(pipes[0]) == 0);
    close_pair(fds);
}

CASE(to_a_pipe) {
    int fds[2], pipes[2];
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    put(fds[1], "hello");
    arrived(fds[0], 5);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0);
    expect_text(pipes[0], "hello");
    put(fds[1], "two parts");
    arrived(fds[0], 9);
    SPLICE(fds[0], NULL, pipes[1], NULL, 4, SPLICE_F_NONBLOCK);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_MORE | SPLICE_F_GIFT);
    expect_text(pipes[0], "two parts");
    limit(fds[0], SO_RCVTIMEO);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK); /* of the pipe */
    set_nonblocking(fds[0]);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0);
    put(fds[1], "the last");
    CHECK(shutdown(fds[1], SHUT_WR) == 0);
    {
        struct pollfd p = {fds[0], POLLRDHUP, 0};
        CHECK(poll(&p, 1, 20000) == 1);
    }
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0);
    expect_text(pipes[0], "the last");
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0);
    close_pair(pipes), close_pair(fds);
}

CASE(a_pipe_that_is_full) {
    int fds[2], pipes[2];
    char page[PIPE_BUF];
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    handle(SIGPIPE, on_signal);
    set_nonblocking(pipes[1]);
    memset(page, 0, sizeof page);
    while (write(pipes[1], page, sizeof page) > 0) {
    }
    put(fds[1], "behind it");
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0);
    CHECK(fcntl(pipes[1], F_SETFL, 0) == 0);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK);
    expect_text(fds[0], "behind it");
    put(fds[1], "again");
    arrived(fds[0], 5);
    CHECK(read(pipes[0], page, sizeof page) == sizeof page);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK);
    CHECK(close(pipes[0]) == 0);
    put(fds[1], "nobody");
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0);
    VALUE(signals);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK);
    VALUE(signals);
    expect_text(fds[0], "nobody");
    set_nonblocking(fds[0]);
    SPLICE(fds[0], NULL, pipes[1], NULL, 100, 0); /* that comes before there is nothing to read */
    VALUE(signals);
    CHECK(close(pipes[1]) == 0);
    close_pair(fds);
}

CASE(ends_that_do_not_fit) {
    int fds[2], more[2], pipes[2], other[2];
    const int file = file_of(SOME);
    const int path = open("/proc/self/exe", O_PATH), write_only = open("/dev/null", O_WRONLY);
    off64_t zero = 0, at = 5;
    off64_t* const bad = (off64_t*)nowhere;
    begin_pair(fds);
    begin_pair(more);
    CHECK(file >= 0 && path >= 0 && write_only >= 0 && pipe(pipes) == 0 && pipe(other) == 0);
    put(pipes[1], "stays"), put(fds[1], "too");
    arrived(fds[0], 3);
    {
        const int ends[] = {-1, path, file, write_only, more[0], fds[0], pipes[0], pipes[1]};
        off64_t* const offsets[] = {NULL, &zero, &at, bad};
        const size_t counts[] = {0, SIZE_MAX};
        size_t i, k;
        for (i = 0; i < sizeof ends / sizeof *ends; i++) {
            for (k = 0; k < 2; k++) {
                SPLICE(ends[i], NULL, fds[0], NULL, counts[k], 0);
                SPLICE(fds[0], NULL, ends[i], NULL, counts[k], 0);
            }
            SPLICE(ends[i], NULL, fds[0], NULL, 10, 1 << 4);
            SPLICE(fds[0], NULL, ends[i], NULL, 10, 1 << 4);
            SPLICE(ends[i], NULL, fds[0], NULL, 0, 1 << 4);
            for (k = ends[i] == pipes[0] ? 1 : 0; k < 4; k++) {
                SPLICE(ends[i], offsets[k], fds[0], NULL, 10, 0);
                SPLICE(ends[i], NULL, fds[0], offsets[k == 0 ? 1 : k], 10, 0);
                SPLICE(ends[i], offsets[k], fds[0], offsets[3], 10, 0);
            }
            for (k = ends[i] == pipes[1] ? 1 : 0; k < 4; k++) {
                SPLICE(fds[0], NULL, ends[i], offsets[k], 10, 0);
                SPLICE(fds[0], offsets[k == 0 ? 1 : k], ends[i], NULL, 10, 0);
                SPLICE(fds[0], offsets[3], ends[i], offsets[k], 10, 0);
            }
            VALUE(at);
            VALUE(zero);
        }
    }
    VALUE(waiting_in(pipes[0]));
    VALUE(waiting_in(fds[0]));
    expect_nothing(fds[1]);
    CHECK(close(file) == 0 && close(path) == 0 && close(write_only) == 0);
    close_pair(pipes), close_pair(other), close_pair(more), close_pair(fds);
}

/* ---- splice: much, and waiting ------------------------------------------------------------------
 */
static void* connect_small(void* argument) {
    struct connecting* const c = argument;
    const int small = 5000;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(c->fd >= 0);
    if (c->mode != DDPMODE_OFF) set_ddpmode(c->fd, c->mode);
    CHECK(setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(connect(c->fd, (struct sockaddr*)&c->address, sizeof c->address) == 0);
    return NULL;
}

/* That of fds[0] has little room to send. */
static void begin_small_pair(int fds[2]) {
    struct connecting c = {.mode = now.mode};
    const int from = listener(&c.address, now.mode), require = 1;
    pthread_t thread;
    if (now.mode != DDPMODE_OFF) {
        CHECK(setsockopt(from, SOL_XSOCK, DDPREQUIRE, &require, sizeof require) == 0);
    }
    CHECK(pthread_create(&thread, NULL, connect_small, &c) == 0);
    fds[1] = accept(from, NULL, NULL);
    CHECK(fds[1] >= 0 && pthread_join(thread, NULL) == 0 && close(from) == 0);
    fds[0] = c.fd;
}

CASE(a_file_from_the_first_byte_on) {
    int fds[2];
    const int file = file_of(SOME);
    struct reader reader;
    begin_small_pair(fds);
    start_reader(&reader, fds[1]);
    SENDFILE(fds[0], file, NULL, SOME);
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    VALUE(end_reader(&reader));
    CHECK(close(file) == 0);
    close_pair(fds);
}

static void fill_and_drain(void begin(int fds[2])) {
    int fds[2], pipes[2];
    unsigned char page[PIPE_BUF];
    struct reader reader;
    size_t put_in = 0, taken = 0;
    int full = 0;
    begin(fds);
    CHECK(pipe(pipes) == 0);
    set_nonblocking(fds[0]), set_nonblocking(pipes[1]);
    while (!full) {
        ssize_t n;
        for (;; put_in += sizeof page) {
            fill(page, put_in, sizeof page);
            if (write(pipes[1], page, sizeof page) != sizeof page) break;
        }
        n = splice_it(pipes[0], NULL, fds[0], NULL, SSIZE_MAX, 0);
        if (n < 0) {
            struct pollfd p = {fds[0], POLLOUT, 0};
            CHECK(errno == EAGAIN);
            full = poll(&p, 1, 300) == 0;
        }
        if (n > 0) taken += (size_t)n;
        CHECK((size_t)waiting_in(pipes[0]) == put_in - taken);
    }
    start_reader(&reader, fds[1]);
    CHECK(close(pipes[1]) == 0);
    for (;;) {
        struct pollfd p = {fds[0], POLLOUT, 0};
        ssize_t n;
        CHECK(poll(&p, 1, 20000) == 1);
        n = splice_it(pipes[0], NULL, fds[0], NULL, SSIZE_MAX, 0);
        if (n == 0) break;
        CHECK(n > 0 || errno == EAGAIN);
        if (n > 0) taken += (size_t)n;
    }
    CHECK(shutdown(fds[0], SHUT_WR) == 0);
    CHECK(taken == put_in && end_reader(&reader) == put_in);
    CHECK(close(pipes[0]) == 0);
    close_pair(fds);
}

CASE(nothing_of_a_pipe_is_lost_to_a_full_socket) {
    fill_and_drain(begin_pair);
    fill_and_drain(begin_small_pair);
}

struct source {
    int fd, file;
};

static void* send_source(void* argument) {
    const struct source* const f = argument;
    while (send_file(f->fd, f->file, NULL, MUCH) > 0) {
    }
    CHECK(lseek(f->file, 0, SEEK_CUR) == MUCH && shutdown(f->fd, SHUT_WR) == 0);
    return NULL;
}

/* A proxy: from one connection to another, by a pipe. */
CASE(a_proxy) {
    int from[2], to[2], pipes[2];
    struct source source = {.file = file_of(MUCH)};
    struct reader reader;
    pthread_t thread;
    ssize_t n;
    begin_pair(from), begin_pair(to);
    CHECK(pipe(pipes) == 0);
    source.fd = from[0];
    CHECK(pthread_create(&thread, NULL, send_source, &source) == 0);
    start_reader(&reader, to[1]);
    while ((n = splice_it(from[1], NULL, pipes[1], NULL, 1 << 20, SPLICE_F_MOVE)) > 0) {
        while (n > 0) {
            const ssize_t sent =
                splice_it(pipes[0], NULL, to[0], NULL, (size_t)n, SPLICE_F_MOVE | SPLICE_F_MORE);
            CHECK(sent > 0);
            n -= sent;
        }
    }
    CHECK(n == 0 && shutdown(to[0], SHUT_WR) == 0);
    VALUE(end_reader(&reader));
    CHECK(pthread_join(thread, NULL) == 0 && close(source.file) == 0);
    close_pair(pipes), close_pair(from), close_pair(to);
}

CASE(it_waits_for_the_pipe) {
    int fds[2], pipes[2];
    struct splicer s;
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    start_splicer(&s, pipes[0], fds[0]);
    put(pipes[1], "late");
    CHECK(pthread_join(s.thread, NULL) == 0);
    VALUE(s.result);
    expect_text(fds[1], "late");
    start_splicer(&s, pipes[0], fds[0]);
    CHECK(close(pipes[1]) == 0);
    CHECK(pthread_join(s.thread, NULL) == 0);
    VALUE(s.result);
    CHECK(close(pipes[0]) == 0);
    close_pair(fds);
}

CASE(it_waits_for_the_stream) {
    int fds[2], pipes[2];
    struct splicer s;
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    start_splicer(&s, fds[0], pipes[1]);
    put(fds[1], "late");
    CHECK(pthread_join(s.thread, NULL) == 0);
    VALUE(s.result);
    expect_text(pipes[0], "late");
    start_splicer(&s, fds[0], pipes[1]);
    CHECK(shutdown(fds[1], SHUT_WR) == 0);
    CHECK(pthread_join(s.thread, NULL) == 0);
    VALUE(s.result);
    close_pair(pipes), close_pair(fds);
}

/* The socket is closed under a call that waits for the pipe: that has it still. */
CASE(it_is_closed_while_it_waits) {
    int fds[2], pipes[2];
    struct splicer s;
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    start_splicer(&s, pipes[0], fds[0]);
    CHECK(close(fds[0]) == 0);
    put(pipes[1], "late");
    CHECK(pthread_join(s.thread, NULL) == 0);
    VALUE(s.result);
    expect_text(fds[1], "late");
    expect_end(fds[1]);
    CHECK(close(fds[1]) == 0);
    close_pair(pipes);
}

static int used_by_handler;
static void on_signal_send(int number) {
    if (signals == 0) CHECK(send(used_by_handler, "handler", 7, 0) == 7);
    on_signal(number);
}

CASE(a_handler_interrupts_the_wait_for_a_pipe) {
    int fds[2], pipes[2];
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    used_by_handler = fds[0];
    handle(SIGALRM, on_signal_send);
    tick(1);
    SPLICE(pipes[0], NULL, fds[0], NULL, 100, 0);
    tick(0);
    CHECK(signals > 0);
    expect_text(fds[1], "handler");
    close_pair(pipes), close_pair(fds);
}

CASE(a_thread_is_cancelled_in_it) {
    int fds[2], pipes[2];
    struct splicer s;
    void* result = NULL;
    if (now.by_number) return; /* no cancellation point */
#ifdef __SANITIZE_ADDRESS__
    return; /* to it the stack of a thread that was cancelled stays in use */
#endif
    begin_pair(fds);
    CHECK(pipe(pipes) == 0);
    start_splicer(&s, pipes[0], fds[0]);
    CHECK(pthread_cancel(s.thread) == 0);
    CHECK(pthread_join(s.thread, &result) == 0 && result == PTHREAD_CANCELED);
    put(pipes[1], "for the next");
    CHECK(splice_it(pipes[0], NULL, fds[0], NULL, 100, 0) == 12);
    expect_text(fds[1], "for the next");
    /* It holds the socket no more. */
    CHECK(close(fds[0]) == 0);
    expect_end(fds[1]);
    CHECK(close(fds[1]) == 0);
    close_pair(pipes);
}

/* ---- running ------------------------------------------------------------------------------------
 */
static void run_in(const struct test_case* one, const char* way, int mode, int by_number) {
    notes_begin(way);
    now.mode = mode, now.by_number = by_number;
    signal(SIGPIPE, SIG_DFL);
    one->run();
    notes_end();
}

static void run_case(const struct test_case* one) {
    printf("%s\n", one->name);
    fflush(stdout);
    alarm(300);
    run_in(one, NULL, DDPMODE_OFF, 0);
    run_in(one, "byte streams", DDPMODE_STREAM, 0);
    run_in(one, "byte streams, by number", DDPMODE_STREAM, 1);
}

int main(int argc, char** argv) {
    nowhere = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    read_only =
        mmap(NULL, sizeof *read_only, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK((void*)nowhere != MAP_FAILED && (void*)read_only != MAP_FAILED);
    *read_only = 10;
    CHECK(mprotect(read_only, sizeof *read_only, PROT_READ) == 0);
    return for_cases(argc, argv, run_case);
}
