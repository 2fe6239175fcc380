// vedette import FILE -o RUN: a recording by another tool.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>

#include "cli/output_file.h"
#include "cli/verbs.h"
#include "profiler/imports.h"

namespace vedette::cli {

namespace {

struct Asked {
  std::string input, output;
};

}  // namespace

void add_import(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "import", "Makes a recording of a trace, of DAMON's records, or of PyTorch's execution traces and snapshots");
  auto options = std::make_shared<Asked>();  // shared: the callback is copied into the App
  verb->add_option(
          "file", options->input,
          "a trace (vedette-trace-1); what `damo record` wrote (json or json_compressed); an execution trace of "
          "PyTorch (JSON) or Chakra's protobuf of it; a pickle of torch.cuda.memory._snapshot()")
      ->required();
  verb->add_option("-o,--output", options->output, "the recording to make")->required();
  verb->callback([options] {
    refuse_input(options->output, {options->input});
    import_recording(options->input, options->output).value();
  });
}

}  // namespace vedette::cli
