// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Links between two Progresses of this process, or one: connections are streams that record what
// they are told.
#include "transport/shm_link.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "tests/unit/shm/link_pair.hpp"
#include "tests/unit/transport/soon.hpp"
#include "transport/descriptors.hpp"
#include "transport/progress.hpp"

namespace xsock {
namespace {

using test::soon;

constexpr std::size_t kHeader = 14;
test::RecordingUlp::Outgoing message(std::size_t bytes) {
    const test::ByteVector all = test::pattern(bytes);
    const auto body = all.begin() + kHeader;
    return {.header = {all.begin(), body}, .payload = {{body, all.end()}}};
}

/// One process' end of a link.
struct Host final : ShmLink::Owner {
    std::unique_ptr<Progress> own_progress;
    Progress* progress = nullptr;
    std::shared_ptr<ShmLink> link;
    shm::CreditPool pool{std::size_t{256} << 20};
    std::map<std::uint64_t, std::unique_ptr<shm::End>> ends;  // by token
    int closed = 0;

    shm::End& make(std::uint64_t token) {
        return *(ends[token] = std::make_unique<shm::End>(pool));
    }
    shm::Stream* on_open(ShmLink&, std::uint64_t token) override {
        const auto found = ends.find(token);
        return found != ends.end() ? &found->second->stream : nullptr;
    }
    void on_link_closed(ShmLink&) override { ++closed; }

    template <typename F>
    auto locked(F&& f) {
        return progress->locked(std::forward<F>(f));
    }
    void send(std::uint64_t token, std::size_t bytes) {
        locked([&](PollCycle&) {
            shm::End& end = *ends.at(token);
            end.ulp.outgoing.push_back(message(bytes));
            end.send();
            link->published();
        });
    }
};

class ShmLinkTest : public ::testing::Test {
  protected:
    void start(ProgressMode mode = ProgressMode::app, bool one_progress = false) {
        TransportConfig config;
        config.progress = mode;
        config.spin = 0;
        for (Host* const host : {&a, &b}) {
            if (host == &b && one_progress) {
                b.progress = a.progress;
                break;
            }
            auto made = Progress::create(epochs, config, 0);
            ASSERT_TRUE(made);
            host->own_progress = std::move(*made);
            host->progress = host->own_progress.get();
            host->progress->ensure_thread();
        }
        int sockets[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets),
                  0);
        auto fd = make_shm_memfd(layout);
        ASSERT_TRUE(fd);
        for (Host* const host : {&a, &b}) {
            auto memory = ShmMemory::map(*fd, layout);
            ASSERT_TRUE(memory);
            const bool creator = host == &a;
            MadeLink made{.memory = std::move(*memory),
                          .layout = layout,
                          .side = creator ? shm::Side::creator : shm::Side::acceptor,
                          .socket = move_and_register(sockets[creator ? 0 : 1]),
                          .id = 17,
                          .peer = {}};
            host->link = std::make_shared<ShmLink>(std::move(made), *host->progress, *host);
            host->locked([&](PollCycle& cycle) { ASSERT_TRUE(host->link->start(cycle)); });
        }
        memory_fd = dup(*fd);
        close_internal_fd(*fd);
    }
    void connect(std::uint64_t token) {
        b.make(token);
        b.locked([&](PollCycle&) { b.ends.at(token)->open(); });
        a.locked([&](PollCycle& cycle) {
            shm::End& end = a.make(token);
            ASSERT_TRUE(a.link->open(end.stream, token, cycle));
            end.open({.initiator = true});
        });
        poll_until([&] { return may_send(token); });
    }
    bool may_send(std::uint64_t token) {
        const bool allowed =
            a.locked([&](PollCycle&) { return a.ends.at(token)->stream.status().tx_allowed; });
        return allowed && b.locked([&](PollCycle&) { return b.ends.at(token)->stream.attached(); });
    }
    template <typename Done>
    void poll_until(Done&& done) {
        const Time end = soon();
        while (!done() && monotonic_now() < end) {
            a.progress->poll();
            b.progress->poll();
        }
        ASSERT_TRUE(done());
    }
    [[nodiscard]] std::size_t received(Host& host, std::uint64_t token) {
        return host.locked([&](PollCycle&) { return host.ends.at(token)->ulp.delivered.size(); });
    }
    static bool readable(int fd, int timeout_ms) {
        pollfd p{fd, POLLIN, 0};
        return ::poll(&p, 1, timeout_ms) == 1;
    }
    void TearDown() override {
        for (Host* const host : {&a, &b}) {
            if (host->progress == nullptr) continue;
            host->locked([&](PollCycle& cycle) {
                host->ends.clear();
                host->link->end(StreamError::none, cycle);
            });
            host->link.reset();
        }
        a.own_progress.reset();
        b.own_progress.reset();
        if (memory_fd >= 0) close(memory_fd);
    }

    [[nodiscard]] std::size_t allocated() const {
        struct stat status {};
        EXPECT_EQ(fstat(memory_fd, &status), 0);
        return static_cast<std::size_t>(status.st_blocks) * 512;
    }

    Epochs epochs;
    Host a, b;
    shm::Layout layout{.ring_bytes = 64 << 10, .slots = 64};
    int memory_fd = -1;
};

TEST_F(ShmLinkTest, carries_messages_both_ways) {
    start();
    connect(1);
    a.send(1, 64);
    b.send(1, 20'000);
    poll_until([&] { return received(b, 1) == 1 && received(a, 1) == 1; });
    EXPECT_EQ(b.ends.at(1)->ulp.delivered.at(0), test::pattern(64));
    EXPECT_EQ(a.ends.at(1)->ulp.delivered.at(0), test::pattern(20'000));
}

TEST_F(ShmLinkTest, has_both_ends_in_one_progress) {
    start(ProgressMode::app, /*one_progress=*/true);
    connect(1);
    for (int i = 0; i < 30; ++i) a.send(1, 1000);
    poll_until([&] { return received(b, 1) == 30; });
}

TEST_F(ShmLinkTest, wakes_a_waiter_by_its_descriptor) {
    start();
    connect(1);
    const int fd = b.progress->embed();  // armed from now on
    while (readable(fd, 0)) b.progress->poll();
    a.send(1, 64);
    ASSERT_TRUE(readable(fd, 10'000));
    while (readable(fd, 0)) b.progress->poll();
    EXPECT_EQ(received(b, 1), 1u);
}

TEST_F(ShmLinkTest, what_is_polled_gets_no_octet) {
    start();
    connect(1);
    for (int i = 0; i < 100; ++i) b.progress->poll();
    a.send(1, 64);
    const int fd = b.progress->epoll_fd();
    EXPECT_FALSE(readable(fd, 0));
    b.progress->poll();
    EXPECT_EQ(received(b, 1), 1u);
}

TEST_F(ShmLinkTest, background_threads_serve_while_nobody_polls) {
    start(ProgressMode::both);
    connect(1);
    for (int i = 0; i < 20; ++i) {
        a.send(1, 3000);
        const Time end = soon();
        while (received(b, 1) < static_cast<std::size_t>(i) + 1 && monotonic_now() < end) {
            std::this_thread::yield();
        }
    }
    EXPECT_EQ(received(b, 1), 20u);
}

TEST_F(ShmLinkTest, a_leader_is_woken_for_what_comes) {
    start();
    connect(1);
    for (int i = 0; i < 50; ++i) {
        std::thread sender([&] { a.send(1, 64); });
        // Read without the lock: the poller is this thread.
        EXPECT_TRUE(b.progress->wait(
            [&] { return b.ends.at(1)->ulp.delivered.size() == static_cast<std::size_t>(i) + 1; },
            soon()));
        sender.join();
    }
}

TEST_F(ShmLinkTest, a_sender_without_credit_goes_on_when_there_is_some) {
    start();
    connect(1);
    shm::End& from = *a.ends.at(1);
    for (int i = 0; i < 200; ++i) from.ulp.outgoing.push_back(message(1000));
    // Only when it is told of room: without credit it waits.
    unsigned rooms = from.rooms + 1;
    poll_until([&] {
        a.locked([&](PollCycle&) {
            if (rooms == from.rooms) return;
            rooms = from.rooms;
            from.send();
            a.link->published();
        });
        return received(b, 1) == 200;
    });
    EXPECT_GT(from.rooms, 0u);
}

TEST_F(ShmLinkTest, memory_of_a_burst_is_given_back_when_the_link_is_idle) {
    constexpr int kConnections = 20, kMessages = 40;
    layout.ring_bytes = 1 << 20;
    start();
    for (std::uint64_t token = 1; token <= kConnections; ++token) connect(token);
    for (std::uint64_t token = 1; token <= kConnections; ++token) {
        for (int i = 0; i < kMessages; ++i) a.send(token, 1500);
    }
    const auto send_all = [&] {
        a.locked([&](PollCycle&) {
            for (auto& [token, end] : a.ends) end->send();
            a.link->published();
        });
    };
    const Time limit = soon();
    while (allocated() < layout.ring_bytes / 2 && monotonic_now() < limit) {
        send_all();
        a.progress->poll();
    }
    EXPECT_GE(allocated(), layout.ring_bytes / 2);
    poll_until([&] {
        send_all();
        for (std::uint64_t token = 1; token <= kConnections; ++token) {
            if (received(b, token) != kMessages) return false;
        }
        return true;
    });
    poll_until([&] { return allocated() <= 200 << 10; });
    a.send(1, 3000);
    poll_until([&] { return received(b, 1) == kMessages + 1; });
}

TEST_F(ShmLinkTest, the_end_of_the_peer_is_told_behind_what_it_published) {
    start();
    connect(1);
    a.send(1, 5000);
    a.locked([&](PollCycle& cycle) { a.link->end(StreamError::none, cycle); });
    EXPECT_EQ(a.closed, 1);
    poll_until([&] { return b.closed == 1; });
    EXPECT_EQ(received(b, 1), 1u);
    ASSERT_EQ(b.ends.at(1)->link_ends.size(), 1u);
    EXPECT_EQ(b.ends.at(1)->link_ends[0], StreamError::none);
}

TEST_F(ShmLinkTest, carries_many_connections) {
    start();
    for (std::uint64_t token = 1; token <= 30; ++token) connect(token);
    for (std::uint64_t token = 1; token <= 30; ++token) a.send(token, 100 * token);
    poll_until([&] {
        for (std::uint64_t token = 1; token <= 30; ++token) {
            if (received(b, token) != 1) return false;
        }
        return true;
    });
    EXPECT_EQ(a.link->connections(), 30u);
    for (std::uint64_t token = 1; token <= 30; ++token) {
        EXPECT_EQ(b.ends.at(token)->ulp.delivered.at(0).size(), 100 * token);
    }
}

}  // namespace
}  // namespace xsock
