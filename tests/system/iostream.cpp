// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A C++ host of the overlay: iostreams over a socket's descriptor, numbers formatted and read back,
// exceptions at the reading end, from two threads.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ext/stdio_filebuf.h>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

constexpr int kLines = 20000;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

double number(int line) { return line / 7.0 - 1000; }

void write_lines(int fd) {
    __gnu_cxx::stdio_filebuf<char> buffer(fd, std::ios::out);
    std::ostream out(&buffer);
    for (int i = 0; i < kLines; i++) {
        out << "line " << i << ' ' << std::setprecision(17) << number(i) << '\n';
    }
    out.flush();
    require(out.good(), "the writing stream failed");
}

void read_lines(int fd) {
    __gnu_cxx::stdio_filebuf<char> buffer(fd, std::ios::in);
    std::istream in(&buffer);
    std::string line;
    for (int i = 0; i < kLines; i++) {
        require(static_cast<bool>(std::getline(in, line)), "a line is missing");
        std::istringstream words(line);
        words.exceptions(std::ios::failbit);
        std::string word;
        int count = -1;
        double value = 0;
        try {
            words >> word >> count >> value;
            words >> word;
            require(false, "more words than were sent");
        } catch (const std::ios::failure&) {
        }
        require(count == i && value == number(i), "a line is wrong");
    }
    require(!std::getline(in, line), "more lines than were sent");
}

}  // namespace

int main() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    require(bind(listener, any, length) == 0 && listen(listener, 1) == 0, "listen");
    require(getsockname(listener, any, &length) == 0, "getsockname");
    const int out = socket(AF_INET, SOCK_STREAM, 0);
    require(connect(out, any, length) == 0, "connect");
    const int in = accept(listener, nullptr, nullptr);
    require(in >= 0, "accept");

    std::thread writer(write_lines, out);  // its stream closes the descriptor
    read_lines(in);
    writer.join();
    std::cout << "iostream " << std::fixed << std::setprecision(3) << 2.5 << std::endl;
    return 0;
}
