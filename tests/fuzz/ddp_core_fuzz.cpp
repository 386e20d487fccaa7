// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The kernel module's core, driven as TCP's queues and recv() drive it: a stream of FPDUs, some of
// them hostile, in segments cut and ordered at will. The FPDU receiver over the same stream is the
// oracle: memory at each Send, the error, and what is told of Writes must be the same. Where the
// peer sends other octets the second time, the core must still stay inside of regions and queues.
//
// Input: a byte (Mode), the number of parts and the parts (add_part), then events (World::event).
#include <algorithm>

#include "base/crc32c.hpp"
#include "mpa/fpdu.hpp"
#include "mpa/fpdu_receiver.hpp"
#include "mpa/marker.hpp"
#include "mpa/record_receiver.hpp"
#include "tests/fuzz/input.hpp"
#include "tests/support/fpdus.hpp"
#include "tests/unit/ddp_kernel/module_model.hpp"
#include "tests/unit/ddp_kernel/placing_ulp.hpp"

namespace {

using namespace xsock;
using test::ModuleModel;
using test::TaggedSegment;
using ByteVector = std::vector<std::byte>;

constexpr std::size_t kRegionBytes = 2048;
constexpr std::size_t kStreamMax = 8000;
constexpr std::uint32_t kOtherStag = 0x9999;

struct Mode {
    bool in_order, crc, two_faced, to_atomics, prompt, starts_inside, markers;
};

// ---- The stream ----

std::uint32_t crc_of(ConstBytes octets) { return crc32c_finish(crc32c(kCrc32cInit, octets)); }

class Stream {
  public:
    Stream(fuzz::Input& input, bool markers) : markers_(markers) {
        for (unsigned parts = input.next_byte(); parts > 0 && octets.size() < kStreamMax; --parts) {
            add_part(input);
        }
    }
    ByteVector octets;

  private:
    void add_part(fuzz::Input& input) {
        const unsigned kind = input.next_byte();
        const unsigned n = input.next_byte();
        switch (kind % 14) {
            case 0:  // an index that is written again and again
                return add_tagged(RDMAP_WRITE, ModuleModel::kStag, 64, 8);
            case 1:
                return add_tagged(RDMAP_WRITE, ModuleModel::kStag, input.next_byte() * 8u,
                                  4 + n * 4u);
            case 2:
                for (unsigned i = 0; i < n % 80; ++i) {
                    add_tagged(RDMAP_WRITE, ModuleModel::kStag, 256 + i * (kind >> 4), 1);
                }
                return;
            case 3:
                return add_tagged(RDMAP_WRITE, kOtherStag, input.next_byte() * 4u, 1 + n);
            case 4:
                return add_untagged(RDMAP_SEND, n);
            case 5:
                return add_tagged(RDMAP_READ_RESPONSE, ModuleModel::kSinkStag,
                                  n % 4 != 0 ? responded_ : n, 1 + n);
            case 6:
                return add_tagged(RDMAP_WRITE, ModuleModel::kStag, n, 0);
            case 7:
                return add_untagged(RDMAP_ATOMIC_REQUEST, 34);
            case 8:  // wants an answer
                return add_tagged(RDMAP_WRITE | 0x10, ModuleModel::kStag, n * 4u, 1 + n);
            case 9:
                add_tagged(RDMAP_WRITE, ModuleModel::kStag, n, 1 + n);
                octets[octets.size() - 1 - input.next_byte() % 5] ^= std::byte{4};
                return;
            case 10:  // a length that is not so, then octets that are anything
                octets.push_back(static_cast<std::byte>(input.next_byte()));
                octets.push_back(static_cast<std::byte>(n));
                return add_raw(input, kind);
            case 11:
                return add_raw(input, n);
            case 12: {  // out of bounds, or an offset that wraps
                const std::uint64_t high = input.next_byte() % 2 != 0 ? ~std::uint64_t{0} : 0;
                return add_tagged(RDMAP_WRITE, ModuleModel::kStag, high - n + kRegionBytes, 1 + n);
            }
            default:  // control octets that are anything
                return add_tagged(input.next_byte(), ModuleModel::kStag, n, 1 + n,
                                  input.next_byte());
        }
    }
    void add_raw(fuzz::Input& input, std::size_t n) {
        const ByteVector raw = input.take(n);
        octets.insert(octets.end(), raw.begin(), raw.end());
    }
    void add_tagged(unsigned rdmap, std::uint32_t stag, std::uint64_t offset, std::size_t n,
                    unsigned control = 0) {
        ByteVector ulpdu(sizeof(ddp_tagged));
        // Some Writes are messages of several segments.
        const unsigned last = ++made_ % 3 != 0 ? DDP_FLAG_LAST : 0;
        ulpdu[0] = static_cast<std::byte>(DDP_FLAG_TAGGED | DDP_VERSION | last);
        ulpdu[0] ^= static_cast<std::byte>(control);
        ulpdu[1] = static_cast<std::byte>(RDMAP_VERSION ^ rdmap);
        store_be32(&ulpdu[2], stag);
        store_be64(&ulpdu[6], offset);
        if (stag == ModuleModel::kSinkStag) responded_ = offset + n;
        add_fpdu(std::move(ulpdu), n);
    }
    void add_untagged(unsigned opcode, std::size_t n) {
        ByteVector ulpdu(sizeof(ddp_untagged));
        ulpdu[0] = static_cast<std::byte>(DDP_FLAG_LAST | DDP_VERSION);
        ulpdu[1] = static_cast<std::byte>(RDMAP_VERSION | opcode);
        add_fpdu(std::move(ulpdu), n);
    }
    /// The payload tells FPDUs apart.
    void add_fpdu(ByteVector ulpdu, std::size_t payload) {
        for (std::size_t i = 0; i < payload; ++i) {
            ulpdu.push_back(static_cast<std::byte>(i * 31 + octets.size()));
        }
        if (markers_) {
            test::append_marked_fpdu(octets, ulpdu);
        } else {
            test::append_fpdu(octets, ulpdu);
        }
    }

    bool markers_;
    std::uint64_t responded_ = 0;
    unsigned made_ = 0;
};

// ---- What user level makes of it ----

struct Fpdu {
    std::size_t octets = 0;  ///< of the stream; 0: it is not all there, or not sound
    ByteVector plain;        ///< its octets without markers
};

/// The FPDU that begins at `at`. Markers lie at multiples of 512; of the octets between them, the
/// first two are the length.
Fpdu sound_fpdu(ConstBytes stream, std::size_t at, const Mode& mode) {
    Fpdu fpdu;
    const std::size_t from = at;
    std::size_t length_at = at, wanted = MPA_LENGTH_OCTETS;
    while (fpdu.plain.size() < wanted) {
        if (mode.markers && at % MPA_MARKER_SPACING == 0) {
            if (stream.size() - at < MPA_MARKER_OCTETS) return {};
            const std::size_t since = fpdu.plain.empty() ? 0 : at - length_at;
            if (mpa::marker_fpduptr(&stream[at]) != since) return {};
            at += MPA_MARKER_OCTETS;
            if (fpdu.plain.empty()) length_at = at;
        }
        if (at >= stream.size()) return {};
        fpdu.plain.push_back(stream[at++]);
        if (fpdu.plain.size() == MPA_LENGTH_OCTETS) {
            wanted = mpa::fpdu_octets(load_be16(fpdu.plain.data()));
            if (wanted > stream.size()) return {};
        }
    }
    const ConstBytes covered = stream.subspan(from, at - from - MPA_CRC_OCTETS);
    if (mode.crc && crc_of(covered) != load_le32(&stream[at - MPA_CRC_OCTETS])) return {};
    fpdu.octets = at - from;
    return fpdu;
}

class Reference {
  public:
    Reference(const Stream& stream, const Mode& mode) : region(kRegionBytes), sink(kRegionBytes) {
        test::PlacingUlp ulp(region, sink, mode.to_atomics);
        ulp.on_send = [&](unsigned) {
            at_send.push_back({region, sink, ulp.other});
            message_bytes_at.push_back(ulp.message_bytes);
        };
        mpa::FpduReceiver receiver(mode.crc, mode.markers);
        receiver.consume(stream.octets, ulp);
        error = receiver.stream_error();
        written = ulp.written;
        other = ulp.other;
        find_fpdus(stream, mode);
    }
    /// What of the region, or the sink, may differ from user level behind the Send at index `send`,
    /// or at the end: bytes of segments behind it, and of what looks like a Write where reading
    /// starts inside an FPDU.
    [[nodiscard]] std::vector<bool> may_differ(bool in_sink, std::size_t send) const {
        std::vector<bool> differ(kRegionBytes);
        const std::size_t at = send < sends.size() ? sends[send] : SIZE_MAX;
        for (const Placement& write : writes) {
            if (write.segment.response != in_sink || (write.at < at && write.delivered)) continue;
            std::fill_n(differ.begin() + static_cast<std::ptrdiff_t>(write.segment.offset),
                        write.segment.bytes, true);
        }
        return differ;
    }

    struct Memory {
        ByteVector region, sink, other;
    };
    std::vector<Memory> at_send;
    std::vector<std::uint64_t> message_bytes_at;  ///< Sends: of the Write before each
    ByteVector region, sink, other;
    StreamError error = StreamError::none;
    std::uint64_t written = 0;
    std::size_t largest = 0;  ///< octets of an FPDU

  private:
    struct Placement {
        std::size_t at;
        bool delivered;
        TaggedSegment segment;
    };
    void find_fpdus(const Stream& stream, const Mode& mode) {
        const ConstBytes octets = stream.octets;
        std::size_t next = 0;
        for (std::size_t at = 0; at + MPA_LENGTH_OCTETS <= octets.size(); ++at) {
            const bool starts = at == next;
            TaggedSegment segment;
            // Nothing is placed behind holes with markers.
            const bool may_be =
                !mode.markers &&
                TaggedSegment::parse(octets.subspan(at + MPA_LENGTH_OCTETS), segment) &&
                is_mirrored(segment);
            if (!starts && !may_be) continue;
            const Fpdu fpdu = sound_fpdu(octets, at, mode);
            if (fpdu.octets == 0) {
                if (starts) next = SIZE_MAX;
                continue;
            }
            if (starts) next = at + fpdu.octets;
            const ConstBytes plain = fpdu.plain;
            note(plain.subspan(MPA_LENGTH_OCTETS, load_be16(plain.data())), at, starts);
            largest = std::max(largest, fpdu.octets);
        }
    }
    static bool is_mirrored(const TaggedSegment& segment) {
        return segment.stag == (segment.response ? ModuleModel::kSinkStag : ModuleModel::kStag);
    }
    void note(ConstBytes ulpdu, std::size_t at, bool delivered) {
        TaggedSegment segment;
        if (TaggedSegment::parse(ulpdu, segment)) {
            if (is_mirrored(segment) && segment.fits(kRegionBytes)) {
                writes.push_back({at, delivered, segment});
            }
        } else if (delivered && ulpdu.size() >= 2 &&
                   (ulpdu[0] & std::byte{DDP_FLAG_TAGGED}) == std::byte{0} &&
                   (ulpdu[1] & std::byte{RDMAP_OPCODE_MASK}) == std::byte{RDMAP_SEND}) {
            sends.push_back(at);
        }
    }

    std::vector<Placement> writes;
    std::vector<std::size_t> sends;
};

// ---- What the module makes of it ----

class World {
  public:
    World(const Stream& stream, const Reference& reference, const Mode& mode)
        : stream_(stream),
          reference_(reference),
          mode_(mode),
          wire_(stream.octets),
          module_(wire_, region_, sink_,
                  {.in_order = mode.in_order,
                   .crc = mode.crc,
                   .markers = mode.markers,
                   .to_atomics = mode.to_atomics,
                   .before = mode.starts_inside ? 120u : 0u}),
          ulp_(region_, sink_, mode.to_atomics),
          receiver_(mode.crc, mode.markers) {
        ulp_.on_send = [this](unsigned send) { compare_at(send); };
        for (std::size_t at = 0; at < wire_.size();) {
            starts_.push_back(at);
            at += std::max<std::size_t>(sound_fpdu(wire_, at, mode).octets, 1);
        }
    }

    void event(fuzz::Input& input) {
        const unsigned what = input.next_byte();
        const unsigned n = input.next_byte();
        switch (what % 8) {
            case 0:  // aligned to FPDUs
            case 1:
            case 2:
                if (!starts_.empty()) {
                    const std::size_t first = (n | (what & 0x80u) << 1) % starts_.size();
                    const std::size_t last = first + 1 + (what >> 3) % 4;
                    arrive(starts_[first], last < starts_.size() ? starts_[last] : wire_.size(),
                           false);
                }
                return;
            case 3: {  // cut anywhere
                const std::size_t at = (input.next_byte() << 8 | n) % (wire_.size() + 1);
                return arrive(at, at + 1 + (what >> 3) * 40u, (what & 0x80) != 0);
            }
            case 4:  // the next octets in order
                return arrive(module_.edge(), module_.edge() + 1 + n, false);
            case 5:
                return read((what & 8) != 0, n);
            case 6:
                return module_.pin((n & 3) != 0);
            default:
                return (what & 8) != 0 ? module_.collapse() : module_.prune(n % 8);
        }
    }

    /// The rest comes; all must go through, and memory be as user level leaves it.
    void end() {
        module_.arrive(module_.edge(), wire_.size());
        for (int quiet = 0; quiet < 3 && receiver_.stream_error() == StreamError::none;) {
            const std::uint64_t before = module_.rx().pos;
            read(true, 0);
            const bool over = module_.rx().pos == wire_.size() && records_.empty();
            FUZZ_CHECK(over || module_.rx().pos > before || !records_.empty() || quiet < 2);
            quiet = over || module_.rx().pos == before ? quiet + 1 : 0;
        }
        FUZZ_CHECK(module_.faults() == 0);
        FUZZ_CHECK(receiver_.stream_error() != StreamError::mpa_local_catastrophic);
        if (mode_.two_faced) return;
        FUZZ_CHECK(receiver_.stream_error() == reference_.error);
        FUZZ_CHECK(ulp_.sends == reference_.at_send.size());
        FUZZ_CHECK(ulp_.placed + ulp_.written == reference_.written);
        compare({reference_.region, reference_.sink, reference_.other}, SIZE_MAX);
        if (reference_.error == StreamError::none) {
            FUZZ_CHECK(ulp_.placed == module_.rx().count.placed_fpdus);
            FUZZ_CHECK(receiver_.stream_octets() == wire_.size());
        }
    }

  private:
    /// `other_face`: octets that are not there yet come as others.
    void arrive(std::size_t from, std::size_t to, bool other_face) {
        to = std::min(to, wire_.size());
        if (from >= to) return;
        if (mode_.two_faced) {
            for (std::size_t at = from; at < to; ++at) {
                if (module_.has(at, at + 1)) continue;
                const std::size_t shown = other_face ? (at + 100) % wire_.size() : at;
                wire_[at] = stream_.octets[shown];
            }
        }
        module_.arrive(from, to);
    }
    /// What the last recv() answered is executed before the next, or at once.
    void read(bool give_up, unsigned n) {
        execute();
        if (receiver_.stream_error() != StreamError::none) return;  // the engine reads no more
        ModuleModel::Buffer buffer;
        if (n % 4 == 1) {
            buffer.bytes = reference_.largest + 64 + n * 8u;
            if (mode_.two_faced) buffer.bytes += wire_.size();
        }
        if (n % 4 == 2) buffer.writable = n * 16u;
        records_ = module_.recv(give_up, buffer);
        if (mode_.prompt) execute();
    }
    void execute() {
        receiver_.consume(records_, ulp_);
        records_.clear();
    }
    void compare_at(std::size_t send) {
        if (mode_.two_faced) return;
        FUZZ_CHECK(send < reference_.at_send.size());
        compare(reference_.at_send[send], send);
        FUZZ_CHECK(ulp_.message_bytes == reference_.message_bytes_at[send]);
    }
    void compare(const Reference::Memory& memory, std::size_t send) const {
        FUZZ_CHECK(ulp_.other == memory.other);
        compare_bytes(region_, memory.region, false, send);
        compare_bytes(sink_, memory.sink, true, send);
    }
    void compare_bytes(const ByteVector& have, const ByteVector& want, bool in_sink,
                       std::size_t send) const {
        // Executed at once and in order, memory is what user level leaves, to the byte.
        const bool exact = mode_.prompt && mode_.in_order;
        const std::vector<bool> differ =
            exact ? std::vector<bool>(kRegionBytes) : reference_.may_differ(in_sink, send);
        for (std::size_t i = 0; i < kRegionBytes; ++i) FUZZ_CHECK(differ[i] || have[i] == want[i]);
    }

    const Stream& stream_;
    const Reference& reference_;
    Mode mode_;
    ByteVector wire_;  ///< what TCP holds, or will
    ByteVector region_ = ByteVector(kRegionBytes), sink_ = ByteVector(kRegionBytes);
    ModuleModel module_;
    test::PlacingUlp ulp_;
    mpa::RecordReceiver receiver_;
    ByteVector records_;
    std::vector<std::size_t> starts_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned bits = input.next_byte();
    const Mode mode{.in_order = (bits & 1) != 0,
                    .crc = (bits & 2) == 0,
                    .two_faced = (bits & 4) != 0,
                    .to_atomics = (bits & 8) != 0,
                    .prompt = (bits & 16) != 0,
                    .starts_inside = (bits & 32) != 0,
                    .markers = (bits & 64) != 0};
    const Stream stream(input, mode.markers);
    const Reference reference(stream, mode);
    World world(stream, reference, mode);
    for (int events = 0; events < 200 && !input.empty(); ++events) world.event(input);
    world.end();
    return 0;
}
