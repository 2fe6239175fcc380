// The executor of CPU memory: the engine's chunks. A chunk's position is its address; moves change which frame lies
// under it. The engine's store reaches the slow tiers, one or two.
//
// Thread rule: as Executor's.
#pragma once
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "moves/executor.h"

namespace vedette::detail {

class ChunkExecutor final : public Executor {
 public:
  explicit ChunkExecutor(std::unique_ptr<Engine> engine, std::uint32_t slow_tiers = 1)
      : engine_(std::move(engine)), slow_tiers_(slow_tiers) {}

  // Refused: moves to tiers that are not there, moves from a slow tier to a nearer slow one, operands that stay in a
  // slow tier (in_place), recomputations, another order of ops. The store does a move to a slower tier in the
  // background. A drop is executed as an eviction: an op that lists a tensor as written may read it too (`w -= m`
  // announces w as written), so that its bytes must survive.
  Result<void> accepts(const Plan& plan) const override;

  Result<void> born(ChunkRange chunks, Bytes) override { return engine_->birth(chunks); }
  void died(ChunkRange chunks) noexcept override { engine_->death(chunks); }
  Result<void> hold(ChunkRange chunks) override { return engine_->hold(chunks); }
  void release_hold(ChunkRange chunks) noexcept override { engine_->release_hold(chunks); }

  std::uint32_t wind_down(std::uint32_t most) noexcept override { return engine_->wind_down(most); }

  void begin_step(std::uint64_t step) override { engine_->begin_step(step); }
  void end_step() override { engine_->end_step(); }
  void tell_what_did_not_fit() override { engine_->tell_what_did_not_fit(); }
  void begin_op(OpIndex op, std::string_view name, const Part& part) override;
  void continue_op(std::span<const OpMoves::Departure> departures, const Part& part,
                   const std::function<void()>& between) override;
  void end_op(std::span<const OpMoves::Departure> departures) noexcept override;
  void forget_plan() noexcept override { engine_->forget_plan(); }
  bool looks_ahead() const noexcept override { return true; }

  bool can_drop() const noexcept override { return true; }
  std::vector<ChunkIndex> drop(ChunkRange chunks) noexcept override { return engine_->drop(chunks); }
  bool is_dropped(ChunkIndex chunk) const noexcept override { return engine_->is_dropped(chunk); }
  bool adopt(ChunkIndex from, ChunkIndex to) noexcept override { return engine_->adopt(from, to); }

  bool can_observe() const noexcept override { return engine_->serves_system_calls(); }
  void observe(std::span<const ChunkRange> operands) noexcept override { engine_->observe_operands(operands); }
  bool was_touched(ChunkRange operand) const noexcept override { return engine_->was_touched(operand); }
  std::uint64_t early_touches() const noexcept override { return engine_->early_touches(); }

  Program& program() noexcept override { return engine_->program(); }
  Nanoseconds stalled_since_last_asked() noexcept override { return engine_->stalled_since_last_asked(); }
  Counters counters() const noexcept override { return engine_->counters(); }
  std::optional<Error> take_error() noexcept override { return engine_->take_error(); }
  std::uint32_t held_chunks() const noexcept override { return engine_->held_chunks(); }
  std::uint32_t largest_op_chunks() const noexcept override { return engine_->largest_op_chunks(); }
  std::string mechanism() const override { return engine_->mechanism(); }
  void set_observer(Observer* observer) noexcept override { engine_->set_observer(observer); }
  Engine* pages() noexcept override { return engine_.get(); }

 private:
  Engine::Planned planned(const Part& part);
  std::span<const Engine::PlannedEviction> leaving(std::span<const OpMoves::Departure> departures);

  const std::unique_ptr<Engine> engine_;
  const std::uint32_t slow_tiers_;
  // The op at hand in the engine's types; the op thread's.
  std::vector<Engine::PlannedFetch> fetches_;
  std::vector<Engine::NextUse> next_uses_, begins_near_, begins_away_;
  std::vector<Engine::PlannedEviction> leaving_;
};

}  // namespace vedette::detail
