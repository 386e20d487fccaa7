// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/verbs_info.hpp"

#if __has_include(<infiniband/verbs.h>)
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cstring>
#endif

#include <string>

#include "tools/command.hpp"
#include "tools/json.hpp"
#include "tools/paths.hpp"
#include "tools/roce.hpp"
#include "tools/text.hpp"

namespace xsock::tools {

#if __has_include(<infiniband/verbs.h>)
namespace {

/// A function of the drop-in library, by its name.
template <typename F>
bool find(void* library, const char* name, F*& function) {
    *reinterpret_cast<void**>(&function) = dlsym(library, name);
    if (function == nullptr) print_error("info", "libibverbs.so.1 has no {}", name);
    return function != nullptr;
}

std::string text_of(const ibv_gid& gid) {
    static constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    char text[INET6_ADDRSTRLEN] = "?";
    if (std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0) {
        inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
    } else {
        inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    }
    return text;
}

}  // namespace

int verbs_info(bool as_json) {
    const std::string path = part_path("verbs/libibverbs.so.1");
    if (path.empty()) {
        print_error("info", "this xsock was built without the verbs API");
        return kFailed;
    }
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        print_error("info", "{}", dlerror());
        return kFailed;
    }
    ibv_device** (*list)(int*) = nullptr;
    ibv_context* (*open)(ibv_device*) = nullptr;
    int (*query_device)(ibv_context*, ibv_device_attr*) = nullptr;
    int (*query_gid)(ibv_context*, std::uint8_t, int, ibv_gid*) = nullptr;
    if (!find(library, "ibv_get_device_list", list) || !find(library, "ibv_open_device", open) ||
        !find(library, "ibv_query_device", query_device) ||
        !find(library, "ibv_query_gid", query_gid)) {
        return kFailed;
    }
    ibv_device** const devices = list(nullptr);
    ibv_context* const context = devices != nullptr ? open(devices[0]) : nullptr;
    ibv_device_attr attr{};
    if (context == nullptr || query_device(context, &attr) != 0) {
        print_error("info", "the device cannot be opened");
        return kFailed;
    }
    const bool roce = devices[0]->transport_type == IBV_TRANSPORT_IB;
    Json report =
        object({{"device", devices[0]->name},
                {"transport", roce ? "InfiniBand (RoCE v2), as programs see it; iWARP over TCP"
                                   : "iWARP over TCP"},
                {"folder", path.substr(0, path.rfind('/'))},
                {"queue_pairs", std::to_string(attr.max_qp)},
                {"work_requests", std::to_string(attr.max_qp_wr)},
                {"max_sge", std::to_string(attr.max_sge)},
                {"completions", std::to_string(attr.max_cqe)},
                {"reads_and_atomics_at_once", std::to_string(attr.max_qp_rd_atom)},
                {"shared_receives", std::to_string(attr.max_srq_wr)},
                {"atomics", attr.atomic_cap != IBV_ATOMIC_NONE ? "between xsock ends" : "none"}});
    Json gids = Json::array();
    ibv_gid gid;
    for (int i = 0; query_gid(context, 1, i, &gid) == 0; ++i) gids.push_back(text_of(gid));
    if (as_json) {
        report["gids"] = gids;
        if (roce) report["truth"] = kRoceTruth;
        print_json(report);
        return kOk;
    }
    for (std::size_t i = 0; i < gids.size(); ++i) report[fmt::format("gid {}", i)] = gids[i];
    print_table("Verbs", report);
    if (roce) fmt::print("\n{}\n", kRoceTruth);
    return kOk;
}

#else

int verbs_info(bool) {
    print_error("info", "this xsock was built without the verbs API");
    return kFailed;
}

#endif

}  // namespace xsock::tools
