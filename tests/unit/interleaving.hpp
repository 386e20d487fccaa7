// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests that walk every interleaving of some threads. Each side is ordinary code over the very
// class under test. A step is one operation on a shared word. To make one step, a side runs again
// from its start; operations that it has done before answer from its log, the first new one works
// on the shared words and ends the run. So the whole state of the world is a value, and a tree of
// all schedules is walked by copying it.
#pragma once

#include <cstddef>
#include <vector>

namespace xsock::test {

struct StepMade {};    // thrown: this side's turn is over
struct CannotStep {};  // thrown: it waits for a notification that has not come

/// `World` has the shared words, and for each side a `std::vector<int> log[]` and a `bool done[]`.
template <typename World>
struct Interleaving {
    static inline World* world = nullptr;  // of the step that is being made

    /// In the code of a side: an operation on the shared words and its result.
    template <typename Operation>
    static int step(Operation operation) {
        std::vector<int>& log = world->log[side];
        if (position < log.size()) return log[position++];
        log.push_back(operation());
        throw StepMade{};
    }

    /// One step of side `who`, whose code is `code`. False: it cannot move now.
    template <typename Code>
    static bool advance(World& w, int who, Code&& code) {
        world = &w;
        side = who;
        position = 0;
        try {
            code();
            w.done[who] = true;
        } catch (const StepMade&) {
        } catch (const CannotStep&) {
            return false;
        }
        return true;
    }

  private:
    static inline int side = 0;
    static inline std::size_t position = 0;
};

}  // namespace xsock::test
