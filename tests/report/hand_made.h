// A run told by hand, every figure of which is known. It has a weight of two chunks, an activation and a tensor that
// lives within a layer, and four ops in two layers. Three of its five steps run a plan that is right once, late once,
// needless once, and misses one fetch.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "profiler/recorder.h"
#include "vedette/model.h"

namespace vedette::by_hand {

struct Names {  // what the program calls things
  std::string program = "a program", weight = "weight", hidden = "hidden", brief = "brief", layer = "linear", op = "mm",
              unit = "weight.1";
};

class Folder {  // of this test program alone, gone with it
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("vedette_report_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline constexpr std::uint64_t hand_made_chunk = 8192;

inline Machine hand_made_machine() {
  const Link in{.source = {1}, .target = {0}, .bytes_per_s = 100'000'000'000, .latency = {100}, .shared = {}};
  const Link out{.source = {0}, .target = {1}, .bytes_per_s = 100'000'000'000, .latency = {100}, .shared = {}};
  return {
      .tiers = {{.name = "dram", .capacity = {24576}, .addressable = true}, {.name = "nvme", .capacity = {1 << 30}}},
      .links = {in, out},
      .fault_time = {1000},
      .granule = {hand_made_chunk}};
}

inline Op hand_made_op(std::string name, std::uint32_t layer, std::int64_t time, std::vector<TensorIndex> reads,
                       std::vector<TensorIndex> writes, std::vector<TensorIndex> frees) {
  return {.name = std::move(name),
          .layer = LayerIndex{layer},
          .phase = layer == 0 ? Phase::forward : Phase::backward,
          .time = {time},
          .workspace = {},
          .reads = std::move(reads),
          .writes = std::move(writes),
          .frees = std::move(frees)};
}

inline Trace hand_made_trace(const Names& names) {
  Trace trace{.name = "step", .source = "test", .device = "cpu"};
  trace.tensors = {{.name = names.weight,
                    .bytes = {16384},
                    .kind = TensorKind::weight,
                    .persistent = true,
                    .shape = {64, 64},
                    .site = {}},
                   {.name = names.hidden,
                    .bytes = {8192},
                    .kind = TensorKind::activation,
                    .persistent = false,
                    .shape = {},
                    .site = {names.layer, names.op}},
                   {.name = names.brief,
                    .bytes = {4096},
                    .kind = TensorKind::activation,
                    .persistent = false,
                    .shape = {},
                    .site = {}}};
  trace.layers = {{.name = names.layer, .phase = Phase::forward}, {.name = names.layer, .phase = Phase::backward}};
  trace.ops = {hand_made_op(names.op, 0, 1000, {{0}}, {{1}}, {}), hand_made_op("relu", 0, 500, {{1}}, {{2}}, {}),
               hand_made_op("sum", 0, 500, {{2}}, {{1}}, {{2}}),
               hand_made_op("back", 1, 2000, {{0}, {1}}, {{0}}, {{1}})};
  trace.ops[0].workspace = {512};
  const auto pages = [&](std::uint32_t op, std::uint32_t tensor, std::uint64_t begin, std::uint64_t end, bool read,
                         bool written) {
    trace.pages.push_back({.op = {op}, .tensor = {tensor}, .pages = {begin, end}, .read = read, .written = written});
  };
  pages(0, 0, 0, 4, true, false);
  pages(0, 1, 0, 2, false, true);
  pages(1, 1, 0, 1, true, false);
  pages(1, 2, 0, 1, false, true);
  pages(2, 1, 1, 2, false, true);
  pages(2, 2, 0, 1, true, false);
  pages(3, 0, 0, 4, true, true);
  pages(3, 1, 0, 2, true, false);
  return trace;
}

inline void tell_plan(Observer& observer, const Names& names) {
  Trace units;
  for (const std::string& name : {names.weight, names.unit, names.hidden, names.brief})
    units.tensors.push_back(
        {.name = name, .bytes = {hand_made_chunk}, .kind = {}, .persistent = false, .shape = {}, .site = {}});
  units.ops.resize(4);
  Plan plan{.home = {{1}, {1}, {0}, {0}}};
  const auto move = [&](Verb verb, std::uint32_t issue, std::uint32_t due, std::uint32_t unit) {
    const bool in = verb == Verb::fetch;
    plan.moves.push_back({.issue = {issue},
                          .due = {due},
                          .extent = {.tensor = {unit}, .part = {}},
                          .source = {in ? 1u : 0u},
                          .target = {in ? 0u : 1u},
                          .verb = verb});
  };
  move(Verb::evict, 0, 1, 0);
  move(Verb::evict, 0, 1, 1);
  move(Verb::fetch, 2, 3, 0);
  move(Verb::fetch, 2, 3, 1);
  move(Verb::fetch, 3, 3, 2);
  plan.reasons = {"the weight is not read between the first op and the last"};
  std::vector<Placed> of_units, of_tensors{{.index = 0, .offset = {0}, .bytes = {16384}},
                                           {.index = 1, .offset = {16384}, .bytes = {8192}},
                                           {.index = 2, .offset = {24576}, .bytes = {4096}}};
  for (std::uint32_t u = 0; u < 4; ++u)
    of_units.push_back({.index = u, .offset = {u * hand_made_chunk}, .bytes = {hand_made_chunk}});
  observer.placed(2, 7, of_units, of_tensors);
  observer.planned(2, 7, units, plan);
}

inline void tell_moves(Observer& observer, Nanoseconds base) {
  const auto move = [&](Verb verb, MoveCause cause, std::uint64_t chunk, std::int64_t started, std::int64_t ended) {
    const Nanoseconds start = base + Nanoseconds{started};
    observer.moved({.verb = verb,
                    .cause = cause,
                    .chunk = chunk,
                    .bytes = {hand_made_chunk},
                    .issued = start,
                    .started = start,
                    .ended = base + Nanoseconds{ended}});
  };
  move(Verb::evict, MoveCause::planned, 0, 11000, 15000);
  move(Verb::evict, MoveCause::planned, 1, 11000, 16000);
  move(Verb::fetch, MoveCause::planned, 0, 22000, 42000);
  move(Verb::fetch, MoveCause::planned, 1, 43000, 60000);
  move(Verb::fetch, MoveCause::urgent, 3, 50000, 52000);
  move(Verb::evict, MoveCause::room, 3, 70000, 75000);
}

inline void tell_step(Observer& observer, const Names& names, std::uint64_t step, std::int64_t length) {
  const Nanoseconds base{static_cast<std::int64_t>(step) * 1'000'000};
  const bool planned = step > 2;
  struct {
    std::string name;
    std::int64_t began, ended;
    std::uint64_t live;
  } const ops[] = {{names.op, 1000, 10000, 24576},
                   {"relu", 11000, 20000, 28672},
                   {"sum", 21000, 40000, 24576},
                   {"back", 60000, 90000, 16384}};
  observer.step_began(step, base);
  for (std::uint32_t i = 0; i < 4; ++i) {
    observer.op_began(step, {i}, ops[i].name, base + Nanoseconds{ops[i].began});
    observer.sampled(step, {i}, {i == 1 ? 16384u : 24576u}, {ops[i].live});
    observer.op_ended(step, {i}, base + Nanoseconds{ops[i].ended});
  }
  if (planned) {
    tell_moves(observer, base);
    observer.stalled({.step = step, .op = {3}, .began = base + Nanoseconds{45000}, .ended = base + Nanoseconds{60000}});
    observer.faulted({.step = step,
                      .op = {3},
                      .chunk = 5,
                      .page = 1,
                      .write = true,
                      .began = base + Nanoseconds{61000},
                      .ended = base + Nanoseconds{62000}});
    observer.recomputed({.step = step,
                         .op = {3},
                         .chunk = 2,
                         .chunks = 1,
                         .ops = 2,
                         .began = base + Nanoseconds{40500},
                         .ended = base + Nanoseconds{43500}});
  }
  Counters c{.bytes_in = planned ? 24576u : 0u,
             .bytes_out = planned ? 24576u : 0u,
             .stall_count = planned ? 1u : 0u,
             .stall_ns = planned ? 15000u : 0u,
             .faults = planned ? 1u : 0u,
             .live_bytes = 16384,
             .peak_bytes = 28672,
             .resident_bytes = 24576,
             .resident_max_bytes = 24576,
             .steps = 1,
             .ops = 4};
  observer.step_ran(step,
                    step == 1   ? "warm-up"
                    : step == 2 ? "profiling"
                                : "planned",
                    planned ? std::optional<std::uint64_t>(7) : std::nullopt);
  observer.step_ended(step, base + Nanoseconds{length}, c);
  if (step == 2) {
    observer.profiled(step, 7, hand_made_trace(names));
    tell_plan(observer, names);
  }
}

// Steps 1 to 5; step 5 is the one of median time of those planned, and is the one shown.
inline void tell_run(Observer& observer, const Names& names = {}) {
  observer.opened(hand_made_machine(), "vedette", {24576}, {hand_made_chunk});
  const std::int64_t lengths[] = {150000, 220000, 100000, 120000, 110000};
  for (std::uint64_t step = 1; step <= 5; ++step) tell_step(observer, names, step, lengths[step - 1]);
}

inline std::string record_by_hand(const std::string& path, const Names& names = {}) {
  auto recorder = Recorder::open({.path = path, .program = names.program, .plain_step = Nanoseconds{99000}}).value();
  tell_run(*recorder, names);
  recorder->flush();
  return path;
}

}  // namespace vedette::by_hand
