// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MessageChannel over a connection and a poller that do what the test says, in the order it says.
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "libxsock/poll/source.hpp"
#include "libxsock/socket/message_channel.hpp"
#include "tests/unit/fake_group.hpp"
#include "tests/unit/idle_polled_qp.hpp"

namespace xsock::sockets {
namespace {

using test::FakeGroup;

constexpr std::uint32_t kBytes = 64 * 1024;  // enough for a receive into the caller's memory

class FakeQp final : public test::IdlePolledQp {
  public:
    bool move_receive(std::uint64_t wr_id, const RecvWqe& other, PollCycle&) override {
        if (wr_id != receive.wr_id) return false;
        receive = other;
        return true;
    }

    RecvWqe receive;  // what is coming in
};

class NoSource final : public readiness::Source {
  public:
    std::uint32_t events() const noexcept override { return 0; }
    bool kernel_ready() const noexcept override { return false; }
    PollGroup* progress() const noexcept override { return nullptr; }
};

class Receiver {
  public:
    explicit Receiver(MessageChannel& channel) : channel_(channel), memory_(kBytes) {}

    ssize_t receive() {
        const iovec iov{memory_.data(), memory_.size()};
        const IovSpan iovs{&iov, 1, memory_.size()};
        int out_flags = 0;
        const ssize_t n = channel_.receive(iovs, {.timeout = kMillisecond}, out_flags);
        error = n < 0 ? errno : 0;
        return n;
    }
    [[nodiscard]] bool owns(const void* at) const {
        return at >= memory_.data() && at < memory_.data() + memory_.size();
    }
    int error = 0;

  private:
    MessageChannel& channel_;
    std::vector<std::byte> memory_;
};

// The first call's time is up amid a message. Between the withdrawal of its memory and its look at
// how things stand, the second call takes the rest of the message over, and it completes.
TEST(MessageChannel, a_call_that_times_out_leaves_the_message_of_another_to_it) {
    FakeQp qp;
    FakeGroup group;
    NoSource source;
    const Options options;
    MessageChannel channel(source, options);
    PolledQpAttr attr;
    attr.group = &group;
    channel.join(attr, nullptr);
    channel.attach(qp);

    Receiver first(channel), second(channel);
    std::promise<void> completed, first_returned;
    std::thread other;
    ssize_t second_got = -2;
    const auto waits_second = [&](const FakeGroup::Done& done) {
        EXPECT_TRUE(second.owns(qp.receive.sge[0].address));
        attr.on_completion(attr.argument, {.wr_id = qp.receive.wr_id,
                                           .byte_len = 1000,
                                           .opcode = WcOpcode::recv,
                                           .status = WcStatus::success,
                                           .flags = kWcInternal});
        completed.set_value();
        first_returned.get_future().wait();
        EXPECT_TRUE(done());
        return PollGroup::Waited::done;
    };
    group.on_wait = [&](const FakeGroup::Done&) {
        EXPECT_TRUE(attr.provide_receive(attr.argument, kBytes, qp.receive));
        EXPECT_TRUE(first.owns(qp.receive.sge[0].address));
        group.on_wait = waits_second;
        group.after_locked = [&] {  // the first call's withdrawal
            other = std::thread([&] { second_got = second.receive(); });
            completed.get_future().wait();
        };
        return PollGroup::Waited::timeout;
    };
    EXPECT_EQ(first.receive(), -1);
    EXPECT_EQ(first.error, EAGAIN);
    first_returned.set_value();
    other.join();
    EXPECT_EQ(second_got, 1000);
}

}  // namespace
}  // namespace xsock::sockets
