// The log of the running step: its layers, ops, and every tensor that an op used or that came or went. Each event
// (birth or death) has a number; the n-th allocation of a size is known by n; a hash of all ops so far tells one
// sequence of ops from another.
//
// What always holds: a living tensor has at most one entry in the log. events() grows by one for each birth and death.
// prefix() is the hash of exactly the ops in the log.
//
// Lock rule: not thread safe; the session's lock guards it. Only the op thread begins and ends steps, layers and ops,
// so that thread may read ops, layers, hashes and events without the lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pack/units.h"
#include "session/arena.h"
#include "session/logged_offsets.h"
#include "session/named_places.h"
#include "vedette/birth_observer.h"

namespace vedette::detail {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept;

class StepLogger {
 public:
  void computes_on(std::string_view device) { log_.device = device; }  // before the first step; else on the CPU
  void begin_step();                                                   // asserts that no step runs
  void end_step() { running_ = false; }
  void forget() noexcept;        // all but the number of the step
  void pass_step() { ++step_; }  // one that is counted and not logged
  bool running() const noexcept { return running_; }
  std::uint64_t step() const noexcept { return step_; }  // counts from 1; 0: no step has begun

  // --- layers --------------------------------------------------------------------------------------------------------
  void push_layer(std::string_view name, Phase phase);
  void pop_layer();
  void mark_layer(std::string_view name, Phase phase);  // ignored inside a pushed one
  Site site(bool in_op) const;                          // the layer, and the latest op where `in_op`

  // --- tensors -------------------------------------------------------------------------------------------------------
  // Its number in the log, in which it is from now on. `whole`: all of it is an operand.
  std::uint32_t tensor(std::uint64_t offset, const Live& live, bool whole = false);
  std::optional<std::uint32_t> logged(std::uint64_t offset) const;                   // of a living one
  std::uint32_t next_of_size(std::uint64_t bytes) { return allocations_[bytes]++; }  // how many came before
  TensorKind kind_of_birth(TensorKind kind) const noexcept;  // of an activation in backward: a gradient
  std::uint32_t born(std::uint64_t offset, const Live& live, bool in_op);
  void watch_births(BirthObserver* births) { births_ = births; }  // nullptr: nothing is told
  void tell_birth(std::uint32_t tensor) const {
    if (births_ != nullptr) births_->born(step_, tensor);
  }
  // The numbers in the log of the tensors of its trace.
  void tell_births(std::span<const std::uint32_t> logged) const {
    if (births_ != nullptr) births_->births_profiled(step_, logged);
  }
  void died(std::uint64_t offset, const Live& live);
  void unborn(std::uint64_t offset);                  // the birth failed
  void label(std::uint64_t offset, TensorKind kind);  // of a tensor that may be in the log
  void touched_in_parts(std::uint32_t tensor, bool in_parts = true) { log_.tensors[tensor].in_parts = in_parts; }

  void uses_beside(const Session::UseBeside& use);  // of the latest op

  // --- ops -----------------------------------------------------------------------------------------------------------
  std::uint32_t next_op() const noexcept { return static_cast<std::uint32_t>(log_.ops.size()); }
  // `hash` is of the op alone, `kind` the same whatever the sizes are. Returns the op's number.
  std::uint32_t begin_op(LoggedOp op, std::uint64_t hash, std::uint64_t kind = 0);
  std::string name_of_next_op(std::string_view name);  // copied
  void end_op() { log_.ops.back().events.end = events(); }
  void took(Nanoseconds time) { log_.ops.back().time = time; }

  // relaxed: another thread's count of this moment comes before or after. The op thread reads it without the lock.
  std::uint32_t events() const noexcept { return events_.load(std::memory_order_relaxed); }
  std::uint64_t prefix() const noexcept { return prefix_; }
  std::span<const std::uint64_t> hashes() const noexcept { return hashes_; }
  std::span<const std::uint64_t> kinds() const noexcept { return kinds_; }
  const StepLog& log() const noexcept { return log_; }
  StepLog& log_to_finish() noexcept { return log_; }  // for the page profile, after the last op

  // The log as planners need it: every living tensor is in it and has a name, and which tensors die before the next
  // step's first op is guessed by which died before this one's.
  StepLog& finished(const Arena& arena);  // until the next step begins
  NamedPlaces& named_places() noexcept { return named_places_; }
  const NamedPlaces& named_places() const noexcept { return named_places_; }  // that its tensors get

  static constexpr std::size_t most_layers = 4096;  // that are remembered from step to step

 private:
  void set_layer(std::string_view name, Phase phase);
  std::uint32_t next_event() noexcept {  // with the lock
    const std::uint32_t next = events() + 1;
    events_.store(next, std::memory_order_relaxed);
    return next;
  }

  BirthObserver* births_ = nullptr;
  std::uint64_t step_ = 0;
  bool running_ = false;
  StepLog log_;
  LoggedOffsets logged_;                  // of tensors that live
  std::vector<std::string> spare_names_;  // of the ops of an earlier step: their room is used again
  std::atomic<std::uint32_t> events_ = 0;
  std::map<std::uint64_t, std::uint32_t> allocations_;  // by bytes: how many in this step so far
  std::vector<std::uint64_t> hashes_, kinds_;           // of ops
  std::uint64_t prefix_ = 0;
  std::optional<LayerIndex> layer_;
  Phase layer_phase_ = Phase::forward;
  std::vector<std::pair<std::optional<LayerIndex>, Phase>> layer_stack_;
  struct Layers {  // of one phase: a name is looked up without a copy of it
    struct Hash {
      using is_transparent = void;
      std::size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>{}(name); }
    };
    std::unordered_map<std::string, LayerIndex, Hash, std::equal_to<>> by_name;
  };
  std::map<Phase, Layers> layer_index_;
  NamedPlaces named_places_;
};

}  // namespace vedette::detail
