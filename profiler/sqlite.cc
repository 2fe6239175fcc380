// The calls into SQLite. A null statement (its SQL did not compile) does nothing: the database has kept the reason.
#include "profiler/sqlite.h"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>

namespace vedette {

namespace {
constexpr int longest_text = 16 << 20;  // bytes of one value of a foreign file: names and reasons are sentences

// A recording has a log and never a rollback journal. SQLite does what a journal beside a file says before anything is
// read. With a super-journal's name in it that removes any file (sqlite.org/fileformat).
std::optional<Error> has_journal(const std::string& path) {
  std::error_code unknown;
  const auto behind_links = std::filesystem::weakly_canonical(path, unknown);
  const std::string journal = (unknown ? path : behind_links.string()) + "-journal";
  if (!std::filesystem::exists(std::filesystem::symlink_status(journal, unknown))) return std::nullopt;
  return Error{Cause::malformed_input, path +
                                           " has a journal beside it, which no recording of vedette has, and which "
                                           "can change other files; remove " +
                                           journal};
}
}  // namespace

void Database::Close::operator()(sqlite3* handle) const noexcept { sqlite3_close_v2(handle); }
void Statement::Finalize::operator()(sqlite3_stmt* handle) const noexcept { sqlite3_finalize(handle); }

Result<Database> Database::open(const std::string& path, Mode mode) {
  if (mode == Mode::read) {
    if (auto refused = has_journal(path)) return *std::move(refused);
  }
  sqlite3* handle = nullptr;
  // A recording whose writer was killed has its last steps in the -wal file beside it, which reading merges: so not
  // READONLY.
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (mode == Mode::create ? SQLITE_OPEN_CREATE : 0);
  int outcome = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  if (outcome != SQLITE_OK && mode == Mode::read) {
    sqlite3_close_v2(handle);
    outcome = sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
  }
  Database database(handle, path);
  if (outcome != SQLITE_OK) {
    return Error{Cause::system, path + ": " + (handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(outcome))};
  }
  sqlite3_busy_timeout(handle, 2000);
  // a foreign file: its schema runs nothing, and its cells are checked
  if (mode == Mode::read) {
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_exec(handle, "PRAGMA cell_size_check=ON", nullptr, nullptr, nullptr);
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, longest_text);
  }
  return database;
}

void Database::run(const char* sql) {
  if (sqlite3_exec(get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) note_failure(sql);
}

void Database::note_failure(std::string_view doing) {
  if (failure_) return;
  failure_ = Error{Cause::system, path_ + ": " + sqlite3_errmsg(get()) + " (" + std::string(doing.substr(0, 60)) + ")"};
}

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  sqlite3_stmt* handle = nullptr;
  if (sqlite3_prepare_v3(database.get(), sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &handle,
                         nullptr) != SQLITE_OK) {
    database.note_failure(sql);
  }
  handle_.reset(handle);
}

void Statement::reset() { sqlite3_reset(handle_.get()); }

bool Statement::row() {
  if (!handle_) return false;
  const int outcome = sqlite3_step(handle_.get());
  if (outcome == SQLITE_ROW) return true;
  if (outcome != SQLITE_DONE) database_.note_failure(sqlite3_sql(handle_.get()));
  sqlite3_reset(handle_.get());
  return false;
}

void Statement::bind(int position, std::string_view text) {
  // An empty view may have no address, which SQLite would take for NULL.
  sqlite3_bind_text(handle_.get(), position, text.empty() ? "" : text.data(), static_cast<int>(text.size()),
                    SQLITE_TRANSIENT);
}

void Statement::bind_integer(int position, std::int64_t value) { sqlite3_bind_int64(handle_.get(), position, value); }
void Statement::bind_null(int position) { sqlite3_bind_null(handle_.get(), position); }

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }

std::int64_t Statement::nanoseconds(int column) const {
  constexpr std::int64_t farthest = std::int64_t{1} << 58;
  return std::clamp(integer(column), -farthest, farthest);
}

std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column));
  return bytes == nullptr ? std::string()
                          : std::string(bytes, static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column)));
}

int Statement::columns() const { return sqlite3_column_count(handle_.get()); }

std::string Statement::column_name(int column) const {
  const char* const name = sqlite3_column_name(handle_.get(), column);
  return name == nullptr ? std::string() : std::string(name);
}

bool Statement::is_null(int column) const { return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL; }

}  // namespace vedette
