// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// kv: the hash table as it lies in the server's memory, where clients read it. Open addressing with
// linear probing over fixed slots. Each slot has a version and a checksum: a client that reads one
// while it is being changed sees that the checksum does not fit, and reads again.
#pragma once

#include <xsock/xsock.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>

struct Slot {
    std::uint64_t checksum;  // of all that follows
    std::uint64_t version;   // counts changes; 0: never used, ends a search
    char key[16];
    char value[32];
};
static_assert(sizeof(Slot) == 64);

/// What a client is told when it connects, as private data of the Reply.
struct Geometry {
    std::uint64_t magic;  // also tells a peer of another byte order or layout
    std::uint64_t slots;  // a power of two
    std::uint64_t keys;   // "key 0" to "key N-1" are there
    xsock_key table;
};
constexpr std::uint64_t kMagic = 0x786b'7631'0000'0001;

inline std::uint64_t hash(const void* bytes, std::size_t n) {  // FNV-1a
    std::uint64_t h = 0xcbf29ce484222325;
    for (std::size_t i = 0; i < n; ++i)
        h = (h ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3;
    return h;
}

/// First slot to look in; then the next, cyclically.
inline std::uint64_t home(const char (&key)[16], std::uint64_t slots) {
    return hash(key, strnlen(key, sizeof(key))) & (slots - 1);
}

inline std::uint64_t checksum(const Slot& slot) {
    return slot.version == 0 ? 0 : hash(&slot.version, sizeof(Slot) - sizeof(slot.checksum));
}

inline void name_key(char (&key)[16], std::uint64_t number) {
    std::snprintf(key, sizeof(key), "key %llu", static_cast<unsigned long long>(number));
}

inline double seconds(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Throws errno in words if `good` (a pointer or a bool) is not; otherwise answers it.
template <class T>
T check(T good, const char* what) {
    if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    return good;
}

void serve(const char* port, std::uint64_t keys, unsigned update_ms);
void look_up(const char* host, const char* port, std::uint64_t lookups, std::size_t under_way);
