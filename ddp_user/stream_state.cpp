// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/stream_state.hpp"

#include <algorithm>

namespace xsock::ddp {

void StreamState::fail(StreamError v, const ErrorContext& error_context) {
    if (!receiving()) return;
    if (stream_error_info(v).layer == TermLayer::none) {
        end(v);
        return;
    }
    error_ = v;
    terminate_ = build_terminate(v, error_context);
    state_ = State::terminating;
}

void StreamState::give_terminate(UlpduOut& out) noexcept {
    terminate_given_ = true;
    std::copy_n(terminate_.bytes.data(), terminate_.size, out.header.data());
    out.header_size = terminate_.size;
}

}  // namespace xsock::ddp
