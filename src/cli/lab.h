// Shared by the verbs of the policy laboratory: reading traces and machines, sizes in words, one run of one policy.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/readable.h"
#include "vedette/machine.h"
#include "vedette/model.h"
#include "vedette/policy.h"
#include "vedette/replay.h"
#include "vedette/rows.h"

namespace vedette::cli {

// The value of an answer about `what`, a file or a policy. Throws Failure, naming it.
template <class T>
T value_of(const std::string& what, Result<T> answer) {
  if (!answer) throw Failure({answer.error().cause, what + ": " + answer.error().message});
  return std::move(answer).value();
}
inline Failure malformed(std::string message) { return Failure({Cause::malformed_input, std::move(message)}); }
inline double ms(Nanoseconds time) { return static_cast<double>(time.value) / 1e6; }
double percent_of_ideal(const Replayed& ran);

std::string read_file(const std::string& name);  // throws Failure where it cannot be read, or nothing is in it
// vedette-trace-1, a recording: its step that stands for the others, or what PyTorch recorded (profiler/foreign.h).
// Throws Failure, naming the file.
Trace read_trace(const std::string& file);
// The first line of an answer about a step that another tool recorded: what that did not tell, and is assumed. Beside
// JSON it goes to standard error. Nothing of other traces.
void print_assumptions(const Trace& trace, bool beside_json = false);
Trace trace_of(const std::string& file, std::string text);    // the same of a file that was read
Rows read_rows(const std::string& file, const Trace& trace);  // vedette-rows-1; throws Failure, naming the file
// vedette-plan-1 (cli/plan_file.h); throws Failure, naming the file
Plan read_plan(const std::string& file, const Trace& trace);

// A preset's name, "this-machine" (measured, about ten seconds; `directory` is its slow tier), or a file. Throws
// Failure.
Machine read_machine(const std::string& what, const std::string& directory);
std::string machine_words();  // the arguments of read_machine, for the help of a verb

struct Chosen {  // a machine, and the words that chose it
  Machine machine;
  std::string name;
};
// For the step in `trace_file`: the machine that `what` says, or where it is empty the one that the recording ran on.
// A trace names none, and an imported recording none either: then default_machine. Throws Failure.
Chosen machine_for(const std::string& trace_file, const std::string& what, const std::string& directory);
constexpr const char* default_machine = "a100-g10";
std::string tiers_and_links(const Machine& machine);  // "dram 96.0 MiB, nvme 40.0 GiB; nvme to dram 2.1 GB/s"
void print_machine(const Chosen& chosen);             // the line above a verb's answer

// "20%" of the trace's peak, "512MiB", "40GB", bytes. Throws Failure.
Bytes read_size(const std::string& words, const Trace& trace);

// Throws Failure (infeasible) where an op's operands and workspace exceed the fastest tier: no plan helps.
void require_room(const Trace& trace, const Machine& machine);

std::vector<std::string> split(const std::string& words, char at);

struct Row {  // one policy on one trace and machine
  std::string trace, policy;
  Bytes fast;
  double fraction = 0;  // of the trace's peak
  Nanoseconds ideal, lower_bound, plan_time;
  std::optional<Replayed> replayed;  // none: error says why
  std::string error;
  bool failed = false;  // it ended in an error; false where the size is too small for the policy, which is an answer

  double percent_of_ideal() const;
  bool paged() const { return replayed && replayed->paged; }
};

// Plans and replays; the time that planning took is measured here.
Row run_policy(const Trace& trace, const Machine& machine, const PolicyEntry& entry, std::uint64_t seed,
               const ReplayOptions& options);

// "all", names, and files of policies of one's own (cli/own_policy.h), separated by commas. Throws Failure at an
// unknown name. For words of the command line alone: it runs the files' code.
std::vector<PolicyEntry> policies_named(const std::string& names);

// Of these rows of one size, those that ran end within one percent of each other: there is nothing to choose.
bool all_alike(std::span<const Row> rows);

// As tables show it: with a star where its rows are partial, or the word of what it is a bound, bytes and not time; a
// row that a driver paged (Replayed::paged) has a tilde.
std::string marked(const PolicyEntry& entry);
std::string marked(const PolicyEntry& entry, const Row& row);
constexpr std::string_view what_partial_means = "partial: the paper uses what a trace cannot express";
constexpr std::string_view what_paged_means =
    "paged by a driver with rules of its own: ops run while their operands arrive, chunks are ignored, and the lower "
    "bound says nothing of it";

struct Timeline {  // one step under some policies, drawn
  std::string trace, svg, caption;
};
struct Provenance {  // of a comparison: enough to make it again
  std::string command;
  std::vector<Chosen> machines;  // each once
  std::uint64_t seed = 1;
  std::uint32_t noise_percent = 0;
};
// The table and its charts as one page without scripts or links: `rows` by trace, size and policy, each of one of
// `entries`.
std::string compare_page(const std::vector<Row>& rows, const std::vector<PolicyEntry>& entries,
                         const std::vector<Timeline>& timelines, const Provenance& provenance);

struct TimelineOf {
  std::string title;
  const Replayed* replayed = nullptr;  // with its timeline; borrowed for the call
};
// The steps below each other, on one clock (SVG).
std::string timeline_svg(const std::vector<TimelineOf>& steps, const Machine& machine);

}  // namespace vedette::cli
