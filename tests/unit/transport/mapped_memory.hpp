// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory of a link, made and mapped as a process that offers it does.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "transport/descriptors.hpp"
#include "transport/shm_memory.hpp"

namespace xsock::test {

class MappedMemoryTest : public ::testing::Test {
  protected:
    explicit MappedMemoryTest(const shm::Layout& used) : layout(used) {}
    void SetUp() override {
        auto made = make_shm_memfd(layout);
        ASSERT_TRUE(made);
        fd = *made;
        auto mapped = ShmMemory::map(fd, layout);
        ASSERT_TRUE(mapped);
        memory.emplace(std::move(*mapped));
        bytes = memory->bytes();
    }
    void TearDown() override { close_internal_fd(fd); }

    const shm::Layout layout;
    int fd = -1;
    std::optional<ShmMemory> memory;
    Bytes bytes;
};

}  // namespace xsock::test
