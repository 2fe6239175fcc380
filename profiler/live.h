// A page of counters of a running process, for `vedette top`: a small file in memory, written with plain stores.
// Readers cost the writer nothing.
//
// Thread rule: LivePage: one writer per counter at a time. Others: any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "vedette/result.h"

namespace vedette {

inline constexpr const char* live_directory = "/dev/shm";

// In the order in which they lie in the page; new ones go to the end, and change live_version.
enum class Live : std::uint8_t {
  step,
  last_step_ns,
  phase,
  ops,
  bytes_in,
  bytes_out,
  bytes_dropped,
  moves,
  stall_ns,
  stalls,
  faults,
  resident_bytes,
  live_bytes,
  budget_bytes,
  dropped_events,
  energy_mj,  // of the steps so far; 0 where no counter is read
  // As GpuBytes has them (vedette/observer.h), when the last step ended.
  gpu_bytes,
  gpu_beside,
  gpu_most_beside,
  gpu_large,
  gpu_pools,
  gpu_workspaces,
  gpu_context,
  host_locked,
  host_in_locked,
  host_most_locked,
  host_pageable,
  disk_bytes_out,  // written to the disk, at the last step's end; 0 where no tier is one
  bound_ns,        // no plan's step of the profiled ops is faster; 0: not known
  steps_ns,        // from the begin of the first step to the end of the last
  bytes_in_place,  // that ops used where they lay, in slower memory
  // bytes that live, by the time since their last use: of them heat_bins, from hot to cold (profiler/live_heat.h)
  heat,
  heat_end = heat + 8,
  count_ = heat_end
};
inline constexpr std::uint64_t live_version = 5;
inline constexpr const char* live_phases[] = {"starting", "warm-up", "profiling", "planned", "foreseen"};

constexpr Live heat_bin(std::size_t bin) noexcept {
  return static_cast<Live>(static_cast<std::size_t>(Live::heat) + bin);
}

class LivePage {
 public:
  // A page for this process; pages that dead processes left are removed. nullptr: no such directory, or no room in it.
  static std::unique_ptr<LivePage> make(std::string_view program, const std::string& directory = live_directory);
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  // relaxed: each counter stands for itself.
  void set(Live which, std::uint64_t value) noexcept { counter(which).store(value, std::memory_order_relaxed); }
  void add(Live which, std::uint64_t value) noexcept {
    set(which, counter(which).load(std::memory_order_relaxed) + value);
  }
  void policy(std::string_view name) noexcept;
  void phase(std::string_view name) noexcept;  // as Session::phase()
  const std::string& path() const noexcept { return path_; }

  struct Page;  // of the file
 private:
  LivePage(Page* page, std::string path) noexcept : page_(page), path_(std::move(path)) {}
  std::atomic<std::uint64_t>& counter(Live which) noexcept;
  Page* page_;
  std::string path_;
};

struct LiveReading {  // of one moment
  std::int64_t pid = 0;
  std::string program, policy;  // printable characters only
  std::uint64_t values[static_cast<std::size_t>(Live::count_)] = {};
  std::uint64_t operator[](Live which) const noexcept { return values[static_cast<std::size_t>(which)]; }
};

// Errors: unavailable (no such process, or it shows no page), unsupported (another version), malformed_input.
Result<LiveReading> read_live(std::int64_t pid, const std::string& directory = live_directory);
// The processes that show a page and live, ascending.
std::vector<std::int64_t> live_processes(const std::string& directory = live_directory);

}  // namespace vedette
