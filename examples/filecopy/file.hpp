// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// filecopy: a file mapped into memory, where the network can get at it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

/// Throws errno in words if `good` (a pointer or a bool) is not; otherwise answers it.
template <class T>
T check(T good, const std::string& what) {
    if (!good) throw std::runtime_error(what + ": " + std::strerror(errno));
    return good;
}

struct FileError : std::runtime_error {  // costs the file, not the connection
    explicit FileError(const std::string& path) : runtime_error(path + ": " + strerror(errno)) {}
};

/// A file, mapped whole: one that exists, to read; or (new_size >= 0) a new one, to fill.
struct File {
    std::size_t size = 0;
    char* data = nullptr;
    explicit File(const std::string& path, long long new_size = -1) {
        const bool fresh = new_size >= 0;
        const int fd = open(path.c_str(), fresh ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0666);
        if (fd < 0) throw FileError(path);
        errno = new_size > 0 ? posix_fallocate(fd, 0, new_size) : 0;  // no room: no file
        if (errno == 0) size = static_cast<std::size_t>(lseek(fd, 0, SEEK_END));
        const int access = fresh ? PROT_READ | PROT_WRITE : PROT_READ;
        if (errno == 0 && size > 0)
            data = static_cast<char*>(mmap(nullptr, size, access, MAP_SHARED, fd, 0));
        const int error = errno;
        close(fd);  // the mapping stays
        errno = error;
        if (error != 0) throw FileError(path);
    }
    File(const File&) = delete;
    ~File() { size > 0 ? munmap(data, size) : 0; }
};
