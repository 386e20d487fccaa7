// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A Progress without a thread, which only the test polls.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "transport/progress.hpp"

namespace xsock::test {

class PolledProgressTest : public ::testing::Test {
  protected:
    void SetUp() override {
        progress = make_progress(0);
        ASSERT_TRUE(progress);
    }
    std::unique_ptr<Progress> make_progress(unsigned index, TransportConfig config = {}) {
        config.progress = ProgressMode::app;
        auto made = Progress::create(epochs, config, index);
        EXPECT_TRUE(made);
        return made ? std::move(*made) : nullptr;
    }

    Epochs epochs;
    std::unique_ptr<Progress> progress;
};

}  // namespace xsock::test
