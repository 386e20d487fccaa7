// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A limit of this process that a test lowers.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace xsock::test {

/// The soft limit of `resource` (RLIMIT_NOFILE, RLIMIT_AS ...) is `limit` while this exists.
class ResourceLimit {
  public:
    using Resource = decltype(RLIMIT_NOFILE);

    ResourceLimit(Resource resource, rlim_t limit) : resource_(resource) {
        EXPECT_EQ(getrlimit(resource_, &before_), 0);
        const rlimit lowered{limit, before_.rlim_max};
        EXPECT_EQ(setrlimit(resource_, &lowered), 0);
    }
    ~ResourceLimit() { EXPECT_EQ(setrlimit(resource_, &before_), 0); }
    ResourceLimit(const ResourceLimit&) = delete;
    ResourceLimit& operator=(const ResourceLimit&) = delete;

  private:
    const Resource resource_;
    rlimit before_{};
};

}  // namespace xsock::test
