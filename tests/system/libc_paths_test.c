/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Ways of libc and the kernel to a descriptor that are not calls on it by name: requests of aio,
 * streams of stdio that are older than DDPMODE or lie over it after dup2(), options of a byte
 * stream. None may carry raw bytes into a started stream. Calls libc alone, as overlay_test.c does.
 *
 *   libc_paths_test [CASE ...]
 */
#include <aio.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/support/cases.h"
#include "tests/system/overlay_pair.h"

static void expect(int fd, const char* text) {
    char bytes[256];
    const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n != (ssize_t)strlen(text)) fprintf(stderr, "%zd bytes instead of \"%s\"\n", n, text);
    CHECK(n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0);
}

static void expect_end(int fd) {
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, 20000) == 1);
    CHECK(recv(fd, &byte, 1, 0) == 0);
}

/* ---- aio ---------------------------------------------------------------------------------------
 */
static void wait_for(struct aiocb* request) {
    const struct aiocb* const list[] = {request};
    const struct timespec limit = {20, 0};
    while (aio_error(request) == EINPROGRESS) CHECK(aio_suspend(list, 1, &limit) == 0);
}

CASE(aio_carries_messages) {
    char in[64] = "";
    char first[] = "first", second[] = "the second";
    struct aiocb read_it = {.aio_buf = in, .aio_nbytes = sizeof in};
    struct aiocb write_first = {.aio_buf = first, .aio_nbytes = 5};
    struct aiocb write_second = {.aio_buf = second, .aio_nbytes = 10};
    const struct aiocb* const list[] = {&read_it};
    const struct timespec soon = {0, 50000000};
    int fds[2];
    pair_of(1, fds);
    write_first.aio_fildes = write_second.aio_fildes = fds[0];
    read_it.aio_fildes = fds[1];
    CHECK(aio_read(&read_it) == 0);
    CHECK(aio_error(&read_it) == EINPROGRESS);
    CHECK_ERROR(aio_suspend(list, 1, &soon), EAGAIN);
    CHECK(aio_write(&write_first) == 0 && aio_write(&write_second) == 0);
    wait_for(&read_it);
    CHECK(aio_error(&read_it) == 0 && aio_return(&read_it) == 5 && memcmp(in, "first", 5) == 0);
    expect(fds[1], "the second"); /* requests of one descriptor are in order */
    wait_for(&write_second);
    CHECK(aio_return(&write_first) == 5 && aio_return(&write_second) == 10);
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

static _Atomic int called;
static void on_completion(union sigval value) { called += value.sival_int; }
static void wait_called(int value) {
    int i;
    for (i = 0; called == 0 && i < 20000; i++) usleep(1000);
    CHECK(called == value);
    called = 0;
}

static volatile int signal_value;
static void on_signal(int number, siginfo_t* info, void* context) {
    (void)number;
    (void)context;
    signal_value = info->si_code == SI_ASYNCIO ? info->si_value.sival_int : -1;
}

CASE(aio_notifies) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    char byte[] = "x";
    struct aiocb request = {.aio_buf = byte, .aio_nbytes = 1};
    int fds[2];
    int i;
    pair_of(1, fds);
    request.aio_fildes = fds[0];
    request.aio_sigevent.sigev_notify = SIGEV_THREAD;
    request.aio_sigevent.sigev_notify_function = on_completion;
    request.aio_sigevent.sigev_value.sival_int = 7;
    CHECK(aio_write(&request) == 0);
    expect(fds[1], "x");
    wait_called(7);
    CHECK(aio_error(&request) == 0);
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    request.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    request.aio_sigevent.sigev_signo = SIGRTMIN;
    CHECK(aio_write(&request) == 0);
    expect(fds[1], "x");
    for (i = 0; signal_value == 0 && i < 20000; i++) usleep(1000);
    CHECK(signal_value == 7);
    close_pair(fds);
}

static sigset_t mask_inside;
static void keep_mask(union sigval value) {
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_inside) == 0);
    called = value.sival_int;
}

CASE(aio_notifies_with_the_signals_of_libc) {
    char byte[] = "x";
    struct aiocb request = {.aio_buf = byte, .aio_nbytes = 1, .aio_lio_opcode = LIO_WRITE};
    struct aiocb* const list[] = {&request};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = keep_mask};
    sigset_t ours, libcs;
    int fds[2], pipes[2], whole_list, number;
    pair_of(1, fds);
    CHECK(pipe(pipes) == 0);
    event.sigev_value.sival_int = 1;
    for (whole_list = 0; whole_list < 2; whole_list++) {
        if (!whole_list) request.aio_sigevent = event;
        request.aio_fildes = pipes[1];
        CHECK((whole_list ? lio_listio(LIO_NOWAIT, list, 1, &event) : aio_write(&request)) == 0);
        wait_called(1);
        libcs = mask_inside;
        request.aio_fildes = fds[0];
        CHECK((whole_list ? lio_listio(LIO_NOWAIT, list, 1, &event) : aio_write(&request)) == 0);
        wait_called(1);
        ours = mask_inside;
        for (number = 1; number < NSIG; number++) {
            CHECK(sigismember(&ours, number) == sigismember(&libcs, number));
        }
        request.aio_sigevent.sigev_notify = SIGEV_NONE;
    }
    close_pair(pipes);
    close_pair(fds);
}

CASE(lists_of_aio) {
    char a[] = "a", b[] = "bb", file[8] = "";
    const int zero = open("/dev/zero", O_RDONLY);
    struct aiocb one = {.aio_buf = a, .aio_nbytes = 1, .aio_lio_opcode = LIO_WRITE};
    struct aiocb two = {.aio_buf = b, .aio_nbytes = 2, .aio_lio_opcode = LIO_WRITE};
    struct aiocb plain = {.aio_buf = file, .aio_nbytes = 8, .aio_lio_opcode = LIO_READ};
    struct aiocb nothing = {.aio_lio_opcode = LIO_NOP};
    struct aiocb* const list[] = {&one, NULL, &plain, &nothing, &two};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    int fds[2];
    pair_of(1, fds);
    one.aio_fildes = two.aio_fildes = fds[0];
    plain.aio_fildes = zero;
    CHECK(lio_listio(LIO_WAIT, list, 5, NULL) == 0);
    CHECK(aio_error(&one) == 0 && aio_return(&one) == 1 && aio_return(&two) == 2);
    CHECK(aio_error(&plain) == 0 && aio_return(&plain) == 8);
    expect(fds[1], "a");
    expect(fds[1], "bb");
    event.sigev_notify_function = on_completion;
    event.sigev_value.sival_int = 3;
    CHECK(lio_listio(LIO_NOWAIT, list, 5, &event) == 0);
    expect(fds[1], "a");
    expect(fds[1], "bb");
    wait_called(3);
    close(zero);
    close_pair(fds);
}

/* A request on a page of its own. */
static struct aiocb* paged_request(int fd, int opcode, void* buffer, size_t bytes) {
    struct aiocb* const request =
        mmap(NULL, sizeof *request, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(request != MAP_FAILED);
    request->aio_fildes = fd;
    request->aio_lio_opcode = opcode;
    request->aio_buf = buffer;
    request->aio_nbytes = bytes;
    return request;
}

static void return_and_unmap(struct aiocb* request, ssize_t result) {
    wait_for(request);
    CHECK(aio_return(request) == result && munmap(request, sizeof *request) == 0);
}

CASE(requests_of_a_list_are_free_once_done) {
    char a[] = "a", file[8], in[8];
    const int zero = open("/dev/zero", O_RDONLY);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_completion};
    int fds[2], round;
    pair_of(1, fds);
    event.sigev_value.sival_int = 5;
    for (round = 0; round < 10; round++) {
        struct aiocb* const list[] = {paged_request(fds[0], LIO_WRITE, a, 1),
                                      paged_request(zero, LIO_READ, file, sizeof file),
                                      paged_request(fds[0], LIO_READ, in, sizeof in)};
        CHECK(lio_listio(LIO_NOWAIT, list, 3, &event) == 0);
        return_and_unmap(list[1], sizeof file);
        return_and_unmap(list[0], 1);
        expect(fds[1], "a");
        usleep(5000);
        CHECK(called == 0); /* the third is not done */
        CHECK(send(fds[1], "text", 4, 0) == 4);
        return_and_unmap(list[2], 4);
        wait_called(5);
    }
    close(zero);
    close_pair(fds);
}

static void prepare_reads(struct aiocb requests[3], char in[3][8], int fd) {
    int i;
    memset(requests, 0, 3 * sizeof *requests);
    for (i = 0; i < 3; i++) {
        requests[i].aio_fildes = fd;
        requests[i].aio_buf = in[i];
        requests[i].aio_nbytes = sizeof in[i];
    }
}

CASE(a_list_whose_last_request_is_cancelled_is_done) {
    char in[3][8];
    struct aiocb requests[3];
    struct aiocb* const list[] = {&requests[1], &requests[2]};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_completion};
    int fds[2];
    pair_of(1, fds);
    prepare_reads(requests, in, fds[1]);
    event.sigev_value.sival_int = 6;
    CHECK(aio_read(&requests[0]) == 0 && lio_listio(LIO_NOWAIT, list, 2, &event) == 0);
    CHECK(aio_cancel(fds[1], &requests[1]) == AIO_CANCELED);
    usleep(20000);
    CHECK(called == 0 && aio_cancel(fds[1], &requests[2]) == AIO_CANCELED);
    wait_called(6);
    CHECK(send(fds[0], "x", 1, 0) == 1);
    wait_for(&requests[0]);
    close_pair(fds);
}

/* Its own requests are done all the same. */
static void interrupted(int number) { (void)number; }
static void* interrupt_later(void* thread) {
    usleep(50000);
    CHECK(pthread_kill(*(pthread_t*)thread, SIGUSR1) == 0);
    return NULL;
}

CASE(waiting_for_a_list_is_interrupted) {
    char in[8] = "", file[8];
    const int zero = open("/dev/zero", O_RDONLY);
    struct aiocb plain = {.aio_buf = file, .aio_nbytes = 8, .aio_lio_opcode = LIO_READ};
    struct aiocb read_it = {.aio_buf = in, .aio_nbytes = sizeof in, .aio_lio_opcode = LIO_READ};
    struct aiocb* const list[] = {&read_it, &plain};
    const struct sigaction action = {.sa_handler = interrupted};
    pthread_t self = pthread_self(), thread;
    int fds[2];
    pair_of(1, fds);
    read_it.aio_fildes = fds[1];
    plain.aio_fildes = zero;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, interrupt_later, &self) == 0);
    CHECK_ERROR(lio_listio(LIO_WAIT, list, 2, NULL), EINTR);
    CHECK(pthread_join(thread, NULL) == 0 && aio_error(&plain) == 0);
    CHECK(send(fds[0], "text", 4, 0) == 4);
    wait_for(&read_it);
    CHECK(aio_return(&read_it) == 4 && memcmp(in, "text", 4) == 0);
    close(zero);
    close_pair(fds);
}

/* What a call and the requests of its list have answered. */
struct answer {
    int result, error, errors[2];
    ssize_t results[2];
};

static struct answer answer_of_list(int fd, int mode, int opcode, int priority, int count) {
    char byte[] = "x";
    struct aiocb requests[2];
    struct aiocb* const list[] = {&requests[0], &requests[1]};
    struct answer answer;
    int i;
    memset(&answer, 0, sizeof answer);
    memset(requests, 0, sizeof requests);
    for (i = 0; i < 2; i++) {
        requests[i].aio_fildes = fd;
        requests[i].aio_buf = byte;
        requests[i].aio_nbytes = 1;
        requests[i].aio_lio_opcode = LIO_WRITE;
    }
    requests[0].aio_lio_opcode = opcode;
    requests[0].aio_reqprio = priority;
    answer.result = lio_listio(mode, list, count, NULL);
    if (answer.result != 0) answer.error = errno;
    for (i = 0; i < 2 && i < count; i++) {
        wait_for(&requests[i]);
        answer.errors[i] = aio_error(&requests[i]);
        answer.results[i] = aio_return(&requests[i]);
    }
    return answer;
}

static void same_answers(int ours, int libcs, int mode, int opcode, int priority, int count) {
    const struct answer a = answer_of_list(ours, mode, opcode, priority, count);
    const struct answer b = answer_of_list(libcs, mode, opcode, priority, count);
    if (memcmp(&a, &b, sizeof a) == 0) return;
    fprintf(stderr, "mode %d, opcode %d, priority %d, %d: %d (errno %d), %d, %d\n", mode, opcode,
            priority, count, a.result, a.error, a.errors[0], a.errors[1]);
    fprintf(stderr, "libc's: %d (errno %d), %d, %d\n", b.result, b.error, b.errors[0], b.errors[1]);
    exit(1);
}

static int error_of(int result) { return result < 0 ? errno : 0; }

CASE(aio_refuses_what_libc_refuses) {
    static const int modes[] = {LIO_WAIT, LIO_NOWAIT, 77};
    static const int opcodes[] = {LIO_WRITE, LIO_NOP, 3, 99, -1};
    static const int priorities[] = {0, 20, 21, -5};
    int fds[2], pipes[2], i, k, n, count;
    pair_of(1, fds);
    CHECK(pipe(pipes) == 0);
    for (i = 0; i < 3; i++) {
        for (count = 1; count <= 2; count++) {
            for (k = 0; k < 5; k++) same_answers(fds[0], pipes[1], modes[i], opcodes[k], 0, count);
            for (k = 0; k < 4; k++) {
                same_answers(fds[0], pipes[1], modes[i], LIO_WRITE, priorities[k], count);
            }
        }
    }
    for (k = 0; k < 4; k++) {
        char byte[] = "x";
        struct aiocb a = {.aio_fildes = fds[0], .aio_buf = byte, .aio_nbytes = 1};
        struct aiocb b = {.aio_fildes = pipes[1], .aio_buf = byte, .aio_nbytes = 1};
        a.aio_reqprio = b.aio_reqprio = priorities[k];
        CHECK(error_of(aio_write(&a)) == error_of(aio_write(&b)));
        wait_for(&a);
        wait_for(&b);
        CHECK(aio_error(&a) == aio_error(&b) && aio_return(&a) == aio_return(&b));
        CHECK_ERROR(aio_cancel(fds[0], &b), EINVAL);
        CHECK_ERROR(aio_cancel(pipes[1], &a), EINVAL);
        CHECK(aio_cancel(fds[0], &a) == aio_cancel(pipes[1], &b));
    }
    /* What was refused was not sent. */
    CHECK(ioctl(pipes[0], FIONREAD, &n) == 0);
    for (i = 0; i < n; i++) expect(fds[1], "x");
    exchange(fds[0], fds[1]);
    exchange(fds[1], fds[0]);
    close_pair(pipes);
    close_pair(fds);
}

CASE(aio_is_cancelled) {
    char in[3][8];
    struct aiocb requests[3];
    int fds[2];
    int i;
    pair_of(1, fds);
    prepare_reads(requests, in, fds[1]);
    for (i = 0; i < 3; i++) CHECK(aio_read(&requests[i]) == 0);
    usleep(50000); /* the first is under way */
    CHECK(aio_cancel(fds[1], &requests[1]) == AIO_CANCELED);
    CHECK(aio_error(&requests[1]) == ECANCELED && aio_return(&requests[1]) == -1);
    CHECK(aio_cancel(fds[1], &requests[0]) == AIO_NOTCANCELED);
    CHECK(aio_cancel(fds[1], NULL) == AIO_NOTCANCELED);
    CHECK(aio_error(&requests[2]) == ECANCELED);
    CHECK(send(fds[0], "x", 1, 0) == 1);
    wait_for(&requests[0]);
    CHECK(aio_return(&requests[0]) == 1 && aio_cancel(fds[1], NULL) == AIO_ALLDONE);
    close_pair(fds);
}

CASE(aio_of_plain_ones_is_libcs) {
    char in[8];
    struct aiocb request = {.aio_buf = in, .aio_nbytes = sizeof in};
    int fds[2], pipes[2];
    pair_of(1, fds);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "pipe", 4) == 4);
    request.aio_fildes = pipes[0];
    CHECK(aio_read(&request) == 0);
    wait_for(&request);
    CHECK(aio_error(&request) == 0 && aio_return(&request) == 4);
    request.aio_fildes = -1;
    CHECK(aio_read(&request) == -1 || aio_suspend((const struct aiocb*[]){&request}, 1, NULL) == 0);
    CHECK(aio_error(&request) == EBADF);
    close_pair(pipes);
    close_pair(fds);
}

CASE(aio_fails_with_memory_that_is_not_there) {
    void* const gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct aiocb write_it = {.aio_buf = gone, .aio_nbytes = 4096, .aio_lio_opcode = LIO_WRITE};
    struct aiocb read_it = {.aio_buf = gone, .aio_nbytes = 4096, .aio_lio_opcode = LIO_READ};
    struct aiocb* const list[] = {&write_it};
    int fds[2];
    pair_of(1, fds);
    CHECK(gone != MAP_FAILED);
    write_it.aio_fildes = fds[0];
    read_it.aio_fildes = fds[1];
    CHECK_ERROR(write(fds[0], gone, 4096), EFAULT);
    CHECK(aio_write(&write_it) == 0);
    wait_for(&write_it);
    CHECK(aio_error(&write_it) == EFAULT && aio_return(&write_it) == -1);
    CHECK_ERROR(lio_listio(LIO_WAIT, list, 1, NULL), EIO);
    CHECK(aio_error(&write_it) == EFAULT);
    CHECK(aio_read(&read_it) == 0 && send(fds[0], "text", 4, 0) == 4);
    wait_for(&read_it);
    CHECK(aio_error(&read_it) == EFAULT);
    CHECK(munmap(gone, 4096) == 0 && close(fds[0]) == 0 && close(fds[1]) == 0);
}

/* ---- stdio over 0, 1 and 2
 * -----------------------------------------------------------------------
 */
CASE(printed_after_dup2) {
    char path[] = "/tmp/xsock-printed-XXXXXX";
    char text[64] = "";
    const int file = mkstemp(path);
    const int saved = dup(STDOUT_FILENO);
    int fds[2], round;
    CHECK(file >= 0 && saved >= 0 && unlink(path) == 0);
    CHECK(fflush(stdout) == 0 && dup2(file, STDOUT_FILENO) == STDOUT_FILENO);
    for (round = 0; round < 3; round++) {
        pair_of(1, fds);
        printf("before\n"); /* still in the stream's buffer */
        CHECK(dup2(fds[0], STDOUT_FILENO) == STDOUT_FILENO);
        CHECK(fileno(stdout) == STDOUT_FILENO);
        CHECK(printf("number %d\n", 42) == 10 && fflush(stdout) == 0);
        expect(fds[1], "number 42\n");
        CHECK(puts("more") >= 0 && fflush(NULL) == 0);
        expect(fds[1], "more\n");
        CHECK(printf("last\n") == 5); /* goes where it was printed to */
        CHECK(dup2(file, STDOUT_FILENO) == STDOUT_FILENO);
        expect(fds[1], "last\n");
        printf("after\n");
        CHECK(fflush(stdout) == 0);
        close_pair(fds);
    }
    CHECK(dup2(saved, STDOUT_FILENO) == STDOUT_FILENO && close(saved) == 0);
    CHECK(pread(file, text, sizeof text, 0) == 3 * 13);
    CHECK(memcmp(text, "before\nafter\nbefore\n", 20) == 0 && close(file) == 0);
}

CASE(complained_after_dup2) {
    const int saved = dup(STDERR_FILENO);
    int fds[2];
    pair_of(1, fds);
    CHECK(dup2(fds[0], STDERR_FILENO) == STDERR_FILENO);
    fprintf(stderr, "%s: %d", "reason", 3); /* not buffered */
    CHECK(dup2(saved, STDERR_FILENO) == STDERR_FILENO && close(saved) == 0);
    expect(fds[1], "reason: 3");
    fprintf(stderr, "(this is no failure)\n");
    close_pair(fds);
}

CASE(read_after_dup2) {
    char line[64];
    const int saved = dup(STDIN_FILENO);
    int fds[2];
    pair_of(1, fds);
    CHECK(close(STDIN_FILENO) == 0 && dup(fds[1]) == STDIN_FILENO);
    CHECK(send(fds[0], "one\ntwo\n", 8, 0) == 8);
    CHECK(fgets(line, sizeof line, stdin) != NULL && strcmp(line, "one\n") == 0);
    CHECK(scanf("%63s", line) == 1 && strcmp(line, "two") == 0);
    exchange(fds[1], fds[0]);
    if (saved >= 0) {
        CHECK(dup2(saved, STDIN_FILENO) == STDIN_FILENO && close(saved) == 0);
    } else {
        CHECK(close(STDIN_FILENO) == 0);
    }
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

/* A child that runs `use` with a connected socket, and the other end of that. */
static int connected_child(void (*use)(int fd), pid_t* child) {
    struct connecting c = {.mode = DDPMODE_MESSAGE};
    const int from = listener(&c.address, 1);
    int fd;
    fflush(stdout);
    *child = fork();
    CHECK(*child >= 0);
    if (*child == 0) {
        connect_it(&c);
        use(c.fd);
        exit(0);
    }
    fd = accept(from, NULL, NULL);
    CHECK(fd >= 0 && close(from) == 0);
    return fd;
}

static void print_and_exit(int fd) {
    CHECK(dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
    printf("at the end\n");
}

/* What a process leaves in the buffer is sent at its end. */
CASE(printed_before_exit) {
    pid_t child;
    const int fd = connected_child(print_and_exit, &child);
    expect(fd, "at the end\n");
    expect_end(fd);
    wait_ok(child);
    CHECK(close(fd) == 0);
}

/* ---- streams that are older than DDPMODE
 * ----------------------------------------------------------
 */
static void* connect_made(void* argument) {
    struct connecting* const c = argument;
    ddpmode(c->fd);
    CHECK(connect(c->fd, (struct sockaddr*)&c->address, sizeof c->address) == 0);
    return NULL;
}

/* fds[0] is a socket that was made before; fds[1] is accepted. */
static void connect_pair(int fds[2]) {
    struct connecting c = {.fd = fds[0]};
    const int require = 1;
    const int from = listener(&c.address, 1);
    pthread_t thread;
    CHECK(setsockopt(from, SOL_XSOCK, DDPREQUIRE, &require, sizeof require) == 0);
    CHECK(pthread_create(&thread, NULL, connect_made, &c) == 0);
    fds[1] = accept(from, NULL, NULL);
    CHECK(fds[1] >= 0 && pthread_join(thread, NULL) == 0 && close(from) == 0);
    exchange(fds[0], fds[1]);
}

static FILE* older_stream(int fds[2]) {
    FILE* file;
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    file = fdopen(fds[0], "r+");
    CHECK(file != NULL);
    connect_pair(fds);
    return file;
}

CASE(older_stream_is_closed) {
    int fds[2];
    FILE* file = older_stream(fds);
    CHECK(fclose(file) == 0);
    expect_end(fds[1]);
    CHECK_ERROR(fcntl(fds[0], F_GETFD), EBADF);
    CHECK(close(fds[1]) == 0);
    file = older_stream(fds);
    CHECK(fprintf(file, "in the buffer") == 13 && fclose(file) == 0);
    expect(fds[1], "in the buffer");
    expect_end(fds[1]);
    CHECK(close(fds[1]) == 0);
}

/* The path of an empty file, open for reading as well. */
static int new_file(char path[]) {
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    return fd;
}

/* The file holds `text` and no more. Closes and removes it. */
static void expect_in_file(int fd, const char* path, const char* text) {
    char bytes[64];
    const ssize_t n = read(fd, bytes, sizeof bytes);
    CHECK(n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0);
    CHECK(close(fd) == 0 && unlink(path) == 0);
}

/* What it has buffered is sent, its connection ends, and it writes to the new file. */
static void reopen(FILE* file, const char* mode, int peer) {
    char path[] = "/tmp/xsock-reopened-XXXXXX";
    const int fd = new_file(path);
    CHECK(fprintf(file, "buffered") == 8);
    CHECK(freopen(path, mode, file) == file);
    expect(peer, "buffered");
    expect_end(peer);
    CHECK(fprintf(file, "there") == 5 && fflush(file) == 0 && mode_of(fileno(file)) == -1);
    CHECK(fclose(file) == 0 && close(peer) == 0);
    expect_in_file(fd, path, "there");
}

CASE(older_stream_is_reopened) {
    int fds[2];
    FILE* const file = older_stream(fds);
    reopen(file, "r+", fds[1]);
}

CASE(stream_is_reopened) {
    int fds[2];
    pair_of(1, fds);
    reopen(fdopen(fds[0], "w"), "w", fds[1]);
}

CASE(standard_output_is_reopened) {
    const int saved = dup(STDOUT_FILENO);
    char path[] = "/tmp/xsock-reopened-XXXXXX";
    const int fd = new_file(path);
    int fds[2];
    pair_of(1, fds);
    CHECK(fflush(stdout) == 0 && dup2(fds[0], STDOUT_FILENO) == STDOUT_FILENO);
    CHECK(close(fds[0]) == 0 && printf("buffered") == 8);
    CHECK(freopen(path, "w", stdout) != NULL);
    expect(fds[1], "buffered");
    expect_end(fds[1]);
    CHECK(printf("there") == 5 && fflush(stdout) == 0 && fileno(stdout) == STDOUT_FILENO);
    expect_in_file(fd, path, "there");
    CHECK(dup2(saved, STDOUT_FILENO) == STDOUT_FILENO && close(saved) == 0);
    CHECK(close(fds[1]) == 0);
}

/* As glibc's. */
CASE(fcloseall_closes_no_socket) {
    int fds[2];
    FILE* const file = older_stream(fds);
    CHECK(fcloseall() == 0);
    exchange(fds[0], fds[1]);
    CHECK(fclose(file) == 0);
    expect_end(fds[1]);
    CHECK(close(fds[1]) == 0);
}

enum { LARGE = 5 * 1024 * 1024 / 2 + 7 };
static char large[LARGE];

static void write_large(int fd) {
    FILE* const out = fdopen(fd, "w");
    CHECK(out != NULL && fwrite(large, 1, LARGE, out) == LARGE && fclose(out) == 0);
}

CASE(written_in_one_piece_too_large) {
    char* const back = malloc(LARGE);
    FILE* in;
    pid_t child;
    int i;
    for (i = 0; i < LARGE; i++) large[i] = (char)(i * 7 + i / 251);
    in = fdopen(connected_child(write_large, &child), "r");
    CHECK(back != NULL && in != NULL && fread(back, 1, LARGE, in) == LARGE);
    CHECK(memcmp(large, back, LARGE) == 0);
    CHECK(fgetc(in) == EOF && feof(in) && fclose(in) == 0);
    wait_ok(child);
    free(back);
}

/* ---- what only a byte stream can do
 * ---------------------------------------------------------------
 */
CASE(zero_copy_is_refused) {
    const int on = 1, mode = DDPMODE_MESSAGE;
    struct tcp_zerocopy_receive zero_copy;
    socklen_t length = sizeof zero_copy;
    int fds[2];
    pair_of(1, fds);
    CHECK_ERROR(setsockopt(fds[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on), ENOPROTOOPT);
    memset(&zero_copy, 0, sizeof zero_copy);
    CHECK(send(fds[0], "message", 7, 0) == 7);
    CHECK_ERROR(getsockopt(fds[1], IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &zero_copy, &length),
                ENOPROTOOPT);
    expect(fds[1], "message");
    close_pair(fds);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fds[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
    CHECK_ERROR(setsockopt(fds[0], SOL_XSOCK, DDPMODE, &mode, sizeof mode), EOPNOTSUPP);
    CHECK(close(fds[0]) == 0);
}

CASE(signals_of_tcp_are_refused) {
    int fds[2], flags, on = 1;
    pair_of(1, fds);
    flags = fcntl(fds[0], F_GETFL);
    CHECK_ERROR(fcntl(fds[0], F_SETFL, flags | O_ASYNC), EOPNOTSUPP);
    CHECK_ERROR(ioctl(fds[0], FIOASYNC, &on), EOPNOTSUPP);
    on = 0;
    CHECK(ioctl(fds[0], FIOASYNC, &on) == 0);
    CHECK(fcntl(fds[0], F_SETFL, flags) == 0 && fcntl(fds[0], F_GETFL) == flags);
    exchange(fds[0], fds[1]);
    close_pair(fds);
}

CASE(connects_without_fast_open) {
    const int on = 1;
    int fds[2];
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on) == 0);
    CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof on) == 0);
    connect_pair(fds);
    close_pair(fds);
}

static void run_case(const struct test_case* one) {
    fprintf(stderr, "%s\n", one->name);
    alarm(60);
    one->run();
}

int main(int argc, char** argv) { return for_cases(argc, argv, run_case); }
