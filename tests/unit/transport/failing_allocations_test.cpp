// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/unit/transport/failing_allocations.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/unit/sanitizers.hpp"

namespace xsock::test {
namespace {

struct State {
    bool armed = false;
    bool all = false;
    bool happened = false;
    int left = 0;
};
thread_local constinit State state;

[[maybe_unused]] bool must_fail() noexcept {
    if (!state.armed || state.left-- > 0) return false;
    state.left = 0;
    state.armed = state.all;
    state.happened = true;
    return true;
}

}  // namespace

FailAllocation::FailAllocation(int at, bool all) noexcept {
    state = {.armed = true, .all = all, .left = at};
}
FailAllocation::~FailAllocation() { state = {}; }
bool FailAllocation::happened() const noexcept { return state.happened; }

TEST(FailAllocation, fails_once) {
#ifdef XSOCK_TEST_ASAN
    GTEST_SKIP() << "AddressSanitizer wants the allocator for itself: no allocation fails";
#endif
    const FailAllocation fail(1);
    // By their names: a compiler may leave out a new-expression whose object is not used.
    ::operator delete(::operator new(1));
    EXPECT_FALSE(fail.happened());
    EXPECT_THROW(::operator delete(::operator new(1)), std::bad_alloc);
    EXPECT_TRUE(fail.happened());
    EXPECT_NO_THROW(::operator delete(::operator new(1)));
}

}  // namespace xsock::test

#ifndef XSOCK_TEST_ASAN
// Not inlined: the compiler would object to free() after a new that it knows.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    if (xsock::test::must_fail()) throw std::bad_alloc();
    if (void* const memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
