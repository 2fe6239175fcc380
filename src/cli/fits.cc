// `vedette fits RUN`: whether a recorded step fits into so much memory, how fast it is there, and which batch would
// fit. On a card that the step never ran on, times are a range by its roofline (sim/cards.h).
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/daily.h"
#include "cli/endurance.h"
#include "cli/fits_answer.h"
#include "cli/lab.h"
#include "cli/nearest.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "pack/from_trace.h"
#include "pack/online_pool.h"
#include "profiler/report/report.h"
#include "sim/cards.h"

namespace vedette::cli {
namespace {

struct FitsOptions {
  std::string run, card, machine, directory = ".", memory, host, disk, endurance, also, batch, step;
  bool json = false, list = false;
};

// With the shapes that a recording has and a trace file has not.
Trace step_of(const std::string& file) {
  if (!begins_as_recording(file)) return read_trace(file);
  const report::Run run = value_of(file, report::load_run(file));
  const report::Profile* const profile =
      run.shown_profile() != nullptr || run.profiles.empty() ? run.shown_profile() : &run.profiles.back();
  if (profile == nullptr)
    throw malformed(file + " has no profiled step; record three steps or more, with step() around each");
  Trace trace = run.shown_profile() != nullptr ? report::steady_trace(run) : profile->trace;
  trace.pages.clear();  // an op's operands have to be there as a whole
  if (!run.program.empty()) trace.name = run.program;
  if (!run.origin.assumed.empty()) trace.notes = {run.origin.assumed}, trace.source = run.origin.imported;
  for (Op& op : trace.ops) op.time = std::max(op.time, Nanoseconds{1});
  return trace;
}

const Card& card_of(const std::string& name) {
  if (const Card* const card = card_named(name)) return *card;
  std::vector<std::string> known;
  for (const Card& card : cards()) known.emplace_back(card.name);
  throw malformed(fmt::format("there is no card '{}'{}; there are {}, and --machine takes a file of your own", name,
                              did_you_mean(name, known), fmt::join(known, ", ")));
}

constexpr double usable = 0.92;  // of a card's memory: context, workspaces and fragments take the rest

std::string range(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (values.empty() || *most == 0) return "-";
  return *most - *least < 0.005 ? fmt::format("{:.2f} x", *most) : fmt::format("{:.2f} to {:.2f} x", *least, *most);
}

std::string readable_time(Nanoseconds time) {
  return ms(time) < 1000 ? fmt::format("{:.3g} ms", ms(time)) : fmt::format("{:.1f} s", ms(time) / 1000);
}

// Sizes and times of any batch, as lines through those of two.
struct Batches {
  Trace one, other;
  double batch_of_one = 0, batch_of_other = 0;

  Trace at(double batch) const {
    Trace trace = one;
    const double part = (batch - batch_of_one) / (batch_of_other - batch_of_one);
    const auto line = [&](std::uint64_t a, std::uint64_t b) {
      const double value = static_cast<double>(a) + (static_cast<double>(b) - static_cast<double>(a)) * part;
      return static_cast<std::uint64_t>(std::max(0.0, value));
    };
    for (std::size_t t = 0; t < trace.tensors.size(); ++t)
      trace.tensors[t].bytes = {line(one.tensors[t].bytes.value, other.tensors[t].bytes.value)};
    for (std::size_t i = 0; i < trace.ops.size(); ++i)
      trace.ops[i].workspace = {line(one.ops[i].workspace.value, other.ops[i].workspace.value)};
    return trace;
  }
  // The largest batch of which `need` is at most `memory`; 0: none.
  template <class Need>
  std::uint64_t largest(Bytes memory, Need need) const {
    std::uint64_t low = 0, high = 1;
    while (high < (std::uint64_t{1} << 30) && need(at(static_cast<double>(high))) <= memory) low = high, high *= 2;
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      (need(at(static_cast<double>(middle))) <= memory ? low : high) = middle;
    }
    return low;
  }
};

Batches read_batches(const FitsOptions& options, Trace one) {
  const auto numbers = split(options.batch, ',');
  Batches batches{.one = std::move(one), .other = step_of(options.also)};
  const auto number = [](const std::string& word) {
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    return *end == '\0' && value >= 1 && value < 1e9 ? value : 0.0;
  };
  if (numbers.size() == 2) batches.batch_of_one = number(numbers[0]), batches.batch_of_other = number(numbers[1]);
  if (batches.batch_of_one == 0 || batches.batch_of_other == 0 || batches.batch_of_one == batches.batch_of_other)
    throw malformed("--also needs --batch A,B: the two batch sizes, of " + options.run + " and of " + options.also);
  if (batches.one.ops.size() != batches.other.ops.size() || batches.one.tensors.size() != batches.other.tensors.size())
    throw malformed(
        fmt::format("{} has {} ops and {} tensors a step, {} has {} and {}: their sizes make no lines; "
                    "record the same program with two batch sizes",
                    options.run, batches.one.ops.size(), batches.one.tensors.size(), options.also,
                    batches.other.ops.size(), batches.other.tensors.size()));
  return batches;
}

std::uint64_t disk_speed(const std::string& words) {
  if (const auto speed = read_speed(words)) return *speed;
  throw malformed("--disk " + words + " is no speed; write 2GB/s or 500MB/s");
}

Nanoseconds step_time(const std::string& words) {
  char* end = nullptr;
  const double number = std::strtod(words.c_str(), &end);
  const std::string_view unit(end);
  const double ns = unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
  if (end == words.c_str() || !(number * ns >= 1) || number * ns > 1e15)
    throw malformed("--step " + words + " is no time; write 845ms or 1.2s");
  return {static_cast<std::int64_t>(number * ns)};
}

// The same ops on a machine where all of them take so long.
Trace scaled(Trace trace, Nanoseconds step) {
  const double factor =
      static_cast<double>(step.value) / static_cast<double>(std::max<std::int64_t>(1, ideal_of(trace).value));
  for (Op& op : trace.ops)
    op.time = {std::max<std::int64_t>(1, std::llround(static_cast<double>(op.time.value) * factor))};
  return trace;
}

Subject subject_of(const FitsOptions& options, const Trace& recorded) {
  Subject subject;
  if (!options.card.empty()) {
    const Card& card = card_of(options.card);
    constexpr Bytes plenty{std::uint64_t{1} << 44};
    subject.machine = machine_of(card, options.host.empty() ? plenty : read_size(options.host, recorded));
    subject.machine.tiers[0].capacity = {static_cast<std::uint64_t>(static_cast<double>(card.memory.value) * usable)};
    if (options.step.empty()) {
      for (const Estimate estimate : {Estimate::slow, Estimate::fast})
        subject.steps.push_back(on_card(recorded, card, estimate));
    } else {
      subject.steps.push_back(on_card(recorded, card, step_time(options.step)));
      subject.given = true;
    }
    subject.words = fmt::format("{} ({}): {} of its {} are for tensors, {:.0f} and {:.0f} GB/s from and to host memory",
                                card.name, card.source, readable(subject.machine.tiers[0].capacity),
                                readable(card.memory), card.link_in / 1e9, card.link_out / 1e9);
    if (options.disk.empty()) return subject;
    const std::uint64_t speed = disk_speed(options.disk);
    subject.machine.tiers.push_back({.name = "nvme", .capacity = plenty});
    subject.machine.links.push_back({.source = {2}, .target = {0}, .bytes_per_s = speed, .shared = 0});
    subject.machine.links.push_back({.source = {0}, .target = {2}, .bytes_per_s = speed, .shared = 0});
    return subject;
  }
  Chosen chosen = machine_for(options.run, options.machine, options.directory);
  subject.machine = std::move(chosen.machine);
  const std::uint64_t speed = options.disk.empty() ? 0 : disk_speed(options.disk);
  if (speed > 0)
    for (Link& link : subject.machine.links)
      if (link.source.value == subject.machine.tiers.size() - 1 ||
          link.target.value == subject.machine.tiers.size() - 1)
        link.bytes_per_s = speed, link.alone_bytes_per_s = 0;
  subject.words = fmt::format("{} ({})", chosen.name, tiers_and_links(subject.machine));
  subject.steps.push_back(options.step.empty() ? recorded : scaled(recorded, step_time(options.step)));
  subject.given = !options.step.empty();
  return subject;
}

std::vector<Bytes> sizes_of(const FitsOptions& options, const Machine& machine, const Needs& needs, bool is_card) {
  const auto [peak, whole, least] = needs;
  const Bytes of_machine = machine.tiers[0].capacity;
  std::vector<Bytes> sizes;
  if (!options.memory.empty() || of_machine < (is_card ? peak : whole)) sizes.push_back(of_machine);
  sizes.push_back(whole);
  for (const int percent : {80, 60, 50, 40, 30, 25, 20, 15, 10})  // as --memory reads them, so that none stands twice
    sizes.push_back({static_cast<std::uint64_t>(static_cast<double>(peak.value) * percent / 100)});
  std::erase_if(sizes, [&](Bytes size) { return size < least; });
  std::sort(sizes.begin(), sizes.end(), [](Bytes a, Bytes b) { return a > b; });
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

nlohmann::json json_of(const Answer& each, Bytes peak, const std::optional<Endurance>& rated) {
  return {{"memory_bytes", each.memory.value},
          {"share_of_peak", static_cast<double>(each.memory.value) / static_cast<double>(peak.value)},
          {"moving_alone", each.moving},
          {"with_recomputation", each.recomputing},
          {"bound", each.bound},
          {"moved_bytes", each.moved.value},
          {"below_bytes", each.below.value},
          {"written_to_disk_bytes", each.to_disk.value},
          {"written_to_disk_a_day_bytes", bytes_a_day(each.to_disk, each.step)},
          {"endurance_share_a_day", rated ? nlohmann::json(endurance_a_day(each.to_disk, each.step, rated)) : nullptr}};
}

void print_row(const Answer& each, Bytes peak, const std::optional<Endurance>& rated) {
  const std::string a_day = readable_daily(each.to_disk, each.step, rated);
  print("{:>10} {:>5.0f} %  {:>15}  {:>15}  {:>15}  {:>10}  {:>10}{}\n", readable(each.memory),
        100.0 * static_cast<double>(each.memory.value) / static_cast<double>(peak.value), range(each.moving),
        range(each.recomputing), range(each.bound), readable(each.moved), readable(each.below),
        a_day.empty() ? "" : "  " + a_day);
}

void list_cards() {
  for (const Card& card : cards())
    print(
        "{:<11} {:>9}, {:.2f} TB/s, {:.0f} TFLOPS of 16 bits, {:.0f} of float32 ({:.0f} on tensor cores), {:.0f} GB/s "
        "from host memory: {}\n",
        card.name, readable(card.memory), card.memory_bytes_per_s / 1e12, card.half / 1e12, card.float32 / 1e12,
        card.tensor_float32 / 1e12, card.link_in / 1e9, card.source);
}

// Bytes of an allocator that does not know the future, as a card's does. Above the peak they are its fragments.
Bytes with_fragments(const Trace& trace) { return pack::online_pool_peak(pack::lives_of(trace).problem); }

struct Largest {  // batches: whose step fits whole, and whose largest op does
  std::uint64_t whole = 0, op = 0;
};

void print_answer(const Subject& subject, const Needs& needs, const std::vector<Answer>& answers,
                  const std::optional<Largest>& batch, bool is_card, const std::optional<Endurance>& rated) {
  const Trace& trace = subject.steps.front();
  const auto [peak, whole, least] = needs;
  const Bytes has = subject.machine.tiers[0].capacity;
  print("step       {}, {} ops, {} tensors\n", trace.name, trace.ops.size(), trace.tensors.size());
  if (subject.machine.whole_tensors)
    print("peak       {}; {} are the least that works: its largest operator needs them at once\n", readable(peak),
          readable(least));
  else
    print("peak       {}, {} in chunks of {}; {} are the least that works\n", readable(peak), readable(whole),
          readable(subject.machine.granule), readable(least));
  const Bytes pool = with_fragments(trace);
  print("fragments  {} in a pool by best fit, {:.1f} % more; vedette pack finds offsets that waste less\n",
        readable(pool), 100.0 * (static_cast<double>(pool.value) / static_cast<double>(peak.value) - 1));
  print("machine    {}\n", subject.words);
  std::vector<Nanoseconds> ideals;
  for (const Trace& each : subject.steps) ideals.push_back(ideal_of(each));
  if (ideals.size() > 1)
    print("time       {} to {} with all memory, by the card's roofline: nothing was run there\n",
          readable_time(ideals.back()), readable_time(ideals.front()));
  else
    print("time       {} with all memory, {}\n", readable_time(ideals.front()),
          !subject.given ? "the operators' own as recorded"
          : is_card      ? "as was given; operators share it by the card's roofline"
                         : "as was given; operators share it as recorded");
  print("answer     {}\n", whole <= has ? fmt::format("all of it fits: {} stay free", readable(has - whole))
                                        : fmt::format("in {} it runs under a guard: {} of its peak wait in slow "
                                                      "memory; the table has its speed",
                                                      readable(has), readable(whole - has)));
  if (batch)
    print("batch      up to {} all of a step fits; up to {} its largest operator does, and a guard trains it\n",
          batch->whole, batch->op);
  const bool wears = std::any_of(answers.begin(), answers.end(), [](const Answer& a) { return a.to_disk.value > 0; });
  print("\nSpeeds are shares of the speed with all memory.\n{:>10} {:>7}  {:>15}  {:>15}  {:>15}  {:>10}  {:>10}{}\n",
        "memory", "of peak", "moving alone", "with recompute", "no plan passes", "moved/step", "kept away",
        wears ? "  written to the disk" : "");
  for (const Answer& each : answers) print_row(each, peak, rated);
}

void run(const FitsOptions& options) {
  if (options.list) return list_cards();
  if (options.run.empty()) throw CLI::RequiredError("a recording, or --list,");
  if (!options.card.empty() && !options.machine.empty())
    throw malformed("--card and --machine name two; leave one out");
  if (!options.batch.empty() && options.also.empty())
    throw malformed("--batch needs --also, a recording of another batch");
  const auto rated = endurance_of(options.endurance);
  const Trace recorded = step_of(options.run);
  std::optional<Batches> batches;
  if (!options.also.empty()) batches.emplace(read_batches(options, recorded));
  if (!options.host.empty() && options.card.empty())
    throw malformed("--host is the host memory beside a --card; a --machine has its own, so leave --host out");
  Subject subject = subject_of(options, recorded);
  print_assumptions(recorded, options.json);
  const bool is_card = !options.card.empty();
  if (!options.memory.empty()) subject.machine.tiers[0].capacity = read_size(options.memory, recorded);
  const Bytes has = subject.machine.tiers[0].capacity;
  const Needs needs = needs_of(recorded, subject.machine);
  if (!options.memory.empty()) {
    if (has < needs.least && needs.least > largest_op_bytes(recorded))
      throw Failure(
          {Cause::infeasible,
           fmt::format("a session of {} takes {} of fast memory at least, and there are {}; give it that many",
                       recorded.name, readable_exactly(needs.least), readable_exactly(has))});
    require_room(recorded, subject.machine);
  }
  std::vector<Answer> answers;
  {
    const Progress progress("fits", "plans of " + recorded.name);
    std::vector<Bytes> sizes = sizes_of(options, subject.machine, needs, is_card);
    std::reverse(sizes.begin(), sizes.end());
    for (const Bytes size : sizes)
      answers.push_back(answer(subject, size, answers.empty() ? nullptr : &answers.back()));
    std::reverse(answers.begin(), answers.end());
  }
  std::optional<Largest> batch;
  if (batches) {
    batch = {.whole = batches->largest(has, [](const Trace& t) { return peak_bytes(t); }),
             .op = batches->largest(has, [](const Trace& t) { return largest_op_bytes(t); })};
  }
  if (!options.json) return print_answer(subject, needs, answers, batch, is_card, rated);
  nlohmann::json out{{"step", recorded.name},
                     {"peak_bytes", needs.peak.value},
                     {"peak_as_it_moves_bytes", needs.whole.value},
                     {"least_bytes", needs.least.value},
                     {"with_fragments_bytes", with_fragments(recorded).value},
                     {"machine", subject.words},
                     {"fits", needs.whole <= has},
                     {"rows", nlohmann::json::array()}};
  for (const Trace& each : subject.steps) out["ideal_ns"].push_back(ideal_of(each).value);
  for (const Answer& each : answers) out["rows"].push_back(json_of(each, peak_bytes(recorded), rated));
  if (batch) out["batch"] = {{"whole", batch->whole}, {"operator", batch->op}};
  print_data(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

void add_fits(CLI::App& app) {
  auto* verb = app.add_subcommand("fits", "Whether a recorded step fits into so much memory, and how fast it is there");
  const auto options = std::make_shared<FitsOptions>();
  verb->add_option("run", options->run, "a recording, a file in the format vedette-trace-1, or a trace of PyTorch");
  verb->add_option("--card", options->card, "a GPU by its data sheet (--list): times are then a range by its roofline");
  verb->add_option("--machine", options->machine, machine_words());
  verb->add_option("--slow", options->directory, "the directory whose disk is this-machine's slow tier")
      ->capture_default_str();
  verb->add_option("--step", options->step, "the time of a step with all memory, on --card or there: 845ms");
  verb->add_option("--memory", options->memory, "fast memory: 24GiB, or 25% of the peak (default: a table of sizes)");
  verb->add_option("--host", options->host, "with --card, pinned host memory (default: as much as is needed)");
  verb->add_option("--disk", options->disk, "the speed of the disk each way, 2GB/s (with --card: below host memory)");
  verb->add_option("--endurance", options->endurance, "the rating of that disk: " + std::string(endurance_usage));
  verb->add_option("--also", options->also, "a recording of the same program with another batch size");
  verb->add_option("--batch", options->batch, "with --also, both batch sizes: 16,32");
  verb->add_flag("--json", options->json, "JSON instead of a table");
  verb->add_flag("--list", options->list, "list the cards");
  verb->callback([options] { run(*options); });
}

}  // namespace vedette::cli
