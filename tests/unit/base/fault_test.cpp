// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/fault.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/crc32c.hpp"
#include "tests/unit/sanitizers.hpp"

namespace xsock {
namespace {

using fault::guard;
using fault::Touch;

const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

class Pages {
  public:
    Pages(std::size_t count, int protection) : bytes_(count * kPage) {
        at_ = mmap(nullptr, bytes_, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(at_, MAP_FAILED);
    }
    ~Pages() { munmap(at_, bytes_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(at_); }
    [[nodiscard]] std::byte* page(std::size_t i) const { return data() + i * kPage; }
    void protect(std::size_t first, std::size_t count, int protection) const {
        EXPECT_EQ(mprotect(page(first), count * kPage, protection), 0);
    }

  private:
    void* at_ = nullptr;
    std::size_t bytes_;
};

void write_at(std::byte* p) { *reinterpret_cast<volatile std::byte*>(p) = std::byte{1}; }
volatile std::byte last_read;  // valgrind leaves out a load whose value goes nowhere
void read_at(const std::byte* p) { last_read = *reinterpret_cast<const volatile std::byte*>(p); }

void guarded_write(std::byte* p, bool expected) {
    const bool done = guard([p] {
        const Touch touch(1, p, 1);
        write_at(p);
    });
    EXPECT_EQ(done, expected);
}

class Fault : public testing::Test {
  protected:
    void SetUp() override { fault::install(); }
};

TEST_F(Fault, body_without_fault_succeeds) {
    int calls = 0;
    EXPECT_TRUE(guard([&] { ++calls; }));
    EXPECT_EQ(calls, 1);
}

TEST_F(Fault, write_to_unmapped_page_ends_the_call) {
    std::byte* gone;
    {
        const Pages pages(1, PROT_READ | PROT_WRITE);
        gone = pages.data();
    }
    bool went_on = false;
    EXPECT_FALSE(guard([&] {
        const Touch touch(1, gone, kPage);
        write_at(gone + 100);
        went_on = true;
    }));
    EXPECT_FALSE(went_on);
}

TEST_F(Fault, read_from_inaccessible_page_ends_the_call) {
    const Pages pages(1, PROT_NONE);
    EXPECT_FALSE(guard([&] {
        const Touch touch(0, pages.data(), kPage);
        read_at(pages.data() + kPage - 1);
    }));
}

TEST_F(Fault, read_only_page_may_be_read_not_written) {
    const Pages pages(1, PROT_READ);
    EXPECT_TRUE(guard([&] {
        const Touch touch(0, pages.data(), kPage);
        read_at(pages.data());
    }));
    guarded_write(pages.data(), false);
    pages.protect(0, 1, PROT_READ | PROT_WRITE);
    guarded_write(pages.data(), true);
}

TEST_F(Fault, file_truncated_under_its_mapping_ends_the_call) {
    const int fd = memfd_create("fault_test", 0);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kPage)), 0);
    void* const at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED);
    auto* const bytes = static_cast<std::byte*>(at);
    guarded_write(bytes, true);
    ASSERT_EQ(ftruncate(fd, 0), 0);

    guarded_write(bytes, false);
    EXPECT_FALSE(guard([&] {
        const Touch touch(0, bytes, kPage);
        read_at(bytes + 8);
    }));

    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kPage)), 0);
    guarded_write(bytes, true);
    munmap(at, kPage);
    close(fd);
}

TEST_F(Fault, copies_of_every_crc32c_method_can_be_abandoned) {
    const Pages good(4, PROT_READ | PROT_WRITE), bad(4, PROT_READ | PROT_WRITE);
    bad.protect(2, 2, PROT_NONE);
    const std::size_t n = 4 * kPage - 3;
    for (const auto& method : crc32c_detail::usable_methods()) {
        const auto copy = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
            return guard([&] {
                const Touch source(0, from, bytes);
                const Touch target(1, to, bytes);
                (void)method.copy(kCrc32cInit, to, from, bytes);
            });
        };
        EXPECT_FALSE(copy(bad.data() + 1, good.data(), n)) << method.name;
        EXPECT_FALSE(copy(good.data() + 1, bad.data(), n)) << method.name;
        EXPECT_FALSE(copy(bad.page(2) - 5, good.data(), 40)) << method.name;
        EXPECT_TRUE(copy(bad.data(), good.data(), 2 * kPage)) << method.name;
        EXPECT_FALSE(guard([&] {
            const Touch touch(0, bad.data(), n);
            (void)method.crc(kCrc32cInit, bad.data(), n);
        })) << method.name;
    }
}

TEST_F(Fault, ranges_are_forgotten_after_a_fault) {
    const Pages pages(1, PROT_NONE);
    guarded_write(pages.data(), false);
    for (const auto& range : fault::touched_ranges) {
        EXPECT_EQ(range.low, 0u);
        EXPECT_EQ(range.high, 0u);
    }
}

TEST_F(Fault, inner_guard_fails_alone) {
    const Pages pages(2, PROT_NONE);
    bool outer_went_on = false;
    const bool outer = guard([&] {
        const Touch touch(0, pages.page(1), 1);
        guarded_write(pages.page(0), false);
        outer_went_on = true;
        read_at(pages.page(1));  // its own range is known again
        ADD_FAILURE() << "not reached";
    });
    EXPECT_TRUE(outer_went_on);
    EXPECT_FALSE(outer);
}

TEST_F(Fault, inner_success_leaves_the_outer_guard) {
    const Pages pages(1, PROT_NONE);
    EXPECT_FALSE(guard([&] {
        const Touch touch(1, pages.data(), 1);
        EXPECT_TRUE(guard([] {}));
        write_at(pages.data());
    }));
}

TEST_F(Fault, other_threads_are_not_disturbed) {
    const Pages pages(1, PROT_NONE);
    std::atomic<bool> stop{false}, inside{false};
    bool calm_succeeded = false;
    std::thread calm([&] {
        calm_succeeded = guard([&] {
            std::byte byte{};
            const Touch touch(1, &byte, 1);
            inside = true;
            while (!stop) write_at(&byte);
        });
    });
    while (!inside) std::this_thread::yield();
    for (int i = 0; i < 200; ++i) guarded_write(pages.data(), false);
    std::thread faulting([&] { guarded_write(pages.data(), false); });
    faulting.join();
    stop = true;
    calm.join();
    EXPECT_TRUE(calm_succeeded);
}

TEST_F(Fault, signal_mask_and_errno_survive) {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigset_t before;
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &mask, &before), 0);
    const Pages pages(1, PROT_NONE);
    errno = EXDEV;
    for (int i = 0; i < 3; ++i) guarded_write(pages.data(), false);
#ifndef XSOCK_TEST_TSAN  // its handler, from which we jump, leaves its own mark in errno
    EXPECT_EQ(errno, EXDEV);
#endif

    sigset_t after;
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
    EXPECT_TRUE(sigismember(&after, SIGUSR2));
    EXPECT_FALSE(sigismember(&after, SIGSEGV));
    EXPECT_FALSE(sigismember(&after, SIGBUS));
}

TEST_F(Fault, the_alternate_stack_is_used_and_free_again_after_a_fault) {
    std::vector<std::byte> memory(256 * 1024);
    stack_t alternate = {};
    alternate.ss_sp = memory.data();
    alternate.ss_size = memory.size();
    stack_t before;
    ASSERT_EQ(sigaltstack(&alternate, &before), 0);
    const Pages pages(1, PROT_NONE);
    const auto lowest = [&] {  // byte that was written
        return std::find_if(memory.begin(), memory.end(),
                            [](std::byte b) { return b != std::byte{0}; }) -
               memory.begin();
    };
    guarded_write(pages.data(), false);
    const auto once = lowest();
    EXPECT_LT(once, std::ssize(memory)) << "the handler ran elsewhere";
    for (int i = 0; i < 50; ++i) guarded_write(pages.data(), false);
    EXPECT_GT(lowest(), once - 4096) << "each fault lies below the one before";
    ASSERT_EQ(sigaltstack(&before, nullptr), 0);
}

TEST_F(Fault, a_million_guarded_calls) {
    std::byte byte{};
    std::size_t succeeded = 0;
    for (int i = 0; i < 1'000'000; ++i) {
        succeeded += guard([&] {
            const Touch touch(1, &byte, 1);
            write_at(&byte);
        });
    }
    EXPECT_EQ(succeeded, 1'000'000u);
}

#if defined(__x86_64__) && !defined(XSOCK_TEST_TSAN) && !defined(XSOCK_TEST_ASAN)
// Sanitizers would look up the shadow of this address first.
TEST_F(Fault, address_that_no_process_can_have_ends_the_call) {
    guarded_write(reinterpret_cast<std::byte*>(std::uintptr_t{0x8000'0000'0000'0000u}), false);
}
#endif

// What follows needs a process in which install() was not yet called: a death test that is
// executed afresh.
class FaultChain : public testing::Test {
  protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void set_action(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = flags | SA_SIGINFO;
    sigaddset(&action.sa_mask, SIGUSR1);
    if (sigaction(signal, &action, nullptr) != 0) _exit(99);
}

std::byte* expected_address;

void exit_7_at_expected_address(int signal, siginfo_t* info, void* context) {
    const bool right = signal == SIGSEGV && info->si_addr == expected_address && context != nullptr;
    _exit(right ? 7 : 98);
}

void fault_outside_of_ranges() {
    const Pages pages(2, PROT_NONE);
    expected_address = pages.page(1);
    (void)guard([&] {
        const Touch touch(1, pages.page(0), kPage);
        write_at(pages.page(1));
    });
}

TEST_F(FaultChain, fault_outside_of_ranges_goes_to_the_handler_before) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, exit_7_at_expected_address, 0);
            fault::install();
            fault_outside_of_ranges();
        },
        testing::ExitedWithCode(7), "");
}

TEST_F(FaultChain, named_range_without_guard_goes_to_the_handler_before) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, exit_7_at_expected_address, 0);
            fault::install();
            const Pages pages(1, PROT_NONE);
            expected_address = pages.data();
            const Touch touch(1, pages.data(), kPage);
            write_at(pages.data());
        },
        testing::ExitedWithCode(7), "");
}

TEST_F(FaultChain, plain_handler_before_gets_the_signal) {
    EXPECT_EXIT(
        {
            signal(SIGSEGV, [](int number) { _exit(number == SIGSEGV ? 7 : 98); });
            fault::install();
            fault_outside_of_ranges();
        },
        testing::ExitedWithCode(7), "");
}

std::atomic<int> calls_of_the_later_one;
struct sigaction before_the_later_one;

void count_and_chain(int signal, siginfo_t* info, void* context) {
    ++calls_of_the_later_one;
    if ((before_the_later_one.sa_flags & SA_SIGINFO) == 0) _exit(97);
    before_the_later_one.sa_sigaction(signal, info, context);
}

void exit_7_after_one_call_of_the_later_one(int, siginfo_t*, void*) {
    _exit(calls_of_the_later_one == 1 ? 7 : 98);
}

TEST_F(FaultChain, a_handler_that_replaced_ours_is_behind_it_after_the_next_install) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, exit_7_after_one_call_of_the_later_one, 0);
            if (fault::install() || fault::install()) _exit(96);
            sigaction(SIGSEGV, nullptr, &before_the_later_one);
            set_action(SIGSEGV, count_and_chain, 0);
            if (!fault::install() || fault::install()) _exit(95);
            const Pages pages(1, PROT_NONE);
            const bool guarded = guard([&] {
                const Touch touch(1, pages.data(), kPage);
                write_at(pages.data());
            });
            if (guarded || calls_of_the_later_one != 0) _exit(94);
            fault_outside_of_ranges();
        },
        testing::ExitedWithCode(7), "");
}

void exit_98(int, siginfo_t*, void*) { _exit(98); }

sigjmp_buf jumped_out;
void jump_out(int, siginfo_t*, void*) { siglongjmp(jumped_out, 1); }

TEST_F(FaultChain, a_later_handler_may_jump_out_each_time) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, exit_98, 0);
            (void)fault::install();
            set_action(SIGSEGV, jump_out, 0);
            (void)fault::install();
            volatile int jumps = 0;
            if (sigsetjmp(jumped_out, 1) != 0) jumps = jumps + 1;
            if (jumps < 3) fault_outside_of_ranges();
            _exit(jumps == 3 ? 7 : 98);
        },
        testing::ExitedWithCode(7), "");
}

// As a garbage collector does: the handler repairs the page, the instruction runs again.
bool mask_was_right;

void repair(int, siginfo_t* info, void*) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    mask_was_right = sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGSEGV) == 1;
    mprotect(info->si_addr, kPage, PROT_READ | PROT_WRITE);
}

// As a program does that tries something out: the checks may come at any time.
void install_and_remove(void (*handler)(int, siginfo_t*, void*), unsigned checks) {
    struct sigaction before;
    sigaction(SIGSEGV, nullptr, &before);
    set_action(SIGSEGV, handler, 0);
    if ((checks & 1) != 0) (void)fault::install();
    sigaction(SIGSEGV, &before, nullptr);
    if ((checks & 2) != 0) (void)fault::install();
}

TEST_F(FaultChain, a_handler_that_was_removed_is_not_called_any_more) {
    EXPECT_EXIT(
        {
            signal(SIGSEGV, SIG_DFL);
            (void)fault::install();
            install_and_remove(exit_98, 3);
            fault_outside_of_ranges();
        },
        testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, exit_7_at_expected_address, 0);
            (void)fault::install();
            for (unsigned i = 0; i < 400; ++i) {
                install_and_remove((i & 4) != 0 ? exit_98 : repair, i);
            }
            (void)fault::install();
            const Pages pages(1, PROT_NONE);
            const bool repaired = guard([&] {
                const Touch touch(1, pages.data(), 1);
                write_at(pages.data());
            });
            if (repaired) _exit(96);
            fault_outside_of_ranges();
        },
        testing::ExitedWithCode(7), "");
}

// The first one is left by a jump, which no frame of ours sees; then the fault comes again, at the
// same depth of the stack, by way of a handler in front of ours.
TEST_F(FaultChain, a_handler_that_jumps_out_is_called_through_a_later_one) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, jump_out, 0);
            (void)fault::install();
            volatile int jumps = 0;
            if (sigsetjmp(jumped_out, 1) != 0) jumps = jumps + 1;
            if (jumps == 1) {
                sigaction(SIGSEGV, nullptr, &before_the_later_one);
                set_action(SIGSEGV, count_and_chain, 0);
            }
            if (jumps < 3) fault_outside_of_ranges();
            _exit(calls_of_the_later_one == 2 ? 7 : 98);
        },
        testing::ExitedWithCode(7), "");
}

TEST_F(FaultChain, default_action_before_kills) {
    EXPECT_EXIT(
        {
            signal(SIGSEGV, SIG_DFL);
            fault::install();
            fault_outside_of_ranges();
        },
        testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(
        {
            signal(SIGBUS, SIG_DFL);
            fault::install();
            raise(SIGBUS);
        },
        testing::KilledBySignal(SIGBUS), "");
}

TEST_F(FaultChain, ignored_before_is_ignored_only_when_sent) {
    EXPECT_EXIT(
        {
            signal(SIGSEGV, SIG_IGN);
            fault::install();
            raise(SIGSEGV);
            _exit(7);
        },
        testing::ExitedWithCode(7), "");
    EXPECT_EXIT(
        {
            signal(SIGSEGV, SIG_IGN);
            fault::install();
            raise(SIGSEGV);
            fault_outside_of_ranges();
        },
        testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FaultChain, handler_before_may_repair_and_return) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, repair, 0);
            fault::install();
            const Pages pages(1, PROT_NONE);
            const bool done = guard([&] { write_at(pages.data()); });
            sigset_t mask;
            pthread_sigmask(SIG_SETMASK, nullptr, &mask);
            const bool restored = sigismember(&mask, SIGUSR1) == 0;
            _exit(done && restored && mask_was_right && pages.data()[0] == std::byte{1} ? 7 : 98);
        },
        testing::ExitedWithCode(7), "");
}

TEST_F(FaultChain, handler_for_one_time_is_called_once) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, repair, static_cast<int>(SA_RESETHAND));
            fault::install();
            const Pages pages(1, PROT_NONE);
            write_at(pages.data());
            pages.protect(0, 1, PROT_NONE);
            write_at(pages.data());
        },
        testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(FaultChain, handler_for_one_time_may_be_set_again) {
    EXPECT_EXIT(
        {
            set_action(SIGSEGV, exit_7_at_expected_address, 0);
            const Pages pages(1, PROT_NONE);
            for (int i = 0; i < 100; ++i) {
                set_action(SIGSEGV, repair, static_cast<int>(SA_RESETHAND));
                (void)fault::install();
                pages.protect(0, 1, PROT_NONE);
                write_at(pages.data());
            }
            set_action(SIGSEGV, exit_7_at_expected_address, 0);
            (void)fault::install();
            fault_outside_of_ranges();
        },
        testing::ExitedWithCode(7), "");
}

int sent_signals;

TEST_F(FaultChain, sent_signal_does_not_end_a_guarded_call) {
    EXPECT_EXIT(
        {
            set_action(
                SIGSEGV, [](int, siginfo_t*, void*) { ++sent_signals; }, 0);
            fault::install();
            const bool done = guard([] {
                const Touch touch(1, nullptr, ~std::size_t{0});
                kill(getpid(), SIGSEGV);
            });
            _exit(done && sent_signals == 1 ? 7 : 98);
        },
        testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace xsock
