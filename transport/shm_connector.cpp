// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_connector.hpp"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "base/page_size.hpp"
#include "base/random.hpp"
#include "shm/hello.hpp"
#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/shm_folder.hpp"
#include "transport/shm_socket.hpp"

namespace xsock {
namespace {

shm::Reason reason_of(shm::HelloError error) noexcept {
    switch (error) {
        case shm::HelloError::none:
            return shm::Reason::none;
        case shm::HelloError::version:
        case shm::HelloError::memory:
            return shm::Reason::version;
        case shm::HelloError::limits:
            return shm::Reason::limits;
    }
    return shm::Reason::version;
}

}  // namespace

ShmConnector::ShmConnector(Progress& progress, const shm::Key& peer, const shm::Key& own,
                           Owner& owner) noexcept
    : progress_(progress), peer_(peer), own_(own), owner_(owner), id_(random_u64()) {}

ShmConnector::~ShmConnector() {
    if (fd_ >= 0) close_internal_fd(fd_);
}

shm::Reason ShmConnector::start(std::span<const uid_t> users, Time timeout, PollCycle& cycle,
                                const std::string& folder) {
    auto fd = shm_socket::connect_to(peer_);
    if (!fd && fd.error().code == ECONNREFUSED && !folder.empty()) {
        fd = shm_folder::connect_in(folder, peer_);
    }
    if (!fd) return shm_socket::reason_of(fd.error());
    fd_ = *fd;
    if (!shm_socket::is_peer_permitted(fd_, users)) return shm::Reason::user;
    if (auto sent = send_hello(); !sent) return shm_socket::reason_of(sent.error());
    if (auto added = progress_.add(shared_from_this(), fd_, EPOLLIN); !added) {
        return shm_socket::reason_of(added.error());
    }
    try {
        progress_.set_deadline(*this, time_after(cycle.now(), timeout));
    } catch (...) {
        close();
        throw;
    }
    return shm::Reason::none;
}

// The memory is mapped before anything is promised.
Result<void> ShmConnector::send_hello() {
    const shm::Hello hello{.link = id_,
                           .creator = own_,
                           .page_bytes = static_cast<std::uint32_t>(page_size()),
                           .layout = {}};
    const auto datagram = shm::encode(hello);
    auto descriptor = make_shm_memfd(hello.layout);
    if (!descriptor) return descriptor.error();
    auto memory = ShmMemory::map(*descriptor, hello.layout);
    Result<void> sent = memory ? shm_socket::send(fd_, datagram, *descriptor) : memory.error();
    close_internal_fd(*descriptor);
    if (sent) memory_.emplace(std::move(*memory));
    return sent;
}

void ShmConnector::close() noexcept {
    const DescriptorChange change;
    progress_.remove(*this);
    if (fd_ >= 0) close_internal_fd(std::exchange(fd_, -1));
}

void ShmConnector::fail(shm::Reason why, PollCycle& cycle) noexcept {
    const auto self = weak_from_this().lock();
    close();
    owner_.on_failed(*this, why, cycle);
}

// An answer comes without a descriptor; one that is there is none of ours to keep.
void ShmConnector::on_ready(std::uint32_t, PollCycle& cycle) {
    std::array<std::byte, 64> bytes;
    auto received = shm_socket::receive(fd_, bytes);
    if (!received && received.error().code == EAGAIN) return;
    if (!received) return fail(shm_socket::reason_of(received.error()), cycle);
    if (received->descriptor >= 0) close_internal_fd(received->descriptor);
    if (received->bytes == 0) return fail(shm::Reason::user, cycle);
    const auto answer = shm::decode_hello_answer(ConstBytes(bytes).first(received->bytes));
    const shm::Reason why = answer ? reason_of(*answer) : shm::Reason::version;
    if (why != shm::Reason::none) return fail(why, cycle);
    const auto self = shared_from_this();
    progress_.remove(*this);
    owner_.on_made(*this,
                   {.memory = std::move(*memory_),
                    .layout = {},
                    .side = shm::Side::creator,
                    .socket = std::exchange(fd_, -1),
                    .id = id_,
                    .peer = peer_},
                   cycle);
}

}  // namespace xsock
