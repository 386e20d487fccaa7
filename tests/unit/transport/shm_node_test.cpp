// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two hosts of one process, each with a Progress of its own, or one for both.
#include "transport/shm_node.hpp"

#include "tests/unit/sanitizers.hpp"
#include "tests/unit/shm/link_pair.hpp"
#include "tests/unit/transport/failing_allocations.hpp"
#include "tests/unit/transport/shm_peer.hpp"

namespace xsock {
namespace {

using shm::Reason;
using test::open_descriptors;

struct Waiter final : ShmWaiter {
    void on_link(ShmLink& made, PollCycle&) noexcept override {
        ++calls;
        link = &made;
        id = made.id();
    }
    void on_no_link(Reason reason, PollCycle&) noexcept override {
        ++calls;
        why = reason;
    }
    ShmLink* link = nullptr;
    std::uint64_t id = 0;
    Reason why = Reason::none;
    int calls = 0;
};

struct Responder final : ShmResponder {
    explicit Responder(shm::CreditPool& pool) : end(pool) {}
    shm::Stream* on_open(ShmLink& used) override {
        ++calls;
        link = &used;
        return &end.stream;
    }
    shm::End end;
    ShmLink* link = nullptr;
    int calls = 0;
};

struct Host {
    explicit Host(Progress& with, const ShmConfig& config) : progress(with) {
        auto made = ShmNode::create(progress, config);
        EXPECT_TRUE(made);
        node = *made;
    }
    template <typename F>
    auto locked(F&& f) const {
        return progress.locked(std::forward<F>(f));
    }
    shm::Key listen() const {
        EXPECT_EQ(locked([&](PollCycle&) { return node->listen(); }), Reason::none);
        return node->key();
    }
    void want(const shm::Key& peer, Waiter& waiter) const {
        locked([&](PollCycle& cycle) { node->want_link(peer, waiter, cycle); });
    }

    Progress& progress;
    std::shared_ptr<ShmNode> node;
};

class ShmNodeTest : public test::ShmTest {
  protected:
    void SetUp() override {
        test::ShmTest::SetUp();
        second = make_progress(1);
        ASSERT_TRUE(second);
        config.timeout = test::kLong;
        a = std::make_unique<Host>(*progress, config);
        b = std::make_unique<Host>(*second, config);
    }
    void TearDown() override {
        for (auto* const p : {&progress, &second}) p->reset();
    }
    /// Polls both.
    [[nodiscard]] bool until(const std::function<bool()>& done) const {
        const Time end = monotonic_now() + test::kLong;
        while (!done()) {
            if (monotonic_now() >= end) return false;
            progress->poll_thoroughly();
            second->poll_thoroughly();
        }
        return true;
    }
    /// A link that `from` has made.
    std::uint64_t make_link(const Host& from, const Host& to) const {
        Waiter waiter;
        from.want(to.listen(), waiter);
        EXPECT_TRUE(until([&] { return waiter.calls != 0; }));
        EXPECT_NE(waiter.link, nullptr) << shm::name_of(waiter.why);
        return waiter.id;
    }

    std::unique_ptr<Progress> second;
    ShmConfig config;
    std::unique_ptr<Host> a, b;
};

TEST_F(ShmNodeTest, listens_when_it_must_and_keeps_its_key) {
    const std::size_t before = open_descriptors();
    const shm::Key key = a->listen();
    EXPECT_EQ(open_descriptors(), before + 1);
    EXPECT_EQ(a->listen(), key);
    EXPECT_EQ(open_descriptors(), before + 1);
    EXPECT_NE(b->listen(), key);
}

TEST_F(ShmNodeTest, one_link_serves_both_directions) {
    const std::uint64_t id = make_link(*a, *b);
    Waiter again, back;
    a->want(b->node->key(), again);  // at once
    EXPECT_EQ(again.id, id);
    b->want(a->listen(), back);
    EXPECT_EQ(back.id, id);
    EXPECT_EQ(again.calls + back.calls, 2);
}

TEST_F(ShmNodeTest, those_that_want_the_same_wait_together) {
    const shm::Key key = b->listen();
    Waiter waiters[3], forgotten;
    a->want(key, waiters[0]);
    const std::size_t items = progress->size();
    a->want(key, forgotten);
    for (int i = 1; i < 3; ++i) a->want(key, waiters[i]);
    EXPECT_EQ(progress->size(), items);
    a->locked([&](PollCycle&) { a->node->forget(forgotten); });
    ASSERT_TRUE(until([&] { return waiters[2].calls != 0; }));
    for (const Waiter& waiter : waiters) {
        EXPECT_EQ(waiter.calls, 1);
        EXPECT_EQ(waiter.id, waiters[0].id);
        EXPECT_NE(waiter.link, nullptr);
    }
    EXPECT_EQ(forgotten.calls, 0);
}

TEST_F(ShmNodeTest, says_why_there_is_none) {
    Waiter waiter;
    a->want(test::random_key(), waiter);
    EXPECT_EQ(waiter.calls, 1);
    EXPECT_EQ(waiter.why, Reason::unreachable);
}

TEST_F(ShmNodeTest, a_peer_that_leaves_in_between_ends_the_wait) {
    const shm::Key key = test::random_key();
    const int listening = *shm_socket::listen_at(key);
    Waiter waiters[2];
    for (Waiter& waiter : waiters) a->want(key, waiter);
    close_internal_fd(listening);
    ASSERT_TRUE(until([&] { return waiters[0].calls != 0; }));
    EXPECT_EQ(waiters[0].why, Reason::user);
    EXPECT_EQ(waiters[1].why, Reason::user);
}

TEST_F(ShmNodeTest, both_may_make_one_at_once) {
    Waiter from_a, from_b;
    const shm::Key key_a = a->listen(), key_b = b->listen();
    a->want(key_b, from_a);
    b->want(key_a, from_b);
    ASSERT_TRUE(until([&] { return from_a.calls != 0 && from_b.calls != 0; }));
    EXPECT_NE(from_a.link, nullptr);
    EXPECT_NE(from_b.link, nullptr);
    ASSERT_TRUE(until([&] { return progress->size() == 3 && second->size() == 3; }));
    Waiter later;
    a->want(key_b, later);
    EXPECT_NE(later.link, nullptr);
}

TEST_F(ShmNodeTest, a_token_finds_its_responder_once) {
    make_link(*a, *b);
    Responder responder(b->node->credit());
    shm::End first(a->node->credit()), second_end(a->node->credit());
    const std::uint64_t token = b->locked([&](PollCycle&) { return b->node->expect(responder); });
    Waiter waiter;
    a->want(b->node->key(), waiter);
    a->locked([&](PollCycle& cycle) {
        EXPECT_TRUE(waiter.link->open(first.stream, token, cycle));
        EXPECT_TRUE(waiter.link->open(second_end.stream, token, cycle));
    });
    ASSERT_TRUE(until([&] { return responder.calls != 0 && second_end.aborts != 0; }));
    EXPECT_EQ(responder.calls, 1);
    EXPECT_EQ(responder.link->id(), waiter.id);
    EXPECT_TRUE(responder.end.stream.attached());
    EXPECT_EQ(responder.end.stream.slot(), first.stream.slot());
    EXPECT_EQ(responder.end.stream.generation(), first.stream.generation());
}

TEST_F(ShmNodeTest, a_responder_that_has_gone_is_not_found) {
    make_link(*a, *b);
    Responder responder(b->node->credit());
    shm::End end(a->node->credit());
    const std::uint64_t token = b->locked([&](PollCycle&) {
        const std::uint64_t given = b->node->expect(responder);
        b->node->stop_expecting(given);
        b->node->stop_expecting(given);
        return given;
    });
    Waiter waiter;
    a->want(b->node->key(), waiter);
    a->locked([&](PollCycle& cycle) { EXPECT_TRUE(waiter.link->open(end.stream, token, cycle)); });
    ASSERT_TRUE(until([&] { return end.aborts != 0; }));
    EXPECT_EQ(responder.calls, 0);
}

// The peer's answer has come over TCP; the ok to our hello, and its slot, wait to be served.
TEST_F(ShmNodeTest, polls_a_link_that_was_made_a_moment_ago) {
    Responder responder(a->node->credit());
    const std::uint64_t token = a->locked([&](PollCycle&) { return a->node->expect(responder); });
    Waiter waiter, opener;
    a->want(b->listen(), waiter);
    const shm::Key key_a = a->listen();
    shm::End end(b->node->credit());
    const Time limit = monotonic_now() + test::kLong;
    while (second->size() < 2 && monotonic_now() < limit) second->poll_thoroughly();
    b->want(key_a, opener);
    ASSERT_NE(opener.link, nullptr);
    b->locked([&](PollCycle& cycle) { EXPECT_TRUE(opener.link->open(end.stream, token, cycle)); });
    EXPECT_EQ(waiter.calls, 0);
    a->locked([&](PollCycle& cycle) { a->node->poll_links(opener.id, cycle); });
    EXPECT_EQ(waiter.id, opener.id);
    EXPECT_EQ(responder.calls, 1);
}

TEST_F(ShmNodeTest, both_ends_may_be_here) {
    Responder responder(a->node->credit());
    shm::End end(a->node->credit());
    const std::uint64_t token = a->locked([&](PollCycle&) { return a->node->expect(responder); });
    const std::uint64_t id = make_link(*a, *a);
    Waiter waiter;
    a->want(a->node->key(), waiter);
    EXPECT_EQ(waiter.id, id);
    a->locked([&](PollCycle& cycle) {
        EXPECT_TRUE(waiter.link->open(end.stream, token, cycle));
        a->node->poll_links(id, cycle);
        a->node->poll_links(id + 1, cycle);
    });
    ASSERT_TRUE(until([&] { return responder.calls != 0; }));
    EXPECT_NE(responder.link, waiter.link);
    EXPECT_EQ(responder.link->id(), id);
}

TEST_F(ShmNodeTest, a_link_that_has_ended_is_made_anew) {
    const std::uint64_t id = make_link(*a, *b);
    Waiter waiter;
    a->want(b->node->key(), waiter);
    a->locked([&](PollCycle& cycle) { waiter.link->end(StreamError::none, cycle); });
    EXPECT_NE(make_link(*a, *b), id);
    ASSERT_TRUE(until([&] { return second->size() == 2; }));  // the other end has gone too
}

// All Progresses of a process together.
TEST_F(ShmNodeTest, links_take_a_quarter_of_the_descriptors) {
    constexpr unsigned kLinks = 2;
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    TransportConfig of_many;
    of_many.threads = static_cast<unsigned>(limit.rlim_cur / 4 / kLinks);
    auto third = make_progress(2, of_many);
    ASSERT_TRUE(third);
    const Host host(*third, config);
    const shm::Key key = host.listen();
    const auto say_hello = [&] {
        const int fd = *shm_socket::connect_to(key);
        auto memory = make_shm_memfd({});
        const shm::Hello hello{.link = random_u64(),
                               .creator = test::random_key(),
                               .page_bytes = static_cast<std::uint32_t>(page_size()),
                               .layout = {}};
        EXPECT_TRUE(shm_socket::send(fd, shm::encode(hello), *memory));
        close_internal_fd(*memory);
        third->poll_thoroughly();
        return fd;
    };
    std::vector<int> fds;
    for (unsigned i = 0; i < kLinks; ++i) {
        fds.push_back(say_hello());
        EXPECT_EQ(answer_at(fds.back()), shm::HelloError::none);
    }
    const int one_more = say_hello();
    EXPECT_EQ(answer_at(one_more), shm::HelloError::limits);
    Waiter waiter, later;
    host.want(test::random_key(), waiter);
    EXPECT_EQ(waiter.why, Reason::limits);
    for (const int fd : {fds[0], fds[1], one_more}) close_internal_fd(fd);
    ASSERT_TRUE(third->wait([&] { return third->size() == 1; }, monotonic_now() + test::kLong));
    host.want(test::random_key(), later);
    EXPECT_EQ(later.why, Reason::unreachable);
    third.reset();
}

// What the kernel shows to the peer is who listened and connected.
TEST_F(ShmNodeTest, another_effective_user_begins_anew) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    const std::uint64_t id = make_link(*a, *b);
    const shm::Key key = b->node->key();
    ASSERT_EQ(seteuid(test::kOtherUser), 0);
    const shm::Key key_then = b->listen();
    Waiter old, later;
    a->want(key, old);
    a->want(key_then, later);
    const bool made = until([&] { return later.calls != 0; });
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_NE(key_then, key);
    EXPECT_EQ(old.why, Reason::unreachable);
    ASSERT_TRUE(made);
    ASSERT_NE(later.link, nullptr);
    EXPECT_NE(later.id, id);
    Waiter root;  // root again: not by the link of the other user
    a->want(key_then, root);
    EXPECT_NE(root.id, later.id);
    EXPECT_TRUE(until([&] { return root.calls != 0; }));
    EXPECT_EQ(root.why, Reason::user);
}

TEST_F(ShmNodeTest, a_forked_child_has_no_descriptor_of_it) {
    const auto ours = [] {
        std::vector<int> all;
        for (int fd = 0; fd < 8192; ++fd) {
            if (is_internal_fd(fd)) all.push_back(fd);
        }
        return all;
    };
    const std::size_t before = ours().size();
    make_link(*a, *b);
    const std::vector<int> fds = ours();
    EXPECT_GE(fds.size(), before + 3) << "a listener and both ends of the link";
    const int status = test::as_user(geteuid(), [&] {
        for (const int fd : fds) {
            if (fcntl(fd, F_GETFD) >= 0) return 1;
        }
        return 0;
    });
    EXPECT_EQ(status, 0);
}

// Each that waits is answered once, and nothing is left, whichever allocation fails.
TEST_F(ShmNodeTest, memory_that_runs_out_costs_a_link_and_nothing_else) {
#if defined(XSOCK_TEST_ASAN)
    GTEST_SKIP() << "AddressSanitizer wants the allocator for itself: no allocation fails";
#endif
    const shm::Key key = b->listen();
    for (const bool all : {false, true}) {
        bool more = true;
        for (int at = 0; more; ++at) {
            Waiter waiters[2];
            {
                const test::FailAllocation fail(at, all);
                for (Waiter& waiter : waiters) a->want(key, waiter);
                for (int i = 0; i < 50 && waiters[1].calls == 0; ++i) {
                    progress->poll_thoroughly();
                    second->poll_thoroughly();
                }
                more = fail.happened();
            }
            ASSERT_TRUE(until([&] { return waiters[0].calls != 0 && waiters[1].calls != 0; }))
                << at << all;
            for (const Waiter& waiter : waiters) {
                EXPECT_EQ(waiter.calls, 1) << at << all;
                EXPECT_TRUE(more || waiter.link != nullptr) << at << all;
            }
            for (const Waiter& waiter : waiters) {
                if (waiter.link == nullptr || waiter.link->ended()) continue;
                a->locked([&](PollCycle& cycle) { waiter.link->end(StreamError::none, cycle); });
                break;  // it is the same
            }
            ASSERT_TRUE(until([&] { return progress->size() == 0 && second->size() == 1; }))
                << at << all;
            ASSERT_LT(at, 200);
        }
    }
}

}  // namespace
}  // namespace xsock
