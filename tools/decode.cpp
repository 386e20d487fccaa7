// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock decode: what MPA connections in a capture file said, line by line or as JSON, and what each
// came to. The file may be anything; a capture that ends in the middle is decoded as far as it
// goes.
#include <zlib.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "tools/command.hpp"
#include "tools/decode_capture.hpp"
#include "tools/decode_words.hpp"
#include "tools/options.hpp"
#include "tools/text.hpp"

namespace xsock::tools {
namespace {

using namespace decode;

/// A file, compressed by gzip or not.
class GzSource final : public OctetSource {
  public:
    explicit GzSource(gzFile file) : file_(file) { gzbuffer(file_, 256 * 1024); }
    ~GzSource() { gzclose_r(file_); }
    GzSource(const GzSource&) = delete;
    GzSource& operator=(const GzSource&) = delete;

    std::size_t read(Bytes octets) override {
        const auto wanted = static_cast<unsigned>(std::min<std::size_t>(octets.size(), 1 << 20));
        const int n = gzread(file_, octets.data(), wanted);
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

std::uint64_t sum(const ConnectionSummary& c, std::uint64_t ConnectionSummary::Direction::*member) {
    return c.directions[0].*member + c.directions[1].*member;
}

/// What a check counts as wrong.
bool is_wrong(const ConnectionSummary& c) {
    using Direction = ConnectionSummary::Direction;
    return sum(c, &Direction::crc_bad) + sum(c, &Direction::bad_markers) +
               sum(c, &Direction::senseless) + sum(c, &Direction::losses) +
               sum(c, &Direction::incomplete) !=
           0;
}

class Report : public CaptureListener {
  public:
    explicit Report(const Selection& selection) : selection_(selection) {}
    virtual ~Report() = default;
    virtual void end(const CaptureDecoder::Totals& totals, const std::string& file_error) = 0;
    [[nodiscard]] bool something_wrong() const { return wrong_; }

  protected:
    const Selection selection_;
    bool wrong_ = false;
};

// ---- for people -------------------------------------------------------------

class TextReport final : public Report {
  public:
    using Report::Report;

    void on_connection(const ConnectionSummary& c) override {
        if (!selection_.frames || !selection_.takes(c)) return;
        std::printf("#%" PRIu64 "  %s%s > %s\n", c.number, c.first.text().c_str(),
                    c.initiator_known ? " (initiator)" : "", c.second.text().c_str());
    }
    void on_startup(const ConnectionSummary& c, const Place& place,
                    const StartupFrame& frame) override {
        line(c, place, startup_words(frame));
    }
    void on_fpdu(const ConnectionSummary& c, const Place& place, const Fpdu& fpdu) override {
        line(c, place, fpdu_words(fpdu));
    }
    void on_lost(const ConnectionSummary& c, const Place& place, const char* why,
                 std::uint64_t octets) override {
        line(c, place,
             octets != 0 ? format("OUT OF STEP: %s (%" PRIu64 ")", why, octets)
                         : format("OUT OF STEP: %s", why));
    }
    void on_end(const ConnectionSummary& c) override {
        if (!selection_.takes(c)) return;
        if (is_wrong(c)) wrong_ = true;
        if (selection_.summary) summaries_ += summary_of(c);
    }
    void end(const CaptureDecoder::Totals& totals, const std::string& file_error) override {
        if (selection_.summary) {
            std::printf(
                "%s%s%" PRIu64 " packets, %" PRIu64 " TCP connections, %" PRIu64 " of them MPA\n",
                selection_.frames && totals.mpa_connections != 0 ? "\n" : "", summaries_.c_str(),
                totals.packets, totals.tcp_connections, totals.mpa_connections);
            if (totals.unknown_link != 0) {
                std::printf("%" PRIu64 " packets of a link type that is not known here\n",
                            totals.unknown_link);
            }
            if (totals.ignored_segments != 0) {
                std::printf("%" PRIu64 " segments of more connections than are followed\n",
                            totals.ignored_segments);
            }
        }
        if (!file_error.empty()) {
            std::fflush(stdout);
            complain("decode", "%s", file_error.c_str());
        }
    }

  private:
    void line(const ConnectionSummary& c, const Place& place, const std::string& words) {
        if (!selection_.frames || !selection_.takes(c)) return;
        if (first_ns_ == 0) first_ns_ = place.time_ns;
        const double seconds =
            static_cast<double>(static_cast<std::int64_t>(place.time_ns - first_ns_)) / 1e9;
        std::printf("%6" PRIu64 " %12.6f  #%" PRIu64 " %c  %s\n", place.packet, seconds, c.number,
                    place.from == End::first ? '>' : '<', words.c_str());
    }

    static std::string summary_of(const ConnectionSummary& c) {
        std::string text = format("#%" PRIu64 "  %s%s > %s", c.number, c.first.text().c_str(),
                                  c.initiator_known ? " (initiator)" : "", c.second.text().c_str());
        if (c.request || c.reply) text += format(", MPA revision %u", c.revision);
        if (!c.request && !c.reply) text += ", start-up not in the capture";
        if (c.rejected) text += ", rejected";
        if (c.terminated) text += ", terminated";
        text += '\n';
        for (std::size_t i = 0; i < 2; ++i) {
            const auto& d = c.directions[i];
            text += format("    %c  %" PRIu64 " FPDUs, %s of payload", i == 0 ? '>' : '<', d.fpdus,
                           octets_text(d.payload_octets).c_str());
            for (unsigned opcode = 0; opcode < d.messages.size(); ++opcode) {
                if (d.messages[opcode] == 0) continue;
                text += format(", %s %" PRIu64, opcode_name(opcode).c_str(), d.messages[opcode]);
            }
            const auto add = [&](const char* words, std::uint64_t n) {
                if (n != 0) text += format(", %s %" PRIu64, words, n);
            };
            add("CRC good", d.crc_good);
            add("CRC BAD", d.crc_bad);
            add("markers", d.markers);
            add("markers WRONG", d.bad_markers);
            add("incomplete", d.incomplete);
            add("senseless headers", d.senseless);
            add("out of step", d.losses);
            add("retransmitted segments", d.retransmitted);
            add("early segments", d.early);
            add("octets missing", d.missing_octets);
            if (d.fin) text += ", FIN";
            if (d.reset) text += ", RST";
            text += '\n';
        }
        return text;
    }

    std::uint64_t first_ns_ = 0;
    std::string summaries_;
};

// ---- for machines -----------------------------------------------------------

/// One JSON document, written as it comes: "frames" first, a line for each.
class JsonReport final : public Report {
  public:
    explicit JsonReport(const Selection& selection) : Report(selection) {
        std::printf("{\"frames\": [");
    }

    void on_connection(const ConnectionSummary&) override {}
    void on_startup(const ConnectionSummary& c, const Place& place,
                    const StartupFrame& f) override {
        if (!begin(c, place, f.reply ? "reply" : "request")) return;
        std::printf(
            ", \"flags\": %u, \"revision\": %u, \"crc\": %s, \"markers\": %s, "
            "\"rejected\": %s, \"whole\": %s",
            f.flags, f.revision, truth((f.flags & MPA_FLAG_CRC) != 0),
            truth((f.flags & MPA_FLAG_MARKERS) != 0), truth((f.flags & MPA_FLAG_REJECT) != 0),
            truth(f.whole));
        if (f.enhanced) {
            std::printf(", \"ird\": %u, \"ord\": %u, \"peer_to_peer\": %s",
                        f.ird & MPA_ENH_DEPTH_MASK, f.ord & MPA_ENH_DEPTH_MASK,
                        truth((f.ird & MPA_ENH_P2P) != 0));
        }
        std::printf(", \"private_data\": \"%s\"}", hexadecimal(f.private_data).c_str());
    }
    void on_fpdu(const ConnectionSummary& c, const Place& place, const Fpdu& f) override {
        if (!begin(c, place, "fpdu")) return;
        std::printf(", \"first_packet\": %" PRIu64 ", \"stream_octet\": %" PRIu64
                    ", \"ulpdu_octets\": %zu, \"crc\": \"%s\", \"whole\": %s, \"markers\": %u, "
                    "\"bad_markers\": %u",
                    place.first_packet, f.stream_octet, f.ulpdu_octets, crc_name(f.crc),
                    truth(f.whole), f.markers, f.bad_markers);
        if (f.has_header) {
            const ddp::Segment& s = f.segment;
            std::printf(
                ", \"opcode\": %u, \"name\": \"%s\", \"last\": %s, "
                "\"payload_octets\": %zu",
                s.opcode, opcode_name(s.opcode).c_str(), truth(s.last), f.payload_octets);
            if (s.tagged) {
                std::printf(", \"stag\": %u, \"to\": %" PRIu64, s.stag, s.to);
            } else {
                std::printf(", \"qn\": %u, \"msn\": %u, \"mo\": %u, \"invalidate_stag\": %u", s.qn,
                            s.msn, s.mo, s.stag);
            }
        }
        if (f.violation != Violation::none) {
            std::printf(", \"wrong\": \"%s\"", violation_info(f.violation).name);
        }
        if (f.read_request) {
            const ddp::ReadRequest& r = *f.read_request;
            std::printf(", \"read\": {\"octets\": %u, \"source_stag\": %u, \"source_to\": %" PRIu64
                        ", \"sink_stag\": %u, \"sink_to\": %" PRIu64 "}",
                        r.size, r.source_stag, r.source_to, r.sink_stag, r.sink_to);
        }
        if (f.terminate.size() >= sizeof(rdmap_terminate)) {
            const TerminateWords t = terminate_words(f.terminate);
            std::printf(", \"terminate\": {\"control\": \"%s\"", t.control.c_str());
            print_reading("rfc", t.rfc);
            print_reading("siw", t.siw);
            std::printf(", \"meant\": \"%s\", \"about\": \"%s\"}", t.siw_is_meant ? "siw" : "rfc",
                        t.about.c_str());
        }
        std::printf(", \"words\": \"%s\"}", fpdu_words(f).c_str());
    }
    void on_lost(const ConnectionSummary& c, const Place& place, const char* why,
                 std::uint64_t octets) override {
        if (!begin(c, place, "out-of-step")) return;
        std::printf(", \"why\": \"%s\", \"octets\": %" PRIu64 "}", why, octets);
    }
    void on_end(const ConnectionSummary& c) override {
        if (!selection_.takes(c)) return;
        if (is_wrong(c)) wrong_ = true;
        if (!selection_.summary) return;
        summaries_ += format(
            "%s\n  {\"connection\": %" PRIu64
            ", \"first\": \"%s\", \"second\": \"%s\", \"initiator_known\": %s, \"revision\": %u, "
            "\"request\": %s, \"reply\": %s, \"rejected\": %s, \"terminated\": %s, "
            "\"directions\": [",
            summaries_.empty() ? "" : ",", c.number, c.first.text().c_str(),
            c.second.text().c_str(), truth(c.initiator_known), c.revision, truth(c.request),
            truth(c.reply), truth(c.rejected), truth(c.terminated));
        for (std::size_t i = 0; i < 2; ++i) {
            const auto& d = c.directions[i];
            summaries_ += format("%s{\"fpdus\": %" PRIu64 ", \"payload_octets\": %" PRIu64
                                 ", \"messages\": {",
                                 i == 0 ? "" : ", ", d.fpdus, d.payload_octets);
            const char* comma = "";
            for (unsigned opcode = 0; opcode < d.messages.size(); ++opcode) {
                if (d.messages[opcode] == 0) continue;
                summaries_ += format("%s\"%s\": %" PRIu64, comma, opcode_name(opcode).c_str(),
                                     d.messages[opcode]);
                comma = ", ";
            }
            summaries_ += format("}, \"crc_good\": %" PRIu64 ", \"crc_bad\": %" PRIu64
                                 ", \"crc_unchecked\": %" PRIu64 ", \"markers\": %" PRIu64
                                 ", \"bad_markers\": %" PRIu64 ", \"incomplete\": %" PRIu64
                                 ", \"senseless\": %" PRIu64 ", \"out_of_step\": %" PRIu64
                                 ", \"retransmitted\": %" PRIu64 ", \"early\": %" PRIu64
                                 ", \"missing_octets\": %" PRIu64 ", \"fin\": %s, \"reset\": %s}",
                                 d.crc_good, d.crc_bad, d.crc_unchecked, d.markers, d.bad_markers,
                                 d.incomplete, d.senseless, d.losses, d.retransmitted, d.early,
                                 d.missing_octets, truth(d.fin), truth(d.reset));
        }
        summaries_ += "]}";
    }
    void end(const CaptureDecoder::Totals& t, const std::string& file_error) override {
        std::printf("\n],\n\"connections\": [%s\n],\n\"packets\": %" PRIu64
                    ", \"tcp_connections\": %" PRIu64 ", \"mpa_connections\": %" PRIu64
                    ", \"unknown_link\": %" PRIu64 ", \"ignored_segments\": %" PRIu64
                    ", \"file_error\": %s%s%s}\n",
                    summaries_.c_str(), t.packets, t.tcp_connections, t.mpa_connections,
                    t.unknown_link, t.ignored_segments, file_error.empty() ? "" : "\"",
                    file_error.empty() ? "null" : plain(file_error).c_str(),
                    file_error.empty() ? "" : "\"");
    }

  private:
    static const char* truth(bool value) { return value ? "true" : "false"; }
    /// Without what JSON would want escaped.
    static std::string plain(std::string text) {
        for (char& c : text) {
            if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ||
                static_cast<unsigned char>(c) > 0x7e) {
                c = '?';
            }
        }
        return text;
    }
    static void print_reading(const char* name, const TerminateReading& r) {
        std::printf(", \"%s\": {\"layer\": %u, \"type\": %u, \"code\": %u, \"words\": \"%s\"}",
                    name, r.layer, r.etype, r.code, plain(r.words).c_str());
    }
    bool begin(const ConnectionSummary& c, const Place& place, const char* kind) {
        if (!selection_.frames || !selection_.takes(c)) return false;
        std::printf("%s\n  {\"packet\": %" PRIu64 ", \"time_ns\": %" PRIu64
                    ", \"connection\": %" PRIu64 ", \"from\": \"%s\", \"kind\": \"%s\"",
                    first_ ? "" : ",", place.packet, place.time_ns, c.number,
                    place.from == End::first ? "first" : "second", kind);
        first_ = false;
        return true;
    }

    bool first_ = true;
    std::string summaries_;
};

}  // namespace

int decode_command(int argc, char** argv) {
    bool json = false, check = false, summary_only = false, no_summary = false;
    Selection selection;
    Options options("decode", "[options] FILE",
                    "Lists the MPA, DDP and RDMAP traffic in a capture file: pcap or pcapng, also "
                    "compressed by\ngzip, from tcpdump, Wireshark or XSOCK_PCAP.");
    options.flag('j', "json", json, "write one JSON document");
    options.flag('s', "summary", summary_only, "only what each connection came to");
    options.flag('f', "frames", no_summary, "only the frames");
    options.flag('c', "check", check,
                 "exit status 1 when a CRC, a marker or a header is wrong, octets\nare missing, or "
                 "no MPA is in the file");
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

    const char* const path = options.arguments()[0];
    errno = 0;
    const gzFile file = gzopen(path, "rb");
    if (file == nullptr) {
        complain("decode", "%s: %s", path, errno != 0 ? std::strerror(errno) : "out of memory");
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
    std::string error;
    if (!source.error().empty()) {
        error = std::string(path) + ": " + source.error();
    } else if (!capture.error().empty()) {
        error = std::string(path) + ": " + capture.error();
    }
    const CaptureDecoder::Totals& totals = decoder.totals();
    report->end(totals, error);
    if (!error.empty() && totals.packets == 0) return kFailed;
    const bool found_wrong =
        report->something_wrong() || !error.empty() || totals.mpa_connections == 0;
    return check && found_wrong ? kFailed : kOk;
}

}  // namespace xsock::tools
