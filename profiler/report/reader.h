// Rows of a recording, each checked before it is used as an index or added up: a file may be damaged, or made to harm.
//
// Thread rule: one thread at a time.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/readable.h"
#include "profiler/report/run.h"
#include "profiler/sqlite.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::report {

// of a size or a time: a petabyte, thirteen days; sums of many still fit
inline constexpr std::int64_t largest = std::int64_t{1} << 50;
inline constexpr std::uint64_t most_chunks = 100'000'000;  // that all tensors together may cover

class Reader {
 public:
  Reader(Database& database, std::string path, Bytes room) : database_(database), path_(std::move(path)), room_(room) {}

  Database& database() noexcept { return database_; }
  const std::optional<Error>& bad() const noexcept { return bad_; }
  void refuse(const std::string& what) {
    if (!bad_) bad_ = Error{Cause::malformed_input, path_ + " is damaged: " + what};
  }

  // The next row of an answer; none once something was refused.
  bool row(Statement& s) { return !bad_ && s.row(); }
  // Counts a row that stays in memory, with its texts: a file of any size takes no more of it than its reader was
  // given.
  template <class Row>
  void keep(const Row&, std::initializer_list<std::string_view> texts = {}) {
    kept_ += sizeof(Row);
    for (const std::string_view text : texts) kept_ += text.size();
    if (kept_ <= room_.value || bad_) return;
    bad_ = Error{Cause::unsupported, path_ + " is too large: what a report needs of it takes more than " +
                                         readable(room_) +
                                         " of memory; SQLite's own shell reads such a file (profiler/FORMAT.md)"};
  }

  std::uint64_t kept() const noexcept { return kept_; }
  void forget_since(std::uint64_t kept) noexcept { kept_ = kept; }  // the rest is in memory no more

  // Columns of the row that `s` is at.
  std::uint64_t natural(const Statement& s, int column, const char* what) {
    const std::int64_t value = s.integer(column);
    if (value >= 0 && value <= largest) return static_cast<std::uint64_t>(value);
    refuse(std::string(what) + " is " + std::to_string(value));
    return 0;
  }
  std::uint64_t capacity(const Statement& s, int column) {  // of a tier that has no limit it may be larger
    return static_cast<std::uint64_t>(std::clamp<std::int64_t>(s.integer(column), 0, largest));
  }
  std::uint32_t number(const Statement& s, int column, const char* what) {
    const std::uint64_t value = natural(s, column, what);
    if (value <= std::numeric_limits<std::uint32_t>::max()) return static_cast<std::uint32_t>(value);
    refuse(std::string(what) + " is " + std::to_string(value));
    return 0;
  }
  std::uint32_t below(const Statement& s, int column, std::size_t size, const char* what) {
    const std::uint32_t value = number(s, column, what);
    if (value < size) return value;
    refuse(std::string(what) + " " + std::to_string(value) + " does not exist");
    return 0;
  }
  Nanoseconds time(const Statement& s, int column) { return {s.nanoseconds(column)}; }

 private:
  Database& database_;
  std::string path_;
  Bytes room_;
  std::uint64_t kept_ = 0;
  std::optional<Error> bad_;
};

void read_profiles(Reader& reader, Run& run);
void read_pages(Reader& reader, Profile& profile);  // most of a recording: of one profile

}  // namespace vedette::report
