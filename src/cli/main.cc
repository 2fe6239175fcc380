// The command `vedette`: reads the command line, runs one verb, turns failures into a sentence and a status: 0 done, 1
// what was asked for failed, 2 the command line cannot be understood.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/verbs.h"

namespace {

int misunderstood(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  std::string sentence = error.what(), verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs += " " + verb->get_name();
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    const std::string first = argc < 2 ? "" : argv[1];
    sentence = (first.empty()     ? "name a verb"
                : first[0] == '-' ? "there is no option '" + first + "' before a verb"
                                  : "there is no verb '" + first + "'") +
               "; there are" + verbs;
  }
  const std::string verb = chosen.empty() ? "" : " " + chosen.front()->get_name();
  std::fprintf(stderr, "vedette%s: %s (vedette%s --help says more)\n", verb.c_str(), sentence.c_str(), verb.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains models that are larger than fast memory: looks at machines and recordings.", "vedette");
  app.set_version_flag("--version", "vedette " VEDETTE_VERSION);
  app.require_subcommand(1);
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
    return misunderstood(app, error, argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "vedette: %s\n", failure.what());
    return 1;
  }
  return 0;
}
