// Vector clocks over intervals of bytes: see order.h.
#include "simulated_gpu/order.h"

#include <algorithm>
#include <cstdio>

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

std::string unordered(std::string_view what, std::size_t stream, const char* does, std::uintptr_t at,
                      const std::string& other, std::size_t other_stream, const char* did) {
  char address[32];
  std::snprintf(address, sizeof address, "%#zx", static_cast<std::size_t>(at));
  return "race: " + std::string(what) + " on stream " + std::to_string(stream) + " " + does + " " + address +
         ", which " + other + " on stream " + std::to_string(other_stream) + " " + did +
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

void Order::report(std::string sentence) {
  if (++count_ <= most_told) std::fprintf(stderr, "simulated GPU: %s\n", sentence.c_str());
  if (races_.size() < most_kept) races_.push_back(std::move(sentence));
}

void Order::access(StreamNumber stream, Bytes bytes, bool write, std::string_view what) {
  if (bytes.begin >= bytes.end) return;
  const std::lock_guard lock(guard_);
  const std::uint64_t now = tick(stream);
  const VectorClock& own = clocks_[stream];
  const auto first = cut(bytes.begin), last = cut(bytes.end);
  bool told = false;
  std::uintptr_t covered = bytes.begin;
  std::vector<std::pair<std::uintptr_t, Touch>> fresh;
  for (auto touch = first; touch != last; ++touch) {
    Touch& t = touch->second;
    if (!told && t.written > 0 && t.writer != stream && t.written > known(own, t.writer)) {
      report(unordered(what, stream, write ? "writes" : "reads", touch->first, t.written_by, t.writer, "writes"));
      told = true;
    }
    if (const std::size_t reader = unknown_reader(t.reads, own, stream); write && !told && reader < t.reads.size()) {
      report(unordered(what, stream, "writes", touch->first, t.read_by, reader, "reads"));
      told = true;
    }
    if (write) continue;
    if (touch->first > covered) fresh.emplace_back(covered, Touch{.end = touch->first});
    covered = t.end;
    if (t.reads.size() <= stream) t.reads.resize(stream + 1);
    t.reads[stream] = now;
    t.read_by = what;
  }
  if (write) {
    touches_.erase(first, last);
    touches_[bytes.begin] = {.end = bytes.end, .writer = stream, .written = now, .written_by = std::string(what)};
    return;
  }
  if (covered < bytes.end) fresh.emplace_back(covered, Touch{.end = bytes.end});
  for (auto& [begin, touch] : fresh) {
    touch.reads.resize(stream + 1);
    touch.reads[stream] = now;
    touch.read_by = what;
    touches_.emplace(begin, std::move(touch));
  }
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
      running = t.written_by + " on stream " + std::to_string(t.writer) + " may still write there";
    const std::size_t reader = unknown_reader(t.reads, host_, t.reads.size());
    if (reader < t.reads.size()) running = t.read_by + " on stream " + std::to_string(reader) + " may still read there";
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
