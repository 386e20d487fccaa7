/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* connect() and accept(), and what may be done before both have ended. */
#include <sys/sendfile.h>

#include "tests/system/stream_semantics/semantics.h"

static int file_of(const char* text) {
    char path[] = "/tmp/semantics-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0);
    put(file, text);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    return file;
}

static int connect_it(int fd, const struct sockaddr_in* address) {
    return connect(fd, (const struct sockaddr*)address, sizeof *address);
}

CASE(connect_without_blocking) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    int to;
    set_nonblocking(fd);
    NOTE(connect_it(fd, &address));
    until(fd, POLLOUT);
    EVENTS(fd);
    OPTION(fd, SOL_SOCKET, SO_ERROR);
    NOTE(connect_it(fd, &address));
    NOTE(connect_it(fd, &address));
    RECV(fd, 10, 0);
    NOTE(send(fd, "abc", 3, 0));
    to = accept(from, NULL, NULL);
    NOTE(to >= 0);
    RECV(to, 3, MSG_WAITALL);
    NOTE(send(to, "def", 3, 0));
    until(fd, POLLIN);
    RECV(fd, 3, 0);
    NOTE(goes_by_iwarp(fd) == is_carried && goes_by_iwarp(to) == is_carried);
    CHECK(close(fd) == 0 && close(to) == 0 && close(from) == 0);
}

CASE(connect_to_no_listener) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    int again;
    CHECK(close(from) == 0);
    NOTE(connect_it(fd, &address));
    OPTION(fd, SOL_SOCKET, SO_ERROR);
    again = make_socket();
    set_nonblocking(again);
    NOTE(connect_it(again, &address) < 0);
    until(again, POLLHUP);
    EVENTS(again);
    OPTION(again, SOL_SOCKET, SO_ERROR);
    OPTION(again, SOL_SOCKET, SO_ERROR);
    RECV(again, 1, 0);
    CHECK(close(fd) == 0 && close(again) == 0);
}

CASE(a_socket_that_may_not_block_sends_a_file_first) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    const int file = file_of("of a file");
    int to;
    CHECK(connect_it(fd, &address) == 0);
    to = accept(from, NULL, NULL);
    CHECK(to >= 0);
    set_nonblocking(to);
    NOTE(sendfile(to, file, NULL, 100));
    NOTE(lseek(file, 0, SEEK_CUR));
    RECV(fd, 9, MSG_WAITALL);
    NOTE(goes_by_iwarp(fd) == is_carried && goes_by_iwarp(to) == is_carried);
    CHECK(close(fd) == 0 && close(to) == 0 && close(from) == 0 && close(file) == 0);
}

CASE(a_client_sends_a_file_first) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    const int file = file_of("of a file");
    int to;
    set_nonblocking(fd);
    NOTE(connect_it(fd, &address));
    until(fd, POLLOUT);
    NOTE(sendfile(fd, file, NULL, 100));
    to = accept(from, NULL, NULL);
    CHECK(to >= 0);
    RECV(to, 9, MSG_WAITALL);
    NOTE(goes_by_iwarp(fd) == is_carried && goes_by_iwarp(to) == is_carried);
    CHECK(close(fd) == 0 && close(to) == 0 && close(from) == 0 && close(file) == 0);
}

CASE(a_server_that_may_not_block_speaks_first) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    int to;
    CHECK(connect_it(fd, &address) == 0);
    to = accept(from, NULL, NULL);
    CHECK(to >= 0);
    set_nonblocking(to);
    EVENTS(to);
    RECV(to, 10, 0);
    NOTE(waiting_in(to));
    NOTE(send(to, "220 ready", 9, 0));
    NOTE(send(to, "\n", 1, 0));
    RECV(fd, 10, MSG_WAITALL);
    NOTE(send(fd, "quit", 4, 0));
    until(to, POLLIN);
    RECV(to, 10, 0);
    NOTE(shutdown(to, SHUT_WR));
    RECV(fd, 10, 0);
    NOTE(goes_by_iwarp(fd) == is_carried && goes_by_iwarp(to) == is_carried);
    CHECK(close(fd) == 0 && close(to) == 0 && close(from) == 0);
}

CASE(what_is_said_before_accept) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    int to, value = 0;
    CHECK(connect_it(fd, &address) == 0);
    EVENTS(fd);
    NOTE(send(fd, "abc", 3, 0));
    NOTE(send(fd, "!", 1, MSG_OOB));
    SET_OPTION(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    OPTION(fd, IPPROTO_TCP, TCP_NODELAY);
    NOTE(ioctl(fd, FIONREAD, &value));
    NOTE(value);
    RECV(fd, 1, MSG_DONTWAIT);
    NOTE(shutdown(fd, SHUT_WR));
    NOTE(send(fd, "abc", 3, MSG_NOSIGNAL));
    EVENTS(fd);
    to = accept(from, NULL, NULL);
    CHECK(to >= 0);
    until(to, POLLRDHUP);
    NOTE(waiting_in(to));
    RECV(to, 1, MSG_OOB);
    RECV(to, 10, MSG_WAITALL);
    RECV(to, 10, 0);
    NOTE(send(to, "back", 4, 0));
    RECV(fd, 4, MSG_WAITALL);
    NOTE(goes_by_iwarp(fd) == is_carried && goes_by_iwarp(to) == is_carried);
    CHECK(close(fd) == 0 && close(to) == 0 && close(from) == 0);
}

CASE(a_client_closes_before_accept) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    int to;
    CHECK(connect_it(fd, &address) == 0);
    NOTE(send(fd, "abc", 3, 0));
    NOTE(close(fd));
    to = accept(from, NULL, NULL);
    CHECK(to >= 0);
    RECV(to, 10, MSG_WAITALL);
    RECV(to, 10, 0);
    NOTE(goes_by_iwarp(to) == is_carried);
    CHECK(close(to) == 0 && close(from) == 0);
}

CASE(accept_of_no_connection) {
    struct sockaddr_in address, name;
    socklen_t length = sizeof name;
    const int from = make_listener(&address), fd = make_socket();
    int to;
    set_nonblocking(from);
    NOTE(accept(from, NULL, NULL));
    CHECK(connect_it(fd, &address) == 0);
    until(from, POLLIN);
    to = accept4(from, (struct sockaddr*)&name, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    NOTE(to >= 0);
    NOTE(length);
    NOTE(fcntl(to, F_GETFD));
    NOTE(fcntl(to, F_GETFL) & O_NONBLOCK);
    NOTE(accept4(from, NULL, NULL, 0x1234));
    NOTE(accept(from, (struct sockaddr*)&name, NULL));
    CHECK(close(fd) == 0 && close(to) == 0 && close(from) == 0);
}
