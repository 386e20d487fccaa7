// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock_ep_attr.kernel and XSOCK_KERNEL where there is no kernel module: the nearest holds, an
// endpoint says why it is at user level, and one that requires the module is none.
#include <unistd.h>

#include <cerrno>

#include "include/xsock/ddp_uapi.h"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/pair.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"

namespace xsock::test {
namespace {

class KernelChoice : public OneQueue {
  protected:
    void SetUp() override {
        OneQueue::SetUp();
        if (access(DDP_DEVICE, F_OK) == 0) GTEST_SKIP() << "there is a module";
    }
};

PairOptions kernel(unsigned client, unsigned server) {
    return {.adjust = [=](xsock_ep_attr& c, xsock_ep_attr& s) {
        c.kernel = client;
        s.kernel = server;
    }};
}

TEST_F(KernelChoice, each_end_says_what_places_and_why_not_the_module) {
    const Pair pair(kernel(XSOCK_KERNEL_AUTO, XSOCK_KERNEL_OFF));
    const xsock_ep_info c = query(pair.client), s = query(pair.server);
    EXPECT_EQ(c.placing.stack, XSOCK_STACK_USER);
    EXPECT_EQ(s.placing.stack, XSOCK_STACK_USER);
    EXPECT_STREQ(c.placing.reason, "kernel-absent");
    EXPECT_STREQ(s.placing.reason, "off");
    EXPECT_EQ(c.placing.early_bytes, 0u);
}

TEST_F(KernelChoice, of_the_endpoint_goes_before_the_environment) {
    with_environment("XSOCK_KERNEL", "auto", [] {
        const Pair pair(kernel(XSOCK_KERNEL_DEFAULT, XSOCK_KERNEL_OFF));
        EXPECT_STREQ(query(pair.client).placing.reason, "kernel-absent");
        EXPECT_STREQ(query(pair.server).placing.reason, "off");
    });
    with_environment("XSOCK_KERNEL", "require", [] {
        const Pair pair(kernel(XSOCK_KERNEL_AUTO, XSOCK_KERNEL_OFF));
        EXPECT_STREQ(query(pair.client).placing.reason, "kernel-absent");
    });
}

TEST_F(KernelChoice, what_requires_it_is_an_error_of_the_call) {
    int near = -1, far = -1;
    tcp_pair(near, far);
    attr.kernel = XSOCK_KERNEL_REQUIRE;
    EXPECT_EQ(xsock_ep_create(near, &attr), nullptr);
    EXPECT_EQ(errno, ENOENT);
    attr.kernel = XSOCK_KERNEL_REQUIRE + 1;
    EXPECT_EQ(xsock_ep_create(near, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    for (const int fd : {near, far}) EXPECT_EQ(close(fd), 0) << "is the caller's still";
}

}  // namespace
}  // namespace xsock::test
