// The verbs that look at one plan: `vedette plan` makes and explains it, `vedette check` judges it, `vedette replay`
// runs it.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>

#include "base/time_limit.h"
#include "cli/ask.h"
#include "cli/explain.h"
#include "cli/lab.h"
#include "cli/output_file.h"
#include "cli/plan_file.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "model/dependences.h"
#include "model/liveness.h"
#include "vedette/bound.h"
#include "vedette/check.h"

namespace vedette::cli {
namespace {

struct PlanOptions {
  std::string trace, plan, policy = "vedette", machine, directory = ".", explain, output, settled, timeline, rows;
  std::optional<std::string> fast, time;
  std::uint64_t seed = 1;
  std::uint32_t noise = 0, steps = 3;
  bool list = false, reorder = false;
};

struct Subject {
  Trace trace;
  Machine machine;
  std::string machine_name;

  void print() const {  // before the answer
    print_assumptions(trace);
    print_machine({machine, machine_name});
  }
};

Subject read_subject(const PlanOptions& options) {
  Chosen chosen = machine_for(options.trace, options.machine, options.directory);
  Subject subject{read_trace(options.trace), std::move(chosen.machine), std::move(chosen.name)};
  if (options.fast) subject.machine.tiers[0].capacity = read_size(*options.fast, subject.trace);
  subject.machine.can_reorder = subject.machine.can_reorder || options.reorder;
  require_room(subject.trace, subject.machine);
  return subject;
}

std::unique_ptr<Policy> policy_of(const PlanOptions& options) {
  const auto named = policies_named(options.policy);
  if (named.size() != 1) throw malformed("one policy makes one plan; `vedette compare` runs several");
  return named.front().make(options.seed);
}

// "50ms", "2s": of planning.
TimeLimit::Clock::duration read_length_of_time(const std::string& words) {
  constexpr double longest = 86'400;  // seconds
  constexpr std::array<std::pair<std::string_view, double>, 4> units{
      {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}}};
  double number = 0;
  const char* end = words.data() + words.size();
  const auto read = std::from_chars(words.data(), end, number);
  const std::string_view unit(read.ptr, static_cast<std::size_t>(end - read.ptr));
  for (const auto& [name, seconds] : units) {
    if (read.ec != std::errc{} || name != unit || !(number > 0) || number * seconds > longest) continue;
    return std::chrono::duration_cast<TimeLimit::Clock::duration>(std::chrono::duration<double>(number * seconds));
  }
  throw malformed("--time " + words +
                  " is no length of time for planning; say 50ms or 2s, up to a day (us, ms, s, min)");
}

Plan plan_of(const PlanOptions& options, const Subject& subject) {
  if (!options.plan.empty()) return read_plan(options.plan, subject.trace);
  const Progress progress("plan", options.policy + " plans " + subject.trace.name);
  std::optional<TimeLimit> limit;
  if (options.time) limit.emplace(TimeLimit::Clock::now() + read_length_of_time(*options.time));
  return value_of(options.policy, policy_of(options)->prepare(subject.trace, within_host_memory(subject.machine)));
}

void list_policies() {
  for (const PolicyEntry& entry : policies()) {
    print("{:<14} {}: {}{}\n", entry.name, entry.paper, entry.summary, entry.bound ? " (a bound, no system)" : "");
    if (!entry.partial.empty()) print("{:<14} partial: a trace does not say {}\n", "", entry.partial);
  }
}

// Files that the verb may read, beside words that are none.
std::vector<std::string> inputs_of(const PlanOptions& options) {
  return {options.trace, options.plan, options.rows, options.machine, options.policy};
}

// The plan that `vedette compare` measures: the last one of a policy that wants new plans after steps.
Replayed settle(const PlanOptions& options, const Subject& subject, OutputFile& file) {
  const auto policy = policy_of(options);
  Replayed got = value_of(options.policy, replay(subject.trace, subject.machine, *policy, {.keep_plan = true}));
  file.stream() << format_plan(*got.plan);
  file.finish();
  return got;
}

void print_settled(const Replayed& got) {
  print("settled: {} moves, {:.3f} ms a step, {:.2f} % of ideal\n", got.plan->moves.size(), ms(got.measured.time),
        percent_of_ideal(got));
  if (got.reacted > 0)
    print("  {} moves of that step were asked for when something happened, and no plan holds them\n", got.reacted);
}

void make_plan(const PlanOptions& options) {
  if (options.list) return list_policies();
  if (options.trace.empty()) throw CLI::RequiredError("trace, or --list,");
  if (options.time && options.policy != "vedette")
    throw malformed("--time is for the policy vedette, which searches; " + options.policy +
                    " has one plan, whatever time it takes: leave --time out");
  if (!options.output.empty() && options.output == options.settled)
    throw malformed("-o and --settled name one file for two plans; name two");
  auto output = optional_output(options.output, inputs_of(options)),
       settled_output = optional_output(options.settled, inputs_of(options));
  const Subject subject = read_subject(options);
  const Plan plan = plan_of(options, subject);
  std::vector<std::string> sentences;
  if (!options.explain.empty())
    sentences = explain(plan.order.empty() ? subject.trace : reordered(subject.trace, plan.order), subject.machine,
                        plan, options.explain);
  if (output) {
    output->stream() << format_plan(plan);
    output->finish();
  }
  std::optional<Replayed> settled;
  if (settled_output) settled = settle(options, subject, *settled_output);
  if (!options.explain.empty()) {
    subject.print();
    for (const std::string& sentence : sentences) print("{}\n", sentence);
    return;
  }
  Bytes moved;
  for (const Move& move : plan.moves) {
    if (move.verb == Verb::fetch) moved += bytes_of(move.extent, subject.trace);
  }
  subject.print();
  print("{} on {}: {} moves, {} fetched a step, {} recomputations, {} operands in place\n", options.policy,
        subject.trace.name, plan.moves.size(), readable(moved), plan.recomputations.size(), plan.in_place.size());
  for (const std::string& reason : plan.reasons) print("  {}\n", reason);
  if (settled) print_settled(*settled);
}

Failure broken(const Violation& rule) {
  return Failure({Cause::infeasible, "the plan breaks a rule: " + rule.message});
}

void require_rules(const Subject& subject, const Plan& plan) {
  if (const auto found = check(subject.trace, subject.machine, plan)) throw broken(*found);
}

// Whether a replay has moves that the policy's plan does not hold.
bool moves_on_events(const Replayed& got) {
  return got.reacted > 0 || got.paged || got.unplanned > 0 || got.faults > 0;
}

// The same before a replay was made; false where there is none.
bool moves_on_events(const PlanOptions& options, const Subject& subject) {
  const auto policy = policy_of(options);
  const auto got = replay(subject.trace, subject.machine, *policy, {.seed = options.seed});
  return got && moves_on_events(*got);
}

void judge(const PlanOptions& options) {
  const Subject subject = read_subject(options);
  const auto found = check(subject.trace, subject.machine, plan_of(options, subject));
  if (found && options.plan.empty() && moves_on_events(options, subject))
    throw Failure({Cause::infeasible,
                   options.policy + " moves tensors when something happens, so that its plan alone breaks a rule (" +
                       found->message + "); `vedette replay` runs it with its reactions"});
  if (found) throw broken(*found);
  subject.print();
  print("{}: the plan keeps every rule on {}\n", options.plan.empty() ? options.policy : options.plan,
        subject.trace.name);
}

// A plan that breaks a rule is refused: the replay does what no machine would, or less than the step needs.
Replayed replayed(const PlanOptions& options, const Subject& subject) {
  ReplayOptions how{.steps = options.steps,
                    .noise_percent = options.noise,
                    .seed = options.seed,
                    .timeline = !options.timeline.empty()};
  if (!options.plan.empty()) {
    const Plan plan = read_plan(options.plan, subject.trace);
    require_rules(subject, plan);
    return replay(subject.trace, subject.machine, plan, how).value();
  }
  const auto policy = policy_of(options);
  const Progress progress("replay", options.policy + " plans and runs " + subject.trace.name);
  if (options.rows.empty()) {
    how.keep_plan = true;
    Replayed got = value_of(options.policy, replay(subject.trace, subject.machine, *policy, how));
    if (!moves_on_events(got)) require_rules(subject, *got.plan);
    return got;
  }
  return value_of(options.policy,
                  replay(subject.trace, read_rows(options.rows, subject.trace), subject.machine, *policy, how));
}

// Of steps that differ none stands for the others. The first brings what the others find.
void print_steps(std::vector<Nanoseconds> times) {
  if (times.size() > 1) times.erase(times.begin());
  std::sort(times.begin(), times.end());
  const auto quartile = [&](std::size_t quarters) { return ms(times[(times.size() - 1) * quarters / 4]); };
  print("steps          median {:.3f} ms, {:.3f} to {:.3f} (quartiles of {})\n", quartile(2), quartile(1), quartile(3),
        times.size());
}

void run(const PlanOptions& options) {
  auto drawing = optional_output(options.timeline, inputs_of(options));
  const Subject subject = read_subject(options);
  const Replayed got = replayed(options, subject);
  subject.print();
  print("step           {:.3f} ms, ideal {:.3f} ms, {:.2f} % of ideal\n", ms(got.measured.time), ms(got.ideal),
        percent_of_ideal(got));
  if (!options.rows.empty()) print_steps(got.step_times);
  if (options.rows.empty())
    print("no plan under  {:.3f} ms{}\n", ms(lower_bound(subject.trace, subject.machine)),
          got.paged ? fmt::format(" by other rules; this step is {}", what_paged_means) : "");
  print("waiting        {:.3f} ms, recomputing {:.3f} ms\n", ms(got.measured.stall), ms(got.recompute));
  print("moved          {} in, {} out, {} left without writing\n", readable(got.bytes_in), readable(got.bytes_out),
        readable(got.bytes_dropped));
  print("fast memory    {} at most of {}\n", readable(got.peak), readable(subject.machine.tiers[0].capacity));
  print("unplanned      {} moves, {} ops faulted, {} moves late\n", got.unplanned, got.faults,
        got.measured.late.size());
  for (std::size_t l = 0; l < got.link_busy.size(); ++l) {
    const Link& link = subject.machine.links[l];
    print("link           {} to {}: busy {:.1f} %\n", subject.machine.tiers[link.source.value].name,
          subject.machine.tiers[link.target.value].name,
          100.0 * static_cast<double>(got.link_busy[l].value) /
              static_cast<double>(std::max<std::int64_t>(1, got.measured.time.value)));
  }
  if (!drawing) return;
  drawing->stream() << timeline_svg(
      {{.title = subject.trace.name + ", " + (options.plan.empty() ? options.policy : options.plan), .replayed = &got}},
      subject.machine);
  drawing->finish();
}

// Returns --policy.
CLI::Option* add_common(CLI::App& verb, PlanOptions& options) {
  verb.add_option("--fast-memory", options.fast,
                  "size of the fastest tier: 20% of the trace's peak, 8GiB (default: the machine's)");
  auto* policy = verb.add_option("--policy", options.policy, "whose plan")->capture_default_str();
  verb.add_option("--machine", options.machine, machine_words());
  verb.add_option("--slow", options.directory, "the directory whose disk is this-machine's slow tier")
      ->capture_default_str();
  verb.add_option("--seed", options.seed, "of policies that search at random, and of the noise")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 62));
  verb.add_flag("--reorder", options.reorder,
                "ops may run in another order that keeps what each depends on: what a compiler would gain; vedette and "
                "swapadvisor look for one (live steps keep theirs)");
  verb.add_option("--fast", options.fast)->group("");  // its earlier word
  return policy;
}

}  // namespace

void add_plan(CLI::App& app) {
  auto* verb = app.add_subcommand("plan", "Plans a step, says why a tensor moves when it does, lists the policies");
  const auto options = std::make_shared<PlanOptions>();
  verb->add_option("trace", options->trace, "a file in the format vedette-trace-1, a recording, or a trace of PyTorch");
  add_common(*verb, *options);
  verb->add_option("--explain", options->explain, "a tensor's name or number");
  verb->add_option("-o,--output", options->output, "write the plan of the first step (JSON)");
  verb->add_option("--settled", options->settled,
                   "write the plan that the policy has come to after replayed steps, which `vedette compare` measures");
  verb->add_option("--time", options->time,
                   "the best plan after so long, 50ms say; the first takes a few milliseconds for a thousand ops "
                   "(default: until hardly anything can be won)");
  verb->add_flag("--list", options->list, "list the policies");
  verb->add_flag("--policies", options->list)->group("");  // its earlier word
  verb->callback([options] { make_plan(*options); });
}

void add_check(CLI::App& app) {
  auto* verb =
      app.add_subcommand("check", "Judges a plan against every rule, or a recorded run against what it should be");
  const auto options = std::make_shared<PlanOptions>();
  const auto of_run = std::make_shared<RunChecks>();
  verb->add_option("trace", options->trace, "a file in the format vedette-trace-1, a recording, or a trace of PyTorch")
      ->required();
  auto* plan =
      verb->add_option("plan", options->plan, "a file that `vedette plan -o` wrote (default: what --policy plans)");
  add_common(*verb, *options)->excludes(plan);
  verb->add_option("--peak", of_run->peak, "of a recorded run: its peak is at most this, 12GiB");
  verb->add_option("--stall", of_run->stall, "of a recorded run: its steps wait at most this share of their time, 5%");
  verb->add_flag("--planned", of_run->planned, "of a recorded run: its steps run by a plan");
  verb->callback([options, of_run] {
    if (!of_run->any()) return judge(*options);
    if (!options->plan.empty())
      throw malformed("--peak, --stall and --planned are of a recorded run; leave the plan out");
    if (options->fast || !options->machine.empty())
      throw malformed(
          "--peak, --stall and --planned are of a recorded run, which had a machine and its memory; leave "
          "--machine and --fast-memory out");
    check_run(options->trace, *of_run);
  });
}

void add_replay(CLI::App& app) {
  auto* verb = app.add_subcommand("replay", "Runs a plan, or a policy with its reactions, against the clock");
  const auto options = std::make_shared<PlanOptions>();
  verb->add_option("trace", options->trace, "a file in the format vedette-trace-1, a recording, or a trace of PyTorch")
      ->required();
  auto* plan =
      verb->add_option("plan", options->plan, "a file that `vedette plan -o` wrote (default: what --policy plans)");
  add_common(*verb, *options)->excludes(plan);
  verb->add_option("--rows", options->rows,
                   "replay these steps in a row, each with the parts of tables that it touched (vedette-rows-1)")
      ->excludes(plan);
  verb->add_option("--noise", options->noise, "every op takes up to this many percent more or less")
      ->check(CLI::Range(0, 90));
  verb->add_option("--steps", options->steps, "the last of so many steps is measured")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  verb->add_option("--timeline", options->timeline, "draw the last step into this file (SVG)")
      ->expected(0, 1)
      ->default_str("timeline.svg");
  verb->callback([options, verb] {
    if (verb->count("--timeline") > 0 && options->timeline.empty()) options->timeline = "timeline.svg";
    run(*options);
  });
}

}  // namespace vedette::cli
