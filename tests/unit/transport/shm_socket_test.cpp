// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "tests/unit/transport/shm_peer.hpp"

namespace xsock {
namespace {

using test::open_descriptors;
using test::random_key;

constexpr std::array<std::byte, 3> kDatagram{std::byte{1}, std::byte{2}, std::byte{3}};

struct Pair {
    Pair() {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        a = ends[0];
        b = ends[1];
    }
    ~Pair() {
        close(a);
        close(b);
    }
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
    int a = -1, b = -1;
};

// Sends a datagram with these descriptors.
void send_with(int fd, const std::vector<int>& descriptors) {
    iovec data{const_cast<std::byte*>(kDatagram.data()), kDatagram.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
    ASSERT_EQ(sendmsg(fd, &message, 0), static_cast<ssize_t>(kDatagram.size()));
}

TEST(ShmSocket, connects_by_a_name_that_the_key_gives) {
    const shm::Key key = random_key();
    const auto listening = shm_socket::listen_at(key);
    ASSERT_TRUE(listening);
    std::ifstream names("/proc/net/unix");
    const std::string all((std::istreambuf_iterator<char>(names)), {});
    EXPECT_NE(all.find(std::string("@xsock-shm-1-") + shm::text_of(key).data() + "\n"),
              std::string::npos);
    EXPECT_EQ(shm_socket::accept_from(listening.value()).error().code, EAGAIN);
    const auto client = shm_socket::connect_to(key);
    ASSERT_TRUE(client);
    const auto server = shm_socket::accept_from(listening.value());
    ASSERT_TRUE(server);
    for (const int fd : {listening.value(), client.value(), server.value()}) {
        EXPECT_TRUE(is_internal_fd(fd));
        EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
        EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    }
    EXPECT_TRUE(shm_socket::send(client.value(), kDatagram));
    std::array<std::byte, 8> bytes;
    const auto received = shm_socket::receive(server.value(), bytes);
    ASSERT_TRUE(received);
    EXPECT_EQ(received.value().bytes, kDatagram.size());
    EXPECT_EQ(received.value().descriptor, -1);
    EXPECT_EQ(shm_socket::receive(server.value(), bytes).error().code, EAGAIN);
    close_internal_fd(client.value());
    EXPECT_EQ(shm_socket::receive(server.value(), bytes).value().bytes, 0u);
    EXPECT_EQ(shm_socket::send(server.value(), kDatagram).error().code, EPIPE);
    for (const int fd : {listening.value(), server.value()}) close_internal_fd(fd);
}

TEST(ShmSocket, a_name_is_taken_once_and_gone_with_its_socket) {
    const shm::Key key = random_key();
    const auto listening = shm_socket::listen_at(key);
    const std::size_t before = open_descriptors();
    EXPECT_EQ(shm_socket::listen_at(key).error().code, EADDRINUSE);
    EXPECT_EQ(open_descriptors(), before);
    close_internal_fd(listening.value());
    EXPECT_EQ(shm_socket::connect_to(key).error().code, ECONNREFUSED);
    EXPECT_EQ(open_descriptors(), before - 1);
}

TEST(ShmSocket, one_descriptor_is_taken) {
    const Pair pair;
    ASSERT_TRUE(shm_socket::send(pair.a, kDatagram, pair.a));
    std::array<std::byte, 8> bytes;
    const auto received = shm_socket::receive(pair.b, bytes);
    ASSERT_TRUE(received);
    ASSERT_GE(received.value().descriptor, 0);
    EXPECT_TRUE(is_internal_fd(received.value().descriptor));
    EXPECT_EQ(fcntl(received.value().descriptor, F_GETFD), FD_CLOEXEC);
    close_internal_fd(received.value().descriptor);
}

TEST(ShmSocket, of_several_descriptors_none_is_kept) {
    const Pair pair;
    const std::size_t before = open_descriptors();
    for (const std::size_t count : {2, 3, 4, 5, 6, 16}) {
        send_with(pair.a, std::vector<int>(count, pair.a));
        std::array<std::byte, 8> bytes;
        const auto received = shm_socket::receive(pair.b, bytes);
        ASSERT_TRUE(received);
        EXPECT_EQ(received.value().bytes, kDatagram.size());
        EXPECT_EQ(received.value().descriptor, -1) << count;
        EXPECT_EQ(open_descriptors(), before) << count;
    }
}

TEST(ShmSocket, a_descriptor_that_there_is_no_number_for_is_none) {
    const Pair pair;
    ASSERT_TRUE(shm_socket::send(pair.a, kDatagram, pair.a));
    std::array<std::byte, 8> bytes;
    const test::DescriptorLimit limit(0);
    const auto received = shm_socket::receive(pair.b, bytes);
    ASSERT_TRUE(received);
    EXPECT_EQ(received.value().descriptor, -1);
}

TEST(ShmSocket, what_does_not_fit_is_lost) {
    const Pair pair;
    ASSERT_TRUE(shm_socket::send(pair.a, kDatagram));
    ASSERT_TRUE(shm_socket::send(pair.a, ConstBytes(kDatagram).first(1)));
    std::array<std::byte, 2> bytes;
    EXPECT_EQ(shm_socket::receive(pair.b, bytes).value().bytes, 2u);
    EXPECT_EQ(shm_socket::receive(pair.b, bytes).value().bytes, 1u);
}

TEST(ShmSocket, permits_our_own_user_and_those_that_were_named) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    const shm::Key key = random_key();
    const auto listening = shm_socket::listen_at(key);
    const std::vector<uid_t> none, other{test::kOtherUser}, unmapped{65534};
    const auto permitted = [&](uid_t user, const std::vector<uid_t>& users) {
        EXPECT_EQ(test::as_user(user, [&] { return shm_socket::connect_to(key) ? 0 : 1; }), 0);
        const auto server = shm_socket::accept_from(listening.value());
        EXPECT_TRUE(server);
        const bool is = shm_socket::is_peer_permitted(server.value(), users);
        close_internal_fd(server.value());
        return is;
    };
    EXPECT_TRUE(permitted(0, none));
    EXPECT_FALSE(permitted(test::kOtherUser, none));
    EXPECT_TRUE(permitted(test::kOtherUser, other));
    EXPECT_FALSE(permitted(65534, unmapped));
    close_internal_fd(listening.value());
}

// Two processes of the user that stands for all unknown ones are as unlike as any others.
TEST(ShmSocket, permits_nobody_to_nobody) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    const Pair pair;
    EXPECT_EQ(test::as_user(65534,
                            [] {
                                const Pair own;
                                return shm_socket::is_peer_permitted(own.a, {}) ? 1 : 0;
                            }),
              0);
    EXPECT_TRUE(shm_socket::is_peer_permitted(pair.a, {}));
}

// That of listen(), not of now.
TEST(ShmSocket, sees_the_user_who_listened) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    const shm::Key key = random_key();
    ASSERT_EQ(seteuid(test::kOtherUser), 0);
    const auto listening = shm_socket::listen_at(key);
    ASSERT_EQ(seteuid(0), 0);
    const auto client = shm_socket::connect_to(key);
    ASSERT_TRUE(client);
    EXPECT_FALSE(shm_socket::is_peer_permitted(client.value(), {}));
    const uid_t other = test::kOtherUser;
    EXPECT_TRUE(shm_socket::is_peer_permitted(client.value(), {&other, 1}));
    close_internal_fd(client.value());
    close_internal_fd(listening.value());
}

TEST(ShmSocket, says_why_there_is_no_shared_memory) {
    EXPECT_EQ(shm_socket::reason_of({ECONNREFUSED, ""}), shm::Reason::unreachable);
    EXPECT_EQ(shm_socket::reason_of({EMFILE, ""}), shm::Reason::limits);
    EXPECT_EQ(shm_socket::reason_of({ENOMEM, ""}), shm::Reason::limits);
    EXPECT_EQ(shm_socket::reason_of({EPIPE, ""}), shm::Reason::user);
    EXPECT_EQ(shm_socket::reason_of({EPERM, ""}), shm::Reason::unreachable);
}

}  // namespace
}  // namespace xsock
