// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/crc32c.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/unit/sanitizers.hpp"

namespace xsock {
namespace {

using crc32c_detail::Method;

#if defined(XSOCK_TEST_TSAN)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Shares nothing with the code under test.
std::uint32_t bitwise(std::uint32_t reg, const std::byte* from, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        reg ^= std::to_integer<std::uint32_t>(from[i]);
        for (int bit = 0; bit < 8; ++bit) reg = (reg >> 1) ^ ((reg & 1) != 0 ? 0x82f63b78u : 0);
    }
    return reg;
}

std::vector<std::byte> random_bytes(std::size_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes(n);
    for (auto& o : bytes) o = static_cast<std::byte>(random());
    return bytes;
}

ConstBytes as_byte_array(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Memory that ends, and begins, where the next byte cannot be touched.
class FencedPages {
  public:
    explicit FencedPages(std::size_t bytes) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        size_ = (bytes + page - 1) / page * page;
        whole_size_ = size_ + 2 * page;
        whole_ = mmap(nullptr, whole_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(whole_, MAP_FAILED);
        begin_ = static_cast<std::byte*>(whole_) + page;
        EXPECT_EQ(mprotect(begin_, size_, PROT_READ | PROT_WRITE), 0);
    }
    ~FencedPages() { munmap(whole_, whole_size_); }
    FencedPages(const FencedPages&) = delete;
    FencedPages& operator=(const FencedPages&) = delete;

    [[nodiscard]] std::byte* begin() const { return begin_; }
    [[nodiscard]] std::byte* end() const { return begin_ + size_; }

  private:
    void* whole_ = nullptr;
    std::byte* begin_ = nullptr;
    std::size_t size_ = 0, whole_size_ = 0;
};

class Crc32cMethod : public testing::TestWithParam<Method> {};

std::string method_name(const testing::TestParamInfo<Method>& info) {
    std::string name = info.param.name;
    for (char& c : name) {
        if (c == '-' || c == '.') c = '_';
    }
    return name;
}

INSTANTIATE_TEST_SUITE_P(Usable, Crc32cMethod,
                         testing::ValuesIn(crc32c_detail::usable_methods().begin(),
                                           crc32c_detail::usable_methods().end()),
                         method_name);

TEST(Crc32c, names_the_best_method) {
    const auto methods = crc32c_detail::usable_methods();
    ASSERT_FALSE(methods.empty());
    EXPECT_STREQ(methods.front().name, "portable");
    EXPECT_STREQ(crc32c_method(), methods.back().name);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        EXPECT_GT(methods.size(), 1u);
    }
#endif
}

// Lengths around every word's end, and runs that lie close together, apart, or on each other.
TEST_P(Crc32cMethod, lanes_are_single_runs) {
    std::vector<std::byte> bytes(kCrc32cLanes * 600);
    std::mt19937 random(7);
    for (std::byte& target_byte : bytes) target_byte = static_cast<std::byte>(random());
    for (std::size_t n = 0; n <= 100; ++n) {
        for (const std::size_t stride :
             {std::size_t{0}, std::size_t{1}, n, n + 5, std::size_t{500}}) {
            std::array<std::uint32_t, kCrc32cLanes> regs;
            GetParam().lanes(bytes.data() + n % 8, stride, n, regs.data());
            for (std::size_t i = 0; i < regs.size(); ++i) {
                ASSERT_EQ(regs[i], crc32c(kCrc32cInit, {bytes.data() + n % 8 + i * stride, n}))
                    << n << " bytes, stride " << stride << ", lane " << i;
            }
        }
    }
}

TEST(Crc32c, lanes_are_finished) {
    const std::vector<std::byte> bytes(400, std::byte{0x5a});
    std::array<std::uint32_t, kCrc32cLanes> crcs;
    crc32c_lanes(bytes.data(), 100, 84, crcs);
    for (const std::uint32_t crc : crcs) {
        EXPECT_EQ(crc, crc32c_finish(crc32c(kCrc32cInit, {bytes.data(), 84})));
    }
}

TEST(Crc32c, check_value) {
    EXPECT_EQ(crc32c_finish(crc32c(kCrc32cInit, as_byte_array("123456789"))), 0xe3069283u);
}

TEST(Crc32c, empty_span_leaves_the_register) {
    EXPECT_EQ(crc32c(0x12345678u, {}), 0x12345678u);
    EXPECT_EQ(crc32c_copy(0x12345678u, nullptr, nullptr, 0), 0x12345678u);
}

// RFC 3720 B.4; its values are listed as they lie on the wire, byte by byte.
TEST_P(Crc32cMethod, rfc3720_vectors) {
    std::array<std::byte, 32> zeros{}, ones{}, incrementing{}, decrementing{};
    for (std::size_t i = 0; i < 32; ++i) {
        ones[i] = std::byte{0xff};
        incrementing[i] = static_cast<std::byte>(i);
        decrementing[i] = static_cast<std::byte>(31 - i);
    }
    constexpr std::array<std::uint8_t, 48> kReadCommand{
        0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    const auto crc = [](ConstBytes bytes) {
        return crc32c_finish(GetParam().crc(kCrc32cInit, bytes.data(), bytes.size()));
    };
    EXPECT_EQ(crc(zeros), 0x8a9136aau);
    EXPECT_EQ(crc(ones), 0x62a8ab43u);
    EXPECT_EQ(crc(incrementing), 0x46dd794eu);
    EXPECT_EQ(crc(decrementing), 0x113fdb5cu);
    EXPECT_EQ(crc(std::as_bytes(std::span(kReadCommand))), 0xd9963a56u);
}

TEST_P(Crc32cMethod, equals_bitwise_at_every_length_and_alignment) {
    constexpr std::size_t kMost = 1100;
    const auto bytes = random_bytes(kMost + 64, 1);
    constexpr std::array<std::size_t, 8> kOffsets{0, 1, 3, 4, 7, 8, 31, 63};
    for (const std::size_t offset : kOffsets) {
        const std::byte* const from = bytes.data() + offset;
        std::uint32_t expected = kCrc32cInit;
        for (std::size_t n = 0; n <= kMost; ++n) {
            ASSERT_EQ(GetParam().crc(kCrc32cInit, from, n), expected) << n << " at " << offset;
            expected = bitwise(expected, from + n, 1);
        }
    }
}

TEST_P(Crc32cMethod, copies_every_length_and_nothing_more) {
    constexpr std::size_t kMost = 1100;
    constexpr std::byte kUntouched{0xee};
    const auto bytes = random_bytes(kMost + 64, 2);
    constexpr std::array<std::size_t, 4> kOffsets{0, 1, 8, 61};
    for (const std::size_t offset : kOffsets) {
        const std::byte* const from = bytes.data() + offset;
        std::uint32_t expected = kCrc32cInit;
        for (std::size_t n = 0; n <= kMost; ++n) {
            std::array<std::byte, kMost + 128> target;
            target.fill(kUntouched);
            std::byte* const to = target.data() + 64 - offset;
            ASSERT_EQ(GetParam().copy(kCrc32cInit, to, from, n), expected) << n << " at " << offset;
            ASSERT_EQ(std::memcmp(to, from, n), 0) << n << " at " << offset;
            ASSERT_EQ(to[-1], kUntouched);
            ASSERT_EQ(to[n], kUntouched) << n << " at " << offset;
            expected = bitwise(expected, from + n, 1);
        }
    }
}

TEST_P(Crc32cMethod, equals_bitwise_when_large) {
    const auto bytes = random_bytes(300'000, 3);
    std::vector<std::byte> target(bytes.size());
    std::mt19937 random(4);
    for (int i = 0; i < 12; ++i) {
        const std::size_t offset = random() % 100;
        const std::size_t n = random() % (bytes.size() - offset);
        const std::uint32_t start = static_cast<std::uint32_t>(random());
        const std::uint32_t expected = bitwise(start, bytes.data() + offset, n);
        EXPECT_EQ(GetParam().crc(start, bytes.data() + offset, n), expected);
        EXPECT_EQ(GetParam().copy(start, target.data(), bytes.data() + offset, n), expected);
        EXPECT_EQ(std::memcmp(target.data(), bytes.data() + offset, n), 0);
    }
}

TEST_P(Crc32cMethod, continues_over_pieces) {
    const auto bytes = random_bytes(5000, 5);
    const std::uint32_t whole = bitwise(kCrc32cInit, bytes.data(), bytes.size());
    std::vector<std::byte> target(bytes.size());
    std::mt19937 random(6);
    for (int i = 0; i < 200; ++i) {
        std::uint32_t reg = kCrc32cInit;
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t n = std::min<std::size_t>(random() % 1200, bytes.size() - at);
            reg = random() % 2 == 0
                      ? GetParam().crc(reg, bytes.data() + at, n)
                      : GetParam().copy(reg, target.data() + at, bytes.data() + at, n);
            at += n;
        }
        ASSERT_EQ(reg, whole);
    }
}

TEST_P(Crc32cMethod, touches_nothing_outside) {
    constexpr std::size_t kMost = 700;
    const FencedPages source(kMost), target(kMost);
    const auto bytes = random_bytes(static_cast<std::size_t>(source.end() - source.begin()), 7);
    std::memcpy(source.begin(), bytes.data(), bytes.size());
    for (std::size_t n = 0; n <= kMost; ++n) {
        const std::byte* const last = source.end() - n;
        const std::uint32_t at_end = GetParam().crc(kCrc32cInit, last, n);
        ASSERT_EQ(GetParam().copy(kCrc32cInit, target.end() - n, last, n), at_end);
        const std::uint32_t at_begin = GetParam().crc(kCrc32cInit, source.begin(), n);
        ASSERT_EQ(GetParam().copy(kCrc32cInit, target.begin(), source.begin(), n), at_begin);
    }
}

// Whatever the source holds at each moment, the CRC is that of what was stored.
TEST_P(Crc32cMethod, reads_the_source_once) {
    if (kThreadSanitizer) GTEST_SKIP() << "races on purpose";
    constexpr std::size_t kBytes = 1500;
    alignas(8) std::array<std::byte, kBytes + 4> source{};
    std::array<std::byte, kBytes> target{};
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        for (std::uint64_t v = 1; !stop.load(std::memory_order_relaxed); ++v) {
            for (std::size_t i = 0; i + 8 <= source.size(); i += 8) {
                __atomic_store_n(reinterpret_cast<std::uint64_t*>(source.data() + i),
                                 v * 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
            }
        }
    });
    int mismatches = 0;
    for (int i = 0; i < 1000; ++i) {
        const std::size_t n = i % 2 == 0 ? kBytes : 100;
        const std::uint32_t reg = GetParam().copy(kCrc32cInit, target.data(), source.data(), n);
        mismatches += reg != bitwise(kCrc32cInit, target.data(), n);
    }
    stop = true;
    writer.join();
    EXPECT_EQ(mismatches, 0);
}

/// Spins, but leaves the CPU to the other thread in the end: there may be only one.
template <typename Condition>
void spin_until(Condition holds) {
    for (int i = 1; !holds(); ++i) {
        if (i % 1024 == 0) std::this_thread::yield();
    }
}

// A program that polls the last byte of its buffer finds all others there.
TEST_P(Crc32cMethod, stores_the_last_byte_last) {
    if (kThreadSanitizer) GTEST_SKIP() << "races on purpose";
    constexpr std::array<std::size_t, 6> kLengths{7, 8, 100, 256, 300, 1460};
    alignas(64) std::array<std::byte, 2048> target{};
    std::array<std::byte, 2048> source{};
    struct Turn {
        std::atomic<std::byte*> last{nullptr};  // what the poller reads next
        std::atomic<bool> is_read{false};       // the poller has begun with it
        std::size_t n = 0;
        std::byte value{};
    } turn;
    std::atomic<int> incomplete{0};
    std::atomic<bool> stop{false};
    std::thread poller([&] {
        for (;;) {
            std::byte* last = nullptr;
            spin_until([&] {
                last = turn.last.load(std::memory_order_acquire);
                return last != nullptr || stop.load(std::memory_order_relaxed);
            });
            if (last == nullptr) return;
            const auto* const target_byte = reinterpret_cast<unsigned char*>(last);
            const auto value = static_cast<unsigned char>(turn.value);
            turn.is_read.store(true, std::memory_order_relaxed);
            spin_until([&] { return __atomic_load_n(target_byte, __ATOMIC_ACQUIRE) == value; });
            for (std::size_t i = 0; i < turn.n; ++i) {
                incomplete += __atomic_load_n(target_byte - i, __ATOMIC_RELAXED) != value;
            }
            turn.last.store(nullptr, std::memory_order_release);
        }
    });
    for (int i = 0; i < 300; ++i) {
        const std::size_t n = kLengths[static_cast<std::size_t>(i) % kLengths.size()];
        std::byte* const to = target.data() + i % 64;  // the end crosses cache lines, or not
        target.fill(std::byte{0});
        turn.value = static_cast<std::byte>(1 + i % 255);
        source.fill(turn.value);
        turn.n = n;
        turn.last.store(to + n - 1, std::memory_order_release);
        spin_until([&] { return turn.is_read.exchange(false, std::memory_order_relaxed); });
        (void)GetParam().copy(kCrc32cInit, to, source.data(), n);
        spin_until([&] { return turn.last.load(std::memory_order_acquire) == nullptr; });
    }
    stop = true;
    poller.join();
    EXPECT_EQ(incomplete.load(), 0);
}

}  // namespace
}  // namespace xsock
