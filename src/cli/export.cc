// vedette export RUN --to FORMAT -o FILE: a recording in the words of another tool.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/output_file.h"
#include "cli/verbs.h"
#include "profiler/exports.h"

namespace vedette::cli {

namespace {

struct Options {
  std::string path, format, output;
  std::vector<std::uint64_t> steps;  // first, last
  ExportOptions to;
};

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
  if (options.steps.size() == 1) options.to.steps = Span<std::uint64_t>{options.steps[0], options.steps[0] + 1};
  if (options.steps.size() == 2) options.to.steps = Span<std::uint64_t>{options.steps[0], options.steps[1] + 1};
  const bool to_terminal = options.output == "-";
  if (options.format == "csv" && options.to.table.empty()) {
    if (to_terminal) throw Failure({Cause::unsupported, "csv needs --table NAME, or -o DIRECTORY for all tables"});
    return write_all_tables(options);
  }
  if (!to_terminal) return write_file(options, options.to, options.output);
  if ((options.format == "memory-viz" || options.format == "oracle-general") && ::isatty(STDOUT_FILENO))
    throw Failure({Cause::unsupported, options.format + " is no text for a terminal; name a file with -o"});
  export_recording(options.path, options.format, options.to, std::cout).value();
}

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
  verb->add_option("--steps", options->steps,
                   "perfetto: one step, or the first and the last; else the one that stands for the others")
      ->expected(1, 2);
  verb->add_option("--object", options->to.object.value, "oracle-general: bytes of an object")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->callback([options] { run(*options); });
}

}  // namespace vedette::cli
