// The program as an executor sees it: a sequence of points, and the clock of its ops. An executor changes memory only
// after a point has passed, and the program uses memory only after a transfer has ended. On the CPU both are now: an op
// that was announced runs at once. On a stream an op is only launched, and its point passes later.
//
// Thread rule: any thread, several at a time. wait_for() is called with no lock held.
#pragma once
#include <compare>
#include <cstdint>

#include "vedette/units.h"

namespace vedette {

// The end of everything that the program had issued when here() was called. Later points have larger numbers.
struct Point {
  std::uint64_t number = 0;
  auto operator<=>(const Point&) const = default;
};

class Program {
 public:
  virtual ~Program() = default;
  virtual Point here() noexcept = 0;
  virtual bool passed(Point point) noexcept = 0;
  virtual void wait_for(Point point) noexcept = 0;
  // The program's own time from one point to another; both have passed, `from` first.
  virtual Nanoseconds between(Point from, Point to) noexcept = 0;
  virtual Nanoseconds now() noexcept = 0;  // of the host; never goes back
};

// Runs on the host: every point has passed when here() returns it. A point's number is its time.
class HostProgram final : public Program {
 public:
  Point here() noexcept override { return {static_cast<std::uint64_t>(now().value)}; }
  bool passed(Point) noexcept override { return true; }
  void wait_for(Point) noexcept override {}
  Nanoseconds between(Point from, Point to) noexcept override {
    return {static_cast<std::int64_t>(to.number - from.number)};
  }
  Nanoseconds now() noexcept override;  // CLOCK_MONOTONIC
};

// The one of this process; it has no state.
Program& host_program() noexcept;

}  // namespace vedette
