/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A library that has a connection with itself before the program begins: its constructor runs
 * before those of libraries that are loaded earlier, such as the overlay's. */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((constructor)) static void connect_early(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    const int listening = socket(AF_INET, SOCK_STREAM, 0);
    const int connected = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listening, (struct sockaddr*)&address, length) != 0 || listen(listening, 1) != 0 ||
        getsockname(listening, (struct sockaddr*)&address, &length) != 0 ||
        connect(connected, (struct sockaddr*)&address, length) != 0 ||
        accept(listening, NULL, NULL) < 0) {
        _exit(99);
    }
}
