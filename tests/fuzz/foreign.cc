// The readers of what PyTorch wrote: execution traces, Chakra's protobuf and pickles of memory snapshots. What they
// take is a step that vedette-trace-1 can tell, with the same peak.
#include "profiler/foreign.h"

#include <cstdlib>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!vedette::is_foreign(bytes)) return 0;
  const auto trace = vedette::parse_foreign(bytes);
  if (!trace) return 0;
  const auto again = vedette::parse_trace(vedette::format_trace(*trace));
  if (!again || vedette::peak_bytes(*again) != vedette::peak_bytes(*trace)) std::abort();
  return 0;
}
