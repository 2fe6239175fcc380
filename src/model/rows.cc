// Reads and writes vedette-rows-1. The reader checks every value; misfit() alone has the rules between rows and their
// trace.
#include "vedette/rows.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "model/broken_json.h"
#include "model/named_format.h"

namespace vedette {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "vedette-rows-1";
constexpr std::uint64_t largest_size = std::uint64_t{1} << 60;
constexpr std::uint32_t most_chunks = 1 << 24;  // of 2 MiB: 32 TiB of tables
constexpr std::size_t most_steps = 10'000;

struct Malformed {  // thrown inside this file only
  std::string message;
};

std::uint64_t number(const Json& value, const std::string& what, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    throw Malformed{what + " is not an integer of at most " + std::to_string(most)};
  return value.get<std::uint64_t>();
}

const Json& member(const Json& object, const char* key, const std::string& place) {
  if (!object.is_object() || !object.contains(key)) throw Malformed{place + "lacks the key '" + key + "'"};
  return object[key];
}

const Json& list(const Json& value, const std::string& what) {
  if (!value.is_array()) throw Malformed{what + " is not a list"};
  return value;
}

RowAccess read_access(const Json& row, const std::string& place) {
  RowAccess access{
      .op = {static_cast<std::uint32_t>(number(member(row, "op", place + ": "), place + ": op", ~std::uint32_t{0}))}};
  if (row.size() != 2) throw Malformed{place + " has an unknown key"};
  const std::string of_row = place + ": ", of_chunks = of_row + "chunks";
  for (const Json& range : list(member(row, "chunks", of_row), of_chunks)) {
    if (!range.is_array() || range.size() != 2) throw Malformed{place + ": chunks has a range that is not two numbers"};
    const auto end_of = [&](std::size_t which) {
      return static_cast<std::uint32_t>(number(range[which], place + ": a chunk", most_chunks));
    };
    access.chunks.push_back({end_of(0), end_of(1)});
  }
  return access;
}

Rows read_rows(const Json& top) {
  constexpr std::array<std::string_view, 7> keys{"format", "always_near",   "held_bytes", "chunk_bytes",
                                                 "chunks", "touched_bytes", "steps"};
  if (!top.is_object()) throw Malformed{"is not an object"};
  if (const auto another = another_format(top, format_name)) throw Malformed{"the file " + *another};
  for (const auto& item : top.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
      throw Malformed{"has the unknown key '" + item.key() + "'"};
  }
  if (!member(top, "format", {}).is_string()) throw Malformed{"format is not a string"};
  Rows rows{.always_near = {static_cast<std::uint32_t>(
                number(member(top, "always_near", {}), "always_near", ~std::uint32_t{0}))},
            .held = {number(member(top, "held_bytes", {}), "held_bytes", largest_size)},
            .chunk = {number(member(top, "chunk_bytes", {}), "chunk_bytes", largest_size)},
            .chunks = static_cast<std::uint32_t>(number(member(top, "chunks", {}), "chunks", most_chunks))};
  if (top.contains("touched_bytes")) rows.touched = {number(top["touched_bytes"], "touched_bytes", largest_size)};
  const std::string of_file, of_steps = "steps";
  for (const Json& step : list(member(top, "steps", of_file), of_steps)) {
    const std::string place = "step " + std::to_string(rows.steps.size());
    std::vector<RowAccess>& accesses = rows.steps.emplace_back();
    for (const Json& row : list(step, place))
      accesses.push_back(read_access(row, place + ", row " + std::to_string(accesses.size())));
  }
  return rows;
}

std::optional<std::string> misfit_of(const RowAccess& access, const Rows& rows, const Trace& trace) {
  if (access.op.value >= trace.ops.size()) return "names an op that the trace does not have";
  if (access.chunks.empty()) return "names no chunks";
  for (std::size_t i = 0; i < access.chunks.size(); ++i) {
    const auto [begin, end] = access.chunks[i];
    if (begin >= end || end > rows.chunks) return "has a range of chunks that is empty or beyond the last";
    if (i > 0 && begin <= access.chunks[i - 1].end) return "has ranges of chunks that touch or are out of order";
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> misfit(const Rows& rows, const Trace& trace) {
  const auto error = [](const std::string& what) { return Error{Cause::malformed_input, "rows: " + what}; };
  if (rows.always_near.value >= trace.tensors.size()) return error("always_near is no tensor of the trace");
  const Tensor& near = trace.tensors[rows.always_near.value];
  if (!near.persistent) return error("always_near names a tensor that does not live always");
  if (rows.held > near.bytes)
    return error("held_bytes is more than tensor " + std::to_string(rows.always_near.value) + " has");
  const bool countable =
      rows.chunk.value > 0 && rows.chunk.value <= largest_size / most_chunks && rows.chunks <= most_chunks;
  if (!countable) return error("chunk_bytes or chunks is 0 or too large");
  if (rows.steps.empty() || rows.steps.size() > most_steps)
    return error("steps are none, or more than " + std::to_string(most_steps));
  for (std::size_t s = 0; s < rows.steps.size(); ++s) {
    for (std::size_t i = 0; i < rows.steps[s].size(); ++i) {
      const std::string place = "step " + std::to_string(s) + ", row " + std::to_string(i) + " ";
      if (const auto what = misfit_of(rows.steps[s][i], rows, trace)) return error(place + *what);
      if (i > 0 && rows.steps[s][i].op <= rows.steps[s][i - 1].op) return error(place + "is out of the order of ops");
    }
  }
  return std::nullopt;
}

std::vector<std::uint32_t> hot_chunks(std::span<const std::pair<std::uint32_t, std::uint32_t>> steps,
                                      std::size_t room) {
  constexpr std::uint32_t fewest = 3;  // one that is fetched and written back crosses twice
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranked;
  for (const auto& [chunk, count] : steps)
    if (count >= fewest) ranked.emplace_back(chunk, count);
  std::ranges::sort(ranked, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::vector<std::uint32_t> hot;
  for (std::size_t i = 0; i < std::min(room, ranked.size()); ++i) hot.push_back(ranked[i].first);
  std::ranges::sort(hot);
  return hot;
}

Result<Rows> parse_rows(std::string_view json, const Trace& trace) {
  try {
    Rows rows = read_rows(Json::parse(json));
    if (auto error = misfit(rows, trace)) return *error;
    return rows;
  } catch (const Malformed& malformed) {
    return Error{Cause::malformed_input, "rows: " + malformed.message};
  } catch (const Json::exception& failure) {
    return Error{Cause::malformed_input, "rows: the file " + why_not_json(json, failure)};
  }
}

std::string format_rows(const Rows& rows) {
  std::string out = "{\"format\":\"" + std::string(format_name) + "\"";
  const auto add = [&](const char* before, std::uint64_t value) { out.append(before).append(std::to_string(value)); };
  add(",\"always_near\":", rows.always_near.value);
  add(",\"held_bytes\":", rows.held.value);
  add(",\"chunk_bytes\":", rows.chunk.value);
  add(",\"chunks\":", rows.chunks);
  if (rows.touched.value > 0) add(",\"touched_bytes\":", rows.touched.value);
  out.append(",\n\"steps\":[");
  for (const std::vector<RowAccess>& step : rows.steps) {
    out.append(&step == &rows.steps.front() ? "\n[" : ",\n[");
    for (const RowAccess& access : step) {
      add(&access == &step.front() ? "{\"op\":" : ",\n {\"op\":", access.op.value);
      out.append(",\"chunks\":[");
      for (const Span<std::uint32_t>& range : access.chunks) {
        add(&range == &access.chunks.front() ? "[" : ",[", range.begin);
        add(",", range.end);
        out.append("]");
      }
      out.append("]}");
    }
    out.append("]");
  }
  return out.append("]}\n");
}

}  // namespace vedette
