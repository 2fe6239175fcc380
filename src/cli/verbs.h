// The verbs of the command `vedette`. Each has a file of its own that adds it to the command line; main knows only this
// list.
//
// A verb prints its answer on standard output. Where it cannot, it throws a Failure with one sentence, which main
// prints on standard error before it exits with status 1. One that has another status throws a Status, when all is
// printed.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vedette::cli {

struct Status {
  int number = 0;
};

// Behind `races --`: a program and its arguments, as they came.
std::vector<std::string>& words_of_program();

void add_ask(CLI::App& app);        // one question to a recording
void add_check(CLI::App& app);      // whether a plan keeps every rule
void add_compare(CLI::App& app);    // every policy on the same steps
void add_daemon(CLI::App& app);     // one memory for several programs
void add_doctor(CLI::App& app);     // the abilities of this machine
void add_export(CLI::App& app);     // a recording, for another tool
void add_fits(CLI::App& app);       // whether a step fits, and how fast
void add_import(CLI::App& app);     // a recording by another tool
void add_info(CLI::App& app);       // the contents of a recording
void add_jobs(CLI::App& app);       // the programs that share it
void add_report(CLI::App& app);     // a recorded run, for people
void add_pack(CLI::App& app);       // offsets for lifetimes
void add_plan(CLI::App& app);       // a policy's plan, and its reasons
void add_races(CLI::App& app);      // accesses of streams that nothing orders
void add_replay(CLI::App& app);     // the cost of a plan, by arithmetic
void add_reproduce(CLI::App& app);  // experiments of the docs, made again
void add_set(CLI::App& app);        // fast memory of a running process
void add_share(CLI::App& app);      // jobs in one memory, by arithmetic
void add_top(CLI::App& app);        // counters of a running process

}  // namespace vedette::cli
