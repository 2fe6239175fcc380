// The engine counts its moves, faults and stalls, and tells them to an observer.
//
// What always holds: every move, fault and stall that the observer hears of is in counters().
//
// Lock rule: the owner's lock guards it, but take_stalls(), which the op thread calls without.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/indexed.h"
#include "engine/books.h"
#include "moves/executor.h"
#include "os/chunk_memory.h"
#include "os/program.h"
#include "tier/store.h"
#include "vedette/observer.h"

namespace vedette {

class Figures {
 public:
  Figures(Program& program, Bytes chunk, std::uint32_t frames, Observer* observer)
      : program_(program), chunk_(chunk), observer_(observer), transfers_(frames) {
    counters_.resident_max_bytes.value = 0;
  }
  std::uint32_t frames() const noexcept { return static_cast<std::uint32_t>(transfers_.size()); }  // as many as ever
  void expect_frames(std::uint32_t ever) {
    if (transfers_.size() < ever) transfers_.resize(ever);
  }
  void set_observer(Observer* observer) noexcept { observer_ = observer; }
  const Counters& counters() const noexcept { return counters_; }

  void begin_step(std::uint64_t step) noexcept {
    step_ = step;
    uses_in_place_.clear();
  }
  void begin_op() noexcept { ++counters_.ops; }
  void filled(std::uint32_t frames) noexcept {  // at the moment
    counters_.resident_max_bytes.value = std::max(counters_.resident_max_bytes.value, frames * chunk_.value);
  }

  void used_in_place(Bytes bytes) noexcept { counters_.bytes_in_place += bytes; }
  void used_in_place(const detail::InPlaceUse& by_op) {
    constexpr std::size_t most = 1 << 16;  // ops of a step
    if (uses_in_place_.size() < most) uses_in_place_.push_back(by_op);
  }
  void waited_in_place(OpIndex op, Nanoseconds time) noexcept {
    if (!uses_in_place_.empty() && uses_in_place_.back().op == op) uses_in_place_.back().waited += time;
  }
  std::vector<detail::InPlaceUse> take_uses_in_place() noexcept { return std::exchange(uses_in_place_, {}); }

  // `early`: of an operand of the op that its section did not name.
  void faulted(const Fault& fault, OpIndex op, bool early) {
    early_touches_ += early ? 1 : 0;
    ++counters_.faults;
    if (observer_ == nullptr) return;
    const Nanoseconds now = program_.now();
    observer_->faulted({.step = step_,
                        .op = op,
                        .chunk = fault.chunk.value,
                        .page = fault.page,
                        .write = fault.write,
                        .began = now,
                        .ended = now});
  }
  std::uint64_t early_touches() const noexcept { return early_touches_; }

  void stalled(Nanoseconds began, OpIndex op, bool in_allocation) {  // until now
    const Nanoseconds ended = program_.now();
    ++counters_.stall_count;
    counters_.stall_ns += static_cast<std::uint64_t>((ended - began).value);
    op_thread_stall_ns_.fetch_add((ended - began).value, std::memory_order_relaxed);
    if (observer_ != nullptr)
      observer_->stalled({.step = step_, .op = op, .in_allocation = in_allocation, .began = began, .ended = ended});
  }
  // relaxed: the op thread asks, and sees its own additions; late ones of others count the next time
  Nanoseconds take_stalls() noexcept {
    if (op_thread_stall_ns_.load(std::memory_order_relaxed) == 0) return {};
    return {op_thread_stall_ns_.exchange(0, std::memory_order_relaxed)};
  }

  void dropped(ChunkIndex chunk, MoveCause cause) {
    counters_.bytes_dropped.value += chunk_.value;
    if (observer_ == nullptr) return;
    const Nanoseconds now = program_.now();
    observer_->moved({.verb = Verb::drop,
                      .cause = cause,
                      .chunk = chunk.value,
                      .bytes = chunk_,
                      .issued = now,
                      .started = now,
                      .ended = now});
  }
  void move_begins(FrameIndex frame, MoveCause cause, Nanoseconds now) {
    transfers_[frame] = {.cause = cause, .began = now};
  }
  void moved(FrameIndex frame, const StoreCompletion& completion, const Books::Ended& ended) {
    const Verb verb = ended.read ? Verb::fetch : completion.spared ? Verb::drop : Verb::evict;
    (ended.read          ? counters_.bytes_in.value
     : completion.spared ? counters_.bytes_dropped.value
                         : counters_.bytes_out.value) += chunk_.value;
    if (completion.tier.value > 1 && !completion.spared)
      (ended.read ? counters_.far_bytes_in.value : counters_.far_bytes_out.value) += chunk_.value;
    if (observer_ == nullptr) return;
    const Transfer& transfer = transfers_[frame];
    observer_->moved({.verb = verb,
                      .cause = transfer.cause,
                      .slow = static_cast<std::uint8_t>(completion.tier.value),
                      .chunk = ended.chunk.value,
                      .bytes = chunk_,
                      .issued = transfer.began,
                      .started = transfer.began,
                      .ended = program_.now()});
  }

 private:
  struct Transfer {
    MoveCause cause = MoveCause::planned;
    Nanoseconds began;
  };

  Program& program_;
  const Bytes chunk_;
  Observer* observer_ = nullptr;
  Counters counters_;
  Indexed<FrameIndex, Transfer> transfers_;
  std::uint64_t step_ = 0, early_touches_ = 0;
  std::vector<detail::InPlaceUse> uses_in_place_;    // in this step, or the last one
  std::atomic<std::int64_t> op_thread_stall_ns_{0};  // relaxed: a sum
};

}  // namespace vedette
