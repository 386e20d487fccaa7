// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// By hand: libpcap reads pcapng but writes pcap, without limit and uncompressed.
#include "transport/pcapng_writer.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "include/xsock/xsock.h"
#include "transport/descriptors.hpp"

namespace xsock {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A, kInterface = 1, kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr std::uint16_t kLinkEthernet = 1;
constexpr std::uint16_t kOptEnd = 0, kShbUserAppl = 4, kIfName = 2, kIfDescription = 3,
                        kIfTsResol = 9, kEpbFlags = 2;
constexpr std::uint8_t kNanoseconds = 9;

constexpr std::uint64_t kFlushBytes = 1024 * 1024;
constexpr std::uint64_t kFlushNs = kSecond;
// What ends a gzip file: the last block and its trailer.
constexpr std::uint64_t kGzipEnd = 64;
constexpr int kGzipWindow = 15 + 16;  // "add 16 ... to write a simple gzip header and trailer"

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

constexpr std::size_t padded(std::size_t n) { return (n + 3) & ~std::size_t{3}; }

}  // namespace

Result<std::unique_ptr<PcapngWriter>> PcapngWriter::create(const Options& options) {
    // The path may lie in a world-writable folder: our own file, not a link of another user's, and
    // a pipe must not block us.
    int fd = -1;
    {
        const DescriptorChange change;
        fd = move_and_register(::open(
            options.path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    }
    if (fd < 0) return Error{errno, "cannot be written"};
    struct stat status {};
    int error = 0;
    // NOLINTNEXTLINE(bugprone-branch-clone): the calls are made in this order
    if (fstat(fd, &status) != 0) {
        error = errno;
    } else if (!S_ISREG(status.st_mode)) {
        error = EINVAL;
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        error = errno;
    } else if (ftruncate(fd, 0) != 0) {
        error = errno;
    }
    if (error != 0) {
        close_internal_fd(fd);
        return Error{error, error == EINVAL ? "is not a regular file" : "cannot be written"};
    }
    std::unique_ptr<PcapngWriter> writer(
        new PcapngWriter(options, fd, ends_with(options.path, ".gz")));
    if (!writer->open()) return Error{ENOMEM, "zlib cannot be used"};
    writer->add_headers();
    if (!writer->flush(0)) {
        if (writer->error() == 0) return Error{EFBIG, "has no room within XSOCK_PCAP_SIZE"};
        return Error{writer->error(), "cannot be written"};
    }
    return writer;
}

PcapngWriter::PcapngWriter(const Options& options, int fd, bool compress)
    : options_(options), fd_(fd), compress_(compress) {
    if (compress_ &&
        deflateInit2(&z_, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        compress_ = false;
        close_internal_fd(fd_);
        fd_ = -1;
    }
}

PcapngWriter::~PcapngWriter() { close(); }

// ---- blocks ---------------------------------------------------------------

void PcapngWriter::put(const void* from, std::size_t n) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    blocks_.insert(blocks_.end(), bytes, bytes + n);
}

void PcapngWriter::put_option(std::uint16_t code, const std::string& text) {
    const auto length = static_cast<std::uint16_t>(std::min<std::size_t>(text.size(), 1024));
    put_u16(code);
    put_u16(length);
    put(text.data(), length);
    blocks_.resize(padded(blocks_.size()));
}

std::size_t PcapngWriter::begin_block(std::uint32_t type) {
    const std::size_t begin = blocks_.size();
    put_u32(type);
    put_u32(0);  // length: end_block()
    return begin;
}

void PcapngWriter::end_block(std::size_t begin) {
    constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
    const auto length = static_cast<std::uint32_t>(blocks_.size() - begin + kLengthBytes);
    put_u32(length);
    std::memcpy(blocks_.data() + begin + kLengthBytes, &length, kLengthBytes);
}

void PcapngWriter::add_headers() {
    std::size_t block = begin_block(kSectionHeader);
    put_u32(kByteOrderMagic);
    put_u16(1);  // version 1.0
    put_u16(0);
    const std::uint64_t unknown = ~std::uint64_t{0};  // length of the section
    put(&unknown, sizeof unknown);
    put_option(kShbUserAppl, "xsock " + std::to_string(XSOCK_VERSION_MAJOR) + "." +
                                 std::to_string(XSOCK_VERSION_MINOR) + "." +
                                 std::to_string(XSOCK_VERSION_PATCH));
    put_option(kOptEnd, "");
    end_block(block);

    block = begin_block(kInterface);
    put_u16(kLinkEthernet);
    put_u16(0);
    put_u32(options_.snap);
    put_option(kIfName, "xsock");
    put_option(kIfDescription, options_.interface_description);
    put_option(kIfTsResol, std::string(1, static_cast<char>(kNanoseconds)));
    put_option(kOptEnd, "");
    end_block(block);
}

void PcapngWriter::add(ConstBytes frame, std::uint64_t time_ns, Direction direction) {
    if (fd_ < 0) return;
    const std::size_t kept = std::min<std::size_t>(frame.size(), options_.snap);
    const std::size_t block = begin_block(kEnhancedPacket);
    put_u32(0);  // the interface
    put_u32(static_cast<std::uint32_t>(time_ns >> 32));
    put_u32(static_cast<std::uint32_t>(time_ns));
    put_u32(static_cast<std::uint32_t>(kept));
    put_u32(static_cast<std::uint32_t>(frame.size()));
    put(frame.data(), kept);
    blocks_.resize(padded(blocks_.size()));
    put_u16(kEpbFlags);
    put_u16(4);
    put_u32(static_cast<std::uint32_t>(direction));
    put_option(kOptEnd, "");
    end_block(block);
}

// ---- the file -------------------------------------------------------------

bool PcapngWriter::flush(std::uint64_t time_ns) {
    if (fd_ < 0) return false;
    bool full = false, written = true;
    if (!compress_) {
        full = blocks_.size() > options_.size_max - std::min(file_bytes_, options_.size_max);
        if (!full) written = write_all(blocks_.data(), blocks_.size());
    } else {
        // What zlib holds back counts as if it could not be compressed; when that would not fit,
        // a flush tells how much it really is.
        const auto fits = [&] {
            const auto more = static_cast<uLong>(unflushed_ + blocks_.size());
            return file_bytes_ + deflateBound(&z_, more) + kGzipEnd <= options_.size_max;
        };
        if (!fits()) written = deflate_all(nullptr, 0, Z_SYNC_FLUSH);
        full = !fits();
        if (written && !full) {
            const bool due = unflushed_ + blocks_.size() >= kFlushBytes || time_ns == 0 ||
                             time_ns - flushed_ns_ >= kFlushNs;
            written = deflate_all(blocks_.data(), blocks_.size(), due ? Z_SYNC_FLUSH : Z_NO_FLUSH);
            if (due) flushed_ns_ = time_ns;
        }
    }
    blocks_.clear();
    if (written && !full) return true;
    if (full) error_ = 0;
    close();
    return false;
}

void PcapngWriter::close() noexcept {
    if (fd_ < 0) return;
    if (compress_) {
        [[maybe_unused]] const bool ended = deflate_all(nullptr, 0, Z_FINISH);
        deflateEnd(&z_);
        compress_ = false;
    }
    close_internal_fd(fd_);
    fd_ = -1;
}

bool PcapngWriter::deflate_all(const std::byte* from, std::size_t n, int flush) {
    scratch_.resize(64 * 1024);
    z_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(from));
    z_.avail_in = static_cast<uInt>(n);
    do {
        z_.next_out = reinterpret_cast<Bytef*>(scratch_.data());
        z_.avail_out = static_cast<uInt>(scratch_.size());
        const int result = deflate(&z_, flush);
        if (result == Z_STREAM_ERROR) {
            error_ = EIO;
            return false;
        }
        if (!write_all(scratch_.data(), scratch_.size() - z_.avail_out)) return false;
    } while (z_.avail_out == 0);
    unflushed_ = flush == Z_NO_FLUSH ? unflushed_ + n : 0;
    return true;
}

bool PcapngWriter::write_all(const std::byte* from, std::size_t n) {
    while (n > 0) {
        const ssize_t written = ::write(fd_, from, n);
        if (written < 0) {
            if (errno == EINTR) continue;
            error_ = errno;
            return false;
        }
        from += written;
        n -= static_cast<std::size_t>(written);
        file_bytes_ += static_cast<std::uint64_t>(written);
    }
    return true;
}

}  // namespace xsock
