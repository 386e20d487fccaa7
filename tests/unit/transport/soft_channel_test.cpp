// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A completion channel over items that are event counters instead of connections.
#include "transport/soft_channel.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "transport/descriptors.hpp"
#include "transport/progress.hpp"

namespace xsock {
namespace {

class Item final : public Pollable {
  public:
    explicit Item(std::shared_ptr<SoftChannel> first, std::shared_ptr<SoftChannel> second = nullptr)
        : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        set_channels({std::move(first), std::move(second)});
    }
    ~Item() override { close(fd); }

    void signal() const {
        const std::uint64_t one = 1;
        EXPECT_EQ(write(fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }
    void on_ready(std::uint32_t, PollCycle&) override {
        std::uint64_t count = 0;
        if (read(fd, &count, sizeof count) < 0) return;
        signals += count;
    }
    void on_notify(PollCycle&) override { ++notifies; }
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override {}

    const int fd;
    std::atomic<std::uint64_t> signals{0};
    std::atomic<int> notifies{0};
};

class SoftChannelTest : public ::testing::Test {
  protected:
    void SetUp() override {
        first = make_progress(ProgressMode::both);
        auto made = SoftChannel::create();
        ASSERT_TRUE(made);
        channel = std::move(*made);
    }
    std::unique_ptr<Progress> make_progress(ProgressMode mode) {
        TransportConfig config;
        config.progress = mode;
        auto made = Progress::create(epochs, config, 0);
        EXPECT_TRUE(made);
        return made ? std::move(*made) : nullptr;
    }
    static std::shared_ptr<Item> add(Progress& progress, std::shared_ptr<SoftChannel> channel,
                                     std::shared_ptr<SoftChannel> second = nullptr) {
        auto item = std::make_shared<Item>(std::move(channel), std::move(second));
        progress.locked([&](PollCycle&) { EXPECT_TRUE(progress.add(item, item->fd, EPOLLIN)); });
        return item;
    }
    static std::shared_ptr<Item> joined(Progress& progress, std::shared_ptr<SoftChannel> channel) {
        auto item = add(progress, std::move(channel));
        progress.locked([&](PollCycle&) { progress.join_channels(*item); });
        return item;
    }
    static bool readable(const SoftChannel& channel) {
        pollfd p{channel.fd(), POLLIN, 0};
        return poll(&p, 1, 0) == 1;
    }

    Epochs epochs;
    std::unique_ptr<Progress> first;
    std::shared_ptr<SoftChannel> channel;
};

TEST_F(SoftChannelTest, is_readable_with_its_members_and_serves_them_alone) {
    const auto member = joined(*first, channel);
    const auto other = add(*first, nullptr);
    EXPECT_FALSE(readable(*channel));
    other->signal();
    EXPECT_FALSE(readable(*channel));
    member->signal();
    EXPECT_TRUE(readable(*channel));
    channel->poll();
    EXPECT_EQ(member->signals, 1u);
    EXPECT_EQ(other->signals, 0u);
    EXPECT_FALSE(readable(*channel));
}

TEST_F(SoftChannelTest, an_item_is_no_member_before_it_has_joined) {
    const auto item = add(*first, channel);
    item->signal();
    EXPECT_FALSE(readable(*channel));
    first->locked([&](PollCycle&) { first->join_channels(*item); });
    EXPECT_TRUE(readable(*channel));
}

TEST_F(SoftChannelTest, follows_what_is_asked_of_a_member) {
    const auto member = joined(*first, channel);
    member->signal();
    first->locked([&](PollCycle&) { first->modify(*member, 0); });
    EXPECT_FALSE(readable(*channel));
    first->locked([&](PollCycle&) { first->modify(*member, EPOLLIN | EPOLLOUT); });
    EXPECT_TRUE(readable(*channel));
}

TEST_F(SoftChannelTest, a_removed_member_makes_nothing_readable) {
    const auto member = joined(*first, channel);
    member->signal();
    first->locked([&](PollCycle&) { first->remove(*member); });
    EXPECT_FALSE(readable(*channel));
    channel->poll();
    EXPECT_EQ(member->signals, 0u);
}

// Else a program that has polled its descriptor would be told that nothing has come.
TEST_F(SoftChannelTest, counts_an_arrival_where_it_is_readable_no_more) {
    const auto member = joined(*first, channel);
    member->signal();
    EXPECT_TRUE(readable(*channel));
    std::uint32_t before = channel->arrivals();
    first->locked([&](PollCycle&) { first->modify(*member, 0); });
    EXPECT_FALSE(readable(*channel));
    EXPECT_NE(channel->arrivals(), before);
    first->locked([&](PollCycle&) { first->modify(*member, EPOLLIN); });
    EXPECT_TRUE(readable(*channel));
    before = channel->arrivals();
    first->locked([&](PollCycle&) { first->modify(*member, EPOLLIN | EPOLLOUT); });
    EXPECT_EQ(channel->arrivals(), before) << "it tells of more";
    first->locked([&](PollCycle&) { first->remove(*member); });
    EXPECT_FALSE(readable(*channel));
    EXPECT_NE(channel->arrivals(), before);
}

TEST_F(SoftChannelTest, an_item_may_be_a_member_of_two_channels) {
    auto second = SoftChannel::create();
    ASSERT_TRUE(second);
    const auto item = add(*first, channel, *second);
    first->locked([&](PollCycle&) { first->join_channels(*item); });
    item->signal();
    EXPECT_TRUE(readable(*channel));
    EXPECT_TRUE(readable(**second));
    (*second)->poll();
    EXPECT_EQ(item->signals, 1u);
    EXPECT_FALSE(readable(*channel));
}

TEST_F(SoftChannelTest, serves_one_member_and_several_as_they_come_and_go) {
    auto one = joined(*first, channel);
    const auto check = [&](Item& item) {
        const std::uint64_t before = item.signals;
        item.signal();
        channel->poll();
        EXPECT_EQ(item.signals, before + 1);
    };
    check(*one);
    const auto two = joined(*first, channel);
    check(*one);
    check(*two);
    first->locked([&](PollCycle&) { first->remove(*one); });
    one.reset();
    check(*two);
    first->locked([&](PollCycle&) { first->remove(*two); });
    channel->poll();
    const auto three = joined(*first, channel);
    check(*three);
}

TEST_F(SoftChannelTest, poll_serves_what_was_posted) {
    const auto member = joined(*first, channel);
    first->notify_later(*member);
    channel->poll();
    EXPECT_EQ(member->notifies, 1);
}

TEST_F(SoftChannelTest, serves_members_of_several_progresses) {
    const auto second = make_progress(ProgressMode::both);
    const auto one = joined(*first, channel), two = joined(*second, channel);
    one->signal();
    two->signal();
    channel->poll();
    EXPECT_EQ(one->signals, 1u);
    EXPECT_EQ(two->signals, 1u);
}

TEST_F(SoftChannelTest, poll_waits_for_the_thread_that_serves_the_member) {
    const auto member = joined(*first, channel);
    member->signal();
    std::atomic<bool> inside{false};
    std::thread holder([&] {
        first->locked([&](PollCycle&) {
            inside = true;
            usleep(20'000);
        });
    });
    while (!inside) std::this_thread::yield();
    channel->poll();
    EXPECT_EQ(member->signals, 1u);
    holder.join();
}

TEST_F(SoftChannelTest, members_are_the_threads_where_only_threads_poll) {
    const auto progress = make_progress(ProgressMode::thread);
    const auto item = joined(*progress, channel);
    item->signal();
    EXPECT_FALSE(readable(*channel));
}

TEST_F(SoftChannelTest, owns_its_descriptor) { EXPECT_TRUE(is_internal_fd(channel->fd())); }

}  // namespace
}  // namespace xsock
