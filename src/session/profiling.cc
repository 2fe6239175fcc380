#include "session/profiling.h"

namespace vedette::detail {

// Profiling slows ops down, and plans want their usual times: the step before has most of them.
void Profiling::remember_usual_times(OpTimes& times) const {
  if (profiled_ || options_.profile == ProfileTicks::operands) return times.forget_usual();
  times.remember_as_usual(logger_.hashes(), logger_.log().ops);
}

void Profiling::begin_step(OpTimes& times) {
  if (logger_.step() <= options_.warmup_steps || profiled_ || options_.profile == ProfileTicks::operands) return;
  if (engine::WatchedFrames* const frames = executor_->pages(); frames != nullptr)
    pages_ = PageProfile::start({.watched = frames,
                                 .arena = arena_.base(),
                                 .ticks = options_.profile,
                                 .chunk = options_.chunk,
                                 .chunks = static_cast<std::uint32_t>(arena_.bytes().value / options_.chunk.value),
                                 .tracker = tracking_.tracker,
                                 .passed_over = tracking_.passed_over,
                                 .or_mprotect = options_.tracker == "best",
                                 .on_message = [this](std::string_view sentence) { messages_.post(sentence); }});
  if (tracking_.of_gpu != nullptr)
    pages_ = PageProfile::start_with(std::move(tracking_.of_gpu),
                                     {.arena = arena_.base(),
                                      .ticks = options_.profile,
                                      .on_message = [this](std::string_view sentence) { messages_.post(sentence); }});
  if (pages_ != nullptr) {
    for (const auto& [offset, live] : arena_.tensors())
      pages_->lives(offset, live.bytes.value, logger_.tensor(offset, live));
    pages_->watch();
  }
  times.end_op(executor_->program().now());
}

void Profiling::end_step(OpTimes& times) {
  if (pages_ != nullptr) {
    pages_->finish(logger_.log_to_finish());
    pages_.reset();
    times.replace_by_usual(logger_.hashes(), logger_.log_to_finish().ops);
  }
  if (logger_.step() > options_.warmup_steps && !logger_.log().ops.empty()) profiled_ = true;
}

}  // namespace vedette::detail
