// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which sanitizer a test is built with: XSOCK_TEST_ASAN, XSOCK_TEST_TSAN or neither is defined.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define XSOCK_TEST_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define XSOCK_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define XSOCK_TEST_TSAN 1
#elif __has_feature(address_sanitizer)
#define XSOCK_TEST_ASAN 1
#endif
#endif
