// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/kernel_reason.hpp"

#include <cstddef>
#include <iterator>

namespace xsock::kernel {
namespace {

struct Row {
    const char* name;
    const char* text;
};
constexpr Row kRows[] = {
    // by Reason
    {"none", "the kernel module places what the peer writes"},
    {"off", "a setting says so"},
    {"kernel-absent", "the kernel module ddp_kernel is not loaded"},
    {"kernel-denied", "this user may not open /dev/ddp"},
    {"kernel-abi", "the kernel module speaks another ABI, or lacks what is needed"},
    {"kernel-capture", "what the kernel module places cannot be captured"},
    {"kernel-pinning", "a memory region cannot be pinned"},
    {"kernel-socket", "the kernel module refuses the socket"},
    {"shared-memory", "the data go through shared memory"},
};
static_assert(std::size(kRows) == static_cast<std::size_t>(Reason::kCount));

constexpr Row kUnpinnedRows[] = {
    // by Unpinned
    {"memlock", "more than may be locked (RLIMIT_MEMLOCK)"},
    {"too-long", "longer than XSOCK_KERNEL_PIN"},
    {"file", "memory of a file or a device"},
    {"other", "the kernel refused it"},
};
static_assert(std::size(kUnpinnedRows) == kUnpinnedReasons);

const Row& row_of(Unpinned reason) noexcept {
    const auto index = static_cast<std::size_t>(reason);
    return kUnpinnedRows[index < kUnpinnedReasons ? index : kUnpinnedReasons - 1];
}

}  // namespace

const char* name_of(Unpinned reason) noexcept { return row_of(reason).name; }

const char* text_of(Unpinned reason) noexcept { return row_of(reason).text; }

const char* name_of(Reason reason) noexcept {
    const auto index = static_cast<std::size_t>(reason);
    return index < std::size(kRows) ? kRows[index].name : "unknown";
}

const char* text_of(Reason reason) noexcept {
    const auto index = static_cast<std::size_t>(reason);
    return index < std::size(kRows) ? kRows[index].text : "unknown";
}

}  // namespace xsock::kernel
