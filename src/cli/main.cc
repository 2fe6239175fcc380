// The command `vedette`: reads the command line, runs one verb, turns failures into a sentence and a status: 0 done, 1
// the verb failed, 2 the command line cannot be understood. The verb races has its
// program's own.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cli/nearest.h"
#include "cli/print.h"
#include "cli/verbs.h"

namespace {

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

std::string no_such_verb(const CLI::App& app, const std::string& word) {
  std::string sentence =
      "there is no verb '" + word + "'" + vedette::cli::did_you_mean(word, verbs_of(app)) + "; there are";
  for (const std::string& name : verbs_of(app)) sentence += " " + name;
  return sentence;
}

std::string without_a_verb(const CLI::App& app, const std::string& first) {
  if (!first.empty() && first[0] != '-') return no_such_verb(app, first);
  std::string sentence = first.empty() ? "name a verb" : "there is no option '" + first + "' before a verb";
  sentence += "; there are";
  for (const std::string& name : verbs_of(app)) sentence += " " + name;
  return sentence;
}

// Options that the verb does not have, and words beyond those that it takes.
std::string too_much(const CLI::App& verb) {
  const std::vector<std::string> extra = verb.remaining();
  if (extra.empty()) return "a word is too much";
  std::vector<std::string> options;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames())
      if (!option->get_group().empty()) options.push_back("--" + name);
  if (extra.front()[0] != '-') return "it takes no further word, and '" + extra.front() + "' is one";
  return "there is no option '" + extra.front() + "'" + vedette::cli::did_you_mean(extra.front(), options);
}

int misunderstood(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  const auto chosen = app.get_subcommands();
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const std::string sentence = chosen.empty() ? without_a_verb(app, argc < 2 ? "" : argv[1])
                               : extra ? too_much(*chosen.front())
                                              : error.what();
  const std::string verb = chosen.empty() ? "" : " " + chosen.front()->get_name();
  vedette::cli::print_to(stderr, "vedette{}: {} (vedette{} --help says more)\n", verb, sentence, verb);
  return 2;
}

// `vedette help plan` is `vedette plan --help`; the verb itself is there to be listed.
void add_help(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("help", "Says what a verb does, and its options");
  auto wanted = std::make_shared<std::string>();  // shared: the callback is copied into the App
  verb->add_option("verb", *wanted, "one of the verbs; without it, all of them");
  verb->callback([&app, wanted] { throw CLI::ValidationError(no_such_verb(app, *wanted)); });
}

// `--steps 10 12` is `--steps 10,12`: one word, so that no option takes the name of a file that follows it.
void join_steps(std::vector<std::string>& words) {
  const auto is_number = [](const std::string& word) {
    return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  };
  if (words.empty() || (words[0] != "export" && words[0] != "report")) return;
  for (std::size_t w = 1; w + 2 < words.size(); ++w) {
    if (words[w] != "--steps" && words[w] != "--step") continue;
    while (w + 2 < words.size() && is_number(words[w + 1]) && is_number(words[w + 2])) {
      words[w + 1] += "," + words[w + 2];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(w) + 2);
    }
  }
}

// The words of the command line, the last one first, as CLI11 takes them.
std::vector<std::string> words_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const std::vector<std::string> verbs = verbs_of(app);
  if (words.size() == 1 && words[0] == "help") words = {"--help"};
  if (words.size() == 2 && words[0] == "help" && std::find(verbs.begin(), verbs.end(), words[1]) != verbs.end())
    words = {words[1], "--help"};
  join_steps(words);
  if (const auto marked = std::find(words.begin(), words.end(), "--"); !words.empty() && words[0] == "races") {
    if (marked != words.end()) vedette::cli::words_of_program().assign(marked + 1, words.end());
    words.erase(marked, words.end());
  }
  std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains models that are larger than fast memory: looks at machines and recordings.", "vedette");
  app.set_version_flag("--version", "vedette " VEDETTE_VERSION);
  app.require_subcommand(1);
  vedette::cli::add_ask(app);
  vedette::cli::add_check(app);
  vedette::cli::add_compare(app);
  vedette::cli::add_daemon(app);
  vedette::cli::add_doctor(app);
  vedette::cli::add_export(app);
  vedette::cli::add_fits(app);
  add_help(app);
  vedette::cli::add_import(app);
  vedette::cli::add_info(app);
  vedette::cli::add_jobs(app);
  vedette::cli::add_pack(app);
  vedette::cli::add_plan(app);
  vedette::cli::add_races(app);
  vedette::cli::add_replay(app);
  vedette::cli::add_report(app);
  vedette::cli::add_reproduce(app);
  vedette::cli::add_set(app);
  vedette::cli::add_share(app);
  vedette::cli::add_top(app);
  try {
    app.parse(words_of(app, argc, argv));
  } catch (const CLI::ParseError& error) {
    return misunderstood(app, error, argc, argv);
  } catch (const vedette::cli::Status& status) {
    return status.number;
  } catch (const std::exception& failure) {
    vedette::cli::print_to(stderr, "vedette: {}\n", failure.what());
    return 1;
  }
  return 0;
}
