// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/files/local_gids.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <tuple>

#include "verbs/files/tree.hpp"

namespace xsock::verbs {
namespace {

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// The words of a line, as many as there is room for.
template <std::size_t n>
std::array<std::string_view, n> words_of(std::string_view line) {
    std::array<std::string_view, n> words;
    std::size_t at = 0;
    for (auto& word : words) {
        at = line.find_first_not_of(" \t", at);
        if (at == line.npos) break;
        const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
        word = line.substr(at, end - at);
        at = end;
    }
    return words;
}

template <typename F>
void for_each_line(std::string_view text, F&& f) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        f(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

std::optional<std::uint32_t> number_in(std::string_view word, int base) {
    std::uint32_t value = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (word.empty() || error != std::errc{} || rest != word.data() + word.size()) return {};
    return value;
}

/// The best of the routes that were offered.
struct BestRoute {
    std::string interface;
    std::uint32_t metric = 0;
    void offer(std::string_view name, std::uint32_t its_metric) {
        if (!interface.empty() && its_metric >= metric) return;
        interface = name;
        metric = its_metric;
    }
};

}  // namespace

std::vector<LocalAddress> interface_addresses() {
    std::vector<LocalAddress> all;
    ifaddrs* made = nullptr;
    if (getifaddrs(&made) != 0) return all;
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(made, &freeifaddrs);
    for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
        LocalAddress found;
        if (i->ifa_addr->sa_family == AF_INET) {
            std::memcpy(&found.address, i->ifa_addr, sizeof(sockaddr_in));
        } else if (i->ifa_addr->sa_family == AF_INET6) {
            const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
            if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) continue;
            std::memcpy(&found.address, i->ifa_addr, sizeof(sockaddr_in6));
        } else {
            continue;
        }
        found.interface = if_nametoindex(i->ifa_name);
        std::strncpy(found.name.data(), i->ifa_name, found.name.size() - 1);
        found.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
        all.push_back(found);
    }
    return all;
}

std::array<std::uint8_t, 16> gid_octets(const sockaddr& address) noexcept {
    std::array<std::uint8_t, 16> gid{};
    if (address.sa_family == AF_INET6) {
        std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
    } else if (address.sa_family == AF_INET) {
        gid[10] = gid[11] = 0xff;
        std::memcpy(gid.data() + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    }
    return gid;
}

GidList ordered_gids(const std::vector<LocalAddress>& all, const std::vector<std::string>& wanted,
                     const std::string& default_interface) {
    struct Ranked {
        std::tuple<bool, std::size_t, bool> rank;
        const LocalAddress* address;
    };
    std::vector<Ranked> ranked;
    const bool others =
        std::any_of(all.begin(), all.end(), [](const auto& a) { return !a.loopback; });
    for (const LocalAddress& a : all) {
        const bool v6 = a.address.ss_family == AF_INET6;
        const auto chosen = std::find(wanted.begin(), wanted.end(), a.name.data());
        if (wanted.empty() ? a.loopback && others : chosen == wanted.end()) continue;
        const auto place = static_cast<std::size_t>(chosen - wanted.begin());
        const bool is_default = default_interface == a.name.data();
        ranked.push_back(wanted.empty() ? Ranked{{!is_default, a.interface, v6}, &a}
                                        : Ranked{{false, place, v6}, &a});
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
    GidList gids;
    for (const Ranked& r : ranked) {
        GidEntry entry{gid_octets(reinterpret_cast<const sockaddr&>(r.address->address)),
                       r.address->name.data()};
        // One address may be there twice, on two interfaces; a GID names it once.
        const bool known = std::any_of(gids.begin(), gids.end(),
                                       [&](const GidEntry& g) { return g.gid == entry.gid; });
        if (!known && gids.size() < kMaxGids) gids.push_back(std::move(entry));
    }
    return gids;
}

// Iface Destination Gateway Flags RefCnt Use Metric Mask ...
std::string default_interface_v4(std::string_view proc_net_route) {
    BestRoute best;
    for_each_line(proc_net_route, [&](std::string_view line) {
        const auto words = words_of<8>(line);
        const auto metric = number_in(words[6], 10);
        if (words[1] == "00000000" && words[7] == "00000000" && metric) {
            best.offer(words[0], *metric);
        }
    });
    return best.interface;
}

// destination prefix-length source prefix-length next-hop metric references use flags interface
std::string default_interface_v6(std::string_view proc_net_ipv6_route) {
    BestRoute best;
    for_each_line(proc_net_ipv6_route, [&](std::string_view line) {
        const auto words = words_of<10>(line);
        const auto metric = number_in(words[5], 16);
        if (words[1] != "00" || words[0] != std::string(32, '0') || !metric) return;
        // The kernel's own "unreachable" stands on lo.
        if (words[9] != "lo") best.offer(words[9], *metric);
    });
    return best.interface;
}

std::vector<std::string> parse_interfaces(std::string_view text) {
    std::vector<std::string> names;
    for (bool more = true; more;) {
        const std::size_t comma = text.find(',');
        more = comma != text.npos;
        const std::string_view name = text.substr(0, comma);
        if (name.empty() || name.size() >= IF_NAMESIZE ||
            name.find_first_of("/ \t\n") != name.npos) {
            return {};
        }
        names.emplace_back(name);
        if (more) text.remove_prefix(comma + 1);
    }
    return names;
}

GidList local_gids(const std::vector<std::string>& interfaces) {
    std::string first = default_interface_v4(text_of_file("/proc/net/route"));
    if (first.empty()) first = default_interface_v6(text_of_file("/proc/net/ipv6_route"));
    return ordered_gids(interface_addresses(), interfaces, first);
}

std::string gid_text(const std::array<std::uint8_t, 16>& gid) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < gid.size(); ++i) {
        if (i != 0 && i % 2 == 0) text += ':';
        text += kDigits[gid[i] >> 4];
        text += kDigits[gid[i] & 15];
    }
    return text;
}

std::optional<std::array<std::uint8_t, 16>> parse_gid(std::string_view text) {
    constexpr std::size_t kGroup = 5;  // four digits and a colon
    std::array<std::uint8_t, 16> gid{};
    if (text.size() != 8 * kGroup - 1) return {};
    for (std::size_t i = 0; i < 8; ++i) {
        const std::string_view group = text.substr(i * kGroup, kGroup - 1);
        const auto value = number_in(group, 16);
        if (!value || (i != 7 && text[i * kGroup + 4] != ':')) return {};
        gid[2 * i] = static_cast<std::uint8_t>(*value >> 8);
        gid[2 * i + 1] = static_cast<std::uint8_t>(*value);
    }
    return gid;
}

Result<GidList> read_gids(const std::string& tree) {
    const std::string port = tree + kDeviceFolder + "/ports/1";
    GidList gids;
    for (std::size_t i = 0; i < kMaxGids; ++i) {
        const std::string number = std::to_string(i);
        std::ifstream file(port + "/gids/" + number);
        std::string line;
        if (!std::getline(file, line)) break;
        const auto gid = parse_gid(line);
        if (!gid) return Error{EINVAL, "a file of the tree has no GID in it"};
        std::ifstream netdev(port + "/gid_attrs/ndevs/" + number);
        GidEntry entry{*gid, {}};
        if (!std::getline(netdev, entry.interface)) {
            return Error{EINVAL, "a GID of the tree has no interface"};
        }
        gids.push_back(std::move(entry));
    }
    if (gids.empty()) return Error{ENOENT, "the tree has no GIDs"};
    return gids;
}

}  // namespace xsock::verbs
