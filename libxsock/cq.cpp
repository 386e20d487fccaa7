// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues and shared receive queues of xsock.h.
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <new>
#include <vector>

#include "base/poll_batch.hpp"
#include "libxsock/api.hpp"
#include "libxsock/objects.hpp"
#include "libxsock/sleep.hpp"
#include "libxsock/work.hpp"

namespace xsock::api {
namespace {

constexpr std::uint32_t kDefaultCqDepth = 256;
constexpr std::uint32_t kDefaultSrqDepth = 1024;
constexpr std::size_t kBatch = 64;

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
SAME(WcOpcode::send, XSOCK_OP_SEND);
SAME(WcOpcode::write, XSOCK_OP_WRITE);
SAME(WcOpcode::read, XSOCK_OP_READ);
SAME(WcOpcode::local_invalidate, XSOCK_OP_INVALIDATE);
SAME(WcOpcode::recv, XSOCK_OP_RECV);
SAME(WcOpcode::connected, XSOCK_OP_CONNECTED);
SAME(WcOpcode::closed, XSOCK_OP_CLOSED);
SAME(WcOpcode::fetch_add, XSOCK_OP_FETCH_ADD);
SAME(WcOpcode::compare_swap, XSOCK_OP_COMPARE_SWAP);
SAME(WcOpcode::write_immediate, XSOCK_OP_WRITE_IMM);
SAME(WcOpcode::immediate, XSOCK_OP_IMM);
SAME(WcOpcode::send_immediate, XSOCK_OP_SEND_IMM);
SAME(WcStatus::success, XSOCK_WC_SUCCESS);
SAME(WcStatus::local_length_error, XSOCK_WC_LENGTH);
SAME(WcStatus::local_protection_error, XSOCK_WC_PROTECTION);
SAME(WcStatus::local_qp_error, XSOCK_WC_LOCAL);
SAME(WcStatus::flushed, XSOCK_WC_FLUSHED);
SAME(WcStatus::remote_access_error, XSOCK_WC_REMOTE_ACCESS);
SAME(WcStatus::remote_invalid_request, XSOCK_WC_REMOTE_INVALID);
SAME(WcStatus::remote_operation_error, XSOCK_WC_REMOTE_FAILED);
SAME(WcStatus::bad_response, XSOCK_WC_BAD_RESPONSE);
SAME(WcStatus::connection_lost, XSOCK_WC_CONNECTION_LOST);
// No endpoint has rnr_retries_exceeded: only verbs sets RnrAttr.
SAME(kWcSolicited, XSOCK_WC_SOLICITED);
SAME(kWcInvalidated, XSOCK_WC_INVALIDATED);
SAME(kWcImmediate, XSOCK_WC_IMM);
SAME(kWcSendImmediate, XSOCK_WC_SEND_IMM);
#undef SAME

void convert(const Wc& from, xsock_wc& to) noexcept {
    to.wr_id = from.wr_id;
    to.context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(from.qp_context));
    to.length = from.byte_len;
    to.invalidated_stag = from.invalidated_stag;
    to.op = static_cast<std::uint16_t>(from.opcode);
    to.status = static_cast<std::uint16_t>(from.status);
    to.flags = from.flags & (kWcSolicited | kWcInvalidated | kWcImmediate | kWcSendImmediate);
    to.immediate = from.immediate;
}

int poll_into(Cq& cq, xsock_wc* wc, int max) {
    int total = 0;
    poll_batches<kBatch>(cq, static_cast<std::size_t>(max),
                         [&](const Wc& taken) { convert(taken, wc[total++]); });
    return total;
}

/// More than a batch at once: another thread must not take what this one needs besides.
int take_many(Cq& cq, xsock_wc* wc, int max, int at_least) {
    constexpr int kMostMany = 1024;
    std::vector<Wc> taken(static_cast<std::size_t>(std::min(max, std::max(at_least, kMostMany))));
    const std::size_t n = cq.take(taken, static_cast<std::size_t>(at_least));
    for (std::size_t i = 0; i < n; ++i) convert(taken[i], wc[i]);
    return static_cast<int>(n);
}

/// The first batch only where `at_least` completions wait. Without memory for more than that, the
/// others may be taken by other threads.
int take_into(Cq& cq, xsock_wc* wc, int max, int at_least) {
    if (at_least > static_cast<int>(kBatch)) {
        try {
            return take_many(cq, wc, max, at_least);
        } catch (const std::bad_alloc&) {
        }
    }
    WcBatch<kBatch> batch;
    int total = 0;
    while (total < max) {
        const auto want = std::min(kBatch, static_cast<std::size_t>(max - total));
        const std::size_t n = cq.take(std::span(batch.wcs).first(want),
                                      total == 0 ? static_cast<std::size_t>(at_least) : 0);
        for (std::size_t i = 0; i < n; ++i) convert(batch.wcs[i], wc[total++]);
        if (n < want) break;
    }
    return total;
}

}  // namespace

xsock_cq* cq_create(const xsock_cq_attr* given) noexcept {
    xsock_cq_attr attr;
    if (!copy_versioned(given, attr)) return nullptr;
    Device* const d = device();
    if (d == nullptr) return nullptr;
    return guarded<xsock_cq*>(nullptr, [&] {
        return handle_of<xsock_cq>(
            d->create_cq(attr.depth != 0 ? attr.depth : kDefaultCqDepth, false));
    });
}

int cq_destroy(xsock_cq* cq) noexcept { return destroy_unused(cq); }

int cq_poll(xsock_cq* cq, xsock_wc* wc, int max) noexcept {
    if (cq == nullptr || max < 0 || (wc == nullptr && max > 0)) return fail(EINVAL);
    if (!same_process(cq)) return -1;
    return guarded(-1, [&] { return poll_into(*cq->cq, wc, max); });
}

int cq_wait(xsock_cq* cq, xsock_wc* wc, int min, int max, int timeout_ms,
            xsock_sleep* sleep) noexcept {
    if (cq == nullptr || max < 0 || min < 0 || min > max || (wc == nullptr && max > 0)) {
        return fail(EINVAL);
    }
    // (in a child of a signal handler the call finds nothing)
    if (sleep->asleep == 0 && !same_process(cq)) return -1;
    return guarded(-1, [&] {
        if (min == 0 || timeout_ms == 0) return poll_into(*cq->cq, wc, max);
        const auto take = [&](int at_least) {
            sleep->taken += take_into(*cq->cq, wc + sleep->taken, max - sleep->taken, at_least);
            return sleep->taken >= min;
        };
        for (;;) {
            const int missing = min - sleep->taken;
            std::array<PollGroup*, XSOCK_MAX_THREADS> groups;
            std::function<bool()> enough;
            std::size_t count = 0;
            if (sleep->asleep == 0) {
                if (take(missing)) return sleep->taken;
                count = cq->cq->groups(groups);
                enough = cq->cq->enough(static_cast<std::size_t>(missing));
            }
            if (!wait_outside(*sleep, std::span(groups).first(count), std::move(enough),
                              timeout_ms)) {
                return 0;
            }
            // Other threads may take what this one was woken for.
            if (take(missing)) return sleep->taken;
            if (!may_wait(*sleep)) {
                take(1);
                return sleep->taken;
            }
        }
    });
}

int cq_fd(xsock_cq* cq) noexcept {
    if (!usable(cq)) return -1;
    return guarded(-1, [&] { return finish(cq->cq->fd()); });
}

const char* wc_str(int status) noexcept {
    static constexpr const char* kTexts[] = {
        // by xsock_wc_status
        "success",
        "the message is longer than the receive",
        "a local buffer is not accessible as asked",
        "the operation is not possible on this connection",
        "flushed: the connection ended first",
        "the peer refused key, bounds or right",
        "the peer found the message malformed or unexpected",
        "the peer failed",
        "the peer's answer did not fit the question",
        "connection lost",
    };
    static_assert(std::size(kTexts) == XSOCK_WC_CONNECTION_LOST + 1);
    const auto index = static_cast<std::size_t>(status);
    return index < std::size(kTexts) ? kTexts[index] : "unknown status";
}

xsock_srq* srq_create(std::uint32_t depth) noexcept {
    Device* const d = device();
    if (d == nullptr) return nullptr;
    return guarded<xsock_srq*>(nullptr, [&] {
        return handle_of<xsock_srq>(d->create_srq(depth != 0 ? depth : kDefaultSrqDepth, 0));
    });
}

int srq_destroy(xsock_srq* srq) noexcept { return destroy_unused(srq); }

int srq_post_recv(xsock_srq* srq, std::uint64_t wr_id, const xsock_sge* sge,
                  std::uint32_t count) noexcept {
    if (!usable(srq)) return -1;
    return post_receive(*srq->srq, wr_id, sge, count);
}

}  // namespace xsock::api
