// The verbs of the command `vedette`. Each has a file of its own that adds it to the command line; main knows only this
// list.
//
// A verb prints its answer on standard output. What keeps it from answering is a Failure with one sentence, which main
// prints on standard error before it exits with status 1.
#pragma once

namespace CLI {
class App;
}

namespace vedette::cli {

void add_check(CLI::App& app);      // whether a plan keeps every rule
void add_compare(CLI::App& app);    // every policy on the same steps
void add_doctor(CLI::App& app);     // what this machine can do
void add_export(CLI::App& app);     // a recording, for another tool
void add_import(CLI::App& app);     // a recording of what others saw
void add_info(CLI::App& app);       // what a recording holds
void add_report(CLI::App& app);     // what a recorded run did, for people
void add_pack(CLI::App& app);       // offsets for lifetimes
void add_plan(CLI::App& app);       // what a policy plans, and why
void add_replay(CLI::App& app);     // what a plan costs, by arithmetic
void add_reproduce(CLI::App& app);  // experiments of the docs, made again
void add_top(CLI::App& app);        // counters of what runs now

}  // namespace vedette::cli
