// Cutting, from Plan::moves and Plan::block.
#include "sim/pieces.h"

#include <algorithm>

namespace vedette::sim {
namespace {

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t granule) {
  return granule == 0 ? bytes : (bytes + granule - 1) / granule * granule;
}

// Nothing is cut.
Pieces whole_tensors(const Trace& trace, const Plan& plan, Bytes granule) {
  Pieces made;
  made.all.reserve(trace.tensors.size());
  made.of_tensor.reserve(trace.tensors.size());
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const std::uint64_t size = trace.tensors[t].bytes.value;
    made.of_tensor.push_back({.begin = static_cast<std::uint32_t>(made.all.size())});
    if (size != 0) made.all.push_back({.tensor = t, .bytes = {0, size}, .room = rounded(size, granule.value)});
    made.of_tensor.back().end = static_cast<std::uint32_t>(made.all.size());
  }
  made.of_move.reserve(plan.moves.size());
  for (const Move& move : plan.moves) made.of_move.push_back(made.of_tensor[move.extent.tensor.value]);
  return made;
}

}  // namespace

Result<Pieces> cut_pieces(const Trace& trace, const Plan& plan, Bytes granule) {
  Pieces made;
  const bool whole = plan.block.value == 0 && std::none_of(plan.moves.begin(), plan.moves.end(), [](const Move& move) {
                       return move.extent.part.has_value();
                     });
  if (whole) return whole_tensors(trace, plan, granule);
  std::vector<std::vector<std::uint64_t>> cuts(trace.tensors.size());
  for (const Move& move : plan.moves) {
    if (!move.extent.part) continue;
    const Span<Bytes> part = *move.extent.part;
    if (part.begin >= part.end || part.end > trace.tensors[move.extent.tensor.value].bytes)
      return Error{Cause::malformed_input, "replay: a move's part lies outside its tensor"};
    cuts[move.extent.tensor.value].push_back(part.begin.value);
    cuts[move.extent.tensor.value].push_back(part.end.value);
  }
  made.of_tensor.resize(trace.tensors.size());
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    std::vector<std::uint64_t>& at = cuts[t];
    const std::uint64_t size = trace.tensors[t].bytes.value, block = plan.block.value;
    for (std::uint64_t place = block; block != 0 && place < size; place += block) at.push_back(place);
    at.push_back(0);
    at.push_back(size);
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
    made.of_tensor[t].begin = static_cast<std::uint32_t>(made.all.size());
    for (std::size_t i = 0; i + 1 < at.size(); ++i)
      made.all.push_back({.tensor = t, .bytes = {at[i], at[i + 1]}, .room = rounded(at[i + 1] - at[i], granule.value)});
    made.of_tensor[t].end = static_cast<std::uint32_t>(made.all.size());
  }
  for (const Move& move : plan.moves) made.of_move.push_back(made.inside(move.extent));
  return made;
}

Span<std::uint32_t> Pieces::inside(const Extent& extent) const {
  Span<std::uint32_t> range = of_tensor[extent.tensor.value];
  if (!extent.part) return range;
  const auto first = all.begin() + range.begin, last = all.begin() + range.end;
  const auto begin = std::lower_bound(first, last, extent.part->begin.value,
                                      [](const Piece& piece, std::uint64_t at) { return piece.bytes.begin < at; });
  const auto end = std::upper_bound(begin, last, extent.part->end.value,
                                    [](std::uint64_t at, const Piece& piece) { return at < piece.bytes.end; });
  return {static_cast<std::uint32_t>(begin - all.begin()), static_cast<std::uint32_t>(end - all.begin())};
}

}  // namespace vedette::sim
