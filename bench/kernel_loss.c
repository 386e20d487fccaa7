/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What becomes of a message when a segment of it is late or lost: by plain TCP, and by an xsock
 * target at user level, with the kernel module in order, and with it behind holes. The sender is
 * the same each time: a plain socket that sends octets made before, FPDUs as long as a segment, so
 * that each segment begins with a header; a message is one Write, and a Send that tells of it; the
 * target's answer, 40 octets, ends it. Made for a guest whose time counts instructions
 * (kernel_guest.sh, tests/long/kernel-loss.sh), with tracefs mounted.
 *
 *   kernel_loss WAY MODE NETNS-A NETNS-B ADDRESS-IN-B BYTES COUNT [PERCENT]
 *
 *   WAY    tcp, user, in-order or ahead
 *   MODE   late    one message at a time; of each the first segment goes by priority 6, which the
 *                  path is to delay
 *          lost    one message at a time; PERCENT of their segments go by priority 6, which the
 *                  path is to lose: the same for each WAY, but where TCP's window is closed
 *          ping    one message at a time
 *          stream  messages one behind the other, OUTSTANDING at once
 *
 * One line, comma-separated: WAY, MODE, BYTES, COUNT; 50th and 99th percentile, in thousand
 * instructions, of a message's time at the sender and of the target's work after the last segment
 * that came before its completion; percent of the octets that were placed behind a hole (late: of
 * those behind the first segment); MB/s; thousand instructions that were not idle for a MiB.
 * stream has no percentiles, the others have neither of the last two.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include "guest.h"

#define TRACING "/sys/kernel/tracing/"

enum {
    REPLY = 40,      /* octets; of xsock's an FPDU with a Send of NOTE */
    NOTE = 16,       /* payload of Sends */
    TAGGED = 2 + 14, /* octets before a Write's payload */
    CRC = 4,         /* and behind it */
    OUTSTANDING = 4, /* messages, each to a place of its own */
    WARM_UP = 4,     /* messages */
    BYTES_MAX = 1 << 20,
    COUNT_MAX = 20000,
    SPECIAL = 6,     /* priority: late, or lost */
    PAUSE_US = 5000, /* between messages that come one at a time */
    TIMEOUT_S = 3000 /* of the guest's time */
};

enum way { WAY_TCP, WAY_USER, WAY_IN_ORDER, WAY_AHEAD, WAYS };
enum mode { MODE_LATE, MODE_LOST, MODE_PING, MODE_STREAM, MODES };
static const char* const kWays[WAYS] = {"tcp", "user", "in-order", "ahead"};
static const char* const kModes[MODES] = {"late", "lost", "ping", "stream"};

static struct {
    enum way way;
    enum mode mode;
    const char *sender_netns, *target_netns, *address;
    uint32_t bytes;
    int count;
    double percent;
} g;

/* From the target to the sender: where to connect to, then where its memory lies. */
struct place {
    uint64_t to;
    uint32_t stag;
    uint32_t port;
};

/* And what it has found. */
struct found {
    double work[COUNT_MAX]; /* thousand instructions; in mode stream none */
    uint64_t early;         /* octets */
};

static void enter(const char* netns) {
    const int fd = open(netns, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) fail("%s", netns);
    close(fd);
}

static void put_all(int fd, const void* octets, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t went = write(fd, (const uint8_t*)octets + done, n - done);

        if (went <= 0) fail("write");
        done += (size_t)went;
    }
}

static void get_all(int fd, void* octets, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t came = read(fd, (uint8_t*)octets + done, n - done);

        if (came <= 0) fail("read");
        done += (size_t)came;
    }
}

/* ---- The segments' times, by a tracepoint ------------------------------------------------------
 */

static void tell(const char* file, const char* words) {
    char path[128];

    snprintf(path, sizeof(path), TRACING "%s", file);
    const int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    if (fd < 0 || write(fd, words, strlen(words)) < 0) fail("%s", path);
    close(fd);
}

static void trace_segments(int port) {
    char filter[64];

    snprintf(filter, sizeof(filter), "sport==%d && data_len>0", port);
    tell("trace_clock", "x86-tsc");
    tell("buffer_size_kb", "8"); /* the last are wanted only, and soon read */
    tell("events/tcp/tcp_probe/filter", filter);
    tell("events/tcp/tcp_probe/enable", "1");
    tell("tracing_on", "1");
}

/* When the last segment came that did so before `end`. */
static uint64_t last_segment(uint64_t end) {
    static char text[1 << 18];
    uint64_t last = 0;
    size_t length = 0;
    ssize_t came;
    const int fd = open(TRACING "trace", O_RDONLY | O_CLOEXEC);

    if (fd < 0) fail("trace");
    while ((came = read(fd, text + length, sizeof(text) - 1 - length)) > 0) length += (size_t)came;
    close(fd);
    text[length] = 0;
    for (char* at = text; (at = strstr(at, ": tcp_probe:")) != NULL; at++) {
        char* number = at;

        while (number > text && number[-1] >= '0' && number[-1] <= '9') number--;
        const uint64_t when = strtoull(number, NULL, 10);

        if (when <= end && when > last) last = when;
    }
    if (last == 0) fail("no segment was seen before the completion");
    return last;
}

/* ---- The target ---------------------------------------------------------------------------------
 */

static struct {
    int fd;
    struct xsock_ep* ep;
    struct xsock_cq *send_cq, *recv_cq;
    uint8_t* memory;
    uint8_t in[OUTSTANDING + 1][NOTE];
    uint8_t out[REPLY];
} t;

static int listen_plain(uint16_t* port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr*)&address, size) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr*)&address, &size) != 0)
        fail("listen");
    *port = ntohs(address.sin_port);
    return fd;
}

static void post_receive(unsigned i) {
    if (xsock_recv(t.ep, i, t.in[i], NOTE) != 0) fail("xsock_recv");
}

static void xsock_begin(int pipe) {
    XSOCK_INIT(xsock_ep_attr, attr);
    struct place place = {0};
    struct xsock_remote remote;
    struct xsock_key key;

    setenv("XSOCK_SHM", "off", 1);
    setenv("XSOCK_SPIN_US", "0", 1);
    setenv("XSOCK_KERNEL", g.way == WAY_USER ? "off" : "require", 1);
    setenv("XSOCK_KERNEL_OOO", g.way == WAY_AHEAD ? "1" : "0", 1);
    t.send_cq = xsock_cq_create(NULL);
    t.recv_cq = xsock_cq_create(NULL);
    attr.send_cq = t.send_cq;
    attr.recv_cq = t.recv_cq;
    struct xsock_listener* const listener = xsock_listen(NULL, "0", 1, &attr);

    if (listener == NULL) fail("xsock_listen");
    place.port = (uint32_t)xsock_listener_port(listener);
    put_all(pipe, &place, sizeof(place));
    t.ep = xsock_accept(listener, -1);
    if (t.ep == NULL) fail("xsock_accept");
    const size_t length = (size_t)g.bytes * OUTSTANDING;
    struct xsock_mr* const mr = xsock_mr_register(NULL, t.memory, length, XSOCK_REMOTE_WRITE, t.ep);

    if (mr == NULL || xsock_mr_key(mr, 0, length, &key) != 0) fail("xsock_mr_register");
    xsock_key_read(&key, &remote);
    for (unsigned i = 0; i <= OUTSTANDING; i++) post_receive(i);
    if (g.mode != MODE_STREAM) trace_segments((int)place.port);
    place.to = remote.to;
    place.stag = remote.stag;
    put_all(pipe, &place, sizeof(place));
}

static void tcp_begin(int pipe) {
    struct place place = {0};
    const int on = 1;
    uint16_t port;
    const int listener = listen_plain(&port);

    place.port = port;
    put_all(pipe, &place, sizeof(place));
    t.fd = accept(listener, NULL, NULL);
    if (t.fd < 0 || setsockopt(t.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        fail("accept");
    if (g.mode != MODE_STREAM) trace_segments(port);
    put_all(pipe, &place, sizeof(place));
}

/* Returns when a message is there. */
static unsigned take(uint32_t stream_octets) {
    struct xsock_wc wc = {0};

    if (g.way == WAY_TCP) {
        for (uint32_t done = 0; done < stream_octets;) {
            const ssize_t came = recv(t.fd, t.memory, stream_octets - done, MSG_WAITALL);

            if (came <= 0) fail("recv");
            done += (uint32_t)came;
        }
    } else if (xsock_cq_wait(t.recv_cq, &wc, 1, 1, -1) != 1 || wc.status != XSOCK_WC_SUCCESS) {
        fail("no message: %s", xsock_wc_str(wc.status));
    }
    return (unsigned)wc.wr_id;
}

static void answer(unsigned i) {
    if (g.way == WAY_TCP) {
        put_all(t.fd, t.out, REPLY);
    } else {
        post_receive(i);
        if (xsock_send(t.ep, 0, t.out, NOTE, XSOCK_UNSIGNALED) != 0) fail("xsock_send");
    }
}

static uint64_t early_octets(void) {
    XSOCK_INIT(xsock_ep_info, info);

    if (g.way == WAY_TCP) return 0;
    if (xsock_ep_query(t.ep, &info) != 0) fail("xsock_ep_query");
    return info.placing.early_bytes;
}

static void be_target(int pipe, uint32_t stream_octets) {
    static struct found found;

    enter(g.target_netns);
    t.memory = aligned_alloc(4096, (size_t)BYTES_MAX * 2 * OUTSTANDING);
    if (t.memory == NULL) fail("memory");
    memset(t.memory, 0, (size_t)BYTES_MAX * 2 * OUTSTANDING);
    if (g.way == WAY_TCP)
        tcp_begin(pipe);
    else
        xsock_begin(pipe);
    for (int i = -WARM_UP; i < g.count; i++) {
        if (i == 0) found.early = early_octets();
        const unsigned receive = take(stream_octets);
        const uint64_t end = __rdtsc();

        answer(receive);
        if (i >= 0 && g.mode != MODE_STREAM)
            found.work[i] = (double)(end - last_segment(end)) / 1e3;
    }
    found.early = early_octets() - found.early;
    if (g.mode != MODE_STREAM) tell("events/tcp/tcp_probe/enable", "0");
    put_all(pipe, &found, sizeof(found));
    sleep(TIMEOUT_S); /* until the sender has all */
}

/* ---- The sender ---------------------------------------------------------------------------------
 */

static uint32_t crc32c(const uint8_t* octets, size_t n) {
    uint32_t crc = ~0u;

    for (size_t i = 0; i < n; i++) {
        crc ^= octets[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void put_be(uint8_t* to, uint64_t value, int octets) {
    for (int i = octets; i-- > 0; value >>= 8) to[i] = (uint8_t)value;
}

/* Length in front, and pad and CRC behind a ULPDU at fpdu + 2. The octets of all. */
static uint32_t frame(uint8_t* fpdu, uint32_t ulpdu) {
    const uint32_t covered = (2 + ulpdu + 3) & ~3u;

    put_be(fpdu, ulpdu, 2);
    memset(fpdu + 2 + ulpdu, 0, covered - 2 - ulpdu);
    const uint32_t crc = crc32c(fpdu, covered);

    for (int i = 0; i < CRC; i++) fpdu[covered + (uint32_t)i] = (uint8_t)(crc >> 8 * i);
    return covered + CRC;
}

/* A Write of g.bytes in FPDUs of a segment. The octets. */
static uint32_t make_write(uint8_t* octets, uint32_t segment, uint32_t stag, uint64_t to) {
    const uint32_t most = segment - TAGGED - CRC;
    uint32_t length = 0;

    for (uint32_t done = 0; done < g.bytes;) {
        const uint32_t n = g.bytes - done < most ? g.bytes - done : most;
        uint8_t* const fpdu = octets + length;

        fpdu[2] = done + n == g.bytes ? 0xc1 : 0x81;
        fpdu[3] = 0x40;
        put_be(fpdu + 4, stag, 4);
        put_be(fpdu + 8, to + done, 8);
        for (uint32_t i = 0; i < n; i++) fpdu[TAGGED + i] = (uint8_t)(done + i * 7);
        length += frame(fpdu, 14 + n);
        done += n;
    }
    return length;
}

static uint32_t make_send(uint8_t* octets, uint32_t msn) {
    memset(octets, 0, REPLY);
    octets[2] = 0x41;
    octets[3] = 0x43;
    put_be(octets + 12, msn, 4);
    return frame(octets, 18 + NOTE);
}

static void send_octets(int fd, const uint8_t* octets, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t went = send(fd, octets + done, n - done, MSG_EOR | MSG_NOSIGNAL);

        if (went <= 0) fail("send");
        done += (size_t)went;
    }
}

static int connect_to(uint32_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    if (inet_pton(AF_INET, g.address, &address.sin_addr) != 1 ||
        connect(fd, (struct sockaddr*)&address, sizeof(address)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        fail("connect");
    return fd;
}

/* MPA of revision 1, with CRCs. */
static void start_up(int fd) {
    static const uint8_t request[20] = "MPA ID Req Frame\x40\x01";
    uint8_t reply[20], rest[512];

    put_all(fd, request, sizeof(request));
    get_all(fd, reply, sizeof(reply));
    if (memcmp(reply, "MPA ID Rep Frame", 16) != 0 || (reply[16] & 0xe0) != 0x40)
        fail("the Reply says %02x", reply[16]);
    get_all(fd, rest, (size_t)reply[18] << 8 | reply[19]);
}

static uint32_t segment_of(int fd) {
    struct tcp_info info;
    socklen_t size = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) fail("TCP_INFO");
    return info.tcpi_snd_mss & ~3u;
}

/* Milliseconds that the processor was idle. */
static double idle_ms(void) {
    char line[256];
    double idle = -1;
    FILE* const file = fopen("/proc/timer_list", "r");

    if (file == NULL) fail("/proc/timer_list");
    while (fgets(line, sizeof(line), file) != NULL) {
        const char* const at = strstr(line, ".idle_sleeptime");

        if (at != NULL) idle = atof(strchr(at, ':') + 1) / 1e6;
    }
    fclose(file);
    if (idle < 0) fail("no idle_sleeptime");
    return idle;
}

static uint8_t g_octets[OUTSTANDING][BYTES_MAX + BYTES_MAX / 16];

/* Is the next segment to be lost? */
static bool is_lost(void) {
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 33) < g.percent / 100 * 2147483648.0;
}

static void send_by_priority(int fd, const uint8_t* octets, uint32_t n) {
    int priority = SPECIAL;

    setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority));
    send_octets(fd, octets, n);
    priority = 0;
    setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority));
}

static void send_message(int fd, uint32_t index, uint32_t length, uint32_t segment, bool measured) {
    const uint8_t* octets = g_octets[index % OUTSTANDING];
    uint8_t note[REPLY];
    uint32_t done = 0, n;

    make_send(note, index + 1);
    if (measured && g.mode == MODE_LATE) {
        send_by_priority(fd, octets, segment);
        done = segment;
    }
    for (uint32_t at = done; measured && g.mode == MODE_LOST && at < length; at += n) {
        n = length - at < segment ? length - at : segment;
        if (!is_lost()) continue;
        send_octets(fd, octets + done, at - done);
        send_by_priority(fd, octets + at, n);
        done = at + n;
    }
    send_octets(fd, octets + done, length - done);
    send_octets(fd, note, REPLY);
}

static int by_size(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;

    return x < y ? -1 : x > y;
}

/* Sorts. */
static void print_percentiles(double* values) {
    qsort(values, (size_t)g.count, sizeof(*values), by_size);
    printf(",%.1f,%.1f", values[(g.count - 1) / 2], values[(g.count * 99 - 1) / 100]);
}

/* Octets of the stream that a message takes. */
static uint32_t stream_octets(uint32_t segment) {
    return make_write(g_octets[0], segment, 0, 0) + REPLY;
}

static void be_sender(int pipe) {
    static struct found found;
    static double times[COUNT_MAX];
    struct place place;
    uint8_t reply[REPLY];
    uint32_t length = 0;
    double idle = 0, begin = 0, late_octets = 0;

    enter(g.sender_netns);
    get_all(pipe, &place, sizeof(place));
    const int fd = connect_to(place.port);

    if (g.way != WAY_TCP) start_up(fd);
    get_all(pipe, &place, sizeof(place));
    const uint32_t segment = segment_of(fd);

    for (uint32_t i = 0; i < OUTSTANDING; i++)
        length = make_write(g_octets[i], segment, place.stag, place.to + (uint64_t)i * g.bytes);
    if (g.mode == MODE_STREAM) {
        for (int i = 0; i < WARM_UP + g.count + OUTSTANDING - 1; i++) {
            if (i < WARM_UP + g.count) send_message(fd, (uint32_t)i, length, segment, false);
            if (i >= OUTSTANDING - 1) get_all(fd, reply, REPLY);
            if (i == WARM_UP - 1) {
                idle = idle_ms();
                begin = now_us();
            }
        }
    } else {
        for (int i = -WARM_UP; i < g.count; i++) {
            usleep(PAUSE_US);
            begin = now_us();
            send_message(fd, (uint32_t)(i + WARM_UP), length, segment, i >= 0);
            get_all(fd, reply, REPLY);
            if (i >= 0) times[i] = now_us() - begin;
        }
    }
    const double took_us = now_us() - begin, idle_us = (idle_ms() - idle) * 1e3;

    get_all(pipe, &found, sizeof(found));
    late_octets = (double)g.bytes - (g.mode == MODE_LATE ? segment - TAGGED - CRC : 0);
    printf("%s,%s,%u,%d", kWays[g.way], kModes[g.mode], g.bytes, g.count);
    if (g.mode == MODE_STREAM) {
        printf(",,,,");
    } else {
        print_percentiles(times);
        print_percentiles(found.work);
    }
    printf(",%.2f", 100 * (double)found.early / late_octets / g.count);
    if (g.mode == MODE_STREAM) {
        const double octets = (double)g.bytes * g.count;

        printf(",%.2f,%.1f\n", octets / took_us, (took_us - idle_us) / (octets / (1 << 20)));
    } else {
        printf(",,\n");
    }
}

static int find(const char* word, const char* const* words, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0) return i;
    return -1;
}

int main(int argc, char** argv) {
    enum { SEGMENT = 1448 }; /* of MTU 1500 with timestamps: plain TCP's target counts by it */
    int pipes[2];
    const int way = argc >= 8 ? find(argv[1], kWays, WAYS) : -1;
    const int mode = argc >= 8 ? find(argv[2], kModes, MODES) : -1;

    if (way < 0 || mode < 0 || argc != (mode == MODE_LOST ? 9 : 8)) {
        fputs("usage: kernel_loss WAY MODE NETNS-A NETNS-B ADDRESS-IN-B BYTES COUNT [PERCENT]\n",
              stderr);
        return 2;
    }
    g.way = (enum way)way;
    g_subject = kWays[way];
    g.mode = (enum mode)mode;
    g.sender_netns = argv[3];
    g.target_netns = argv[4];
    g.address = argv[5];
    g.bytes = (uint32_t)strtoul(argv[6], NULL, 10);
    g.count = atoi(argv[7]);
    if (mode == MODE_LOST) {
        char* end;

        g.percent = strtod(argv[8], &end);
        if (end == argv[8] || *end != 0 || !(g.percent >= 0 && g.percent <= 100))
            fail("PERCENT is a number of 0 to 100");
    }
    if (g.bytes < SEGMENT || g.bytes > BYTES_MAX || g.count < 1 || g.count > COUNT_MAX)
        fail("BYTES and COUNT have limits");
    const uint32_t octets = stream_octets(SEGMENT);

    if (pipe(pipes) != 0) fail("pipe");
    const pid_t target = fork();

    if (target == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pipes[0]);
        be_target(pipes[1], octets);
        _exit(0);
    }
    close(pipes[1]);
    alarm(TIMEOUT_S);
    be_sender(pipes[0]);
    kill(target, SIGKILL);
    waitpid(target, NULL, 0);
    return 0;
}
