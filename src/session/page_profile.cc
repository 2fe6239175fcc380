#include "session/page_profile.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"

namespace vedette::detail {
namespace {

// Looking at every living tensor costs 6 to 10 ns a page (bench/tracker). This many pages, 0.1 ms, at every tick are
// too few to be measured; beyond, a look at everything is due when a quarter as many pages were looked at since the
// last one.
constexpr std::uint64_t free_pages = 8192;
constexpr std::uint64_t pages_for_one = 4;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + page_size - 1) / page_size * page_size; }

template <class T>
bool has(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

void add(OperandList& list, std::uint32_t tensor) {
  if (!list.contains(tensor)) list.push_back(tensor);
}

struct Boundary {  // changes at a page of a tensor
  std::uint32_t tensor = 0;
  std::uint64_t page = 0;
  int touched = 0, read = 0, written = 0;
};

// Disjoint ranges with the accesses seen in each, in order of tensor and page.
std::vector<LoggedPages> merged(const std::vector<LoggedPages>& noted, std::uint32_t op) {
  std::vector<Boundary> boundaries;
  for (const LoggedPages& n : noted) {
    boundaries.push_back({n.tensor, n.pages.begin, 1, n.read ? 1 : 0, n.written ? 1 : 0});
    boundaries.push_back({n.tensor, n.pages.end, -1, n.read ? -1 : 0, n.written ? -1 : 0});
  }
  std::sort(boundaries.begin(), boundaries.end(), [](const Boundary& a, const Boundary& b) {
    return std::tie(a.tensor, a.page) < std::tie(b.tensor, b.page);
  });
  std::vector<LoggedPages> result;
  Boundary level;
  for (const Boundary& b : boundaries) {
    if (level.touched > 0 && level.page < b.page) {
      const LoggedPages next{.op = op,
                             .tensor = level.tensor,
                             .pages = {level.page, b.page},
                             .read = level.read > 0,
                             .written = level.written > 0};
      LoggedPages* const last = result.empty() ? nullptr : &result.back();
      if (last != nullptr && last->tensor == next.tensor && last->pages.end == next.pages.begin &&
          last->read == next.read && last->written == next.written) {
        last->pages.end = next.pages.end;
      } else {
        result.push_back(next);
      }
    }
    level = {b.tensor, b.page, level.touched + b.touched, level.read + b.read, level.written + b.written};
  }
  return result;
}

Result<std::unique_ptr<PageTracker>> open_for(const TrackerKind& kind, engine::WatchedFrames& watched) {
  auto tracker = kind.open();
  if (!tracker || kind.frames == FrameKind::fast) return tracker;
  const auto converted = watched.convert(kind.frames);
  if (converted) return tracker;
  if (auto back = watched.convert(FrameKind::fast); !back) return back.error();
  return converted.error();
}

}  // namespace

std::unique_ptr<PageProfile> PageProfile::start(Options options) {
  const auto message = [&](const std::string& sentence) {
    if (options.on_message) options.on_message(sentence);
  };
  std::string refused = options.passed_over;
  std::vector<const TrackerKind*> candidates;
  if (options.tracker != nullptr) candidates.push_back(options.tracker);
  for (const TrackerKind& kind : tracker_kinds())
    if (options.or_mprotect && kind.name == "mprotect" && options.tracker != nullptr && options.tracker != &kind)
      candidates.push_back(&kind);
  for (const TrackerKind* const kind : candidates) {
    auto tracker = open_for(*kind, *options.watched);
    if (tracker) {
      if (!refused.empty())
        message(
            std::string("profiling sees pages by ").append(kind->name).append(", slowly, because of ").append(refused));
      return std::make_unique<PageProfile>(std::move(options), std::move(*tracker), kind->frames);
    }
    refused += (refused.empty() ? "" : "; ") + tracker.error().message;
  }
  message("profiling sees no pages, only what ops announce" + (refused.empty() ? refused : ": " + refused));
  return nullptr;
}

std::unique_ptr<PageProfile> PageProfile::start_with(std::unique_ptr<PageTracker> tracker, Options options) {
  return std::make_unique<PageProfile>(std::move(options), std::move(tracker), FrameKind::fast);
}

PageProfile::PageProfile(Options options, std::unique_ptr<PageTracker> tracker, FrameKind frames)
    : options_(std::move(options)), tracker_(std::move(tracker)), frames_(frames), tracked_(options_.chunks) {}

PageProfile::~PageProfile() { VEDETTE_ASSERT(tracked_pages_ == 0); }

// --- chunks come and go
// ------------------------------------------------------------------------------------------------

void PageProfile::watch() {
  if (options_.watched != nullptr) options_.watched->set_watch(this);
}

void PageProfile::shown(ChunkIndex chunk, bool held) noexcept {
  const std::lock_guard lock(mutex_);
  VEDETTE_ASSERT(tracked_[chunk] == 0);
  // Held for system calls, which would fail there, or for transfers, which would miss it.
  if (held && !(tracker_->sees_system_calls() && tracker_->keeps_frames())) return;
  const AddressRange range[] = {chunk_range(chunk)};
  if (auto armed = frames_ == FrameKind::trackable ? Result<void>() : tracker_->arm(range); !armed)
    return failed(armed.error());
  tracked_[chunk] = 1;
  tracked_pages_ += chunk_pages();
}

void PageProfile::hiding(ChunkIndex chunk) noexcept {
  const std::lock_guard lock(mutex_);
  if (tracked_[chunk] == 0) return;
  const std::uint64_t begin = chunk.value * options_.chunk.value, end = begin + options_.chunk.value;
  ranges_.clear();
  auto place = places_.upper_bound(begin);
  if (place != places_.begin()) --place;
  for (; place != places_.end() && place->first < end; ++place) {
    const std::uint64_t from = std::max(begin, place->first),
                        to = std::min(end, place->first + whole_pages(place->second.bytes));
    if (from < to) ranges_.push_back({options_.arena + from, to - from});
  }
  collect();
  tracked_[chunk] = 0;
  tracked_pages_ -= chunk_pages();
  if (frames_ == FrameKind::trackable) return;  // the mapping itself is cleared when the frame leaves
  const AddressRange range[] = {chunk_range(chunk)};
  if (auto open = tracker_->disarm(range); !open) failed(open.error());
}

// The thread that waits for a chunk touches this page first, perhaps (not with zap) before the chunk is armed.
void PageProfile::faulted(ChunkIndex chunk, std::uint64_t page, bool write) noexcept {
  const std::lock_guard lock(mutex_);
  const Late before = late_;
  note({.pages = {chunk_range(chunk).begin + page * page_size, page_size}, .read = !write, .written = write});
  late_ = before;  // this is told at once
}

// --- tensors come and go
// -----------------------------------------------------------------------------------------------

void PageProfile::lives(std::uint64_t offset, std::uint64_t bytes, std::uint32_t tensor) {
  const std::lock_guard lock(mutex_);
  places_[offset] = {.bytes = bytes, .tensor = tensor, .born_in = 0};
}

void PageProfile::born(std::uint64_t offset, std::uint64_t bytes, std::uint32_t tensor) {
  const std::lock_guard lock(mutex_);
  places_[offset] = {.bytes = bytes, .tensor = tensor, .born_in = tick_};
  newborn_.push_back(offset);
}

void PageProfile::died(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(offset);
  if (place == places_.end()) return;
  ranges_.clear();
  look_at(offset, place->second.bytes);
  collect();
  places_.erase(place);
}

// --- ticks
// -------------------------------------------------------------------------------------------------------------

void PageProfile::op_begins(std::uint32_t op, const LoggedOp& what, std::span<const LoggedTensor> tensors) {
  const std::lock_guard lock(mutex_);
  const bool same = in_tick_ && what.layer && what.layer == layer_;
  if (in_tick_ && !same) end_tick();
  if (!in_tick_) ops_.first = op;
  ops_.last = op;
  in_tick_ = true;
  layer_ = what.layer;
  for (const auto* list : {&what.reads, &what.writes})
    for (const std::uint32_t t : *list) {
      operands_.push_back(tensors[t].offset);
      announced_.push_back(t);
      if (list == &what.reads) announced_read_.push_back(t);
    }
}

void PageProfile::op_is_ready() {
  if (options_.watched != nullptr) return;
  const std::lock_guard lock(mutex_);
  if (std::exchange(armed_, true)) return;
  if (auto armed = tracker_->arm({}); !armed) failed(armed.error());
}

void PageProfile::op_ended() {
  const std::lock_guard lock(mutex_);
  if (in_tick_ && options_.ticks == ProfileTicks::ops) end_tick();
}

void PageProfile::end_tick() {
  ranges_.clear();
  bool everything = false;
  if (tracked_pages_ <= free_pages + looked_at_ * pages_for_one) {
    look_at_everything();
    everything = true;
    looked_at_ = 0;
  } else {
    for (const auto* list : {&operands_, &newborn_})
      for (const std::uint64_t offset : *list)
        if (const auto place = places_.find(offset); place != places_.end()) look_at(offset, place->second.bytes);
    for (const AddressRange& range : ranges_) looked_at_ += range.bytes / page_size;
  }
  collect();
  late_.ticks_since = everything ? 0 : late_.ticks_since + 1;
  settle();
  ticks_.push_back(ops_);
  in_tick_ = armed_ = false;
  ++tick_;
  operands_.clear();
  newborn_.clear();
  announced_.clear();
  announced_read_.clear();
}

void PageProfile::look_at_everything() {
  for (const auto& [offset, place] : places_) look_at(offset, place.bytes);
}

void PageProfile::look_at(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t chunk = options_.chunk.value, end = offset + whole_pages(bytes);
  if (options_.watched == nullptr) {
    ranges_.push_back({options_.arena + offset, end - offset});
    return;
  }
  for (std::uint64_t begin = offset; begin < end;) {
    const std::uint64_t c = begin / chunk, until = std::min(end, (c + 1) * chunk);
    if (tracked_[{static_cast<std::uint32_t>(c)}] != 0) ranges_.push_back({options_.arena + begin, until - begin});
    begin = until;
  }
}

void PageProfile::collect() {
  if (ranges_.empty()) return;
  touched_.clear();
  if (auto collected = tracker_->collect(ranges_, touched_); !collected) failed(collected.error());
  for (const TouchedRange& touched : touched_) note(touched);
}

void PageProfile::note(const TouchedRange& touched) {
  const auto begin = static_cast<std::uint64_t>(touched.pages.begin - options_.arena);
  const std::uint64_t end = begin + touched.pages.bytes;
  auto place = places_.upper_bound(begin);
  if (place != places_.begin()) --place;
  for (; place != places_.end() && place->first < end; ++place) {
    const auto& [offset, at] = *place;
    const std::uint64_t from = std::max(begin, offset), to = std::min(end, offset + whole_pages(at.bytes));
    if (from >= to) continue;
    LoggedPages pages{.op = 0,
                      .tensor = at.tensor,
                      .pages = {(from - offset) / page_size, (to - offset) / page_size},
                      .read = touched.read,
                      .written = touched.written};
    if (touched.written) pages.read = has(announced_read_, at.tensor);
    noted_.push_back(pages);
    if (late_.ticks_since == 0 || at.born_in == tick_ || has(announced_, at.tensor)) continue;
    late_.pages += pages.pages.end - pages.pages.begin;
    late_.most_ticks = std::max(late_.most_ticks, late_.ticks_since);
  }
}

void PageProfile::settle() {
  const std::vector<LoggedPages> ranges = merged(noted_, ops_.last);
  pages_.insert(pages_.end(), ranges.begin(), ranges.end());
  noted_.clear();
}

// --- the end
// -----------------------------------------------------------------------------------------------------------

void PageProfile::finish(StepLog& log) {
  if (options_.watched != nullptr) options_.watched->set_watch(nullptr);  // looks at everything that is shown
  {
    const std::lock_guard lock(mutex_);
    if (options_.watched == nullptr) {
      ranges_.clear();
      look_at_everything();
      collect();
    }
    const auto of_last =
        std::find_if(pages_.begin(), pages_.end(), [&](const LoggedPages& p) { return p.op == ops_.last; });
    if (!in_tick_) {  // accesses after the last op count as the last op's
      noted_.insert(noted_.end(), of_last, pages_.end());
      pages_.erase(of_last, pages_.end());
    }
    settle();
    if (in_tick_) ticks_.push_back(ops_);
    in_tick_ = false;
    if (!log.ops.empty()) log.pages = pages_;
    announce(log);
    if (late_.pages > 0)
      log.notes.push_back("Accesses that no op announced: " + std::to_string(late_.pages) + " pages were seen up to " +
                          std::to_string(late_.most_ticks) +
                          (options_.ticks == ProfileTicks::ops ? " ops" : " layers") + " after they were touched.");
  }
  if (options_.watched == nullptr)
    if (auto open = tracker_->disarm({}); !open) failed(open.error());
  if (frames_ == FrameKind::fast) return;
  if (auto fast = options_.watched->convert(FrameKind::fast); !fast) failed(fast.error());
}

// An access that no op of its tick announced becomes one of the tick's last op for which the tensor lives; a write to
// reads that ops of the tick announced become theirs. Nothing that was announced is taken away.
void PageProfile::announce(StepLog& log) const {
  for (const LoggedPages& p : log.pages) {
    const auto tick = std::lower_bound(ticks_.begin(), ticks_.end(), p.op,
                                       [](const Tick& t, std::uint32_t op) { return t.last < op; });
    const LoggedTensor& t = log.tensors[p.tensor];
    if (tick == ticks_.end() || (t.birth > 0 && t.birth_op >= tick->first && t.birth_op <= tick->last)) continue;
    bool read = false, written = false;
    for (std::uint32_t op = tick->first; op <= tick->last; ++op) {
      read |= log.ops[op].reads.contains(p.tensor);
      written |= log.ops[op].writes.contains(p.tensor);
    }
    if (written || (read && !p.written)) continue;
    if (read) {
      for (std::uint32_t op = tick->first; op <= tick->last; ++op)
        if (log.ops[op].reads.contains(p.tensor)) add(log.ops[op].writes, p.tensor);
      continue;
    }
    const std::int64_t op = t.death == ~0u ? std::int64_t{p.op} : std::min<std::int64_t>(p.op, t.death_op);
    if (op < 0 || (t.birth > 0 && op < t.birth_op)) continue;
    LoggedOp& last = log.ops[static_cast<std::size_t>(op)];
    if (p.read || !p.written) add(last.reads, p.tensor);
    if (p.written) add(last.writes, p.tensor);
  }
}

void PageProfile::failed(const Error& error) noexcept {
  if (!failed_ && options_.on_message) options_.on_message("profiling misses pages: " + error.message);
  failed_ = true;
}

}  // namespace vedette::detail
