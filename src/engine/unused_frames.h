// Which frames go back to the system: those that no chunk took for a whole window of time, four steps long or more, so
// that a steady step keeps all frames that it takes. Where memory is made again soon after it was given back, windows
// become longer: phases that take turns pay for that a few times only. Pure; times are the program's, the owner's lock
// guards it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "vedette/units.h"

namespace vedette {

class UnusedFrames {
 public:
  static constexpr Nanoseconds first_pause{5'000'000'000}, longest_pause{3'600'000'000'000};
  static constexpr std::uint32_t steps_of_a_window = 4;

  // Whenever chunks have taken frames: how many are ready beyond those that are wanted ahead of need.
  void note(std::uint32_t spare) noexcept {
    least_spare_ = std::min(least_spare_, spare);
    due_ = std::min(due_, spare);
  }
  void step_begins(Nanoseconds now) noexcept {
    if (step_began_) longest_step_ = std::max(longest_step_, now - *step_began_);
    step_began_ = now;
    ++steps_;
  }
  // True: a window has ended now, and another begins.
  bool window_ends(Nanoseconds now) noexcept {
    if (!began_) began_ = now;
    const Nanoseconds lasted = now - *began_, step = std::max(longest_step_, longest_before_);
    if (lasted < pause_) return false;
    if (steps_ < steps_of_a_window && lasted.value < steps_of_a_window * step.value) return false;
    due_ = std::exchange(least_spare_, no_limit);
    longest_before_ = std::exchange(longest_step_, {});
    began_ = now;
    steps_ = 0;
    return true;
  }
  // Frames of dead chunks, that no chunk took for a window, have joined those that are ready.
  void found(std::uint32_t frames) noexcept { due_ += std::min(frames, no_limit - due_); }
  std::uint32_t due(std::uint32_t spare) noexcept { return due_ = std::min(due_, spare); }  // to be given back
  void given(std::uint32_t frames, Nanoseconds now) noexcept {
    due_ -= std::min(frames, due_);
    given_ += frames;
    given_at_ = now;
  }
  void made(std::uint32_t frames, Nanoseconds now) noexcept {
    constexpr std::int64_t soon = 10;  // pauses
    if (given_ == 0) return;
    again_ += frames;
    const bool late = (now - given_at_).value > soon * pause_.value;
    if (!late && std::uint64_t{again_} * 2 < given_) return;
    if (!late) pause_ = std::min(Nanoseconds{pause_.value * 2}, longest_pause);
    given_ = again_ = due_ = 0;
  }

 private:
  static constexpr std::uint32_t no_limit = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t least_spare_ = no_limit;  // in this window
  std::uint32_t due_ = 0;
  std::uint32_t steps_ = 0;  // that began in this window
  std::uint32_t given_ = 0, again_ = 0;
  Nanoseconds pause_ = first_pause, given_at_;
  std::optional<Nanoseconds> began_, step_began_;
  Nanoseconds longest_step_, longest_before_;  // that ended in this window, and in the one before
};

}  // namespace vedette
