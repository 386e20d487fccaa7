/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Runs the cases both ways and compares what they wrote (semantics.h).
 *
 *   xsock run --stream -- system_stream_semantics [CASE ...]
 *   system_stream_semantics --kernel CASE      writes what the kernel answers
 *   xsock run --stream -- system_stream_semantics --carried CASE
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/system/stream_semantics/semantics.h"

enum { HANGS_S = 45, MOST_LINES = 500 };

struct transcript {
    char* text;
    char* lines[MOST_LINES];
    int count;
};

static int failures;
static const char* program;

/* The case in a process of its own; nothing where that failed. */
static int run(const char* name, const char* how, struct transcript* out) {
    const int file = memfd_create("transcript", MFD_CLOEXEC);
    int status = -1;
    off_t size;
    char* line;
    pid_t child;
    CHECK(file >= 0);
    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const int plain = strcmp(how, "--kernel") == 0;
        if (plain) {
            unsetenv("LD_PRELOAD");
            unsetenv("XSOCK_STREAM");
            unsetenv("XSOCK_POLICY");
        }
        alarm(HANGS_S);
        if (dup2(file, STDOUT_FILENO) == STDOUT_FILENO) {
            execl("/proc/self/exe", program, how, name, (char*)NULL);
        }
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    size = lseek(file, 0, SEEK_END);
    out->text = calloc(1, (size_t)size + 1);
    CHECK(out->text != NULL && pread(file, out->text, (size_t)size, 0) == size);
    close(file);
    out->count = 0;
    for (line = strtok(out->text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        CHECK(out->count < MOST_LINES);
        out->lines[out->count++] = line;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 1;
    fprintf(stderr, "%s %s: status %#x%s; last line: %s\n", name, how, (unsigned)status,
            WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? " (hung)" : "",
            out->count > 0 ? out->lines[out->count - 1] : "(none)");
    return 0;
}

/* The row of these two lines; NULL: there is none. */
static const struct difference* row_of(const char* name, const char* kernel, const char* carried) {
    const char* const answer = strstr(kernel, " = ");
    size_t label, i;
    if (answer == NULL) return NULL;
    label = (size_t)(answer - kernel);
    if (strncmp(kernel, carried, label + 3) != 0) return NULL;
    for (i = 0; i < difference_count; i++) {
        const struct difference* const row = &differences[i];
        if (strcmp(row->name, name) == 0 && strlen(row->label) == label &&
            strncmp(row->label, kernel, label) == 0 && strcmp(row->kernel, answer + 3) == 0 &&
            strcmp(row->carried, carried + label + 3) == 0) {
            return row;
        }
    }
    return NULL;
}

static int compare(const char* name, const struct transcript* kernel,
                   const struct transcript* carried) {
    char seen[256] = {0};
    int differ = 0, i;
    size_t row;
    CHECK(difference_count <= sizeof seen);
    for (i = 0; i < kernel->count || i < carried->count; i++) {
        const char* const k = i < kernel->count ? kernel->lines[i] : "(no more)";
        const char* const c = i < carried->count ? carried->lines[i] : "(no more)";
        const struct difference* found;
        if (strcmp(k, c) == 0) continue;
        found = row_of(name, k, c);
        if (found != NULL) {
            seen[found - differences] = 1;
            continue;
        }
        fprintf(stderr, "%s, line %d:\n  kernel   %s\n  carried  %s\n", name, i + 1, k, c);
        differ = 1;
    }
    for (row = 0; row < difference_count; row++) {
        if (strcmp(differences[row].name, name) != 0 || seen[row]) continue;
        fprintf(stderr, "%s: %s: differs no more, take it from the table\n", name,
                differences[row].label);
        differ = 1;
    }
    return !differ && kernel->count > 0;
}

static void run_both(const struct test_case* one) {
    struct transcript kernel, carried;
    const int there = run(one->name, "--kernel", &kernel);
    const int ok =
        run(one->name, "--carried", &carried) && there && compare(one->name, &kernel, &carried);
    printf("%s %s, %d lines\n", ok ? "ok  " : "FAIL", one->name, kernel.count);
    failures += !ok;
    free(kernel.text);
    free(carried.text);
}

static void run_here(const struct test_case* one) { one->run(); }

static int usage(void) {
    fputs(
        "usage: xsock run --stream -- system_stream_semantics [CASE ...]\n"
        "       system_stream_semantics --kernel CASE ...\n"
        "       xsock run --stream -- system_stream_semantics --carried CASE ...\n",
        stderr);
    return 2;
}

int main(int argc, char** argv) {
    int wrong;
    program = argv[0];
    if (argc > 1 && strncmp(argv[1], "-", 1) == 0) {
        is_carried = strcmp(argv[1], "--carried") == 0;
        if (argc == 2 || (!is_carried && strcmp(argv[1], "--kernel") != 0)) return usage();
        signal(SIGPIPE, SIG_IGN);
        return for_cases(argc - 1, argv + 1, run_here);
    }
    wrong = for_cases(argc, argv, run_both);
    return wrong || failures > 0;
}
