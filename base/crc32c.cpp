// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CRC32c: the portable method, and the choice among all of them. Which is best was measured, see
// bench/crc32c_bench.cpp.
// By hand beside ISA-L, which does not copy while it computes and is not on every machine.
#include "base/crc32c.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include "base/crc32c_methods.hpp"
#ifdef XSOCK_HAVE_ISAL
#include <isa-l/crc.h>
#endif

namespace xsock {
namespace crc32c_detail {
namespace {

// kTables[k][v]: the register after byte v and k zero bytes ("slicing by 8").
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() noexcept {
    Tables tables{};
    for (std::uint32_t v = 0; v < 256; ++v) {
        std::uint32_t reg = v;
        for (auto& table : tables) {
            for (int bit = 0; bit < 8; ++bit) reg = times_x(reg);
            table[v] = reg;
        }
    }
    return tables;
}

constexpr Tables kTables = make_tables();

// Looks up the bytes of a word: the first, in its low bits, has the most zeros behind it.
template <std::size_t bytes>
[[nodiscard]] constexpr std::uint32_t look_up(std::uint64_t word) noexcept {
    std::uint32_t reg = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
        reg ^= kTables[bytes - 1 - i][(word >> (8 * i)) & 0xff];
    }
    return reg;
}

struct Slicing {
    static std::uint32_t word8(std::uint32_t reg, std::uint64_t v) noexcept {
        return look_up<8>(v ^ reg);
    }
    static std::uint32_t word4(std::uint32_t reg, std::uint32_t v) noexcept {
        return look_up<4>(v ^ reg);
    }
    static std::uint32_t word2(std::uint32_t reg, std::uint16_t v) noexcept {
        return look_up<2>(v ^ reg) ^ (reg >> 16);
    }
    static std::uint32_t word1(std::uint32_t reg, std::uint8_t v) noexcept {
        return look_up<1>(v ^ reg) ^ (reg >> 8);
    }
};

MethodList find_methods() noexcept {
    MethodList list;
    list.add(serial_method<Slicing>("portable"));
#if defined(__x86_64__) || defined(__aarch64__)
    add_machine_methods(list);
#endif
    return list;
}

const MethodList& found_methods() noexcept {
    // Not a guarded static: a child forked amid its making would wait for ever. A once_flag is
    // begun anew there.
    static constinit std::once_flag once;
    static constinit MethodList list;
    std::call_once(once, [] { list = find_methods(); });
    return list;
}

// The table that calls go through names this one first: it looks at the CPU and puts the best in
// its own place. Threads that meet here store the same value.
const Method& choose() noexcept;

std::uint32_t first_crc(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept {
    return choose().crc(reg, from, n);
}

std::uint32_t first_copy(std::uint32_t reg, std::byte* to, const std::byte* from,
                         std::size_t n) noexcept {
    return choose().copy(reg, to, from, n);
}

void first_lanes(const std::byte* first, std::size_t stride, std::size_t n,
                 std::uint32_t* regs) noexcept {
    choose().lanes(first, stride, n, regs);
}

constexpr Method kFirst{"", first_crc, first_copy, first_lanes};
constinit std::atomic<const Method*> chosen{&kFirst};

const Method& choose() noexcept {
    const Method& best = usable_methods().back();
    chosen.store(&best, std::memory_order_release);
    return best;
}

}  // namespace

#ifdef XSOCK_HAVE_ISAL
std::uint32_t isal_crc(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept {
    // Its length is an int; its buffer is not const, though it only reads.
    constexpr std::size_t kMost = std::size_t{1} << 30;
    static_assert(kMost <= std::numeric_limits<int>::max());
    auto* at = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(from));
    while (n != 0) {
        const std::size_t piece = std::min(n, kMost);
        reg = crc32_iscsi(at, static_cast<int>(piece), reg);
        at += piece;
        n -= piece;
    }
    return reg;
}
#endif

std::span<const Method> usable_methods() noexcept {
    const MethodList& list = found_methods();
    return {list.methods.data(), list.count};
}

}  // namespace crc32c_detail

std::uint32_t crc32c(std::uint32_t reg, ConstBytes bytes) noexcept {
    return crc32c_detail::chosen.load(std::memory_order_acquire)
        ->crc(reg, bytes.data(), bytes.size());
}

std::uint32_t crc32c_copy(std::uint32_t reg, std::byte* to, const std::byte* from,
                          std::size_t n) noexcept {
    return crc32c_detail::chosen.load(std::memory_order_acquire)->copy(reg, to, from, n);
}

void crc32c_lanes(const std::byte* first, std::size_t stride, std::size_t n,
                  std::span<std::uint32_t, kCrc32cLanes> crcs) noexcept {
    crc32c_detail::chosen.load(std::memory_order_acquire)->lanes(first, stride, n, crcs.data());
    for (std::uint32_t& crc : crcs) crc = crc32c_finish(crc);
}

const char* crc32c_method() noexcept { return crc32c_detail::usable_methods().back().name; }

}  // namespace xsock
