// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Threads that the program cancels (pthread_cancel; rping does) must not unwind through the engine:
// its functions throw nothing, and it may hold locks. For calls that come in through pointers in
// verbs.h's structures; the drop-in libraries do the same for the others.
#pragma once

#include <pthread.h>

namespace xsock::verbs {

class HoldCancellation {
  public:
    HoldCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
    ~HoldCancellation() {
        int ignored = 0;
        pthread_setcancelstate(state_, &ignored);
    }
    HoldCancellation(const HoldCancellation&) = delete;
    HoldCancellation& operator=(const HoldCancellation&) = delete;

  private:
    int state_ = 0;
};

}  // namespace xsock::verbs
