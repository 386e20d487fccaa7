// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/ready_list.hpp"

#include <gtest/gtest.h>

namespace xsock::readiness {
namespace {

using Entry = ReadyList::Entry;

TEST(ReadyList, lists_level_triggered_entries_again_behind_what_was_woken_meanwhile) {
    ReadyList list;
    Entry level({EPOLLIN, {}}), edge({EPOLLIN | EPOLLET, {}}), late({EPOLLIN, {}});
    list.push(level);
    list.push(edge);
    list.tell(*list.pop());
    list.tell(*list.pop());
    list.push(late);
    list.end_answer();
    EXPECT_EQ(list.pop(), &late);
    EXPECT_EQ(list.pop(), &level);
    EXPECT_TRUE(list.empty());
}

TEST(ReadyList, keeps_an_edge_triggered_entry_that_was_woken_while_it_was_told) {
    ReadyList list;
    Entry before({EPOLLIN | EPOLLET, {}}), after({EPOLLIN | EPOLLET, {}});
    list.push(before);
    list.push(after);
    Entry* const first = list.pop();
    list.push(*first);  // between being asked and being told
    list.tell(*first);
    list.tell(*list.pop());
    list.push(after);
    list.end_answer();
    EXPECT_EQ(list.pop(), &before);
    EXPECT_EQ(list.pop(), &after);
}

TEST(ReadyList, disables_a_one_shot_entry_that_was_told) {
    ReadyList list;
    Entry entry({EPOLLIN | EPOLLONESHOT, {}});
    list.push(entry);
    list.tell(*list.pop());
    list.end_answer();
    EXPECT_TRUE(entry.disabled());
    EXPECT_EQ(entry.wants(EPOLLIN | EPOLLERR), 0u);
    EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace xsock::readiness
