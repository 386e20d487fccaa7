/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The files of the device that looks like RoCE, as a program under `xsock run --roce` finds them:
 * each kind of libc's functions that take a path. The program itself knows nothing of xsock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/support/cases.h"

#define CLASS "/sys/class/infiniband"
#define DEVICE "/sys/devices/virtual/infiniband/xsock0"
#define NODE "/dev/infiniband/uverbs0"

static const char* case_name;
static int failures;
#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            ++failures;                                                              \
            printf("FAILED %s, line %d: %s (%s)\n", case_name, __LINE__, #condition, \
                   strerror(errno));                                                 \
        }                                                                            \
    } while (0)
#define FAILS(call, error) CHECK((errno = 0, (call)) == -1 && errno == (error))

static int reads(int fd, const char* text) {
    char bytes[64] = "";
    const ssize_t n = fd >= 0 ? read(fd, bytes, sizeof bytes - 1) : -1;
    if (fd >= 0) close(fd);
    return n > 0 && strcmp(bytes, text) == 0;
}
static int file_reads(FILE* file, const char* text) {
    char line[64] = "";
    const int good = file != NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL) fclose(file);
    return good && strcmp(line, text) == 0;
}

CASE(files_are_opened) {
    CHECK(reads(open(CLASS "/xsock0/node_type", O_RDONLY), "1: CA\n"));
    CHECK(reads(open64(CLASS "/xsock0/node_type", O_RDONLY), "1: CA\n"));
    CHECK(reads(openat(AT_FDCWD, DEVICE "/node_type", O_RDONLY), "1: CA\n"));
    CHECK(reads(openat64(-1, DEVICE "/node_type", O_RDONLY), "1: CA\n"));
    CHECK(file_reads(fopen(CLASS "/xsock0/ports/1/state", "r"), "4: ACTIVE\n"));
    CHECK(file_reads(fopen64(CLASS "/xsock0/ports/1/state", "re"), "4: ACTIVE\n"));
    CHECK(file_reads(freopen(CLASS "/xsock0/ports/1/state", "r", fopen("/dev/null", "r")),
                     "4: ACTIVE\n"));
    FAILS(open(CLASS "/xsock0/nothing", O_RDONLY), ENOENT);
    FAILS(open(CLASS "/mlx5_0/node_type", O_RDONLY), ENOENT);
}

CASE(nothing_is_written) {
    FAILS(open(CLASS "/xsock0/node_type", O_WRONLY), EROFS);
    FAILS(open(CLASS "/xsock0/node_type", O_RDWR | O_TRUNC), EROFS);
    FAILS(open(CLASS "/new", O_RDONLY | O_CREAT, 0600), EROFS);
    FAILS(creat(CLASS "/new", 0600), EROFS);
    FAILS(access(CLASS "/xsock0/node_type", W_OK), EROFS);
    CHECK(access(CLASS "/xsock0/node_type", R_OK) == 0);
    errno = 0;
    CHECK(fopen(CLASS "/xsock0/node_type", "r+") == NULL && errno == EROFS);
}

/* UCX, Mooncake: a character device that may be read and written. */
CASE(device_nodes) {
    struct stat found;
    struct statx more;
    char text[PATH_MAX];
    CHECK(stat(NODE, &found) == 0 && S_ISCHR(found.st_mode));
    CHECK(lstat(NODE, &found) == 0 && S_ISCHR(found.st_mode));
    CHECK(fstatat(AT_FDCWD, NODE, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(found.st_mode));
    CHECK(statx(AT_FDCWD, NODE, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &more) == 0 &&
          S_ISCHR(more.stx_mode));
    CHECK(access(NODE, R_OK | W_OK) == 0);
    CHECK(faccessat(AT_FDCWD, NODE, R_OK | W_OK, 0) == 0);
    FAILS(open(NODE, O_RDWR), ENXIO);
    FAILS(open("/dev/infiniband/uverbs1", O_RDWR), ENOENT);
    FAILS(readlink(NODE, text, sizeof text), EINVAL);
    CHECK(realpath(NODE, text) == text && strcmp(text, NODE) == 0);
    CHECK(stat("/dev/infiniband", &found) == 0 && S_ISDIR(found.st_mode));
}

CASE(links_and_real_paths) {
    char text[PATH_MAX];
    ssize_t n = readlink(CLASS "/xsock0", text, sizeof text);
    CHECK(n > 0);
    text[n > 0 ? n : 0] = '\0';
    CHECK(strcmp(text, "../../devices/virtual/infiniband/xsock0") == 0);
    CHECK(realpath(CLASS "/xsock0", text) == text && strcmp(text, DEVICE) == 0);
    char* made = realpath(CLASS "/xsock0/device", NULL);
    CHECK(made != NULL && strcmp(made, DEVICE "/device") == 0);
    free(made);
    made = canonicalize_file_name(CLASS "/xsock0/ports/../ports/1");
    CHECK(made != NULL && strcmp(made, DEVICE "/ports/1") == 0);
    free(made);
    /* Mooncake's: a link, then up. */
    CHECK(realpath(CLASS "/xsock0/../..", text) == text &&
          strcmp(text, "/sys/devices/virtual") == 0);
    struct stat found;
    CHECK(lstat(CLASS "/xsock0", &found) == 0 && S_ISLNK(found.st_mode));
    CHECK(stat(CLASS "/xsock0", &found) == 0 && S_ISDIR(found.st_mode));
    CHECK(lgetxattr(CLASS "/xsock0", "security.selinux", text, sizeof text) == -1 &&
          errno != ENOENT);
}

CASE(relative_paths) {
    char text[PATH_MAX];
    CHECK(chdir(CLASS) == 0);
    CHECK(getcwd(text, sizeof text) != NULL && strcmp(text, CLASS) == 0);
    CHECK(reads(open("xsock0/node_type", O_RDONLY), "1: CA\n"));
    CHECK(reads(open("./xsock0//node_type", O_RDONLY), "1: CA\n"));
    CHECK(reads(open("../infiniband_verbs/uverbs0/ibdev", O_RDONLY), "xsock0\n"));
    CHECK(chdir("xsock0/ports") == 0);
    CHECK(getcwd(text, sizeof text) != NULL && strcmp(text, DEVICE "/ports") == 0);
    CHECK(reads(open("1/state", O_RDONLY), "4: ACTIVE\n"));
    CHECK(chdir("/sys/class") == 0);
    CHECK(reads(open("infiniband/xsock0/node_type", O_RDONLY), "1: CA\n"));
    CHECK(chdir("/") == 0);
    CHECK(reads(open("sys/class/infiniband/xsock0/node_type", O_RDONLY), "1: CA\n"));
    CHECK(chdir("/tmp") == 0);
    CHECK(reads(open("../sys/class/infiniband/xsock0/node_type", O_RDONLY), "1: CA\n"));
    CHECK(reads(open("/tmp/../sys/./class//infiniband/xsock0/node_type", O_RDONLY), "1: CA\n"));
    const int folder = open(CLASS "/xsock0", O_RDONLY | O_DIRECTORY);
    CHECK(reads(openat(folder, "node_type", O_RDONLY), "1: CA\n"));
    CHECK(reads(openat(folder, "../../infiniband_verbs/uverbs0/ibdev", O_RDONLY), "xsock0\n"));
    close(folder);
}

/* Dots and slashes at each place of the words that are looked through at once, up to the last byte
 * of a page; also where the system has no such folder, whose `..` counts as anywhere. */
CASE(dots_and_slashes_at_each_place) {
    static const char node[] = "/sys/class/infiniband/xsock0/node_type";
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char* const pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct stat found;
    CHECK(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    for (int n = 1; n < 40; ++n) {
        for (int behind = 0; behind < 17; ++behind) {
            char path[128];
            char* const up = pages + page - behind - n - 4 - sizeof node;
            snprintf(path, sizeof path, "/%.*s/..%s", n, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                     node);
            strcpy(up, path);
            CHECK(reads(open(up, O_RDONLY), "1: CA\n"));
            snprintf(path, sizeof path, "%.*s%s", n, "////////////////////////////////////////",
                     node);
            strcpy(up + 4, path);
            CHECK(reads(open(up + 4, O_RDONLY), "1: CA\n"));
            snprintf(path, sizeof path, "/%.*s/.hidden/..file", n,
                     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
            strcpy(pages + page - behind - strlen(path) - 1, path);
            FAILS(stat(pages + page - behind - strlen(path) - 1, &found), ENOENT);
        }
    }
    munmap(pages, 2 * page);
    CHECK(stat("/dev/shm/../infiniband/uverbs0", &found) == 0 && S_ISCHR(found.st_mode));
    CHECK(stat("//dev/infiniband/uverbs0", &found) == 0 && S_ISCHR(found.st_mode));
}

/* Only libc joins what a path is relative to with the path. */
CASE(a_short_path_below_a_long_one) {
    char top[] = "/tmp/xsock-files.XXXXXX", name[256], path[1500] = "";
    struct stat found;
    int depth = 0;
    memset(name, 'd', 255);
    name[255] = '\0';
    CHECK(mkdtemp(top) != NULL && chdir(top) == 0);
    for (; depth < 14; ++depth) CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0);
    for (int i = 0; i < 5; ++i) strcat(strcat(path, name), i == 2 ? "//" : "/");
    strcat(path, ".git/config");
    FAILS(stat(path, &found), ENOENT);
    for (; depth > 0; --depth) CHECK(chdir("..") == 0 && rmdir(name) == 0);
    CHECK(chdir("/") == 0 && rmdir(top) == 0);
}

/* Out of the tree, and what is only like it. */
CASE(other_paths_are_the_systems) {
    struct stat found, other;
    char text[PATH_MAX], longest[PATH_MAX + 16];
    CHECK(stat(CLASS "/../net", &found) == 0 && stat("/sys/class/net", &other) == 0 &&
          found.st_ino == other.st_ino);
    CHECK(chdir(CLASS) == 0 && stat("../net", &found) == 0 && found.st_ino == other.st_ino);
    CHECK(chdir("../net") == 0 && getcwd(text, sizeof text) != NULL &&
          strcmp(text, "/sys/class/net") == 0);
    CHECK(chdir("/") == 0);
    FAILS(stat("/sys/class/infinibandage", &found), ENOENT);
    CHECK(stat("/sys/class", &found) == 0 && stat("/dev/null", &found) == 0);
    CHECK(realpath("/sys/class", text) == text && strcmp(text, "/sys/class") == 0);
    FAILS(open("", O_RDONLY), ENOENT);
    memset(longest, 'x', sizeof longest);
    memcpy(longest, CLASS "/", sizeof CLASS);
    longest[sizeof longest - 1] = '\0';
    FAILS(open(longest, O_RDONLY), ENAMETOOLONG);
    longest[PATH_MAX - 1] = '\0';
    FAILS(open(longest, O_RDONLY), ENAMETOOLONG);
    const char* volatile none = NULL;
    FAILS(access(none, F_OK), EFAULT);
}

CASE(hidden_files) {
    struct stat found;
    FAILS(stat("/sys/module/nvidia_peermem", &found), ENOENT);
    FAILS(access("/sys/module/nvidia_peermem/version", F_OK), ENOENT);
    FAILS(access("/sys/kernel/mm/memory_peers/nv_mem/version", F_OK), ENOENT);
    FAILS(access("/sys/class/infiniband_mad/abi_version", F_OK), ENOENT);
    /* A kernel without these modules says ENOENT too; with O_CREAT it would say EACCES. */
    FAILS(open("/sys/module/nvidia_peermem", O_RDONLY | O_CREAT, 0600), ENOENT);
    FAILS(open("/sys/module/nv_peer_mem", O_RDONLY | O_CREAT, 0600), ENOENT);
    FAILS(open("/sys/kernel/mm/memory_peers", O_RDONLY | O_CREAT, 0600), ENOENT);
}

static int is_device(const struct dirent* entry) { return strcmp(entry->d_name, "xsock0") == 0; }

static int visited, wrong;
static int visit(const char* path, const struct stat* found, int flag, struct FTW* info) {
    (void)found, (void)flag;
    ++visited;
    if (strncmp(path, DEVICE, strlen(DEVICE)) != 0 || strchr(path + info->base, '/') != NULL)
        ++wrong;
    return 0;
}

CASE(folders_are_walked) {
    DIR* const folder = opendir(CLASS);
    int devices = 0;
    CHECK(folder != NULL);
    for (struct dirent* entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        devices += entry->d_name[0] != '.';
    }
    if (folder != NULL) closedir(folder);
    CHECK(devices == 1);
    struct dirent** list = NULL;
    CHECK(scandir(CLASS, &list, is_device, alphasort) == 1);
    free(list != NULL ? list[0] : NULL);
    free(list);
    glob_t found;
    memset(&found, 0, sizeof found);
    CHECK(glob(CLASS "/*/ports/1/st*", 0, NULL, &found) == 0 && found.gl_pathc == 1 &&
          strcmp(found.gl_pathv[0], CLASS "/xsock0/ports/1/state") == 0);
    globfree(&found);
    glob64_t found64;
    memset(&found64, 0, sizeof found64);
    found64.gl_offs = 2;
    CHECK(glob64("/dev/infiniband/uverbs?", GLOB_DOOFFS, NULL, &found64) == 0 &&
          found64.gl_pathc == 1 && found64.gl_pathv[0] == NULL &&
          strcmp(found64.gl_pathv[2], NODE) == 0);
    globfree64(&found64);
    CHECK(nftw(DEVICE, visit, 8, FTW_PHYS) == 0 && visited > 30 && wrong == 0);
}

/* Nothing is locked, so there is no limit to it. */
CASE(memory_may_be_locked) {
    struct rlimit limit = {0, 0}, real;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY);
    CHECK(prlimit(0, RLIMIT_MEMLOCK, NULL, &limit) == 0 && limit.rlim_max == RLIM_INFINITY);
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    real.rlim_cur = real.rlim_max = 4096;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &real) == 0);
    CHECK(prlimit(0, RLIMIT_MEMLOCK, &limit, NULL) == 0);
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != 0);
}

static void run(const struct test_case* one) {
    const int before = failures;
    case_name = one->name;
    one->run();
    if (failures == before) printf("ok     %s\n", case_name);
}
int main(int argc, char** argv) {
    const int status = for_cases(argc, argv, run);
    return failures != 0 ? 1 : status;
}
