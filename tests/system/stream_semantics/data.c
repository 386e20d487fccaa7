/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Sending and receiving: parts, flags, calls of every kind. */
#include <limits.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "tests/system/stream_semantics/semantics.h"

CASE(parts_of_a_stream) {
    int fds[2];
    make_pair(fds);
    RECV(fds[1], 4, MSG_DONTWAIT);
    put(fds[0], "abc");
    put(fds[0], "defgh");
    arrived(fds[1], 8);
    RECV(fds[1], 2, 0);
    RECV(fds[1], 3, 0);
    RECV(fds[1], 100, 0);
    RECV(fds[1], 100, MSG_DONTWAIT);
    close_pair(fds);
}

CASE(flags_of_recv) {
    int fds[2];
    make_pair(fds);
    put(fds[0], "abcdefghijklmnop");
    arrived(fds[1], 16);
    RECV(fds[1], 4, MSG_PEEK);
    RECV(fds[1], 100, MSG_PEEK);
    RECV(fds[1], 2, MSG_NOSIGNAL);
    RECV(fds[1], 2, MSG_CMSG_CLOEXEC);
    RECV(fds[1], 2, MSG_TRUNC);
    RECV(fds[1], 3, MSG_PEEK | MSG_TRUNC);
    NOTE(recv(fds[1], NULL, 2, MSG_TRUNC));
    RECV(fds[1], 2, MSG_WAITALL);
    RECV(fds[1], 2, MSG_ERRQUEUE);
    RECV(fds[1], 2, MSG_OOB);
    RECV(fds[1], 2, MSG_EOR);
    RECV(fds[1], 100, MSG_WAITALL | MSG_DONTWAIT);
    RECV(fds[1], 100, MSG_WAITALL | MSG_DONTWAIT);
    RECV(fds[1], 100, MSG_PEEK | MSG_DONTWAIT);
    RECV(fds[1], 100, MSG_ERRQUEUE);
    close_pair(fds);
}

CASE(waitall) {
    int fds[2];
    pthread_t later;
    make_pair(fds);
    put(fds[0], "abc");
    later = put_later(fds[0], "def", 20);
    RECV(fds[1], 6, MSG_WAITALL);
    join(later);
    put(fds[0], "abc");
    later = put_later(fds[0], "def", 20);
    RECV(fds[1], 6, MSG_WAITALL | MSG_PEEK);
    join(later);
    RECV(fds[1], 6, 0);
    /* What there is when the stream ends, or the time limit. */
    put(fds[0], "abc");
    set_time_limit(fds[1], SO_RCVTIMEO, 50);
    RECV(fds[1], 6, MSG_WAITALL);
    RECV(fds[1], 6, MSG_WAITALL);
    put(fds[0], "abc");
    NOTE(shutdown(fds[0], SHUT_WR));
    RECV(fds[1], 6, MSG_WAITALL);
    RECV(fds[1], 6, MSG_WAITALL);
    close_pair(fds);
}

CASE(nothing_at_all) {
    int fds[2];
    struct iovec none = {NULL, 0};
    struct msghdr message = {.msg_iov = &none, .msg_iovlen = 1};
    struct msghdr empty = {.msg_iov = NULL, .msg_iovlen = 0};
    char byte;
    make_pair(fds);
    NOTE(send(fds[0], NULL, 0, 0));
    NOTE(write(fds[0], NULL, 0));
    NOTE(writev(fds[0], &none, 1));
    NOTE(writev(fds[0], NULL, 0));
    NOTE(sendmsg(fds[0], &message, 0));
    NOTE(sendmsg(fds[0], &empty, 0));
    NOTE(read(fds[1], &byte, 0));
    NOTE(readv(fds[1], &none, 1));
    NOTE(readv(fds[1], NULL, 0));
    NOTE(recv(fds[1], &byte, 0, MSG_DONTWAIT));
    NOTE(recv(fds[1], &byte, 0, MSG_DONTWAIT | MSG_PEEK));
    NOTE(recvmsg(fds[1], &message, MSG_DONTWAIT));
    NOTE(recvmsg(fds[1], &empty, MSG_DONTWAIT));
    EVENTS(fds[1]);
    put(fds[0], "a");
    arrived(fds[1], 1);
    NOTE(recv(fds[1], &byte, 0, 0));
    NOTE(recv(fds[1], &byte, 0, MSG_PEEK));
    NOTE(recvmsg(fds[1], &empty, 0));
    RECV(fds[1], 1, 0);
    NOTE(shutdown(fds[0], SHUT_WR));
    until(fds[1], POLLRDHUP);
    NOTE(recv(fds[1], &byte, 0, 0));
    NOTE(send(fds[0], NULL, 0, MSG_NOSIGNAL));
    close_pair(fds);
}

CASE(flags_of_send) {
    int fds[2];
    struct sockaddr_in elsewhere = {.sin_family = AF_INET, .sin_port = htons(9)};
    make_pair(fds);
    elsewhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    NOTE(send(fds[0], "a", 1, MSG_NOSIGNAL));
    NOTE(send(fds[0], "b", 1, MSG_DONTWAIT));
    NOTE(send(fds[0], "c", 1, MSG_EOR));
    NOTE(send(fds[0], "d", 1, MSG_CONFIRM));
    NOTE(send(fds[0], "e", 1, MSG_DONTROUTE));
    NOTE(send(fds[0], "f", 1, MSG_ZEROCOPY));
    NOTE(send(fds[0], "g", 1, MSG_MORE));
    NOTE(send(fds[0], "h", 1, MSG_PEEK));
    NOTE(send(fds[0], "i", 1, MSG_TRUNC));
    NOTE(send(fds[0], "j", 1, MSG_WAITALL));
    NOTE(sendto(fds[0], "k", 1, 0, (struct sockaddr*)&elsewhere, sizeof elsewhere));
    NOTE(send(fds[0], "l", 1, MSG_FASTOPEN));
    arrived(fds[1], 11);
    RECV(fds[1], 100, 0);
    close_pair(fds);
}

CASE(fast_open_is_plain) {
    struct sockaddr_in address;
    const int from = make_listener(&address), fd = make_socket();
    int to;
    NOTE(sendto(fd, "fast", 4, MSG_FASTOPEN, (struct sockaddr*)&address, sizeof address));
    to = accept(from, NULL, NULL);
    CHECK(to >= 0);
    RECV(to, 4, MSG_WAITALL);
    NOTE(send(to, "answer", 6, 0));
    RECV(fd, 6, MSG_WAITALL);
    NOTE(goes_by_iwarp(fd) + goes_by_iwarp(to));
    CHECK(close(fd) == 0 && close(to) == 0 && close(from) == 0);
}

CASE(several_buffers) {
    int fds[2];
    char a[4] = "", b[4] = "", text[12];
    struct iovec out[3] = {{(char*)"abc", 3}, {NULL, 0}, {(char*)"defg", 4}};
    struct iovec in[2] = {{a, 2}, {b, 3}};
    struct iovec many[IOV_MAX + 1];
    struct msghdr message = {.msg_iov = many, .msg_iovlen = IOV_MAX + 1};
    volatile int below = -1;
    size_t i;
    make_pair(fds);
    for (i = 0; i <= IOV_MAX; i++) many[i] = (struct iovec){a, 0};
    NOTE(writev(fds[0], out, 3));
    arrived(fds[1], 7);
    NOTE(readv(fds[1], in, 2));
    snprintf(text, sizeof text, "%.2s+%.3s", a, b);
    note_text("text", text);
    NOTE(readv(fds[1], in, 2));
    snprintf(text, sizeof text, "%.2s", a);
    note_text("text", text);
    NOTE(writev(fds[0], many, IOV_MAX));
    NOTE(writev(fds[0], many, IOV_MAX + 1));
    NOTE(writev(fds[0], many, below));
    NOTE(readv(fds[1], many, IOV_MAX + 1));
    NOTE(readv(fds[1], many, below));
    NOTE(sendmsg(fds[0], &message, 0));
    NOTE(recvmsg(fds[1], &message, MSG_DONTWAIT));
    in[1].iov_len = (size_t)-1;
    NOTE(readv(fds[1], in, 2));
    NOTE(writev(fds[0], in, 2));
    close_pair(fds);
}

CASE(what_recvmsg_fills_in) {
    int fds[2];
    char text[8], control[64];
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    struct iovec in = {text, 4};
    struct msghdr message = {&name, sizeof name, &in, 1, control, sizeof control, ~0};
    make_pair(fds);
    put(fds[0], "abcdefghijkl");
    arrived(fds[1], 12);
    NOTE(recvmsg(fds[1], &message, 0));
    NOTE(message.msg_flags);
    NOTE(message.msg_namelen);
    NOTE(message.msg_controllen);
    message.msg_flags = ~0;
    NOTE(recvmsg(fds[1], &message, MSG_TRUNC));
    NOTE(message.msg_flags);
    NOTE(recvfrom(fds[1], text, 4, 0, (struct sockaddr*)&name, &length));
    NOTE(length);
    NOTE(shutdown(fds[0], SHUT_WR));
    until(fds[1], POLLRDHUP);
    message.msg_flags = ~0;
    NOTE(recvmsg(fds[1], &message, 0));
    NOTE(message.msg_flags);
    close_pair(fds);
}

CASE(several_messages) {
    int fds[2];
    char a[8], b[8], c[8];
    struct iovec out[3] = {{(char*)"abcd", 4}, {(char*)"efgh", 4}, {(char*)"ijkl", 4}};
    struct iovec in[3] = {{a, 4}, {b, 4}, {c, 8}};
    struct mmsghdr messages[3];
    struct timespec limit = {0, 0}, wrong = {0, -1};
    int i;
    make_pair(fds);
    memset(messages, 0, sizeof messages);
    for (i = 0; i < 3; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
    NOTE(sendmmsg(fds[0], messages, 3, 0));
    for (i = 0; i < 3; i++) NOTE(messages[i].msg_len);
    NOTE(sendmmsg(fds[0], messages, 0, 0));
    arrived(fds[1], 12);
    for (i = 0; i < 3; i++) messages[i].msg_hdr.msg_iov = &in[i];
    NOTE(recvmmsg(fds[1], messages, 3, 0, NULL));
    for (i = 0; i < 3; i++) NOTE(messages[i].msg_len);
    NOTE(recvmmsg(fds[1], messages, 3, MSG_DONTWAIT, NULL));
    put(fds[0], "abcdef");
    arrived(fds[1], 6);
    NOTE(recvmmsg(fds[1], messages, 3, MSG_WAITFORONE, NULL));
    for (i = 0; i < 2; i++) NOTE(messages[i].msg_len);
    put(fds[0], "abcdef");
    arrived(fds[1], 6);
    NOTE(recvmmsg(fds[1], messages, 3, 0, &limit)); /* checked behind each message */
    RECV(fds[1], 8, 0);
    NOTE(recvmmsg(fds[1], messages, 3, 0, &wrong));
    NOTE(recvmmsg(fds[1], NULL, 0, MSG_DONTWAIT, NULL));
    put(fds[0], "ab");
    arrived(fds[1], 2);
    NOTE(shutdown(fds[0], SHUT_WR));
    until(fds[1], POLLRDHUP);
    NOTE(recvmmsg(fds[1], messages, 3, MSG_DONTWAIT, NULL));
    for (i = 0; i < 3; i++) NOTE(messages[i].msg_len);
    close_pair(fds);
}

CASE(calls_with_an_offset) {
    int fds[2];
    char bytes[8];
    struct iovec in = {bytes, 8}, out = {(char*)"abc", 3};
    make_pair(fds);
    NOTE(pwritev2(fds[0], &out, 1, -1, 0));
    NOTE(pwritev2(fds[0], &out, 1, -1, RWF_NOWAIT));
    NOTE(pwritev2(fds[0], &out, 1, 0, 0));
    arrived(fds[1], 6);
    NOTE(preadv2(fds[1], &in, 1, 0, 0));
    NOTE(preadv2(fds[1], &in, 1, -1, 0));
    NOTE(preadv2(fds[1], &in, 1, -1, RWF_NOWAIT));
    NOTE(preadv2(fds[1], &in, 1, -1, 0x4000));
    NOTE(pread(fds[1], bytes, 8, 0));
    NOTE(pwrite(fds[0], "abc", 3, 0));
    NOTE(lseek(fds[0], 0, SEEK_CUR));
    close_pair(fds);
}

CASE(standard_streams) {
    int fds[2];
    char line[32];
    FILE *in, *out;
    make_pair(fds);
    NOTE(dprintf(fds[0], "%s %d\n", "dprintf", 1));
    out = fdopen(fds[0], "w");
    in = fdopen(fds[1], "r");
    CHECK(out != NULL && in != NULL);
    NOTE(fprintf(out, "fprintf\n"));
    NOTE(fputs("fputs\nno end", out) >= 0);
    NOTE(fflush(out));
    NOTE(fgets(line, sizeof line, in) != NULL);
    note_text("line", line);
    NOTE(fgets(line, sizeof line, in) != NULL);
    note_text("line", line);
    NOTE(fgets(line, sizeof line, in) != NULL);
    note_text("line", line);
    NOTE(fclose(out));
    NOTE(fgets(line, sizeof line, in) != NULL);
    note_text("line", line);
    NOTE(fgets(line, sizeof line, in) != NULL);
    NOTE(feof(in) != 0);
    NOTE(ferror(in) != 0);
    NOTE(fclose(in));
}

CASE(bad_memory) {
    int fds[2];
    char byte;
    const long page = sysconf(_SC_PAGESIZE);
    char* const nowhere = mmap(NULL, (size_t)page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec half[2] = {{(char*)"ab", 2}, {nowhere, 4}};
    struct iovec room[2] = {{&byte, 1}, {nowhere, 4}};
    struct msghdr message = {.msg_iov = half, .msg_iovlen = 2};
    CHECK(nowhere != MAP_FAILED);
    make_pair(fds);
    NOTE(send(fds[0], nowhere, 4, 0));
    NOTE(write(fds[0], nowhere, 4));
    NOTE(sendmsg(fds[0], &message, 0));
    NOTE(sendmsg(fds[0], NULL, 0));
    NOTE(sendmsg(fds[0], (struct msghdr*)nowhere, 0));
    NOTE(recv(fds[1], nowhere, 4, MSG_DONTWAIT));
    put(fds[0], "abcdef");
    arrived(fds[1], 6);
    NOTE(recv(fds[1], nowhere, 4, 0));
    NOTE(read(fds[1], nowhere, 4));
    NOTE(readv(fds[1], room, 2));
    NOTE(recvmsg(fds[1], NULL, 0));
    NOTE(recvmsg(fds[1], (struct msghdr*)nowhere, 0));
    NOTE(readv(fds[1], (struct iovec*)nowhere, 1));
    RECV(fds[1], 100, 0); /* nothing was lost */
    close_pair(fds);
}

/* The sizes differ; what each call answers does not. */
CASE(no_room) {
    int fds[2];
    long sent;
    make_pair_with(fds, SOL_SOCKET, SO_SNDBUF, 32 * 1024);
    EVENTS(fds[0]);
    sent = fill(fds[0]);
    EVENTS(fds[0]);
    NOTE(send(fds[0], "a", 1, MSG_DONTWAIT));
    NOTE(send(fds[0], "!", 1, MSG_DONTWAIT | MSG_OOB));
    NOTE(send(fds[0], NULL, 0, MSG_DONTWAIT));
    set_time_limit(fds[0], SO_SNDTIMEO, 50);
    NOTE(send(fds[0], "a", 1, 0));
    NOTE(dprintf(fds[0], "a"));
    EVENTS(fds[0]);
    take(fds[1], sent);
    until(fds[0], POLLOUT);
    EVENTS(fds[0]);
    NOTE(send(fds[0], "b", 1, 0));
    RECV(fds[1], 2, 0);
    close_pair(fds);
}

/* A blocking send of more than there is room for, of which a part goes before the time is up. */
CASE(a_part_before_the_time_limit) {
    static char block[16 << 20];
    int fds[2];
    long begin;
    ssize_t n;
    make_pair_with(fds, SOL_SOCKET, SO_SNDBUF, 32 * 1024);
    set_time_limit(fds[0], SO_SNDTIMEO, 100);
    n = send(fds[0], block, sizeof block, 0);
    NOTE(n > 0 && n < (ssize_t)sizeof block);
    fill(fds[0]); /* on a busy machine the time may have been up before the buffers were full */
    begin = now_ms();
    NOTE(send(fds[0], "a", 1, 0));
    NOTE(now_ms() - begin >= 99 && now_ms() - begin < 10000);
    close_pair(fds);
}

/* More than the buffers hold, while the other end reads. */
static void* read_all(void* argument) {
    static char block[1 << 16];
    const int fd = *(int*)argument;
    long total = 0;
    ssize_t n;
    while ((n = recv(fd, block, sizeof block, 0)) > 0) {
        ssize_t i;
        for (i = 0; i < n; i++) CHECK(block[i] == (char)((total + i) * 7 / 5));
        total += n;
    }
    CHECK(n == 0);
    return (void*)total;
}

CASE(a_blocking_send_goes_whole) {
    static char block[8 << 20];
    int fds[2];
    pthread_t reader;
    void* total;
    long i;
    for (i = 0; i < (long)sizeof block; i++) block[i] = (char)(i * 7 / 5);
    make_pair(fds);
    CHECK(pthread_create(&reader, NULL, read_all, &fds[1]) == 0);
    NOTE(send(fds[0], block, sizeof block, 0));
    NOTE(shutdown(fds[0], SHUT_WR));
    CHECK(pthread_join(reader, &total) == 0);
    NOTE(total);
    close_pair(fds);
}
