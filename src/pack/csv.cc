#include "pack/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace vedette::pack {
namespace {

enum class Column : std::uint8_t { id, lower, upper, size, alignment, gaps, other };

constexpr Time latest = std::numeric_limits<Time>::max() / 8;  // room for arithmetic

struct Head {
  std::vector<Column> columns;
  bool end_counts = false;  // the upper column is called `end`, whose instant is part of the life
};

std::string_view next_piece(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view piece = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return piece;
}

std::string_view next_line(std::string_view& rest) {
  std::string_view line = next_piece(rest, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
}

Error wrong(std::size_t line, const std::string& what) {
  return {Cause::malformed_input, "line " + std::to_string(line) + ": " + what};
}

Result<Head> read_head(std::string_view line) {
  Head head;
  std::array<int, 7> seen{};
  for (bool more = true; more;) {
    more = line.find(',') != std::string_view::npos;
    const std::string_view name = trimmed(next_piece(line, ','));
    Column column = Column::other;
    if (name == "id" || name == "buffer" || name == "buffer_id") column = Column::id;
    if (name == "lower" || name == "begin" || name == "start") column = Column::lower;
    if (name == "upper" || name == "end") column = Column::upper, head.end_counts = name == "end";
    if (name == "size") column = Column::size;
    if (name == "alignment") column = Column::alignment;
    if (name == "gaps") column = Column::gaps;
    head.columns.push_back(column);
    ++seen[static_cast<std::size_t>(column)];
  }
  for (std::size_t c = 0; c < 6; ++c) {
    if (seen[c] > 1) return wrong(1, "a column is named twice");
    if (c < 4 && seen[c] == 0) return wrong(1, "the columns id, lower, upper and size have to be named there");
  }
  return head;
}

// "3-5 9-12", appended for `buffer`, in order.
std::optional<std::string> read_gaps(std::string_view text, const Head& head, Span<Time> life, std::uint32_t buffer,
                                     std::vector<Away>& away) {
  const std::size_t first = away.size();
  while (!(text = trimmed(text)).empty()) {
    std::string_view gap = next_piece(text, ' ');
    const auto begin = number<Time>(next_piece(gap, '-')), end = number<Time>(gap);
    if (!begin || !end || *end > latest) return "a gap is not of the form lower-upper";
    const Span<Time> when{*begin, *end + (head.end_counts ? 1 : 0)};
    if (when.begin < life.begin || when.end > life.end || when.begin >= when.end)
      return "a gap is empty or outside the life";
    away.push_back({buffer, when});
  }
  std::sort(away.begin() + static_cast<std::ptrdiff_t>(first), away.end(),
            [](const Away& a, const Away& b) { return a.when < b.when; });
  for (std::size_t i = first + 1; i < away.size(); ++i)
    if (away[i].when.begin < away[i - 1].when.end) return "gaps overlap";
  return std::nullopt;
}

std::optional<std::string> read_row(std::string_view line, const Head& head, Table& table) {
  std::optional<Time> lower, upper;
  std::optional<std::uint64_t> size, alignment = 1;
  std::string_view id, gaps;
  const std::string_view whole = line;
  if (static_cast<std::size_t>(std::count(whole.begin(), whole.end(), ',')) + 1 != head.columns.size())
    return "it has not as many fields as there are columns";
  for (const Column column : head.columns) {
    const std::string_view field = trimmed(next_piece(line, ','));
    switch (column) {
      case Column::id:
        id = field;
        break;
      case Column::lower:
        lower = number<Time>(field);
        break;
      case Column::upper:
        upper = number<Time>(field);
        break;
      case Column::size:
        size = number<std::uint64_t>(field);
        break;
      case Column::alignment:
        alignment = number<std::uint64_t>(field);
        break;
      case Column::gaps:
        gaps = field;
        break;
      case Column::other:
        break;
    }
  }
  if (!lower || !upper || *lower < -latest || *upper > latest) return "lower and upper have to be whole numbers";
  if (!size || *size > std::uint64_t{1} << 56) return "size has to be a whole number of bytes, below 2^56";
  if (!alignment || *alignment == 0 || *alignment > std::uint64_t{1} << 40)
    return "alignment has to be a whole number from 1 to 2^40";
  const Span<Time> life{*lower, *upper + (head.end_counts ? 1 : 0)};
  if (life.begin > life.end) return "it ends before it begins";
  const auto buffer = static_cast<std::uint32_t>(table.id.size());
  table.id.push_back(id);
  table.problem.buffers.push_back({.life = life, .bytes = {*size}, .alignment = *alignment});
  return read_gaps(gaps, head, life, buffer, table.problem.away);
}

}  // namespace

Result<Table> parse_lifetimes(std::string_view csv) {
  const Result<Head> head = read_head(next_line(csv));
  if (!head) return head.error();
  Table table;
  std::uint64_t sum = 0;
  for (std::size_t line = 2; !csv.empty(); ++line) {
    const std::string_view row = next_line(csv);
    if (trimmed(row).empty()) continue;
    if (const auto fault = read_row(row, *head, table)) return wrong(line, *fault);
    sum += table.problem.buffers.back().bytes.value;
    if (sum > std::uint64_t{1} << 60) return wrong(line, "the sizes add up to more than 2^60 bytes");
    if (table.id.size() > std::size_t{1} << 28) return wrong(line, "there are more than 2^28 buffers");
  }
  return table;
}

std::string format_layout(const Table& table, const std::vector<std::uint64_t>& offset) {
  const Problem& problem = table.problem;
  const bool aligned =
      std::any_of(problem.buffers.begin(), problem.buffers.end(), [](const Buffer& b) { return b.alignment != 1; });
  std::string out = std::string("id,lower,upper,size") + (aligned ? ",alignment" : "") +
                    (problem.away.empty() ? "" : ",gaps") + ",offset\n";
  std::size_t away = 0;
  for (std::uint32_t b = 0; b < offset.size(); ++b) {
    const Buffer& buffer = problem.buffers[b];
    out.append(table.id[b])
        .append(",")
        .append(std::to_string(buffer.life.begin))
        .append(",")
        .append(std::to_string(buffer.life.end));
    out.append(",").append(std::to_string(buffer.bytes.value));
    if (aligned) out.append(",").append(std::to_string(buffer.alignment));
    if (!problem.away.empty()) out.append(",");
    for (bool first = true; away < problem.away.size() && problem.away[away].buffer == b; ++away, first = false) {
      const Span<Time> when = problem.away[away].when;
      out.append(first ? "" : " ").append(std::to_string(when.begin)).append("-").append(std::to_string(when.end));
    }
    out.append(",").append(std::to_string(offset[b])).append("\n");
  }
  return out;
}

}  // namespace vedette::pack
