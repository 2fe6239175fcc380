#include "pack/offsets.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/arithmetic.h"
#include "pack/exact.h"
#include "pack/first_fit.h"
#include "pack/online_pool.h"
#include "pack/orders.h"
#include "pack/radix.h"

namespace vedette::pack {
namespace {

constexpr std::size_t most_for_search = 2500;  // buffers of one part: a search keeps all pairs that meet
// buffers of one part: first fit in the order of birth is not the cheapest any more
constexpr std::size_t many = 50'000;
constexpr std::size_t most_for_permutations = 7;
constexpr std::size_t few_mixed =
    200;  // buffers that are not alike: worth a longer search, which proves little about more
constexpr std::uint64_t most_unit = 1 << 20;  // of the blocks of a pool
constexpr std::size_t most_visits = 8;        // of every buffer, while time is taken apart
constexpr std::uint64_t most_steps_of_moves = 30'000'000, most_steps_of_few = 100'000'000;
constexpr std::uint64_t steps_of_a_proof = 10'000'000;  // of few buffers, where they are not alike
constexpr std::size_t moves_remembered = 100, moves_to_restart = 2000;
constexpr std::uint64_t unknown = ~std::uint64_t{0};

class Planner {
 public:
  Planner(const Problem& problem, std::optional<Bytes> capacity, Effort effort)
      : problem_(problem), capacity_(capacity), effort_(effort) {}

  Layout plan();

 private:
  // buffers whose offsets are to be found above `base`, in a time that no other of them crosses
  struct Part {
    std::vector<std::uint32_t> buffers;  // by birth
    std::uint64_t base = 0;
  };

  bool plain() const { return problem_.away.empty() && problem_.chunk == 0; }
  bool uniform() const;
  std::vector<Part> parts_of(Part whole);
  std::uint64_t solve(const Part& part, std::uint64_t enough);
  bool solved_before(const Part& part);
  void first_fits(const Part& part, std::uint64_t enough);
  bool first_fit(const Part& part, Order order, std::uint64_t steps);
  struct Placed {
    std::vector<std::uint32_t> order;
    std::vector<std::uint64_t> offset;  // in that order; complete where `below`
    std::uint64_t top = 0, steps = 0;
    bool below = false;
  };
  Placed place(const Part& part, std::vector<std::uint32_t> order, std::uint64_t below, std::uint64_t steps);
  void keep(const Placed& placed);
  void move_ahead(const Part& part, std::uint64_t enough);
  void best_fit(const Part& part, std::uint64_t block = 1);
  void best_fit_of_all(const Part& whole, bool exact);
  void search(const Part& part, std::uint64_t enough, std::uint64_t effort);
  void permutations(const Part& part);
  std::uint64_t top_of(const Part& part) const;
  std::uint64_t bytes(std::uint32_t b) const {
    return round_up(problem_.buffers[b].bytes.value, problem_.buffers[b].alignment);
  }
  Sections span_of(std::uint32_t b) const { return {timeline_.of(b).front().begin, timeline_.of(b).back().end}; }
  Sections span_of(const Part& part) const;

  const Problem& problem_;
  const std::optional<Bytes> capacity_;
  Effort effort_;
  // one alignment, no chunks, no buffer is ever away: time can be taken apart, and searched
  bool uniform_ = false;
  Timeline timeline_;
  std::vector<std::uint64_t> load_;
  // by a hash of their shape: a program that repeats itself is planned once
  std::multimap<std::uint64_t, Part> solved_;
  std::vector<std::uint64_t> offset_;
  std::uint64_t bound_ = 0, peak_ = 0;
  std::uint64_t highest_ = 0;  // top of the highest part so far, which how_ is about
  std::string how_, found_by_;
};

bool Planner::uniform() const {
  return plain() && std::all_of(problem_.buffers.begin(), problem_.buffers.end(),
                                [&](const Buffer& b) { return b.alignment == problem_.buffers.front().alignment; });
}

Sections Planner::span_of(const Part& part) const {
  Sections all = span_of(part.buffers.front());
  for (const std::uint32_t b : part.buffers)
    all = {std::min(all.begin, span_of(b).begin), std::max(all.end, span_of(b).end)};
  return all;
}

Layout Planner::plan() {
  timeline_ = cut_time(problem_);
  load_ = loads(problem_, timeline_);
  offset_.assign(problem_.buffers.size(), 0);
  uniform_ = uniform();
  bound_ = most_live(problem_).value;
  Part whole{.buffers = by_birth(problem_), .base = 0};
  const std::size_t count = whole.buffers.size();
  if (count == 0) return {.offset = std::move(offset_), .how = "nothing lives"};
  if (effort_.greedy == 0) effort_.greedy = std::clamp<std::uint64_t>(1000 * count, 12'000'000, 60'000'000);
  if (effort_.exact == 0) effort_.exact = capacity_ ? 4'000'000'000 : 250'000'000;
  // Where no more than this lives at once, no effort is needed. In rounded bytes, a plan may end in its last buffer's
  // padding.
  std::uint64_t enough =
      std::max(capacity_ ? capacity_->value : 0, uniform_ ? *std::max_element(load_.begin(), load_.end()) : bound_);
  bool apart = false;  // time, or something at its bottom
  if (uniform_) {
    const std::vector<Part> parts = parts_of(whole);
    apart = parts.size() != 1 || parts.front().buffers.size() != count;
    // The part that ends highest decides how much effort the others deserve; the largest is the likeliest.
    for (const Part& part : parts) enough = std::max(enough, solve(part, enough));
  } else {
    enough = std::max(enough, solve(whole, enough));
  }
  for (const std::uint32_t b : whole.buffers) peak_ = std::max(peak_, offset_[b] + problem_.buffers[b].bytes.value);
  if (plain() && peak_ > bound_ && (!capacity_ || peak_ > capacity_->value) && count > most_for_search)
    best_fit_of_all(whole, apart || !uniform_);
  if (peak_ > bound_ && (!capacity_ || peak_ > capacity_->value) && count <= most_for_permutations) permutations(whole);
  return {.offset = std::move(offset_),
          .peak = {peak_},
          .bound = {std::min(bound_, peak_)},
          .how = how_.empty() ? "bottom" : how_};
}

// Buffers that live through all of the part's time lie at its bottom: in any plan they can be moved there without
// raising the peak. Without them, time may fall apart. Returns the parts that do not come apart any more, the largest
// first.
std::vector<Planner::Part> Planner::parts_of(Part whole) {
  std::vector<Part> open, closed;
  std::size_t visits = whole.buffers.size() * most_visits;
  open.push_back(std::move(whole));
  while (!open.empty()) {
    Part part = std::move(open.back());
    open.pop_back();
    if (visits < part.buffers.size()) {
      closed.push_back(std::move(part));
      continue;
    }
    visits -= part.buffers.size();
    const Sections all = span_of(part);
    std::uint64_t base = part.base;
    for (const std::uint32_t b : part.buffers)
      if (span_of(b) == all) offset_[b] = base, base += bytes(b);
    std::vector<Part> pieces;
    std::uint32_t end = 0;
    for (const std::uint32_t b : part.buffers) {
      if (span_of(b) == all) continue;
      if (pieces.empty() || span_of(b).begin >= end) pieces.push_back({{}, base});
      pieces.back().buffers.push_back(b);
      end = std::max(end, span_of(b).end);
    }
    const bool changed = base != part.base || pieces.size() > 1;
    for (Part& piece : pieces) (changed ? open : closed).push_back(std::move(piece));
  }
  std::stable_sort(closed.begin(), closed.end(),
                   [](const Part& a, const Part& b) { return a.buffers.size() > b.buffers.size(); });
  return closed;
}

std::uint64_t Planner::top_of(const Part& part) const {
  std::uint64_t top = 0;
  for (const std::uint32_t b : part.buffers)
    top = std::max(top, offset_[b] + (uniform_ ? bytes(b) : problem_.buffers[b].bytes.value));
  return top;
}

// Offsets for one part, not higher than `enough` if that can be found. Returns their top.
std::uint64_t Planner::solve(const Part& part, std::uint64_t enough) {
  if (uniform_ && solved_before(part)) return top_of(part);
  first_fits(part, enough);
  const std::size_t count = part.buffers.size();
  const auto open = [&] { return top_of(part) > std::max(enough, bound_); };
  if (uniform_ && count <= most_for_search && open()) search(part, enough, effort_.exact);
  if (!uniform_ && count > most_for_permutations) {
    const bool searched = plain() && count <= few_mixed;
    if (searched && open()) search(part, enough, std::min(effort_.exact, steps_of_a_proof));
    if (count <= most_for_search && open()) move_ahead(part, enough);
    if (searched && open()) search(part, enough, effort_.exact);
  }
  const std::uint64_t top = top_of(part);
  if (top > highest_) highest_ = top, how_ = found_by_;
  return top;
}

// Takes over the offsets of a part of the same shape, and otherwise remembers this one.
bool Planner::solved_before(const Part& part) {
  const std::uint32_t from = span_of(part).begin;
  const auto shape = [&](const Part& of, std::size_t i, std::uint32_t start) {
    const Sections span = span_of(of.buffers[i]);
    return std::tuple{span.begin - start, span.end - start, bytes(of.buffers[i])};
  };
  std::uint64_t hash = part.buffers.size();
  for (std::size_t i = 0; i < part.buffers.size(); ++i) {
    const auto [begin, end, size] = shape(part, i, from);
    hash = (hash ^ begin) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 29 ^ end) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 32 ^ size) * 0x94d049bb133111ebu;
  }
  const auto [first, last] = solved_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Part& other = it->second;
    const std::uint32_t start = span_of(other).begin;
    bool same = other.buffers.size() == part.buffers.size();
    for (std::size_t i = 0; same && i < part.buffers.size(); ++i) same = shape(part, i, from) == shape(other, i, start);
    if (!same) continue;
    for (std::size_t i = 0; i < part.buffers.size(); ++i)
      offset_[part.buffers[i]] = offset_[other.buffers[i]] - other.base + part.base;
    return true;
  }
  solved_.emplace(hash, part);
  return false;
}

void Planner::first_fits(const Part& part, std::uint64_t enough) {
  static constexpr Order few[] = {Order::size,  Order::length,   Order::balanced,
                                  Order::birth, Order::pressure, Order::area};
  static constexpr Order cheap_first[] = {Order::size,     Order::length,   Order::birth,
                                          Order::pressure, Order::balanced, Order::area};
  for (const std::uint32_t b : part.buffers) offset_[b] = unknown / 2;
  if (uniform_ && part.buffers.size() > many) best_fit(part);
  for (const Order order : part.buffers.size() > many ? cheap_first : few) {
    if (top_of(part) <= enough) return;
    // No order may use up the effort of the others.
    if (first_fit(part, order, effort_.greedy / 2)) found_by_ = name(order);
  }
}

// As an allocator would that does not know the future: in O(log n) a buffer, whatever their lives look like.
void Planner::best_fit(const Part& part, std::uint64_t block) {
  std::vector<Keyed> deaths;
  deaths.reserve(part.buffers.size());
  for (const std::uint32_t b : part.buffers) deaths.push_back({span_of(b).end, b});
  radix_sort(deaths);
  BestFitPool pool;
  auto dead = deaths.begin();
  for (const std::uint32_t b : part.buffers) {
    for (; dead->key <= span_of(b).begin; ++dead)
      pool.give(offset_[dead->value] - part.base, round_up(bytes(dead->value), block));
    offset_[b] = part.base + pool.take(round_up(bytes(b), block));
  }
  found_by_ = "best fit";
}

// Parts may end higher than one pool for all of them, because their bottoms keep their place for the part's whole time.
// A pool of coarse blocks is at times lower than one of exact sizes, because its holes fit more buffers. Blocks are
// multiples of every alignment. `exact`: a pool of the smallest blocks was not tried yet.
void Planner::best_fit_of_all(const Part& whole, bool exact) {
  std::uint64_t unit = 1;
  for (const std::uint32_t b : whole.buffers) {
    unit = std::lcm(unit, problem_.buffers[b].alignment);
    if (unit > most_unit) return;
  }
  for (const std::uint64_t block : {unit, pool_granule}) {
    if (block == unit ? !exact : block % unit != 0) continue;
    std::vector<std::uint64_t> before = offset_;
    best_fit(whole, block);
    std::uint64_t top = 0;
    for (const std::uint32_t b : whole.buffers) top = std::max(top, offset_[b] + problem_.buffers[b].bytes.value);
    if (top < peak_) {
      peak_ = top;
      how_ = found_by_;
    } else {
      offset_ = std::move(before);
    }
  }
}

// Whether it got lower than it was.
bool Planner::first_fit(const Part& part, Order order, std::uint64_t steps) {
  const std::uint64_t best = top_of(part);
  const bool first = best >= unknown / 2;
  if (!first && steps == 0) return false;
  const auto placed =
      place(part, sorted(problem_, timeline_, load_, part.buffers, order), first ? unknown : best, steps);
  effort_.greedy -= std::min(effort_.greedy, placed.steps);
  if (!placed.below) return false;
  keep(placed);
  return true;
}

// Each buffer of `order` at the lowest offset that its predecessors leave free. Given up where the top reaches `below`,
// or, where there is such a bound, after `steps`.
Planner::Placed Planner::place(const Part& part, std::vector<std::uint32_t> order, std::uint64_t below,
                               std::uint64_t steps) {
  const Sections all = span_of(part);
  AddressTree tree(all.end - all.begin);
  Placed placed{.order = std::move(order), .top = part.base, .steps = all.end - all.begin, .below = true};
  placed.offset.reserve(placed.order.size());
  std::vector<Sections> life;
  for (const std::uint32_t b : placed.order) {
    life.assign(timeline_.of(b).begin(), timeline_.of(b).end());
    for (Sections& piece : life) piece = {piece.begin - all.begin, piece.end - all.begin};
    const Buffer& buffer = problem_.buffers[b];
    const std::uint64_t size = uniform_ ? bytes(b) : buffer.bytes.value;  // rounded, every offset is aligned by itself
    const Shape shape{.bytes = size, .alignment = uniform_ ? 1 : buffer.alignment, .chunk = problem_.chunk};
    const std::uint64_t offset = tree.first_fit(life, shape);
    tree.insert(life, offset, offset + size);
    placed.offset.push_back(part.base + offset);
    placed.top = std::max(placed.top, part.base + offset + size);
    placed.below = placed.top < below && (below == unknown || tree.steps() <= steps);
    if (!placed.below) break;
  }
  placed.steps += tree.steps();
  return placed;
}

void Planner::keep(const Placed& placed) {
  for (std::size_t i = 0; i < placed.order.size(); ++i) offset_[placed.order[i]] = placed.offset[i];
}

// For parts too large for the exact search: the best placement's order, one buffer after the other moved ahead in it,
// often one of those that end highest. A move stays unless the peak is above both the last one and that of some moves
// ago (late acceptance, Burke and Bykov, 2017). First fit in the order of offsets never ends higher.
void Planner::move_ahead(const Part& part, std::uint64_t enough) {
  std::vector<std::uint32_t> order = part.buffers;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return offset_[a] < offset_[b]; });
  Placed now = place(part, std::move(order), unknown, 0);
  std::uint64_t best = top_of(part), luck = part.buffers.size();
  std::uint64_t left =
      std::min(effort_.exact, part.buffers.size() <= few_mixed ? most_steps_of_few : most_steps_of_moves);
  if (now.top < best) keep(now), best = now.top, found_by_ = "moves";
  std::vector<std::uint64_t> earlier(moves_remembered, now.top);
  std::vector<std::size_t> highest;
  std::size_t idle = 0;  // moves since the last gain
  for (std::size_t move = 0; best > enough && left > 0; ++move) {
    if (++idle > moves_to_restart) {
      std::vector<std::uint32_t> shuffled = now.order;
      for (std::size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[next_random(luck) % i]);
      now = place(part, std::move(shuffled), unknown, 0);
      earlier.assign(moves_remembered, now.top);
      left -= std::min(left, now.steps);
      idle = 0;
    }
    std::uint64_t& then = earlier[move % moves_remembered];
    highest.clear();
    for (std::size_t i = 0; i < now.order.size(); ++i)
      if (now.offset[i] + problem_.buffers[now.order[i]].bytes.value == now.top) highest.push_back(i);
    const std::uint64_t draw = next_random(luck);
    const std::size_t from = draw % 2 == 0 ? highest[draw / 2 % highest.size()] : draw / 2 % now.order.size();
    std::vector<std::uint32_t> moved = now.order;
    const auto to = static_cast<std::ptrdiff_t>(next_random(luck) % (from + 1));
    std::rotate(moved.begin() + to, moved.begin() + static_cast<std::ptrdiff_t>(from),
                moved.begin() + static_cast<std::ptrdiff_t>(from) + 1);
    Placed tried = place(part, std::move(moved), std::max(now.top, then) + 1, left);
    left -= std::min(left, tried.steps);
    if (tried.below) {
      if (tried.top < now.top) idle = 0;
      now = std::move(tried);
    }
    then = now.top;
    if (now.top < best) keep(now), best = now.top, found_by_ = "moves";
  }
}

void Planner::search(const Part& part, std::uint64_t enough, std::uint64_t effort) {
  const Sections all = span_of(part);
  std::vector<ExactSearch::Item> items;
  for (const std::uint32_t b : part.buffers) {
    const Buffer& buffer = problem_.buffers[b];
    items.push_back({.life = {span_of(b).begin - all.begin, span_of(b).end - all.begin},
                     .bytes = uniform_ ? bytes(b) : buffer.bytes.value,
                     .alignment = uniform_ ? 1 : buffer.alignment});
  }
  ExactSearch exact(all.end - all.begin, items);
  const std::uint64_t padding = uniform_ ? problem_.buffers.front().alignment - 1 : 0;
  std::uint64_t low = enough, high = top_of(part);
  // The lowest capacity comes first and gets most of the effort: the tighter it is, the better the search prunes. It
  // prunes little where alignments differ, so there each capacity is just below the best.
  const auto next = [&] { return uniform_ ? low + (high - low) / 2 : high - 1; };
  for (std::uint64_t capacity = uniform_ || capacity_ ? low : next(); low < high && exact.steps() < effort;
       capacity = next()) {
    const std::uint64_t left = effort - exact.steps();
    const Found found = exact.run(capacity - part.base, capacity_ ? left : std::max<std::uint64_t>(left / 2, 100'000));
    if (found == Found::offsets) {
      for (std::size_t i = 0; i < part.buffers.size(); ++i) offset_[part.buffers[i]] = part.base + exact.offsets()[i];
      high = top_of(part);
      found_by_ = "search";
    } else {
      low = capacity + 1;
      if (found == Found::proof_of_none && low > padding) bound_ = std::max(bound_, low - padding);
      if (capacity_) break;  // it was asked for this one
    }
  }
  effort_.exact -= std::min(effort_.exact, exact.steps());
}

// In the order of the offsets of a best plan, first fit puts no buffer higher than that plan does: some permutation is
// best.
void Planner::permutations(const Part& part) {
  std::vector<std::uint32_t> order = part.buffers;
  std::sort(order.begin(), order.end());
  do {
    AddressTree tree(timeline_.count);
    std::vector<std::uint64_t> offset(offset_.size(), 0);
    std::uint64_t peak = 0;
    for (const std::uint32_t b : order) {
      const Buffer& buffer = problem_.buffers[b];
      offset[b] = tree.first_fit(timeline_.of(b),
                                 {.bytes = buffer.bytes.value, .alignment = buffer.alignment, .chunk = problem_.chunk});
      tree.insert(timeline_.of(b), offset[b], offset[b] + buffer.bytes.value);
      peak = std::max(peak, offset[b] + buffer.bytes.value);
    }
    if (peak < peak_) offset_ = offset, peak_ = peak, how_ = "permutations";
  } while (peak_ > bound_ && std::next_permutation(order.begin(), order.end()));
  bound_ = peak_;  // all were tried, or none is lower
}

}  // namespace

Layout plan_offsets(const Problem& problem, std::optional<Bytes> capacity, Effort effort) {
  return Planner(problem, capacity, effort).plan();
}

}  // namespace vedette::pack
