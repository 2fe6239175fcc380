// Ways from living tensors to wanted ones: see lineage.h.
#include "session/lineage.h"

#include <algorithm>

namespace vedette::detail {

using Use = Lineage::Use;

// Entries stay with their room: a step like the one before allocates nothing.
void Lineage::forget() {
  constexpr std::size_t most = 1 << 20;
  if (tensors_.size() > most) tensors_.clear();
  if (ops_.size() > most) ops_.clear();
  for (History& each : tensors_) {
    each.writers.clear();
    each.alive = each.born_here = each.trusted = false;
  }
  for (Past& each : ops_) {
    each.recipe.reset();
    each.inputs.clear();
    each.results.clear();
  }
}

Lineage::History& Lineage::history(std::uint32_t tensor) {
  if (tensor >= tensors_.size()) tensors_.resize(tensor + std::size_t{1});
  return tensors_[tensor];
}

Lineage::Past& Lineage::past(std::uint32_t op) {
  if (op >= ops_.size()) ops_.resize(op + std::size_t{1});
  return ops_[op];
}

// --- what the step does ----------------------------------------------------------------------------------------------

void Lineage::exists(std::uint32_t tensor, bool trusted) {
  History& of = history(tensor);
  if (of.alive) return;
  of.alive = true;
  of.trusted = trusted;
}

void Lineage::born(std::uint32_t tensor, std::optional<std::uint32_t> in_op) {
  History& of = history(tensor);
  of.writers.clear();
  of.alive = of.born_here = true;
  of.trusted = false;
  if (!in_op) return;
  of.writers.push_back(*in_op);
  past(*in_op).results.push_back(tensor);
}

void Lineage::died(std::uint32_t tensor) { history(tensor).alive = false; }
void Lineage::lives(std::uint32_t tensor) { history(tensor).alive = true; }

void Lineage::begin_op(std::uint32_t op, std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes) {
  const auto in = [](std::span<const std::uint32_t> list, std::uint32_t t) {
    return std::find(list.begin(), list.end(), t) != list.end();
  };
  Past& of = past(op);
  for (const std::uint32_t t : reads) {
    history(t);
    of.inputs.push_back({.tensor = t, .version = version(t), .use = in(writes, t) ? Use::changed : Use::read});
  }
  for (const std::uint32_t t : writes) {
    History& written = history(t);
    if (!in(reads, t)) of.inputs.push_back({.tensor = t, .version = version(t), .use = Use::overwritten});
    if (!written.writers.empty() && written.writers.back() == op) continue;
    written.writers.push_back(op);
    of.results.push_back(t);
  }
}

void Lineage::drop_recipe(std::uint32_t op) { past(op).recipe.reset(); }

// --- what can be recomputed ------------------------------------------------------------------------------------------

struct Lineage::Search {
  std::span<const std::uint32_t> wanted;
  std::vector<Value> seen;
  std::vector<std::uint32_t> ops, made, sources;
};

bool Lineage::need(Search& search, Value value) const {
  if (std::find(search.seen.begin(), search.seen.end(), value) != search.seen.end()) return true;
  search.seen.push_back(value);
  const History& of = tensors_[value.tensor];
  const bool there =
      of.alive && std::find(search.wanted.begin(), search.wanted.end(), value.tensor) == search.wanted.end();
  if (there && of.writers.size() == value.version && value.use == Use::read && (value.version > 0 || of.trusted)) {
    search.sources.push_back(value.tensor);
    return true;
  }
  search.made.push_back(value.tensor);
  if (value.use == Use::overwritten) return true;
  if (value.version == 0) return of.born_here && value.use == Use::changed;  // its bytes are undefined
  const std::uint32_t op = of.writers[value.version - 1];
  if (op == no_op) return false;
  const std::vector<std::uint32_t>& results = ops_[op].results;
  if (std::find(results.begin(), results.end(), value.tensor) == results.end()) return false;
  if (std::find(search.ops.begin(), search.ops.end(), op) != search.ops.end()) return true;
  if (ops_[op].recipe == nullptr || search.ops.size() >= most_ops) return false;
  search.ops.push_back(op);
  return std::all_of(ops_[op].inputs.begin(), ops_[op].inputs.end(),
                     [&](const Value& input) { return need(search, input); });
}

std::optional<Lineage::Way> Lineage::way(std::span<const std::uint32_t> wanted) const {
  Search search{.wanted = wanted};
  for (const std::uint32_t t : wanted) {
    if (t >= tensors_.size() || tensors_[t].writers.empty()) return std::nullopt;
    if (!need(search, {.tensor = t, .version = version(t), .use = Use::read})) return std::nullopt;
  }
  Way way{.ops = std::move(search.ops), .made = std::move(search.made), .sources = std::move(search.sources)};
  for (auto* const list : {&way.ops, &way.made, &way.sources}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  // An op reads a tensor in one place: one that is made anew in an older version is no source.
  for (const std::uint32_t t : way.sources)
    if (std::binary_search(way.made.begin(), way.made.end(), t)) return std::nullopt;
  return way;
}

std::uint32_t Lineage::version(std::uint32_t tensor) const {
  return static_cast<std::uint32_t>(tensors_[tensor].writers.size());
}

bool Lineage::touches(std::uint32_t op, std::uint32_t tensor) const {
  const Past& of = ops_[op];
  return std::any_of(of.inputs.begin(), of.inputs.end(), [&](const Value& v) { return v.tensor == tensor; }) ||
         std::find(of.results.begin(), of.results.end(), tensor) != of.results.end();
}

}  // namespace vedette::detail
