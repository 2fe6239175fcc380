// An executor that has no memory and does nothing: tests override what they look at.
#pragma once
#include "moves/executor.h"
#include "os/program.h"

namespace vedette::testing {

class IdleExecutor : public detail::Executor {
 public:
  explicit IdleExecutor(const detail::Traits& traits = {}) : Executor(traits) {}
  Result<void> accepts(const Plan&) const override { return {}; }
  Result<void> born(ChunkRange, Bytes) override { return {}; }
  void died(ChunkRange) noexcept override {}
  Result<void> hold(ChunkRange) override { return Error{.message = "nothing can be held"}; }
  void release_hold(ChunkRange) noexcept override {}
  std::uint32_t wind_down(std::uint32_t) noexcept override { return 0; }
  void begin_step(std::uint64_t) override {}
  void begin_op(OpIndex, std::string_view, const Part&) override {}
  void continue_op(std::span<const detail::OpMoves::Departure>, const Part&, const std::function<void()>&) override {}
  void end_op(std::span<const detail::OpMoves::Departure>) noexcept override {}
  void forget_plan() noexcept override {}
  void observe(std::span<const ChunkRange>) noexcept override {}
  bool was_touched(ChunkRange) const noexcept override { return false; }
  std::uint64_t early_touches() const noexcept override { return 0; }
  Program& program() noexcept override { return host_program(); }
  Nanoseconds stalled_since_last_asked() noexcept override { return {}; }
  Counters counters() const noexcept override { return {}; }
  std::optional<Error> take_error() noexcept override { return std::nullopt; }
  std::uint32_t held_chunks() const noexcept override { return 0; }
  std::uint32_t largest_op_chunks() const noexcept override { return 0; }
  std::string mechanism() const override { return "none"; }
  void set_observer(Observer*) noexcept override {}
};

// Memory in which tensors have places, all of it for plans' unless a test says less.
class IdleExecutorWithRange : public IdleExecutor {
 public:
  explicit IdleExecutorWithRange(Bytes range)
      : IdleExecutor({.whole_tensors = true}), places{.first = 0, .bytes = range}, range_(range) {}
  std::optional<Bytes> range() const noexcept override { return range_; }
  Stretch range_of_plans() const noexcept override { return places; }
  Stretch places;

 private:
  const Bytes range_;
};

}  // namespace vedette::testing
