// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Result<T>: a value, or an errno with a sentence. For callers' mistakes and resource limits; never
// on the data path.
#pragma once

#include <optional>
#include <utility>

#include "base/assert.hpp"

namespace xsock {

struct [[nodiscard]] Error {
    int code = 0;           ///< an errno value, never 0 in a Result
    const char* what = "";  ///< static storage: one sentence for the log
};

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose
    Result(Error error) : error_(error) { XSOCK_ASSERT(error.code != 0); }  // NOLINT

    [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return ok(); }
    [[nodiscard]] T& value() {
        XSOCK_ASSERT(ok());
        return *value_;
    }
    [[nodiscard]] const T& value() const {
        XSOCK_ASSERT(ok());
        return *value_;
    }
    T& operator*() { return value(); }
    T* operator->() { return &value(); }
    [[nodiscard]] Error error() const noexcept { return error_; }

  private:
    std::optional<T> value_;
    Error error_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(error) { XSOCK_ASSERT(error.code != 0); }  // NOLINT
    [[nodiscard]] bool ok() const noexcept { return error_.code == 0; }
    explicit operator bool() const noexcept { return ok(); }
    [[nodiscard]] Error error() const noexcept { return error_; }

  private:
    Error error_;
};

}  // namespace xsock
