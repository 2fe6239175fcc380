// What the verbs of the policy laboratory share: reading traces and machines, sizes in words, one run of one policy.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vedette/machine.h"
#include "vedette/model.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::cli {

Trace read_trace(const std::string& file);       // throws Failure, naming the file
Plan read_plan(const std::string& file, const Trace& trace);  // throws Failure
std::string format_plan(const Plan& plan);       // JSON, one move a line

// A preset's name, "this-machine" (measured, about three seconds; `directory` is its slow tier), or a file. Throws Failure.
Machine read_machine(const std::string& what, const std::string& directory);

// "20%" of the trace's peak, "512MiB", "40GB", bytes. Throws Failure.
Bytes read_size(const std::string& words, const Trace& trace);

std::string readable(Bytes bytes);
std::vector<std::string> split(const std::string& words, char at);

struct Row {  // one policy on one trace and machine
  std::string trace, policy;
  Bytes fast;
  double fraction = 0;         // of the trace's peak
  Nanoseconds ideal, lower_bound, plan_time;
  std::optional<Replayed> replayed;  // none: error says why
  std::string error;

  double percent_of_ideal() const;
};

// Plans and replays; the time that planning took is measured here.
Row run_policy(const Trace& trace, const Machine& machine, const PolicyEntry& entry, std::uint64_t seed, const ReplayOptions& options);

// All, or those named, separated by commas. Throws Failure at a name that nobody has.
std::vector<PolicyEntry> policies_named(const std::string& names);

// The table and its charts as one page without scripts or links: `rows` by trace, size and policy.
std::string compare_page(const std::vector<Row>& rows);
std::string timeline_svg(const Replayed& replayed, const std::string& title, const Machine& machine);

}  // namespace vedette::cli
