/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 *   faults_... [OPTION...] PROGRAM ROLE [PHASE NAME NTH [ERRNO]]
 *   faults_... [OPTION...] PROGRAM ROLE room N
 *
 *   --every K    of every K points one, the --from I-th; without it a random one, which is printed
 *   --verbose    each point, how it went, and where the failing call was made
 *   --list       the calls of each phase, and how often they are made
 *
 * ROLE: client or server, the victim's. Without a point: all of them. `room N`: the victim may have
 * N descriptors more (RLIMIT_NOFILE). Prints how to repeat each that fails.
 */
#include "tests/system/faults/faults.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Calls that are made again and again while an end waits: the first ones stand for all. */
enum { NTH_MAX = 24, ALLOCATIONS_MAX = 2000 };
/* Room for so many descriptors: what a connection and all behind it need is less. */
enum { ROOM_MAX = 28, ANY_ROOM = -1 };

static struct run {
    atomic_int port[ROUNDS], rounds_over, descriptors, eventfds, noted_error, has_ring[ROUNDS];
    char noted_call[32], message[256];
} * run;

static const struct ends* program;
static int server, verbose, usual_descriptors, usual_eventfds, room = ANY_ROOM;

long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void nap(long ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

void fail(const char* format, ...) {
    va_list list;
    fault_points_phase(PHASE_OFF);
    va_start(list, format);
    vsnprintf(run->message, sizeof run->message, format, list);
    va_end(list);
    _exit(1);
}

/* A connection through shared memory has its ring mapped from its start until either end closes. */
static int is_ring_mapped(void) {
    FILE* const maps = fopen("/proc/self/maps", "re");
    char line[512];
    int found = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        found |= strstr(line, "/memfd:xsock-shm") != NULL;
    }
    if (maps != NULL) fclose(maps);
    return found;
}

void enter(const struct side* side, enum fault_phase phase) {
    if (side->victim && phase != PHASE_START) run->has_ring[side->round] |= is_ring_mapped();
    if (side->victim && side->round == 0) fault_points_phase(phase);
}

void note(const struct side* side, const char* call, int error) {
    if (!side->victim) return;
    if (side->round != 0) fail("after the fault: %s: %s", call, strerror(error));
    if (run->noted_call[0] != '\0') return;
    snprintf(run->noted_call, sizeof run->noted_call, "%s", call);
    run->noted_error = error;
}

void publish_port(const struct side* side, int port) { run->port[side->round] = port; }

int victim_is_done(const struct side* side) { return run->rounds_over > side->round; }

int await_port(const struct side* side) {
    const long long limit = now_ms() + LIMIT_MS;
    while (run->port[side->round] == 0) {
        if (victim_is_done(side)) return 0;
        if (now_ms() > limit) fail("no port in time");
        nap(1);
    }
    return run->port[side->round];
}

/* ---- the two processes --------------------------------------------------------- */

/* Where processes of this host ask for shared memory: made when a peer's connection first comes. */
static int is_shm_listener(int fd) {
    struct sockaddr_un own = {.sun_family = AF_UNSPEC};
    socklen_t size = sizeof own, int_size = sizeof(int);
    int listens = 0;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_size) == 0 && listens &&
           getsockname(fd, (struct sockaddr*)&own, &size) == 0 && own.sun_family == AF_UNIX &&
           strncmp(own.sun_path + 1, "xsock-shm-", strlen("xsock-shm-")) == 0;
}

/* Without what a process makes once: when a call first sleeps behind another thread, the signalfd,
 * and one eventfd, which none tells from the others; and one listener for shared memory. */
static int open_descriptors(void) {
    DIR* const folder = opendir("/proc/self/fd");
    const struct dirent* entry;
    int count = 0, eventfds = 0, listeners = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char to[64] = "";
        if (readlinkat(dirfd(folder), entry->d_name, to, sizeof to - 1) <= 0) continue;
        eventfds += strstr(to, "eventfd") != NULL;
        if (strstr(to, "socket:") != NULL && is_shm_listener(atoi(entry->d_name))) {
            count += listeners++ > 0;
            continue;
        }
        count += strstr(to, "signalfd") == NULL && strstr(to, "eventfd") == NULL;
    }
    if (folder != NULL) closedir(folder);
    run->eventfds = eventfds;
    if (usual_eventfds == 0) return count + eventfds;
    return count + (eventfds <= usual_eventfds + 1 ? usual_eventfds : eventfds);
}

/* What closed is given back in the background. */
static int settled_descriptors(void) {
    const long long limit = now_ms() + (usual_descriptors > 0 ? LIMIT_MS : 500);
    int count;
    do {
        count = open_descriptors();
        if (usual_descriptors > 0 && count <= usual_descriptors) break;
        nap(5);
    } while (now_ms() < limit);
    return count;
}

static void end_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static void on_abort(int signal_number) {
    fault_points_print_stack();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void limit_descriptors(int round) {
    struct rlimit limit;
    const int lowest_free = dup(STDIN_FILENO);
    close(lowest_free);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = round == 0 ? (rlim_t)(lowest_free + room) : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void be_victim(void) {
    struct side side = {1, server, 0};
    if (verbose) signal(SIGABRT, on_abort);
    for (; side.round < ROUNDS; side.round++) {
        if (room != ANY_ROOM) limit_descriptors(side.round);
        program->run(&side);
        fault_points_phase(PHASE_OFF);
        run->rounds_over = side.round + 1;
    }
    run->descriptors = settled_descriptors();
    if (verbose && usual_descriptors > 0 && run->descriptors > usual_descriptors &&
        system("ls -l /proc/$PPID/fd >&2") != 0) {
        perror("ls");
    }
    exit(0); /* leaks are looked for */
}

static void be_peer(void) {
    struct side side = {0, !server, 0};
    for (; side.round < ROUNDS; side.round++) program->run(&side);
    exit(0);
}

static pid_t start(void (*be)(void)) {
    const pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(1);
    }
    if (child != 0) return child;
    end_with_parent();
    be();
    _exit(0);
}

/* NULL: it ended well, within the time. */
static const char* end_of(pid_t child, const char* who, int limit_ms) {
    static char text[128];
    const long long limit = now_ms() + limit_ms;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (now_ms() > limit) {
            if (verbose) {
                char command[128];
                snprintf(command, sizeof command,
                         "gdb -p %d -batch -ex 'thread apply all bt 14' 2>/dev/null", child);
                if (system(command) != 0) perror("gdb");
            }
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            snprintf(text, sizeof text, "the %s hangs", who);
            return text;
        }
        nap(1);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return NULL;
    if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "the %s died of %s", who, strsignal(WTERMSIG(status)));
    } else {
        snprintf(text, sizeof text, "the %s failed (%d)", who, WEXITSTATUS(status));
    }
    return text;
}

/* What the caller may be told in place of what went wrong: calls that end by a time-out, or that
 * the peer ends, because what failed happened apart from them. */
static int is_fitting(int error, int name, int injected) {
    static const int always[] = {ETIMEDOUT, ECONNRESET, EAGAIN, ECONNABORTED, ENOTCONN};
    size_t i;
    if (error == injected || error == ENOMEM) return 1;
    for (i = 0; i < sizeof always / sizeof *always; i++) {
        if (error == always[i]) return 1;
    }
    /* A full queue of Reads ends in a Terminate, "local catastrophic". */
    if (strcmp(fault_name(name), "alloc") == 0 && error == EPROTO) return 1;
    /* What is no socket of the expected kind cannot be told from one that does not say. */
    if (strcmp(fault_name(name), "getsockopt") == 0) {
        return error == EPROTOTYPE || error == EOPNOTSUPP || error == EINVAL;
    }
    return 0;
}

/* NULL: the connection of this round took the way that XSOCK_SHM says. */
static const char* wrong_path(int round) {
    const char* const shm = getenv("XSOCK_SHM");
    const int is_off = shm != NULL && strcmp(shm, "off") == 0;
    if (shm == NULL || !program->shares_memory) return NULL;
    if (is_off) return run->has_ring[round] ? "goes through shared memory" : NULL;
    return run->has_ring[round] ? NULL : "does not go through shared memory";
}

/* One connection with a fault, one without. NULL: all as it should be. */
static const char* run_once(const struct fault_point* point) {
    static char text[512];
    const char *victim_end, *peer_end;
    pid_t peer, victim;
    memset(run, 0, sizeof *run);
    fault_points_arm(point, verbose);
    peer = start(be_peer);
    victim = start(be_victim);
    victim_end = end_of(victim, "victim", 4 * LIMIT_MS);
    if (victim_end != NULL) {
        snprintf(text, sizeof text, "%s", victim_end);
        victim_end = text;
    }
    run->rounds_over = ROUNDS;
    peer_end = end_of(peer, "peer", 2 * LIMIT_MS);
    if (victim_end == NULL) victim_end = peer_end;
    if (victim_end != NULL) {
        if (victim_end != text) snprintf(text, sizeof text, "%s", victim_end);
        if (run->message[0] != '\0') {
            snprintf(text + strlen(text), sizeof text - strlen(text), ": %s", run->message);
        }
        return text;
    }
    if (usual_descriptors > 0 && run->descriptors > usual_descriptors) {
        snprintf(text, sizeof text, "%d descriptors, %d without a fault", run->descriptors,
                 usual_descriptors);
        return text;
    }
    if (run->noted_call[0] != '\0' &&
        !(point != NULL ? is_fitting(run->noted_error, point->name, point->error)
                        : room != ANY_ROOM && is_fitting(run->noted_error, 0, EMFILE))) {
        snprintf(text, sizeof text, "%s: errno %d (%s)", run->noted_call, run->noted_error,
                 strerror(run->noted_error));
        return text;
    }
    if (wrong_path(ROUNDS - 1) != NULL) {
        snprintf(text, sizeof text, "the connection after it %s", wrong_path(ROUNDS - 1));
        return text;
    }
    return NULL;
}

/* ---- points --------------------------------------------------------------------- */

static int ran, hit, failed;

/* NULL: a shortage of descriptors, `room`. */
static void try_point(const struct fault_point* point) {
    const char* const wrong = run_once(point);
    ran++;
    hit += point == NULL || fault_points_hit();
    if (wrong == NULL && !verbose) return;
    failed += wrong != NULL;
    printf("%s%s %s ", wrong != NULL ? "FAILED " : "", program->name, server ? "server" : "client");
    if (point == NULL) printf("room %d: ", room);
    if (point != NULL) {
        printf("%s %s %d %s: %s", phase_names[point->phase], fault_name(point->name), point->nth,
               strerrorname_np(point->error), fault_points_hit() ? "" : "not reached; ");
    }
    if (wrong != NULL) {
        printf("%s\n", wrong);
    } else if (run->noted_call[0] == '\0') {
        printf("no call failed\n");
    } else {
        printf("%s: %s\n", run->noted_call, strerrorname_np(run->noted_error));
    }
    fflush(stdout);
}

enum { POINTS_MIN = 100 }; /* some 300 and more are usual */

struct plan {
    int every, from, only_list;
};

/* All points that a run without a fault has shown, or every `every`-th. */
static void try_all(const struct plan* plan) {
    static int counts[PHASE_COUNT][FAULT_NAMES_MAX];
    struct fault_point point;
    int index = 0, phase;
    for (phase = PHASE_START; phase < PHASE_COUNT; phase++) {
        for (point.name = 0; fault_name(point.name) != NULL; point.name++) {
            counts[phase][point.name] = fault_points_count((enum fault_phase)phase, point.name);
        }
    }
    for (phase = PHASE_START; phase < PHASE_COUNT; phase++) {
        point.phase = (enum fault_phase)phase;
        for (point.name = 0; fault_name(point.name) != NULL; point.name++) {
            const int* const errors = fault_errors(point.name);
            const int allocation = strcmp(fault_name(point.name), "alloc") == 0;
            const int most = allocation ? ALLOCATIONS_MAX : NTH_MAX;
            const int count = counts[phase][point.name];
            const int* error;
            if (plan->only_list && count > 0) {
                printf("%-8s %-16s %d\n", phase_names[phase], fault_name(point.name), count);
            }
            for (point.nth = 1; point.nth <= count && point.nth <= most; point.nth++) {
                for (error = errors; *error != 0; error++) {
                    point.error = *error;
                    if (index++ % plan->every != plan->from || plan->only_list) continue;
                    try_point(&point);
                }
            }
        }
    }
    if (plan->only_list) {
        printf("%d points\n", index);
        return;
    }
    if (index < POINTS_MIN) {
        printf("FAILED: only %d points are known: the library's calls are not seen\n", index);
        failed++;
    }
#ifdef __SANITIZE_ADDRESS__
    return; /* UBSan looks at objects through a pipe */
#endif
    for (room = 0; room <= ROOM_MAX; room++) {
        if (index++ % plan->every == plan->from) try_point(NULL);
    }
}

static int error_of_text(const char* text) {
    int error;
    for (error = 1; error < 134; error++) {
        const char* const name = strerrorname_np(error);
        if (name != NULL && strcmp(name, text) == 0) return error;
    }
    return atoi(text);
}

static int index_of(const char* word, const char* (*at)(int), int from) {
    int i;
    for (i = from; at(i) != NULL; i++) {
        if (strcmp(at(i), word) == 0) return i;
    }
    fprintf(stderr, "what is %s?\n", word);
    exit(2);
}
static const char* phase_at(int i) { return i < PHASE_COUNT ? phase_names[i] : NULL; }

static const struct ends* ends_named(const struct ends* all, const char* name) {
    for (; all->name != NULL; all++) {
        if (strcmp(all->name, name) == 0) return all;
    }
    fprintf(stderr, "what is %s?\n", name);
    exit(2);
}

int run_faults(int argc, char** argv, const struct ends* all) {
    struct plan plan = {1, -1, 0};
    int i = 1;
    if (getenv("LD_BIND_NOW") == NULL) {
        setenv("LD_BIND_NOW", "1", 1);
        setenv("XSOCK_LOG", "off", 0);
        setenv("XSOCK_SPIN_US", "0", 0);
        /* Which thread starts a socket first decides whether there is a second progress. */
        setenv("XSOCK_THREADS", "1", 0);
        execv("/proc/self/exe", argv);
    }
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strcmp(argv[i], "--verbose") == 0) verbose = 1;
        if (strcmp(argv[i], "--list") == 0) plan.only_list = 1;
        if (strcmp(argv[i], "--every") == 0 && i + 1 < argc) plan.every = atoi(argv[++i]);
        if (strcmp(argv[i], "--from") == 0 && i + 1 < argc) plan.from = atoi(argv[++i]);
    }
    if (argc - i < 2 || plan.every < 1) {
        fprintf(stderr,
                "usage: %s [--every K] [--from I] [--verbose] [--list] PROGRAM ROLE "
                "[PHASE NAME NTH [ERRNO] | room N]\n",
                argv[0]);
        return 2;
    }
    program = ends_named(all, argv[i]);
    server = strcmp(argv[i + 1], "server") == 0;
    run = mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED) return 1;
    fault_points_open();
    if (plan.from < 0 && plan.every > 1) {
        plan.from = (int)(time(NULL) % plan.every);
        printf("--every %d --from %d\n", plan.every, plan.from);
        fflush(stdout);
    }
    plan.from = plan.from < 0 ? 0 : plan.from % plan.every;

    /* Twice, so that nothing that is made once in a lifetime counts as a leak. */
    for (int again = 0; again < 2; again++) {
        const char* const wrong = run_once(NULL);
        if (wrong != NULL || run->noted_call[0] != '\0') {
            printf("FAILED %s without a fault: %s%s\n", program->name,
                   wrong != NULL ? wrong : run->noted_call,
                   wrong != NULL ? "" : strerror(run->noted_error));
            return 1;
        }
        if (wrong_path(0) != NULL) {
            printf("FAILED %s without a fault: it %s\n", program->name, wrong_path(0));
            return 1;
        }
        if (run->descriptors > usual_descriptors) usual_descriptors = run->descriptors;
        if (usual_eventfds == 0) usual_eventfds = run->eventfds;
    }
    if (argc - i == 4 && strcmp(argv[i + 2], "room") == 0) {
        room = atoi(argv[i + 3]);
        try_point(NULL);
    } else if (argc - i >= 5) {
        struct fault_point point = {(enum fault_phase)index_of(argv[i + 2], phase_at, PHASE_START),
                                    index_of(argv[i + 3], fault_name, 0), atoi(argv[i + 4]), 0};
        point.error = argc - i > 5 ? error_of_text(argv[i + 5]) : fault_errors(point.name)[0];
        try_point(&point);
    } else {
        try_all(&plan);
        if (ran >= 10 && hit * 2 < ran) {
            printf("FAILED: most points were not reached\n");
            failed++;
        }
    }
    printf("%s %s: %d points, %d of them reached, %d failed\n", program->name,
           server ? "server" : "client", ran, hit, failed);
    return failed != 0;
}
