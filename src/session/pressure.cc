#include "session/pressure.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/quiet_thread.h"
#include "base/readable.h"
#include "os/program.h"

namespace vedette::detail {
namespace {

constexpr Bytes slack = 16_MiB;  // below a limit, for what the program itself needs

}  // namespace

std::optional<Bytes> PressureRule::next(const Seen& seen) noexcept {
  const std::uint64_t part = std::max<std::uint64_t>(wanted_.value / parts, 1);
  std::uint64_t goes = 0;
  if (seen.pressure && (!pressed_ || seen.now - *pressed_ >= between))
    goes = std::min(part, seen.borrowed.value_or(Bytes{part}).value);
  if (seen.headroom && *seen.headroom < 0)
    goes = std::max(goes, static_cast<std::uint64_t>(-*seen.headroom) + slack.value);
  if (seen.pressure || goes > 0) {
    if (grew_ && seen.now - *grew_ < calm_) calm_ = std::min(Nanoseconds{calm_.value * 2}, longest_calm);
    pressed_ = seen.now;
    grew_.reset();
  }
  if (goes == 0) return seen.pressure ? std::nullopt : grown(seen);
  const Bytes next{std::max(seen.budget.value - std::min(seen.budget.value, goes), seen.least.value)};
  return next < seen.budget ? std::optional(next) : std::nullopt;
}

std::optional<Bytes> PressureRule::grown(const Seen& seen) noexcept {
  if (seen.budget >= wanted_ || !pressed_) return std::nullopt;
  const Nanoseconds since = grew_ ? seen.now - *grew_ : seen.now - *pressed_;
  if (since < calm_) {
    return std::nullopt;
  }
  std::uint64_t comes = std::min(wanted_.value / parts, wanted_.value - seen.budget.value);
  if (seen.headroom) {
    const std::uint64_t room = static_cast<std::uint64_t>(std::max<std::int64_t>(*seen.headroom, 0));
    comes = std::min(comes, room - std::min(room, 2 * slack.value));
  }
  if (comes == 0) return std::nullopt;
  grew_ = seen.now;
  return seen.budget + Bytes{comes};
}

PressureFollower::PressureFollower(const PressureSources::Options& options, Session session)
    : session_(std::move(session)), sources_(options), rule_(session_.budget()) {
  for (const std::string& remark : sources_.remarks()) session_.say(remark);
  thread_ = start_quiet_thread([this] { run(); });
}

PressureFollower::~PressureFollower() {
  stop_ = true;
  sources_.wake();
  thread_.join();
}

void PressureFollower::program_wants(Bytes wanted) {
  const std::lock_guard lock(mutex_);
  rule_.program_wants(wanted);
}

void PressureFollower::run() {
  constexpr std::chrono::milliseconds a_look{1'000};  // at limits
  while (!stop_) {
    const PressureSources::Heard heard = sources_.wait(a_look);
    if (stop_) return;
    for (const PressureSources::Request& request : heard.requests) serve(request);
    follow(heard);
  }
}

void PressureFollower::serve(const PressureSources::Request& request) {
  program_wants(request.bytes);
  const auto got = session_.resize(request.bytes);
  if (!got) return PressureSources::answer(request, got.error().message);
  PressureSources::answer(request, "fast memory is " + readable_exactly(got->now) +
                                       (got->holds.empty() ? "" : ", since more is held: " + got->holds));
}

void PressureFollower::follow(const PressureSources::Heard& heard) {
  const Bytes before = session_.budget();
  std::optional<Bytes> next;
  {
    const std::lock_guard lock(mutex_);
    next = rule_.next({.now = host_program().now(),
                       .pressure = heard.pressure,
                       .headroom = heard.headroom,
                       .borrowed = heard.borrowed,
                       .budget = before,
                       .least = session_.least()});
  }
  if (!next) return;
  const auto got = session_.resize(*next);
  if (!got) return session_.say("fast memory stays at " + readable(before) + ": " + got.error().message);
  if (got->now < before)
    session_.say("memory is scarce: fast memory is " + readable(got->now) + " now, it was " + readable(before));
  if (got->now > before)
    session_.say("memory is free again: fast memory is " + readable(got->now) + " now, it was " + readable(before));
}

}  // namespace vedette::detail
