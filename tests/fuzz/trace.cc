// vedette-trace-1's reader: what it takes, its writer gives back.
#include <cstdlib>
#include <string_view>

#include "fuzz/fuzz.h"
#include "vedette/model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = vedette::parse_trace({reinterpret_cast<const char*>(data), size});
  if (!trace) return 0;
  const auto again = vedette::parse_trace(vedette::format_trace(*trace));
  if (!again || *again != *trace) std::abort();
  return 0;
}
