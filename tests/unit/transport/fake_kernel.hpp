// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A kernel module in user space, and two devices above it of which one may use it.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/record_maker.hpp"
#include "tests/unit/loopback.hpp"
#include "tests/unit/transport/soon.hpp"
#include "transport/clock.hpp"
#include "transport/kernel_calls.hpp"
#include "transport/soft_device.hpp"

namespace xsock::test {

inline constexpr int kDomain = 1 << 20;  // no descriptor has that number

/// A module. Any thread.
class FakeModule final : public KernelCalls {
  public:
    int open_error = 0, attach_error = 0, bind_error = 0, region_error = 0;
    std::uint32_t abi = DDP_ABI;

    int open() override {
        ++opens;
        return open_error != 0 ? -open_error : kDomain;
    }
    void close(int) noexcept override {
        const std::lock_guard lock(mutex);
        after_close += waiting;
        closed = true;
    }
    int attach(int) noexcept override { return -attach_error; }
    int control(int, unsigned long request, void* argument) noexcept override {
        std::unique_lock lock(mutex);
        if (closed) ++after_close;
        switch (request) {
            case DDP_IOC_HELLO: {
                auto& hello = *static_cast<ddp_hello*>(argument);
                hello.abi = abi;
                hello.recv_min = DDP_RECV_MIN;
                hello.features = DDP_FEATURE_CRC | DDP_FEATURE_AHEAD;
                return 0;
            }
            case DDP_IOC_REGION: {
                const auto& region = *static_cast<ddp_region*>(argument);
                wait_for_gate(lock);
                if (region_error != 0) return -region_error;
                if ((region.flags & DDP_REGION_HIDDEN) != 0) {
                    return hidden.emplace(region.stag, region).second ? 0 : -EEXIST;
                }
                return regions.emplace(region.stag, region).second ? 0 : -EEXIST;
            }
            case DDP_IOC_SHOW:
                ++shown;
                regions.merge(hidden);
                return 0;
            case DDP_IOC_CHECK:
                ++checks;
                return stale.count(static_cast<ddp_stag*>(argument)->stag) != 0 ? -ESTALE : 0;
            case DDP_IOC_REVOKE:
                revoked += regions.erase(static_cast<ddp_stag*>(argument)->stag);
                return 0;
            case DDP_IOC_RELEASE: {
                const std::uint32_t stag = static_cast<ddp_stag*>(argument)->stag;
                wait_for_gate(lock);
                released.push_back(stag);
                stale.erase(stag);
                regions.erase(stag);
                hidden.erase(stag);
                return 0;
            }
            case DDP_IOC_BIND: {
                const auto& bind = *static_cast<ddp_bind*>(argument);
                if (bind_error != 0) return -bind_error;
                last_bind = bind;
                rights[bind.socket] = bind.rights;
                makers[bind.socket] = std::make_unique<RecordMaker>(
                    (bind.flags & DDP_BIND_CRC) != 0,
                    [this, bind](const std::byte* header, ConstBytes payload) {
                        return place(bind, header, payload);
                    });
                return 0;
            }
            case DDP_IOC_RIGHTS: {
                const auto& to = *static_cast<ddp_rights*>(argument);
                rights[to.socket] = to.rights;
                return 0;
            }
            case DDP_IOC_STATS:
                static_cast<ddp_stats*>(argument)->stale = stale.size();
                static_cast<ddp_stats*>(argument)->ahead_octets = ahead_octets;
                return 0;
            default:
                return -ENOTTY;
        }
    }
    long receive(int socket, Bytes into) noexcept override {
        const std::lock_guard lock(mutex);
        EXPECT_GE(into.size(), DDP_RECV_MIN);
        if (!quiet && !untold.empty()) {
            std::copy(untold.begin(), untold.end(), into.begin());
            return static_cast<long>(std::exchange(untold, {}).size());
        }
        std::vector<std::byte> octets(into.size() / 4);
        const long n = ::recv(socket, octets.data(), octets.size(), MSG_DONTWAIT);
        if (n <= 0) return n < 0 ? -errno : 0;
        Records records;
        makers.at(socket)->feed(ConstBytes(octets).first(static_cast<std::size_t>(n)), records);
        if (quiet && records.bytes.size() == sizeof(ddp_record) + sizeof(ddp_placed)) {
            untold = std::move(records.bytes);
            return -EAGAIN;
        }
        EXPECT_LE(records.bytes.size(), into.size());
        std::copy(records.bytes.begin(), records.bytes.end(), into.begin());
        return static_cast<long>(records.bytes.size());
    }

    std::size_t held() {
        const std::lock_guard lock(mutex);
        return regions.size();
    }
    std::uint64_t placed() {
        const std::lock_guard lock(mutex);
        std::uint64_t all = 0;
        for (const auto& [socket, maker] : makers) all += maker->placed;
        return all;
    }

    std::mutex mutex;
    std::map<std::uint32_t, ddp_region> regions;
    std::map<int, std::unique_ptr<RecordMaker>> makers;
    std::map<int, std::uint32_t> rights;
    ddp_bind last_bind{};
    std::set<std::uint32_t> stale;
    std::uint64_t ahead_octets = 0;
    std::map<std::uint32_t, ddp_region> hidden;
    std::vector<std::uint32_t> released;
    std::size_t revoked = 0, checks = 0, shown = 0;
    bool closed = false;          // the domain
    std::size_t after_close = 0;  // requests of it then
    bool gate = true;             // closed: REGION and RELEASE wait
    std::size_t waiting = 0;      // for it
    std::atomic<int> opens{0};
    // As if Writes were placed before the engine has read: it is told of them with `quiet` false.
    bool quiet = false;
    std::vector<std::byte> untold;

    void set_quiet(bool is_quiet) {
        const std::lock_guard lock(mutex);
        quiet = is_quiet;
    }
    void set_gate(bool open) {
        {
            const std::lock_guard lock(mutex);
            gate = open;
        }
        gate_changed.notify_all();
    }
    bool is_waiting() {
        const std::lock_guard lock(mutex);
        return waiting != 0;
    }

  private:
    void wait_for_gate(std::unique_lock<std::mutex>& lock) {
        ++waiting;
        gate_changed.wait(lock, [this] { return gate; });
        --waiting;
    }
    std::condition_variable gate_changed;
    bool place(const ddp_bind& bind, const std::byte* header, ConstBytes payload) {
        const auto found = regions.find(load_be32(header + 2));
        if (found == regions.end() || (rights[bind.socket] & DDP_RIGHT_WRITE) == 0) return false;
        const ddp_region& region = found->second;
        const std::uint64_t to = load_be64(header + 6) - region.first_to;
        if (region.pd != bind.pd || to > region.length || payload.size() > region.length - to) {
            return false;
        }
        std::memcpy(reinterpret_cast<std::byte*>(region.address) + to, payload.data(),
                    payload.size());
        return true;
    }
};

/// Two devices: what a sends, b's module places.
class KernelDdpTest : public ::testing::Test {
  protected:
    void make(KernelMode mode = KernelMode::automatic, Api api = Api::endpoint) {
        end_all();
        for (int i = 0; i < 2; ++i) {
            TransportConfig config;
            config.kernel = i == 1 ? mode : KernelMode::off;
            config.kernel_calls = &module;
            auto made = make_soft_device(config);
            ASSERT_TRUE(made);
            device[i] = std::move(*made);
            cq[i] = std::move(*device[i]->create_cq(1024, false));
            qp[i] = std::move(*device[i]->create_qp(
                {.pd = 1, .send_cq = cq[i].get(), .recv_cq = cq[i].get(), .api = api}));
        }
    }
    /// What b's connect() answers.
    Result<void> start(bool crc = true) {
        LoopbackListener listener;
        const int a = listener.dial(), b = listener.accept();
        ConnectAttr attr;
        attr.crc = crc;
        attr.role = ConnectAttr::Role::responder;
        if (auto r = qp[1]->connect(b, attr); !r) {
            ::close(a);
            ::close(b);
            return r;
        }
        attr.role = ConnectAttr::Role::initiator;
        if (auto r = qp[0]->connect(a, attr); !r) return r;
        qp[0]->wait_started(soon());
        qp[1]->wait_started(soon());
        return {};
    }
    std::uint32_t region(std::vector<std::byte>& memory) {
        return device[1]
            ->register_memory({.address = memory.data(),
                               .length = memory.size(),
                               .access = kLocalWrite | kRemoteWrite | kZeroBased,
                               .pd = 1})
            .value();
    }
    void write(std::uint32_t stag, std::uint64_t to, std::vector<std::byte>& from) {
        const Sge sge{from.data(), static_cast<std::uint32_t>(from.size()), kLkeyNone};
        (void)module.held();  // what was read here before: TCP gives ThreadSanitizer no order
        ASSERT_TRUE(qp[0]->post_send({.opcode = SendOpcode::write,
                                      .remote_stag = stag,
                                      .remote_to = to,
                                      .sges = {&sge, 1}}));
    }
    /// The STag of `memory`, which the module has: `data` was written at its begin, and has come
    /// up.
    std::uint32_t pinned_region(std::vector<std::byte>& memory, std::vector<std::byte>& data) {
        const std::uint32_t stag = region(memory);
        write(stag, 0, data);
        sync();
        EXPECT_TRUE(wait([&] { return module.held() == 1; }));
        return stag;
    }
    /// A Send behind what was written, taken at b.
    void sync() {
        std::byte octet{7}, into{};
        const Sge from{&octet, 1, kLkeyNone}, to{&into, 1, kLkeyNone};
        ASSERT_TRUE(qp[1]->post_recv({.sges = {&to, 1}}));
        ASSERT_TRUE(qp[0]->post_send({.sges = {&from, 1}}));
        bool received = false;
        while (!received && monotonic_now() < end) {
            Wc wc[16];
            const std::size_t n = cq[1]->poll(wc);
            for (std::size_t i = 0; i < n; ++i) received |= wc[i].opcode == WcOpcode::recv;
            cq[0]->poll(wc);
        }
        ASSERT_TRUE(received);
        ASSERT_EQ(into, octet);
    }
    template <typename F>
    bool wait(F&& done) {
        while (!done() && monotonic_now() < end) std::this_thread::yield();
        return done();
    }

    const Time end = soon();
    FakeModule module;
    std::unique_ptr<Device> device[2];
    std::unique_ptr<Cq> cq[2];
    std::unique_ptr<Qp> qp[2];
    ~KernelDdpTest() override { end_all(); }
    void end_all() {
        for (auto& q : qp) q.reset();
        for (auto& c : cq) c.reset();
        for (auto& d : device) d.reset();
    }
};

}  // namespace xsock::test
