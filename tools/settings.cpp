// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/settings.hpp"

#include <algorithm>
#include <initializer_list>

#include "base/parse_size.hpp"
#include "base/policy_file.hpp"
#include "base/shm_folder_fault.hpp"
#include "tools/options.hpp"
#include "tools/policy_info.hpp"
#include "tools/text.hpp"
#include "verbs/files/local_gids.hpp"

namespace xsock::tools {
namespace {

std::string number(std::string_view value, std::uint64_t low, std::uint64_t high) {
    if (parse_number(value, low, high)) return {};
    return fmt::format("not a number from {} to {}", low, high);
}

template <std::uint64_t low, std::uint64_t high>
std::string in_range(std::string_view value) {
    return number(value, low, high);
}

std::string one_of(std::string_view value, std::initializer_list<std::string_view> words) {
    if (std::find(words.begin(), words.end(), value) != words.end()) return {};
    return fmt::format("none of {}", fmt::join(words, ", "));
}

std::string check_log(std::string_view value) {
    return one_of(value.substr(0, value.find(':')), {"off", "error", "warn", "info", "debug"});
}

std::string check_progress(std::string_view value) {
    return one_of(value, {"app", "thread", "both"});
}

std::string check_port_offset(std::string_view value) {
    return parse_number(value, -65534, 65534) ? "" : "not a number from -65534 to 65534";
}

std::string check_stat(std::string_view value) {
    if (value == "off" || value.substr(0, 1) == "/") return {};
    return "neither off nor the absolute path of a folder";
}

std::string check_cpus(std::string_view value) {
    for (const std::string_view range : split(value, ',')) {
        const auto ends = split(range, '-');
        const bool good = ends.size() <= 2 && std::all_of(ends.begin(), ends.end(), [](auto end) {
                              return parse_number(end, 0, 4095).has_value();
                          });
        if (!good) return "not a list of processors such as 0,2-3";
    }
    return {};
}

std::string check_shm(std::string_view value) { return one_of(value, {"off", "auto", "require"}); }

std::string check_users(std::string_view value) {
    for (const std::string_view user : split(value, ',')) {
        const auto id = parse_number(user, std::uint64_t{0}, std::uint64_t{4294967294});
        if (!id || *id == 65534) return "not a list of user ids such as 1000,1001, without 65534";
    }
    return {};
}

std::string check_congestion(std::string_view value) {
    return !value.empty() && value.size() <= 15 ? "" : "not a name of up to 15 bytes";
}

template <std::uint64_t low, std::uint64_t high>
std::string size_in_range(std::string_view value) {
    const auto bytes = parse_size(value, high);
    if (bytes && *bytes >= low) return {};
    return fmt::format("not a size from {} to {} bytes; K, M and G may follow", low, high);
}

std::string check_shm_folder(std::string_view value) {
    const char* const fault = shm_folder_fault(std::string(value));
    return fault != nullptr ? fault : "";
}
std::string check_device(std::string_view value) { return one_of(value, {"iwarp", "roce"}); }

std::string check_interfaces(std::string_view value) {
    return verbs::parse_interfaces(value).empty() ? "not a list of interfaces" : "";
}

std::string check_ports(std::string_view value) {
    const auto ends = split(value, '-');
    const auto low = parse_number(ends[0], 1, 65535);
    const bool good = ends.size() == 2 && low && parse_number(ends[1], *low, 65535);
    return good ? "" : "not a range of ports such as 7000-7099";
}

std::string check_peer_users(std::string_view value) { return one_of(value, {"any"}); }

std::string check_tree(std::string_view value) {
    return value.substr(0, 1) == "/" ? "" : "not an absolute path";
}

std::string check_path(std::string_view value) { return value.empty() ? "not a path" : ""; }

std::string check_stream(std::string_view value) {
    return one_of(value, {"both", "sdp", "ddp", "tcp"});
}

std::string check_policy(std::string_view value) {
    if (value.substr(0, 1) != "/") return "not an absolute path";
    const std::string path(value);
    Policy policy;
    const auto error = read_policy_file(path, policy);
    return error ? policy_error_text(path, *error) : "";
}

constexpr Setting kSettings[] = {
    {"XSOCK_LOG", "log", "LEVEL[:FILE]", "off",
     "log lines of this level and worse: off, error, warn,\ninfo or debug; to FILE or standard "
     "error",
     check_log},
    {"XSOCK_PROGRESS", "progress", "MODE", "both",
     "threads that move the bytes: app (calls that poll or\nwait), thread (of the library) or both",
     check_progress},
    {"XSOCK_THREADS", "threads", "N", "1",
     "background threads, 1 to 64;\nunset, up to 4 for sockets under progress both",
     in_range<1, 64>},
    {"XSOCK_CPUS", "cpus", "LIST", "any", "processors for them, such as 0,2-3", check_cpus},
    {"XSOCK_SPIN_US", "spin", "US", "50; 0 with one processor",
     "longest spin before blocking, microseconds", in_range<0, 1'000'000>},
    {"XSOCK_RNR_MS", "rnr-timeout", "MS", "1000",
     "how long a message may wait for a receive; 0: not at all", in_range<0, 86'400'000>},
    {"XSOCK_PEER_SILENT_MS", "peer-silent", "MS", "30000",
     "a peer that acknowledges nothing for so long is given up; 0: never", in_range<0, 86'400'000>},
    {"XSOCK_COPY_LIMIT", "copy-limit", "BYTES", "4096",
     "payloads up to this size are copied beside their header", in_range<0, 65536>},
    {"XSOCK_SNAPSHOT", "snapshot", "0|1", "0",
     "1: what is sent may change until it completes, and is copied", in_range<0, 1>},
    {"XSOCK_FPDU_LIMIT", "fpdu-limit", "BYTES", "none", "largest ULPDU, 128 to 65535",
     in_range<128, 65535>},
    {"XSOCK_EXTENSIONS", "extensions", "0|1", "1",
     "1: exchange extension frames with other xsocks; 0: do not", in_range<0, 1>},
    {"XSOCK_SHORT_RTO", "short-rto", "0|1", "1",
     "1: repair losses between xsocks within some 20 ms\ninstead of 200 (Linux 6.15); 0: as TCP "
     "does",
     in_range<0, 1>},
    {"XSOCK_MAX_STARTING", "max-starting", "N", "4096",
     "start-ups under way per listener; then the oldest of\nthe address that has most goes",
     in_range<1, 1'000'000>},
    {"XSOCK_CONGESTION", "congestion", "NAME", "the system's",
     "TCP's congestion control, such as cubic", check_congestion},
    {"XSOCK_SHM", "shm", "MODE", "auto",
     "data between processes of one host go through shared\nmemory: off, auto (where it can) or "
     "require",
     check_shm},
    {"XSOCK_SHM_MEMORY", "shm-memory", "BYTES", "256M",
     "what peers may send through shared memory ahead of\nthe program",
     size_in_range<std::uint64_t{256} << 10, std::uint64_t{1} << 40>},
    {"XSOCK_SHM_TIMEOUT_MS", nullptr, "MS", "200",
     "how long a link in shared memory may take to be made", in_range<10, 60'000>},
    {"XSOCK_SHM_USERS", "shm-users", "UID,...", "none",
     "other users whose processes may share memory with this one", check_users},
    {"XSOCK_SHM_DIR", "shm-dir", "FOLDER", "none",
     "processes of other network namespaces that have it may\nshare memory with this one",
     check_shm_folder},
    {"XSOCK_KERNEL", "kernel", "MODE", "auto",
     "the kernel module places what peers write: off, auto\n(where it can) or require", check_shm},
    {"XSOCK_KERNEL_OOO", "kernel-ooo", "0|1", "by API",
     "1: it also places what comes behind a lost segment", in_range<0, 1>},
    {"XSOCK_KERNEL_PIN", "kernel-pin", "BYTES", "64M",
     "longest memory region that is pinned for it", size_in_range<0, std::uint64_t{1} << 40>},
    {"XSOCK_PCAP", "pcap", "FILE", "nowhere",
     "record the connections in FILE, a pcapng; compressed if\nit ends in .gz; %p stands for the "
     "process",
     check_path},
    {"XSOCK_PCAP_SIZE", "pcap-size", "BYTES", "1G", "largest size of that file",
     size_in_range<4096, std::uint64_t{1} << 50>},
    {"XSOCK_PCAP_SNAP", "pcap-snap", "BYTES", "256K", "bytes kept of each frame",
     size_in_range<64, 262144>},
    {"XSOCK_VERBS", nullptr, "DEVICE", "iwarp", "what the verbs device looks like: iwarp or roce",
     check_device},
    {"XSOCK_VERBS_GID", nullptr, "0|1", "1 on the RoCE-like device, else 0",
     "verbs programs without rdma_cm find each other by GID and QP number", in_range<0, 1>},
    {"XSOCK_VERBS_INTERFACES", nullptr, "NAME,...", "all",
     "those whose addresses are the RoCE-like device's GIDs", check_interfaces},
    {"XSOCK_VERBS_PORTS", nullptr, "LOW-HIGH", "any", "TCP ports that QP numbers may have in them",
     check_ports},
    {"XSOCK_VERBS_PEER_USERS", nullptr, "any", "our own and root",
     "any: processes of all users of this machine may connect by GID", check_peer_users},
    {"XSOCK_VERBS_TREE", nullptr, "FOLDER", "none",
     "the RoCE-like device's files, as xsock run has made them", check_tree},
    {"XSOCK_VERBS_ACK", nullptr, "0|1", "1 by GID and under --roce, else 0",
     "a verbs Send or Write completes when the peer has it", in_range<0, 1>},
    {"XSOCK_VERBS_CRC", nullptr, "0|1", "1",
     "0: verbs programs ask for no CRCs (xsock run --no-crc)", in_range<0, 1>},
    {"XSOCK_VERBS_PORT_OFFSET", nullptr, "N", "0",
     "what TCP's ports are more than those of a verbs program", check_port_offset},
    {"XSOCK_VERBS_SUMMARY", nullptr, "0|1", "0", "verbs programs say at their end what they did",
     in_range<0, 1>},
    {"XSOCK_STAT", "stat", "off|FOLDER", "$XDG_RUNTIME_DIR/xsock or /dev/shm/xsock-UID",
     "where xsock stat finds the connections; off: nowhere", check_stat},
    {"XSOCK_REGISTRY", nullptr, "off|FOLDER", "/dev/shm/xsock-listeners-UID",
     "where servers say that they take byte streams", check_stat},
    {"XSOCK_STREAM", nullptr, "MODE", "both",
     "byte-stream mode where no line of the policy decides", check_stream},
    {"XSOCK_POLICY", nullptr, "FILE", "~/.config/xsock/policy or /etc/xsock/policy",
     "the policy of the byte-stream mode", check_policy},
    {"XSOCK_POLICY_LEARN", nullptr, "0|1", "0",
     "1: clients also ask servers that took a byte stream in the last 10 minutes", in_range<0, 1>},
    {"XSOCK_STREAM_MEMORY", nullptr, "BYTES", "1G",
     "what byte streams may hold together of what was not read",
     size_in_range<1 << 20, std::uint64_t{1} << 50>},
};

}  // namespace

std::span<const Setting> settings() { return kSettings; }

}  // namespace xsock::tools
