// Vector clocks over intervals of bytes: see order.h.
#include "simulated_gpu/order.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "simulated_gpu/reports.h"

namespace vedette::simulated {
namespace {

constexpr std::size_t most_kept = 100, most_told = 10;

void join(VectorClock& into, const VectorClock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

std::uint64_t known(const VectorClock& clock, std::size_t stream) { return stream < clock.size() ? clock[stream] : 0; }

// A stream other than `own` whose reads are not all known to `clock`; reads.size() when there is none.
std::size_t unknown_reader(const VectorClock& reads, const VectorClock& clock, std::size_t own) {
  std::size_t stream = 0;
  while (stream < reads.size() && (stream == own || reads[stream] <= known(clock, stream))) ++stream;
  return stream;
}

std::string sentence(const Order::Race& race) {
  char address[32];
  std::snprintf(address, sizeof address, "%#zx", static_cast<std::size_t>(race.bytes.begin));
  const auto on_stream = [](const Order::Side& side) {
    return side.what + " on stream " + std::to_string(side.stream);
  };
  const auto does = [](const Order::Side& side) { return side.write ? " writes" : " reads"; };
  return "race: " + on_stream(race.second) + does(race.second) + " " + address + ", which " + on_stream(race.first) +
         does(race.first) +
         ", and nothing orders the two; record an event behind the first and let the other stream wait for it";
}

}  // namespace

VectorClock& Order::clock(StreamNumber stream) {
  if (clocks_.size() <= stream) clocks_.resize(stream + 1);
  VectorClock& own = clocks_[stream];
  if (own.size() <= stream) own.resize(stream + 1);
  return own;
}

std::uint64_t Order::tick(StreamNumber stream) {
  VectorClock& own = clock(stream);
  join(own, host_);
  return ++own[stream];
}

// No interval reaches over `at` any more. Returns the first that begins there or later.
Order::Touches::iterator Order::cut(std::uintptr_t at) {
  auto next = touches_.lower_bound(at);
  if (next == touches_.begin() || (next != touches_.end() && next->first == at)) return next;
  auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Touch rest = before->second;
  before->second.end = at;
  return touches_.emplace_hint(next, at, std::move(rest));
}

void Order::Touch::read(StreamNumber stream, std::uint64_t now, Command by) {
  if (reads.size() <= stream) reads.resize(stream + 1);
  if (read_by.size() <= stream) read_by.resize(stream + 1);
  reads[stream] = now;
  read_by[stream] = by;
}

Order::Command Order::command(std::string_view what, std::uint32_t stack) {
  const auto [found, fresh] =
      numbers_.try_emplace(std::pair(std::string(what), stack), static_cast<Command>(commands_.size()));
  if (fresh) commands_.emplace_back(what, stack);
  return found->second;
}

Order::Side Order::side(Command command, StreamNumber stream, bool write) const {
  return {.what = commands_[command].first, .stream = stream, .write = write, .stack = commands_[command].second};
}

// A process that writes reports (reports.h) tells its races there.
void Order::report(const Race& race) {
  std::string told = sentence(race);
  if (++count_ <= most_told && !reporting()) std::fprintf(stderr, "simulated GPU: %s\n", told.c_str());
  if (races_.size() < most_kept) races_.push_back(std::move(told));
}

std::vector<Order::Race> Order::access(StreamNumber stream, Bytes bytes, bool write, std::string_view what,
                                       std::uint32_t stack) {
  if (bytes.begin >= bytes.end) return {};
  const std::lock_guard lock(guard_);
  const std::uint64_t now = tick(stream);
  const VectorClock& own = clocks_[stream];
  const Command by = command(what, stack);
  const auto first = cut(bytes.begin), last = cut(bytes.end);
  std::vector<Race> found;
  std::set<std::pair<Command, StreamNumber>> told;
  const auto tell = [&](const Touches::value_type& touch, Command other, StreamNumber its_stream, bool wrote) {
    if (!told.emplace(other, its_stream).second) return;
    found.push_back({.first = side(other, its_stream, wrote),
                     .second = side(by, stream, write),
                     .bytes = {.begin = touch.first, .end = touch.second.end}});
  };
  std::uintptr_t covered = bytes.begin;
  std::vector<std::pair<std::uintptr_t, Touch>> fresh;
  for (auto touch = first; touch != last; ++touch) {
    Touch& t = touch->second;
    if (t.written > 0 && t.writer != stream && t.written > known(own, t.writer))
      tell(*touch, t.written_by, t.writer, true);
    if (const std::size_t reader = unknown_reader(t.reads, own, stream); write && reader < t.reads.size())
      tell(*touch, t.read_by[reader], reader, false);
    if (write) continue;
    if (touch->first > covered) fresh.emplace_back(covered, Touch{.end = touch->first});
    covered = t.end;
    t.read(stream, now, by);
  }
  if (!found.empty()) report(found.front());
  if (write) {
    touches_.erase(first, last);
    touches_[bytes.begin] = {.end = bytes.end, .writer = stream, .written = now, .written_by = by};
    return found;
  }
  if (covered < bytes.end) fresh.emplace_back(covered, Touch{.end = bytes.end});
  for (auto& [begin, touch] : fresh) {
    touch.read(stream, now, by);
    touches_.emplace(begin, std::move(touch));
  }
  return found;
}

std::shared_ptr<const VectorClock> Order::record(StreamNumber stream) {
  const std::lock_guard lock(guard_);
  tick(stream);
  return std::make_shared<const VectorClock>(clocks_[stream]);
}

void Order::stream_waits(StreamNumber stream, const VectorClock& event) {
  const std::lock_guard lock(guard_);
  join(clock(stream), event);
}

void Order::stream_waits_for_all(StreamNumber stream) {
  const std::lock_guard lock(guard_);
  VectorClock all;
  for (const VectorClock& each : clocks_) join(all, each);
  join(clock(stream), all);
}

void Order::host_waits(const VectorClock& event) {
  const std::lock_guard lock(guard_);
  join(host_, event);
}

std::string Order::take_away(Bytes bytes) {
  const std::lock_guard lock(guard_);
  const auto first = cut(bytes.begin), last = cut(bytes.end);
  std::string running;
  for (auto touch = first; touch != last && running.empty(); ++touch) {
    const Touch& t = touch->second;
    if (t.written > known(host_, t.writer))
      running = commands_[t.written_by].first + " on stream " + std::to_string(t.writer) + " may still write there";
    const std::size_t reader = unknown_reader(t.reads, host_, t.reads.size());
    if (reader < t.reads.size())
      running = commands_[t.read_by[reader]].first + " on stream " + std::to_string(reader) + " may still read there";
  }
  touches_.erase(first, last);
  return running;
}

std::vector<std::string> Order::races() const {
  const std::lock_guard lock(guard_);
  return races_;
}

void Order::forget_races() {
  const std::lock_guard lock(guard_);
  races_.clear();
  count_ = 0;
}

Order& order() {
  static Order* const whole = new Order;  // for ever: threads of streams outlive main()
  return *whole;
}

}  // namespace vedette::simulated
