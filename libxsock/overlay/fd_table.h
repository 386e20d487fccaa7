/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which descriptors of this process are DDPMODE sockets, or epoll sets that have one as a member.
 *
 * A flat array of pointers, indexed by descriptor, reserved when the first of them appears; until
 * then its length is 0, so that one comparison tells a process without any. A slot leads to a
 * handle, which all descriptors of one open file description share: it counts them and holds one
 * reference of the engine's object.
 *
 * Threads. A call on a descriptor holds a reference of the handle for as long as it lasts, as a
 * system call does of the file: close() in another thread takes effect when the call has returned.
 * Handles are recycled but their memory is never given back, so that a reference can be tried for
 * before the slot is read again.
 *
 * Closing. A number that is being closed must not be the plain TCP socket of a started stream for
 * any other thread, not even for a moment: its bytes would lie in the middle of the engine's FPDUs.
 * So an O_PATH file, which answers EBADF, replaces the socket under the number first; then the slot
 * is emptied, the number closed, and the handle put. At each point another thread's call meets the
 * engine or EBADF, also one that does not come through the wrappers; and the slot of a number is
 * empty before the kernel can give it out again.
 *
 * Processes. A forked child has a copy of the table, sees at its first use that it is one, and
 * counts its references anew. The child of vfork() has not a copy but the parent's own: what it
 * closes or duplicates changes only the kernel's table, never this one.
 */
#ifndef XSOCK_OVERLAY_FD_TABLE_H
#define XSOCK_OVERLAY_FD_TABLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct xsock_socket;

struct fd_handle {
    _Atomic uint32_t refs;     /* descriptors and calls under way; 0: free */
    struct xsock_socket* sock; /* one reference of the engine's object */
    struct fd_handle* next;    /* free list */
    ino_t inode;               /* of the socket; 0: an epoll set, or not known */
    uint32_t forks;            /* fork_count when it came */
    int counted;               /* enum summary_state */
    _Atomic int travelled;     /* another process may have got it by SCM_RIGHTS */
    _Atomic int plain;         /* turned out to be plain TCP */
};

struct fd_table {
    _Atomic uint32_t limit; /* descriptors below it may have a handle; 0: none ever had */
    _Atomic uint32_t top;   /* descriptors at or above it never had one */
    struct fd_handle* _Atomic* slots;
};
extern struct fd_table fd_table;

/* 0: the table is that of the process whose memory this one uses (vfork), and stays as it is. */
int fd_table_is_ours(void);
/* In a forked child: no other thread has a reference, or the lock. */
void fd_table_forked(void);

/* True when `fd` has a handle. */
static inline int fd_has_handle(int fd) {
    return __builtin_expect(
        (uint32_t)fd < atomic_load_explicit(&fd_table.limit, memory_order_acquire) &&
            atomic_load_explicit(&fd_table.slots[fd], memory_order_relaxed) != NULL,
        0);
}

/* The one question that every call asks. In sanitizer builds, which have the engine linked in, its
 * own calls of libc come through the wrappers, and are libc's whatever the descriptor. */
#ifdef XSOCK_ENGINE_LINKED
int overlay_inside(void);
static inline int fd_has(int fd) { return fd_has_handle(fd) && !overlay_inside(); }
#else
static inline int fd_has(int fd) { return fd_has_handle(fd); }
#endif

/* True once any descriptor had one. */
static inline int fd_any(void) {
    return __builtin_expect(atomic_load_explicit(&fd_table.limit, memory_order_acquire) != 0, 0);
}

/* The handle of `fd` with a reference for the caller, or NULL. */
struct fd_handle* fd_get(int fd);
/* Gives the reference back. The last one lets go of the engine's object; errno stays. In a signal
 * handler that interrupted the engine, that waits until the thread has left it. */
void fd_put(struct fd_handle* handle);
void fd_put_deferred(void);

/* Makes `fd` lead to `sock`; the caller's reference of it goes to the table.
 * @return 0; -1: EMFILE (descriptor beyond the table), ENOMEM; the reference is still yours */
int fd_install(int fd, struct xsock_socket* sock);
/* Makes `fd` lead to `handle` too. -1: EMFILE. */
int fd_share(int fd, struct fd_handle* handle);
/* Makes a plain `fd` share the handle of another number of the same socket, if there is one. 1: it
 * does now. */
int fd_join(int fd);
/* Takes the handle out of the slot. The caller puts it. NULL: there was none, or the slot is not
 * ours to change. */
struct fd_handle* fd_take(int fd);
/* Around the kernel's close() of `fd`, in this order; fd_begin_close() returns what fd_end_close()
 * needs, NULL if the slot was empty already. The end may wait (SO_LINGER).
 * @pre fd_table_is_ours() */
struct fd_handle* fd_begin_close(int fd);
void fd_end_close(struct fd_handle* handle);
/* The same for all from `first` to `last`. @pre fd_any() */
struct fd_handle* fd_begin_close_range(unsigned first, unsigned last);
void fd_end_close_range(struct fd_handle* handles);

/* Around the kernel's making of a copy, by dup() or the like: 1 when the copy is one of a number
 * between fd_begin_close() and the kernel's close(). `closings` is what fd_closings() said before:
 * no value that fits later, if a close was under way. */
uint32_t fd_closings(void);
int fd_closed_while_copied(int copy, uint32_t closings);
/* 1: `copy`, which was just made of `fd`, is a descriptor of the socket that `handle` stands for.
 */
int fd_is_of(int fd, int copy, const struct fd_handle* handle);
/* A number on which every call that moves bytes is EBADF. @pre fd_any() */
int fd_inactive(void);
/* `fd` is plain now, whatever it was. */
void fd_forget(int fd);
/* Every slot that leads to `handle`, that of `fd` first, is emptied: it turned out to be plain.
 * 0: `fd` does not lead there any more because it was closed, or replaced, meanwhile. */
int fd_forget_all_of(int fd, struct fd_handle* handle);
/* As fd_forget() for all from `first` to `last`. */
void fd_forget_range(unsigned first, unsigned last);

/* Whether another descriptor may have been made by dup() from what may be a plain TCP socket or an
 * epoll set: then one that turns to DDPMODE may have namesakes. */
extern _Atomic int fd_duplicated;
/* Makes these share the handle that `fd` has just got. */
void fd_install_duplicates(int fd);

#endif /* XSOCK_OVERLAY_FD_TABLE_H */
