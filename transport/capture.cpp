// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/capture.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "base/fault.hpp"
#include "base/parse_size.hpp"
#include "base/wall_clock.hpp"
#include "transport/log.hpp"
#include "transport/pcapng_writer.hpp"

namespace xsock {
namespace {

constexpr std::uint64_t kDefaultSize = std::uint64_t{1} << 30;
constexpr std::uint32_t kDefaultSnap = 262144;  // more than any frame has
constexpr std::uint64_t kSizeMin = 4096;
constexpr std::uint32_t kSnapMin = 64;

constexpr std::size_t kEthernetBytes = 14, kIpv4Bytes = 20, kIpv6Bytes = 40, kTcpBytes = 20;
constexpr std::size_t kIpBytesMax = 65535;
constexpr unsigned kFin = 0x01, kSyn = 0x02, kRst = 0x04, kPsh = 0x08, kAck = 0x10;
constexpr std::uint16_t kWindow = 65535;
constexpr unsigned kFramesPerAck = 16;

// Dissectors judge by these: a window of 1 GiB, which no peer overruns before the next frame back.
constexpr std::array<std::byte, 8> kSynOptions = {std::byte{2},    std::byte{4}, std::byte{0xff},
                                                  std::byte{0xd7}, std::byte{1}, std::byte{3},
                                                  std::byte{3},    std::byte{14}};

/// The internet checksum's running sum (RFC 1071) over bytes that begin at an even place.
std::uint64_t sum_of(ConstBytes bytes, std::uint64_t sum = 0) {
    std::size_t i = 0;
    for (; i + 4 <= bytes.size(); i += 4) sum += load_be32(bytes.data() + i);
    if (i + 2 <= bytes.size()) {
        sum += load_be16(bytes.data() + i);
        i += 2;
    }
    if (i < bytes.size()) sum += std::to_integer<unsigned>(bytes[i]) << 8;
    return sum;
}

std::uint16_t checksum(std::uint64_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

/// Reported also where the log is off: the user set XSOCK_PCAP.
void print_error(const char* code, const std::string& text) {
    if (log_enabled(LogLevel::error)) {
        log(LogLevel::error, code, "%s", text.c_str());
        return;
    }
    char line[512];
    const int n = std::snprintf(line, sizeof line, "xsock[%d] error %s: %.400s\n",
                                static_cast<int>(getpid()), code, text.c_str());
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, line, static_cast<std::size_t>(n));
}

/// `otherwise` when unset or senseless.
std::uint64_t size_setting(const char* name, std::uint64_t low, std::uint64_t high,
                           std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return otherwise;
    const std::optional<std::uint64_t> size = parse_size(text, high);
    if (size && *size >= low) return *size;
    print_error("bad-setting", std::string(name) + "=" + text + " is not a number from " +
                                   std::to_string(low) + " to " + std::to_string(high) +
                                   " (K, M, G may follow); ignored");
    return otherwise;
}

std::string program_name() {
    char name[64] = "";
    if (FILE* const file = std::fopen("/proc/self/comm", "re")) {
        if (std::fgets(name, sizeof name, file) == nullptr) name[0] = '\0';
        std::fclose(file);
    }
    name[std::strcspn(name, "\n")] = '\0';
    return name;
}

/// %p is the process, %% a percent sign.
std::string expand(const std::string& path, const std::string& pid, bool& has_pid) {
    std::string out;
    for (std::size_t i = 0; i < path.size(); ++i) {
        if (path[i] != '%' || i + 1 == path.size()) {
            out += path[i];
        } else if (path[++i] == 'p') {
            out += pid;
            has_pid = true;
        } else {
            if (path[i] != '%') out += '%';
            out += path[i];
        }
    }
    return out;
}

/// "/tmp/a.pcapng.gz" -> "/tmp/a.PID.pcapng.gz"
std::string with_pid(const std::string& path, const std::string& pid) {
    const std::size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
    const std::size_t dot = path.find('.', name + 1);
    if (dot == std::string::npos) return path + "." + pid;
    return path.substr(0, dot) + "." + pid + path.substr(dot);
}

}  // namespace

/// The process's file and the connections that are recorded in it. A forked child makes its own;
/// its parent's is not touched there (not even its lock, which may be held for ever).
class Recorder {
  public:
    static Recorder* instance() noexcept {
        Recorder* current = the_recorder.load(std::memory_order_acquire);
        if (current != nullptr && current->pid_ == getpid()) return current;
        try {
            auto made = std::make_unique<Recorder>();
            if (the_recorder.compare_exchange_strong(current, made.get(),
                                                     std::memory_order_acq_rel)) {
                current = made.release();  // for the life of the process
            }
            // Another thread was first, or this one is; it opens the file before its first use.
            const std::lock_guard lock(current->mutex);
            if (!current->opened_) current->open();
            return current;
        } catch (...) {
            return nullptr;
        }
    }
    /// Null in a forked child, to which the recorder of its parent means nothing.
    static Recorder* existing() noexcept {
        Recorder* const current = the_recorder.load(std::memory_order_acquire);
        return current != nullptr && current->pid_ == getpid() ? current : nullptr;
    }

    [[nodiscard]] PcapngWriter* writer() noexcept { return writer_.get(); }

    /// Writes what the frames since the last call added up to. The end of the file is told once.
    void commit(std::uint64_t time_ns) {
        if (writer_ == nullptr || writer_->flush(time_ns)) return;
        if (writer_->error() == 0) {
            print_error("capture-full", path_ + ": XSOCK_PCAP_SIZE is reached; recording ends");
        } else {
            print_error("capture-failed",
                        path_ + ": " + std::strerror(writer_->error()) + "; recording ends");
        }
        writer_.reset();
    }
    void add(Capture& capture) { captures_.push_back(&capture); }
    void remove(Capture& capture) { std::erase(captures_, &capture); }
    void finish() {
        for (Capture* const capture : captures_) {
            capture->end_of(Capture::kLocal);
            capture->end_of(Capture::kPeer);
        }
        commit(wall_clock_now());
        writer_.reset();
    }

    std::mutex mutex;

  private:
    void open() {
        opened_ = true;
        const char* const setting = std::getenv("XSOCK_PCAP");
        if (setting == nullptr || *setting == '\0') return;
        const std::string pid = std::to_string(pid_);
        bool has_pid = false;
        path_ = expand(setting, pid, has_pid);
        PcapngWriter::Options options;
        options.path = path_;
        options.size_max =
            size_setting("XSOCK_PCAP_SIZE", kSizeMin, std::uint64_t{1} << 50, kDefaultSize);
        options.snap = static_cast<std::uint32_t>(
            size_setting("XSOCK_PCAP_SNAP", kSnapMin, kDefaultSnap, kDefaultSnap));
        options.interface_description = "connections of process " + pid + " (" + program_name() +
                                        "); headers below MPA are made up";
        auto made = PcapngWriter::create(options);
        if (!made && made.error().code == EWOULDBLOCK && !has_pid) {
            // Another process records into it: a server and its client, started alike.
            options.path = path_ = with_pid(path_, pid);
            made = PcapngWriter::create(options);
        }
        if (!made) {
            print_error("capture-failed", "XSOCK_PCAP: " + path_ + " " + made.error().what + " (" +
                                              std::strerror(made.error().code) +
                                              "); nothing is recorded");
            return;
        }
        writer_ = std::move(*made);
        log(LogLevel::info, "capture", "connections are recorded in %s", path_.c_str());
    }

    static std::atomic<Recorder*> the_recorder;

    const pid_t pid_ = getpid();
    bool opened_ = false;
    std::string path_;
    std::unique_ptr<PcapngWriter> writer_;
    std::vector<Capture*> captures_;
};

std::atomic<Recorder*> Recorder::the_recorder{nullptr};

// ---- one connection -------------------------------------------------------

bool Capture::is_wanted() noexcept {
    const char* const setting = std::getenv("XSOCK_PCAP");
    return setting != nullptr && *setting != '\0';
}

std::unique_ptr<Capture> Capture::begin(int fd, bool initiator) noexcept {
    if (!is_wanted()) return nullptr;
    Recorder* const recorder = Recorder::instance();
    if (recorder == nullptr) return nullptr;
    try {
        const std::lock_guard lock(recorder->mutex);
        if (recorder->writer() == nullptr) return nullptr;
        std::unique_ptr<Capture> capture(new Capture(*recorder, initiator));
        capture->read_addresses(fd);
        recorder->add(*capture);
        capture->handshake();
        recorder->commit(wall_clock_now());
        return capture;
    } catch (...) {
        return nullptr;
    }
}

Capture::~Capture() {
    if (Recorder::existing() != &recorder_) return;
    const std::lock_guard lock(recorder_.mutex);
    recorder_.remove(*this);
    try {
        end_of(kLocal);
        end_of(kPeer);
        recorder_.commit(wall_clock_now());
    } catch (...) {
        over_ = true;
    }
}

void Capture::finish_all() noexcept {
    Recorder* const recorder = Recorder::existing();
    if (recorder == nullptr) return;
    try {
        const std::lock_guard lock(recorder->mutex);
        recorder->finish();
    } catch (...) {
        return;  // no memory: what was written is written
    }
}

template <typename Write>
void Capture::record(Write&& write) noexcept {
    if (Recorder::existing() != &recorder_) return;
    const std::lock_guard lock(recorder_.mutex);
    if (over_ || recorder_.writer() == nullptr) return;
    try {
        write();
        recorder_.commit(wall_clock_now());
    } catch (...) {
        over_ = true;  // no memory; the rest of this connection is left out
    }
}

void Capture::sent(std::span<const struct iovec> pieces, std::size_t bytes) noexcept {
    record([&] {
        for (const struct iovec& piece : pieces) {
            const std::size_t n = std::min(piece.iov_len, bytes);
            if (n == 0) break;
            bytes -= n;
            // The copy is ours before it is read: the program may change or unmap its memory.
            frame_.resize(n);
            if (!fault::guard([&] {
                    const fault::Touch touch(0, piece.iov_base, n);
                    std::memcpy(frame_.data(), piece.iov_base, n);
                })) {
                over_ = true;
                break;
            }
            directions_[kLocal].cutter.add(ConstBytes(frame_.data(), n));
        }
        cut(kLocal);
    });
}

void Capture::took(Side from, ConstBytes bytes) noexcept {
    record([&] {
        directions_[from].cutter.add(bytes);
        cut(from);
    });
}

void Capture::sent_fin() noexcept {
    record([&] {
        end_of(kLocal);
        frame(kLocal, kFin | kAck, {});
    });
}

void Capture::received_fin() noexcept {
    record([&] {
        end_of(kPeer);
        frame(kPeer, kFin | kAck, {});
        frame(kLocal, kAck, {});
    });
}

void Capture::was_reset(bool by_us) noexcept {
    record([&] {
        end_of(kLocal);
        end_of(kPeer);
        frame(by_us ? kLocal : kPeer, kRst | kAck, {});
        over_ = true;
    });
}

// ---- frames ---------------------------------------------------------------

void Capture::read_addresses(int fd) {
    const auto read = [&](int (*get)(int, sockaddr*, socklen_t*), Address& out) {
        sockaddr_storage storage{};
        socklen_t size = sizeof storage;
        if (get(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return false;
        if (storage.ss_family == AF_INET) {
            const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
            std::memcpy(out.bytes.data(), &in.sin_addr, 4);
            out.port = ntohs(in.sin_port);
        } else if (storage.ss_family == AF_INET6) {
            const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
            out.port = ntohs(in6.sin6_port);
            const auto* const bytes = reinterpret_cast<const std::byte*>(&in6.sin6_addr);
            if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
                std::memcpy(out.bytes.data(), bytes + 12, 4);
                return false;
            }
            std::memcpy(out.bytes.data(), bytes, 16);
            return true;
        }
        return false;
    };
    ipv6_ = read(&getsockname, directions_[kLocal].address);
    ipv6_ = read(&getpeername, directions_[kPeer].address) && ipv6_;
}

void Capture::handshake() {
    const Side client = initiator_ ? kLocal : kPeer;
    const Side server = initiator_ ? kPeer : kLocal;
    frame(client, kSyn, {}, kSynOptions);
    frame(server, kSyn | kAck, {}, kSynOptions);
    frame(client, kAck, {});
}

/// Writes what is complete.
void Capture::cut(Side from) {
    FrameCutter& cutter = directions_[from].cutter;
    const FrameCutter& other = directions_[1 - from].cutter;
    for (;;) {
        const ConstBytes piece = cutter.next(other.asks_for_markers());
        if (piece.empty()) return;
        data(from, piece);
    }
}

/// Nothing more comes from there: what is incomplete is written as it is.
void Capture::end_of(Side from) {
    if (over_ || directions_[from].fin) return;
    const ConstBytes rest = directions_[from].cutter.rest();
    if (!rest.empty()) data(from, rest);
}

void Capture::data(Side from, ConstBytes bytes) {
    const std::size_t most =
        kIpBytesMax - kTcpBytes - (ipv6_ ? 0 : kIpv4Bytes);  // IPv6 does not count its own header
    while (!bytes.empty()) {
        const std::size_t n = std::min(bytes.size(), most);
        frame(from, kAck | kPsh, bytes.first(n));
        bytes = bytes.subspan(n);
        if (++directions_[from].unacknowledged >= kFramesPerAck) {
            frame(from == kLocal ? kPeer : kLocal, kAck, {});
        }
    }
}

void Capture::frame(Side from, unsigned flags, ConstBytes payload, ConstBytes options) {
    PcapngWriter* const writer = recorder_.writer();
    Direction& source = directions_[from];
    Direction& sink = directions_[1 - from];
    if (writer == nullptr || (source.fin && (!payload.empty() || (flags & kFin) != 0))) return;

    const std::size_t ip_bytes = ipv6_ ? kIpv6Bytes : kIpv4Bytes;
    const std::size_t tcp_bytes = kTcpBytes + options.size() + payload.size();
    frame_.assign(kEthernetBytes + ip_bytes + tcp_bytes, std::byte{0});
    std::byte* const ethernet = frame_.data();
    std::byte* const ip = ethernet + kEthernetBytes;
    std::byte* const tcp = ip + ip_bytes;

    // Locally administered addresses: 02:00:00:00:00:01 is ours.
    ethernet[0] = ethernet[6] = std::byte{2};
    ethernet[5] = static_cast<std::byte>(from == kLocal ? 2 : 1);
    ethernet[11] = static_cast<std::byte>(from == kLocal ? 1 : 2);
    store_be16(ethernet + 12, ipv6_ ? 0x86dd : 0x0800);

    const std::size_t address_bytes = ipv6_ ? 16 : 4;
    std::byte* const addresses = ip + (ipv6_ ? 8 : 12);
    std::memcpy(addresses, source.address.bytes.data(), address_bytes);
    std::memcpy(addresses + address_bytes, sink.address.bytes.data(), address_bytes);
    if (ipv6_) {
        ip[0] = std::byte{0x60};
        store_be16(ip + 4, static_cast<std::uint16_t>(tcp_bytes));
        ip[6] = static_cast<std::byte>(IPPROTO_TCP);
        ip[7] = std::byte{64};
    } else {
        ip[0] = std::byte{0x45};
        store_be16(ip + 2, static_cast<std::uint16_t>(kIpv4Bytes + tcp_bytes));
        store_be16(ip + 4, ip_id_++);
        ip[6] = std::byte{0x40};  // do not fragment
        ip[8] = std::byte{64};
        ip[9] = static_cast<std::byte>(IPPROTO_TCP);
        store_be16(ip + 10, checksum(sum_of({ip, kIpv4Bytes})));
    }

    store_be16(tcp, source.address.port);
    store_be16(tcp + 2, sink.address.port);
    store_be32(tcp + 4, source.next);
    store_be32(tcp + 8, (flags & kAck) != 0 ? sink.next : 0);
    tcp[12] = static_cast<std::byte>((kTcpBytes + options.size()) / 4 << 4);
    tcp[13] = static_cast<std::byte>(flags);
    store_be16(tcp + 14, kWindow);
    std::copy(options.begin(), options.end(), tcp + kTcpBytes);
    std::copy(payload.begin(), payload.end(), tcp + kTcpBytes + options.size());
    const std::uint64_t pseudo =
        sum_of({addresses, 2 * address_bytes}, IPPROTO_TCP + std::uint64_t{tcp_bytes});
    store_be16(tcp + 16, checksum(sum_of({tcp, tcp_bytes}, pseudo)));

    writer->add(
        frame_, wall_clock_now(),
        from == kLocal ? PcapngWriter::Direction::outbound : PcapngWriter::Direction::inbound);
    source.next += static_cast<std::uint32_t>(payload.size());
    if ((flags & (kSyn | kFin)) != 0) ++source.next;
    if ((flags & kFin) != 0) source.fin = true;
    if ((flags & kAck) != 0) sink.unacknowledged = 0;
}

}  // namespace xsock
