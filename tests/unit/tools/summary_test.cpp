// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/summary.hpp"

#include <gmock/gmock.h>

namespace xsock::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Summary, adds_processes_up) {
    Summary summary;
    summary.add(
        "xsock-summary 1 pid=1 ppid=0 end=exec sockets=3 connected=2 accepted=0 listening=1 "
        "asked=1 "
        "message=1 undecided=0 off=0 program=/bin/a b=c message=9\n"
        "xsock-summary 1 pid=2 ppid=1 end=exit sockets=1 accepted=4 asked=2 message=1 not-mpa=1 "
        "program=/bin/b\n");
    EXPECT_EQ(summary.processes, 2u);
    EXPECT_EQ(summary.made, 4u);
    EXPECT_EQ(summary.accepted, 4u);
    EXPECT_EQ(summary.verdicts["message"], 2u);
    EXPECT_THAT(summary.text(), AllOf(HasSubstr("8 TCP sockets in 2 processes"),
                                      HasSubstr("2 carried over iWARP (message mode)"),
                                      HasSubstr("1 passed through: not-mpa"),
                                      HasSubstr("5 passed through: did not ask for DDPMODE")));
}

TEST(Summary, counts_what_a_child_decided_once) {
    Summary summary;
    summary.add(
        "xsock-summary 1 pid=1 ppid=0 end=exit sockets=1 accepted=3 listening=1 asked=4 stream=1 "
        "undecided=3 program=/bin/a\n"
        "xsock-summary 1 pid=2 ppid=1 end=exit inherited=1 stream=1 program=/bin/a\n"
        "xsock-summary 1 pid=3 ppid=1 end=exit inherited=1 not-mpa=1 program=/bin/a\n");
    EXPECT_THAT(summary.text(), AllOf(HasSubstr(" 4 TCP sockets in 3 processes"),
                                      HasSubstr(" 2 carried over iWARP (stream mode)"),
                                      HasSubstr(" 1 passed through: not-mpa"),
                                      HasSubstr(" 1 passed through: ended before it was decided"),
                                      Not(HasSubstr("did not ask"))));
}

TEST(Summary, tells_what_places_and_why_not_the_kernel) {
    Summary summary;
    summary.add(
        "xsock-summary 1 pid=1 ppid=0 end=exit sockets=3 connected=3 asked=3 message=3 "
        "stack:kernel=2 stack:kernel-denied=1 unpinned:memlock=5 program=/bin/a\n"
        "xsock-summary 1 pid=2 ppid=0 end=exit sockets=1 asked=1 message=1 stack:kernel=1 "
        "program=/bin/b\n");
    EXPECT_EQ(summary.verdicts.size(), 1u);
    EXPECT_THAT(summary.text(),
                AllOf(HasSubstr(" 4 carried over iWARP (message mode)"),
                      HasSubstr(" 3 of these placed by the kernel module"),
                      HasSubstr(" 1 of these placed at user level: kernel-denied"),
                      HasSubstr(" 5 memory regions not pinned for the kernel module: more than")));
}

TEST(Summary, tells_that_there_is_no_kernel_module_only_where_it_was_named) {
    Summary summary;
    summary.add(
        "xsock-summary 1 pid=1 ppid=0 end=exit sockets=2 connected=2 asked=2 message=2 "
        "stack:kernel-absent=1 stack:shared-memory=1 program=/bin/a\n");
    EXPECT_THAT(summary.text(), Not(HasSubstr("placed")));
    summary.kernel_named = true;
    EXPECT_THAT(summary.text(),
                AllOf(HasSubstr(" 1 of these placed at user level: kernel-absent"),
                      HasSubstr(" 1 of these placed at user level: shared-memory")));
}

TEST(Summary, skips_what_is_not_of_the_form) {
    Summary summary;
    summary.add(
        "xsock-summary 2 sockets=1\nnonsense\n\nxsock-summary 1 sockets=x =3 accepted=\n"
        "xsock-summary 1 sockets=99999999999999999999999\nxsock-summary 1 sockets=5");
    EXPECT_EQ(summary.processes, 2u);  // the last line has no end: cut short
    EXPECT_EQ(summary.made, 0u);
    EXPECT_EQ(summary.accepted, 0u);
}

}  // namespace
}  // namespace xsock::tools
