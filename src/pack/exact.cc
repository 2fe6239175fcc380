#include "pack/exact.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace vedette::pack {
namespace {

constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t most_remembered = 1 << 20;  // states, 40 MB

constexpr std::uint64_t least_limit = 300'000;

// 1 1 2 1 1 2 4 1 1 2 ...: restart limits within a constant of the best for any distribution of luck (Luby, Sinclair,
// Zuckerman, 1993).
std::uint64_t luby(std::uint64_t i) {
  for (;;) {
    std::uint64_t power = 1;
    while (2 * power - 1 < i) power *= 2;
    if (2 * power - 1 == i) return power;
    i -= power - 1;
  }
}

bool meet(Sections a, Sections b) { return a.begin < b.end && b.begin < a.end; }
bool covers(Sections life, std::uint32_t section) { return life.begin <= section && section < life.end; }

}  // namespace

ExactSearch::ExactSearch(std::uint32_t sections, const std::vector<Item>& items)
    : in_{.sections = sections,
          .count = static_cast<std::uint32_t>(items.size()),
          .load = std::vector<std::uint64_t>(sections),
          .cover = std::vector<std::vector<std::uint32_t>>(sections)},
      weight_(sections, 1.0) {
  for (const Item& item : items) {
    in_.life.push_back(item.life);
    in_.bytes.push_back(item.bytes);
    in_.alignment.push_back(item.alignment);
  }
  in_.meets.resize(in_.count);
  in_.twin.resize(in_.count);
  for (std::uint32_t b = 0; b < in_.count; ++b) {
    in_.twin[b] = b;
    for (std::uint32_t a = 0; a < b; ++a) {
      if (!meet(in_.life[a], in_.life[b])) continue;
      in_.meets[a].push_back(b);
      in_.meets[b].push_back(a);
      if (in_.life[a] == in_.life[b] && in_.bytes[a] == in_.bytes[b] && in_.alignment[a] == in_.alignment[b])
        in_.twin[b] = a;
    }
    for (std::uint32_t s = in_.life[b].begin; s < in_.life[b].end; ++s) in_.load[s] += in_.bytes[b];
  }
}

std::uint64_t ExactSearch::mix(std::uint32_t buffer) const {
  std::uint64_t x = (lowest_[buffer] + 1) * 0x9e3779b97f4a7c15u ^ (buffer + 1) * 0xd6e8feb86659fd93u;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 32;
}

void ExactSearch::begin(std::uint64_t capacity, Prefer prefer) {
  capacity_ = capacity;
  unplaced_ = in_.count;
  floor_.assign(in_.sections, 0);
  left_ = in_.load;
  witness_.assign(in_.sections, 0);
  lowest_.assign(in_.count, 0);
  placed_.assign(in_.count, false);
  stirred_.assign(in_.sections, false);
  order_.resize(in_.count);
  std::iota(order_.begin(), order_.end(), 0u);
  where_ = order_;
  trail_.clear();
  failed_.clear();
  hash_ = 0;
  for (std::uint32_t b = 0; b < in_.count; ++b) hash_ ^= mix(b);
  std::vector<std::uint32_t> order(in_.count);
  std::iota(order.begin(), order.end(), 0u);
  const auto measure = [&](std::uint32_t b) {
    const std::uint64_t length = in_.life[b].end - in_.life[b].begin;
    const std::uint64_t area = length * in_.bytes[b];
    return prefer == Prefer::area     ? std::pair{area, length}
           : prefer == Prefer::length ? std::pair{length, in_.bytes[b]}
                                      : std::pair{in_.bytes[b], length};
  };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto x = measure(a), y = measure(b);
    return x != y ? x > y : a < b;
  });
  for (auto& list : in_.cover) list.clear();
  for (const std::uint32_t b : order)
    for (std::uint32_t s = in_.life[b].begin; s < in_.life[b].end; ++s) in_.cover[s].push_back(b);
  for (std::uint32_t s = 0; s < in_.sections; ++s)
    if (!in_.cover[s].empty()) witness_[s] = in_.cover[s].front();
}

Found ExactSearch::run(std::uint64_t capacity, std::uint64_t effort) {
  const std::uint64_t end = steps_ + effort;
  for (const std::uint64_t load : in_.load)
    if (load > capacity) return Found::proof_of_none;
  // a dive or two
  const std::uint64_t unit =
      std::max<std::uint64_t>(least_limit, std::uint64_t{in_.count} * in_.count * in_.count / 32);
  for (unsigned round = 0; steps_ < end; ++round) {
    begin(capacity, std::array{Prefer::bytes, Prefer::length, Prefer::area}[round % 3]);
    limit_ = std::min(end, steps_ + unit * luby(round / 3 + 1));
    const Found found = search();
    if (found != Found::nothing_yet) return found;
    // old failures count less, but tell this round from the last
    for (double& w : weight_) w = 1 + (w - 1) * 0.5;
  }
  return Found::nothing_yet;
}

bool ExactSearch::rescan(std::uint32_t section) {
  std::uint64_t low = never;
  std::uint32_t who = 0;
  for (const std::uint32_t b : in_.cover[section]) {
    ++steps_;
    if (!placed_[b] && lowest_[b] < low) low = lowest_[b], who = b;
    if (low == floor_[section]) break;  // it never sinks
  }
  trail_.push_back({section, true, witness_[section], floor_[section]});
  witness_[section] = who;
  floor_[section] = low;  // never: no buffer is left, and the section is a wall for its neighbours
  if (low == never || low + left_[section] <= capacity_) return true;
  weight_[section] += 1;
  return false;
}

// The lowest buffer of a section has moved up: settle() looks again, once for all that move.
void ExactSearch::stir(std::uint32_t buffer) {
  for (std::uint32_t s = in_.life[buffer].begin; s < in_.life[buffer].end; ++s) {
    if (witness_[s] != buffer || stirred_[s]) continue;
    stirred_[s] = true;
    to_settle_.push_back(s);
  }
}

void ExactSearch::raise(std::uint32_t buffer, std::uint64_t to) {
  if (lowest_[buffer] >= to) return;
  if (in_.alignment[buffer] > 1) to = (to + in_.alignment[buffer] - 1) / in_.alignment[buffer] * in_.alignment[buffer];
  trail_.push_back({buffer, false, 0, lowest_[buffer]});
  hash_ ^= mix(buffer);
  lowest_[buffer] = to;
  hash_ ^= mix(buffer);
  stir(buffer);
}

bool ExactSearch::settle() {
  bool fits = true;
  for (const std::uint32_t s : to_settle_) {
    stirred_[s] = false;
    fits = fits && rescan(s);
  }
  to_settle_.clear();
  return fits;
}

bool ExactSearch::place(std::uint32_t buffer) {
  placed_[buffer] = true;
  const std::uint32_t at = where_[buffer], last = order_[--unplaced_];
  std::swap(order_[at], order_[unplaced_]);
  std::swap(where_[buffer], where_[last]);
  hash_ ^= mix(buffer);
  const std::uint64_t top = lowest_[buffer] + in_.bytes[buffer];
  for (std::uint32_t s = in_.life[buffer].begin; s < in_.life[buffer].end; ++s) left_[s] -= in_.bytes[buffer];
  steps_ += in_.meets[buffer].size();
  stir(buffer);
  for (const std::uint32_t other : in_.meets[buffer])
    if (!placed_[other]) raise(other, top);
  return settle();
}

void ExactSearch::undo(std::size_t mark) {
  for (; trail_.size() > mark; trail_.pop_back()) {
    const Change& change = trail_.back();
    if (change.section) {
      floor_[change.index] = change.value;
      witness_[change.index] = change.witness;
    } else {
      hash_ ^= mix(change.index);
      lowest_[change.index] = change.value;
      hash_ ^= mix(change.index);
    }
  }
}

void ExactSearch::take_back(std::uint32_t buffer) {
  for (std::uint32_t s = in_.life[buffer].begin; s < in_.life[buffer].end; ++s) left_[s] += in_.bytes[buffer];
  placed_[buffer] = false;
  ++unplaced_;  // the last one placed is the first one behind the unplaced
  hash_ ^= mix(buffer);
}

// The bottom of this section stays empty. The lowest buffer over it then rests on a buffer that is not over it.
bool ExactSearch::leave_empty(std::uint32_t section) {
  const std::uint64_t bottom = floor_[section];
  std::uint64_t rest = never;
  Sections reach{section, section + 1};  // all that those at the bottom cover: what they can rest on meets it
  for (const std::uint32_t b : in_.cover[section]) {
    if (placed_[b]) continue;
    if (lowest_[b] > bottom) {
      rest = std::min(rest, lowest_[b]);
    } else {
      reach = {std::min(reach.begin, in_.life[b].begin), std::max(reach.end, in_.life[b].end)};
    }
  }
  for (std::uint32_t i = 0; i < unplaced_; ++i) {
    const std::uint32_t under = order_[i];
    if (meet(in_.life[under], reach) && !covers(in_.life[under], section))
      rest = std::min(rest, lowest_[under] + in_.bytes[under]);
  }
  steps_ += in_.cover[section].size() + unplaced_;
  if (rest == never || rest + left_[section] > capacity_) {
    weight_[section] += 1;
    return false;
  }
  for (const std::uint32_t b : in_.cover[section])
    if (!placed_[b]) raise(b, rest);
  return settle();
}

// How many buffers can lie at the bottom of each section, counted from those that can: 0 where the section is in no
// valley.
void ExactSearch::count_options() {
  options_.assign(in_.sections + 1, 0);
  in_valley_.assign(in_.sections, false);
  for (std::uint32_t from = 0; from < in_.sections;) {
    std::uint32_t to = from + 1;
    while (to < in_.sections && floor_[to] == floor_[from]) ++to;
    const bool low = floor_[from] != never && (from == 0 || floor_[from - 1] > floor_[from]) &&
                     (to == in_.sections || floor_[to] > floor_[from]);
    if (low) std::fill(in_valley_.begin() + from, in_valley_.begin() + to, true);
    from = to;
  }
  for (std::uint32_t i = 0; i < unplaced_; ++i) {
    const std::uint32_t b = order_[i];
    const Sections life = in_.life[b];
    if (in_valley_[life.begin] && lowest_[b] == floor_[life.begin]) ++options_[life.begin], --options_[life.end];
  }
  for (std::uint32_t s = 0; s < in_.sections; ++s) options_[s + 1] += options_[s];
  steps_ += 2 * in_.sections + unplaced_;
}

// The section with the fewest options for how often branches failed there: doomed branches are to fail early.
std::uint32_t ExactSearch::choose() {
  count_options();
  std::uint32_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t s = 0; s < in_.sections; ++s) {
    if (!in_valley_[s]) continue;
    const int waste = floor_[s] + left_[s] < capacity_ ? 1 : 0;
    const double score = (options_[s] + waste) / weight_[s];
    if (score < least) least = score, best = s;
  }
  return best;
}

bool ExactSearch::nothing_above(std::uint32_t buffer) const {
  for (std::uint32_t s = in_.life[buffer].begin; s < in_.life[buffer].end; ++s)
    if (left_[s] != in_.bytes[buffer]) return false;
  return true;
}

Found ExactSearch::search() {
  if (unplaced_ == 0) {
    solution_ = lowest_;
    return Found::offsets;
  }
  if (steps_ > limit_) return Found::nothing_yet;
  ++nodes_;
  const std::uint64_t state = hash_;
  if (failed_.contains(state)) return Found::proof_of_none;
  const Found found = try_each(choose());
  if (found == Found::proof_of_none && failed_.size() < most_remembered) failed_.insert(state);
  return found;
}

Found ExactSearch::try_each(std::uint32_t section) {
  const std::size_t mark = trail_.size();
  const std::uint64_t bottom = floor_[section];
  for (const std::uint32_t b : in_.cover[section]) {
    if (placed_[b] || lowest_[b] != bottom) continue;
    const std::uint32_t twin = in_.twin[b];
    if (twin != b && !placed_[twin] && lowest_[twin] == bottom) continue;  // the same again
    const bool last = nothing_above(b);
    const Found found = place(b) ? search() : Found::proof_of_none;
    if (found != Found::proof_of_none) return found;
    undo(mark);
    take_back(b);
    if (last)
      return Found::proof_of_none;  // no buffer is in its way and it is in no buffer's: if not here, then nowhere
  }
  const Found found = leave_empty(section) ? search() : Found::proof_of_none;
  if (found == Found::proof_of_none) undo(mark);
  return found;
}

}  // namespace vedette::pack
