// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/pending_list.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace xsock {
namespace {

class Item final : public Pollable {
  public:
    explicit Item(int number_) : number(number_) {}
    void on_ready(std::uint32_t, PollCycle&) override {}
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override {}
    const int number;
};

std::vector<int> served(PendingList& list) {
    std::vector<int> numbers;
    list.serve([&](Pollable& item) { numbers.push_back(dynamic_cast<const Item&>(item).number); });
    return numbers;
}

TEST(PendingList, serves_each_item_once_in_the_order_of_the_notifications) {
    PendingList list;
    const std::vector items{std::make_shared<Item>(0), std::make_shared<Item>(1),
                            std::make_shared<Item>(2)};
    EXPECT_TRUE(list.add(*items[2]));
    EXPECT_TRUE(list.add(*items[0]));
    EXPECT_FALSE(list.add(*items[2]));
    EXPECT_TRUE(list.add(*items[1]));
    EXPECT_TRUE(list.any(std::memory_order_seq_cst));

    EXPECT_EQ(served(list), (std::vector{2, 0, 1}));
    EXPECT_FALSE(list.any(std::memory_order_seq_cst));
    EXPECT_EQ(served(list), std::vector<int>{});
}

TEST(PendingList, leaves_what_is_added_meanwhile_to_the_next_time) {
    PendingList list;
    const std::vector items{std::make_shared<Item>(0), std::make_shared<Item>(1)};
    list.add(*items[0]);
    list.add(*items[1]);
    std::vector<int> numbers;
    list.serve([&](Pollable& item) {
        numbers.push_back(dynamic_cast<const Item&>(item).number);
        EXPECT_EQ(list.add(*items[0]), &item == items[0].get());  // else it is in the list again
        EXPECT_EQ(list.add(*items[1]), &item == items[1].get());  // else its turn is to come
    });
    EXPECT_EQ(numbers, (std::vector{0, 1}));
    EXPECT_EQ(served(list), (std::vector{0, 1}));
}

TEST(PendingList, keeps_its_items_alive_until_they_were_served) {
    PendingList list;
    auto first = std::make_shared<Item>(0);
    auto second = std::make_shared<Item>(1);
    const std::weak_ptr<Item> seen_first = first, seen_second = second;
    list.add(*first);
    list.add(*second);
    first.reset();
    second.reset();
    EXPECT_FALSE(seen_first.expired());
    EXPECT_FALSE(seen_second.expired());

    EXPECT_EQ(served(list), (std::vector{0, 1}));
    EXPECT_TRUE(seen_first.expired());
    EXPECT_TRUE(seen_second.expired());
}

TEST(PendingList, ends_with_a_hundred_thousand_items) {
    std::weak_ptr<Item> last;
    {
        PendingList list;
        for (int i = 0; i < 100'000; ++i) {
            const auto item = std::make_shared<Item>(i);
            list.add(*item);
            last = item;
        }
        EXPECT_FALSE(last.expired());
    }
    EXPECT_TRUE(last.expired());
}

TEST(PendingList, loses_no_notification_of_four_threads) {
    constexpr int kThreads = 4, kRounds = 20'000;
    PendingList list;
    std::vector<std::shared_ptr<Item>> items;
    std::array<std::atomic<int>, kThreads> posted{}, seen{};
    for (int i = 0; i < kThreads; ++i) items.push_back(std::make_shared<Item>(i));
    std::atomic<int> running{kThreads};
    std::vector<std::thread> posters;
    for (int t = 0; t < kThreads; ++t) {
        posters.emplace_back([&, t] {
            for (int i = 0; i < kRounds; ++i) {
                const auto item = static_cast<std::size_t>((t + i) % kThreads);
                posted[item].fetch_add(1);
                list.add(*items[item]);
            }
            running.fetch_sub(1);
        });
    }
    for (bool more = true; more;) {
        more = running.load() != 0;
        list.serve([&](Pollable& item) {
            const auto number = static_cast<std::size_t>(dynamic_cast<const Item&>(item).number);
            seen[number].store(posted[number].load());
        });
    }
    for (auto& poster : posters) poster.join();
    for (std::size_t i = 0; i < kThreads; ++i) EXPECT_EQ(seen[i].load(), posted[i].load());
}

}  // namespace
}  // namespace xsock
