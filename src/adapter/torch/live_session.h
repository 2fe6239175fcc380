// The page that `vedette top` shows: counters of a session after a step, at most ten times a second, and the bound of
// its planned steps. Where the session records, its recorder shows the counters, op by op.
//
// Thread rule: the thread of steps.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "profiler/live.h"
#include "profiler/live_heat.h"
#include "vedette/session.h"

namespace vedette::adapter {

class LiveSession {
 public:
  using Bound = std::function<Nanoseconds(const Trace&, const Machine&)>;  // of a planned step; a thread asks it
  // `of_recorder`: nullptr, or the page of the session's recorder, which lives longer. A page that cannot be made is
  // none.
  LiveSession(std::string_view program, std::string_view policy, LivePage* of_recorder, Bound bound);
  ~LiveSession();
  LiveSession(const LiveSession&) = delete;
  LiveSession& operator=(const LiveSession&) = delete;

  void step_begins() noexcept { began_ = Clock::now(); }
  void step_ended(const Session& session);  // nothing where none began

 private:
  using Clock = std::chrono::steady_clock;
  void show_counters(const Session& session, std::chrono::nanoseconds last_step);
  void show_bound(const Session& session);

  std::unique_ptr<LivePage> own_;
  LivePage* page_;  // nullptr: there is none
  Bound bound_;
  std::optional<Clock::time_point> began_;
  Clock::time_point shown_;
  const Trace* profiled_ = nullptr;  // whose heat is shown
  Machine machine_;                  // of the thread that asks for the bound
  std::uint64_t planned_ = 0;        // steps
  std::atomic<bool> has_bound_ = true;
  std::thread asks_bound_;
};

}  // namespace vedette::adapter
