// vedette export RUN --to FORMAT -o FILE: a recording in the words of another tool.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/lab.h"
#include "cli/output_file.h"
#include "cli/verbs.h"
#include "profiler/exports.h"

namespace vedette::cli {

namespace {

struct Options {
  std::string path, format, output;
  std::optional<std::string> steps;  // "10", or the first and the last: "10,12"
  bool has_object = false;
  ExportOptions to;
};

Span<std::uint64_t> steps_of(const std::string& words) {
  std::vector<std::uint64_t> numbers;
  for (const std::string& word : split(words, ',')) {
    std::uint64_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [read, error] = std::from_chars(word.data(), end, number);
    if (error == std::errc{} && read == end && number < std::numeric_limits<std::uint64_t>::max())
      numbers.push_back(number);
    else
      numbers.resize(3);  // of no range
  }
  if (numbers.empty() || numbers.size() > 2)
    throw malformed("--steps: '" + words + "' is no step or range of steps; write 10, or 10,12");
  if (numbers.front() > numbers.back())
    throw malformed("--steps: the range " + words + " is reversed; the first step comes first");
  return {numbers.front(), numbers.back() + 1};
}

void write_file(const Options& options, const ExportOptions& to, const std::string& output) {
  OutputFile file(output, {options.path});
  export_recording(options.path, options.format, to, file.stream()).value();
  file.finish();
}

void write_all_tables(const Options& options) {
  refuse_input(options.output, {options.path});
  std::error_code failed;
  std::filesystem::create_directories(options.output, failed);
  if (failed) throw Failure({Cause::system, options.output + ": " + failed.message()});
  for (const std::string_view table : exported_tables()) {
    ExportOptions to = options.to;
    to.table = table;
    write_file(options, to, options.output + "/" + std::string(table) + ".csv");
  }
}

void run(Options options) {
  const auto goes_with = [&](bool given, const char* option, std::string_view format) {
    if (given && options.format != format)
      throw malformed(fmt::format("{} goes with --to {}; leave it out", option, format));
  };
  goes_with(options.steps.has_value(), "--steps", "perfetto");
  goes_with(!options.to.table.empty(), "--table", "csv");
  goes_with(options.has_object, "--object", "oracle-general");
  if (options.steps) options.to.steps = steps_of(*options.steps);
  const bool to_terminal = options.output == "-";
  if (options.format == "csv" && options.to.table.empty()) {
    if (to_terminal) throw Failure({Cause::unsupported, "csv needs --table NAME, or -o DIRECTORY for all tables"});
    return write_all_tables(options);
  }
  if (!to_terminal) return write_file(options, options.to, options.output);
  if ((options.format == "memory-viz" || options.format == "oracle-general") && ::isatty(STDOUT_FILENO))
    throw Failure({Cause::unsupported, options.format + " is no text for a terminal; name a file with -o"});
  write_file(options, options.to, "/dev/stdout");
}

std::optional<std::uint64_t> size_of(std::string words) {
  std::uint64_t bytes = 0;
  try {
    CLI::AsSizeValue(true)(words);
  } catch (const CLI::ValidationError&) {
    return std::nullopt;
  }
  if (!CLI::detail::lexical_cast(words, bytes) || bytes == 0 || bytes > std::uint64_t{1} << 62) return std::nullopt;
  return bytes;
}

// Bytes, or a size with a unit, which becomes bytes.
const CLI::Validator size_from_1(
    [](std::string& words) -> std::string {
      const std::optional<std::uint64_t> bytes = size_of(words);
      if (!bytes) return "'" + words + "' is no size; write a whole number from 1, or 64KiB";
      words = std::to_string(*bytes);
      return {};
    },
    "");

}  // namespace

void add_export(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("export", "Writes a recording for another tool");
  auto options = std::make_shared<Options>();  // shared: the callback is copied into the App
  std::string formats;
  for (const ExportFormat& format : export_formats())
    formats += "\n  " + std::string(format.name) + ": " + std::string(format.summary);
  verb->add_option("file", options->path, "a recording, for instance demo.vedette")->required();
  verb->add_option("--to", options->format, "the format:" + formats)->required();
  verb->add_option("-o,--output", options->output, "a file; - is standard output; for csv without --table a directory")
      ->default_val("-");
  verb->add_option("--table", options->to.table, "csv: one table");
  verb->add_option(
      "--steps", options->steps,
      "perfetto: one step, or the first and the last (10,12 or 10 12); else the one that stands for the others");
  auto* const object = verb->add_option("--object", options->to.object.value, "oracle-general: bytes of an object")
                           ->default_str("2MiB")
                           ->transform(size_from_1);
  verb->callback([options, object] {
    options->has_object = object->count() > 0;
    run(*options);
  });
}

}  // namespace vedette::cli
