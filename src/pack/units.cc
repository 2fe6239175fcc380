#include "pack/units.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/architecture.h"
#include "base/readable.h"

namespace vedette {
namespace {

struct Access {
  std::uint32_t op;
  bool read, write;
  auto operator<=>(const Access&) const = default;
};

struct History {               // of one chunk, from a birth to a death
  std::uint32_t birth, death;  // events
  std::uint32_t birth_op = 0;
  std::int64_t death_op = 0;
  bool persistent = false;
  Wish wish = Wish::none;
  std::vector<Access> accesses;  // sorted by op, unique
  std::uint32_t largest = 0;     // the tensor that names it
  bool same_as(const History& other) const {
    return birth == other.birth && death == other.death && persistent == other.persistent &&
           birth_op == other.birth_op && death_op == other.death_op && wish == other.wish && accesses == other.accesses;
  }
};

std::vector<std::vector<Access>> accesses_of(const StepLog& log) {
  std::vector<std::vector<Access>> of(log.tensors.size());
  for (std::uint32_t i = 0; i < log.ops.size(); ++i) {
    for (const std::uint32_t t : log.ops[i].reads) of[t].push_back({i, true, false});
    for (const std::uint32_t t : log.ops[i].writes) of[t].push_back({i, false, true});
  }
  // Being born is an access: the op writes there at once, also where the chunk's other tensors are away.
  for (std::size_t t = 0; t < of.size(); ++t) {
    const LoggedTensor& tensor = log.tensors[t];
    if (tensor.birth > 0 && tensor.birth_op < log.ops.size()) of[t].push_back({tensor.birth_op, false, true});
  }
  return of;
}

void merge(std::vector<Access>& into, const std::vector<Access>& from) {
  into.insert(into.end(), from.begin(), from.end());
  std::sort(into.begin(), into.end(), [](const Access& a, const Access& b) { return a.op < b.op; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < into.size(); ++i) {
    if (kept > 0 && into[kept - 1].op == into[i].op) {
      into[kept - 1].read |= into[i].read;
      into[kept - 1].write |= into[i].write;
    } else {
      into[kept++] = into[i];
    }
  }
  into.resize(kept);
}

bool lives_on(const LoggedTensor& t) { return t.death == ~0u && !t.dies_at_seam; }

// Histories of one chunk, in order of time: tensors that overlap in time share one.
std::vector<History> histories(const StepLog& log, std::vector<std::uint32_t> tensors,
                               const std::vector<std::vector<Access>>& accesses) {
  std::sort(tensors.begin(), tensors.end(),
            [&](auto a, auto b) { return log.tensors[a].birth < log.tensors[b].birth; });
  const auto last_op = static_cast<std::int64_t>(log.ops.size()) - 1;
  std::vector<History> result;
  for (const std::uint32_t i : tensors) {
    const LoggedTensor& t = log.tensors[i];
    if (t.death != ~0u && t.death_op < 0) continue;  // the last step's; this step's own like it is in the log too
    const bool survives = lives_on(t) || (t.birth == 0 && t.death != ~0u);
    const std::int64_t death_op = t.death == ~0u ? last_op : t.death_op;
    const bool joins = !result.empty() && t.birth < result.back().death;
    if (!joins)
      result.push_back({.birth = t.birth,
                        .death = t.death,
                        .birth_op = t.birth_op,
                        .death_op = death_op,
                        .wish = t.wish,
                        .largest = i});
    History& h = result.back();
    h.death = std::max(h.death, t.death);
    h.death_op = std::max(h.death_op, death_op);
    h.persistent |= survives;
    h.wish = together(h.wish, t.wish);
    if (log.tensors[h.largest].bytes < t.bytes) h.largest = i;
    merge(h.accesses, accesses[i]);
  }
  return result;
}

std::map<std::uint32_t, std::vector<std::uint32_t>> tensors_by_chunk(const StepLog& log, std::uint64_t chunk) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_chunk;
  for (std::uint32_t i = 0; i < log.tensors.size(); ++i) {
    const LoggedTensor& t = log.tensors[i];
    if (t.bytes.value == 0 || t.small || t.in_parts) continue;
    for (std::uint64_t c = t.offset / chunk; c * chunk < t.offset + t.bytes.value; ++c)
      by_chunk[static_cast<std::uint32_t>(c)].push_back(i);
  }
  return by_chunk;
}

struct OpenUnit {
  History history;
  UnitChunks where;
};

// Chunks that live only inside one op, by when: not worth a unit, since nothing can be done with them, but the op needs
// room for the most that live at once.
struct Scratch {
  std::uint32_t event;
  std::int64_t chunks;  // or bytes; born: > 0; died: < 0
};

void add_workspaces(Trace& trace, std::map<std::uint32_t, std::vector<Scratch>>& scratch, std::uint64_t chunk) {
  for (auto& [op, events] : scratch) {
    std::sort(events.begin(), events.end(), [](const Scratch& a, const Scratch& b) { return a.event < b.event; });
    std::int64_t now = 0, most = 0;
    for (const Scratch& s : events) most = std::max(most, now += s.chunks);
    trace.ops[op].workspace = {static_cast<std::uint64_t>(most) * chunk};
  }
}

void add_whole(Units& units, const OpenUnit& unit, const StepLog& log, std::uint64_t chunk) {
  const History& h = unit.history;
  const TensorIndex index{static_cast<std::uint32_t>(units.where.size())};
  const LoggedTensor& name = log.tensors[h.largest];
  units.where.push_back(unit.where);
  units.wishes.push_back(h.wish);
  units.trace.tensors.push_back(
      {.name = name.name, .bytes = {unit.where.count * chunk}, .kind = name.kind, .persistent = h.persistent});
  for (const Access& a : h.accesses) {
    Op& op = units.trace.ops[a.op];
    if (a.read) op.reads.push_back(index);
    if (a.write) op.writes.push_back(index);
  }
  if (h.persistent) return;
  const auto last = static_cast<std::uint32_t>(log.ops.size() - 1);
  // The program fills some memory between two ops: to a trace, the op that comes next brings it into being.
  Op& birth = units.trace.ops[std::min(h.birth_op, last)];
  if (birth.writes.empty() || birth.writes.back() != index) birth.writes.push_back(index);
  if (!birth.reads.empty() && birth.reads.back() == index) birth.reads.pop_back();
  units.trace.ops[static_cast<std::uint32_t>(std::clamp<std::int64_t>(h.death_op, 0, last))].frees.push_back(index);
}

void add_unit(Units& units, OpenUnit unit, const StepLog& log, std::uint64_t chunk, std::uint32_t most) {
  const std::uint64_t whole = std::uint64_t{most} + most / 2;
  while (unit.history.persistent && unit.where.count > whole) {
    add_whole(units, {.history = unit.history, .where = {unit.where.first, most}}, log, chunk);
    unit.where.first += most;
    unit.where.count -= most;
  }
  add_whole(units, unit, log, chunk);
}

// Chunks born and dead by event number, turned into the frames that each op will yet take after each of its events.
std::vector<std::vector<std::uint32_t>> frames_to_come_of(
    const StepLog& log, const std::map<std::uint32_t, std::int64_t>& chunks_by_event) {
  std::vector<std::vector<std::uint32_t>> frames_to_come(log.ops.size());
  for (std::size_t i = 0; i < log.ops.size(); ++i) {
    const auto [begin, end] = log.ops[i].events;
    std::vector<std::int64_t> held{0};
    for (std::uint32_t event = begin + 1; event <= end; ++event) {
      const auto change = chunks_by_event.find(event);
      held.push_back(held.back() + (change == chunks_by_event.end() ? 0 : change->second));
    }
    frames_to_come[i].resize(held.size());
    std::int64_t most = held.back();
    for (std::size_t k = held.size(); k-- > 0;) {
      most = std::max(most, held[k]);
      frames_to_come[i][k] = static_cast<std::uint32_t>(most - held[k]);
    }
  }
  return frames_to_come;
}

}  // namespace

void sort_operands(Op& op) {
  for (auto* list : {&op.reads, &op.writes, &op.frees}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
}

Units form_units(const StepLog& log, Bytes chunk_bytes, std::uint32_t most) {
  const std::uint64_t chunk = chunk_bytes.value;
  Units units;
  units.trace.name = "step";
  units.trace.source = "vedette";
  units.trace.device = log.device;
  units.trace.layers = log.layers;
  units.trace.ops.reserve(log.ops.size());
  for (const LoggedOp& op : log.ops)
    units.trace.ops.push_back({.name = op.name, .layer = op.layer, .phase = op.phase, .time = op.time});
  if (log.ops.empty()) return units;
  const auto accesses = accesses_of(log);
  std::map<std::uint32_t, std::vector<Scratch>> scratch;  // by op
  std::map<std::uint32_t, std::int64_t> chunks_by_event;
  std::vector<OpenUnit> open, still_open;  // of the chunk before
  std::uint32_t previous = 0;
  for (const auto& [number, tensors] : tensors_by_chunk(log, chunk)) {
    const std::uint32_t c = number;
    still_open.clear();
    for (History& h : histories(log, tensors, accesses)) {
      if (h.birth > 0) ++chunks_by_event[h.birth];
      if (h.death != ~0u) --chunks_by_event[h.death];
      if (!h.persistent && h.death != ~0u && h.birth_op == h.death_op && h.birth_op < log.ops.size()) {
        scratch[h.birth_op].push_back({h.birth, 1});
        scratch[h.birth_op].push_back({h.death, -1});
        continue;
      }
      const auto same = std::find_if(open.begin(), open.end(), [&](const OpenUnit& o) {
        return previous + 1 == c && o.where.first + o.where.count == c && o.history.same_as(h);
      });
      if (same != open.end()) {
        still_open.push_back(std::move(*same));
        still_open.back().where.count += 1;
        open.erase(same);
      } else {
        still_open.push_back({std::move(h), {c, 1}});
      }
    }
    for (const OpenUnit& closed : open) add_unit(units, closed, log, chunk, most);
    open.swap(still_open);
    previous = c;
  }
  for (const OpenUnit& closed : open) add_unit(units, closed, log, chunk, most);
  add_workspaces(units.trace, scratch, chunk);
  units.frames_to_come = frames_to_come_of(log, chunks_by_event);
  for (Op& op : units.trace.ops) sort_operands(op);
  return units;
}

namespace {

// The operands of each op among the tensors that the trace knows: [logged tensor].
void add_operands(Trace& trace, const StepLog& log, const std::vector<std::optional<TensorIndex>>& index) {
  for (std::size_t i = 0; i < log.ops.size(); ++i) {
    for (const std::uint32_t t : log.ops[i].reads) {
      // An op in place may be the first to touch a tensor (bernoulli_ on a fresh mask): there is nothing yet that it
      // could read.
      const bool born_here = index[t] && !trace.tensors[index[t]->value].persistent && log.tensors[t].birth_op == i;
      if (index[t] && !born_here) trace.ops[i].reads.push_back(*index[t]);
    }
    for (const std::uint32_t t : log.ops[i].writes)
      if (index[t]) trace.ops[i].writes.push_back(*index[t]);
  }
}

void add_pages(Trace& trace, const StepLog& log, const std::vector<std::optional<TensorIndex>>& index) {
  for (const LoggedPages& p : log.pages)
    if (index[p.tensor])
      trace.pages.push_back(
          {.op = {p.op}, .tensor = *index[p.tensor], .pages = p.pages, .read = p.read, .written = p.written});
  std::sort(trace.pages.begin(), trace.pages.end(), [](const PageAccess& a, const PageAccess& b) {
    return std::tie(a.op, a.tensor, a.pages) < std::tie(b.op, b.tensor, b.pages);
  });
}

}  // namespace

Trace program_trace(const StepLog& log, std::vector<std::uint32_t>* logged, WithinOneOp short_lived) {
  Trace trace{.name = "step",
              .source = "vedette",
              .device = log.device,
              .notes = log.notes,
              .layers = log.layers,
              .page_bytes = {page_size}};
  std::vector<std::optional<TensorIndex>> index(log.tensors.size());
  const auto last = static_cast<std::int64_t>(log.ops.size()) - 1;
  trace.ops.reserve(log.ops.size());
  for (const LoggedOp& op : log.ops)
    trace.ops.push_back({.name = op.name, .layer = op.layer, .phase = op.phase, .time = op.time});
  if (last < 0) return trace;
  std::map<std::uint32_t, std::vector<Scratch>> scratch;  // in bytes here
  for (std::size_t i = 0; i < log.tensors.size(); ++i) {
    const LoggedTensor& t = log.tensors[i];
    if (t.bytes.value == 0 || (t.death != ~0u && t.death_op < 0)) continue;
    if (short_lived == WithinOneOp::are_tensors && t.in_parts) continue;
    if (short_lived == WithinOneOp::are_workspace && t.birth > 0 && t.death != ~0u && t.birth_op == t.death_op &&
        t.birth_op <= last) {
      scratch[t.birth_op].push_back({t.birth, static_cast<std::int64_t>(t.bytes.value)});
      scratch[t.birth_op].push_back({t.death, -static_cast<std::int64_t>(t.bytes.value)});
      continue;
    }
    const bool persistent = lives_on(t) || t.birth == 0;
    index[i] = TensorIndex{static_cast<std::uint32_t>(trace.tensors.size())};
    trace.tensors.push_back(
        {.name = t.name, .bytes = t.bytes, .kind = t.kind, .persistent = persistent, .shape = t.shape, .site = t.site});
    if (logged != nullptr) logged->push_back(static_cast<std::uint32_t>(i));
    if (persistent) continue;
    trace.ops[std::min<std::size_t>(t.birth_op, static_cast<std::size_t>(last))].writes.push_back(*index[i]);
    const std::int64_t death_op = t.death == ~0u ? last : t.death_op;
    trace.ops[static_cast<std::size_t>(std::clamp<std::int64_t>(death_op, 0, last))].frees.push_back(*index[i]);
  }
  add_operands(trace, log, index);
  for (Op& op : trace.ops) sort_operands(op);
  add_workspaces(trace, scratch, 1);
  add_pages(trace, log, index);
  return trace;
}

void add_beside(Trace& trace, const StepLog& log) {
  std::map<std::pair<std::uint64_t, Bytes>, TensorIndex> index;
  for (const LoggedBeside& use : log.beside) {
    const auto [found, fresh] =
        index.try_emplace({use.address, use.bytes}, TensorIndex{static_cast<std::uint32_t>(trace.tensors.size())});
    if (fresh)
      trace.tensors.push_back({.name = use.name.empty() ? "beside " + readable(use.bytes) : use.name,
                               .bytes = use.bytes,
                               .kind = use.name.empty() ? TensorKind::activation : TensorKind::weight,
                               .persistent = true});
    Op& op = trace.ops[use.op];
    (use.written ? op.writes : op.reads).push_back(found->second);
  }
  for (Op& op : trace.ops) sort_operands(op);
}

}  // namespace vedette
