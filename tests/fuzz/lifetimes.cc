// The reader of lifetimes as text: what it takes, its writer gives back.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/fuzz.h"
#include "pack/csv.h"

namespace vedette::pack {

static bool same(const Table& a, const Table& b) {
  const auto same_buffer = [](const Buffer& x, const Buffer& y) {
    return x.life == y.life && x.bytes == y.bytes && x.alignment == y.alignment;
  };
  const auto same_away = [](const Away& x, const Away& y) { return x.buffer == y.buffer && x.when == y.when; };
  return std::equal(a.problem.buffers.begin(), a.problem.buffers.end(), b.problem.buffers.begin(),
                    b.problem.buffers.end(), same_buffer) &&
         std::equal(a.problem.away.begin(), a.problem.away.end(), b.problem.away.begin(), b.problem.away.end(),
                    same_away) &&
         a.id == b.id;
}

}  // namespace vedette::pack

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vedette::pack;
  const auto table = parse_lifetimes({reinterpret_cast<const char*>(data), size});
  if (!table) return 0;
  const std::string text = format_layout(*table, std::vector<std::uint64_t>(table->id.size(), 0));
  const auto again = parse_lifetimes(text);
  if (!again || !same(*table, *again)) std::abort();
  return 0;
}
