// The list of formats, and the helpers of their writers.
#include "profiler/export_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "profiler/recording.h"
#include "profiler/schema.h"

namespace vedette {
namespace {

constexpr ExportFormat formats[] = {
    {"trace", "the profiled step as vedette-trace-1, for planners and simulators", exports::to_trace},
    {"perfetto", "a step as Chrome trace events in kineto's dialect, for ui.perfetto.dev and HTA",
     exports::to_perfetto},
    {"memory-viz", "a step as a memory snapshot, for PyTorch's memory viewer; its devices are the tiers",
     exports::to_memory_viz},
    {"oracle-general", "the step's accesses as libCacheSim's requests, objects of memory", exports::to_oracle_general},
    {"minimalloc", "the tensors' lives as minimalloc's CSV", exports::to_minimalloc},
    {"mqsim", "all moves as the slow tier's requests, for MQSim", exports::to_mqsim},
    {"csv", "a table of the recording", exports::to_csv},
};

}  // namespace

std::span<const ExportFormat> export_formats() noexcept { return formats; }

const ExportFormat* export_format(std::string_view name) noexcept {
  const auto found =
      std::find_if(std::begin(formats), std::end(formats), [&](const ExportFormat& each) { return each.name == name; });
  return found == std::end(formats) ? nullptr : found;
}

std::span<const std::string_view> exported_tables() noexcept { return recording_tables(); }

Result<void> export_recording(const std::string& path, std::string_view format, const ExportOptions& options,
                              std::ostream& out) {
  const ExportFormat* const found = export_format(format);
  if (found == nullptr) {
    std::string known;
    for (const ExportFormat& each : formats) known.append(known.empty() ? "" : ", ").append(each.name);
    return Error{Cause::unsupported, "there is no format '" + std::string(format) + "'; there are: " + known};
  }
  auto recording = Recording::open(path);
  if (!recording) return recording.error();
  const auto run = report::load_run(path);
  if (!run) return run.error();
  auto written = found->write({.run = *run, .database = recording->database(), .options = options}, out);
  if (!written) return written;
  if (const auto& failure = recording->database().failure()) return *failure;
  out.flush();
  if (!out) return Error{Cause::system, "writing the export failed: the disk is full, or the reader has gone"};
  return {};
}

namespace exports {

Result<const report::Profile*> profile_of(const report::Run& run) {
  if (const report::Profile* const shown = run.shown_profile()) return shown;
  if (!run.profiles.empty()) return &run.profiles.back();
  return Error{Cause::malformed_input, run.path + " has no profile: the run ended before a step was profiled"};
}

std::string json_string(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A spreadsheet computes a cell that begins like a formula: an apostrophe before it makes it text there.
std::string csv_field(std::string_view text) {
  const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != text.npos &&
                       text.find_first_not_of("0123456789.", 1) != text.npos;
  if (!formula && text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string quoted = formula ? "\"'" : "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

Clock clock_of(const report::Run& run, const report::Profile& profile) {
  Clock clock;
  const std::size_t ops = profile.trace.ops.size();
  const bool measured = run.shown_profile() == &profile && run.ops.size() == ops;
  Nanoseconds now;
  if (run.shown_step() != nullptr) now = run.shown_step()->began;
  clock.start = now;
  for (std::size_t i = 0; i < ops; ++i) {
    if (measured) now = std::max(now, run.ops[i].began);
    clock.began.push_back(now);
    now = measured ? std::max(now, run.ops[i].ended) : now + profile.trace.ops[i].time;
    clock.ended.push_back(now);
  }
  clock.end = now;
  if (measured) clock.end = std::max(now, run.shown_step()->ended);
  return clock;
}

}  // namespace exports
}  // namespace vedette
