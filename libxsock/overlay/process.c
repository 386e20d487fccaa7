/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What ends or replaces a process. What its DDPMODE sockets have queued is sent before, as the
 * kernel would do for TCP; a forked or vforked child sends nothing. */
#include <alloca.h>
#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/summary.h"

/* Programs try one folder after another: one that lacks the file is no end. NULL: not known. */
static void before_exec(const char* path) {
    if (path != NULL && access(path, X_OK) != 0) return;
    overlay_drain();
    summary_write("exec");
}

int overlay_execve(const char* path, char* const* argv, char* const* envp) {
    before_exec(path);
    return LIBC(execve)(path, argv, envp);
}

int overlay_execv(const char* path, char* const* argv) {
    before_exec(path);
    return LIBC(execv)(path, argv);
}

int overlay_execvp(const char* file, char* const* argv) {
    before_exec(NULL);
    return LIBC(execvp)(file, argv);
}

int overlay_execvpe(const char* file, char* const* argv, char* const* envp) {
    before_exec(NULL);
    return LIBC(execvpe)(file, argv, envp);
}

int overlay_fexecve(int fd, char* const* argv, char* const* envp) {
    before_exec(NULL);
    return LIBC(fexecve)(fd, argv, envp);
}

int overlay_execveat(int dirfd, const char* path, char* const* argv, char* const* envp, int flags) {
    before_exec(NULL);
    return LIBC(execveat)(dirfd, path, argv, envp, flags);
}

/* The forms with a list: its strings, up to the NULL, become an array on the stack (libc does the
 * same: a child of vfork() must not allocate). */
static size_t count_strings(const char* first, va_list list) {
    size_t count = 1;
    if (first == NULL) return 0;
    while (va_arg(list, char*) != NULL) count++;
    return count;
}

#define STRINGS_OF(argv, first)                                           \
    do {                                                                  \
        va_list list_;                                                    \
        size_t count_, i_;                                                \
        va_start(list_, first);                                           \
        count_ = count_strings(first, list_);                             \
        va_end(list_);                                                    \
        argv = alloca((count_ + 1) * sizeof *argv);                       \
        va_start(list_, first);                                           \
        argv[0] = (char*)first;                                           \
        for (i_ = 1; i_ <= count_; i_++) argv[i_] = va_arg(list_, char*); \
        va_end(list_);                                                    \
    } while (0)

int overlay_execl(const char* path, const char* argument, ...) {
    char** argv;
    STRINGS_OF(argv, argument);
    return overlay_execv(path, argv);
}

int overlay_execlp(const char* file, const char* argument, ...) {
    char** argv;
    STRINGS_OF(argv, argument);
    return overlay_execvp(file, argv);
}

int overlay_execle(const char* path, const char* argument, ...) {
    char** argv;
    char* const* envp;
    va_list list;
    STRINGS_OF(argv, argument);
    va_start(list, argument);
    while (argument != NULL && va_arg(list, char*) != NULL) {
    }
    envp = va_arg(list, char* const*);
    va_end(list);
    return overlay_execve(path, argv, envp);
}

void overlay__exit(int status) {
    overlay_end_connections();
    summary_write("exit");
    LIBC(_exit)(status);
    __builtin_unreachable();
}

void overlay__Exit(int status) {
    overlay_end_connections();
    summary_write("exit");
    LIBC(_Exit)(status);
    __builtin_unreachable();
}

/* Puts /dev/null over 0, 1 and 2 from inside libc. */
int overlay_daemon(int stay, int keep) {
    const int result = LIBC(daemon)(stay, keep);
    int fd;
    if (result == 0 && !keep) {
        fd_forget_range(STDIN_FILENO, STDERR_FILENO);
        for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) overlay_stdio_follow(fd);
    }
    return result;
}
