// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/shm_folder.hpp"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string_view>

#include "transport/descriptors.hpp"
#include "transport/fork.hpp"
#include "transport/shm_socket.hpp"

namespace xsock {

ShmName::ShmName(std::string path) : path_(std::move(path)), generation_(process_generation()) {}

ShmName& ShmName::operator=(ShmName&& other) noexcept {
    if (this == &other) return *this;
    remove();
    path_ = std::exchange(other.path_, {});
    generation_ = other.generation_;
    return *this;
}

void ShmName::remove() noexcept {
    if (!path_.empty() && generation_ == process_generation()) ::unlink(path_.c_str());
    path_.clear();
}

namespace shm_folder {
namespace {

/// So many names are tried at a time: a folder may hold those of thousands of processes.
constexpr int kMostTried = 256;

/// The name of a key in a folder, as socket calls want it.
class Address {
  public:
    Address(std::string_view folder, std::string_view name) noexcept {
        fits_ = folder.size() + 1 + name.size() < sizeof raw_.sun_path;
        if (!fits_) return;
        char* at = std::copy(folder.begin(), folder.end(), raw_.sun_path);
        *at++ = '/';
        std::copy(name.begin(), name.end(), at);
    }
    [[nodiscard]] bool fits() const noexcept { return fits_; }
    [[nodiscard]] const char* path() const noexcept { return raw_.sun_path; }
    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&raw_);
    }
    static constexpr socklen_t kLength = sizeof(sockaddr_un);

  private:
    sockaddr_un raw_{AF_UNIX, {}};
    bool fits_;
};

bool is_name_of_key(std::string_view name) noexcept {
    return name.size() == 2 * sizeof(shm::Key) &&
           name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// No process listens under this name, and it is our user's.
bool is_stale(const Address& address) noexcept {
    struct stat status {};
    if (lstat(address.path(), &status) != 0 || !S_ISSOCK(status.st_mode) ||
        status.st_uid != geteuid()) {
        return false;
    }
    auto fd = shm_socket::open();
    if (!fd) return false;
    const bool refused =
        ::connect(*fd, address.get(), Address::kLength) != 0 && errno == ECONNREFUSED;
    close_internal_fd(*fd);
    return refused;
}

void remove_stale_names(const std::string& folder) noexcept {
    struct Closer {
        void operator()(DIR* open) const noexcept { closedir(open); }
    };
    const DescriptorChange change;
    const std::unique_ptr<DIR, Closer> open(opendir(folder.c_str()));
    if (open == nullptr) return;
    int tried = 0;
    while (const dirent* const entry = readdir(open.get())) {
        if (!is_name_of_key(entry->d_name)) continue;
        if (++tried > kMostTried) return;
        const Address address(folder, entry->d_name);
        if (address.fits() && is_stale(address)) ::unlink(address.path());
    }
}

}  // namespace

Result<std::pair<int, ShmName>> listen_in(const std::string& folder, const shm::Key& key) {
    const Address address(folder, shm::text_of(key).data());
    if (!address.fits()) return Error{ENAMETOOLONG, "the folder's name is too long"};
    remove_stale_names(folder);
    auto fd = shm_socket::open();
    if (!fd) return fd.error();
    ShmName name;
    int error = 0;
    try {
        name = ShmName(address.path());
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    }
    // The file's mode follows the umask, and users who are admitted must reach it.
    if (error == 0 &&
        (::bind(*fd, address.get(), Address::kLength) != 0 || ::chmod(address.path(), 0666) != 0 ||
         ::listen(*fd, shm_socket::kBacklog) != 0)) {
        error = errno;
    }
    if (error != 0) {
        close_internal_fd(*fd);
        return Error{error, "no name in the folder can be listened under"};
    }
    return std::pair(*fd, std::move(name));
}

Result<int> connect_in(const std::string& folder, const shm::Key& key) noexcept {
    const Address address(folder, shm::text_of(key).data());
    if (!address.fits()) return Error{ENAMETOOLONG, "the folder's name is too long"};
    auto fd = shm_socket::open();
    if (!fd) return fd;
    if (::connect(*fd, address.get(), Address::kLength) != 0) {
        const Error error{errno, "the other process cannot be reached"};
        close_internal_fd(*fd);
        return error;
    }
    return fd;
}

}  // namespace shm_folder
}  // namespace xsock
