// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A connect() in the background: the call behind the moment at which TCP is connected tells of it.
#include <atomic>
#include <functional>

#include "libxsock/poll/handle.hpp"
#include "libxsock/poll/source.hpp"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

struct Ask {
    const char* name;
    std::function<bool(Sock& client, int port)> tells;
};

bool is_writable(Sock& s) {
    pollfd p{s.fd(), POLLOUT, 0};
    xsock_socket* const handle = s.handle();
    const timespec none{};
    return engine().socket_poll(&p, 1, &handle, &none, nullptr) == 1;
}

// Another thread is in the middle of a poll cycle that has asked the kernel before.
void expect_to_be_told(const Ask& ask) {
    SCOPED_TRACE(ask.name);
    Sock listener = Sock::fresh(), client = Sock::fresh();
    ASSERT_EQ(listener.bind_and_listen(), 0);
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
    client.nonblocking();
    ASSERT_EQ(client.connect(listener.port()), -1);
    ASSERT_EQ(errno, EINPROGRESS);
    pollfd kernels{client.fd(), POLLOUT, 0};
    ASSERT_EQ(::poll(&kernels, 1, 20'000), 1);

    std::atomic<bool> polls{false}, asked{false};
    PollGroup* const group = readiness::source_of(client.handle())->progress();
    std::thread other([&] {
        group->locked([&](PollCycle&) {
            polls = true;
            while (!asked) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        });
    });
    while (!polls) std::this_thread::yield();
    asked = true;
    EXPECT_TRUE(ask.tells(client, listener.port()));
    other.join();
}

const Ask kPoll{"poll", [](Sock& client, int) { return is_writable(client); }};
const Ask kConnect{"connect again",
                   [](Sock& client, int port) { return client.connect(port) == 0; }};
const Ask kSend{"send", [](Sock& client, int) { return client.send(std::string("x")) == 1; }};

TEST(SockConnecting, is_told_at_once_while_another_thread_polls) {
    // No thread of the library's is faster.
    with_environment("XSOCK_PROGRESS", "app", [] {
        for (const Ask& ask : {kPoll, kConnect, kSend}) expect_to_be_told(ask);
    });
}

}  // namespace
}  // namespace xsock::test
