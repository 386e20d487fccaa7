// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions of xsock.h and verbs, asked through the engine's table, are clients of one device.
#include "libxsock/engine/runtime.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "libxsock/engine/engine_table.h"
#include "verbs/table.h"

namespace xsock {
namespace {

class Runtime : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_NE(engine.verbs, nullptr);
        ASSERT_NE(devices, nullptr);
        context = engine.verbs->ibv_open_device(devices[0]);
        ASSERT_NE(context, nullptr);
    }
    void TearDown() override {
        engine.verbs->ibv_close_device(context);
        engine.verbs->ibv_free_device_list(devices);
    }
    const xsock_engine& engine = *xsock_engine_table();
    ibv_device** const devices = engine.verbs->ibv_get_device_list(nullptr);
    ibv_context* context = nullptr;
    std::array<char, 4096> memory{};
};

TEST_F(Runtime, regions_of_both_apis_are_in_one_memory_table) {
    xsock_pd* const pd = engine.pd_create();
    ibv_pd* const verbs_pd = engine.verbs->ibv_alloc_pd(context);
    ASSERT_NE(pd, nullptr);
    ASSERT_NE(verbs_pd, nullptr);
    xsock_mr* const mr =
        engine.mr_register(pd, memory.data(), memory.size(), XSOCK_REMOTE_READ, nullptr);
    ibv_mr* const verbs_mr =
        engine.verbs->ibv_reg_mr(verbs_pd, memory.data(), memory.size(), IBV_ACCESS_REMOTE_READ);
    ASSERT_NE(mr, nullptr);
    ASSERT_NE(verbs_mr, nullptr);
    EXPECT_NE(engine.mr_stag(mr), verbs_mr->rkey);

    Device* const device = runtime::device();
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device, runtime::device(runtime::Threads::needed));
    // Each STag is one that this device knows, once.
    EXPECT_TRUE(device->deregister_memory(engine.mr_stag(mr)));
    EXPECT_TRUE(device->deregister_memory(verbs_mr->rkey));
    EXPECT_FALSE(device->deregister_memory(engine.mr_stag(mr)));
    EXPECT_FALSE(device->deregister_memory(verbs_mr->rkey));

    engine.mr_deregister(mr);
    engine.pd_destroy(pd);
    engine.verbs->ibv_dereg_mr(verbs_mr);
    engine.verbs->ibv_dealloc_pd(verbs_pd);
}

TEST_F(Runtime, a_forked_child_makes_its_own) {
    Device* const parents = runtime::device();
    ASSERT_NE(parents, nullptr);
    const pid_t child = fork();
    if (child == 0) {
        Device* const own = runtime::device();
        _exit(own != nullptr && own != parents && own == runtime::device() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(runtime::device(), parents);
}

// In the order in which they were given.
TEST(RuntimeExit, calls_its_handlers) {
    const pid_t child = fork();
    if (child == 0) {
        static int called = 0;
        runtime::call_at_exit([] { ++called; });
        if (runtime::device() == nullptr) _exit(2);
        runtime::call_at_exit([] { _exit(called == 1 ? 7 : 3); });
        std::exit(4);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace xsock
