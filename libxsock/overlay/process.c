/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What ends or replaces a process. What its DDPMODE sockets have queued is sent before, as the
 * kernel would do for TCP; a forked or vforked child sends nothing. */
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "libxsock/overlay/executable.h"
#include "libxsock/overlay/fd_table.h"
#include "libxsock/overlay/fork.h"
#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/summary.h"

/* What this process has may be open in another one from now on, in which no handler of fork() ran.
 */
static void count_as_fork(void) { atomic_fetch_add(&fork_count, 1); }

/* 1: nothing of this process ends with it. */
static int begin_exec(void) {
    /* A child of vfork() has its parent's memory: what it executes may have got a socket. */
    if (fd_any() && !fd_table_is_ours()) count_as_fork();
    return !fd_table_is_ours();
}

static void end_for_exec(void) {
    overlay_drain();
    summary_write("exec");
}

/* Programs try one folder after another: one that lacks the file is no end. */
static void before_exec(int dirfd, const char* path, int flags, char* const* argv,
                        char* const* envp) {
    const struct executed it = {dirfd, path, flags, argv, envp};
    const int saved = errno;
    if (begin_exec() || executable(&it)) end_for_exec();
    errno = saved;
}

static void before_execvp(const char* file, char* const* argv, char* const* envp) {
    const int saved = errno;
    if (begin_exec() || executable_in_path(file, argv, envp)) end_for_exec();
    errno = saved;
}

int overlay_execve(const char* path, char* const* argv, char* const* envp) {
    before_exec(AT_FDCWD, path, 0, argv, envp);
    return LIBC(execve)(path, argv, envp);
}

int overlay_execv(const char* path, char* const* argv) {
    before_exec(AT_FDCWD, path, 0, argv, environ);
    return LIBC(execv)(path, argv);
}

int overlay_execvp(const char* file, char* const* argv) {
    before_execvp(file, argv, environ);
    return LIBC(execvp)(file, argv);
}

int overlay_execvpe(const char* file, char* const* argv, char* const* envp) {
    before_execvp(file, argv, envp);
    return LIBC(execvpe)(file, argv, envp);
}

int overlay_fexecve(int fd, char* const* argv, char* const* envp) {
    before_exec(fd, "", AT_EMPTY_PATH, argv, envp);
    return LIBC(fexecve)(fd, argv, envp);
}

int overlay_execveat(int dirfd, const char* path, char* const* argv, char* const* envp, int flags) {
    before_exec(dirfd, path, flags, argv, envp);
    return LIBC(execveat)(dirfd, path, argv, envp, flags);
}

/* NOLINTBEGIN(clang-analyzer-valist.Uninitialized): the analyzer takes each for not begun */
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
/* NOLINTEND(clang-analyzer-valist.Uninitialized) */

/* ---- children that are made inside libc --------------------------------------------------------
 */
int overlay_posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                        const posix_spawnattr_t* attributes, char* const* argv, char* const* envp) {
    count_as_fork();
    return LIBC(posix_spawn)(pid, path, actions, attributes, argv, envp);
}

int overlay_posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                         const posix_spawnattr_t* attributes, char* const* argv,
                         char* const* envp) {
    count_as_fork();
    return LIBC(posix_spawnp)(pid, file, actions, attributes, argv, envp);
}

FILE* overlay_popen(const char* command, const char* type) {
    count_as_fork();
    return LIBC(popen)(command, type);
}

int overlay_system(const char* command) {
    count_as_fork();
    return LIBC(system)(command);
}

/* ---- the end -----------------------------------------------------------------------------------
 */
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
