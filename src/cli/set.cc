// `vedette set PID SIZE`: another size of the fast memory of a process that follows pressure.
#include <CLI/CLI.hpp>

#include "base/readable.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "os/pressure.h"

namespace vedette::cli {

void add_set(CLI::App& app) {
  struct Options {
    std::int64_t pid = 0;
    std::string size;
  };
  CLI::App* verb = app.add_subcommand("set", "Gives the fast memory of a running program another size");
  auto options = std::make_shared<Options>();  // shared: the callback is copied into the App
  verb->add_option("pid", options->pid, "a process whose guard has pressure = true")->required();
  verb->add_option("size", options->size, "2GiB, for instance")->required();
  verb->callback([options] {
    const auto bytes = vedette::read_size(options->size);
    if (!bytes)
      throw Failure({.cause = Cause::malformed_input,
                     .message = "size '" + options->size + "' is no number of bytes; write 512MiB or 2GiB"});
    print("{}\n", ask_for_size(options->pid, *bytes).value());
  });
}

}  // namespace vedette::cli
