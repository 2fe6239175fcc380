// `vedette share JOBS.csv`: a list of jobs that share one memory, under policies of share/decide.h, by arithmetic.
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/readable.h"
#include "cli/finite.h"
#include "cli/lab.h"
#include "cli/nearest.h"
#include "cli/output_file.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "share/jobs.h"

namespace vedette::cli {
namespace {

struct ShareOptions {
  std::string jobs, memory = "16GiB", link, machine, out;
  std::string policies = "fifo,srtf,fair,pack";
  double quantum_s = 0, ageing = -1;
  std::uint64_t seed = 1, seeds = 1;
  bool json = false;
};

constexpr std::string_view made_list = "salus";

Failure bad_share(std::string message) { return Failure({Cause::malformed_input, std::move(message)}); }

Bytes floor_of(const Trace& trace) { return largest_op_bytes(trace); }

// Of a recorded step: what persists, what it has beside, and the stall of our planner at a few sizes.
Result<share::ListedJob> job_of(const std::string& path, const ShareOptions& options) {
  const Trace trace = read_trace(path);
  share::ListedJob job;
  for (const Tensor& tensor : trace.tensors)
    if (tensor.persistent) job.persistent += tensor.bytes;
  const Bytes peak = std::max(peak_bytes(trace), job.persistent);
  job.ephemeral = peak - job.persistent;
  job.floor = std::min(peak, floor_of(trace));
  for (const Op& op : trace.ops) job.iteration += op.time;
  Machine machine = machine_for(path, options.machine, ".").machine;
  constexpr std::uint64_t parts = 4;
  for (std::uint64_t part = 0; part < parts && job.floor < peak; ++part) {
    machine.tiers[0].capacity = job.floor + Bytes{(peak - job.floor).value / parts * part};
    const Row row = run_policy(trace, machine, policies_named("vedette").front(), 1, {});
    if (!row.replayed) continue;
    if (job.profile.empty()) job.floor = machine.tiers[0].capacity;  // less has no plan
    job.profile.push_back({machine.tiers[0].capacity, row.replayed->measured.time - row.replayed->ideal});
  }
  if (job.profile.empty()) job.floor = peak;
  return job;
}

std::vector<share::ListedJob> read_jobs(const ShareOptions& options, std::uint64_t seed) {
  if (options.jobs == made_list) return share::salus_jobs(seed);
  const auto of_recording = [&](std::string_view path) -> Result<share::ListedJob> {
    try {
      return job_of(std::string(path), options);
    } catch (const Failure& failure) {
      return failure.error;
    }
  };
  return value_of(options.jobs, share::parse_jobs(read_file(options.jobs), of_recording));
}

std::vector<share::Policy> policies_of(const ShareOptions& options) {
  std::vector<share::Policy> policies;
  std::vector<std::string> known;
  for (const share::Policy& policy : share::policies()) known.emplace_back(policy.name);
  for (const std::string& name : options.policies == "all" ? known : split(options.policies, ',')) {
    const share::Policy* const found = share::policy_named(name);
    if (found == nullptr)
      throw bad_share(fmt::format("there is no policy '{}'{}; there are {}", name, did_you_mean(name, known),
                                  fmt::join(known, ", ")));
    policies.push_back(*found);
    policies.back().quantum = {static_cast<std::int64_t>(options.quantum_s * 1e9)};
    if (options.ageing >= 0) policies.back().ageing = options.ageing;
  }
  return policies;
}

struct Figures {  // of one policy; means over the lists
  double makespan_s = 0, mean_s = 0, p95_s = 0, queued_s = 0, turns = 0, came_back = 0;
  Bytes most_leased;
};

void add(const share::Outcome& outcome, double part, Figures& figures) {
  const auto seconds = [part](Nanoseconds time) { return static_cast<double>(time.value) / 1e9 * part; };
  figures.makespan_s += seconds(outcome.makespan);
  figures.mean_s += seconds(outcome.mean());
  figures.p95_s += seconds(outcome.percentile(0.95));
  Nanoseconds queued;
  for (const Nanoseconds each : outcome.queued) queued += each;
  figures.queued_s += seconds(queued) / static_cast<double>(outcome.queued.size());
  figures.turns += static_cast<double>(outcome.turns) * part;
  figures.came_back += static_cast<double>(outcome.came_back.value) * part;
  figures.most_leased = std::max(figures.most_leased, outcome.most_leased);
}

std::string span_words(double s) { return s < 600 ? fmt::format("{:.1f} s", s) : fmt::format("{:.1f} min", s / 60); }

void print_shares(const std::vector<share::Policy>& policies, const std::vector<Figures>& rows, std::size_t jobs) {
  nlohmann::ordered_json all{{"jobs", jobs}, {"policies", nlohmann::ordered_json::array()}};
  for (std::size_t p = 0; p < policies.size(); ++p)
    all["policies"].push_back({{"policy", policies[p].name},
                               {"makespan_s", rows[p].makespan_s},
                               {"mean_completion_s", rows[p].mean_s},
                               {"p95_completion_s", rows[p].p95_s},
                               {"mean_queued_s", rows[p].queued_s},
                               {"turns", rows[p].turns},
                               {"came_back_bytes", rows[p].came_back},
                               {"most_leased_bytes", rows[p].most_leased.value}});
  print_data(all.dump(2) + "\n");
}

void run(const ShareOptions& options) {
  if (options.jobs == made_list && !options.machine.empty())
    throw bad_share("--machine is for recordings in a list of jobs, and salus has none; leave it out");
  const auto capacity = vedette::read_size(options.memory);
  if (!capacity) throw bad_share("--memory '" + options.memory + "' is no size; write 16GiB or 512MiB");
  const auto link = options.link.empty() ? std::optional<std::uint64_t>{0} : read_speed(options.link);
  if (!link) throw bad_share("--link '" + options.link + "' is no speed; write 12GB/s or 500MB/s");
  const std::vector<share::Policy> policies = policies_of(options);
  const std::uint64_t lists = options.jobs == made_list ? options.seeds : 1;
  std::vector<Figures> rows(policies.size());
  std::size_t count = 0;
  for (std::uint64_t s = 0; s < lists; ++s) {
    const std::vector<share::ListedJob> jobs = read_jobs(options, options.seed + s);
    count = jobs.size();
    if (auto out = optional_output(s == 0 ? options.out : "", {options.jobs})) {
      out->stream() << share::format_jobs(jobs);
      out->finish();
    }
    for (std::size_t p = 0; p < policies.size(); ++p) {
      auto outcome = share::simulate(jobs, {.capacity = *capacity, .policy = policies[p], .link_bytes_per_s = *link});
      if (!outcome) throw Failure(outcome.error());
      add(*outcome, 1 / static_cast<double>(lists), rows[p]);
    }
  }
  if (options.json) return print_shares(policies, rows, count);
  print("{} jobs in {}{}\n", count, readable(*capacity), lists > 1 ? fmt::format(", mean of {} lists", lists) : "");
  print("{:<12}{:>12}{:>12}{:>12}{:>12}{:>9}{:>12}{:>12}\n", "policy", "makespan", "mean", "95 %", "queued", "turns",
        "came back", "most leased");
  for (std::size_t p = 0; p < policies.size(); ++p) {
    const Figures& row = rows[p];
    print("{:<12}{:>12}{:>12}{:>12}{:>12}{:>9.0f}{:>12}{:>12}\n", policies[p].name, span_words(row.makespan_s),
          span_words(row.mean_s), span_words(row.p95_s), span_words(row.queued_s), row.turns,
          readable({static_cast<std::uint64_t>(row.came_back)}), readable(row.most_leased));
  }
}

}  // namespace

void add_share(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("share", "What becomes of jobs that share one memory, under some policies");
  auto options = std::make_shared<ShareOptions>();  // shared: the callback is copied into the App
  verb->add_option("jobs", options->jobs,
                   "a list (CSV: name,iterations,iteration_s,persistent,ephemeral, or recording for the last three; "
                   "docs/sharing.md has the rest), or salus: 100 jobs as in its paper")
      ->required();
  verb->add_option("--policy", options->policies,
                   "fifo, srtf, fair, pack, salus-fifo, salus-srtf, salus-fair, with commas between, or all")
      ->capture_default_str();
  verb->add_option("--memory", options->memory, "what they share: 16GiB")->capture_default_str();
  verb->add_option("--link", options->link, "the speed at which what left comes back, 12GB/s (default: at once)");
  verb->add_option("--machine", options->machine, "of recordings: " + machine_words());
  verb->add_option("--quantum", options->quantum_s, "seconds that a turn lasts at least, under fair")
      ->capture_default_str()
      ->check(finite_between(0, 1e6));
  verb->add_option("--ageing", options->ageing, "the part of the time waited that srtf counts as done (default: 1/64)")
      ->check(finite_between(0, 1e6));
  verb->add_option("--seed", options->seed, "of the list salus")->capture_default_str();
  verb->add_option("--seeds", options->seeds, "means over so many lists, of the list salus")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1000}));
  verb->add_option("-o,--output", options->out, "write the list to this CSV");
  verb->add_flag("--json", options->json, "one JSON object");
  verb->callback([options] { run(*options); });
}

}  // namespace vedette::cli
