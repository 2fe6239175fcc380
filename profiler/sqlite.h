// SQLite with owners: a database and its prepared statements. Of several failures the first is kept and can be asked
// for, so that a long run of insertions needs one check at its end.
//
// Thread rule: one thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "vedette/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace vedette {

class Database {
 public:
  enum class Mode { create, read };
  // Errors: Cause::system, with SQLite's reason.
  static Result<Database> open(const std::string& path, Mode mode);

  void run(const char* sql);  // any number of statements without results
  const std::optional<Error>& failure() const noexcept { return failure_; }
  void note_failure(std::string_view doing);  // keeps SQLite's last error, if it is the first
  sqlite3* get() const noexcept { return handle_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* handle) const noexcept;
  };
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  std::unique_ptr<sqlite3, Close> handle_;
  std::string path_;
  std::optional<Error> failure_;
};

// A prepared statement of a database that outlives it.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);

  // Binds the values to ?1, ?2, ... and runs the statement to its end.
  template <class... Values>
  void run(const Values&... values) {
    bind_all(values...);
    while (row()) {
    }
  }
  // Binds the values; row() then steps through the results.
  template <class... Values>
  void ask(const Values&... values) {
    bind_all(values...);
  }
  bool row();  // false: no more rows, or a failure that the database keeps

  std::int64_t integer(int column) const;
  // a time, at most nine years from 0: two differ by a number, whatever a damaged file holds
  std::int64_t nanoseconds(int column) const;
  std::string text(int column) const;
  bool is_null(int column) const;
  int columns() const;
  std::string column_name(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const noexcept;
  };
  template <class... Values>
  void bind_all(const Values&... values) {
    reset();
    int position = 0;
    (bind(++position, values), ...);
  }
  void reset();
  void bind(int position, std::string_view text);
  void bind(int position, const char* text) { bind(position, std::string_view(text)); }
  void bind(int position, const std::string& text) { bind(position, std::string_view(text)); }
  void bind_integer(int position, std::int64_t value);
  void bind_null(int position);
  template <class Integer>
  requires std::is_integral_v<Integer>
  void bind(int position, Integer value) { bind_integer(position, static_cast<std::int64_t>(value)); }
  template <class Value>
  void bind(int position, const std::optional<Value>& value) {
    if (value)
      bind(position, *value);
    else
      bind_null(position);
  }

  Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

}  // namespace vedette
