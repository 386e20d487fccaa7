/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether exec() has a chance. What a process has sent goes, and its connections end, before the
 * kernel replaces it; where exec() is going to fail they must not. So what can be known beforehand
 * is checked: the file, its format, and, where the engine is open, the room for arguments. Any
 * thread, also in a signal handler.
 */
#ifndef XSOCK_OVERLAY_EXECUTABLE_H
#define XSOCK_OVERLAY_EXECUTABLE_H

/* What an exec function is called with; `flags` of execveat(). `envp` may be NULL. */
struct executed {
    int dirfd;
    const char* path;
    int flags;
    char* const* argv;
    char* const* envp;
};

/* 0: exec() of it fails, with ENOENT, EACCES, ENOEXEC, E2BIG or EFAULT. 1: it may. */
int executable(const struct executed* it);
/* The same for execvp(), which looks for `file` in PATH and gives a file of no format to a shell.
 */
int executable_in_path(const char* file, char* const* argv, char* const* envp);

#endif /* XSOCK_OVERLAY_EXECUTABLE_H */
