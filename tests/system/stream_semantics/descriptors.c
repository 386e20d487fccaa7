/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Descriptors: duplicates, flags, addresses, and calls that are not for a connected socket. */
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "tests/system/stream_semantics/semantics.h"

CASE(duplicates) {
    int fds[2], copy, high;
    make_pair(fds);
    copy = dup(fds[0]);
    NOTE(copy >= 0);
    high = fcntl(fds[0], F_DUPFD_CLOEXEC, 700);
    NOTE(high);
    put(copy, "a");
    put(high, "b");
    put(fds[0], "c");
    RECV(fds[1], 3, MSG_WAITALL);
    NOTE(close(fds[0]));
    put(copy, "d");
    RECV(fds[1], 1, 0);
    RECV(fds[1], 1, MSG_DONTWAIT);
    NOTE(dup2(copy, copy) == copy);
    NOTE(dup3(copy, copy, 0));
    NOTE(dup3(copy, 701, O_CLOEXEC));
    NOTE(fcntl(701, F_GETFD));
    NOTE(close(701));
    NOTE(close(copy));
    RECV(fds[1], 1, MSG_DONTWAIT);
    NOTE(close(high)); /* the last one */
    RECV(fds[1], 1, 0);
    NOTE(close(fds[1]));
}

/* As Java closes: another file takes the number. */
CASE(dup2_over_one_in_use) {
    int fds[2], pipes[2];
    char bytes[8];
    make_pair(fds);
    CHECK(pipe(pipes) == 0);
    put(fds[0], "last");
    NOTE(dup2(pipes[0], fds[0]) == fds[0]);
    put(pipes[1], "pipe");
    NOTE(read(fds[0], bytes, sizeof bytes));
    RECV(fds[1], 10, MSG_WAITALL);
    NOTE(dup2(9999, fds[1]));
    RECV(fds[1], 10, 0);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    close_pair(fds);
}

static int java_pipe;
static void* replace_later(void* argument) {
    sleep_ms(30);
    CHECK(shutdown(*(int*)argument, SHUT_RDWR) == 0);
    CHECK(dup2(java_pipe, *(int*)argument) == *(int*)argument);
    return NULL;
}

CASE(dup2_under_a_reader) {
    int fds[2], pipes[2];
    pthread_t thread;
    make_pair(fds);
    CHECK(pipe(pipes) == 0);
    java_pipe = pipes[0];
    CHECK(pthread_create(&thread, NULL, replace_later, &fds[1]) == 0);
    RECV(fds[1], 10, 0);
    join(thread);
    RECV(fds[0], 10, 0);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    close_pair(fds);
}

CASE(a_socket_onto_another) {
    int one[2], two[2];
    make_pair(one);
    make_pair(two);
    NOTE(dup2(one[0], two[0]) == two[0]);
    RECV(two[1], 10, 0);
    put(two[0], "a");
    put(one[0], "b");
    RECV(one[1], 2, MSG_WAITALL);
    close_pair(one);
    close_pair(two);
}

CASE(flags_of_a_descriptor) {
    int fds[2], copy, value = 1;
    make_pair(fds);
    copy = dup(fds[0]);
    CHECK(copy >= 0);
    NOTE(fcntl(fds[0], F_GETFL) & (O_NONBLOCK | O_ACCMODE));
    NOTE(fcntl(fds[0], F_SETFL, O_NONBLOCK));
    NOTE(fcntl(copy, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
    RECV(copy, 1, 0);
    RECV(copy, 10, MSG_WAITALL);
    value = 0;
    NOTE(ioctl(copy, FIONBIO, &value));
    NOTE(fcntl(fds[0], F_GETFL) & (O_NONBLOCK | O_ACCMODE));
    NOTE(fcntl(fds[0], F_SETOWN, getpid()));
    NOTE(fcntl(copy, F_GETOWN) == getpid());
    NOTE(fcntl(fds[0], F_GETSIG));
    NOTE(fcntl(fds[0], F_SETSIG, SIGUSR1));
    NOTE(fcntl(fds[0], F_GETSIG) == SIGUSR1);
    NOTE(fcntl(fds[0], F_SETFL, O_ASYNC));
    NOTE(fcntl(fds[0], F_GETFL) & O_ASYNC);
    value = 1;
    NOTE(ioctl(fds[0], FIOASYNC, &value));
    NOTE(fcntl(fds[0], F_SETFL, 0));
    NOTE(fcntl(fds[0], 9999, 0));
    CHECK(close(copy) == 0);
    close_pair(fds);
}

CASE(what_a_socket_is) {
    int fds[2];
    struct stat what;
    struct sockaddr_in ours, theirs;
    socklen_t length = sizeof ours;
    make_pair(fds);
    NOTE(fstat(fds[0], &what));
    NOTE(S_ISSOCK(what.st_mode) != 0);
    NOTE(isfdtype(fds[0], S_IFSOCK));
    NOTE(getsockname(fds[0], (struct sockaddr*)&ours, &length));
    NOTE(getpeername(fds[1], (struct sockaddr*)&theirs, &length));
    NOTE(memcmp(&ours, &theirs, sizeof ours));
    NOTE(getsockname(fds[1], (struct sockaddr*)&ours, &length));
    NOTE(getpeername(fds[0], (struct sockaddr*)&theirs, &length));
    NOTE(memcmp(&ours, &theirs, sizeof ours));
    NOTE(ftruncate(fds[0], 0));
    NOTE(fsync(fds[0]));
    NOTE(isatty(fds[0]));
    NOTE(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED);
    close_pair(fds);
}

CASE(calls_for_another_state) {
    int fds[2];
    struct sockaddr_in address;
    const int from = make_listener(&address), fresh = make_socket();
    char byte;
    make_pair(fds);
    NOTE(connect(fds[0], (struct sockaddr*)&address, sizeof address));
    NOTE(accept(fds[0], NULL, NULL));
    NOTE(listen(fds[0], 5));
    NOTE(bind(fds[0], (struct sockaddr*)&address, sizeof address));
    NOTE(recv(fresh, &byte, 1, 0));
    NOTE(send(fresh, &byte, 1, MSG_NOSIGNAL));
    NOTE(recv(from, &byte, 1, 0));
    NOTE(send(from, &byte, 1, MSG_NOSIGNAL));
    NOTE(accept(fresh, NULL, NULL));
    NOTE(shutdown(from, SHUT_RD));
    NOTE(accept(from, NULL, NULL));
    NOTE(waiting_in(fds[0]));
    close_pair(fds);
    NOTE(recv(fds[0], &byte, 1, 0));
    NOTE(send(fds[0], &byte, 1, 0));
    NOTE(close(fds[0]));
    CHECK(close(from) == 0 && close(fresh) == 0);
}

CASE(io_uring_is_not_there) {
    struct io_uring_params params;
    int no_such_call;
    long fd;
    memset(&params, 0, sizeof params);
    fd = syscall(SYS_io_uring_setup, 4, &params);
    no_such_call = fd < 0 && errno == ENOSYS;
    if (fd >= 0) CHECK(close((int)fd) == 0);
    note("no such call", no_such_call || !is_carried, 0, NULL); /* (not every kernel has it) */
}
