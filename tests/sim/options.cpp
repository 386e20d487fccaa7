// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/options.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "mpa/extension_frame.hpp"
#include "shm/offer.hpp"
#include "tests/sim/trace.hpp"

namespace xsock::sim {
namespace {

constexpr std::size_t kFirstWeights = 9;  // those that the oldest worlds draw
constexpr std::size_t kArenaMax = std::size_t{8} << 20;

void draw_pipe(Rng& rng, PipeOptions& pipe) {
    pipe.capacity = rng.pick<std::size_t>({1, 7, 64, 1000, 8192, 65536, 65536, 262144});
    pipe.segment_max = rng.pick<std::size_t>({1, 3, 100, 536, 1460, 1460, 9000, 65536});
    // A world of single bytes takes for ever; one small thing at a time is enough.
    if (pipe.capacity < 64) pipe.segment_max = 65536;
    pipe.delay = rng.magnitude(kMillisecond);
    pipe.jitter = rng.magnitude(kMillisecond);
    pipe.stall_percent = rng.chance(20) ? static_cast<unsigned>(rng.between(1, 10)) : 0;
    pipe.stall = rng.magnitude(100 * kMillisecond);
}

void draw_end(Rng& rng, const Options& world, EndOptions& end, bool initiator) {
    mpa::StartupConfig& startup = end.mpa.startup;
    startup.role = initiator ? mpa::Role::initiator : mpa::Role::responder;
    startup.revision = initiator && rng.chance(25) ? 1 : 2;
    startup.crc = rng.chance(70);
    startup.markers = rng.chance(30);
    startup.negotiate_depths = rng.chance(85);
    startup.ird = static_cast<std::uint16_t>(rng.between(1, rng.chance(50) ? 2 : 16));
    startup.ord = static_cast<std::uint16_t>(rng.between(1, rng.chance(50) ? 2 : 16));
    startup.xsock_mark = rng.chance(60);
    startup.defer_reply = !initiator && rng.chance(25);
    startup.private_data.resize(rng.chance(50) ? 0 : rng.magnitude(508));
    rng.fill(startup.private_data);
    end.mpa.copy_limit = rng.pick<std::size_t>({0, 1, 100, 1428, 4096, 4096, 65536});
    end.mpa.xsock_mulpdu = rng.pick<std::size_t>({128, 500, 1500, 9000, 65486, 65535});
    end.mpa.first_fpdu_hold = rng.pick<Time>({0, kMillisecond, 20 * kMillisecond});
    end.mpa.probe_after = rng.pick<Time>({0, 5 * kMillisecond});
    end.emss = rng.pick<std::size_t>({128, 536, 1448, 1460, 8948, 65483});
    end.emss_changes = rng.chance(10);

    end.sq_depth = static_cast<std::uint32_t>(rng.pick({1, 4, 16, 64}));
    end.rq_depth = static_cast<std::uint32_t>(rng.pick({1, 2, 16, 64}));
    end.receives_wanted = static_cast<std::uint32_t>(rng.between(1, std::min(end.rq_depth, 8u)));
    end.require_lkeys = rng.chance(30);
    end.scratch = rng.pick<std::size_t>(
        {mpa::kMinTxScratch, mpa::kMinTxScratch + 1, mpa::kMinTxScratch + 8193, 262144, 300001});
    end.read_max = rng.pick<std::size_t>({1, 5, 100, 1460, 65536, 262144});
    end.write_max = rng.pick<std::size_t>({1, 13, 500, 65536, 1 << 20});
    if (world.message_max > 8192) {
        end.read_max = std::max<std::size_t>(end.read_max, 100);
        end.write_max = std::max<std::size_t>(end.write_max, 500);
    }
    end.batch_bytes = rng.pick<std::size_t>({1, 3000, 1 << 19});
    end.operations = static_cast<unsigned>(rng.magnitude(world.message_max > 60000  ? 12
                                                         : world.message_max > 8192 ? 30
                                                                                    : 80));
    end.late_operations = rng.chance(30) ? static_cast<unsigned>(rng.below(5)) : 0;
    for (std::size_t i = 0; i < kFirstWeights; ++i) {
        end.weights[i] = static_cast<unsigned>(rng.below(6));
    }
    if (rng.chance(30)) end.weights[rng.below(5)] = 0;
    end.unsignaled_percent = rng.pick({0u, 30u, 90u});
    end.fence_percent = rng.pick({0u, 10u, 60u});
    end.inline_percent = rng.pick({0u, 20u, 100u});
    end.lkey_percent = end.require_lkeys ? 100 : rng.pick({0u, 50u});
    end.poll_percent = rng.pick({20u, 90u, 100u});
    end.pause = 1 + rng.magnitude(300'000);
    end.closes_first = rng.chance(50);
    if (world.errors) end.error_percent = rng.pick({0u, 3u, 15u});
}

/// RTR messages, refusals, and whether start-up can succeed at all.
void draw_agreement(Rng& rng, Options& world, Options::Pair& pair) {
    mpa::StartupConfig& asks = pair.end[0].mpa.startup;
    mpa::StartupConfig& answers = pair.end[1].mpa.startup;
    if (rng.chance(40)) {
        const bool by_read = asks.ord > 0 && answers.ird > 0;
        asks.rtr = static_cast<std::uint8_t>(rng.between(1, by_read ? 7 : 3));
        answers.rtr = static_cast<std::uint8_t>(rng.between(1, 7));
    }
    if (asks.revision == 1) asks.negotiate_depths = false;
    const bool peer_to_peer = asks.rtr != 0 && asks.negotiate_depths;
    const bool agreed = !peer_to_peer || (asks.rtr & answers.rtr) != 0;
    if (!agreed) {
        if (!rng.chance(10)) {
            answers.rtr = 7;
        } else {
            world.startup_succeeds = false;
        }
    }
    if (rng.chance(2)) {
        answers.revision = 1;
        answers.private_data.resize(std::min<std::size_t>(answers.private_data.size(), 508));
        if (asks.revision > 1) world.startup_succeeds = false;
    }
    if (!asks.xsock_mark || !answers.xsock_mark) {  // standard peers are not sent more
        answers.private_data.resize(std::min<std::size_t>(answers.private_data.size(), 252));
    }
    // Two draws of a setting that is gone: the seeds of regressions.txt stay the same worlds.
    for (int end = 0; end < 2; ++end) (void)rng.chance(3);
    if (answers.defer_reply && rng.chance(10)) {
        pair.end[1].reject = true;
        world.startup_succeeds = false;
    }
    // Without negotiation each end must be able to serve what the other may ask.
    if (!asks.negotiate_depths) {
        asks.ird = std::max(asks.ird, answers.ord);
        answers.ird = std::max(answers.ird, asks.ord);
    }
    pair.crc = asks.crc || answers.crc;
}

/// What came later draws from numbers of its own, so that a world without it stays what it was.
void draw_additions(Options& world) {
    Rng rng(world.seed ^ 0xadd17105);
    world.extensions = rng.chance(40);
    world.foreign = world.errors && rng.chance(50);
    world.faults = !world.clean && rng.chance(25);
    for (unsigned p = 0; p < world.pairs && world.foreign; ++p) {
        for (EndOptions& end : world.pair[p].end) end.error_percent = 10;
    }
    if (!world.extensions) return;
    for (unsigned p = 0; p < world.pairs; ++p) {
        // Most of these worlds are of xsocks: standard peers may only be refused.
        const bool xsocks = rng.chance(80);
        for (EndOptions& end : world.pair[p].end) {
            if (xsocks) end.mpa.startup.xsock_mark = true;
            for (std::size_t i = 5; i < kFirstWeights; ++i) {
                end.weights[i] = static_cast<unsigned>(rng.below(5));
            }
        }
    }
}

/// The same again: completions that wait for the peer, windows, rights of queue pairs.
void draw_verbs(Options& world) {
    Rng rng(world.seed ^ 0x7e2b5);
    world.windows = rng.chance(40);
    for (unsigned p = 0; p < world.pairs; ++p) {
        for (EndOptions& end : world.pair[p].end) {
            end.acknowledged = rng.chance(35);
            // There is no answer once the peer has finished.
            if (end.acknowledged) end.late_operations = 0;
            if (rng.chance(20)) {
                end.rights &= ~rng.pick({kRemoteWrite, kRemoteRead, kRemoteAtomic});
            }
            if (world.windows) {
                if (world.errors) end.error_percent = 5;
                if (world.message_max <= 9000)
                    end.operations += static_cast<unsigned>(rng.below(40));
                end.weights[static_cast<std::size_t>(SendOpcode::bind_window)] =
                    static_cast<unsigned>(rng.between(1, 12));
            }
        }
    }
}

/// The same again: messages that find no receive are told of, and too many times fail one.
void draw_rnr(Options& world) {
    Rng rng(world.seed ^ 0x4e4a);
    for (unsigned p = 0; p < world.pairs; ++p) {
        for (EndOptions& end : world.pair[p].end) {
            if (rng.chance(60)) end.rnr.notice_every = rng.magnitude(10 * kMillisecond);
            if (!world.clean && rng.chance(20)) {
                end.rnr.retries = static_cast<std::uint8_t>(rng.below(kRnrForever));
            }
        }
    }
}

/// Of both ends: drawn apart, or few pairs would have one in common.
std::uint64_t draw_features(std::uint64_t seed, unsigned pair) {
    Rng rng(seed ^ 0xfea7 ^ pair);
    std::uint64_t features = rng.chance(80) ? MPA_FEATURE_ACKNOWLEDGE : 0;
    if (rng.chance(80)) features |= MPA_FEATURE_SEND_IMMEDIATE;
    if (rng.chance(80)) features |= MPA_FEATURE_RNR;
    return features;
}

/// The same again: extension frames, with an implementation and with types that are not defined.
void draw_extension_frames(Options& world) {
    Rng rng(world.seed ^ 0xe47f2a3e);
    for (unsigned p = 0; p < world.pairs; ++p) {
        for (EndOptions& end : world.pair[p].end) {
            mpa::StartupConfig& startup = end.mpa.startup;
            startup.extensions = rng.chance(75);
            std::vector<std::byte>& tlvs = startup.extension_tlvs;
            if (rng.chance(20)) mpa::append_tlv(tlvs, 0, {});
            if (rng.chance(80)) {
                end.implementation.features = rng.next() | draw_features(world.seed, p);
                end.implementation.delayed_ack_ms = static_cast<std::uint16_t>(rng.below(500));
                if ((end.implementation.features & MPA_FEATURE_DELAYED_ACK) == 0) {
                    end.implementation.delayed_ack_ms = 0;
                }
                const std::string name(rng.below(65), 'n'), version(rng.below(65), 'v');
                end.implementation.name = Implementation::text(name);
                end.implementation.version = Implementation::text(version);
                mpa::append_tlv(tlvs, end.implementation);
            }
            if (rng.chance(40)) {
                std::vector<std::byte> unknown(rng.magnitude(800));
                rng.fill(unknown);
                mpa::append_tlv(tlvs, static_cast<std::uint16_t>(rng.between(2, 65535)), unknown);
            }
        }
    }
}

/// And Sends with Immediate, among the others.
void draw_immediates(Options& world) {
    Rng rng(world.seed ^ 0x1333ed1a);
    for (unsigned p = 0; p < world.pairs; ++p) {
        for (EndOptions& end : world.pair[p].end) {
            end.immediate_percent = rng.chance(60) ? static_cast<unsigned>(rng.below(60)) : 0;
        }
    }
}

/// And what only transports had once.
void draw_owner(Options& world) {
    Rng rng(world.seed ^ 0x0b5e55ed);
    for (unsigned p = 0; p < world.pairs; ++p) {
        for (EndOptions& end : world.pair[p].end) {
            end.fin_delay = rng.pick<Time>({0, kMillisecond, 100 * kMillisecond});
            end.rtr_timeout = end.mpa.startup.timeout;
            if (!world.clean && rng.chance(15)) {
                end.rtr_timeout = rng.magnitude(20 * kMillisecond);
            }
            end.outlives_peer = rng.chance(15);
            end.confirmed = rng.chance(25);
        }
    }
}

/// And MSNs that wrap in the middle of the traffic.
void draw_msns(Options& world) {
    Rng rng(world.seed ^ 0x3a9c1b);
    for (unsigned p = 0; p < world.pairs; ++p) {
        if (rng.chance(25)) world.pair[p].first_msn = 0 - static_cast<std::uint32_t>(rng.below(40));
    }
}

/// And worlds that try out where regions and windows end: among all the errors of others those are
/// rare, and the first error is mostly the last thing that a connection does.
void draw_edges(Options& world) {
    Rng rng(world.seed ^ 0xed9e5);
    world.edges = !world.clean && !world.errors && rng.chance(70);
    if (!world.edges || (!world.windows && rng.chance(70))) return;
    world.windows = true;
    for (unsigned p = 0; p < world.pairs; ++p) {
        for (EndOptions& end : world.pair[p].end) {
            end.weights[static_cast<std::size_t>(SendOpcode::bind_window)] = 12;
            end.operations += 20;
        }
    }
}

}  // namespace

Options draw_options(std::uint64_t seed) {
    Rng rng(seed * 2 + 1);
    Options world;
    world.seed = seed;
    if (!rng.chance(50)) {
        world.clean = false;
        world.errors = rng.chance(50);
        world.flips = rng.chance(35);
        world.flips_in_startup = world.flips && rng.chance(10);
        world.resets = rng.chance(25);
        world.aborts = rng.chance(15);
        world.removals = rng.chance(20);
        if (rng.chance(20)) world.rnr_timeout = kMillisecond;
    }
    world.pairs = rng.chance(80) ? 1 : static_cast<unsigned>(rng.between(2, 4));
    world.share_queues = world.pairs > 1 ? rng.chance(70) : rng.chance(20);
    world.shared_receives = world.share_queues && rng.chance(50);
    world.message_max = rng.pick<std::size_t>({0, 1, 64, 1000, 4096, 9000, 9000, 40000, 150000});
    if (world.pairs > 1) world.message_max = std::min<std::size_t>(world.message_max, 9000);
    world.region_max = std::max<std::size_t>(rng.magnitude(world.message_max), 64);
    world.arena_bytes = std::min(kArenaMax, world.pairs * (65536 + 40 * world.message_max));

    for (unsigned p = 0; p < world.pairs; ++p) {
        Options::Pair& pair = world.pair[p];
        for (unsigned i = 0; i < 2; ++i) {
            draw_pipe(rng, pair.pipe[i]);
            if (world.message_max > 8192) {
                pair.pipe[i].capacity = std::max<std::size_t>(pair.pipe[i].capacity, 1000);
                pair.pipe[i].segment_max = std::max<std::size_t>(pair.pipe[i].segment_max, 100);
            }
            draw_end(rng, world, pair.end[i], i == 0);
        }
        draw_agreement(rng, world, pair);
        if (world.resets && rng.chance(80)) pair.reset_at = rng.magnitude(50 * kMillisecond);
        for (unsigned i = 0; world.flips && i < 2; ++i) {
            // Behind the start-up frame, which no CRC covers.
            const mpa::StartupConfig& startup = pair.end[i].mpa.startup;
            const std::uint64_t least =
                world.flips_in_startup ? 0 : 20 + 4 + startup.private_data.size();
            auto& flips = pair.pipe[i].flips;
            for (std::uint64_t n = rng.below(3); n > 0; --n) {
                const std::uint64_t at = least + rng.magnitude(200'000);
                // Twice the same bit would be no damage.
                if (std::find(flips.begin(), flips.end(), at) == flips.end()) flips.push_back(at);
            }
        }
    }
    if (!world.startup_succeeds) world.clean = false;
    draw_additions(world);
    draw_verbs(world);
    draw_rnr(world);
    draw_owner(world);
    draw_extension_frames(world);
    draw_immediates(world);
    draw_msns(world);
    draw_edges(world);
    return world;
}

namespace {

/// The offer of end 1, in its extension frame, and how end 0 treats it.
void draw_offer(Rng& rng, Options::Pair& pair, unsigned number) {
    pair.offers = rng.chance(70);
    pair.declines = rng.chance(15);
    const bool slow = std::any_of(pair.pipe.begin(), pair.pipe.end(),
                                  [](const PipeOptions& pipe) { return pipe.capacity < 1000; });
    // Start-up may take 10 s in all.
    pair.answer_after =
        rng.pick<Time>({0, rng.magnitude(kSecond), rng.below((slow ? 1 : 9) * kSecond)});
    for (const EndOptions& end : pair.end) {
        // Those that were drawn at random.
        mpa::TlvReader reader(end.mpa.startup.extension_tlvs);
        for (mpa::Tlv tlv; reader.next(tlv);) {
            if (tlv.type == MPA_TLV_SHM_OFFER || tlv.type == MPA_TLV_SHM_ANSWER) {
                pair.offers = false;
            }
        }
    }
    if (!pair.offers) return;
    shm::Offer offer;
    offer.token = number + 1;
    mpa::insert_tlv(pair.end[1].mpa.startup.extension_tlvs, MPA_TLV_SHM_OFFER, shm::encode(offer));
    pair.end[0].mpa.startup.answers_offer = true;
}

}  // namespace

void use_links(Options& world) {
    Rng rng(world.seed ^ 0x5113);
    world.links = true;
    // What may be damaged on a network is safe in memory.
    world.flips = world.flips_in_startup = false;
    const unsigned before = world.pairs;
    if (rng.chance(70))
        world.pairs = std::max(world.pairs, 2 + static_cast<unsigned>(rng.below(3)));
    for (unsigned p = before; p < world.pairs; ++p) world.pair[p] = world.pair[p % before];
    Rng offers(world.seed ^ 0x0ffe5);
    world.arena_bytes = std::min(kArenaMax, world.pairs * (65536 + 40 * world.message_max));
    for (unsigned p = 0; p < world.pairs; ++p) {
        Options::Pair& pair = world.pair[p];
        if (rng.chance(60)) pair.start_at = rng.magnitude(100 * kMillisecond);
        pair.opener = static_cast<unsigned>(rng.below(2));
        for (PipeOptions& pipe : pair.pipe) pipe.flips.clear();
        for (EndOptions& end : pair.end) {
            end.mpa.startup.xsock_mark = end.mpa.startup.extensions = true;
        }
        draw_offer(offers, pair, p);
    }
    world.layout = {.ring_bytes = rng.pick<std::uint32_t>({16u << 10, 64u << 10, 256u << 10}),
                    .slots = rng.pick<std::uint32_t>({2, 4, 64})};
    world.credit = rng.pick<std::size_t>({20u << 10, 1u << 20, 256u << 20});
    world.memory.late_percent = rng.pick<unsigned>({0, 50, 90});
    world.memory.amid_percent = rng.pick<unsigned>({0, 2, 20});
    if (!world.clean && rng.chance(30)) {
        world.deaths = true;
        world.memory.dies_behind[rng.below(2)] = rng.magnitude(20'000);
    }
}

void describe(const Options& world) {
    if (world.links) {
        trace_line(
            "over a link: ring %u slots %u credit %zu late %u%% amid %u%% dies behind %lld/%lld",
            world.layout.ring_bytes, world.layout.slots, world.credit, world.memory.late_percent,
            world.memory.amid_percent, static_cast<long long>(world.memory.dies_behind[0]),
            static_cast<long long>(world.memory.dies_behind[1]));
    }
    trace_line(
        "seed %llu: %s, %u pair(s)%s%s, messages to %zu, errors %d flips %d%s resets %d "
        "aborts %d removals %d foreign %d faults %d extensions %d windows %d edges %d",
        static_cast<unsigned long long>(world.seed), world.clean ? "clean" : "not clean",
        world.pairs, world.share_queues ? ", shared CQ" : "", world.shared_receives ? ", SRQ" : "",
        world.message_max, world.errors, world.flips,
        world.flips_in_startup ? " (start-up too)" : "", world.resets, world.aborts, world.removals,
        world.foreign, world.faults, world.extensions, world.windows, world.edges);
    for (unsigned p = 0; p < world.pairs; ++p) {
        if (world.pair[p].offers) {
            trace_line("  %u: offers; the answer %s after %llu us", p,
                       world.pair[p].declines ? "declines" : "accepts",
                       static_cast<unsigned long long>(world.pair[p].answer_after / 1000));
        }
        for (unsigned i = 0; i < 2; ++i) {
            const EndOptions& end = world.pair[p].end[i];
            const mpa::StartupConfig& s = end.mpa.startup;
            const PipeOptions& pipe = world.pair[p].pipe[i];
            trace_line(
                "  %u.%u: revision %u crc %d markers %d mark %d frame %d rtr %u ird %u ord %u "
                "defer %d pd %zu; mulpdu %zu emss %zu copy %zu; sq %u rq %u; ops %u+%u; "
                "pipe %zu/%zu; read %zu write %zu; errors %u%%; acknowledged %d rights %x "
                "rnr %llu/%u; fin "
                "delay %llu rtr "
                "%llu outlives %d confirmed %d",
                p, i, s.revision, s.crc, s.markers, s.xsock_mark, s.extensions, s.rtr, s.ird, s.ord,
                s.defer_reply, s.private_data.size(), end.mpa.xsock_mulpdu, end.emss,
                end.mpa.copy_limit, end.sq_depth, end.rq_depth, end.operations, end.late_operations,
                pipe.capacity, pipe.segment_max, end.read_max, end.write_max, end.error_percent,
                end.acknowledged, end.rights, static_cast<unsigned long long>(end.rnr.notice_every),
                end.rnr.retries, static_cast<unsigned long long>(end.fin_delay / kMillisecond),
                static_cast<unsigned long long>(end.rtr_timeout / kMillisecond), end.outlives_peer,
                end.confirmed);
        }
    }
}

}  // namespace xsock::sim
