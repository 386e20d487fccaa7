/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tests/system/faults/fault_points.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

const char* const phase_names[PHASE_COUNT] = {"off", "start", "traffic", "close"};

/* Names of libc that stand for several, or for one of several operations. */
#define GROUPS(X)                                                           \
    X(alloc, ENOMEM)                                                        \
    X(epoll_add, ENOMEM, ENOSPC)                                            \
    X(dup, EMFILE)                                                          \
    X(sys_send, EAGAIN, ENOBUFS, EINTR, ECONNRESET, EPIPE, ENOMEM)          \
    X(sys_recv, EAGAIN, EINTR, ECONNRESET, ETIMEDOUT, ENOMEM, EHOSTUNREACH) \
    X(sys_futex, EINTR)                                                     \
    X(sys_membarrier, ENOSYS, EPERM)

/* result, name, parameters, arguments, what failure returns, errnos */
#define CALLS(X)                                                                                   \
    X(int, socket, (int a, int b, int c), (a, b, c), -1, EMFILE, ENOBUFS)                          \
    X(int, connect, (int fd, const struct sockaddr* a, socklen_t n), (fd, a, n), -1, ECONNREFUSED, \
      EADDRNOTAVAIL)                                                                               \
    X(int, bind, (int fd, const struct sockaddr* a, socklen_t n), (fd, a, n), -1, EADDRINUSE)      \
    X(int, listen, (int fd, int n), (fd, n), -1, EADDRINUSE)                                       \
    X(int, accept4, (int fd, struct sockaddr* a, socklen_t* n, int f), (fd, a, n, f), -1, EMFILE,  \
      ENOMEM, ECONNABORTED, EINTR)                                                                 \
    X(int, getsockname, (int fd, struct sockaddr* a, socklen_t* n), (fd, a, n), -1, ENOBUFS)       \
    X(int, getpeername, (int fd, struct sockaddr* a, socklen_t* n), (fd, a, n), -1, ENOTCONN,      \
      ENOBUFS)                                                                                     \
    X(int, getsockopt, (int fd, int l, int o, void* v, socklen_t* n), (fd, l, o, v, n), -1,        \
      ENOPROTOOPT, ENOMEM)                                                                         \
    X(int, setsockopt, (int fd, int l, int o, const void* v, socklen_t n), (fd, l, o, v, n), -1,   \
      ENOPROTOOPT, ENOMEM)                                                                         \
    X(int, shutdown, (int fd, int how), (fd, how), -1, ENOTCONN)                                   \
    X(ssize_t, recv, (int fd, void* b, size_t n, int f), (fd, b, n, f), -1, EAGAIN, EINTR,         \
      ECONNRESET)                                                                                  \
    X(ssize_t, read, (int fd, void* b, size_t n), (fd, b, n), -1, EINTR, EAGAIN)                   \
    X(ssize_t, write, (int fd, const void* b, size_t n), (fd, b, n), -1, EINTR)                    \
    X(int, epoll_create1, (int f), (f), -1, EMFILE, ENOMEM)                                        \
    X(int, epoll_wait, (int fd, struct epoll_event* e, int n, int t), (fd, e, n, t), -1, EINTR)    \
    X(int, epoll_pwait, (int fd, struct epoll_event* e, int n, int t, const sigset_t* s),          \
      (fd, e, n, t, s), -1, EINTR)                                                                 \
    X(int, poll, (struct pollfd * p, nfds_t n, int t), (p, n, t), -1, EINTR, ENOMEM)               \
    X(int, ppoll, (struct pollfd * p, nfds_t n, const struct timespec* t, const sigset_t* s),      \
      (p, n, t, s), -1, EINTR, ENOMEM)                                                             \
    X(int, eventfd, (unsigned n, int f), (n, f), -1, EMFILE, ENOMEM)                               \
    X(int, timerfd_create, (int c, int f), (c, f), -1, EMFILE, ENOMEM)                             \
    X(int, signalfd, (int fd, const sigset_t* s, int f), (fd, s, f), -1, EMFILE, ENOMEM)           \
    X(void*, mmap, (void* a, size_t n, int p, int f, int fd, off_t o), (a, n, p, f, fd, o),        \
      MAP_FAILED, ENOMEM)                                                                          \
    X(int, madvise, (void* a, size_t n, int w), (a, n, w), -1, EINVAL, ENOMEM)                     \
    X(int, ftruncate, (int fd, off_t n), (fd, n), -1, ENOSPC)                                      \
    X(int, posix_fallocate, (int fd, off_t o, off_t n), (fd, o, n), error, ENOSPC, EINTR)          \
    X(int, flock, (int fd, int o), (fd, o), -1, ENOLCK, EINTR)                                     \
    X(int, mkdir, (const char* p, mode_t m), (p, m), -1, EACCES, ENOSPC)                           \
    X(FILE*, fopen, (const char* p, const char* m), (p, m), NULL, EMFILE)                          \
    X(DIR*, opendir, (const char* p), (p), NULL, EMFILE)                                           \
    X(DIR*, fdopendir, (int fd), (fd), NULL, ENOMEM)                                               \
    X(struct dirent*, readdir, (DIR * d), (d), NULL, EIO)                                          \
    X(int, stat, (const char* p, struct stat* s), (p, s), -1, ENOMEM)                              \
    X(int, fstat, (int fd, struct stat* s), (fd, s), -1, ENOMEM)                                   \
    X(int, pthread_create, (pthread_t * t, const pthread_attr_t* a, void* (*f)(void*), void* v),   \
      (t, a, f, v), error, EAGAIN)                                                                 \
    X(int, getaddrinfo,                                                                            \
      (const char* h, const char* s, const struct addrinfo* w, struct addrinfo** r), (h, s, w, r), \
      EAI_SYSTEM, EMFILE, ENOMEM)

/* Those with an argument that may be missing. */
#define VARIADIC(X)                                                                         \
    X(open, (const char* p, int f, ...), int, f, (p, f, (mode_t)extra), EMFILE)             \
    X(openat, (int d, const char* p, int f, ...), int, f, (d, p, f, (mode_t)extra), EMFILE) \
    X(ioctl, (int fd, unsigned long r, ...), unsigned long, r, (fd, r, extra), EINVAL)

enum name {
#define NAME_OF(name, ...) NAME_##name,
#define NAME_OF_CALL(result, name, ...) NAME_##name,
    GROUPS(NAME_OF) CALLS(NAME_OF_CALL) VARIADIC(NAME_OF) NAME_COUNT
};
_Static_assert((int)NAME_COUNT < (int)FAULT_NAMES_MAX, "room for the counts");

#define GROUP_ROW(name, ...) {#name, (const int[]){__VA_ARGS__, 0}},
#define CALL_ROW(result, name, parameters, arguments, failed, ...) \
    {#name, (const int[]){__VA_ARGS__, 0}},
#define VARIADIC_ROW(name, parameters, type, last, arguments, ...) \
    {#name, (const int[]){__VA_ARGS__, 0}},
static const struct {
    const char* name;
    const int* errors;
} rows[NAME_COUNT + 1] = {GROUPS(GROUP_ROW) CALLS(CALL_ROW) VARIADIC(VARIADIC_ROW)};

const char* fault_name(int name) { return rows[name].name; }
const int* fault_errors(int name) { return rows[name].errors; }

static atomic_int current_phase; /* of this process only: the other end's calls do not count */
static struct shared {
    atomic_int hit, tells;
    struct fault_point armed;
    atomic_int counts[PHASE_COUNT][FAULT_NAMES_MAX];
} * shared;

void fault_points_print_stack(void) {
    enum { FRAMES = 32 };
    void* frames[FRAMES];
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
}

/* The errno that this call fails with; 0: it is made. */
static int error_of(enum name name) {
    const int phase = atomic_load(&current_phase);
    int n;
    if (phase == PHASE_OFF) return 0;
    n = atomic_fetch_add(&shared->counts[phase][name], 1) + 1;
    if (shared->armed.phase != (enum fault_phase)phase || shared->armed.name != (int)name ||
        shared->armed.nth != n) {
        return 0;
    }
    atomic_store(&shared->hit, 1);
    if (shared->tells) fault_points_print_stack();
    return errno = shared->armed.error;
}

/* ---- what stands in place of libc's ---------------------------------------- */

static void* real[NAME_COUNT];

#define HOOK(result, name, parameters, arguments, failed, ...)     \
    static result hook_##name parameters {                         \
        const int error = error_of(NAME_##name);                   \
        if (error != 0) return failed;                             \
        return ((result(*) parameters)real[NAME_##name])arguments; \
    }
CALLS(HOOK)

#define VARIADIC_HOOK(name, parameters, type, last, arguments, ...) \
    static int hook_##name parameters {                             \
        va_list list;                                               \
        long extra;                                                 \
        va_start(list, last);                                       \
        extra = va_arg(list, long);                                 \
        va_end(list);                                               \
        if (error_of(NAME_##name) != 0) return -1;                  \
        return ((int(*) parameters)real[NAME_##name])arguments;     \
    }
VARIADIC(VARIADIC_HOOK)

static int (*real_epoll_ctl)(int, int, int, struct epoll_event*);
/* Only an addition needs memory, and not where the descriptor is there already. */
static int hook_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event* event) {
    const int result = real_epoll_ctl(epoll_fd, operation, fd, event);
    int error;
    if (operation != EPOLL_CTL_ADD || result != 0) return result;
    error = error_of(NAME_epoll_add);
    if (error == 0) return 0;
    real_epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    errno = error;
    return -1;
}

static int (*real_fcntl)(int, int, ...);
static int hook_fcntl(int fd, int command, ...) {
    va_list list;
    long extra;
    va_start(list, command);
    extra = va_arg(list, long);
    va_end(list);
    if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && error_of(NAME_dup) != 0) return -1;
    return real_fcntl(fd, command, extra);
}

static long (*real_syscall)(long, ...);
static long hook_syscall(long number, ...) {
    long a[6];
    va_list list;
    int i, name = -1;
    va_start(list, number);
    for (i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    switch (number) {
        case SYS_sendto:
        case SYS_sendmsg:
        case SYS_sendmmsg:
            name = NAME_sys_send;
            break;
        case SYS_recvfrom:
            name = NAME_sys_recv;
            break;
        case SYS_futex:
            name = NAME_sys_futex;
            break;
        case SYS_membarrier:
            name = NAME_sys_membarrier;
            break;
        default:
            break;
    }
    if (name >= 0 && error_of((enum name)name) != 0) return -1;
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void* (*real_malloc)(size_t);
static void* (*real_calloc)(size_t, size_t);
static void* (*real_realloc)(void*, size_t);
static void* (*real_aligned_alloc)(size_t, size_t);
static int (*real_posix_memalign)(void**, size_t, size_t);
#define ALLOCATE(call) return error_of(NAME_alloc) != 0 ? NULL : call
static void* hook_malloc(size_t n) { ALLOCATE(real_malloc(n)); }
static void* hook_calloc(size_t n, size_t each) { ALLOCATE(real_calloc(n, each)); }
static void* hook_realloc(void* p, size_t n) { ALLOCATE(real_realloc(p, n)); }
static void* hook_aligned_alloc(size_t a, size_t n) { ALLOCATE(real_aligned_alloc(a, n)); }
static int hook_posix_memalign(void** p, size_t a, size_t n) {
    return error_of(NAME_alloc) != 0 ? ENOMEM : real_posix_memalign(p, a, n);
}

/* Of a C++ runtime that is a library of its own, with sanitizers. Otherwise it is in the engine,
 * and calls malloc(). */
extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));
#define OPERATOR_NEW(name, parameters, arguments, failed) \
    static void*(*real##name)parameters;                  \
    static void* hook##name parameters {                  \
        if (error_of(NAME_alloc) != 0) {                  \
            failed;                                       \
            return NULL;                                  \
        }                                                 \
        return real##name arguments;                      \
    }
OPERATOR_NEW(_Znwm, (size_t n), (n), throw_bad_alloc())
OPERATOR_NEW(_Znam, (size_t n), (n), throw_bad_alloc())
OPERATOR_NEW(_ZnwmSt11align_val_t, (size_t n, size_t a), (n, a), throw_bad_alloc())
OPERATOR_NEW(_ZnwmRKSt9nothrow_t, (size_t n, void* t), (n, t), )
OPERATOR_NEW(_ZnamRKSt9nothrow_t, (size_t n, void* t), (n, t), )
OPERATOR_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t n, size_t a, void* t), (n, a, t), )

static void* (*real_dlopen)(const char*, int);
static void redirect_loaded(void);
static void* hook_dlopen(const char* path, int flags) {
    void* const handle = real_dlopen(path, flags);
    redirect_loaded();
    return handle;
}

#define HOOK_ROW(result, name, ...) {#name, (void*)hook_##name, &real[NAME_##name]},
#define VARIADIC_HOOK_ROW(name, ...) {#name, (void*)hook_##name, &real[NAME_##name]},
#define OTHER(name) \
    { #name, (void*)hook_##name, (void**)&real_##name }
#define NEW(name) \
    { #name, (void*)hook##name, (void**)&real##name }
static const struct hook {
    const char* name;
    void* hook;
    void** real;
} hooks[] = {
    CALLS(HOOK_ROW) VARIADIC(VARIADIC_HOOK_ROW) OTHER(epoll_ctl),
    OTHER(fcntl),
    OTHER(syscall),
    OTHER(malloc),
    OTHER(calloc),
    OTHER(realloc),
    OTHER(aligned_alloc),
    OTHER(posix_memalign),
    OTHER(dlopen),
    NEW(_Znwm),
    NEW(_Znam),
    NEW(_ZnwmSt11align_val_t),
    NEW(_ZnwmRKSt9nothrow_t),
    NEW(_ZnamRKSt9nothrow_t),
    NEW(_ZnwmSt11align_val_tRKSt9nothrow_t),
};

/* ---- the import tables ------------------------------------------------------ */

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT };
#endif

static void redirect_slot(void** slot, const char* file, const char* name) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t i;
    /* libuv aborts where its table of descriptors cannot grow, and forgets what it has opened where
     * the last of a loop's descriptors, which we count beforehand, cannot be made. */
    if (strncmp(file, "libuv.", 6) == 0 &&
        (strcmp(name, "realloc") == 0 || strcmp(name, "eventfd") == 0)) {
        return;
    }
    for (i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        if (strcmp(hooks[i].name, name) != 0 || *slot == hooks[i].hook) continue;
        /* Read-only after relocation. */
        mprotect((void*)((size_t)slot & ~(page - 1)), page, PROT_READ | PROT_WRITE);
        *hooks[i].real = *slot;
        *slot = hooks[i].hook;
    }
}

static int redirect_object(struct dl_phdr_info* info, size_t size, void* argument) {
    static const char* const ours[] = {"libxsock", "libuv.", "libibverbs.", "librdmacm."};
    const char* const slash = strrchr(info->dlpi_name, '/');
    const char* const file = slash != NULL ? slash + 1 : info->dlpi_name;
    const ElfW(Dyn)* dynamic = NULL;
    const ElfW(Sym)* symbols = NULL;
    const ElfW(Rela) * tables[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0}, i;
    const char* strings = NULL;
    int table, mine = 0;
    (void)size;
    (void)argument;
    for (i = 0; i < sizeof ours / sizeof *ours; i++) {
        mine |= strncmp(file, ours[i], strlen(ours[i])) == 0;
    }
    if (!mine) return 0;
    for (i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            dynamic = (const void*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        }
    }
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        switch (dynamic->d_tag) {
            case DT_SYMTAB:
                symbols = (const void*)dynamic->d_un.d_ptr;
                break;
            case DT_STRTAB:
                strings = (const void*)dynamic->d_un.d_ptr;
                break;
            case DT_RELA:
                tables[0] = (const void*)dynamic->d_un.d_ptr;
                break;
            case DT_RELASZ:
                sizes[0] = dynamic->d_un.d_val;
                break;
            case DT_JMPREL:
                tables[1] = (const void*)dynamic->d_un.d_ptr;
                break;
            case DT_PLTRELSZ:
                sizes[1] = dynamic->d_un.d_val;
                break;
            default:
                break;
        }
    }
    for (table = 0; table < 2; table++) {
        for (i = 0; i < sizes[table] / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela)* const r = &tables[table][i];
            const unsigned long type = ELF64_R_TYPE(r->r_info);
            if (type != JUMP_SLOT && type != GLOB_DAT) continue;
            redirect_slot((void**)(info->dlpi_addr + r->r_offset), file,
                          strings + symbols[ELF64_R_SYM(r->r_info)].st_name);
        }
    }
    return 0;
}

static void redirect_loaded(void) { dl_iterate_phdr(redirect_object, NULL); }

/* ---- for the test ------------------------------------------------------------- */

void fault_points_open(void) {
    void* frames[1];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) abort();
    backtrace(frames, 1); /* its first call allocates */
    redirect_loaded();
}

void fault_points_arm(const struct fault_point* point, int tells) {
    memset(shared, 0, sizeof *shared);
    shared->tells = tells;
    if (point != NULL) shared->armed = *point;
}

void fault_points_phase(enum fault_phase phase) { atomic_store(&current_phase, (int)phase); }
int fault_points_count(enum fault_phase phase, int name) { return shared->counts[phase][name]; }
int fault_points_hit(void) { return shared->hit; }
