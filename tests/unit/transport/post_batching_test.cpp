// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When posts go: at once, or with the next poll.
#include "transport/post_batching.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "base/completion_queue.hpp"
#include "tests/unit/transport/polled_progress.hpp"
#include "transport/progress.hpp"

namespace xsock {
namespace {

/// Sends all that was posted whenever it is offered, as a connection does.
class Sender final : public Pollable {
  public:
    explicit Sender(Progress& progress) : batching(*this, progress, sends, receives) {}

    void post() {
        ++posted;
        batching.posted(/*length=*/8, /*more=*/false);
    }
    void on_ready(std::uint32_t, PollCycle&) override {}
    void on_notify(PollCycle&) override { sent = posted; }
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override {}

    CompletionQueue sends{8}, receives{8};
    PostBatching batching;
    int posted = 0, sent = 0;
};

class PostBatchingTest : public test::PolledProgressTest {
  protected:
    void SetUp() override {
        PolledProgressTest::SetUp();
        sender = std::make_shared<Sender>(*progress);
        progress->locked([&](PollCycle&) { ASSERT_TRUE(progress->add(sender)); });
        progress->poll();
    }
    /// Posts twice between two polls. @return how many were sent before the second
    int sent_of_two() {
        const int before = sender->sent;
        sender->post();
        sender->post();
        const int sent = sender->sent - before;
        progress->poll();
        EXPECT_EQ(sender->sent, sender->posted);
        return sent;
    }

    std::shared_ptr<Sender> sender;
};

TEST_F(PostBatchingTest, the_first_of_an_interval_goes_at_once_and_the_next_with_a_poll) {
    EXPECT_EQ(sent_of_two(), 1);
}

TEST_F(PostBatchingTest, behind_several_in_a_row_the_first_waits_too) {
    sent_of_two();
    EXPECT_EQ(sent_of_two(), 0);
}

TEST_F(PostBatchingTest, with_an_armed_queue_all_go_at_once) {
    sent_of_two();
    sender->receives.arm(false);
    EXPECT_EQ(sent_of_two(), 2);
    sender->receives.disarm();
    EXPECT_EQ(sent_of_two(), 0);
}

// UCX arms the queue that it polls.
TEST_F(PostBatchingTest, with_an_armed_queue_that_is_polled_on_and_on_they_wait_again) {
    sent_of_two();
    sender->receives.arm(false);
    for (int i = 0; i < 10'000; ++i) sender->receives.note_empty_poll();
    EXPECT_EQ(sent_of_two(), 0);
    sender->receives.arm(false);
    EXPECT_EQ(sent_of_two(), 2);
}

}  // namespace
}  // namespace xsock
