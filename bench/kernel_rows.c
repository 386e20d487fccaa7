/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * xsock with and without the kernel module where nothing is lost: one figure of one exchange, both
 * ends waiting in the kernel. Made for a guest whose time counts instructions (kernel_guest.sh).
 *
 *   kernel_rows ROW KERNEL NETNS-A NETNS-B ADDRESS-IN-B
 *
 *   ROW      writes   64 MiB in Writes of 64 KiB, DEPTH at once, then a Send that is answered
 *            aligned  the same, FPDUs as long as a segment
 *            nobody   as writes into one region of 64 MiB, by a user who may pin 8 MiB
 *            sends    64 B there and back
 *            reads    64 MiB in Reads of 64 KiB, DEPTH at once
 *            connects connect, a Send each way, close
 *   KERNEL   XSOCK_KERNEL of both ends
 *
 * One line, comma-separated: ROW, KERNEL, thousand instructions that were not idle of all of it,
 * how often the target's threads went to sleep, and why the module did not place ("none": it did).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

enum {
    NOTE = 64,
    BULK = 65536,
    BULKS = 1024,
    DEPTH = 16,
    PINGS = 1000,
    CONNECTS = 100,
    ALIGNED = 1442, /* ULPDU of a segment of 1448 octets */
    NOBODY = 65534,
    TIMEOUT_S = 600
};

enum row { ROW_WRITES, ROW_ALIGNED, ROW_NOBODY, ROW_SENDS, ROW_READS, ROW_CONNECTS, ROWS };
static const char* const kRows[ROWS] = {"writes", "aligned", "nobody",
                                        "sends",  "reads",   "connects"};

static enum row g_row;

/* Time that was not idle. */
static FILE* g_timers; /* opened before root is left */

static double busy_us(void) {
    char line[256];
    double idle = -1;
    FILE* const file = g_timers;

    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char* const at = strstr(line, ".idle_sleeptime");

        if (at != NULL) idle = atof(strchr(at, ':') + 1) / 1e3;
    }
    if (idle < 0) fail("no idle_sleeptime");
    return now_us() - idle;
}

/* One end. */
static struct {
    struct xsock_ep* ep;
    struct xsock_cq *send_cq, *recv_cq;
    struct xsock_listener* listener;
    struct xsock_mr* mr;
    struct xsock_remote remote;
    uint8_t *memory, in[NOTE], out[NOTE];
    int outstanding;
} g;

struct said {
    double figure;
    long sleeps;
    char reason[20];
};

static struct xsock_ep_attr attributes(void) {
    struct xsock_ep_attr attr = attributes_with(&g.send_cq, &g.recv_cq, DEPTH);

    if (g_row == ROW_ALIGNED) attr.fpdu_limit = ALIGNED;
    return attr;
}

static void post_receive(void) {
    if (xsock_recv(g.ep, 0, g.in, NOTE) != 0) fail("xsock_recv");
}

static void say(void) {
    if (xsock_send(g.ep, 0, g.out, NOTE, XSOCK_UNSIGNALED) != 0) fail("xsock_send");
}

/* Receives of connections that were closed come back, too. */
static void hear(void) {
    struct xsock_wc wc;

    do {
        if (xsock_cq_wait(g.recv_cq, &wc, 1, 1, -1) != 1) fail("xsock_cq_wait");
    } while (g_row == ROW_CONNECTS && wc.status == XSOCK_WC_FLUSHED);
    if (wc.status != XSOCK_WC_SUCCESS) fail("nothing was received: %s", xsock_wc_str(wc.status));
    if (g_row != ROW_CONNECTS) post_receive();
}

static void wait_below(int most) {
    struct xsock_wc wc;

    while (g.outstanding > most) {
        if (xsock_cq_wait(g.send_cq, &wc, 1, 1, -1) != 1 || wc.status != XSOCK_WC_SUCCESS)
            fail("no completion");
        g.outstanding--;
    }
}

/* The other's memory, in turns of as much as is there. */
static void bulks(void) {
    const uint64_t places = g.remote.length / BULK;

    for (int i = 0; i < BULKS; i++) {
        const uint64_t at = (uint64_t)i % places * BULK;
        const int result = g_row == ROW_READS
                               ? xsock_read(g.ep, 0, g.memory + at, BULK, &g.remote, at, 0)
                               : xsock_write(g.ep, 0, g.memory + at, BULK, &g.remote, at, 0);

        wait_below(DEPTH - 1);
        if (result != 0) fail("xsock_write, xsock_read");
        g.outstanding++;
    }
    wait_below(0);
}

static size_t memory_size(void) { return (size_t)BULK * (g_row == ROW_NOBODY ? BULKS : DEPTH); }

static void register_memory(void) {
    struct xsock_key key;

    g.mr = xsock_mr_register(NULL, g.memory, memory_size(), XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE,
                             g.ep);
    if (g.mr == NULL || xsock_mr_key(g.mr, 0, memory_size(), &key) != 0) fail("xsock_mr_register");
    memcpy(g.out, &key, sizeof(key));
}

static long sleeps_of_all(void) {
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0) fail("getrusage");
    return usage.ru_nvcsw;
}

static void be_nobody(void) {
    const struct rlimit limit = {8 << 20, 8 << 20};

    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        fail("nobody");
}

static void enter(const char* netns) {
    const int fd = open(netns, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) fail("%s", netns);
    close(fd);
}

static void begin_process(const char* netns) {
    alarm(TIMEOUT_S);
    enter(netns);
    g_timers = fopen("/proc/timer_list", "r");
    if (g_timers == NULL) fail("/proc/timer_list");
    if (g_row == ROW_NOBODY) be_nobody();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    g.memory = aligned_alloc(4096, memory_size());
    if (g.memory == NULL) fail("memory");
    memset(g.memory, 1, memory_size());
}

static void serve(int pipe) {
    const struct xsock_ep_attr attr = attributes();
    XSOCK_INIT(xsock_ep_info, info);
    struct said said = {0};

    g.listener = xsock_listen(NULL, "0", 16, &attr);
    if (g.listener == NULL) fail("xsock_listen");
    int port = xsock_listener_port(g.listener);

    if (write(pipe, &port, sizeof(port)) != sizeof(port)) fail("pipe");
    for (int i = 0; i < (g_row == ROW_CONNECTS ? CONNECTS + 2 : 1); i++) {
        g.ep = xsock_accept(g.listener, -1);
        if (g.ep == NULL) fail("xsock_accept");
        post_receive();
        if (g_row != ROW_CONNECTS) register_memory();
        hear();
        say();
        if (g_row == ROW_CONNECTS) {
            XSOCK_INIT(xsock_ep_info, of_one);
            if (xsock_ep_query(g.ep, &of_one) == 0) memcpy(said.reason, of_one.placing.reason, 20);
            xsock_ep_close(g.ep);
        }
    }
    if (g_row != ROW_CONNECTS) {
        hear(); /* what came before made the regions known */
        said.sleeps = -sleeps_of_all();
        say();
        for (int i = 0; g_row == ROW_SENDS && i < PINGS; i++) {
            hear();
            say();
        }
        if (g_row != ROW_SENDS) hear();
        said.sleeps += sleeps_of_all();
        if (g_row != ROW_SENDS) say();
        if (xsock_ep_query(g.ep, &info) == 0) memcpy(said.reason, info.placing.reason, 20);
    }
    if (write(pipe, &said, sizeof(said)) != sizeof(said)) fail("pipe");
    sleep(TIMEOUT_S);
}

static void open_connection(const char* address, int port) {
    const struct xsock_ep_attr attr = attributes();
    char service[16];

    snprintf(service, sizeof(service), "%d", port);
    g.ep = xsock_connect(address, service, &attr, 30000);
    if (g.ep == NULL) fail("xsock_connect");
    post_receive();
    say();
}

static void drive(const char* address, int port) {
    double begin = 0;

    if (g_row == ROW_CONNECTS) {
        for (int i = 0; i < CONNECTS + 2; i++) {
            if (i == 2) begin = busy_us();
            open_connection(address, port);
            hear();
            xsock_ep_close(g.ep);
        }
    } else {
        struct xsock_key key;

        open_connection(address, port);
        /* The receive that hear() posts again is of the same memory. */
        hear();
        memcpy(&key, g.in, sizeof(key));
        xsock_key_read(&key, &g.remote);
        if (g_row != ROW_SENDS) bulks();
        usleep(200000); /* regions are pinned in the background */
        if (g_row != ROW_SENDS) bulks();
        say();
        hear();
        begin = busy_us();
        for (int i = 0; g_row == ROW_SENDS && i < PINGS; i++) {
            say();
            hear();
        }
        if (g_row != ROW_SENDS) {
            bulks();
            say();
            hear();
        }
    }
    printf("%s,%s,%.1f", kRows[g_row], getenv("XSOCK_KERNEL"), busy_us() - begin);
}

int main(int argc, char** argv) {
    int pipes[2], port, row = 0;
    struct said said;

    while (argc == 6 && row < ROWS && strcmp(argv[1], kRows[row]) != 0) row++;
    if (argc != 6 || row == ROWS) {
        fputs("usage: kernel_rows ROW KERNEL NETNS-A NETNS-B ADDRESS-IN-B\n", stderr);
        return 2;
    }
    g_row = (enum row)row;
    g_subject = kRows[row];
    setenv("XSOCK_KERNEL", argv[2], 1);
    setenv("XSOCK_SHM", "off", 1);
    setenv("XSOCK_SPIN_US", "0", 1);
    if (pipe(pipes) != 0) fail("pipe");
    const pid_t server = fork();

    if (server == 0) {
        close(pipes[0]);
        begin_process(argv[4]);
        serve(pipes[1]);
        _exit(0);
    }
    close(pipes[1]);
    if (read(pipes[0], &port, sizeof(port)) != sizeof(port)) fail("no server");
    begin_process(argv[3]);
    drive(argv[5], port);
    if (read(pipes[0], &said, sizeof(said)) != sizeof(said)) fail("the server says nothing");
    printf(",%ld,%s\n", said.sleeps, said.reason);
    fflush(stdout);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    _exit(0);
}
