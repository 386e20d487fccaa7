// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock decode: what MPA connections in a capture file said, line by line or as JSON, and what each
// came to. The file may be anything; a capture that ends in the middle is decoded as far as it
// goes.
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "tools/command.hpp"
#include "tools/decode/capture.hpp"
#include "tools/decode/sdp_words.hpp"
#include "tools/decode/words.hpp"
#include "tools/json.hpp"
#include "tools/options.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

using namespace decode;

/// A file, compressed by gzip or not.
class GzSource final : public ByteSource {
  public:
    explicit GzSource(gzFile file) : file_(file) { gzbuffer(file_, 256 * 1024); }
    ~GzSource() { gzclose_r(file_); }
    GzSource(const GzSource&) = delete;
    GzSource& operator=(const GzSource&) = delete;

    std::size_t read(Bytes bytes) override {
        const auto wanted = static_cast<unsigned>(std::min<std::size_t>(bytes.size(), 1 << 20));
        const int n = gzread(file_, bytes.data(), wanted);
        if (n < 0) {
            int code = 0;
            const char* const text = gzerror(file_, &code);
            // What zlib had already unpacked of a file that is cut short was given before.
            error_ = code == Z_ERRNO ? std::strerror(errno) : text;
            return 0;
        }
        return static_cast<std::size_t>(n);
    }
    [[nodiscard]] const std::string& error() const { return error_; }

  private:
    gzFile file_;
    std::string error_;
};

struct Selection {
    std::uint64_t connection = 0;  // 0: all
    std::string host;              // empty: all
    std::uint64_t port = 0;
    bool frames = true;
    bool summary = true;

    [[nodiscard]] bool takes(const ConnectionSummary& c) const {
        if (connection != 0 && c.number != connection) return false;
        if (port != 0 && c.first.port != port && c.second.port != port) return false;
        return host.empty() || c.first.address_text() == host || c.second.address_text() == host;
    }
};

using Direction = ConnectionSummary::Direction;

/// A count of a direction, as both reports show it.
struct Count {
    const char* key;
    const char* words;  // null: for machines only
    std::uint64_t Direction::*value;
    bool wrong;  // for --check
};
constexpr Count kCounts[] = {
    {"crc_good", "CRC good", &Direction::crc_good, false},
    {"crc_bad", "CRC BAD", &Direction::crc_bad, true},
    {"crc_unchecked", nullptr, &Direction::crc_unchecked, false},
    {"markers", "markers", &Direction::markers, false},
    {"bad_markers", "markers WRONG", &Direction::bad_markers, true},
    {"incomplete", "incomplete", &Direction::incomplete, true},
    {"senseless", "senseless headers", &Direction::senseless, true},
    {"out_of_step", "out of step", &Direction::losses, true},
    {"sdp_messages", "SDP messages", &Direction::sdp_messages, false},
    {"sdp_wrong", "SDP messages WRONG", &Direction::sdp_wrong, true},
    {"retransmitted", "retransmitted segments", &Direction::retransmitted, false},
    {"early", "early segments", &Direction::early, false},
    {"missing_bytes", "bytes missing", &Direction::missing_bytes, false},
};

bool is_wrong(const ConnectionSummary& c) {
    return std::any_of(std::begin(kCounts), std::end(kCounts), [&](const Count& count) {
        return count.wrong &&
               (c.directions[0].*count.value != 0 || c.directions[1].*count.value != 0);
    });
}

class Report : public CaptureListener {
  public:
    explicit Report(const Selection& selection) : selection_(selection) {}
    virtual ~Report() = default;
    virtual void end(const CaptureDecoder::Totals& totals, const std::string& file_error) = 0;
    [[nodiscard]] bool something_wrong() const { return wrong_; }
    void on_end(const ConnectionSummary& c) final {
        if (!selection_.takes(c)) return;
        if (is_wrong(c)) wrong_ = true;
        if (selection_.summary) summarize(c);
    }

  protected:
    /// Its frames are listed.
    [[nodiscard]] bool lists(const ConnectionSummary& c) const {
        return selection_.frames && selection_.takes(c);
    }
    const Selection selection_;
    std::string summaries_;

  private:
    /// Adds to summaries_.
    virtual void summarize(const ConnectionSummary& c) = 0;
    bool wrong_ = false;
};

// ---- for people -------------------------------------------------------------

class TextReport final : public Report {
  public:
    using Report::Report;

    void on_connection(const ConnectionSummary& c) override {
        if (lists(c)) fmt::print("{}\n", ends_of(c));
    }
    void on_startup(const ConnectionSummary& c, const Place& place,
                    const StartupFrame& frame) override {
        line(c, place, startup_words(frame));
    }
    void on_extension_frame(const ConnectionSummary& c, const Place& place,
                            const ExtensionFrame& frame) override {
        line(c, place, extension_words(frame));
    }
    void on_fpdu(const ConnectionSummary& c, const Place& place, const Fpdu& fpdu) override {
        line(c, place, fpdu_words(fpdu));
    }
    void on_sdp(const ConnectionSummary& c, const Place& place, const SdpUnit& unit) override {
        line(c, place, "   " + sdp_words(unit));
    }
    void on_lost(const ConnectionSummary& c, const Place& place, const char* why,
                 std::uint64_t bytes) override {
        line(c, place,
             bytes != 0 ? fmt::format("OUT OF STEP: {} ({})", why, bytes)
                        : fmt::format("OUT OF STEP: {}", why));
    }
    void end(const CaptureDecoder::Totals& totals, const std::string& file_error) override {
        if (selection_.summary) {
            fmt::print("{}{}{} packets, {} TCP connections, {} of them MPA\n",
                       selection_.frames && totals.mpa_connections != 0 ? "\n" : "", summaries_,
                       totals.packets, totals.tcp_connections, totals.mpa_connections);
            if (totals.unknown_link != 0) {
                fmt::print("{} packets of a link type that is not known here\n",
                           totals.unknown_link);
            }
            if (totals.ignored_segments != 0) {
                fmt::print("{} segments of more connections than are followed\n",
                           totals.ignored_segments);
            }
        }
        if (!file_error.empty()) print_error("decode", "{}", file_error);
    }

  private:
    void line(const ConnectionSummary& c, const Place& place, const std::string& words) {
        if (!lists(c)) return;
        if (first_ns_ == 0) first_ns_ = place.time_ns;
        const double seconds =
            static_cast<double>(static_cast<std::int64_t>(place.time_ns - first_ns_)) / 1e9;
        fmt::print("{:6} {:12.6f}  #{} {}  {}\n", place.packet, seconds, c.number,
                   place.from == End::first ? '>' : '<', words);
    }

    static std::string ends_of(const ConnectionSummary& c) {
        return fmt::format("#{}  {}{} > {}", c.number, c.first.text(),
                           c.initiator_known ? " (initiator)" : "", c.second.text());
    }

    void summarize(const ConnectionSummary& c) override {
        std::string text = ends_of(c);
        if (c.request || c.reply) text += fmt::format(", MPA revision {}", c.revision);
        if (!c.request && !c.reply) text += ", start-up not in the capture";
        if (c.rejected) text += ", rejected";
        if (c.terminated) text += ", terminated";
        text += '\n';
        for (std::size_t i = 0; i < 2; ++i) {
            const auto& d = c.directions[i];
            text += fmt::format("    {}  {} FPDUs, {} of payload", i == 0 ? '>' : '<', d.fpdus,
                                bytes_text(d.payload_bytes));
            for (unsigned opcode = 0; opcode < d.messages.size(); ++opcode) {
                if (d.messages[opcode] == 0) continue;
                text += fmt::format(", {} {}", opcode_name(opcode), d.messages[opcode]);
            }
            for (const Count& count : kCounts) {
                if (count.words == nullptr || d.*count.value == 0) continue;
                text += fmt::format(", {} {}", count.words, d.*count.value);
            }
            if (d.fin) text += ", FIN";
            if (d.reset) text += ", RST";
            text += '\n';
        }
        summaries_ += text;
    }

    std::uint64_t first_ns_ = 0;
};

// ---- for machines -----------------------------------------------------------

/// One JSON document, written as it comes: "frames" first, a line for each.
class JsonReport final : public Report {
  public:
    explicit JsonReport(const Selection& selection) : Report(selection) {
        fmt::print("{{\"frames\": [");
    }

    void on_connection(const ConnectionSummary&) override {}
    void on_startup(const ConnectionSummary& c, const Place& place,
                    const StartupFrame& f) override {
        if (!lists(c)) return;
        Json json = head(c, place, f.reply ? "reply" : "request");
        add(json, {{"flags", f.flags},
                   {"revision", f.revision},
                   {"crc", (f.flags & MPA_FLAG_CRC) != 0},
                   {"markers", (f.flags & MPA_FLAG_MARKERS) != 0},
                   {"rejected", (f.flags & MPA_FLAG_REJECT) != 0},
                   {"whole", f.whole}});
        if (f.enhanced) {
            add(json, {{"ird", f.ird & MPA_ENH_DEPTH_MASK},
                       {"ord", f.ord & MPA_ENH_DEPTH_MASK},
                       {"peer_to_peer", (f.ird & MPA_ENH_P2P) != 0}});
        }
        json["private_data"] = hexadecimal(f.private_data);
        print(json);
    }
    void on_extension_frame(const ConnectionSummary& c, const Place& place,
                            const ExtensionFrame& f) override {
        if (!lists(c)) return;
        Json json = head(c, place, "extension_frame");
        add(json, {{"first_packet", place.first_packet},
                   {"ulpdu_bytes", f.ulpdu_bytes},
                   {"bytes", f.bytes},
                   {"crc", crc_name(f.crc)},
                   {"whole", f.whole}});
        if (f.implementation) {
            add(json, {{"name", std::string(f.implementation->name.data())},
                       {"version", std::string(f.implementation->version.data())},
                       {"features", f.implementation->features},
                       {"delayed_ack_ms", f.implementation->delayed_ack_ms}});
        }
        Json tlvs = Json::array();
        for (const ExtensionFrame::Tlv& tlv : f.tlvs) {
            tlvs.push_back(object({{"type", tlv.type}, {"bytes", tlv.bytes}}));
        }
        json["tlvs"] = tlvs;
        if (f.error != mpa::ExtensionError::none) {
            json["wrong"] = mpa::extension_error_text(f.error);
        }
        json["words"] = extension_words(f);
        print(json);
    }
    void on_fpdu(const ConnectionSummary& c, const Place& place, const Fpdu& f) override {
        if (!lists(c)) return;
        Json json = head(c, place, "fpdu");
        add(json, {{"first_packet", place.first_packet},
                   {"stream_byte", f.stream_byte},
                   {"ulpdu_bytes", f.ulpdu_bytes},
                   {"crc", crc_name(f.crc)},
                   {"whole", f.whole},
                   {"markers", f.markers},
                   {"bad_markers", f.bad_markers}});
        if (f.has_header) {
            const ddp::Segment& s = f.segment;
            add(json, {{"opcode", s.opcode},
                       {"name", opcode_name(s.opcode)},
                       {"last", s.last},
                       {"ack_request", s.asks},
                       {"payload_bytes", f.payload_bytes}});
            if (s.tagged) {
                add(json, {{"stag", s.stag}, {"to", s.to}});
            } else {
                add(json,
                    {{"qn", s.qn}, {"msn", s.msn}, {"mo", s.mo}, {"invalidate_stag", s.stag}});
                if (const auto* info = ddp::opcode_info(s.opcode);
                    info != nullptr && info->immediate)
                    json["immediate"] = s.stag;
            }
        }
        if (f.stream_error != StreamError::none)
            json["wrong"] = stream_error_info(f.stream_error).name;
        if (f.read_request) {
            const ddp::ReadRequest& r = *f.read_request;
            json["read"] = object({{"bytes", r.size},
                                   {"source_stag", r.source_stag},
                                   {"source_to", r.source_to},
                                   {"sink_stag", r.sink_stag},
                                   {"sink_to", r.sink_to}});
        }
        if (f.terminate.size() >= sizeof(rdmap_terminate)) {
            const TerminateWords t = terminate_words(f.terminate);
            json["terminate"] = object({{"control", t.control},
                                        {"rfc", reading(t.rfc)},
                                        {"siw", reading(t.siw)},
                                        {"meant", t.siw_is_meant ? "siw" : "rfc"},
                                        {"about", t.about}});
        }
        json["words"] = fpdu_words(f);
        print(json);
    }
    void on_sdp(const ConnectionSummary& c, const Place& place, const SdpUnit& unit) override {
        if (!lists(c)) return;
        const stream::SdpMessage& m = unit.message;
        Json json = head(c, place, "sdp");
        add(json,
            {{"first_packet", unit.first_packet}, {"bytes", unit.bytes}, {"whole", unit.whole}});
        if (unit.has_bsdh) {
            add(json, {{"mid", m.header.mid},
                       {"name", sdp_name(m.header.mid)},
                       {"flags", m.header.flags},
                       {"bufs", m.header.bufs},
                       {"len", m.header.length},
                       {"mseq", m.header.mseq},
                       {"mseq_ack", m.header.mseq_ack},
                       {"payload_bytes", unit.payload_bytes}});
        }
        Json wrong = Json::array();
        for (const char* const rule : unit.wrong) wrong.push_back(rule);
        json["wrong"] = wrong;
        json["words"] = sdp_words(unit);
        print(json);
    }
    void on_lost(const ConnectionSummary& c, const Place& place, const char* why,
                 std::uint64_t bytes) override {
        if (!lists(c)) return;
        Json json = head(c, place, "out-of-step");
        add(json, {{"why", why}, {"bytes", bytes}});
        print(json);
    }
    void end(const CaptureDecoder::Totals& t, const std::string& file_error) override {
        fmt::print("\n],\n\"connections\": [{}\n],\n", summaries_);
        const Json rest = object({{"packets", t.packets},
                                  {"tcp_connections", t.tcp_connections},
                                  {"mpa_connections", t.mpa_connections},
                                  {"unknown_link", t.unknown_link},
                                  {"ignored_segments", t.ignored_segments},
                                  {"file_error", file_error.empty() ? Json() : Json(file_error)}});
        fmt::print("{}\n", json_line(rest).substr(1));  // the document is open already
    }

  private:
    static Json head(const ConnectionSummary& c, const Place& place, const char* kind) {
        return object({{"packet", place.packet},
                       {"time_ns", place.time_ns},
                       {"connection", c.number},
                       {"from", place.from == End::first ? "first" : "second"},
                       {"kind", kind}});
    }
    static Json reading(const TerminateReading& r) {
        return object(
            {{"layer", r.layer}, {"type", r.etype}, {"code", r.code}, {"words", r.words}});
    }
    static Json direction(const Direction& d) {
        Json messages = Json::object();
        for (unsigned opcode = 0; opcode < d.messages.size(); ++opcode) {
            if (d.messages[opcode] != 0) messages[opcode_name(opcode)] = d.messages[opcode];
        }
        Json json = object(
            {{"fpdus", d.fpdus}, {"payload_bytes", d.payload_bytes}, {"messages", messages}});
        for (const Count& count : kCounts) json[count.key] = d.*count.value;
        add(json, {{"fin", d.fin}, {"reset", d.reset}});
        return json;
    }
    void print(const Json& frame) {
        fmt::print("{}\n  {}", first_ ? "" : ",", json_line(frame));
        first_ = false;
    }
    void summarize(const ConnectionSummary& c) override {
        const Json json =
            object({{"connection", c.number},
                    {"first", c.first.text()},
                    {"second", c.second.text()},
                    {"initiator_known", c.initiator_known},
                    {"revision", c.revision},
                    {"request", c.request},
                    {"reply", c.reply},
                    {"rejected", c.rejected},
                    {"terminated", c.terminated},
                    {"directions",
                     Json::array({direction(c.directions[0]), direction(c.directions[1])})}});
        summaries_ += fmt::format("{}\n  {}", summaries_.empty() ? "" : ",", json_line(json));
    }

    bool first_ = true;
};

}  // namespace

int decode_command(int argc, char** argv) {
    bool json = false, check = false, summary_only = false, no_summary = false;
    Selection selection;
    Options options("decode", "[options] FILE",
                    "Lists the MPA, DDP, RDMAP and SDP traffic in a capture file: pcap or pcapng, "
                    "also compressed\nby gzip, from tcpdump, Wireshark or XSOCK_PCAP.");
    options.flag('j', "json", json, "write one JSON document");
    options.flag('s', "summary", summary_only, "only what each connection came to");
    options.flag('f', "frames", no_summary, "only the frames");
    options.flag('c', "check", check,
                 "exit status 1 when a CRC, a marker, a header or an SDP message is\nwrong, bytes "
                 "are missing, or no MPA is in the file");
    options.heading("Which connections");
    options.number('n', "connection", "N", selection.connection, 1, UINT64_MAX,
                   "only the one that is listed as #N");
    options.text('a', "host", "ADDRESS", selection.host, "only those with this IP address");
    options.number('p', "port", "PORT", selection.port, 1, 65535, "only those with this port");
    options.epilogue(
        "Exit status: 0; 1 when the file cannot be read or --check finds something; 2 for a wrong\n"
        "command line.");
    if (const auto status = options.parse(argc, argv)) return *status;
    if (options.arguments().size() != 1) return options.wrong("one FILE is needed");
    if (summary_only && no_summary)
        return options.wrong("--summary and --frames exclude each other");
    selection.frames = !summary_only;
    selection.summary = !no_summary;

    const std::string& path = options.arguments()[0];
    errno = 0;
    const gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) {
        print_error("decode", "{}: {}", path, errno != 0 ? std::strerror(errno) : "out of memory");
        return kFailed;
    }
    GzSource source(file);
    CaptureFile capture(source);
    std::unique_ptr<Report> report;
    if (json) {
        report = std::make_unique<JsonReport>(selection);
    } else {
        report = std::make_unique<TextReport>(selection);
    }
    CaptureDecoder decoder(*report);
    Packet packet;
    while (capture.next(packet)) decoder.add(packet);
    decoder.finish();
    std::string error = source.error().empty() ? capture.error() : source.error();
    if (!error.empty()) error = path + ": " + error;
    const CaptureDecoder::Totals& totals = decoder.totals();
    report->end(totals, error);
    if (!error.empty() && totals.packets == 0) return kFailed;
    const bool found_wrong =
        report->something_wrong() || !error.empty() || totals.mpa_connections == 0;
    return check && found_wrong ? kFailed : kOk;
}

}  // namespace xsock::tools
