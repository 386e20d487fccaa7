// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/stream_state.hpp"

#include <algorithm>
#include <new>

namespace xsock::ddp {

void StreamState::fail(StreamError v, const ErrorContext& error_context) {
    if (!receiving()) return;
    if (stream_error_info(v).layer == TermLayer::none) {
        end(v);
        return;
    }
    error_ = v;
    terminate_.reset(new (std::nothrow) TerminateMessage(build_terminate(v, error_context)));
    if (terminate_ == nullptr) {  // the peer learns of the end alone
        state_ = State::ended;
        return;
    }
    state_ = State::terminating;
}

void StreamState::give_terminate(UlpduOut& out) noexcept {
    std::copy_n(terminate_->bytes.data(), terminate_->size, out.header.data());
    out.header_size = terminate_->size;
    sent_ = terminate_->info;
    terminate_.reset();
}

}  // namespace xsock::ddp
