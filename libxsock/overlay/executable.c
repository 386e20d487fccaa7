/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "libxsock/overlay/executable.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libxsock/engine/engine_open.h"
#include "libxsock/overlay/libc_real.h"

/* As execve(2) has them: of one string, and of all (three quarters of 8 MiB). */
enum { STRING_MOST = 32 * 4096, STRINGS_MOST = 6 << 20, STRINGS_LEAST = 128 << 10 };

/* 0: it is not there. @pre the engine is open */
static int read_memory(void* to, const void* from, size_t size) {
    return xsock_engine_opened->socket_copy(to, from, size) == 0;
}

/* With its NUL, if it is at most `most` long; 0: it is longer, or its memory is not there. */
static size_t string_size(const char* string, size_t most) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { PIECE = 1 }; /* these do not let what is behind the string be read */
#else
    enum { PIECE = 256 };
#endif
    char piece[PIECE];
    size_t size = 0;
    if (xsock_engine_opened == NULL) return 1;
    while (size < most) {
        /* Not beyond the end of a page: the next one may not be there. */
        const size_t piece_size = PIECE - (uintptr_t)(string + size) % PIECE;
        const char* end;
        if (!read_memory(piece, string + size, piece_size)) return 0;
        end = memchr(piece, '\0', piece_size);
        if (end != NULL) {
            size += (size_t)(end - piece) + 1;
            return size <= most ? size : 0;
        }
        size += piece_size;
    }
    return 0;
}

/* Adds the strings of a vector, and the pointers. 0: too much, or not there. */
static int add_strings(char* const* strings, size_t most, size_t* total) {
    const char* string;
    if (xsock_engine_opened == NULL) return 1;
    for (; strings != NULL; strings++) {
        size_t size;
        if (!read_memory(&string, strings, sizeof string)) return 0;
        if (string == NULL) return 1;
        size = string_size(string, STRING_MOST);
        if (size == 0) return 0;
        *total += size + sizeof string;
        if (*total > most) return 0;
    }
    return 1;
}

static int strings_fit(const struct executed* it) {
    struct rlimit stack;
    size_t most = STRINGS_MOST, total = 0;
    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur / 4 < most) {
        most = (size_t)stack.rlim_cur / 4;
    }
    if (most < STRINGS_LEAST) most = STRINGS_LEAST;
    return add_strings(it->argv, most, &total) && add_strings(it->envp, most, &total);
}

/* Of other formats than the kernel's own (Java's, other processors'). */
static int has_other_formats(void) {
    enum { SIZE_AT = 16 }; /* of struct linux_dirent64 */
    char entries[2048];
    const int all = open("/proc/sys/fs/binfmt_misc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = 0;
    if (all < 0) return 0;
    for (;;) {
        const long n = syscall(SYS_getdents64, all, entries, sizeof entries);
        const char* at = entries;
        const char* const end = at + n;
        if (n <= 0) break;
        for (; at < end; count++) {
            uint16_t size;
            memcpy(&size, at + SIZE_AT, sizeof size);
            at += size;
        }
    }
    LIBC(close)(all);
    return count > 4; /* ".", "..", "register", "status" */
}

static int is_file(int dirfd, const char* path, int flags) {
    struct stat status;
    const int at = flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    if (fstatat(dirfd, path, &status, at) != 0 || !S_ISREG(status.st_mode)) return 0;
    /* Without the path nothing asks for another user's rights: a set bit is enough of a chance. */
    if (*path == '\0') return (status.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0;
    return faccessat(dirfd, path, X_OK, AT_EACCESS) == 0;
}

/* The interpreter that the line "#!" names, which is a program itself. */
static int has_interpreter(char* line) {
    char* name;
    line[strcspn(line, "\n")] = '\0';
    name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, " \t")] = '\0';
    return is_file(AT_FDCWD, name, 0);
}

/* 1 also of one that may not be read. */
static int has_format(const struct executed* it) {
    char begin[257] = "";
    const int by_number = *it->path == '\0';
    const int fd = by_number ? it->dirfd : openat(it->dirfd, it->path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? pread(fd, begin, sizeof begin - 1, 0) : -1;
    if (fd >= 0 && !by_number) LIBC(close)(fd);
    if (n < 0) return 1;
    if (memcmp(begin, "#!", 2) == 0) return has_interpreter(begin);
    return memcmp(begin, ELFMAG, SELFMAG) == 0 || has_other_formats();
}

int executable(const struct executed* it) {
    if (string_size(it->path, PATH_MAX) == 0) return 0;
    return is_file(it->dirfd, it->path, it->flags) && has_format(it) && strings_fit(it);
}

int executable_in_path(const char* file, char* const* argv, char* const* envp) {
    const struct executed it = {AT_FDCWD, file, 0, argv, envp};
    const char* at = getenv("PATH");
    char path[PATH_MAX];
    if (string_size(file, PATH_MAX) == 0 || !strings_fit(&it)) return 0;
    if (strchr(file, '/') != NULL) return is_file(AT_FDCWD, file, 0);
    if (at == NULL) at = "/bin:/usr/bin";
    for (;;) {
        const size_t length = strcspn(at, ":");
        if (length + strlen(file) + 2 <= sizeof path) {
            memcpy(path, at, length);
            path[length] = '\0';
            if (length > 0) strcat(path, "/");
            strcat(path, file);
            if (is_file(AT_FDCWD, path, 0)) return 1;
        }
        if (at[length] == '\0') return 0;
        at += length + 1;
    }
}
