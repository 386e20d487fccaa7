// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// kv: a key-value server that sleeps while its clients read. See table.hpp.
#include <cstdlib>

#include "table.hpp"

constexpr char kUsage[] =
    "usage: kv server PORT [KEYS [UPDATE_MS]]   (PORT 0: any free port; KEYS: 100000;\n"
    "                                           UPDATE_MS: change a value this often; 0: never)\n"
    "       kv client HOST PORT [LOOKUPS [UNDER_WAY]]   (100000 and 16)\n"
    "The server ends with SIGTERM or SIGINT and then tells its CPU time.\n"
    "Exit status: 0 well, 1 failed, 2 wrong usage.\n";

int main(int argc, char** argv) try {
    const std::string mode = argc > 1 ? argv[1] : "";
    const auto number = [&](int i, unsigned long fallback) {
        return argc > i ? std::strtoul(argv[i], nullptr, 10) : fallback;
    };
    const unsigned long keys = number(3, 100'000), lookups = number(4, 100'000);
    const unsigned long under_way = number(5, 16);
    if (mode == "server" && argc >= 3 && argc <= 5 && keys > 0 && keys <= 1ul << 28) {
        serve(argv[2], keys, static_cast<unsigned>(number(4, 0)));
        return 0;
    }
    if (mode == "client" && argc >= 4 && argc <= 6 && lookups > 0 && under_way - 1 < 128) {
        look_up(argv[2], argv[3], lookups, under_way);
        return 0;
    }
    std::fputs(kUsage, mode == "--help" ? stdout : stderr);
    return mode == "--help" ? 0 : 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "kv: %s\n", error.what());
    return 1;
}
