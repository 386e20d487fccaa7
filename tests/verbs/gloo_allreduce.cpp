// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sums of all ranks by gloo over its ibverbs device (tests/verbs/gloo.sh), each checked.
//
//   gloo_allreduce RANK RANKS FOLDER: FOLDER is empty at first, and the same for all ranks
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRounds = 20;

// What a rank has at a place in a round; small enough for sums of floats to be exact.
float part(int rank, std::size_t at, int round) {
    return static_cast<float>((at * 7 + static_cast<std::size_t>(rank * 31 + round)) % 1000);
}

template <typename Algorithm>
std::size_t wrong_sums(const std::shared_ptr<gloo::rendezvous::Context>& context, int rank,
                       int ranks, std::size_t count) {
    std::vector<float>& values = *new std::vector<float>(count);
    // Stays for good: gloo throws where one is destroyed whose last notification is under way.
    Algorithm& sum = *new Algorithm(context, {values.data()}, static_cast<int>(count));
    std::size_t wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < count; ++i) values[i] = part(rank, i, round);
        sum.run();
        for (std::size_t i = 0; i < count; ++i) {
            float wanted = 0;
            for (int other = 0; other < ranks; ++other) wanted += part(other, i, round);
            if (values[i] != wanted) ++wrong;
        }
    }
    return wrong;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
    auto device = gloo::transport::ibverbs::CreateDevice({"xsock0", 1, 0});
    gloo::rendezvous::FileStore store(argv[3]);
    const auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    std::size_t wrong = 0;
    for (const std::size_t count : {1u, 1000u, 1u << 20}) {
        wrong += wrong_sums<gloo::AllreduceRing<float>>(context, rank, ranks, count);
        wrong += wrong_sums<gloo::AllreduceRingChunked<float>>(context, rank, ranks, count);
    }
    std::printf("rank %d of %d: %zu wrong sums\n", rank, ranks, wrong);
    std::exit(wrong == 0 ? 0 : 1);  // without the destructor of the context, for the same reason
}
