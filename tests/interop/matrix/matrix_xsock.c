/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The host's side of the siw matrix: runs its rows one after another, each in a process of its own,
 * against matrix_siw in a guest. A line for each on standard output, separated by tabs:
 *
 *   verdict (pass, refused, FAIL)   group   row   milliseconds   what was seen
 *
 * Exit status: 0 when no row failed, 1 when one did, 2 for a mistake in the call.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rows.h"

static const char kUsage[] =
    "usage: matrix_xsock --guest ADDRESS --port PORT --own ADDRESS [--brief] [--rows REGEX]\n"
    "                    [--power-off COMMAND] | --list\n"
    "\n"
    "  --guest ADDRESS      of the guest, where matrix_siw serves on --port\n"
    "  --own ADDRESS        of this host, as the guest sees it\n"
    "  --brief              only the rows of the short matrix\n"
    "  --rows REGEX         only rows whose \"group: name\" matches\n"
    "  --power-off COMMAND  turns the guest off at once; without it that row is left out\n"
    "  --list               prints the rows\n";

/* Warnings of the guest's kernel since the last call; true when there were serious ones. */
static bool kernel_reported(struct row* watch, bool siw_may, char* out, size_t size) {
    static const char* const kSerious[] = {"BUG",
                                           "WARNING",
                                           "Oops",
                                           "Call Trace",
                                           "refcount",
                                           "general protection",
                                           "unable to handle"};
    char answer[LINE_MAX_BYTES];
    bool found = false;

    row_tell(watch, "klog");
    for (;;) {
        if (row_answer(watch, answer)) return found;
        bool serious = !siw_may && strstr(answer, "siw: ") != NULL;

        for (size_t i = 0; i < sizeof(kSerious) / sizeof(kSerious[0]); i++)
            serious = serious || strstr(answer, kSerious[i]) != NULL;
        if (serious && !found) {
            snprintf(out, size, "the guest's kernel: %.300s", answer + 4);
            found = true;
        }
    }
}

/* Runs a row in a process; its notes and its verdict. */
static int run(struct row_plan* plan, const struct setting* setting, char* notes, size_t size) {
    int out[2];
    size_t have = 0;

    notes[0] = '\0';
    if (pipe(out) != 0) return FAILED;
    fflush(stdout);
    const pid_t pid = fork();

    if (pid == 0) {
        struct row row;

        setpgid(0, 0);
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        row_begin(&row, setting);
        const int verdict = plan->run(&row, plan);

        fflush(stdout);
        _exit(verdict);
    }
    close(out[1]);
    const int64_t end = now_ms() + (int64_t)plan->limit_s * 1000;
    bool late = false;

    for (;;) {
        const int64_t left = end - now_ms();
        struct pollfd wait = {.fd = out[0], .events = POLLIN};

        if (left <= 0 || poll(&wait, 1, (int)left) == 0) {
            late = true;
            kill(-pid, SIGKILL);
            break;
        }
        const ssize_t n = read(out[0], notes + have, size - 1 - have);

        if (n <= 0) break;
        have += (size_t)n;
        notes[have] = '\0';
        if (have == size - 1) break;
    }
    close(out[0]);
    int status = 0;

    waitpid(pid, &status, 0);
    kill(-pid, SIGKILL); /* what it started */
    if (late)
        snprintf(notes + have, size - have, "fail took longer than %d s\n", plan->limit_s);
    else if (WIFSIGNALED(status))
        snprintf(notes + have, size - have, "fail signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
}

/* "note a\nfail b\n" -> "a; b" */
static void join(char* notes) {
    char* to = notes;

    for (char* line = strtok(notes, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const size_t length = strlen(line);

        if (length < 5) continue;
        if (to != notes) *to++ = ';', *to++ = ' ';
        memmove(to, line + 5, length - 5);
        to += length - 5;
    }
    *to = '\0';
}

int main(int argc, char** argv) {
    static const struct option kOptions[] = {{"guest", required_argument, NULL, 'g'},
                                             {"port", required_argument, NULL, 'p'},
                                             {"own", required_argument, NULL, 'o'},
                                             {"brief", no_argument, NULL, 'b'},
                                             {"rows", required_argument, NULL, 'r'},
                                             {"power-off", required_argument, NULL, 'x'},
                                             {"list", no_argument, NULL, 'l'},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};
    struct setting setting = {0};
    bool brief = false, list = false;
    const char* pattern = "";
    regex_t rows;
    unsigned count, failures = 0, done = 0;
    int option;

    while ((option = getopt_long(argc, argv, "", kOptions, NULL)) != -1) {
        switch (option) {
            case 'g':
                setting.guest = optarg;
                break;
            case 'p':
                setting.control_port = atoi(optarg);
                break;
            case 'o':
                setting.own = optarg;
                break;
            case 'b':
                brief = true;
                break;
            case 'r':
                pattern = optarg;
                break;
            case 'x':
                setting.power_off = optarg;
                break;
            case 'l':
                list = true;
                break;
            case 'h':
                fputs(kUsage, stdout);
                return 0;
            default:
                fputs(kUsage, stderr);
                return 2;
        }
    }
    struct row_plan* plans = row_plans(&count);

    if (regcomp(&rows, pattern, REG_EXTENDED | REG_NOSUB) != 0 ||
        (!list && (setting.guest == NULL || setting.own == NULL || setting.control_port == 0))) {
        fputs(kUsage, stderr);
        return 2;
    }
    setting.brief = brief;
    struct row watch;
    bool guest_there = true;

    if (!list) row_begin(&watch, &setting);
    for (unsigned i = 0; i < count; i++) {
        struct row_plan* plan = &plans[i];
        static char notes[8192], label[256];

        snprintf(label, sizeof(label), "%s: %s", plan->group, plan->name);
        if ((brief && !plan->brief) || regexec(&rows, label, 0, NULL, 0) != 0 ||
            (plan->ends_guest && setting.power_off == NULL))
            continue;
        if (list) {
            puts(label);
            continue;
        }
        const int64_t start = now_ms();
        int verdict = run(plan, &setting, notes, sizeof(notes));
        const int64_t took = now_ms() - start;

        join(notes);
        if (plan->ends_guest) guest_there = false;
        if (guest_there) {
            const size_t have = strlen(notes);

            if (kernel_reported(&watch, plan->kernel_reports, notes + have, sizeof(notes) - have))
                verdict = FAILED;
        }
        printf("%s\t%s\t%s\t%d\t%s\n",
               verdict == PASSED    ? "pass"
               : verdict == REFUSED ? "refused"
                                    : "FAIL",
               plan->group, plan->name, (int)took, notes);
        fflush(stdout);
        failures += verdict != PASSED && verdict != REFUSED;
        done++;
    }
    if (!list && done == 0) {
        fprintf(stderr, "matrix_xsock: no row matches\n");
        return 2;
    }
    return failures != 0;
}
