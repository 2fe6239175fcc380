// How fast does the nvme store move chunks, against fio on the same file in the same minute?
//
// Cells: blocks of 1 and 2 MiB, depth 4 to 32, reads, writes and half of each. In each cell fio and the store's queue
// take turns on one file at random blocks; the file is preallocated and written once. fio runs with io_uring and
// O_DIRECT, plain and with --fixedbufs; the queue runs plain, registered, and on request as the pool of threads.
// Medians over the turns. The ideal is fio's best cell of a direction. Both have huge pages under their buffers, which
// are not rewritten before each write (fio.h).
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mapping.h"
#include "fio.h"
#include "machine.h"
#include "tier/io_queue.h"

namespace {

using namespace vedette;
using Direction = StoreRequest::Direction;
using Clock = std::chrono::steady_clock;

constexpr Bytes file_size = 2_GiB;
constexpr double bar = 0.95;
const NvmeStoreOptions store_defaults{};

struct Options {
  std::string directory = ".";
  double seconds = 1.0;  // of one turn
  int turns = 5;
  std::vector<std::uint32_t> depths{4, 8, 16, 32};
  std::vector<Bytes> blocks{1_MiB, 2_MiB};
  bool threads = false;
};

enum class Mix { read, write, half };
constexpr std::array mixes{Mix::read, Mix::write, Mix::half};
int read_percent(Mix mix) { return mix == Mix::read ? 100 : mix == Mix::write ? 0 : 50; }
const char* name_of(Mix mix) { return mix == Mix::read ? "read" : mix == Mix::write ? "write" : "half-half"; }

using Turn = bench::FioResult;  // ours are told in the same terms

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto s = [](timeval t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return s(usage.ru_utime) + s(usage.ru_stime);
}

// One queue with the memory it moves; keeps `depth` requests in flight.
class Ours {
 public:
  enum class Way { plain, registered, threads };
  Ours(int file, Bytes block, std::uint32_t depth, Way way) : block_(block), depth_(depth) {
    const IoQueueOptions options{
        .file = file, .slot_bytes = block, .depth = depth, .register_buffers = way == Way::registered};
    queue_ = (way == Way::threads ? open_thread_queue(options) : open_uring_queue(options)).value();
    memory_ = Mapping::reserve({block.value * depth}, 2_MiB).value();
    ::madvise(memory_.data(), memory_.bytes().value, MADV_HUGEPAGE);
    auto* words = reinterpret_cast<std::uint64_t*>(memory_.data());
    std::generate(words, words + memory_.bytes().value / sizeof *words, random_);  // a disk may compress repeated bytes
    queue_->register_memory(memory_.data(), memory_.bytes());
  }

  void write_once() {
    std::uint32_t next = 0;
    go([&](std::uint64_t frame) {
      if (next == slots()) return false;
      start(Direction::write, next++, frame);
      return true;
    });
  }
  Turn run(Mix mix, double seconds) {
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const double cpu = cpu_seconds();
    const std::uint64_t requests = go([&](std::uint64_t frame) {
      if (Clock::now() >= end) return false;
      const bool read = mix == Mix::read || (mix == Mix::half && random_() % 2 == 0);
      start(read ? Direction::read : Direction::write, static_cast<std::uint32_t>(random_() % slots()), frame);
      return true;
    });
    const double wall = std::chrono::duration<double>(Clock::now() - begin).count();
    const auto count = static_cast<double>(requests);
    return {count * static_cast<double>(block_.value) / wall, (cpu_seconds() - cpu) * 1e6 / count, 0};
  }

 private:
  std::uint32_t slots() const { return static_cast<std::uint32_t>(file_size.value / block_.value); }
  void start(Direction direction, std::uint32_t slot, std::uint64_t frame) {
    const StoreRequest request{direction, {slot}, memory_.data() + frame * block_.value, frame};
    queue_->submit({&request, 1});
  }
  // Gives every frame to `next` again and again until it starts nothing more; returns how many requests ended.
  std::uint64_t go(const std::function<bool(std::uint64_t)>& next) {
    std::uint64_t in_flight = 0, ended = 0;
    for (std::uint32_t frame = 0; frame < depth_; ++frame) in_flight += next(frame) ? 1 : 0;
    while (in_flight > 0) {
      std::array<StoreCompletion, 32> done;
      const std::size_t count = queue_->wait(done, {10'000'000'000});
      if (count == 0) throw Failure({.message = "no completion within 10 s"});
      for (std::size_t i = 0; i < count; ++i) {
        if (done[i].error != 0) throw Failure({.message = std::string("a transfer: ") + std::strerror(done[i].error)});
        ++ended;
        if (!next(done[i].token)) --in_flight;
      }
    }
    return ended;
  }

  Bytes block_;
  std::uint32_t depth_;
  Mapping memory_;
  std::unique_ptr<IoQueue> queue_;
  std::mt19937_64 random_{1};
};

struct Contestant {
  std::string name;
  bool fio = false;
  std::function<Turn(Mix)> turn;
  std::vector<double> bandwidths, cpu;  // of the cell at hand
};

std::vector<Contestant> contestants(const Options& options, const bench::DiskFile& file, Bytes block,
                                    std::uint32_t depth) {
  std::vector<Contestant> all;
  for (const bool fixed : {false, true}) {
    bench::FioJob job{.file = file.path(),
                      .size = file_size,
                      .block = block,
                      .depth = depth,
                      .fixed_buffers = fixed,
                      .seconds = options.seconds};
    all.push_back({fixed ? "fio fixedbufs" : "fio",
                   true,
                   [job](Mix mix) mutable { return job.read_percent = read_percent(mix), run_fio(job); },
                   {},
                   {}});
  }
  const auto add = [&](const char* name, Ours::Way way) {
    // shared: std::function copies its target
    auto ours = std::make_shared<Ours>(file.fd(), block, depth, way);
    all.push_back({name, false, [ours, s = options.seconds](Mix mix) { return ours->run(mix, s); }, {}, {}});
  };
  add("ours plain", Ours::Way::plain);
  add("ours registered", Ours::Way::registered);
  if (options.threads) add("ours threads", Ours::Way::threads);
  return all;
}

struct Best {
  double fio = 0, ours = 0, ours_default = 0;  // bytes/s: the best cells, and the cell of the store's defaults
  std::string fio_cell, ours_cell;
};

// A disk that works off its write cache, or counts its bandwidth by a bucket, rests while fio starts; it rests as long
// before our turns, else fio would be given a fresher disk.
void run_cell(std::vector<Contestant>& all, Mix mix, int turns) {
  double rest_s = 0.5;
  for (Contestant& contestant : all) contestant.bandwidths.clear(), contestant.cpu.clear();
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      Contestant& next = all[(i + static_cast<std::size_t>(turn)) % all.size()];  // each is first in turn
      if (!next.fio) std::this_thread::sleep_for(std::chrono::duration<double>(rest_s));
      const Turn result = next.turn(mix);
      if (next.fio) rest_s = result.idle_s;
      next.bandwidths.push_back(result.bytes_per_s);
      next.cpu.push_back(result.cpu_us);
    }
  }
}

void report_cell(const std::vector<Contestant>& all, Mix mix, Bytes block, std::uint32_t depth, Best& best) {
  std::printf("| %s | %llu | %u |", name_of(mix), static_cast<unsigned long long>(block.value >> 20), depth);
  double fio = 0, ours = 0;
  const std::string cell = std::to_string(block.value >> 20) + " MiB, depth " + std::to_string(depth);
  for (const Contestant& one : all) {
    const double bandwidth = median(one.bandwidths);
    std::printf(" %.2f (%.0f us) |", bandwidth * 1e-9, median(one.cpu));
    (one.fio ? fio : ours) = std::max(one.fio ? fio : ours, bandwidth);
    double& most = one.fio ? best.fio : best.ours;
    if (bandwidth > most) (one.fio ? best.fio_cell : best.ours_cell) = cell + ", " + one.name;
    most = std::max(most, bandwidth);
  }
  if (block == store_defaults.slot_bytes && depth == store_defaults.depth) best.ours_default = ours;
  std::printf(" %.3f |\n", ours / fio);
  std::fflush(stdout);
}

void print_head(const Options& options) {
  std::printf("machine: %s\nfile system: %s\n", bench::machine_line().c_str(),
              bench::file_system_of(options.directory).c_str());
  std::printf("%d turns of %.1f s each, medians; GB/s in total (CPU of a request)\n\n", options.turns, options.seconds);
  std::printf("| direction | MiB | depth | fio | fio fixedbufs | ours plain | ours registered |%s ours/fio |\n",
              options.threads ? " ours threads |" : "");
  std::printf("|---|---|---|---|---|---|---|%s---|\n", options.threads ? "---|" : "");
}

int run(const Options& options) {
  if (!bench::fio_is_installed()) {
    std::puts("fio is not installed (apt-get install fio), and without it there is nothing to compare with.");
    return 1;
  }
  const bench::DiskFile file(options.directory, file_size);
  Ours(file.fd(), 2_MiB, 16, Ours::Way::plain).write_once();
  print_head(options);
  std::array<Best, mixes.size()> best;
  for (const Bytes block : options.blocks) {
    for (const std::uint32_t depth : options.depths) {
      auto all = contestants(options, file, block, depth);
      for (std::size_t i = 0; i < mixes.size(); ++i) {
        run_cell(all, mixes[i], options.turns);
        report_cell(all, mixes[i], block, depth, best[i]);
      }
    }
  }
  std::printf(
      "\n| direction | ideal: fio's best | our best | ours/fio | the store's defaults | of the ideal | bar %.2f |\n",
      bar);
  std::puts("|---|---|---|---|---|---|---|");
  for (std::size_t i = 0; i < mixes.size(); ++i) {
    const Best& b = best[i];
    std::printf("| %s | %.2f (%s) | %.2f (%s) | %.3f | %.2f | %.3f | %s |\n", name_of(mixes[i]), b.fio * 1e-9,
                b.fio_cell.c_str(), b.ours * 1e-9, b.ours_cell.c_str(), b.ours / b.fio, b.ours_default * 1e-9,
                b.ours_default / b.fio, b.ours >= bar * b.fio ? "met" : "missed");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--quick") {
      options.seconds = 0.4, options.turns = 3, options.depths = {8, 16}, options.blocks = {2_MiB};
    } else if (word == "--block" && more) {
      options.blocks = {Bytes{static_cast<std::uint64_t>(std::atoi(argv[++i])) << 20}};
    } else if (word == "--depth" && more) {
      options.depths = {static_cast<std::uint32_t>(std::atoi(argv[++i]))};
    } else if (word == "--threads") {
      options.threads = true;
    } else if (word == "--directory" && more) {
      options.directory = argv[++i];
    } else if (word == "--seconds" && more) {
      options.seconds = std::atof(argv[++i]);
    } else if (word == "--turns" && more) {
      options.turns = std::atoi(argv[++i]);
    } else {
      std::puts(
          "usage: migrate [--directory DIR] [--quick] [--threads] [--seconds S] [--turns N] [--block MIB] [--depth N]");
      return word == "--help" ? 0 : 2;
    }
  }
  if (options.turns < 1 || options.seconds <= 0) throw Failure({.message = "want at least one turn of some length"});
  return run(options);
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
