// How often each layer uses each page, and where the page lay meanwhile: the figures behind the map of pages.
//
// Thread rule: values; the functions keep nothing.
#pragma once
#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "profiler/report/run.h"

namespace vedette::report {

// The meaning of a count of the map.
enum class Counted : std::uint8_t {
  operands,  // no page was seen: each op counts for all of its operands, from end to end
  layers,    // pages were seen once a layer: one that was counts the layer's ops whose operand its tensor is
  ops,       // measured: pages were looked at after each op, and a page counts the ops that touched it
  samples,   // a monitor looked at pages from time to time: a page counts the samples that saw it in use
};

struct HeatRange {          // pages of a tensor that were touched alike by the ticks of one layer
  std::int64_t layer = -1;  // -1: ops without a layer
  std::uint32_t tensor = 0;
  Span<std::uint64_t> pages;
  std::uint32_t reads = 0, writes = 0;  // as Counted
  auto operator<=>(const HeatRange&) const = default;
};

// Where pages lay while a layer ran, by the moves of the shown step.
enum class Lay : std::uint8_t {
  near,     // the layer touched them, and their chunk had stayed since it was touched before
  fetched,  // the layer touched them, and their chunk came since it was touched before
  dragged,  // it did not touch them: they lie in a chunk that it touched for another tensor
};
struct HeatPlace {
  std::int64_t layer = -1;
  std::uint32_t tensor = 0;
  Span<std::uint64_t> pages;
  Lay lay = Lay::near;
  auto operator<=>(const HeatPlace&) const = default;
};

// a run of pages of the overview: tensors in order of their first touch, one after the other
struct HeatRow {
  std::uint32_t first_tensor = 0, last_tensor = 0;
  std::uint64_t pages = 0;
};

struct Heat {
  Bytes page_bytes;
  Counted counted = Counted::operands;
  std::vector<std::string> notes;    // of the profile
  std::vector<std::uint32_t> order;  // of tensors, top to bottom
  std::vector<HeatRow> rows;
  std::vector<std::int64_t> columns;              // layers, in order of their first op
  std::vector<std::vector<float>> reads, writes;  // [row][column]: a page's count, on average
  std::vector<HeatRange> ranges;                  // sorted by (tensor, layer, pages)
  std::uint64_t ranges_left_out = 0;              // of the tensors with most ranges
  std::vector<HeatPlace> places;                  // sorted as they are; empty: not known, or too many
};

std::vector<HeatPlace> places_of(const Run&, const Heat&);
void limit_ranges(Heat&, std::size_t most);  // those of the tensors with most of them are left out

std::string_view name_of(Lay) noexcept;      // "near", "fetched", "dragged"
std::string_view name_of(Counted) noexcept;  // "operands", "layers", "ops", "samples"

}  // namespace vedette::report
