#include "adapter/torch/live_session.h"

#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "base/quiet_thread.h"
#include "profiler/gpu_bytes.h"

namespace vedette::adapter {

LiveSession::LiveSession(std::string_view program, std::string_view policy, LivePage* of_recorder, Bound bound)
    : own_(of_recorder == nullptr ? LivePage::make(program) : nullptr),
      page_(of_recorder == nullptr ? own_.get() : of_recorder),
      bound_(std::move(bound)) {
  if (own_ != nullptr) own_->policy(policy);
}

LiveSession::~LiveSession() {
  if (asks_bound_.joinable()) asks_bound_.join();
}

void LiveSession::step_ended(const Session& session) {
  const auto began = std::exchange(began_, std::nullopt);
  if (page_ == nullptr || !began) return;
  const Clock::time_point now = Clock::now();
  constexpr std::chrono::milliseconds apart{100};
  if (own_ != nullptr && now - shown_ >= apart) {
    shown_ = now;
    show_counters(session, now - *began);
  }
  if (bound_ && session.phase() == "planned") show_bound(session);
}

void LiveSession::show_counters(const Session& session, std::chrono::nanoseconds last_step) {
  const Counters counters = session.counters();
  const std::pair<Live, std::uint64_t> values[] = {
      {Live::step, counters.steps},
      {Live::last_step_ns, static_cast<std::uint64_t>(last_step.count())},
      {Live::steps_ns, counters.elapsed_ns},
      {Live::ops, counters.ops},
      {Live::bytes_in, counters.bytes_in.value},
      {Live::bytes_out, counters.bytes_out.value},
      {Live::bytes_dropped, counters.bytes_dropped.value},
      {Live::disk_bytes_out, counters.disk_bytes_out.value},
      {Live::bytes_in_place, counters.bytes_in_place.value},
      {Live::stall_ns, counters.stall_ns},
      {Live::stalls, counters.stall_count},
      {Live::faults, counters.faults},
      {Live::resident_bytes, counters.resident_bytes.value},
      {Live::live_bytes, counters.live_bytes.value},
      {Live::budget_bytes, session.budget().value},
  };
  for (const auto& [which, value] : values) page_->set(which, value);
  for (const GpuBytesField& each : gpu_bytes_fields) page_->set(each.live, (counters.gpu.*each.bytes).value);
  page_->phase(session.phase());
  const Trace* const profiled = session.trace();
  if (profiled == nullptr || std::exchange(profiled_, profiled) == profiled) return;
  const HeatBytes heat = LiveHeat(*profiled).at(LiveHeat::places - 1);  // as a step ends
  for (std::size_t bin = 0; bin < heat_bins; ++bin) page_->set(heat_bin(bin), heat[bin]);
}

// Times of ops become better in the first planned steps, and the bound with them.
void LiveSession::show_bound(const Session& session) {
  constexpr std::uint64_t last = 64;
  if (++planned_ > last || !std::has_single_bit(planned_) || !has_bound_) return;
  if (asks_bound_.joinable()) asks_bound_.join();
  std::vector<PlannedStep> steps = session.planned_steps();
  if (steps.empty()) return;
  machine_ = session.machine();
  has_bound_ = false;
  asks_bound_ = start_quiet_thread([this, step = std::move(steps.back().trace)]() noexcept {
    page_->set(Live::bound_ns, static_cast<std::uint64_t>(bound_(step, machine_).value));
    has_bound_ = true;
  });
}

}  // namespace vedette::adapter
