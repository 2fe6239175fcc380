// vedette-rows-1's reader, beside a trace of three ops: what it takes, its writer gives back.
#include "vedette/rows.h"

#include <cstdlib>
#include <string_view>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  vedette::Trace trace;
  trace.tensors = {
      {.name = "always near", .bytes = {std::uint64_t{1} << 30}, .persistent = true, .shape = {}, .site = {}}};
  trace.ops.resize(3);
  const auto rows = vedette::parse_rows({reinterpret_cast<const char*>(data), size}, trace);
  if (!rows) return 0;
  const auto again = vedette::parse_rows(vedette::format_rows(*rows), trace);
  if (!again || *again != *rows) std::abort();
  return 0;
}
