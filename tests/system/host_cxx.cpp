// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A C++ host with a libstdc++ of its own, the shared one: streams, floats, locales, exceptions,
// regular expressions and threads work before, beside and after the engine, which has another.
#include <atomic>
#include <iomanip>
#include <iostream>
#include <locale>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/system/host_loopback.h"

namespace {

void work() {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << std::fixed << std::setprecision(4) << 2.0 / 3.0 << ' ' << std::hex << 255 << ' '
        << std::boolalpha << true;
    if (out.str() != "0.6667 ff true") throw std::logic_error("formatting: " + out.str());
    std::istringstream in("42 2.5 words");
    int i = 0;
    double d = 0;
    std::string s;
    if (!(in >> i >> d >> s) || i != 42 || d != 2.5 || s != "words") {
        throw std::logic_error("parsing");
    }
    if (!std::regex_match("abc123", std::regex("[a-z]+([0-9]+)"))) throw std::logic_error("regex");
    bool caught = false;
    try {
        (void)std::vector<int>().at(7);
    } catch (const std::out_of_range&) {
        caught = true;
    }
    if (!caught) throw std::logic_error("an exception was not caught");
}

void exchange() {
    if (const char* wrong = loopback_exchange(300)) throw std::runtime_error(wrong);
}

}  // namespace

int main() {
    try {
        work();
        exchange();
        work();
        std::atomic<bool> stop{false};
        std::atomic<int> failures{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; ++i) {
            threads.emplace_back([&] {
                try {
                    while (!stop) work();
                } catch (const std::exception& e) {
                    std::cerr << e.what() << '\n';
                    ++failures;
                }
            });
        }
        for (int i = 0; i < 5; ++i) exchange();
        stop = true;
        for (std::thread& t : threads) t.join();
        work();
        if (failures != 0) return 1;
        std::cout << "a C++ host: " << std::setprecision(3) << 3.14159 << '\n';
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "FAIL " << e.what() << '\n';
        return 1;
    }
}
