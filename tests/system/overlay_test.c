/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What programs do to descriptors and processes, with DDPMODE sockets among them: dup, close,
 * close_range, fork, vfork, posix_spawn, exec, SCM_RIGHTS, stdio, system calls by number, signal
 * handlers, threads. Calls libc alone: run under the preload library, linked with libxsock.so, or
 * both.
 *
 *   overlay_test [CASE ...]
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/cases.h"
#include "tests/support/monotonic.h"
#include "tests/system/overlay_pair.h"

extern char** environ;

/* ---- cases --------------------------------------------------------------------------------------
 */
CASE(plain) {
    int fds[2];
    char bytes[64];
    pair_of(0, fds);
    CHECK(write(fds[0], "one", 3) == 3 && write(fds[0], "two", 3) == 3);
    CHECK(recv(fds[1], bytes, 6, MSG_WAITALL) == 6 && memcmp(bytes, "onetwo", 6) == 0);
    CHECK_ERROR(recv(fds[1], bytes, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_ERROR(read(-1, bytes, 1), EBADF);
    CHECK_ERROR(close(-1), EBADF);
    CHECK_ERROR(fcntl(-1, F_GETFL), EBADF);
    close_pair(fds);
}

/* Whether the first option of DDPMODE reads a folder (/proc/self/fd) behind a dup of `original`:
 * that ends the child. */
static int searches_behind_dup_of(int original) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getdents64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    const pid_t child = fork();
    int status;
    CHECK(child >= 0);
    if (child == 0) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(fd >= 0 && dup(original) >= 0);
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        ddpmode(fd);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) return 1;
    CHECK(status == 0);
    return 0;
}

/* A search takes the longer the more descriptors there are, for each socket: it is made where one
 * may have a namesake, or be in a set of that many names. */
CASE(copies_of_files_make_no_search) {
    const int set = epoll_create1(0), plain = socket(AF_INET, SOCK_STREAM, 0);
    const int null = open("/dev/null", O_RDONLY), local = socket(AF_UNIX, SOCK_STREAM, 0);
    int ends[2];
    CHECK(set >= 0 && plain >= 0 && null >= 0 && local >= 0 && pipe(ends) == 0);
    CHECK(!searches_behind_dup_of(ends[0]));
    CHECK(!searches_behind_dup_of(null));
    CHECK(!searches_behind_dup_of(local));
    CHECK(searches_behind_dup_of(plain));
    CHECK(searches_behind_dup_of(set));
    CHECK(close(set) == 0 && close(plain) == 0 && close(null) == 0 && close(local) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

CASE(shared_by_dup) {
    int fds[2], copy, high;
    pair_of(1, fds);
    copy = dup(fds[0]);
    CHECK(copy >= 0 && mode_of(copy) == DDPMODE_MESSAGE);
    exchange(copy, fds[1]);
    CHECK(close(fds[0]) == 0);
    exchange(copy, fds[1]);
    high = fcntl(copy, F_DUPFD_CLOEXEC, 700);
    CHECK(high >= 700 && close(copy) == 0);
    exchange(fds[1], high);
    CHECK(dup2(high, 701) == 701 && dup3(701, 702, O_CLOEXEC) == 702);
    CHECK(close(high) == 0 && close(701) == 0);
    exchange(702, fds[1]);
    CHECK_ERROR(dup3(702, 702, 0), EINVAL);
    CHECK(dup2(702, 702) == 702);
    /* The last one is the end of file of the other side. */
    CHECK(close(702) == 0);
    {
        char byte;
        CHECK(recv(fds[1], &byte, 1, 0) == 0);
    }
    CHECK(close(fds[1]) == 0);
}

CASE(dup_before_ddpmode) {
    struct sockaddr_in address;
    const int fd = listener(&address, 0);
    const int copy = dup(fd);
    CHECK(copy >= 0);
    ddpmode(copy);
    CHECK(mode_of(fd) == DDPMODE_MESSAGE);
    CHECK(close(copy) == 0 && mode_of(fd) == DDPMODE_MESSAGE && close(fd) == 0);
}

/* Where a server's output goes, for example. */
CASE(dup_onto_standard_descriptors_before_ddpmode) {
    const int standard[] = {STDIN_FILENO, STDERR_FILENO};
    unsigned i;
    for (i = 0; i < sizeof standard / sizeof *standard; i++) {
        struct sockaddr_in address;
        const int to = standard[i];
        const int before = fcntl(to, F_DUPFD_CLOEXEC, 700);
        const int fd = listener(&address, 0);
        int mode;
        CHECK(before >= 700 && dup2(fd, to) == to);
        ddpmode(fd);
        mode = mode_of(to);
        CHECK(dup2(before, to) == to && close(before) == 0);
        CHECK(mode == DDPMODE_MESSAGE && mode_of(fd) == DDPMODE_MESSAGE && close(fd) == 0);
    }
}

/* A program whose standard descriptors are one socket: 0 if all follow when one is in DDPMODE. */
static int started_by_inetd(void) {
    ddpmode(STDIN_FILENO);
    return mode_of(STDOUT_FILENO) != DDPMODE_MESSAGE || mode_of(STDERR_FILENO) != DDPMODE_MESSAGE;
}

CASE(standard_descriptors_of_inetd) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    pid_t child;
    int status, to;
    CHECK(fd >= 0 && (child = fork()) >= 0);
    if (child == 0) {
        for (to = STDIN_FILENO; to <= STDERR_FILENO; to++) {
            if (dup2(fd, to) != to) _exit(2);
        }
        execl("/proc/self/exe", "overlay_test", "started_by_inetd", (char*)NULL);
        _exit(3);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(fd) == 0);
}

CASE(mark_of_an_urgent_byte) {
    int fds[2], i;
    char byte;
    pair_of(DDPMODE_STREAM, fds);
    CHECK(sockatmark(fds[1]) == 0);
    CHECK(send(fds[0], "ab!", 3, MSG_OOB) == 3 && send(fds[0], "cd", 2, 0) == 2);
    for (i = 0; recv(fds[1], &byte, 1, MSG_OOB) != 1; i++) CHECK(i < 10000 && usleep(1000) == 0);
    CHECK(byte == '!' && sockatmark(fds[1]) == 0);
    CHECK(recv(fds[1], &byte, 1, 0) == 1 && sockatmark(fds[1]) == 0);
    CHECK(recv(fds[1], &byte, 1, 0) == 1 && byte == 'b' && sockatmark(fds[1]) == 1);
    CHECK(recv(fds[1], &byte, 1, 0) == 1 && byte == 'c' && sockatmark(fds[1]) == 0);
    close_pair(fds);
    pair_of(DDPMODE_MESSAGE, fds);
    CHECK(sockatmark(fds[1]) == 0);
    close_pair(fds);
}

CASE(closed_over) {
    int fds[2];
    int pipes[2];
    char bytes[8];
    pair_of(1, fds);
    CHECK(pipe(pipes) == 0);
    CHECK(dup2(pipes[0], fds[0]) == fds[0]); /* the socket is closed, its number a pipe's */
    CHECK(write(pipes[1], "pipe", 4) == 4 && read(fds[0], bytes, 8) == 4);
    CHECK(recv(fds[1], bytes, 1, 0) == 0);
    CHECK_ERROR(dup2(9999, fds[1]), EBADF); /* and this one is not */
    CHECK(mode_of(fds[1]) == DDPMODE_MESSAGE);
    close(pipes[0]), close(pipes[1]);
    close_pair(fds);
}

CASE(closed_by_range) {
    int fds[2], again[2];
    char byte;
    int other;
    pair_of(1, fds);
    pair_of(1, again);
    CHECK(fcntl(fds[0], F_DUPFD, 500) == 500 && close(fds[0]) == 0);
    CHECK(close_range(500, 600, 0) == 0);
    CHECK(recv(fds[1], &byte, 1, 0) == 0);
    exchange(again[0], again[1]);
    /* All of ours; what the engine has open for itself stays. */
    CHECK(dup2(again[1], 800) == 800);
    other = fcntl(STDERR_FILENO, F_DUPFD, 900);
    CHECK(close_range(3, ~0u, 0) == 0);
    CHECK_ERROR(fcntl(other, F_GETFD), EBADF);
    CHECK_ERROR(fcntl(800, F_GETFD), EBADF);
    pair_of(1, fds);
    exchange(fds[0], fds[1]);
    closefrom(3);
    pair_of(1, fds);
    exchange(fds[1], fds[0]);
    close_pair(fds);
}

/* ---- what the engine writes to, and a program that closes all it knows nothing of -------------
 * The engine reads its settings once, so each case is a process of its own. */
static const char* record; /* the file that the engine writes */
enum { ALL_BY_RANGE, ALL_FROM, ALL_ONE_BY_ONE, ALL_WAYS };

static long size_of_record(void) {
    struct stat status;
    CHECK(stat(record, &status) == 0);
    return (long)status.st_size;
}

/* A plain client of a DDPMODE server is a line in the log; two sockets in DDPMODE are frames in the
 * capture file. */
static void be_recorded(void) {
    char bytes[8];
    int fds[2];
    undecided_pair(fds);
    CHECK(send(fds[1], "hello", 5, 0) == 5 && recv(fds[0], bytes, sizeof bytes, 0) == 5);
    close_pair(fds);
    pair_of(1, fds);
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

static void recorded_still(int way) {
    enum { PAIRS = 24 };
    int pairs[PAIRS][2];
    char byte;
    long before;
    int i;
    be_recorded();
    before = size_of_record();
    CHECK(before > 0);
    switch (way) {
        case ALL_BY_RANGE:
            CHECK(close_range(3, ~0u, 0) == 0);
            break;
        case ALL_FROM:
            closefrom(3);
            break;
        default:
            for (i = 3; i < 1024; i++) close(i);
            break;
    }
    for (i = 0; i < PAIRS; i++) pair_of(0, pairs[i]); /* the numbers are the program's now */
    be_recorded();
    for (i = 0; i < 2 * PAIRS; i++) {
        CHECK_ERROR(recv(pairs[i / 2][i % 2], &byte, 1, MSG_DONTWAIT), EAGAIN);
    }
    CHECK(size_of_record() > before);
}

static void record_with(const char* setting, const char* prefix) {
    char path[] = "/tmp/xsock-overlay-XXXXXX";
    char value[64];
    const int file = mkstemp(path);
    int way;
    CHECK(file >= 0 && close(file) == 0);
    CHECK(snprintf(value, sizeof value, "%s%s", prefix, path) < (int)sizeof value);
    for (way = 0; way < ALL_WAYS; way++) {
        pid_t child;
#ifdef XSOCK_ENGINE_LINKED
        /* The engine's own calls of close() come through the overlay: it cannot refuse them. */
        if (way == ALL_ONE_BY_ONE) {
            printf("not in this build, which contains the engine: a loop of close()\n");
            continue;
        }
#endif
        fflush(stdout);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            const char digit[] = {(char)('0' + way), '\0'};
            CHECK(setenv(setting, value, 1) == 0);
            execl("/proc/self/exe", "overlay_test", "recorded_still", path, digit, NULL);
            _exit(1);
        }
        wait_ok(child);
    }
    CHECK(unlink(path) == 0);
}

CASE(log_outlives_close_of_all) { record_with("XSOCK_LOG", "info:"); }
CASE(capture_outlives_close_of_all) { record_with("XSOCK_PCAP", ""); }

CASE(flags) {
    int fds[2];
    char byte;
    int waiting = -1;
    int on = 1;
    pair_of(1, fds);
    CHECK(fcntl(fds[0], F_SETFL, fcntl(fds[0], F_GETFL) | O_NONBLOCK) == 0);
    CHECK_ERROR(recv(fds[0], &byte, 1, 0), EAGAIN);
    on = 0;
    CHECK(ioctl(fds[0], FIONBIO, &on) == 0 && !(fcntl(fds[0], F_GETFL) & O_NONBLOCK));
    CHECK(send(fds[1], "four", 4, 0) == 4);
    {
        struct pollfd p = {.fd = fds[0], .events = POLLIN};
        CHECK(poll(&p, 1, 10000) == 1 && p.revents == POLLIN);
    }
    CHECK(ioctl(fds[0], FIONREAD, &waiting) == 0 && waiting == 4);
    CHECK(recv(fds[0], &byte, 1, MSG_PEEK | MSG_TRUNC) == 4);
    CHECK(recv(fds[0], &byte, 1, MSG_TRUNC) == 4);
    /* Started sockets do not outlive exec. */
    CHECK(fcntl(fds[0], F_GETFD) == FD_CLOEXEC);
    CHECK_ERROR(fcntl(fds[0], F_SETFD, 0), EPERM);
    CHECK_ERROR(ioctl(fds[0], FIONCLEX), EPERM);
    CHECK(fcntl(fds[0], F_SETFD, FD_CLOEXEC) == 0);
    close_pair(fds);
}

CASE(no_stream_calls) {
    int fds[2], pipes[2];
    const int file = open("/dev/zero", O_RDONLY);
    pair_of(1, fds);
    CHECK(file >= 0 && pipe(pipes) == 0);
    CHECK_ERROR(sendfile(fds[0], file, NULL, 10), EOPNOTSUPP);
    CHECK_ERROR(splice(fds[0], NULL, pipes[1], NULL, 10, 0), EOPNOTSUPP);
    CHECK_ERROR(splice(pipes[0], NULL, fds[0], NULL, 10, 0), EOPNOTSUPP);
    exchange(fds[0], fds[1]);
    close(file), close(pipes[0]), close(pipes[1]);
    close_pair(fds);
}

CASE(many_forms) {
    int fds[2];
    char a[4], b[60];
    struct iovec out[2] = {{"gath", 4}, {"ered", 4}};
    struct iovec in[2] = {{a, sizeof a}, {b, sizeof b}};
    struct msghdr message = {.msg_iov = in, .msg_iovlen = 2};
    struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = out, .msg_iovlen = 2}}};
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    pair_of(1, fds);
    CHECK(writev(fds[0], out, 2) == 8);
    CHECK(readv(fds[1], in, 2) == 8 && memcmp(a, "gath", 4) == 0 && memcmp(b, "ered", 4) == 0);
    CHECK(pwritev2(fds[0], out, 2, -1, 0) == 8 && preadv2(fds[1], in, 2, -1, 0) == 8);
    CHECK_ERROR(preadv2(fds[1], in, 2, -1, RWF_NOWAIT), EAGAIN);
    CHECK_ERROR(pwritev2(fds[0], out, 2, 0, 0), ESPIPE);
    CHECK_ERROR(pwritev2(fds[0], out, 2, -1, 1 << 30),
                EOPNOTSUPP); /* as the kernel: no such flag */
    CHECK_ERROR(preadv2(fds[1], in, 2, -1, 1 << 30), EOPNOTSUPP);
    CHECK(sendmmsg(fds[0], two, 2, 0) == 2 && two[0].msg_len == 4 && two[1].msg_len == 8);
    CHECK(recvmsg(fds[1], &message, 0) == 4);
    CHECK(recvfrom(fds[1], b, sizeof b, 0, (struct sockaddr*)&from, &length) == 8 && length == 0);
    CHECK(sendto(fds[0], "to", 2, 0, NULL, 0) == 2 && recv(fds[1], b, sizeof b, 0) == 2);
    CHECK(dprintf(fds[0], "%s %d", "number", 42) == 9);
    CHECK(recv(fds[1], b, sizeof b, 0) == 9 && memcmp(b, "number 42", 9) == 0);
    CHECK(syscall(SYS_write, fds[0], "sys", 3) == 3);
    CHECK(syscall(SYS_recvfrom, fds[1], b, sizeof b, 0, NULL, NULL) == 3);
    {
        const struct timespec no_time = {0, 0};
        struct pollfd p = {.fd = fds[1], .events = POLLIN};
        CHECK(syscall(SYS_ppoll, &p, 1, &no_time, NULL, 8) == 0);
    }
    CHECK(syscall(SYS_close, fds[0]) == 0 && recv(fds[1], b, 1, 0) == 0);
    CHECK(close(fds[1]) == 0);
}

/* As any socket's: 0 at once, and what is queued stays. Only recv() of zero bytes takes a message,
 * as on SOCK_SEQPACKET. */
CASE(reads_of_zero_bytes) {
    const struct iovec empty[2] = {{NULL, 0}, {NULL, 0}};
    void* const nowhere = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fds[2];
    char byte;
    int queued;
    pair_of(1, fds);
    for (queued = 0; queued < 2; queued++) {
        if (queued) {
            struct pollfd p = {.fd = fds[1], .events = POLLIN};
            CHECK(send(fds[0], "kept", 4, 0) == 4 && send(fds[0], "more", 4, 0) == 4);
            CHECK(poll(&p, 1, 10000) == 1);
        }
        CHECK(read(fds[1], &byte, 0) == 0 && read(fds[1], NULL, 0) == 0);
        CHECK(readv(fds[1], empty, 2) == 0 && readv(fds[1], NULL, 0) == 0);
        CHECK(preadv2(fds[1], empty, 2, -1, 0) == 0);
        CHECK(preadv2(fds[1], empty, 2, -1, RWF_NOWAIT) == 0);
    }
    CHECK_ERROR(readv(fds[1], nowhere, 1), EFAULT);
    CHECK(recv(fds[1], &byte, 1, MSG_TRUNC) == 4);
    CHECK(recv(fds[1], &byte, 0, 0) == 0);
    CHECK_ERROR(recv(fds[1], &byte, 0, MSG_DONTWAIT), EAGAIN);
    close_pair(fds);
}

CASE(streams) {
    enum { LONG = 200000 };
    int fds[2];
    FILE *out, *in;
    char line[64];
    char* const text = malloc(LONG);
    int i;
    CHECK(text != NULL);
    pair_of(1, fds);
    out = fdopen(fds[0], "w");
    in = fdopen(fds[1], "r");
    CHECK(out != NULL && in != NULL && fileno(out) == fds[0] && fileno(in) == fds[1]);
    CHECK(fprintf(out, "first\nsecond %d\n", 2) > 0 && fflush(out) == 0);
    CHECK(fgets(line, sizeof line, in) != NULL && strcmp(line, "first\n") == 0);
    CHECK(fgets(line, sizeof line, in) != NULL && strcmp(line, "second 2\n") == 0);
    for (i = 0; i < LONG; i++) text[i] = (char)('a' + i % 23);
    CHECK(fwrite(text, 1, LONG, out) == LONG && fclose(out) == 0);
    for (i = 0; i < LONG; i++) CHECK(fgetc(in) == 'a' + i % 23);
    CHECK(fgetc(in) == EOF && feof(in) && fclose(in) == 0);
    CHECK_ERROR(fcntl(fds[0], F_GETFD), EBADF);
    free(text);
}

static ssize_t send_fd(int over, int fd) {
    char byte = 0;
    struct iovec iov = {&byte, 1};
    union carried_fd control;
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    carry_fd(&message, &control, fd);
    return sendmsg(over, &message, 0);
}

static int receive_fd(int over) {
    char byte;
    int fd = -1;
    struct iovec iov = {&byte, 1};
    union carried_fd control;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    CHECK(recvmsg(over, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

CASE(sent_to_others) {
    int fds[2], over[2], got;
    struct sockaddr_in address;
    const int from = listener(&address, 1);
    pair_of(1, fds);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, over) == 0);
    CHECK_ERROR(send_fd(over[0], fds[0]), EOPNOTSUPP);
    exchange(fds[0], fds[1]);
    /* A listening one travels. Here it is one more number of the same socket. */
    CHECK(send_fd(over[0], from) == 1);
    got = receive_fd(over[1]);
    CHECK(got >= 0 && mode_of(got) == DDPMODE_MESSAGE && mode_of(from) == DDPMODE_MESSAGE);
    CHECK(close(from) == 0 && mode_of(got) == DDPMODE_MESSAGE && close(got) == 0);
    close(over[0]), close(over[1]);
    close_pair(fds);
}

/* ---- processes ----------------------------------------------------------------------------------
 */
CASE(forked) {
    int fds[2];
    char byte;
    pid_t child;
    pair_of(1, fds);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* Our parent's: nothing of it can be used, all of it can be closed. */
        CHECK(send(fds[0], "x", 1, MSG_NOSIGNAL) == -1);
        CHECK(recv(fds[0], &byte, 1, MSG_DONTWAIT) == -1);
        CHECK_ERROR(dup2(fds[0], 0), EPERM);
        CHECK(close(fds[1]) == 0);
        pair_of(1, fds); /* and new ones work */
        exchange(fds[0], fds[1]);
        exit(0);
    }
    wait_ok(child);
    CHECK_ERROR(recv(fds[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
    exchange(fds[0], fds[1]);
    exchange(fds[1], fds[0]);

    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* no fork handler runs */
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(send(fds[0], "x", 1, MSG_NOSIGNAL) == -1);
        CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
        _exit(0);
    }
    wait_ok(child);
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

/* A server that closes what it accepts, without a word: the peer sees an end, as with TCP, and no
 * reset. Where another process has the socket, too, nothing begins here. */
CASE(closed_undecided) {
    struct sockaddr_in address;
    const int from = listener(&address, DDPMODE_STREAM);
    char bytes[8];
    int round, to;
    for (round = 0; round < 20; round++) {
        const int at_once = round % 2;
        int got, again;
        to = socket(AF_INET, SOCK_STREAM, 0);
        set_ddpmode(to, DDPMODE_STREAM);
        CHECK(connect(to, (struct sockaddr*)&address, sizeof address) == 0);
        got = accept(from, NULL, NULL);
        again = dup(got);
        CHECK(got >= 0 && again >= 0 && close(got) == 0);
        if (!at_once) usleep(2000);
        CHECK((round % 4 < 2 ? close(again) : close_range((unsigned)again, (unsigned)again, 0)) ==
              0);
        CHECK(recv(to, bytes, sizeof bytes, 0) == 0);
        CHECK(close(to) == 0);
    }
    for (round = 0; round < 4; round++) {
        pid_t child;
        int got;
        to = socket(AF_INET, SOCK_STREAM, 0);
        set_ddpmode(to, DDPMODE_STREAM);
        CHECK(connect(to, (struct sockaddr*)&address, sizeof address) == 0);
        got = accept(from, NULL, NULL);
        CHECK(got >= 0);
        if (round % 2) usleep(2000);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            usleep(2000);
            CHECK(recv(got, bytes, 5, MSG_WAITALL) == 5 && send(got, bytes, 5, 0) == 5);
            exit(0);
        }
        CHECK(close(got) == 0);
        CHECK(send(to, "child", 5, 0) == 5 && recv(to, bytes, 5, MSG_WAITALL) == 5);
        CHECK(recv(to, bytes, 5, 0) == 0 && close(to) == 0);
        wait_ok(child);
    }
    /* What was sent before it had begun belongs to this process, forked or not. */
    for (round = 0; round < 4; round++) {
        pid_t child = 0;
        int got;
        to = socket(AF_INET, SOCK_STREAM, 0);
        set_ddpmode(to, DDPMODE_STREAM);
        CHECK(connect(to, (struct sockaddr*)&address, sizeof address) == 0);
        got = accept4(from, NULL, NULL, SOCK_NONBLOCK);
        CHECK(got >= 0 && send(got, "first", 5, 0) == 5);
        if (round % 2) {
            child = fork();
            CHECK(child >= 0);
            if (child == 0) exit(0);
        }
        CHECK(close(got) == 0);
        CHECK(recv(to, bytes, 5, MSG_WAITALL) == 5 && memcmp(bytes, "first", 5) == 0);
        CHECK(recv(to, bytes, 5, 0) == 0 && close(to) == 0);
        if (child != 0) wait_ok(child);
    }
    close(from);
}

/* What the engine, and libraries below it, had open in the parent is not where it was. */
CASE(descriptors_of_a_forked_child) {
    enum { MANY = 30 };
    int fds[2], mine[MANY], round, i;
    pid_t child, grandchild;
    pair_of(1, fds);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (round = 0; round < 2; round++) {
            for (i = 0; i < MANY; i++) CHECK((mine[i] = open("/dev/null", O_RDONLY)) >= 0);
            for (i = 0; i < MANY; i++) CHECK(close(mine[i]) == 0);
        }
        closefrom(3);
        for (i = 0; i < MANY; i++) CHECK((mine[i] = open("/dev/null", O_RDONLY)) >= 0);
        grandchild = fork();
        CHECK(grandchild >= 0);
        for (i = 0; i < MANY; i++) CHECK(fcntl(mine[i], F_GETFD) == 0);
        for (i = 0; i < MANY; i++) CHECK(close(mine[i]) == 0);
        if (grandchild != 0) wait_ok(grandchild);
        exit(0);
    }
    wait_ok(child);
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

/* The first call on a parent's socket says so in the log; once in each process. */
CASE(inherited_is_reported_once) {
    static const char code[] = "inherited-handle";
    const char* const folder = getenv("TMPDIR");
    char path[128], name[160], text[4096];
    int lines = 0;
    const char* at;
    ssize_t n;
    int fd;
    pid_t child;
    snprintf(path, sizeof path, "%s/overlay-log.XXXXXX", folder != NULL ? folder : "/tmp");
    fd = mkstemp(path);
    CHECK(fd >= 0);
    snprintf(name, sizeof name, "warn:%s", path);
    fflush(stdout);
    child = fork(); /* the setting is read once in a process */
    CHECK(child >= 0);
    if (child == 0) {
        char* const argv[] = {"overlay_test", "use_inherited", NULL};
        setenv("XSOCK_LOG", name, 1);
        execv("/proc/self/exe", argv);
        _exit(1);
    }
    wait_ok(child);
    n = pread(fd, text, sizeof text - 1, 0);
    CHECK(n >= 0);
    text[n] = '\0';
    for (at = text; (at = strstr(at, code)) != NULL; at += sizeof code) lines++;
    if (lines != 2) fputs(text, stderr);
    CHECK(lines == 2);
    CHECK(unlink(path) == 0 && close(fd) == 0);
}

/* Two children, of which each is told once. Nothing would ever wake one that waits. */
CASE(use_inherited) {
    int fds[2];
    int i;
    char byte;
    struct epoll_event event = {.events = EPOLLIN};
    pair_of(1, fds);
    for (i = 0; i < 2; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct pollfd wanted = {.fd = fds[0], .events = POLLIN};
            const int set = epoll_create1(0);
            CHECK(poll(&wanted, 1, 60000) == 1 && (wanted.revents & (POLLIN | POLLERR)) != 0);
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[1], &event) == 0);
            CHECK(epoll_wait(set, &event, 1, 60000) == 1 && (event.events & EPOLLIN) != 0);
            CHECK_ERROR(send(fds[0], "x", 1, MSG_NOSIGNAL), EPERM);
            CHECK_ERROR(recv(fds[1], &byte, 1, 0), EPERM);
            CHECK_ERROR(shutdown(fds[1], SHUT_WR), EPERM);
            CHECK(close(fds[0]) == 0);
            _exit(0);
        }
        wait_ok(child);
    }
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

/* Accept here, serve in a child: start-up is the child's. */
CASE(served_by_child) {
    struct connecting c = {.mode = DDPMODE_MESSAGE};
    pthread_t thread;
    const int from = listener(&c.address, 1);
    int fd;
    char bytes[64];
    pid_t child;
    CHECK(pthread_create(&thread, NULL, connect_it, &c) == 0);
    fd = accept(from, NULL, NULL);
    CHECK(fd >= 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        ssize_t n;
        close(from);
        while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
            CHECK(send(fd, bytes, (size_t)n, 0) == n);
        }
        CHECK(n == 0);
        exit(0);
    }
    CHECK(close(fd) == 0 && close(from) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(send(c.fd, "served", 6, 0) == 6);
    CHECK(recv(c.fd, bytes, sizeof bytes, 0) == 6 && memcmp(bytes, "served", 6) == 0);
    CHECK(close(c.fd) == 0);
    wait_ok(child);
}

CASE(spawned) {
    int fds[2];
    int i;
    pair_of(1, fds);
    for (i = 0; i < 50; i++) {
        /* volatile: both returns of vfork() see it. */
        volatile int refused = 0;
        char* const argv[] = {"true", NULL};
        posix_spawn_file_actions_t actions;
        FILE* piped;
        char line[16];
        const pid_t child = vfork();
        CHECK(child >= 0);
        if (child == 0) {
            refused = dup2(fds[0], 0) == -1 && errno == EPERM;
            close(fds[1]);
            close_range(3, ~0u, 0);
            execve("/bin/true", argv, environ);
            _exit(1);
        }
        wait_ok(child);
        CHECK(refused);
        {
            pid_t spawned_pid;
            CHECK(posix_spawn_file_actions_init(&actions) == 0);
            CHECK(posix_spawn_file_actions_addclose(&actions, fds[0]) == 0);
            CHECK(posix_spawn(&spawned_pid, "/bin/true", &actions, NULL, argv, environ) == 0);
            posix_spawn_file_actions_destroy(&actions);
            wait_ok(spawned_pid);
        }
        if (i % 10 != 0) continue;
        CHECK(system("exit 0") == 0);
        piped = popen("echo piped", "r");
        CHECK(piped != NULL && fgets(line, sizeof line, piped) && strcmp(line, "piped\n") == 0);
        CHECK(pclose(piped) == 0);
        exchange(fds[0], fds[1]);
    }
    exchange(fds[1], fds[0]);
    close_pair(fds);
}

/* What was sent before exec, _exit, quick_exit and exit arrives: more than TCP took by then. */
CASE(sent_before_the_end) {
    enum { EXEC, AT_ONCE, QUICK, EXIT, WAYS, BYTES = 5000 };
    int how;
    for (how = 0; how < WAYS; how++) {
        struct sockaddr_in address;
        const int from = listener(&address, 1);
        static char bytes[BYTES];
        int pipes[2], fd, sent, i;
        pid_t child;
        CHECK(pipe(pipes) == 0);
        fflush(stdout);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct connecting c = {.address = address, .mode = DDPMODE_MESSAGE};
            connect_it(&c);
            for (i = 0;; i++) {
                memset(bytes, i, BYTES);
                if (send(c.fd, bytes, BYTES, MSG_DONTWAIT) != BYTES) break;
            }
            CHECK(errno == EAGAIN && write(pipes[1], &i, sizeof i) == sizeof i);
            switch (how) {
                case EXEC:
                    execl("/bin/true", "true", (char*)NULL);
                    _exit(1);
                case QUICK:
                    quick_exit(0);
                case EXIT:
                    exit(0);
                default:
                    _exit(0);
            }
        }
        fd = accept(from, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(recv(fd, bytes, BYTES, MSG_PEEK) == BYTES);
        CHECK(read(pipes[0], &sent, sizeof sent) == sizeof sent && sent > 0);
        close_pair(pipes);
        for (i = 0; i < sent; i++) {
            CHECK(recv(fd, bytes, BYTES, 0) == BYTES);
            CHECK(bytes[0] == (char)i && bytes[BYTES - 1] == (char)i);
        }
        CHECK(recv(fd, bytes, BYTES, 0) == 0);
        wait_ok(child);
        CHECK(close(fd) == 0 && close(from) == 0);
    }
}

/* ---- signals and threads ------------------------------------------------------------------------
 */
static int signal_fd;
static volatile int signal_result, signal_errno;

static void on_signal(int number) {
    const int saved = errno;
    (void)number;
    signal_result = (int)write(signal_fd, "handler", 7);
    signal_errno = errno;
    errno = saved;
}

static void* interrupt_it(void* argument) {
    const pthread_t victim = *(pthread_t*)argument;
    usleep(200000);
    pthread_kill(victim, SIGUSR1);
    return NULL;
}

CASE(in_a_handler) {
    int fds[2];
    char byte;
    pthread_t thread, self = pthread_self();
    struct sigaction action = {.sa_handler = on_signal};
    pair_of(1, fds);
    signal_fd = fds[0];
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, interrupt_it, &self) == 0);
    CHECK_ERROR(recv(fds[0], &byte, 1, 0), EINTR);
    CHECK(pthread_join(thread, NULL) == 0);
    /* A handler that interrupted the engine must not enter it again. */
    CHECK(signal_result == 7 || (signal_result == -1 && signal_errno == EDEADLK));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* (Under a sanitizer the overlay cannot tell the handler's call from the engine's own.) */
    if (signal_result == 7) {
        char bytes[8];
        CHECK(recv(fds[1], bytes, sizeof bytes, 0) == 7 && memcmp(bytes, "handler", 7) == 0);
    } else {
        CHECK_ERROR(recv(fds[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
    }
#endif
    exchange(fds[1], fds[0]);
    close_pair(fds);
}

static void* accept_one(void* argument) {
    const int fd = accept(*(int*)argument, NULL, NULL);
    CHECK(fd >= 0);
    return (void*)(intptr_t)fd;
}

/* accept() is a cancellation point, and takes nothing with it. */
CASE(cancelled_in_accept) {
    static const int modes[] = {DDPMODE_MESSAGE, DDPMODE_STREAM};
    size_t i;
    for (i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct connecting c = {.mode = DDPMODE_OFF};
        int fd = listener(&c.address, modes[i]), fds[2];
        char bytes[8];
        pthread_t thread;
        void* ended;
        CHECK(pthread_create(&thread, NULL, accept_one, &fd) == 0);
        usleep(200000);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED);
        CHECK(pthread_create(&thread, NULL, connect_it, &c) == 0);
        fds[0] = accept(fd, NULL, NULL);
        CHECK(fds[0] >= 0 && pthread_join(thread, NULL) == 0);
        fds[1] = c.fd;
        CHECK(send(fds[1], "hello", 5, 0) == 5);
        CHECK(recv(fds[0], bytes, sizeof bytes, 0) == 5);
        close_pair(fds);
        CHECK(close(fd) == 0);
    }
}

/* Refused where the call is not asleep yet. */
static void on_signal_once(int number) {
    if (signal_result != 7) on_signal(number);
}

/* A handler that interrupts accept() may use other sockets, and the call goes on behind it. */
CASE(in_a_handler_of_accept) {
    struct sockaddr_in address;
    int fd, fds[2], peer;
    char bytes[16];
    pthread_t thread;
    void* accepted;
    struct sigaction before, action = {.sa_handler = on_signal_once, .sa_flags = SA_RESTART};
    pair_of(1, fds);
    signal_fd = fds[0];
    signal_result = 0;
    CHECK(sigaction(SIGUSR1, &action, &before) == 0);
    fd = listener(&address, DDPMODE_MESSAGE);
    CHECK(pthread_create(&thread, NULL, accept_one, &fd) == 0);
    while (signal_result != 7) {
        usleep(20000);
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
    }
    CHECK(recv(fds[1], bytes, sizeof bytes, 0) == 7 && signal_result == 7);
    peer = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(peer >= 0 && connect(peer, (struct sockaddr*)&address, sizeof address) == 0);
    CHECK(pthread_join(thread, &accepted) == 0);
    CHECK(close((int)(intptr_t)accepted) == 0 && close(peer) == 0 && close(fd) == 0);
    CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
    close_pair(fds);
}

struct victim {
    pthread_t thread;
    int peer;
};

static void* interrupt_and_send(void* argument) {
    const struct victim victim = *(struct victim*)argument;
    usleep(200000);
    pthread_kill(victim.thread, SIGUSR1);
    usleep(200000);
    if (victim.peer < 0) return NULL;
    CHECK(send(victim.peer, "x", 1, 0) == 1); /* for a call that goes on */
    return NULL;
}

static volatile pid_t handlers_child;

static void fork_on_signal(int number) {
    (void)number;
    handlers_child = fork();
    if (handlers_child == 0) alarm(20);
}

/* A handler forks in the middle of a blocking call, and returns on both sides: in the child, whose
 * socket it is not, the call ends; in the parent it is as with any handler. */
CASE(forked_in_a_handler) {
    enum { RECV, POLL, EPOLL, CALLS };
    int i;
    for (i = 0; i < 2 * CALLS; i++) {
        struct sigaction action = {.sa_handler = fork_on_signal,
                                   .sa_flags = i < CALLS ? 0 : SA_RESTART};
        struct sigaction before;
        struct epoll_event event;
        struct victim victim = {.thread = pthread_self()};
        const int epfd = epoll_create1(EPOLL_CLOEXEC);
        int fds[2];
        int result, reason;
        char bytes[8];
        pthread_t thread;
        struct pollfd p;
        pair_of(1, fds);
        victim.peer = fds[1];
        p = (struct pollfd){fds[0], POLLIN, 0};
        event = (struct epoll_event){.events = EPOLLIN};
        CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fds[0], &event) == 0);
        CHECK(sigaction(SIGUSR1, &action, &before) == 0);
        fflush(stdout);
        handlers_child = -1;
        CHECK(pthread_create(&thread, NULL, interrupt_and_send, &victim) == 0);
        switch (i % CALLS) {
            case RECV:
                result = (int)recv(fds[0], bytes, sizeof bytes, 0);
                break;
            case POLL:
                result = poll(&p, 1, -1);
                break;
            default:
                result = epoll_wait(epfd, &event, 1, -1);
                break;
        }
        reason = errno;
        if (handlers_child == 0) {
            /* Those that wait may see that the next call fails. */
            const int ends =
                (result == -1 && reason == EINTR) || (i % CALLS != RECV && result == 1);
            if (!ends) _exit(2);
            _exit(recv(fds[0], bytes, sizeof bytes, 0) == -1 && errno == EPERM ? 0 : 3);
        }
        CHECK(handlers_child > 0);
        CHECK(i == CALLS + RECV ? result == 1 : result == -1 && reason == EINTR);
        wait_ok(handlers_child);
        CHECK(pthread_join(thread, NULL) == 0);
        if (result != 1) CHECK(recv(fds[0], bytes, sizeof bytes, 0) == 1);
        CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
        exchange(fds[1], fds[0]);
        CHECK(close(epfd) == 0);
        close_pair(fds);
    }
}

/* The same in the middle of a long transfer: of a message that TCP has not taken yet, of one that
 * comes in, of a close that waits. */
CASE(forked_in_a_handler_in_a_transfer) {
    enum { SEND, RECV, CLOSE, CALLS, LARGE = 1024 * 1024 };
    char* const bytes = calloc(1, LARGE);
    int i;
    CHECK(bytes != NULL);
    for (i = 0; i < CALLS; i++) {
        const struct sigaction action = {.sa_handler = fork_on_signal};
        const struct linger linger = {1, 10};
        long long closing = 0;
        struct sigaction before;
        struct victim victim = {.thread = pthread_self()};
        struct sockaddr_in address;
        const int from = listener(&address, 1);
        int fd, result = 0, reason;
        pthread_t thread;
        pid_t peer;
        fflush(stdout);
        peer = fork(); /* no thread of it polls: it stops in the middle of a message */
        CHECK(peer >= 0);
        if (peer == 0) {
            struct connecting c = {.address = address, .mode = DDPMODE_MESSAGE};
            const int small = 4096;
            alarm(30);
            setenv("XSOCK_PROGRESS", "app", 1);
            c.fd = socket(AF_INET, SOCK_STREAM, 0);
            setsockopt(c.fd, SOL_SOCKET, i == RECV ? SO_SNDBUF : SO_RCVBUF, &small, sizeof small);
            ddpmode(c.fd);
            CHECK(connect(c.fd, (struct sockaddr*)&address, sizeof address) == 0);
            CHECK(send(c.fd, "x", 1, 0) == 1);
            if (i == RECV) CHECK(send(c.fd, bytes, LARGE, MSG_DONTWAIT) == LARGE);
            for (;;) pause();
        }
        fd = accept(from, NULL, NULL);
        CHECK(fd >= 0 && recv(fd, bytes, 1, 0) == 1);
        CHECK(sigaction(SIGUSR1, &action, &before) == 0);
        handlers_child = -1;
        victim.peer = -1;
        if (i != CLOSE) CHECK(pthread_create(&thread, NULL, interrupt_and_send, &victim) == 0);
        if (i == SEND) {
            /* A message that is queued when the signal comes is sent: the call answers its size. */
            while ((result = (int)send(fd, bytes, LARGE, 0)) > 0 && handlers_child == -1) {
            }
        } else if (i == RECV) {
            result = (int)recv(fd, bytes, LARGE, 0);
        } else {
            int full = 0;
            while (full < 3) { /* TCP may take some more for a moment */
                full = send(fd, bytes, LARGE, MSG_DONTWAIT) > 0 ? 0 : full + 1;
                if (full != 0) usleep(30000);
            }
            CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
            CHECK(pthread_create(&thread, NULL, interrupt_and_send, &victim) == 0);
            closing = monotonic_ms();
            close(fd);
        }
        reason = errno;
        if (handlers_child == 0) {
            if (i == CLOSE)
                _exit(monotonic_ms() - closing < 8000 ? 0 : 4); /* not the linger time */
            if (result != -1 || reason != EINTR) _exit(2);
            _exit(recv(fd, bytes, LARGE, 0) == -1 && errno == EPERM ? 0 : 3);
        }
        CHECK(handlers_child > 0);
        CHECK(i == CLOSE || (result == -1 && reason == EINTR) || (i == SEND && result > 0));
        wait_ok(handlers_child);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(kill(peer, SIGKILL) == 0 && waitpid(peer, NULL, 0) == peer);
        CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
        CHECK(close(from) == 0);
        if (i != CLOSE) CHECK(close(fd) == 0);
    }
    free(bytes);
}

/* The bytes that came. */
static void* receive_until_end(void* argument) {
    char bytes[64];
    const int fd = *(int*)argument;
    intptr_t all = 0;
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) all += n;
    return (void*)all;
}

CASE(closed_meanwhile) {
    int fds[2];
    int i, went_on = 0;
    for (i = 0; i < 20; i++) {
        void* came;
        pthread_t thread;
        pair_of(1, fds);
        CHECK(pthread_create(&thread, NULL, receive_until_end, &fds[1]) == 0);
        usleep(i < 19 ? (unsigned)i * 500 : 300000);
        CHECK(close(fds[1]) == 0); /* under the receiver: it goes on, as with the kernel's */
        CHECK(send(fds[0], "still", 5, MSG_NOSIGNAL) == 5 || errno == EPIPE || errno == ECONNRESET);
        CHECK(close(fds[0]) == 0);
        CHECK(pthread_join(thread, &came) == 0);
        went_on += (intptr_t)came == 5;
    }
    CHECK(went_on > 0); /* a receiver that had not begun when its socket was closed gets EBADF */
}

static void* close_with_cancel_pending(void* argument) {
    pthread_cancel(pthread_self());
    close(*(int*)argument);
    pthread_testcancel();
    return NULL; /* not reached */
}

/* close() closes, whether or not the thread is being cancelled: the peer sees the end. */
CASE(closed_by_a_cancelled_thread) {
    int linger_s;
    for (linger_s = -1; linger_s < 2; linger_s++) {
        const struct linger linger = {.l_onoff = 1, .l_linger = linger_s};
        int fds[2];
        char byte;
        void* ended;
        pthread_t thread;
        struct pollfd p;
        pair_of(1, fds);
        if (linger_s >= 0) {
            CHECK(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
        }
        CHECK(pthread_create(&thread, NULL, close_with_cancel_pending, &fds[0]) == 0);
        CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED);
        p = (struct pollfd){.fd = fds[1], .events = POLLIN};
        CHECK(poll(&p, 1, 20000) == 1);
        CHECK(recv(fds[1], &byte, 1, 0) == (linger_s == 0 ? -1 : 0));
        CHECK(close(fds[1]) == 0);
    }
}

static void* receive_once(void* argument) {
    char bytes[64];
    const ssize_t n = recv(*(int*)argument, bytes, sizeof bytes, 0);
    return (void*)(n < 0 ? -(intptr_t)errno : (intptr_t)n);
}

/* A receiver waits on a socket that turns out to be plain when its number is another file's: that
 * one's bytes are not the receiver's. */
CASE(replaced_while_undecided) {
    char bytes[8];
    int fds[2], others[2];
    void* result;
    pthread_t thread;
    undecided_pair(fds);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, others) == 0);
    CHECK(send(others[0], "theirs", 6, 0) == 6);
    CHECK(pthread_create(&thread, NULL, receive_once, &fds[0]) == 0);
    usleep(100000);
    CHECK(dup2(others[1], fds[0]) == fds[0]);
    CHECK(send(fds[1], "plain", 5, MSG_NOSIGNAL) == 5);
    CHECK(pthread_join(thread, &result) == 0);
    errno = (int)-(intptr_t)result;
    CHECK((intptr_t)result == -EBADF);
    CHECK(recv(fds[0], bytes, sizeof bytes, 0) == 6 && memcmp(bytes, "theirs", 6) == 0);
    close_pair(fds);
    close_pair(others);
}

static _Atomic int sender_stops;

static void* send_all_the_time(void* argument) {
    const int fd = *(int*)argument;
    while (!sender_stops && send(fd, "a message", 9, MSG_NOSIGNAL) == 9) {
    }
    return NULL;
}

/* dup2() over a socket that another thread sends on: that one's messages go to the old file or to
 * the new one, and its bytes never into the stream of the old one. */
CASE(replaced_under_a_sender) {
    const int nothing = open("/dev/null", O_RDWR);
    int i;
    CHECK(nothing >= 0);
    for (i = 0; i < 60; i++) {
        int fds[2];
        char bytes[64];
        ssize_t n;
        pthread_t thread;
        pair_of(1, fds);
        sender_stops = 0;
        CHECK(pthread_create(&thread, NULL, send_all_the_time, &fds[0]) == 0);
        usleep((unsigned)i % 7 * 100);
        CHECK(dup2(nothing, fds[0]) == fds[0]);
        while ((n = recv(fds[1], bytes, sizeof bytes, 0)) == 9) {
        }
        CHECK(n == 0);
        sender_stops = 1;
        CHECK(pthread_join(thread, NULL) == 0);
        close_pair(fds);
    }
    CHECK(close(nothing) == 0);
}

enum way { BY_CLOSE, BY_CLOSE_RANGE, BY_CLOSEFROM, WAYS };
enum { ABOVE = 300 }; /* a number above all others of the program */

struct closing {
    enum way way;
    int fd;
};

static void* close_it(void* argument) {
    const struct closing* const c = argument;
    switch (c->way) {
        case BY_CLOSE:
            CHECK(close(c->fd) == 0);
            break;
        case BY_CLOSE_RANGE:
            CHECK(close_range((unsigned)c->fd, (unsigned)c->fd, 0) == 0);
            break;
        default:
            closefrom(c->fd);
            break;
    }
    return NULL;
}

struct sending {
    int fd;
    int sent;   /* messages that were taken */
    int reason; /* why the last one was not */
};

/* Like send_all_the_time(), but never inside a call for long. */
static void* send_until_refused(void* argument) {
    struct sending* const s = argument;
    for (;;) {
        const ssize_t n = send(s->fd, "a message", 9, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == 9) {
            s->sent++;
            continue;
        }
        CHECK(n == -1);
        s->reason = errno;
        if (s->reason != EAGAIN) return NULL;
        sched_yield();
    }
}

/* Two connected sockets; the first has a number above all others. */
static void pair_above(int fds[2]) {
    pair_of(1, fds);
    CHECK(dup2(fds[0], ABOVE) == ABOVE && close(fds[0]) == 0);
    fds[0] = ABOVE;
}

/* How many messages came. */
static int only_messages_then_the_end(int fd) {
    char bytes[64];
    int messages = 0;
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) == 9) {
        CHECK(memcmp(bytes, "a message", 9) == 0);
        messages++;
    }
    CHECK(n == 0);
    return messages;
}

/* Another thread sends on a socket that is closed: what it has sent with success arrives as
 * messages, then its calls are EBADF; none of its bytes meets the stream of the engine. */
CASE(closed_under_a_sender) {
    static const int rounds[WAYS] = {1000, 200, 200};
    int way, i;
    for (way = 0; way < WAYS; way++) {
        for (i = 0; i < rounds[way]; i++) {
            struct closing c = {.way = (enum way)way, .fd = ABOVE};
            struct sending s = {.fd = ABOVE};
            int fds[2], came;
            pthread_t sender;
            pair_above(fds);
            CHECK(pthread_create(&sender, NULL, send_until_refused, &s) == 0);
            usleep((unsigned)i % 7 * 50);
            close_it(&c);
            came = only_messages_then_the_end(fds[1]);
            CHECK(pthread_join(sender, NULL) == 0);
            CHECK(s.reason == EBADF && came == s.sent);
            CHECK(close(fds[1]) == 0);
        }
    }
}

/* The same where close() waits, for a peer that reads late. */
CASE(closed_under_a_sender_with_linger) {
    const struct linger two_seconds = {1, 2};
    int way, i;
    for (way = 0; way < WAYS; way++) {
        for (i = 0; i < 5; i++) {
            struct closing c = {.way = (enum way)way, .fd = ABOVE};
            struct sending s = {.fd = ABOVE};
            int fds[2], came;
            pthread_t sender, closer;
            pair_above(fds);
            CHECK(setsockopt(ABOVE, SOL_SOCKET, SO_LINGER, &two_seconds, sizeof two_seconds) == 0);
            CHECK(pthread_create(&sender, NULL, send_until_refused, &s) == 0);
            usleep(50000); /* the peer's buffers fill */
            CHECK(pthread_create(&closer, NULL, close_it, &c) == 0);
            usleep(100000);
            came = only_messages_then_the_end(fds[1]);
            CHECK(pthread_join(sender, NULL) == 0);
            CHECK(s.reason == EBADF && came == s.sent);
            CHECK(pthread_join(closer, NULL) == 0);
            CHECK(close(fds[1]) == 0);
        }
    }
}

struct duplicating {
    int way, fd;
};

static void* duplicate_until_refused(void* argument) {
    enum { TO = ABOVE - 1 };
    const struct duplicating* const d = argument;
    for (;;) {
        const int copy = d->way == 0   ? dup(d->fd)
                         : d->way == 1 ? fcntl(d->fd, F_DUPFD_CLOEXEC, 3)
                                       : dup2(d->fd, TO);
        if (copy < 0) {
            CHECK(errno == EBADF);
            break;
        }
        CHECK(send(copy, "a message", 9, MSG_NOSIGNAL) == 9);
        CHECK(close(copy) == 0);
    }
    close(TO);
    return NULL;
}

/* A duplicate made while the number is closed is one of the socket, or there is none. */
CASE(duplicated_while_closed) {
    int way, i;
    for (way = 0; way < 3; way++) {
        for (i = 0; i < 200; i++) {
            struct duplicating d = {.way = way};
            int fds[2];
            pthread_t thread;
            pair_above(fds);
            d.fd = fds[0];
            CHECK(pthread_create(&thread, NULL, duplicate_until_refused, &d) == 0);
            usleep((unsigned)i % 7 * 50);
            CHECK(close(fds[0]) == 0);
            only_messages_then_the_end(fds[1]);
            CHECK(pthread_join(thread, NULL) == 0);
            CHECK(close(fds[1]) == 0);
        }
    }
}

static void on_crash(int number) {
    (void)number;
    _exit(9);
}

/* A program that installs a handler for faults, behind the engine's back. */
CASE(faults_with_a_handler_of_the_program) {
    pid_t child;
    int status;
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct sigaction action = {.sa_handler = on_crash};
        char* const nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int fds[2];
        pair_of(1, fds);
        CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
        usleep(1500000); /* it is looked at once a second */
        CHECK_ERROR(send(fds[0], nowhere, 100, 0), EFAULT);
        exchange(fds[0], fds[1]);
        *(volatile char*)nowhere = 1; /* the program's own */
        _exit(8);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 9);
}

/* A program may say how many descriptors there may ever be, with sets of the usual size. */
CASE(select_of_all_there_may_be) {
    const long page = sysconf(_SC_PAGESIZE);
    pid_t child;
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char* const two = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fd_set* const set = (fd_set*)(two + page) - 1;
        int fds[2];
        alarm(60);
        CHECK(two != MAP_FAILED && mprotect(two + page, (size_t)page, PROT_NONE) == 0);
        pair_of(1, fds);
        FD_SET(fds[0], set);
        CHECK(select(1 << 20, NULL, set, NULL, NULL) == 1 && FD_ISSET(fds[0], set));
        CHECK(pselect(1 << 20, NULL, set, NULL, NULL, NULL) == 1 && FD_ISSET(fds[0], set));
        close_pair(fds);
        /* The same of plain ones alone, where the engine's lie far up. */
        pair_of(0, fds);
        FD_ZERO(set);
        FD_SET(fds[0], set);
        CHECK(select(1 << 20, NULL, set, NULL, NULL) == 1 && FD_ISSET(fds[0], set));
        _exit(0);
    }
    wait_ok(child);
}

/* ---- epoll sets -------------------------------------------------------------------------------
 */
static void add_to(int epfd, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
}

CASE(a_set_is_no_socket) {
    const int epfd = epoll_create1(EPOLL_CLOEXEC);
    const int on = DDPMODE_MESSAGE;
    int fds[2];
    pair_of(1, fds);
    add_to(epfd, fds[0]);
    CHECK_ERROR(setsockopt(epfd, SOL_XSOCK, DDPMODE, &on, sizeof on), ENOTSOCK);
    CHECK_ERROR(send(epfd, "x", 1, 0), ENOTSOCK);
    CHECK(close(epfd) == 0);
    close_pair(fds);
}

struct changing {
    int epfd, member;
    _Atomic int stop;
};

/* libc's own function: a thread that the wrappers do not see. */
static void* wait_unseen(void* argument) {
    struct changing* const t = argument;
    typedef int wait_fn(int, struct epoll_event*, int, int);
    wait_fn* const wait = (wait_fn*)dlsym(dlopen("libc.so.6", RTLD_NOW), "epoll_wait");
    struct epoll_event event;
    CHECK(wait != NULL);
    while (!t->stop) wait(t->epfd, &event, 1, 100);
    return NULL;
}

static void* turn_it(void* argument) {
    const struct changing* const t = argument;
    add_to(t->epfd, t->member);
    return NULL;
}

/* A set gets its first DDPMODE member, which takes its time where a thread sleeps on it: a child
 * that is forked meanwhile can do the same with a set of its own. */
CASE(forked_while_a_set_turns) {
    struct changing t = {.epfd = epoll_create1(EPOLL_CLOEXEC)};
    pthread_t waiter, turner;
    pid_t child;
    int fds[2];
    pair_of(1, fds);
    t.member = fds[0];
    CHECK(pthread_create(&waiter, NULL, wait_unseen, &t) == 0);
    usleep(50000);
    CHECK(pthread_create(&turner, NULL, turn_it, &t) == 0);
    usleep(150000);
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int own[2];
        alarm(30);
        pair_of(1, own);
        add_to(epoll_create1(EPOLL_CLOEXEC), own[0]);
        _exit(0);
    }
    wait_ok(child);
    CHECK(pthread_join(turner, NULL) == 0);
    t.stop = 1;
    CHECK(pthread_join(waiter, NULL) == 0);
    CHECK(close(t.epfd) == 0);
    close_pair(fds);
}

/* Threads that open, duplicate, use and close; numbers are reused all the time. */
static void* churn(void* argument) {
    struct sockaddr_in* const address = argument;
    int i;
    for (i = 0; i < 60; i++) {
        char bytes[16];
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        int copy;
        CHECK(fd >= 0);
        if (i % 2) ddpmode(fd);
        CHECK(connect(fd, (struct sockaddr*)address, sizeof *address) == 0);
        CHECK((copy = dup(fd)) >= 0 && close(fd) == 0);
        CHECK(send(copy, "ping", 4, 0) == 4);
        CHECK(recv(copy, bytes, sizeof bytes, 0) == 4);
        CHECK(close(copy) == 0);
    }
    return NULL;
}

static void* echo(void* argument) {
    const int from = *(int*)argument;
    for (;;) {
        char bytes[16];
        ssize_t n;
        const int fd = accept(from, NULL, NULL);
        if (fd < 0) return NULL;
        while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
            CHECK(send(fd, bytes, (size_t)n, MSG_NOSIGNAL) == n);
        }
        CHECK(close(fd) == 0);
    }
}

CASE(churned) {
    enum { CLIENTS = 4 };
    struct sockaddr_in address;
    int from = listener(&address, 1); /* DDPREQUIRE off: plain clients on the same port */
    pthread_t clients[CLIENTS], servers[CLIENTS];
    int i;
    for (i = 0; i < CLIENTS; i++) {
        CHECK(pthread_create(&servers[i], NULL, echo, &from) == 0);
        CHECK(pthread_create(&clients[i], NULL, churn, &address) == 0);
    }
    for (i = 0; i < CLIENTS; i++) CHECK(pthread_join(clients[i], NULL) == 0);
    CHECK(shutdown(from, SHUT_RDWR) == 0);
    for (i = 0; i < CLIENTS; i++) CHECK(pthread_join(servers[i], NULL) == 0);
    CHECK(close(from) == 0);
}

static void run_case(const struct test_case* one) {
    printf("%s\n", one->name);
    fflush(stdout);
    alarm(120);
    one->run();
}

int main(int argc, char** argv) {
    if (argc == 4 && strcmp(argv[1], "recorded_still") == 0) {
        record = argv[2];
        alarm(60);
        recorded_still(argv[3][0] - '0');
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "started_by_inetd") == 0) return started_by_inetd();
    return for_cases(argc, argv, run_case);
}
