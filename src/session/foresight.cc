// Where the running step is in an earlier one, and the ops that came there: see foresight.h.
#include "session/foresight.h"

#include <algorithm>
#include <type_traits>

namespace vedette::detail {
namespace {

constexpr std::uint64_t nowhere = ~std::uint64_t{0};
constexpr std::uint32_t not_soon = ~0u;       // ticks from the step's first op
constexpr std::uint32_t widest = 4096;        // ops that a window has
constexpr std::uint32_t longest_past = 64;    // ops that are compared to tell places apart
constexpr double one_op = 1.0 / 64;           // weight of the latest in how many were not as expected
constexpr std::uint32_t rests_unchanged = 4;  // ops without a write after a fetch: it may leave without a transfer
constexpr std::uint32_t least_frames = 14;    // with fewer, what comes early displaces what comes before it
constexpr double rarely = 1.0 / 80;           // a wrong op among the latest fifteen

std::uint32_t common_past(const LikeStep& step, std::uint32_t at, std::span<const std::uint64_t> kinds) {
  const std::uint32_t most = std::min({longest_past, at + 1, static_cast<std::uint32_t>(kinds.size())});
  std::uint32_t length = 0;
  while (length < most && step.kind(at - length) == kinds[kinds.size() - 1 - length]) ++length;
  return length;
}

}  // namespace

bool Foresight::remember(const StepLog& log, std::span<const std::uint64_t> kinds, std::uint64_t sequence,
                         std::optional<std::uint64_t> timed_later) {
  if (kinds.empty() || kinds.size() != log.ops.size() || kinds.size() > most_ops) return false;
  auto same = std::find_if(steps_.begin(), steps_.end(), [&](const auto& step) { return step->has_kinds(kinds); });
  const bool known = same != steps_.end();
  if (known) {
    std::rotate(steps_.begin(), same, same + 1);
    if (steps_.front()->sequence() != sequence) refresh(*steps_.front(), log, sequence, timed_later);
  } else {
    steps_.push_front(std::make_unique<LikeStep>(log, kinds, sequence, timed_later));
  }
  learn_succession(log, steps_.front().get());
  before_ = steps_.front().get();
  std::size_t ops = 0, kept = 0;
  for (; kept < std::min(steps_.size(), most_steps); ++kept)
    if ((ops += steps_[kept]->ops()) > most_ops) break;
  for (; steps_.size() > kept; steps_.pop_back())
    std::erase_if(successions_, [&](const Succession& each) {
      return each.before == steps_.back().get() || each.after == steps_.back().get();
    });
  return known;
}

Foresight::Remembered Foresight::remembered() const noexcept {
  Remembered now{.steps = steps_.size(), .ops = 0, .successions = successions_.size()};
  for (const auto& step : steps_) now.ops += step->ops();
  return now;
}

// Other sizes. Successions count tensors by their numbers, which are the same unless small tensors have grown.
void Foresight::refresh(LikeStep& step, const StepLog& log, std::uint64_t sequence,
                        std::optional<std::uint64_t> timed_later) {
  const std::vector<std::uint64_t> kinds(step.kinds().begin(), step.kinds().end());
  LikeStep fresh(log, kinds, sequence, timed_later);
  if (timed_later) fresh.keep_times(step);
  if (!fresh.numbers_alike(step))
    std::erase_if(successions_, [&](const Succession& each) { return each.before == &step || each.after == &step; });
  step = std::move(fresh);
}

void Foresight::set_times(std::uint64_t step, std::span<const Nanoseconds> of_ops) {
  for (const auto& each : steps_)
    if (each->timed_later() == step) each->set_times(of_ops);
}

void Foresight::learn_succession(const StepLog& log, const LikeStep* after) {
  if (before_ != nullptr) {
    const auto known = std::find_if(successions_.begin(), successions_.end(), [&](const Succession& each) {
      return each.before == before_ && each.after == after;
    });
    if (known == successions_.end()) {
      successions_.push_back({.before = before_, .after = after});
    } else {
      std::rotate(known, known + 1, successions_.end());
    }
    Succession& now = successions_.back();
    now.survivors.clear();
    const std::size_t tensors = std::min(log.tensors.size(), after->tensors().size());
    now.from.assign(after->tensors().size(), none);
    for (std::uint32_t t = 0; t < tensors; ++t) {
      if (log.tensors[t].birth > 0) continue;
      const auto born = std::lower_bound(carried_.begin(), carried_.end(), std::pair(log.tensors[t].offset, 0u));
      if (born == carried_.end() || born->first != log.tensors[t].offset) continue;
      now.from[t] = born->second;
      const LikeStep::Tensor& there = after->tensors()[t];
      now.survivors.push_back({.tensor = born->second, .first_use = there.first_use, .dead_at = there.dead_at});
    }
    std::sort(now.survivors.begin(), now.survivors.end());
  }
  carried_.clear();
  for (std::uint32_t t = 0; t < log.tensors.size(); ++t)
    if (log.tensors[t].birth > 0 && log.tensors[t].death == ~0u && !log.tensors[t].small)
      carried_.emplace_back(log.tensors[t].offset, t);
  std::sort(carried_.begin(), carried_.end());
}

const Foresight::Succession* Foresight::last_after(const LikeStep* before) const {
  const auto found = std::find_if(successions_.rbegin(), successions_.rend(),
                                  [&](const Succession& each) { return each.before == before; });
  return found == successions_.rend() ? nullptr : &*found;
}

const Foresight::Succession* Foresight::between(const LikeStep* before, const LikeStep* after) const {
  const auto found = std::find_if(successions_.begin(), successions_.end(),
                                  [&](const Succession& each) { return each.before == before && each.after == after; });
  return found == successions_.end() ? nullptr : &*found;
}

void Foresight::forget() noexcept {
  before_ = nullptr;
  const auto release = [](auto&... all) { ((all = std::remove_reference_t<decltype(all)>()), ...); };
  release(now_, window_, successions_, carried_, steps_, fetches_, next_uses_, ahead_);
}

void Foresight::begin_step() {
  now_ = {};
  window_.clear();
  is_new_position_ = false;
  positions_ = ops_told_ = 0;
}

const Ahead* Foresight::look(const StepLog& log, std::span<const std::uint64_t> kinds, std::uint32_t frames) {
  if (steps_.empty()) return nullptr;
  if (!now_.births) now_.births.emplace(log);
  while (now_.seen < log.ops.size()) see(log, kinds.first(now_.seen + 1));
  if (now_.at == none) return nullptr;
  fetches_.clear();
  next_uses_.clear();
  ahead_ = {.anew = std::exchange(is_new_position_, false),
            .makes_room = wrong_ < rarely,
            .schedule = {.begins = now_.like->begins(), .op = now_.at, .longer = larger()}};
  if (ahead_.anew) tell_all_uses(log);
  tell_next_uses(log);
  widen(log, frames);
  ahead_.fetches = fetches_;
  ahead_.next_uses = next_uses_;
  ahead_.until = now_.seen - 1 + (window_.end - now_.at);
  ahead_.ends = now_.seen - 1 + (now_.like->ops() - now_.at);
  ++ops_told_;
  return &ahead_;
}

// --- where the step is -----------------------------------------------------------------------------------------------

void Foresight::see(const StepLog& log, std::span<const std::uint64_t> kinds) {
  now_.born.clear();
  now_.births->until(now_.seen, [&](std::uint32_t t) { now_.born.push_back(t); });
  ++now_.seen;
  const bool right = goes_on(kinds);
  if (kinds.size() > 1) wrong_ = wrong_ * (1 - one_op) + (right ? 0 : one_op);  // no op precedes a first one
  if (!right) find(kinds);
  if (now_.at != none) bind(log);
}

bool Foresight::goes_on(std::span<const std::uint64_t> kinds) {
  if (now_.like == nullptr || now_.at == none) return false;
  if (now_.expected >= now_.like->ops() || now_.like->kind(now_.expected) != kinds.back()) return false;
  now_.at = now_.expected++;
  return true;
}

void Foresight::find(std::span<const std::uint64_t> kinds) {
  now_.at = none;
  if (kinds.size() == 1) {
    const Succession* const last = last_after(before_);
    if (last != nullptr && last->after->kind(0) == kinds.back()) return follow(last->after, 0);
    for (const auto& step : steps_)
      if (step->kind(0) == kinds.back()) return follow(step.get(), 0);
    return;
  }
  if (kinds.size() < LikeStep::gram) return;
  std::uint32_t longest = 0, at = none;
  const LikeStep* best = nullptr;
  const auto consider = [&](const LikeStep& step, std::optional<std::uint32_t> place) {
    const std::uint32_t past = place ? common_past(step, *place, kinds) : 0;
    if (past < longest || past == 0 || (past == longest && &step != now_.like)) return;
    longest = past;
    at = *place;
    best = &step;
  };
  for (const auto& step : steps_) {
    const LikeStep::Found found = step->find(kinds.last(LikeStep::gram), step.get() == now_.like ? now_.expected : 0);
    consider(*step, found.before);  // a loop that runs once more
    consider(*step, found.at_or_after);
  }
  if (best != nullptr) follow(best, at);
}

void Foresight::follow(const LikeStep* like, std::uint32_t at) {
  if (now_.like != like) {
    now_.like = like;
    now_.bound.assign(like->tensors().size(), none);
    find_carried();
  }
  is_new_position_ = true;
  now_.at = at;
  now_.expected = at + 1;
  window_.end = at + 1;
  window_.chunks.clear();
  window_.chunks_in_all = 0;
  window_.used.assign(like->tensors().size(), 0);
}

void Foresight::find_carried() {
  now_.carried.assign(now_.like->tensors().size(), nowhere);
  const Succession* const succession = between(before_, now_.like);
  if (succession == nullptr) return;
  std::map<std::uint32_t, std::uint64_t> offsets;
  for (const auto& [offset, tensor] : carried_) offsets.emplace(tensor, offset);
  for (std::uint32_t t = 0; t < succession->from.size(); ++t)
    if (const auto found = offsets.find(succession->from[t]); found != offsets.end()) now_.carried[t] = found->second;
}

void Foresight::bind(const StepLog& log) {
  const LikeStep& like = *now_.like;
  const std::span<const std::uint32_t> births = like.births_before(now_.at);
  for (std::size_t k = 0; k < std::min(births.size(), now_.born.size()); ++k) {
    now_.bound[births[k]] = now_.born[k];
    now_.bytes += log.tensors[now_.born[k]].bytes.value;
    now_.bytes_there += like.tensors()[births[k]].bytes.value;
  }
  constexpr std::uint64_t lately = std::uint64_t{1} << 30;
  if (now_.bytes > lately) {
    now_.bytes /= 2;
    now_.bytes_there /= 2;
  }
  const std::span<const LikeStep::Use> uses = like.uses(now_.at);
  std::size_t k = 0;
  for_each_operand(log, log.ops[now_.seen - 1], [&](std::uint32_t t) {
    if (k < uses.size()) now_.bound[uses[k++].tensor] = t;
  });
}

// --- what comes there ------------------------------------------------------------------------------------------------

std::optional<ChunkRange> Foresight::chunks_of(const StepLog& log, std::uint32_t tensor) const {
  const LikeStep::Tensor& there = now_.like->tensors()[tensor];
  if (const std::uint32_t here = now_.bound[tensor]; here != none) {
    const LoggedTensor& t = log.tensors[here];
    if (t.death != ~0u) return std::nullopt;
    return arena_.chunks_of(t.offset, t.bytes.value);
  }
  if (there.born) return std::nullopt;
  const bool carried = now_.carried[tensor] != nowhere;
  const std::uint64_t offset = carried ? now_.carried[tensor] : there.offset;
  const auto found = arena_.holding(arena_.base() + offset);
  if (found == arena_.tensors().end() || found->first != offset) return std::nullopt;
  if (!carried && found->second.bytes != there.bytes) return std::nullopt;
  return arena_.chunks_of(offset, found->second.bytes.value);
}

std::optional<std::uint64_t> Foresight::offset_of(std::uint32_t tensor) const {
  if (now_.at == none || tensor >= now_.like->tensors().size() || now_.like->tensors()[tensor].born)
    return std::nullopt;
  return now_.carried[tensor] != nowhere ? now_.carried[tensor] : now_.like->tensors()[tensor].offset;
}

double Foresight::larger() const noexcept {
  return now_.bytes_there == 0 ? 1 : std::clamp(double(now_.bytes) / double(now_.bytes_there), 0.125, 8.0);
}

std::uint32_t Foresight::chunks_born(std::uint32_t op) const {
  const double bytes = double(now_.like->born_to_stay(op).value) * larger();
  return static_cast<std::uint32_t>((bytes + double(arena_.chunk_bytes()) - 1) / double(arena_.chunk_bytes()));
}

// `op`: of `like`; none: of no op of this step.
void Foresight::tell(std::uint32_t tensor, std::optional<ChunkRange> chunks, std::uint32_t op) {
  if (!chunks) return;
  const auto here = [&](std::uint32_t there) { return now_.seen - 1 + (there - now_.at); };
  const std::uint32_t dead_at = now_.like->tensors()[tensor].dead_at;
  next_uses_.push_back({*chunks, op == none ? not_soon : here(op), {}});
  if (dead_at != none && dead_at > now_.at) next_uses_.back().dead_at = here(dead_at);
}

void Foresight::tell_in_next_step(std::uint32_t tensor, std::optional<ChunkRange> chunks) {
  constexpr auto next_step = static_cast<std::uint32_t>(ticks_of_a_step);
  const LikeStep::Tensor& there = now_.like->tensors()[tensor];
  if (!chunks || there.dies) return tell(tensor, chunks, none);
  Succession::Survivor then{.tensor = tensor, .first_use = there.born ? none : there.first_use};
  if (const Succession* const next = last_after(now_.like); next != nullptr) {
    const auto found = std::lower_bound(next->survivors.begin(), next->survivors.end(), then);
    if (found != next->survivors.end() && found->tensor == tensor) then = *found;
  }
  next_uses_.push_back({*chunks, then.first_use == none ? not_soon : next_step + then.first_use, {}});
  if (then.dead_at != none) next_uses_.back().dead_at = next_step + then.dead_at;
}

// Next uses of another position, or of an earlier step, are wrong by now.
void Foresight::tell_all_uses(const StepLog& log) {
  constexpr std::uint32_t most_positions = 64;  // in a step: each takes time for all ops that come
  if (++positions_ > most_positions) return;
  const LikeStep& like = *now_.like;
  std::vector<char> told(like.tensors().size());
  for (std::uint32_t op = now_.at + 1; op < like.ops(); ++op)
    for (const LikeStep::Use& use : like.uses(op))
      if (!std::exchange(told[use.tensor], char{1})) tell(use.tensor, chunks_of(log, use.tensor), op);
  for (std::uint32_t t = 0; t < told.size(); ++t)
    if (!told[t]) tell_in_next_step(t, chunks_of(log, t));
}

void Foresight::tell_next_uses(const StepLog& log) {
  const LikeStep& like = *now_.like;
  for (const std::uint32_t t : like.births_before(now_.at))
    if (const std::uint32_t use = like.tensors()[t].first_use; use != none && use >= now_.at) {
      tell(t, chunks_of(log, t), use);
    } else if (use == none) {
      tell_in_next_step(t, chunks_of(log, t));
    }
  for (const LikeStep::Use& use : like.uses(now_.at)) {
    const std::optional<ChunkRange> chunks = chunks_of(log, use.tensor);
    use.next == none ? tell_in_next_step(use.tensor, chunks) : tell(use.tensor, chunks, use.next);
  }
}

// Also says how many chunks births of this op and the next will take, as far as there is room for them.
void Foresight::widen(const StepLog& log, std::uint32_t frames) {
  for (; !window_.chunks.empty() && window_.end - window_.chunks.size() <= now_.at; window_.chunks.pop_front())
    window_.chunks_in_all -= window_.chunks.front();
  window_.end = std::max(window_.end, now_.at + 1);
  std::uint64_t in_use = 0;
  for (const LikeStep::Use& use : now_.like->uses(now_.at)) {
    window_.used[use.tensor] = std::max(window_.used[use.tensor], now_.at + 1);
    if (const auto chunks = chunks_of(log, use.tensor)) in_use += chunks->size();
  }
  const std::uint64_t room = frames - std::min<std::uint64_t>(frames, in_use), born = chunks_born(now_.at);
  const double far = widest / (1 + wrong_ * widest) / 4;  // in ops: a quarter of how many in a row are as expected
  const auto limit = frames < least_frames ? 0 : static_cast<std::uint32_t>(std::max(1.0, far));
  while (window_.end < now_.like->ops() && window_.end - now_.at <= limit && born + window_.chunks_in_all < room) {
    const std::uint32_t chunks = widen_by_op(log, window_.end++);
    window_.chunks.push_back(chunks);
    window_.chunks_in_all += chunks;
  }
  const std::uint64_t next = now_.at + 1 < now_.like->ops() ? chunks_born(now_.at + 1) : 0;
  ahead_.births = static_cast<std::uint32_t>(std::min(room, born));
  ahead_.next_births = static_cast<std::uint32_t>(std::min(room - ahead_.births, next));
}

std::uint32_t Foresight::widen_by_op(const StepLog& log, std::uint32_t op) {
  std::uint32_t chunks = chunks_born(op);
  for (const LikeStep::Use& use : now_.like->uses(op)) {
    const bool counted = window_.used[use.tensor] > now_.at;
    window_.used[use.tensor] = op + 1;
    if (counted) continue;
    const std::optional<ChunkRange> where = chunks_of(log, use.tensor);
    if (!where) continue;
    tell(use.tensor, where, op);
    fetches_.push_back({.chunks = *where, .unchanged = now_.like->unwritten(use.tensor, op, rests_unchanged)});
    chunks += where->size();
  }
  return chunks;
}

}  // namespace vedette::detail
