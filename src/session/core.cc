#include "session/core.h"

#include <utility>

#include "model/wear.h"

namespace vedette::detail {

SessionCore::SessionCore(SessionOptions options, Mapping arena, Heap::Chunks use)
    : options_(std::move(options)),
      messages_(options_.on_message, options_.on_progress),
      arena_(std::move(arena), options_.chunk, use) {}

void SessionCore::start(Opened opened) {
  executor_ = std::move(opened.executor);
  if (executor_->traits().whole_tensors) logger_.computes_on(options_.fast);
  if (auto* const births = dynamic_cast<BirthObserver*>(options_.observer); births != nullptr && births->wants_births())
    logger_.watch_births(births);
  Machine machine = std::move(opened.machine);
  machine.can_recompute =
      options_.recompute.value_or(Recompute::off) != Recompute::off && executor_->scratch() != nullptr;
  const bool recomputes = machine.can_recompute;
  plans_.start(std::move(machine), opened.frames);
  steps_.start(std::move(opened.tracking));
  if (recomputes) steps_.drops().start(plans_.making().frames_now());
}

void SessionCore::close() noexcept {
  executor_->end_resizing();
  memory_.leave_pressure();
  plans_.making().clear();
  {
    const std::lock_guard lock(mutex_);
    steps_.close();
  }
  const Counters all = counters();
  if (const auto line = signs_.ended(all, rated_endurance(options_.max_writes))) messages_.post_progress(*line);
  if (const auto sentence = signs_.forgotten(all)) messages_.post(*sentence);
  messages_.deliver();
  steps_.drops().stop();
  executor_->forget_plan();
  executor_->set_observer(nullptr);
  memory_.wind_down({~std::uint64_t{0}});
  messages_.end();
  open_ = false;  // from now on the last release ends it
  end_if_empty();
}

void SessionCore::release(std::byte* memory) noexcept {
  memory_.release(memory);
  end_if_empty();
}

void SessionCore::end_if_empty() noexcept {
  if (open_) return;
  std::unique_ptr<Executor> ended;
  {
    const std::lock_guard lock(mutex_);
    if (executor_ == nullptr || !arena_.empty()) return;
    ended = std::move(executor_);
    steps_.forget();
  }
  ended.reset();
  steps_.drops().end();  // the executor's threads asked it until now
  arena_.unmap();
  ended_.store(true, std::memory_order_release);
}

// --- figures ---------------------------------------------------------------------------------------------------------

Counters SessionCore::counters() const noexcept {
  Counters counters = executor_->counters();
  counters.gpu = executor_->gpu_bytes();
  const std::lock_guard lock(mutex_);
  counters.live_bytes.value = arena_.live_bytes();
  counters.peak_bytes.value = arena_.peak_bytes();
  counters.steps = logger_.step();
  counters.elapsed_ns = static_cast<std::uint64_t>(signs_.elapsed().value);
  counters.disk_bytes_out = written_to_disk(counters, plans_.machine());
  steps_.drops().count(counters);
  return counters;
}

const Trace* SessionCore::trace() const noexcept {
  const std::lock_guard lock(mutex_);
  return plans_.trace();
}

std::vector<PlannedStep> SessionCore::planned_steps() const {
  const std::lock_guard lock(mutex_);
  return plans_.planned_steps();
}

}  // namespace vedette::detail
