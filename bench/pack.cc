// How close does offset planning come to the most bytes that live at once, and how long does it take?
//
//   pack_table [--folder FOLDER] [--rounds N] [--given-only] [FILE...]
//
// FOLDER holds lifetimes as CSV (VEDETTE_DATA/pack): those called NAME.CAPACITY.csv are to be placed within that
// capacity. FILES are more of them, or traces, whose sizes are rounded to 64 (the recordings of our own models). Then
// steps that are made here: pangu's repeated, a forward and a backward pass, and random lives, with 100,000 and
// 1,000,000 buffers. Each is planned N times. The table has the medians of processor time and wall time, the ideal
// (peak over the bytes that live at once is 1 at best), and the peak of an online best-fit pool as CnMem's. Every plan
// is judged by a validator that shares no code with the planner. For traces a second line has the live arena's layout
// of the same temporaries (src/pack/coallocate): its addresses, and the chunks in use at the fullest moment, over the
// bytes that live then.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "median.h"
#include "pack/coallocate.h"
#include "pack/csv.h"
#include "pack/from_trace.h"
#include "pack/offsets.h"
#include "pack/online_pool.h"
#include "pack/sections.h"
#include "pack/verify.h"
#include "vedette/model.h"

namespace {

using namespace vedette;
namespace fs = std::filesystem;

double processor_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// A plan, its cost and the peak of a pool; false where the plan is unsound, or above its capacity.
bool measure(const std::string& name, const pack::Problem& problem, std::optional<Bytes> capacity,
             std::uint32_t rounds) {
  std::vector<double> processor, wall;
  pack::Layout layout;
  for (std::uint32_t r = 0; r < rounds; ++r) {
    const auto began = std::chrono::steady_clock::now();
    const double before = processor_ms();
    layout = pack::plan_offsets(problem, capacity);
    processor.push_back(processor_ms() - before);
    wall.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  const double live = static_cast<double>(pack::most_live(problem).value);
  const auto fault = pack::find_fault(problem, layout.offset, capacity);
  fmt::print("{:<34} {:>8} {:>14.0f} {:>9.5f} {:>10.1f} {:>10.1f} {:>9.4f}  {}{}\n", name, problem.buffers.size(), live,
             static_cast<double>(layout.peak.value) / live, median(processor), median(wall),
             static_cast<double>(pack::online_pool_peak(problem).value) / live,
             capacity ? fmt::format("within {}, ", capacity->value) : "",
             fault ? "NOT VALID: " + *fault : "valid, by " + layout.how);
  std::fflush(stdout);
  return !fault;
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<Bytes> capacity_of(const fs::path& file) {
  const std::string stem = file.stem().string();  // NAME.CAPACITY
  const std::size_t dot = stem.rfind('.');
  if (dot == std::string::npos || dot + 1 == stem.size() ||
      stem.find_first_not_of("0123456789", dot + 1) != std::string::npos)
    return std::nullopt;
  return Bytes{std::stoull(stem.substr(dot + 1))};
}

pack::Problem problem_of(const fs::path& file) {
  const std::string text = read(file);
  if (file.extension() == ".csv") return pack::parse_lifetimes(text).value().problem;
  pack::Problem problem = pack::lives_of(parse_trace(text).value()).problem;
  for (pack::Buffer& buffer : problem.buffers)
    buffer.alignment = 64, buffer.bytes = {(buffer.bytes.value + 63) / 64 * 64};
  return problem;
}

// Small tensors live in the slab, persistent ones elsewhere: a plan lays out the temporaries in between.
void print_arena(const Trace& trace, std::uint64_t chunk) {
  const pack::TraceLives lives = pack::lives_of(trace);
  struct Event {
    pack::Time when;
    bool birth;
    std::size_t whose;
  };
  std::vector<Event> events;
  pack::Problem temporaries;
  for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
    pack::Buffer buffer = lives.problem.buffers[t];
    if (trace.tensors[t].persistent || buffer.bytes.value <= std::max<std::uint64_t>(chunk / 64, 1024) ||
        buffer.life.begin >= buffer.life.end)
      continue;
    events.push_back({buffer.life.begin, true, temporaries.buffers.size()});
    events.push_back({buffer.life.end, false, temporaries.buffers.size()});
    buffer.alignment = 4096;
    temporaries.buffers.push_back(buffer);
  }
  if (temporaries.buffers.empty()) return;
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.when != b.when ? a.when < b.when : a.birth < b.birth;
  });
  std::vector<Lifetime> told;  // in order of birth
  std::vector<std::size_t> place(temporaries.buffers.size());
  for (std::uint32_t e = 0; e < events.size(); ++e) {
    const std::size_t whose = events[e].whose;
    if (events[e].birth)
      place[whose] = told.size(), told.push_back({.bytes = temporaries.buffers[whose].bytes, .life = {e + 1, e + 1}});
    else
      told[place[whose]].life.end = e + 1;
  }
  const Placement placement = coallocate(told, {chunk});
  std::vector<std::uint32_t> living(placement.zone_bytes / chunk);
  std::size_t now = 0, most = 0;
  for (const Event& event : events) {
    const std::uint64_t at = placement.offset[place[event.whose]], end = at + told[place[event.whose]].bytes.value;
    for (std::uint64_t c = at / chunk; c * chunk < end; ++c)
      now = event.birth ? now + (living[c]++ == 0 ? 1 : 0) : now - (--living[c] == 0 ? 1 : 0);
    most = std::max(most, now);
  }
  const double live = static_cast<double>(pack::most_live(temporaries).value);
  fmt::print(
      "  the arena, chunks of {} KiB: {} temporaries, live {:.0f}; addresses {:.4f}, chunks in use at most {:.4f}; "
      "planned offsets {:.4f}\n",
      chunk >> 10, temporaries.buffers.size(), live, static_cast<double>(placement.zone_bytes) / live,
      static_cast<double>(most * chunk) / live, static_cast<double>(pack::plan_offsets(temporaries).peak.value) / live);
}

pack::Problem repeated(const pack::Problem& one, pack::Time times) {
  pack::Time last = 0;
  for (const pack::Buffer& buffer : one.buffers) last = std::max(last, buffer.life.end);
  pack::Problem all;
  for (pack::Time n = 0; n < times; ++n) {
    for (pack::Buffer buffer : one.buffers) {
      buffer.life = {buffer.life.begin + n * last, buffer.life.end + n * last};
      all.buffers.push_back(buffer);
    }
  }
  return all;
}

class Random {
 public:
  double uniform() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_ = 7919;
};

// n / 2 layers: the activation of each lives until its backward, with a scratch buffer beside each.
pack::Problem forward_and_backward(std::uint32_t n) {
  Random random;
  pack::Problem problem;
  const auto layers = static_cast<pack::Time>(n / 3);
  for (pack::Time l = 0; l < layers; ++l) {
    const auto size = [&](double most) {
      return Bytes{static_cast<std::uint64_t>(std::exp(random.uniform() * std::log(most))) * 64 + 64};
    };
    problem.buffers.push_back({.life = {l, 2 * layers - l}, .bytes = size(65536)});
    problem.buffers.push_back({.life = {l, l + 1}, .bytes = size(16384)});
    problem.buffers.push_back({.life = {2 * layers - l - 1, 2 * layers - l}, .bytes = size(16384)});
  }
  return problem;
}

pack::Problem random_lives(std::uint32_t n) {
  Random random;
  pack::Problem problem;
  for (std::uint32_t b = 0; b < n; ++b) {
    const auto begin = static_cast<pack::Time>(random.uniform() * n),
               length = static_cast<pack::Time>(1 + random.uniform() * 1000);
    problem.buffers.push_back(
        {.life = {begin, begin + length},
         .bytes = {static_cast<std::uint64_t>(std::exp(random.uniform() * std::log(1e6))) * 64 + 64}});
  }
  return problem;
}

}  // namespace

int main(int count, char** words) {
  const char* data = std::getenv("VEDETTE_DATA");
  std::string folder = data == nullptr ? "" : std::string(data) + "/pack";
  std::vector<std::string> files;
  std::uint32_t rounds = 5;
  bool made = true;
  CLI::App app("Places buffers and says how low.");
  app.add_option("--folder", folder, "CSV files; default: VEDETTE_DATA/pack");
  app.add_option("file", files, "More of them, or traces");
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 100));
  app.add_flag("!--given-only", made, "Nothing that is made here");
  CLI11_PARSE(app, count, words);
  std::vector<fs::path> all;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".csv") all.push_back(entry.path());
    }
  } else {
    fmt::print("no folder '{}': set VEDETTE_DATA or --folder for the given instances\n", folder);
  }
  std::sort(all.begin(), all.end());
  all.insert(all.end(), files.begin(), files.end());
  bool sound = true;
  fmt::print("{:<34} {:>8} {:>14} {:>9} {:>10} {:>10} {:>9}\n", "", "buffers", "live", "peak/live", "CPU ms", "wall ms",
             "pool/live");
  for (const fs::path& file : all) {
    sound = measure(file.stem().string(), problem_of(file), capacity_of(file), rounds) && sound;
    for (const std::uint64_t chunk : {std::uint64_t{64} << 10, std::uint64_t{2} << 20}) {
      if (file.extension() == ".json") print_arena(parse_trace(read(file)).value(), chunk);
    }
  }
  if (!made) return sound ? 0 : 1;
  if (const fs::path pangu = fs::path(folder) / "pangu_2.6B.csv"; fs::exists(pangu)) {
    const pack::Problem one = problem_of(pangu);
    for (const pack::Time times : {5, 53})
      sound = measure(fmt::format("pangu_2.6B, {} times", times), repeated(one, times), std::nullopt, rounds) && sound;
  }
  for (const std::uint32_t n : {100'000U, 1'000'000U}) {
    sound = measure("forward and backward, made", forward_and_backward(n), std::nullopt, rounds) && sound;
    sound = measure("random lives, made", random_lives(n), std::nullopt, rounds) && sound;
  }
  return sound ? 0 : 1;
}
