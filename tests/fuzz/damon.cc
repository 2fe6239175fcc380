// The reader of DAMON's records: what it takes is a trace whose every access lies inside its tensor.
#include <cstdlib>
#include <string_view>

#include "fuzz/fuzz.h"
#include "profiler/imports.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto sampled = vedette::parse_damon({reinterpret_cast<const char*>(data), size});
  if (!sampled) return 0;
  const vedette::Trace& trace = sampled->trace;
  for (const vedette::PageAccess& a : trace.pages) {
    const bool inside = a.op.value < trace.ops.size() && a.tensor.value < trace.tensors.size() &&
                        a.pages.begin < a.pages.end && a.pages.end * 4096 <= trace.tensors[a.tensor.value].bytes.value;
    if (!inside) std::abort();
  }
  if (sampled->samples.size() != trace.pages.size() || sampled->when.size() != trace.ops.size()) std::abort();
  return 0;
}
