#include "cli/cells.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/sha256.h"
#include "vedette/result.h"

namespace vedette::cli {
namespace {

// Of the running program: a cell of another build is none.
std::string program_hash() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  return sha256(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::optional<Json> kept(const std::string& file, const std::string& hash) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  const Json read = Json::parse(in, nullptr, false);
  if (!read.is_object() || read.value("inputs", "") != hash || !read.contains("result")) return std::nullopt;
  return read["result"];
}

class Computing {
 public:
  Computing(std::string folder, const std::vector<Cell>& cells, const std::string& verb)
      : folder_(std::move(folder)), cells_(cells), results_(cells.size()), progress_(verb), program_(program_hash()) {}

  std::vector<Json> run(std::uint32_t threads, CellCounts& counts) {
    {
      std::vector<std::jthread> workers;
      for (std::uint32_t i = 0; i < std::max(1u, threads); ++i) workers.emplace_back([this] { work(); });
    }
    if (failure_) std::rethrow_exception(failure_);
    counts = {.computed = static_cast<std::uint32_t>(cells_.size()) - kept_, .kept = kept_};
    return std::move(results_);
  }

 private:
  void work() noexcept {
    // relaxed: the number alone is taken; results are read after the threads have ended
    for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < cells_.size();) {
      try {
        take(i);
      } catch (...) {
        const std::scoped_lock lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        next_.store(cells_.size(), std::memory_order_relaxed);
      }
    }
  }

  void take(std::size_t i) {
    const Cell& cell = cells_[i];
    const std::string file = folder_ + "/" + cell.name + ".json";
    const std::string hash = sha256(program_ + "\n" + cell.inputs);
    auto found = kept(file, hash);
    if (found) {
      const std::scoped_lock lock(mutex_);
      ++kept_;
    } else {
      {
        const std::scoped_lock lock(mutex_);
        progress_.say(fmt::format("computes {} ({} of {})", cell.name, i + 1, cells_.size()));
      }
      found = cell.compute();
      write_output(file, {}, Json{{"inputs", hash}, {"result", *found}}.dump(1) + "\n");
    }
    results_[i] = *std::move(found);
  }

  const std::string folder_;
  const std::vector<Cell>& cells_;
  std::vector<Json> results_;  // each is written by one thread
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;  // guards the next three, and progress_
  std::exception_ptr failure_;
  std::uint32_t kept_ = 0;
  Progress progress_;
  const std::string program_;
};

}  // namespace

std::vector<Json> compute_cells(const std::string& folder, const std::vector<Cell>& cells, std::uint32_t threads,
                                const std::string& verb, CellCounts& counts) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw Failure({Cause::system, folder + " cannot be made: " + failed.message()});
  const std::uint32_t all = threads == 0 ? std::thread::hardware_concurrency() : threads;
  return Computing(folder, cells, verb).run(std::min<std::uint32_t>(all, 256), counts);
}

}  // namespace vedette::cli
