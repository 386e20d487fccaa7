// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the process does around a connection: it exits with work queued, it forks and the child
// exits, signals arrive while it waits.
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "include/xsock/xsock.h"
#include "tests/system/process.hpp"

namespace xsock::test {
namespace {

constexpr std::uint32_t kParts = 16;
constexpr std::uint32_t kLargeBytes = 1024 * 1024;  // all parts: more than sockets hold
constexpr std::uint32_t kPieceBytes = kSanitized ? 64 * 1024 : kLargeBytes;
constexpr int kLimitMs = 20'000;

unsigned char piece_byte(std::uint32_t piece, std::uint32_t i) {
    return static_cast<unsigned char>((i * 2654435761u + piece * 40503u) >> 13);
}

// What is sent or written to. Never destroyed.
std::vector<unsigned char>& the_memory() {
    static auto& memory = *new std::vector<unsigned char>(std::size_t{kParts} * kLargeBytes);
    return memory;
}

// Of a program whose later exit handlers use the memory for something else, and take long.
constexpr unsigned char kOther = 0xee;
struct {
    xsock_ep* ep;
    xsock_cq* cq;
} left;
void use_memory_again() {
    std::vector<unsigned char>& memory = the_memory();
    std::fill(memory.begin(), memory.end(), kOther);
    REQUIRE(write(1, "used\n", 5) == 5);
    char c;
    REQUIRE(read(0, &c, 1) >= 0);
    const auto is_other = [](unsigned char byte) { return byte != kOther; };
    REQUIRE(std::none_of(memory.begin(), memory.end(), is_other));
    // What was the program's is still its to give back.
    REQUIRE(xsock_ep_close(left.ep) == 0 && xsock_cq_destroy(left.cq) == 0);
}

// Connects, and waits for the peer's first message, which says that it is ready.
void open_left(const char* port, xsock_ep_attr& attr) {
    attr.send_cq = xsock_cq_create(nullptr);
    REQUIRE(attr.send_cq != nullptr);
    left = {xsock_connect("127.0.0.1", port, &attr, kLimitMs), attr.send_cq};
    REQUIRE(left.ep != nullptr);
    char go[4];
    xsock_wc wc;
    REQUIRE(xsock_recv(left.ep, 0, go, sizeof go) == 0);
    REQUIRE(xsock_cq_wait(left.cq, &wc, 1, 1, kLimitMs) == 1 && wc.status == 0);
}

// Queues everything and exits, at once and in good order.
int sender(const char* port, bool reuses) {
    std::vector<unsigned char>& memory = the_memory();
    const std::uint32_t piece_bytes = reuses ? kLargeBytes : kPieceBytes;
    // Ahead of the library's own handler, so it runs behind it.
    if (reuses) REQUIRE(std::atexit(use_memory_again) == 0);
    for (std::uint32_t p = 0; p < kParts; ++p) {
        for (std::uint32_t i = 0; i < piece_bytes; ++i) {
            memory[std::size_t{p} * piece_bytes + i] = piece_byte(p, i);
        }
    }
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.rnr_timeout_ms = -1;
    open_left(port, attr);  // what is queued at exit has little time
    for (std::uint32_t p = 0; p < kParts; ++p) {
        REQUIRE(xsock_send(left.ep, p, &memory[std::size_t{p} * piece_bytes], piece_bytes,
                           XSOCK_UNSIGNALED | (reuses ? XSOCK_SNAPSHOT : 0)) == 0);
    }
    std::exit(0);
}

// Exits with memory that the peer may write to.
int target(const char* port) {
    std::vector<unsigned char>& memory = the_memory();
    REQUIRE(std::atexit(use_memory_again) == 0);
    xsock_key key;
    xsock_mr* const mr =
        xsock_mr_register(nullptr, memory.data(), memory.size(), XSOCK_REMOTE_WRITE, nullptr);
    REQUIRE(mr != nullptr && xsock_mr_key(mr, 0, memory.size(), &key) == 0);
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.private_data = &key;
    attr.private_data_length = sizeof key;
    open_left(port, attr);
    REQUIRE(memory[0] == 1);  // the peer wrote it ahead of its message
    std::exit(0);
}

struct Server {
    Server() {
        XSOCK_INIT(xsock_ep_attr, attr);
        attr.send_cq = cq;
        attr.rnr_timeout_ms = -1;
        REQUIRE((listener = xsock_listen("127.0.0.1", "0", 4, &attr)) != nullptr);
        port = std::to_string(xsock_listener_port(listener));
    }
    ~Server() {
        REQUIRE(xsock_listener_close(listener) == 0);
        REQUIRE(xsock_cq_destroy(cq) == 0);
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    xsock_cq* const cq = xsock_cq_create(nullptr);
    xsock_listener* listener = nullptr;
    std::string port;
};

void exit_drains() {
    Server server;
    Child child({"--sender", server.port});
    xsock_ep* const ep = xsock_accept(server.listener, kLimitMs);
    REQUIRE(ep != nullptr);
    std::vector<std::vector<unsigned char>> memory(kParts);
    for (std::uint32_t p = 0; p < kParts; ++p) {
        memory[p].resize(kPieceBytes);
        REQUIRE(xsock_recv(ep, p, memory[p].data(), kPieceBytes) == 0);
    }
    REQUIRE(xsock_send(ep, kParts, "go", 3, XSOCK_UNSIGNALED) == 0);
    for (std::uint32_t p = 0; p < kParts; ++p) {
        xsock_wc wc;
        REQUIRE(xsock_cq_wait(server.cq, &wc, 1, 1, kLimitMs) == 1);
        if (wc.status != XSOCK_WC_SUCCESS || wc.wr_id != p || wc.length != kPieceBytes) {
            die("after exit: piece %u of %u: %s", p, kParts, xsock_wc_str(wc.status));
        }
        for (std::uint32_t i = 0; i < kPieceBytes; i += 97) {
            REQUIRE(memory[p][i] == piece_byte(p, i));
        }
    }
    REQUIRE(child.status() == 0);
    REQUIRE(xsock_ep_close(ep) == 0);
    std::printf("exit: %u MiB arrived\n", kParts * kPieceBytes >> 20);
}

// The peer takes nothing until the sender's exit() has stopped waiting and the memory is used for
// something else: what then comes whole is what was sent. (By snapshots, for what is changed
// between its CRC and its way to TCP never comes whole.)
void nothing_is_sent_from_memory_that_is_used_again() {
    Server server;
    Child child({"--sender", server.port, "--reuses"});
    xsock_ep* const ep = xsock_accept(server.listener, kLimitMs);
    REQUIRE(ep != nullptr);
    REQUIRE(xsock_send(ep, kParts, "go", 3, XSOCK_UNSIGNALED) == 0);
    REQUIRE(child.line() == "used");
    std::vector<unsigned char> memory(kLargeBytes);
    std::uint32_t whole = 0;
    for (;; ++whole) {
        REQUIRE(whole < kParts);  // some had to wait
        xsock_wc wc;
        if (xsock_recv(ep, whole, memory.data(), kLargeBytes) != 0) break;
        REQUIRE(xsock_cq_wait(server.cq, &wc, 1, 1, kLimitMs) == 1 && wc.wr_id == whole);
        if (wc.status != XSOCK_WC_SUCCESS) break;
        REQUIRE(wc.length == kLargeBytes);
        for (std::uint32_t i = 0; i < kLargeBytes; ++i) {
            if (memory[i] != piece_byte(whole, i)) {
                die("byte %u of piece %u is %#x: of what the memory was used for later", i, whole,
                    memory[i]);
            }
        }
    }
    REQUIRE(!child.ended());  // it was not its end that ended the connection
    child.release();
    REQUIRE(child.status() == 0);
    REQUIRE(xsock_ep_close(ep) == 0);
    std::printf("exit: nothing is sent behind its time, %u pieces came before\n", whole);
}

// The peer goes on writing behind the target's exit(), to memory that is used for something else.
void nothing_is_placed_in_memory_that_is_used_again() {
    Server server;
    Child child({"--target", server.port});
    xsock_ep* const ep = xsock_accept(server.listener, kLimitMs);
    REQUIRE(ep != nullptr);
    const xsock_remote remote = memory_of_peer(ep);
    unsigned char data[4096];
    std::fill(std::begin(data), std::end(data), static_cast<unsigned char>(1));
    const auto write = [&](std::uint64_t offset) {
        return xsock_write(ep, 1, data, sizeof data, &remote, offset, XSOCK_UNSIGNALED);
    };
    REQUIRE(write(0) == 0 && xsock_send(ep, 2, "go", 3, XSOCK_UNSIGNALED) == 0);
    const auto write_all = [&] {
        std::uint64_t posted = 0;
        while (posted < 100 && write(posted * sizeof data) == 0) {
            ++posted;
            sleep_us(100);
        }
        return posted;
    };
    write_all();  // while it exits
    REQUIRE(child.line() == "used");
    const std::uint64_t late = write_all();
    REQUIRE(late > 0);
    sleep_us(100'000);
    child.release();
    REQUIRE(child.status() == 0);
    REQUIRE(xsock_ep_abort(ep) == 0);
    std::printf("exit: nothing is placed behind it, of %llu Writes\n",
                static_cast<unsigned long long>(late));
}

/// Both ends in this process.
struct Loop : Server {
    Loop() {
        XSOCK_INIT(xsock_ep_attr, attr);
        attr.send_cq = client_cq;
        REQUIRE((client = xsock_connect("127.0.0.1", port.c_str(), &attr, kLimitMs)) != nullptr);
        REQUIRE((peer = xsock_accept(listener, kLimitMs)) != nullptr);
    }
    ~Loop() {
        REQUIRE(xsock_ep_abort(client) == 0 && xsock_ep_abort(peer) == 0);
        REQUIRE(xsock_cq_destroy(client_cq) == 0);
    }
    void exchange(int times) {
        for (int i = 0; i < times; ++i) {
            char in[8] = {};
            REQUIRE(xsock_recv(peer, 1, in, sizeof in) == 0);
            REQUIRE(xsock_send(client, 2, "message", 8, 0) == 0);
            xsock_wc wc;
            REQUIRE(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs) == 1 && wc.status == 0 && wc.wr_id == 1);
            REQUIRE(std::strcmp(in, "message") == 0);
            REQUIRE(xsock_cq_wait(client_cq, &wc, 1, 1, kLimitMs) == 1 && wc.wr_id == 2);
        }
    }
    xsock_cq* const client_cq = xsock_cq_create(nullptr);
    xsock_ep* client = nullptr;
    xsock_ep* peer = nullptr;
};

void forked_child_disturbs_nothing() {
    Loop loop;
    loop.exchange(10);
    for (int i = 0; i < 10; ++i) {
        // Something is under way while the child comes and goes.
        char in[8];
        REQUIRE(xsock_recv(loop.peer, 7, in, sizeof in) == 0);
        const pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            xsock_wc wc;
            const bool refused = xsock_send(loop.client, 0, "child", 6, 0) == -1 &&
                                 errno == EPERM && xsock_cq_poll(loop.cq, &wc, 1) == -1 &&
                                 errno == EPERM && xsock_ep_close(loop.client) == -1;
            if (!refused) _exit(9);
            if (i % 2 == 0) _exit(0);
            std::exit(0);  // through the exit handlers
        }
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid);
        if (status != 0) die("forked child ended with %#x", static_cast<unsigned>(status));
        REQUIRE(xsock_send(loop.client, 0, "parent", 7, XSOCK_UNSIGNALED) == 0);
        xsock_wc wc;
        REQUIRE(xsock_cq_wait(loop.cq, &wc, 1, 1, kLimitMs) == 1 && wc.status == 0 &&
                wc.wr_id == 7);
        REQUIRE(std::strcmp(in, "parent") == 0);
        loop.exchange(10);
    }
    std::printf("fork: children left no trace\n");
}

std::atomic<int> interruptions{0};

// `restart`: whether system calls are restarted after the handler.
void signals_do_not_break_waits(bool restart) {
    Loop loop;
    struct sigaction action = {};
    action.sa_handler = [](int) { ++interruptions; };
    action.sa_flags = restart ? SA_RESTART : 0;
    REQUIRE(sigaction(SIGINT, &action, nullptr) == 0);
    REQUIRE(sigaction(SIGALRM, &action, nullptr) == 0);
    interruptions = 0;
    const itimerval often{{0, 2000}, {0, 2000}};
    REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0);

    // A wait lasts as long as it was asked to, with nothing to find.
    xsock_wc wc;
    const std::uint64_t begin = now_us();
    REQUIRE(xsock_cq_wait(loop.cq, &wc, 1, 1, 300) == 0);
    const std::uint64_t took = now_us() - begin;
    if (took < 295'000u || took > 1'000'000u * kSlow) {
        die("a wait of 300 ms took %llu us among signals", static_cast<unsigned long long>(took));
    }
    errno = 0;
    const std::uint64_t accepting = now_us();
    REQUIRE(xsock_accept(loop.listener, 100) == nullptr && errno == EAGAIN);
    REQUIRE(now_us() - accepting >= 95'000u);
    loop.exchange(2000 / kSlow);
    // SIGINT to the process while it waits; what comes afterwards is found.
    std::thread other([&] {
        sigset_t mask;
        sigfillset(&mask);
        pthread_sigmask(SIG_BLOCK, &mask, nullptr);
        for (int i = 0; i < 20; ++i) {
            kill(getpid(), SIGINT);
            sleep_us(2000);
        }
        REQUIRE(xsock_send(loop.client, 0, "late", 5, XSOCK_UNSIGNALED | XSOCK_INLINE) == 0);
    });
    char in[8];
    REQUIRE(xsock_recv(loop.peer, 3, in, sizeof in) == 0);
    REQUIRE(xsock_cq_wait(loop.cq, &wc, 1, 1, kLimitMs) == 1 && wc.wr_id == 3 && wc.status == 0);
    other.join();
    const itimerval never{};
    REQUIRE(setitimer(ITIMER_REAL, &never, nullptr) == 0);
    REQUIRE(interruptions > 100);
    std::printf("signals (%s): %d, no wait broken\n", restart ? "restarting" : "interrupting",
                interruptions.load());
}

volatile pid_t handlers_child = -1;

// A handler forks in the middle of a wait without a time limit, and returns on both sides: in the
// child, where nothing comes, the wait ends; in the parent it goes on.
void handler_that_forks_ends_the_childs_wait() {
    Loop loop;
    struct sigaction action = {};
    action.sa_handler = [](int) {
        handlers_child = fork();
        if (handlers_child != 0) return;
        signal(SIGALRM, SIG_DFL);
        alarm(kLimitMs / 1000);
    };
    action.sa_flags = SA_RESTART;
    REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
    const pthread_t waiting = pthread_self();
    std::thread other([&] {
        sleep_us(200'000);
        pthread_kill(waiting, SIGUSR1);
        sleep_us(200'000);
        REQUIRE(xsock_send(loop.client, 0, "late", 5, XSOCK_UNSIGNALED | XSOCK_INLINE) == 0);
    });
    char in[8];
    xsock_wc wc;
    REQUIRE(xsock_recv(loop.peer, 3, in, sizeof in) == 0);
    const int n = xsock_cq_wait(loop.cq, &wc, 1, 1, -1);
    if (handlers_child == 0) _exit(n == 0 ? 0 : 1);
    REQUIRE(n == 1 && wc.wr_id == 3);
    int status = -1;
    REQUIRE(waitpid(handlers_child, &status, 0) == handlers_child && status == 0);
    other.join();
    std::printf("fork in a handler: the child's wait ends\n");
}

}  // namespace
}  // namespace xsock::test

int main(int argc, char** argv) {
    using namespace xsock::test;
    if (argc == 3 && std::strcmp(argv[1], "--target") == 0) return target(argv[2]);
    if (argc >= 3 && std::strcmp(argv[1], "--sender") == 0) return sender(argv[2], argc == 4);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // nothing for a forked child to print again
    exit_drains();
    if (!kSanitized) {  // there the engine's handler is older than main(), and runs last
        nothing_is_sent_from_memory_that_is_used_again();
        nothing_is_placed_in_memory_that_is_used_again();
    }
    forked_child_disturbs_nothing();
    signals_do_not_break_waits(true);
    signals_do_not_break_waits(false);
    handler_that_forks_ends_the_childs_wait();
    return 0;
}
