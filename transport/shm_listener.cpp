// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_listener.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "base/page_size.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/shm_socket.hpp"

namespace xsock {
namespace {

constexpr int kAcceptsPerCycle = 16;
constexpr Time kPause = 100 * kMillisecond;

bool is_readable(int fd) noexcept {
    pollfd p{fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

}  // namespace

// ---- one that has connected -------------------------------------------------

class ShmListener::Incoming final : public Pollable {
  public:
    Incoming(ShmListener& listener, int fd) noexcept : listener_(listener), fd_(fd) {}
    ~Incoming() override {
        if (fd_ >= 0) close_internal_fd(fd_);
    }
    void close() noexcept {
        const DescriptorChange change;
        listener_.progress_.remove(*this);
        if (fd_ >= 0) close_internal_fd(std::exchange(fd_, -1));
    }

    void on_ready(std::uint32_t, PollCycle& cycle) override;
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle&) override { listener_.remove(*this); }
    void on_failure(PollCycle&) noexcept override { listener_.remove(*this); }

  private:
    shm::HelloError take(ConstBytes datagram, int descriptor, PollCycle& cycle);

    ShmListener& listener_;
    int fd_;
};

void ShmListener::Incoming::on_ready(std::uint32_t, PollCycle& cycle) {
    std::array<std::byte, 64> bytes;
    auto received = shm_socket::receive(fd_, bytes);
    if (!received && received.error().code == EAGAIN) return;
    if (!received) return listener_.remove(*this);
    const auto error = take(ConstBytes(bytes).first(received->bytes), received->descriptor, cycle);
    if (error == shm::HelloError::none) return;
    if (received->bytes != 0) {
        static_cast<void>(shm_socket::send(fd_, shm::encode_answer(error)));
    }
    listener_.remove(*this);
}

shm::HelloError ShmListener::Incoming::take(ConstBytes datagram, int descriptor, PollCycle& cycle) {
    const auto [error, hello] =
        shm::decode_hello(datagram, static_cast<std::uint32_t>(page_size()));
    const bool sound = error == shm::HelloError::none;
    Result<ShmMemory> memory = sound ? ShmMemory::map(descriptor, hello.layout) : Error{EINVAL, ""};
    if (descriptor >= 0) close_internal_fd(descriptor);
    if (!sound) return error;
    if (!memory) {
        return memory.error().code == ENOMEM ? shm::HelloError::limits : shm::HelloError::memory;
    }
    listener_.forget(*this);  // the link registers the socket anew
    listener_.owner_.on_hello({.memory = std::move(*memory),
                               .layout = hello.layout,
                               .side = shm::Side::acceptor,
                               .socket = std::exchange(fd_, -1),
                               .id = hello.link,
                               .peer = hello.creator},
                              cycle);
    return shm::HelloError::none;
}

// ---- all of them ------------------------------------------------------------

ShmListener::ShmListener(Progress& progress, int fd, ShmName name, std::span<const uid_t> users,
                         Time timeout, Owner& owner) noexcept
    : progress_(progress),
      fd_(fd),
      name_(std::move(name)),
      users_(users),
      timeout_(timeout),
      owner_(owner) {}

Result<std::shared_ptr<ShmListener>> ShmListener::create(Progress& progress, const shm::Key& key,
                                                         std::span<const uid_t> users, Time timeout,
                                                         Owner& owner) {
    auto fd = shm_socket::listen_at(key);
    if (!fd) return fd.error();
    return start(*fd, {}, progress, users, timeout, owner);
}

Result<std::shared_ptr<ShmListener>> ShmListener::create_in(const std::string& folder,
                                                            Progress& progress, const shm::Key& key,
                                                            std::span<const uid_t> users,
                                                            Time timeout, Owner& owner) {
    auto made = shm_folder::listen_in(folder, key);
    if (!made) return made.error();
    return start(made->first, std::move(made->second), progress, users, timeout, owner);
}

// Takes the descriptor.
Result<std::shared_ptr<ShmListener>> ShmListener::start(int fd, ShmName name, Progress& progress,
                                                        std::span<const uid_t> users, Time timeout,
                                                        Owner& owner) {
    std::shared_ptr<ShmListener> listener;
    try {
        listener =
            std::make_shared<ShmListener>(progress, fd, std::move(name), users, timeout, owner);
    } catch (const std::bad_alloc&) {
        close_internal_fd(fd);
        return Error{ENOMEM, "no memory for the listener"};
    }
    if (auto added = progress.add(listener, fd, EPOLLIN); !added) return added.error();
    progress.watch_rarely(*listener);
    return listener;
}

ShmListener::~ShmListener() {
    if (fd_ >= 0) close_internal_fd(fd_);
}

void ShmListener::close() noexcept {
    while (!unfinished_.empty()) remove(*unfinished_.front());
    name_.remove();
    const DescriptorChange change;
    progress_.remove(*this);
    if (fd_ >= 0) close_internal_fd(std::exchange(fd_, -1));
}

void ShmListener::forget(Incoming& incoming) noexcept {
    progress_.remove(incoming);
    std::erase_if(unfinished_, [&](const auto& entry) { return entry.get() == &incoming; });
}

void ShmListener::remove(Incoming& incoming) noexcept {
    const auto self = incoming.weak_from_this().lock();
    forget(incoming);
    incoming.close();
}

void ShmListener::on_ready(std::uint32_t, PollCycle& cycle) {
    if (!paused_) accept_some(cycle);
}

void ShmListener::on_time(PollCycle& cycle) {
    paused_ = false;
    progress_.modify(*this, EPOLLIN);
    accept_some(cycle);
}

void ShmListener::on_failure(PollCycle& cycle) noexcept { pause(cycle); }

void ShmListener::pause(PollCycle& cycle) noexcept {
    try {
        progress_.set_deadline(*this, time_after(cycle.now(), kPause));
    } catch (const std::bad_alloc&) {
        return;  // it is tried again at once
    }
    paused_ = true;
    progress_.modify(*this, EPOLLET);
}

void ShmListener::accept_some(PollCycle& cycle) {
    for (int i = 0; i < kAcceptsPerCycle && fd_ >= 0; ++i) {
        auto fd = shm_socket::accept_from(fd_);
        if (fd) {
            add(*fd, cycle);
            continue;
        }
        const int error = fd.error().code;
        if (error == EAGAIN) return;
        if (error == EINTR || error == ECONNABORTED) continue;
        // Out of descriptors or memory, or another process has shut the socket down. Without a
        // number the kernel does not check whether one waits.
        if (!is_readable(fd_)) return;
        if (unfinished_.empty()) return pause(cycle);
        remove(*unfinished_.front());
    }
}

// Takes it. Other users are told nothing, and nothing of theirs is read.
void ShmListener::add(int fd, PollCycle& cycle) {
    if (!shm_socket::is_peer_permitted(fd, users_)) return close_internal_fd(fd);
    std::shared_ptr<Incoming> incoming;
    try {
        incoming = std::make_shared<Incoming>(*this, fd);
    } catch (const std::bad_alloc&) {
        return close_internal_fd(fd);
    }
    if (unfinished_.size() == kMostUnfinished) remove(*unfinished_.front());
    call(*incoming, cycle, [&] {
        unfinished_.push_back(incoming);
        if (!progress_.add(incoming, fd, EPOLLIN)) return remove(*incoming);
        progress_.set_deadline(*incoming, time_after(cycle.now(), timeout_));
        incoming->on_ready(EPOLLIN, cycle);  // most of them have said all there is to say
    });
}

}  // namespace xsock
