#include "pack/op_sections.h"

#include <algorithm>

namespace vedette {
namespace {

struct Cut {  // of the whole log: where each new op lies in the old one
  std::vector<std::uint32_t> first;
  std::vector<Span<std::uint32_t>> events;  // by new op
};

// The section in which event `event` happened; an event before the op counts for its first section, one after it for
// its last.
std::uint32_t section_at(const Cut& cut, std::uint32_t op, std::uint32_t event) {
  std::uint32_t at = cut.first[op];
  while (at + 1 < cut.first[op + 1] && event > cut.events[at].end) ++at;
  return at;
}

bool in(const std::vector<std::uint32_t>& list, std::uint32_t tensor) {
  return std::find(list.begin(), list.end(), tensor) != list.end();
}

void keep(OperandList& operands, const LogSection& section, const std::vector<LogSection>& all) {
  operands.erase_if([&](std::uint32_t t) {
    return !in(section.touched, t) &&
           std::any_of(all.begin(), all.end(), [&](const LogSection& s) { return in(s.touched, t); });
  });
}

}  // namespace

SectionedLog cut_into_sections(StepLog log, std::span<const SectionedOp> ops) {
  SectionedLog result;
  Cut cut;
  std::vector<LoggedOp> cut_ops;
  auto next = ops.begin();
  for (std::uint32_t i = 0; i < log.ops.size(); ++i) {
    cut.first.push_back(static_cast<std::uint32_t>(cut_ops.size()));
    if (next == ops.end() || next->op != i) {
      cut.events.push_back(log.ops[i].events);
      cut_ops.push_back(std::move(log.ops[i]));
      continue;
    }
    const std::vector<LogSection>& sections = (next++)->sections;
    for (std::size_t s = 0; s < sections.size(); ++s) {
      LoggedOp& part = cut_ops.emplace_back(log.ops[i]);
      part.time = sections[s].time;
      part.events = {s == 0 ? log.ops[i].events.begin : sections[s].after_event,
                     s + 1 < sections.size() ? sections[s + 1].after_event : log.ops[i].events.end};
      keep(part.reads, sections[s], sections);
      keep(part.writes, sections[s], sections);
      cut.events.push_back(part.events);
    }
  }
  cut.first.push_back(static_cast<std::uint32_t>(cut_ops.size()));
  for (std::uint32_t t = 0; t < log.tensors.size(); ++t) {
    LoggedTensor& tensor = log.tensors[t];
    const std::uint32_t born_in = tensor.birth_op;
    if (tensor.birth > 0)
      tensor.birth_op = born_in < log.ops.size() ? section_at(cut, born_in, tensor.birth) : cut.first.back();
    if (tensor.death_op >= 0)
      tensor.death_op = section_at(cut, static_cast<std::uint32_t>(tensor.death_op), tensor.death);
    if (tensor.birth == 0 || born_in >= log.ops.size() || tensor.birth <= cut.events[cut.first[born_in]].begin)
      continue;
    for (std::uint32_t s = tensor.birth_op + 1; s < cut.first[born_in + 1] && tensor.death > cut.events[s].begin; ++s)
      if (!cut_ops[s].writes.contains(t)) cut_ops[s].writes.push_back(t);
  }
  for (LoggedPages& pages : log.pages) pages.op = cut.first[pages.op + 1] - 1;
  log.ops = std::move(cut_ops);
  result.log = std::move(log);
  result.first = std::move(cut.first);
  return result;
}

Trace whole_ops(const Trace& sectioned, std::span<const std::uint32_t> first) {
  Trace whole = sectioned;
  whole.ops.clear();
  for (std::size_t i = 0; i + 1 < first.size(); ++i) {
    Op op = sectioned.ops[first[i]];
    for (std::uint32_t s = first[i] + 1; s < first[i + 1]; ++s) {
      const Op& part = sectioned.ops[s];
      op.time += part.time;
      op.workspace = std::max(op.workspace, part.workspace);
      for (const auto& [to, from] :
           {std::pair{&op.reads, &part.reads}, {&op.writes, &part.writes}, {&op.frees, &part.frees}})
        to->insert(to->end(), from->begin(), from->end());
    }
    sort_operands(op);
    whole.ops.push_back(std::move(op));
  }
  return whole;
}

Plan whole_ops(Plan sectioned, std::span<const std::uint32_t> first) {
  const auto op_of = [&](OpIndex section) -> OpIndex {
    return {static_cast<std::uint32_t>(std::upper_bound(first.begin(), first.end() - 1, section.value) - first.begin() -
                                       1)};
  };
  for (Move& move : sectioned.moves) move.issue = op_of(move.issue), move.due = op_of(move.due);
  for (InPlace& used : sectioned.in_place) used.op = op_of(used.op);
  for (Recomputation& again : sectioned.recomputations)
    again.before = op_of(again.before), again.producer = op_of(again.producer);
  for (OpIndex& barrier : sectioned.barriers) barrier = op_of(barrier);
  return sectioned;
}

std::vector<WatchedSection> worth_planning(std::vector<WatchedSection> watched,
                                           std::span<const std::uint32_t> operand_chunks, Bytes chunk,
                                           std::uint32_t least_difference) {
  constexpr std::int64_t least_time = 200'000;
  const auto difference = [&](const WatchedSection& a, const WatchedSection& b) {
    std::uint64_t chunks = b.bytes / chunk.value;
    for (std::size_t k = 0; k < operand_chunks.size(); ++k)
      chunks += (a.touched[k] != b.touched[k]) ? operand_chunks[k] : 0;
    return chunks;
  };
  const auto join = [](WatchedSection& into, const WatchedSection& next) {
    into.time += next.time;
    for (std::size_t k = 0; k < into.touched.size(); ++k) into.touched[k] |= next.touched[k];
  };
  while (watched.size() > 1) {
    // The pair that loses least by being one: first those that are alike, then those of which one is short.
    std::size_t best = watched.size();
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t s = 0; s + 1 < watched.size(); ++s) {
      const std::uint64_t chunks = difference(watched[s], watched[s + 1]);
      const bool short_one = std::min(watched[s].time, watched[s + 1].time).value < least_time;
      if ((chunks < least_difference || short_one) && chunks < least) best = s, least = chunks;
    }
    if (best == watched.size()) break;
    join(watched[best], watched[best + 1]);
    watched.erase(watched.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  for (std::size_t k = 0; k < operand_chunks.size(); ++k) {
    if (std::any_of(watched.begin(), watched.end(), [&](const WatchedSection& s) { return s.touched[k] != 0; }))
      continue;
    for (WatchedSection& s : watched) s.touched[k] = 1;
  }
  return watched;
}

}  // namespace vedette
