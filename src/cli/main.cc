// The command `vedette`: reads the command line, runs one verb, turns failures into a sentence and a status.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <exception>

#include "cli/verbs.h"

int main(int argc, char** argv) {
  CLI::App app("Trains models that are larger than fast memory: looks at machines and recordings.", "vedette");
  app.set_version_flag("--version", "vedette " VEDETTE_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  vedette::cli::add_check(app);
  vedette::cli::add_compare(app);
  vedette::cli::add_doctor(app);
  vedette::cli::add_export(app);
  vedette::cli::add_import(app);
  vedette::cli::add_info(app);
  vedette::cli::add_pack(app);
  vedette::cli::add_plan(app);
  vedette::cli::add_replay(app);
  vedette::cli::add_report(app);
  vedette::cli::add_top(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "vedette: %s\n", failure.what());
    return 1;
  }
  return 0;
}
