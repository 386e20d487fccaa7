// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Capture and the file it writes (PcapngWriter). That others can read it is what
// tests/system/wireshark_test.sh shows.
#include "transport/capture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "base/fault.hpp"
#include "include/xsock/iwarp.h"
#include "tests/unit/folder.hpp"
#include "tests/unit/loopback.hpp"
#include "transport/pcapng_writer.hpp"

namespace xsock {
namespace {

namespace fs = std::filesystem;
using ByteVector = std::vector<std::byte>;

class CaptureFile : public ::testing::Test {
  protected:
    [[nodiscard]] static ByteVector content(const fs::path& path) {
        ByteVector bytes;
        const gzFile file = gzopen(path.c_str(), "rb");
        for (int n = 1; n > 0;) {
            std::byte piece[4096];
            n = gzread(file, piece, sizeof piece);
            if (n > 0) bytes.insert(bytes.end(), piece, piece + n);
        }
        gzclose_r(file);
        return bytes;
    }

    /// The packets of a pcapng file. Fails the test when a block is not whole, unless the last one
    /// may be cut.
    [[nodiscard]] static std::vector<ByteVector> packets(const ByteVector& file,
                                                         bool may_be_cut = false) {
        std::vector<ByteVector> out;
        std::size_t at = 0;
        while (at < file.size()) {
            std::uint32_t type = 0, length = 0, again = 0, kept = 0;
            if (file.size() - at < 12) break;
            std::memcpy(&type, &file[at], 4);
            std::memcpy(&length, &file[at + 4], 4);
            if (length % 4 != 0 || length < 12 || length > file.size() - at) break;
            std::memcpy(&again, &file[at + length - 4], 4);
            EXPECT_EQ(again, length);
            if (type == 6) {
                std::memcpy(&kept, &file[at + 20], 4);
                const auto* const begin = &file[at + 28];
                out.emplace_back(begin, begin + kept);
            }
            at += length;
        }
        EXPECT_TRUE(may_be_cut || at == file.size()) << "not whole blocks: " << at;
        return out;
    }

    const test::Folder made;
    const fs::path folder = made.path();
};

// ---- the file ---------------------------------------------------------------

PcapngWriter::Options options_for(const fs::path& path) {
    return {path.string(), 1 << 20, 65535, "test"};
}

TEST_F(CaptureFile, what_is_flushed_is_whole_while_the_file_is_open) {
    auto writer = PcapngWriter::create(options_for(folder / "a.pcapng"));
    ASSERT_TRUE(writer);
    const ByteVector frame(61, std::byte{3});
    for (int i = 0; i < 10; ++i) {
        (*writer)->add(frame, 1, PcapngWriter::Direction::inbound);
        ASSERT_TRUE((*writer)->flush(1));
        EXPECT_EQ(packets(content(folder / "a.pcapng")).size(), static_cast<std::size_t>(i + 1));
    }
    struct stat status {};
    ASSERT_EQ(stat((folder / "a.pcapng").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(CaptureFile, stops_at_its_size_and_stays_whole) {
    for (const char* name : {"a.pcapng", "a.pcapng.gz"}) {
        auto options = options_for(folder / name);
        options.size_max = 20000;
        auto writer = PcapngWriter::create(options);
        ASSERT_TRUE(writer);
        ByteVector frame(1000);
        std::uint32_t noise = 1;
        int added = 0;
        for (; added < 1000; ++added) {
            for (std::byte& byte : frame) {  // nothing that zlib can shrink
                noise = noise * 1664525 + 1013904223;
                byte = static_cast<std::byte>(noise >> 24);
            }
            (*writer)->add(frame, 1, PcapngWriter::Direction::outbound);
            if (!(*writer)->flush(1)) break;
        }
        EXPECT_EQ((*writer)->error(), 0);
        EXPECT_FALSE((*writer)->open());
        EXPECT_FALSE((*writer)->flush(1));
        EXPECT_LE(fs::file_size(folder / name), 20000u);
        EXPECT_GE(fs::file_size(folder / name), 15000u);
        EXPECT_EQ(packets(content(folder / name)).size(), static_cast<std::size_t>(added));
    }
}

TEST_F(CaptureFile, keeps_snap_bytes_of_each_frame) {
    auto options = options_for(folder / "a.pcapng.gz");
    options.snap = 64;
    auto writer = PcapngWriter::create(options);
    ASSERT_TRUE(writer);
    (*writer)->add(ByteVector(1000, std::byte{1}), 1, PcapngWriter::Direction::inbound);
    (*writer)->close();
    const ByteVector file = content(folder / "a.pcapng.gz");
    EXPECT_TRUE(packets(file).empty()) << "what was not flushed is dropped";

    auto again = PcapngWriter::create(options);
    ASSERT_TRUE(again);
    (*again)->add(ByteVector(1000, std::byte{1}), 1, PcapngWriter::Direction::inbound);
    ASSERT_TRUE((*again)->flush(2));
    (*again)->close();
    const auto all = packets(content(folder / "a.pcapng.gz"));
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].size(), 64u);
}

TEST_F(CaptureFile, refuses_links_pipes_and_files_in_use) {
    ASSERT_EQ(symlink("elsewhere", (folder / "link").c_str()), 0);
    EXPECT_EQ(PcapngWriter::create(options_for(folder / "link")).error().code, ELOOP);
    EXPECT_FALSE(fs::exists(folder / "elsewhere"));
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    const int reader = open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
    EXPECT_EQ(PcapngWriter::create(options_for(folder / "pipe")).error().code, EINVAL);
    close(reader);
    EXPECT_EQ(PcapngWriter::create(options_for(folder / "no" / "file")).error().code, ENOENT);
    auto writer = PcapngWriter::create(options_for(folder / "a"));
    ASSERT_TRUE(writer);
    EXPECT_EQ(PcapngWriter::create(options_for(folder / "a")).error().code, EWOULDBLOCK);
    auto tiny = options_for(folder / "b");
    tiny.size_max = 50;
    EXPECT_EQ(PcapngWriter::create(tiny).error().code, EFBIG);
}

// ---- connections ------------------------------------------------------------

/// A forked process with XSOCK_PCAP (and more) in its environment; its failures are ours.
void in_process(const std::vector<std::pair<const char*, std::string>>& environment,
                const std::function<void()>& body) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
        body();
        _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
}

struct Loopback {
    explicit Loopback(int family) {
        const test::LoopbackPair pair = test::loopback_pair(family);
        near = pair.client;
        far = pair.server;
    }
    ~Loopback() {
        close(near);
        close(far);
    }
    int near = -1, far = -1;
};

void send(Capture& capture, const ByteVector& bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    capture.sent({&piece, 1}, bytes.size());
}

ByteVector request() {
    ByteVector out(20);
    std::memcpy(out.data(), MPA_KEY_REQUEST, 16);
    out[17] = std::byte{1};
    return out;
}

std::uint32_t folded(ConstBytes bytes, std::uint32_t sum) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        sum += std::to_integer<std::uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

TEST_F(CaptureFile, a_connection_reads_as_tcp_with_right_numbers_and_checksums) {
    for (const int family : {AF_INET, AF_INET6}) {
        const fs::path path = folder / ("a" + std::to_string(family));
        in_process({{"XSOCK_PCAP", path.string()}}, [&] {
            const Loopback pair(family);
            auto capture = Capture::begin(pair.near, true);
            ASSERT_NE(capture, nullptr);
            send(*capture, request());
            ByteVector reply = request();
            std::memcpy(reply.data(), MPA_KEY_REPLY, 16);
            capture->received(reply);
            send(*capture, ByteVector(8));
            capture->received(ConstBytes(reply).first(3));  // never completed
            capture->sent_fin();
            capture->received_fin();
            capture.reset();
            Capture::finish_all();
            EXPECT_EQ(Capture::begin(pair.near, true), nullptr) << "the file is closed";
        });
        const auto frames = packets(content(path));
        ASSERT_EQ(frames.size(), 3u + 4u + 3u);
        const std::size_t ip_bytes = family == AF_INET ? 20 : 40;
        const std::size_t addresses = 14 + (family == AF_INET ? 12 : 8);
        std::uint32_t next[2] = {0, 0};
        for (const ByteVector& frame : frames) {
            const ConstBytes tcp = ConstBytes(frame).subspan(14 + ip_bytes);
            const bool ours = frame[11] == std::byte{1};
            EXPECT_EQ(load_be32(tcp.data() + 4), next[ours ? 0 : 1]);
            const auto flags = std::to_integer<unsigned>(tcp[13]);
            const bool ack = (flags & 16) != 0;
            EXPECT_EQ(load_be32(tcp.data() + 8), ack ? next[ours ? 1 : 0] : 0);
            const std::size_t header = std::to_integer<std::size_t>(tcp[12]) / 16 * 4;
            next[ours ? 0 : 1] += static_cast<std::uint32_t>(tcp.size() - header);
            if ((flags & 3) != 0) ++next[ours ? 0 : 1];
            if (family == AF_INET) {
                EXPECT_EQ(folded(ConstBytes(frame).subspan(14, 20), 0), 0xffffu);
            }
            const auto pseudo = static_cast<std::uint32_t>(IPPROTO_TCP + tcp.size());
            EXPECT_EQ(folded(ConstBytes(frame).subspan(addresses), pseudo), 0xffffu);
        }
        EXPECT_EQ(next[0], 1 + 20 + 8 + 1u);
        EXPECT_EQ(next[1], 1 + 20 + 3 + 1u);
    }
}

TEST_F(CaptureFile, two_processes_of_one_name_and_a_forked_child_keep_apart) {
    in_process({{"XSOCK_PCAP", (folder / "a.pcapng.gz").string()}}, [&] {
        const Loopback pair(AF_INET);
        auto capture = Capture::begin(pair.near, true);
        ASSERT_NE(capture, nullptr);
        const pid_t child = fork();
        if (child == 0) {
            send(*capture, ByteVector(8));  // the parent's: ignored
            auto own = Capture::begin(pair.far, false);
            EXPECT_NE(own, nullptr);
            own.reset();
            Capture::finish_all();
            _exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
        EXPECT_EQ(packets(content(folder / ("a." + std::to_string(child) + ".pcapng.gz"))).size(),
                  3u);
        capture.reset();
        Capture::finish_all();
    });
    EXPECT_EQ(packets(content(folder / "a.pcapng.gz")).size(), 3u);
}

TEST_F(CaptureFile, an_unwritable_path_or_a_senseless_size_is_one_line) {
    const std::string path = (folder / "no" / "file").string();
    const std::string lines = (folder / "lines").string();
    in_process({{"XSOCK_PCAP", path}, {"XSOCK_PCAP_SIZE", "12Q"}}, [&] {
        const int fd = open(lines.c_str(), O_WRONLY | O_CREAT, 0600);
        dup2(fd, STDERR_FILENO);
        const Loopback pair(AF_INET);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(Capture::begin(pair.near, true), nullptr);
    });
    std::ifstream in(lines);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
    EXPECT_NE(text.find("bad-setting: XSOCK_PCAP_SIZE=12Q"), std::string::npos) << text;
    EXPECT_NE(text.find("capture-failed: XSOCK_PCAP: " + path), std::string::npos) << text;
}

TEST_F(CaptureFile, survives_memory_that_is_gone) {
    const fs::path path = folder / "a";
    in_process({{"XSOCK_PCAP", path.string()}}, [&] {
        fault::install();
        const Loopback pair(AF_INET);
        auto capture = Capture::begin(pair.near, true);
        ASSERT_NE(capture, nullptr);
        send(*capture, request());
        void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const iovec piece{page, 100};
        capture->sent({&piece, 1}, 100);
        send(*capture, request());  // left out, as all that follows
        Capture::finish_all();
    });
    EXPECT_EQ(packets(content(path)).size(), 4u);
}

TEST_F(CaptureFile, what_a_killed_process_leaves_can_be_read) {
    for (const bool gzip : {false, true}) {
        const fs::path path = folder / (gzip ? "a.pcapng.gz" : "a.pcapng");
        const pid_t child = fork();
        if (child == 0) {
            setenv("XSOCK_PCAP", path.c_str(), 1);
            const Loopback pair(AF_INET);
            auto capture = Capture::begin(pair.near, true);
            if (capture == nullptr) _exit(1);
            send(*capture, request());
            for (int i = 0; i < 300; ++i) send(*capture, ByteVector(1028));
            kill(getpid(), SIGKILL);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status));
        // An FPDU of length 0 is 8 bytes. Plain: all that was sent, and the handshake and the
        // acknowledgements; gzip: up to the last flush, and perhaps some of what follows.
        const std::size_t sent = 300 * 1028 / 8 + 1 + 3;
        EXPECT_GE(packets(content(path), gzip).size(), gzip ? sent / 2 : sent) << path;
    }
}

}  // namespace
}  // namespace xsock
