// The log of a step, entry by entry: see step_logger.h.
#include "session/step_logger.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <type_traits>

#include "base/assert.h"
#include "base/readable.h"
#include "moves/executor.h"

namespace vedette::detail {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {  // splitmix64's finalizer over a running sum
  hash += value + 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

void StepLogger::begin_step() {
  VEDETTE_ASSERT(!running_);
  ++step_;
  running_ = true;
  constexpr std::size_t most_spare_names = 20'000;
  spare_names_.clear();
  for (LoggedOp& op : std::span(log_.ops).first(std::min(log_.ops.size(), most_spare_names)))
    spare_names_.push_back(std::move(op.name));
  log_.pages.clear();
  log_.beside.clear();
  log_.tensors.clear();
  log_.ops.clear();
  logged_.clear();
  hashes_.clear();
  kinds_.clear();
  events_.store(0, std::memory_order_relaxed);
  constexpr std::size_t most_sizes = 4096;  // that are remembered with their entries
  if (allocations_.size() > most_sizes) allocations_.clear();
  for (auto& [bytes, count] : allocations_) count = 0;
  if (log_.layers.size() > most_layers) {  // names with a counter in them
    log_.layers.clear();
    layer_index_.clear();
  }
  prefix_ = 0;
  layer_.reset();
  layer_phase_ = Phase::forward;
  layer_stack_.clear();
}

void StepLogger::forget() noexcept {
  running_ = false;
  layer_.reset();
  layer_index_.clear();
  allocations_.clear();
  const auto release = [](auto&... all) { ((all = std::remove_reference_t<decltype(all)>()), ...); };
  release(layer_stack_, log_, logged_, spare_names_, hashes_, kinds_);
}

void StepLogger::set_layer(std::string_view name, Phase phase) {
  auto& by_name = layer_index_[phase].by_name;
  auto found = by_name.find(name);
  if (found == by_name.end()) {
    found = by_name.emplace(name, LayerIndex{static_cast<std::uint32_t>(log_.layers.size())}).first;
    log_.layers.push_back({.name = std::string(name), .phase = phase});
  }
  layer_ = found->second;
  layer_phase_ = phase;
}

void StepLogger::push_layer(std::string_view name, Phase phase) {
  layer_stack_.emplace_back(layer_, layer_phase_);
  set_layer(name, phase);
}

void StepLogger::pop_layer() {
  if (layer_stack_.empty()) return;
  std::tie(layer_, layer_phase_) = layer_stack_.back();
  layer_stack_.pop_back();
}

void StepLogger::mark_layer(std::string_view name, Phase phase) {
  if (layer_stack_.empty()) set_layer(name, phase);
}

Site StepLogger::site(bool in_op) const {
  Site where;
  if (layer_) where.layer = log_.layers[layer_->value].name;
  if (in_op && !log_.ops.empty()) where.op = log_.ops.back().name;
  return where;
}

// Names, shapes and sites are copied when the tensor dies, or the step has ended and is learned: most steps are not.
std::uint32_t StepLogger::tensor(std::uint64_t offset, const Live& live, bool whole) {
  const auto [number, fresh] = logged_.find_or_add(offset, static_cast<std::uint32_t>(log_.tensors.size()));
  if (fresh) {
    LoggedTensor& logged = log_.tensors.emplace_back();
    logged.bytes = live.bytes;
    logged.kind = live.kind;
    logged.offset = offset;
    logged.small = live.small;
  }
  if (whole) log_.tensors[number].whole = true;
  return number;
}

std::optional<std::uint32_t> StepLogger::logged(std::uint64_t offset) const { return logged_.find(offset); }

namespace {

void describe(LoggedTensor& logged, const Live& live) {
  logged.name = live.name;
  logged.shape = live.shape;
  logged.site = live.site;
}

}  // namespace

TensorKind StepLogger::kind_of_birth(TensorKind kind) const noexcept {
  return layer_phase_ == Phase::backward && kind == TensorKind::activation ? TensorKind::gradient : kind;
}

std::uint32_t StepLogger::born(std::uint64_t offset, const Live& live, bool in_op) {
  const std::uint32_t index = tensor(offset, live);
  LoggedTensor& logged = log_.tensors[index];
  logged.birth = next_event();
  logged.birth_op = next_op() - (in_op ? 1 : 0);
  return index;
}

void StepLogger::died(std::uint64_t offset, const Live& live) {
  LoggedTensor& logged = log_.tensors[tensor(offset, live)];
  describe(logged, live);
  logged.death = next_event();
  logged.death_op = static_cast<std::int64_t>(log_.ops.size()) - 1;
  logged_.erase(offset);  // the next tensor there is another one
}

void StepLogger::unborn(std::uint64_t offset) {
  const auto found = logged_.find(offset);
  if (!found) return;
  log_.tensors[*found].death = next_event();
  logged_.erase(offset);
}

void StepLogger::label(std::uint64_t offset, TensorKind kind) {
  if (const auto found = running_ ? logged_.find(offset) : std::nullopt) log_.tensors[*found].kind = kind;
}

void StepLogger::uses_beside(const Session::UseBeside& use) {
  constexpr std::size_t most = 200'000;  // 64 bytes each; the rest of a step that has more is left out
  if (log_.ops.empty() || log_.beside.size() == most) return;
  log_.beside.push_back({.op = next_op() - 1,
                         .address = reinterpret_cast<std::uintptr_t>(use.address),
                         .bytes = use.bytes,
                         .written = use.written,
                         .name = std::string(use.name)});
}

std::string StepLogger::name_of_next_op(std::string_view name) {
  std::string copy = next_op() < spare_names_.size() ? std::move(spare_names_[next_op()]) : std::string();
  copy.assign(name);
  return copy;
}

std::uint32_t StepLogger::begin_op(LoggedOp op, std::uint64_t hash, std::uint64_t kind) {
  op.layer = layer_;
  op.phase = layer_phase_;
  op.events = {events(), events()};
  log_.ops.push_back(std::move(op));
  VEDETTE_ASSERT(log_.ops.size() < ticks_of_a_step);
  prefix_ = mix(prefix_, hash);
  hashes_.push_back(hash);
  kinds_.push_back(kind);
  return next_op() - 1;
}

StepLog& StepLogger::finished(const Arena& arena) {
  for (const auto& [offset, live] : arena.tensors()) describe(log_.tensors[tensor(offset, live)], live);
  std::map<std::uint64_t, int> died_at_seam;
  for (const LoggedTensor& t : log_.tensors)
    if (t.birth == 0 && t.death != ~0u && t.death_op < 0) ++died_at_seam[t.bytes.value];
  for (LoggedTensor& t : log_.tensors) {
    if (t.name.empty()) {
      const bool born_here = t.birth > 0 && t.birth_op < log_.ops.size();
      t.name = (born_here ? log_.ops[t.birth_op].name : std::string("tensor")) + " " + readable(t.bytes);
    }
    if (t.birth > 0 && t.death == ~0u && died_at_seam[t.bytes.value] > 0) {
      --died_at_seam[t.bytes.value];
      t.dies_at_seam = true;
    }
  }
  named_places_.mark(log_);
  return log_;
}

}  // namespace vedette::detail
