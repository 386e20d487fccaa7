// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A pcapng file (draft-ietf-opsawg-pcapng) that grows block by block and never beyond a limit; gzip
// when its name ends in ".gz". One interface, Ethernet, times in nanoseconds. Used by Capture,
// under its lock.
//
// Each write holds whole blocks, so that what a killed process leaves behind opens; of a compressed
// file that is what was written up to the last flush, at most a second or a mebibyte before.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace xsock {

class PcapngWriter {
  public:
    struct Options {
        std::string path;
        std::uint64_t size_max = 0;  ///< bytes of the file
        std::uint32_t snap = 0;      ///< bytes kept of each frame
        std::string interface_description;
    };
    enum class Direction : std::uint8_t { inbound = 1, outbound = 2 };

    /// Creates or empties the file (mode 0600, no link is followed) and writes its headers. The
    /// file stays locked while it is open: another writer finds EWOULDBLOCK.
    static Result<std::unique_ptr<PcapngWriter>> create(const Options& options);
    ~PcapngWriter();
    PcapngWriter(const PcapngWriter&) = delete;
    PcapngWriter& operator=(const PcapngWriter&) = delete;

    /// Adds a frame. @param time_ns since 1970
    void add(ConstBytes frame, std::uint64_t time_ns, Direction direction);
    /// Hands what was added to the system. False: the file is full or cannot be written any more;
    /// it is then closed, and error() says which (0: full). Nothing is added to a closed file.
    bool flush(std::uint64_t time_ns);
    /// Completes and closes the file.
    void close() noexcept;

    [[nodiscard]] bool open() const noexcept { return fd_ >= 0; }
    [[nodiscard]] int error() const noexcept { return error_; }

  private:
    PcapngWriter(const Options& options, int fd, bool compress);
    void add_headers();
    void put(const void* from, std::size_t n);
    void put_u16(std::uint16_t v) { put(&v, sizeof v); }
    void put_u32(std::uint32_t v) { put(&v, sizeof v); }
    void put_option(std::uint16_t code, const std::string& text);
    [[nodiscard]] std::size_t begin_block(std::uint32_t type);
    void end_block(std::size_t begin);
    bool write_all(const std::byte* from, std::size_t n);
    bool deflate_all(const std::byte* from, std::size_t n, int flush);

    Options options_;
    int fd_ = -1;
    int error_ = 0;
    bool compress_ = false;
    z_stream z_{};
    std::vector<std::byte> blocks_;   // whole blocks, not yet written
    std::vector<std::byte> scratch_;  // compressed bytes on their way
    std::uint64_t file_bytes_ = 0;    // written
    std::uint64_t unflushed_ = 0;     // given to zlib since its last flush
    std::uint64_t flushed_ns_ = 0;
};

}  // namespace xsock
