// The schema of a recording, as SQL, and its numbers. profiler/FORMAT.md says what each column means.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace vedette {

constexpr std::string_view sqlite_files_begin = "SQLite format 3";  // and so do recordings
constexpr std::int64_t recording_application_id = 0x76647474;       // "vdtt", in the file's header
constexpr std::int64_t recording_schema = 4;                        // user_version in the file's header

// The statements that make every table, in one string.
const char* recording_schema_sql() noexcept;

// The names of all tables, in the order in which they are documented.
std::span<const std::string_view> recording_tables() noexcept;

}  // namespace vedette
