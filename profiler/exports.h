// Recordings in the formats of other tools: one entry per format. Each writes the fields of its tool's documentation; a
// single step is the one that stands for the others (profiler/report/run.h).
//
// Thread rule: one thread at a time per recording.
#pragma once
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/report/run.h"
#include "profiler/sqlite.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

struct ExportOptions {
  std::optional<Span<std::uint64_t>> steps;  // of perfetto; default: the step that stands for the others
  Bytes object{std::uint64_t{2} << 20};      // of oracle-general: hits or misses of a cache
  std::string table;                         // of csv
};

struct ExportSource {
  const report::Run& run;
  Database& database;
  const ExportOptions& options;
};

struct ExportFormat {
  std::string_view name, summary;
  // Errors: malformed_input where the recording lacks the format's data (no profile, no moves).
  Result<void> (*write)(const ExportSource& source, std::ostream& out);
};

std::span<const ExportFormat> export_formats() noexcept;
const ExportFormat* export_format(std::string_view name) noexcept;  // nullptr: there is none

// Opens the recording at `path` and writes it to `out`. Errors: as report::load_run, unsupported (no such format),
// system (out fails).
Result<void> export_recording(const std::string& path, std::string_view format, const ExportOptions& options,
                              std::ostream& out);

// The tables that `csv` can write.
std::span<const std::string_view> exported_tables() noexcept;

// --- oracle-general's requests
//
// One object is the tensors at `object` bytes of addresses, one after another and side by side. It is as large as what
// they cover of these, so that all objects together are the memory that the step used. A tensor without a place gets
// the lowest that is free while it lives, above the others. A request is an object that an op touches. Requests stand
// op by op, in each op by the tensor's number, in each tensor by the object's place, each once in an op. Tracked pages
// count as touched, and whole operands where no pages were tracked.
struct Requests {
  std::vector<std::uint64_t> object;  // of each request
  std::vector<std::uint32_t> op;      // of each request
  std::vector<std::uint32_t> bytes;   // of the object of each request
};
Requests requests_of(const Trace& trace, Bytes object, std::span<const std::optional<std::uint64_t>> places = {});

}  // namespace vedette
