// Recordings by other tools: a step in vedette-trace-1, DAMON's samples (the damon.data of `damo record`, plain or
// compressed), or what PyTorch wrote (foreign.h).
//
// All become a recording with one profile and one step, so that reports and exports work on them. Thread rule: any.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette {

// Errors: malformed_input (with the place), unsupported (a format that is none of them; a file at `output` that is
// no recording), system.
Result<void> import_recording(const std::string& input, const std::string& output);
Result<void> import_text(std::string_view text, const std::string& output);

// Unpacks bytes of zlib (damo's records, whose first byte is 'x': no JSON begins so) and of gzip; other bytes come back
// as they are. At most 2 GiB. Errors: malformed_input (damaged, cut), unsupported (too large).
Result<std::string> unpacked(std::string packed);

struct Sampled {
  Trace trace;                          // an op is a snapshot, a tensor a range of addresses that was watched
  std::vector<Span<Nanoseconds>> when;  // of each op, from the first snapshot's begin
  std::vector<std::uint64_t> samples;   // of each of trace.pages: how many samples of the snapshot saw an access
};

// DAMON's records: [{"target_id", "snapshots": [{"start_time", "end_time", "regions": [{"start", "end", "nr_accesses":
// {"samples", "percent"}}]}]}]. Numbers may be text, with thousands separated and units ("4,096", "5ms", "2 m 59 s",
// "95%"), as damo writes them. Reads and writes are not told apart by DAMON: an access counts as a read.
Result<Sampled> parse_damon(std::string_view json);

}  // namespace vedette
