// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Destroying an object that events were raised for: those not yet got vanish, those got and not yet
// acknowledged are waited for, as verbs ask.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <mutex>

#include "verbs/objects.hpp"

namespace xsock::verbs {

template <typename F>
void forget_async(Context& context, F&& concerns) {
    const std::lock_guard lock(context.events_mutex);
    for (std::size_t n = context.events.erase_if(concerns); n > 0; --n) {
        context.events_waiting.take();
    }
}

/// Not with the engine's mutex held.
inline void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& cond,
                              const std::uint32_t& completed, std::uint32_t delivered) {
    pthread_mutex_lock(&mutex);
    while (completed != delivered) pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
}

}  // namespace xsock::verbs
