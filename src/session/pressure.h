// Fast memory follows pressure: it becomes less while the system presses, by an eighth of what the program wants at a
// time, and grows back slowly when it no longer does. Where pressure comes back soon after it grew, the next growth
// waits twice as long.
//
// Thread rule: PressureRule: one thread at a time, it has no clock. PressureFollower: program_wants() and its end from
// any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "os/pressure.h"
#include "vedette/result.h"
#include "vedette/session.h"
#include "vedette/units.h"

namespace vedette::detail {

class PressureRule {
 public:
  static constexpr Nanoseconds first_calm{10'000'000'000}, longest_calm{600'000'000'000};
  static constexpr Nanoseconds between{1'000'000'000};  // two answers to pressure
  static constexpr std::uint64_t parts = 8;             // of what the program wants, that go at a time

  explicit PressureRule(Bytes wanted) noexcept : wanted_(wanted) {}
  void program_wants(Bytes wanted) noexcept { wanted_ = wanted; }
  struct Seen {
    Nanoseconds now;
    bool pressure = false;
    std::optional<std::int64_t> headroom;  // as PressureSources::Heard has it, and:
    std::optional<Bytes> borrowed;
    Bytes budget, least;  // as it is now, and as small as it may become
  };
  // The next size; nullopt: the one of now.
  std::optional<Bytes> next(const Seen& seen) noexcept;

 private:
  std::optional<Bytes> grown(const Seen& seen) noexcept;

  Bytes wanted_;
  std::optional<Nanoseconds> pressed_, grew_;  // at last
  Nanoseconds calm_ = first_calm;              // without pressure, before it grows
};

class PressureFollower {
 public:
  struct Session {
    std::function<Result<FastMemory>(Bytes)> resize;
    std::function<Bytes()> budget, least;
    std::function<void(std::string_view)> say;
  };
  PressureFollower(const PressureSources::Options& options, Session session);
  ~PressureFollower();
  PressureFollower(const PressureFollower&) = delete;
  PressureFollower& operator=(const PressureFollower&) = delete;
  void program_wants(Bytes wanted);

 private:
  void run();
  void serve(const PressureSources::Request& request);
  void follow(const PressureSources::Heard& heard);

  const Session session_;
  PressureSources sources_;
  std::mutex mutex_;  // over the rule
  PressureRule rule_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace vedette::detail
