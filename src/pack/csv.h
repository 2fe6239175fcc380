// Lifetimes as text. Columns are named in the first line, in any order: id, lower, upper, size, and where wanted
// alignment and gaps; the life is [lower, upper); gaps are "lower-upper" separated by spaces. MiniMalloc reads and
// writes this form; begin/start and end are other names of lower and upper, and an `end` counts in the life. Columns of
// other names are left alone.
//
// Pure; any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "pack/buffers.h"
#include "vedette/result.h"

namespace vedette::pack {

struct Table {
  Problem problem;
  std::vector<std::string_view> id;  // views of the text
};

// Errors are Cause::malformed_input and name the line.
Result<Table> parse_lifetimes(std::string_view csv);

// id,lower,upper,size,offset (and alignment, gaps, where some buffer has them), a line each, in the table's order.
std::string format_layout(const Table& table, const std::vector<std::uint64_t>& offset);

}  // namespace vedette::pack
