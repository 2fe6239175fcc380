// The schema of a recording, as SQL, and its numbers. profiler/FORMAT.md says what each column means.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vedette {

constexpr std::string_view sqlite_files_begin = "SQLite format 3";  // and so do recordings
constexpr std::int64_t recording_application_id = 0x76647474;       // "vdtt", in the file's header
constexpr std::int64_t recording_schema = 8;                        // user_version in the file's header
constexpr std::int64_t oldest_recording_schema = 1;                 // that is read

// The statements that make every table of a recording of that schema, in one string.
std::string recording_schema_sql(std::int64_t schema = recording_schema);

// The statements after which a recording of that schema answers what the newest one is asked: temporary views before
// its tables, and empty ones for those that it lacks. schema.cc has the answers of columns that it lacks. The file
// stays as it is.
std::string newest_views_sql(std::int64_t schema);

// The names of all tables, in the order in which they are documented.
std::span<const std::string_view> recording_tables() noexcept;

}  // namespace vedette
