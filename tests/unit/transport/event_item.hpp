// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A Pollable that a test makes readable: an event counter in the place of a connection.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "transport/pollable.hpp"

namespace xsock::test {

class EventItem : public Pollable {
  public:
    EventItem() : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
    ~EventItem() override { ::close(fd); }

    void make_readable() const {
        const std::uint64_t one = 1;
        EXPECT_EQ(write(fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }
    /// How often it was made readable since the last call; 0: it is not.
    [[nodiscard]] std::uint64_t take() const {
        std::uint64_t count = 0;
        return read(fd, &count, sizeof count) < 0 ? 0 : count;
    }

    const int fd;
};

}  // namespace xsock::test
