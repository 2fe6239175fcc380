// A small run, told to an observer by hand, so that every figure of its recording is known.
//
// Two tensors: `weight` (64 KiB, 16 pages, persistent, chunk 0) and `hidden` (10,000 bytes, 3 pages, chunk 1); three
// ops in two layers. Each step S begins at S ms. In nanoseconds from there: chunk 0 is fetched from 2 to 14 (issued at
// 1) while op 0 waits from 11 to 15. The ops run from 10 to 20, 25 to 45 and 50 to 70; op 1 faults at 30 in chunk 7.
// Chunk 0 is evicted from 72 to 80, and the step ends at 100.
#pragma once
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "profiler/recorder.h"
#include "vedette/observer.h"

namespace vedette::told {

constexpr std::uint64_t bucket = 0xF000000000000001;
constexpr Bytes chunk{std::uint64_t{64} << 10};

inline Trace two_layers() {
  return {.name = "toy",
          .source = "test",
          .device = "cpu",
          .notes = {"told by hand"},
          .tensors =
              {{.name = "weight", .bytes = 64_KiB, .kind = TensorKind::weight, .persistent = true, .shape = {128, 128}},
               {.name = "hidden", .bytes = {10000}, .shape = {2500}, .site = {.layer = "linear", .op = "mm"}}},
          .layers = {{.name = "linear"}, {.name = "linear", .phase = Phase::backward}},
          .ops = {{.name = "mm",
                   .layer = LayerIndex{0},
                   .time = {1000},
                   .workspace = {},
                   .reads = {{0}},
                   .writes = {{1}},
                   .frees = {}},
                  {.name = "relu",
                   .layer = LayerIndex{0},
                   .time = {500},
                   .workspace = {},
                   .reads = {{1}},
                   .writes = {{1}},
                   .frees = {}},
                  {.name = "mm",
                   .layer = LayerIndex{1},
                   .phase = Phase::backward,
                   .time = {900},
                   .workspace = {64},
                   .reads = {{0}, {1}},
                   .writes = {},
                   .frees = {{1}}}},
          .pages = {{.op = {0}, .tensor = {0}, .pages = {0, 16}, .read = true},
                    {.op = {0}, .tensor = {1}, .pages = {0, 2}, .read = true, .written = true},
                    {.op = {1}, .tensor = {0}, .pages = {4, 8}, .read = true},
                    {.op = {1}, .tensor = {1}, .pages = {1, 3}, .written = true},
                    {.op = {2}, .tensor = {0}, .pages = {0, 1}, .read = true}}};
}

inline Machine dram_and_disk() {
  return {.tiers = {{.name = "dram", .capacity = 1_MiB, .addressable = true}, {.name = "nvme", .capacity = 64_MiB}},
          .links = {{.source = {0}, .target = {1}, .bytes_per_s = 1000000000, .latency = {80000}, .shared = 1},
                    {.source = {1},
                     .target = {0},
                     .bytes_per_s = 2000000000,
                     .latency = {80000},
                     .shared = 1,
                     .alone_bytes_per_s = 3000000000}},
          .fault_time = {74000}};
}

inline Plan plan() {
  return {
      .home = {{1}, {0}},
      .moves =
          {{.issue = {0},
            .due = {0},
            .extent = {.tensor = {0}, .part = Span<Bytes>{{0}, 4_KiB}},
            .source = {1},
            .target = {0}},
           {.issue = {2}, .due = {0}, .extent = {.tensor = {0}}, .source = {0}, .target = {1}, .verb = Verb::evict}},
      .in_place = {},
      .recomputations = {},
      .order = {},
      .reserved = 4_KiB,
      .reasons = {"it does not fit"}};
}

inline void tell_step(Observer& observer, std::uint64_t step) {
  const auto at = [&](std::int64_t offset) { return Nanoseconds{static_cast<std::int64_t>(step) * 1000000 + offset}; };
  observer.step_began(step, at(0));
  observer.op_began(step, {0}, "mm", at(10));
  observer.stalled({.step = step, .op = {0}, .began = at(11), .ended = at(15)});
  observer.moved(
      {.cause = MoveCause::urgent, .chunk = 0, .bytes = chunk, .issued = at(1), .started = at(2), .ended = at(14)});
  observer.sampled(step, {0}, {131072}, {75536});
  observer.op_ended(step, {0}, at(20));
  observer.op_began(step, {1}, "relu", at(25));
  observer.faulted({.step = step, .op = {1}, .chunk = 7, .page = 5, .write = true, .began = at(30), .ended = at(40)});
  observer.sampled(step, {1}, {131072}, {75536});
  observer.op_ended(step, {1}, at(45));
  observer.op_began(step, {2}, "mm", at(50));
  observer.recomputed({.step = step, .op = {2}, .chunk = 1, .chunks = 1, .ops = 2, .began = at(46), .ended = at(49)});
  observer.sampled(step, {2}, {65536}, {65536});
  observer.op_ended(step, {2}, at(70));
  observer.moved(
      {.verb = Verb::evict, .chunk = 0, .bytes = chunk, .issued = at(71), .started = at(72), .ended = at(80)});
  observer.step_ran(step, "planned", bucket);
  observer.step_ended(step, at(100),
                      {.bytes_in = {65536},
                       .bytes_out = {65536},
                       .disk_bytes_out = {65536},
                       .bytes_in_place = {4096},
                       .stall_count = 1,
                       .stall_ns = 4,
                       .faults = 1,
                       .live_bytes = {65536},
                       .peak_bytes = {75536 + step},
                       .resident_bytes = {65536},
                       .resident_max_bytes = {131072},
                       .steps = 1,
                       .ops = 3});
}

// Steps 1 to `steps`, with one profile and one plan.
inline void tell_run(Observer& observer, std::uint64_t steps, const Trace& trace = two_layers()) {
  observer.opened(dram_and_disk(), "sentinel", 1_MiB, chunk);
  observer.profiled(0, bucket, trace);
  const Placed units[] = {{0, {0}, {65536}}, {1, {65536}, {65536}}},
               tensors[] = {{0, {0}, {65536}}, {1, {65536}, {10000}}};
  observer.placed(0, bucket, units, tensors);
  observer.planned(0, bucket, two_layers(), plan());
  for (std::uint64_t step = 1; step <= steps; ++step) tell_step(observer, step);
}

struct Folder {  // of this program alone, gone with it
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("vedette_profiler_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

inline std::string fresh_path(const std::string& name) {
  static const Folder folder;
  return folder.path / name;
}

inline std::string record_run(const std::string& name, std::uint64_t steps, const Trace& trace = two_layers()) {
  const std::string path = fresh_path(name);
  auto recorder = Recorder::open({.path = path, .program = "a test", .live = false}).value();
  tell_run(*recorder, steps, trace);
  recorder->flush();
  if (recorder->failure()) throw Failure(*recorder->failure());
  return path;
}

struct Ran {
  int status = -1;     // exit status; -1: it did not exit
  std::string output;  // standard output and error together
};

inline Ran run(const std::string& command) {
  Ran ran;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer{};
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    ran.output.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ran.status = WEXITSTATUS(status);
  return ran;
}

}  // namespace vedette::told
