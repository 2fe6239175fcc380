// From the log of a step to a plan that runs: addresses for its temporaries, units, the policy's moves, and tables by
// op.
#include <algorithm>

#include "pack/coallocate.h"
#include "session/state.h"
#include "session/unchanged.h"

namespace vedette::detail {

void SessionState::learn(StepLog finished) {
  auto fresh = std::make_unique<Bucket>();
  fresh->id = next_bucket++;
  fresh->log = std::move(finished);
  fresh->program = program_trace(fresh->log, &fresh->program_logged);
  if (options.observer != nullptr) options.observer->profiled(step, fresh->id, fresh->program);
  lay_out(*fresh);
  fresh->units = form_units(fresh->log, options.chunk);
  fresh->least_time.resize(fresh->log.ops.size());
  for (std::size_t i = 0; i < fresh->log.ops.size(); ++i) fresh->least_time[i] = fresh->log.ops[i].time;
  fresh->unplanned = static_cast<std::uint32_t>(touched_in_parts.size());
  remember_rows(*fresh);
  advise_on_rows();
  fresh->policy = make_policy(options.policy, options.seed);
  const std::size_t count = fresh->log.ops.size();
  fresh->ops.resize(count);
  fresh->sections.resize(count);
  fresh->section_times.resize(count);
  for (std::uint32_t i = 0; i <= count; ++i) fresh->first.push_back(i);
  for (const std::uint64_t hash : log_hashes)
    fresh->prefixes.push_back(mix(fresh->prefixes.empty() ? 0 : fresh->prefixes.back(), hash));
  choose_worth_watching(*fresh);
  make_plan(*fresh);
  fresh->last_run = step;
  last_bucket = fresh.get();
  buckets.push_back(std::move(fresh));
  bucket = nullptr;
  retire_buckets();
}

void SessionState::lay_out(Bucket& fresh) {
  std::vector<Lifetime> lifetimes;
  std::vector<std::uint32_t> whose;
  for (std::uint32_t i = 0; i < fresh.log.tensors.size(); ++i) {
    const LoggedTensor& t = fresh.log.tensors[i];
    if (t.birth == 0) continue;
    const bool ends = t.death != ~0u || t.dies_at_seam;
    const auto found = tensors.find(t.offset);
    const bool lasting = t.death == ~0u && found != tensors.end() && found->second.lasting;
    if (!lasting) fresh.addresses[t.bytes.value].push_back({.offset = 0, .usable = ends});
    if (!ends || lasting) continue;
    lifetimes.push_back({.bytes = t.bytes, .life = {t.birth, t.death == ~0u ? events + 1 + i : t.death}});
    whose.push_back(i);
  }
  std::vector<std::uint32_t> order(lifetimes.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return lifetimes[a].life.begin < lifetimes[b].life.begin; });
  std::vector<Lifetime> sorted;
  for (const auto i : order) sorted.push_back(lifetimes[i]);
  const Placement placement = coallocate(sorted, options.chunk);
  const std::uint64_t zone_bytes = std::max<std::uint64_t>(placement.zone_bytes, options.chunk.value);
  auto zone = heap->reserve_zone(zone_bytes);
  if (zone && !reserve_slots(static_cast<std::uint32_t>((*zone + zone_bytes) / options.chunk.value))) {
    heap->release_zone(*zone, zone_bytes);
    zone.reset();
  }
  if (!zone) {  // no addresses or no slots left: this bucket runs where it was profiled
    for (auto& [bytes, list] : fresh.addresses)
      for (PlannedAddress& address : list) address.usable = false;
    return;
  }
  fresh.zone = *zone;
  fresh.zone_bytes = zone_bytes;
  for (std::size_t k = 0; k < order.size(); ++k)
    fresh.log.tensors[whose[order[k]]].offset = *zone + placement.offset[k];
  // The n-th allocation of a size, in order of birth.
  std::map<std::uint64_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>> births;
  for (std::uint32_t i = 0; i < fresh.log.tensors.size(); ++i) {
    const LoggedTensor& t = fresh.log.tensors[i];
    const auto found = t.birth == 0 ? tensors.end() : tensors.find(t.offset);
    if (t.birth == 0 || (t.death == ~0u && found != tensors.end() && found->second.lasting)) continue;
    births[t.bytes.value].emplace_back(t.birth, i);
  }
  for (auto& [bytes, list] : births) {
    std::sort(list.begin(), list.end());
    for (std::size_t n = 0; n < list.size(); ++n) {
      const LoggedTensor& t = fresh.log.tensors[list[n].second];
      fresh.addresses[bytes][n] = {.offset = t.offset, .usable = t.death != ~0u || t.dies_at_seam};
    }
  }
}

void SessionState::make_plan(Bucket& fresh) {
  fresh.plan = {};
  if (fresh.policy != nullptr) {
    const std::uint32_t free = frames - engine->held_chunks();
    machine.tiers[0].capacity = {(free - room_for_rows(free, fresh.unplanned)) * options.chunk.value};
    auto plan = fresh.policy->prepare(fresh.units.trace, machine);
    if (plan) {
      fresh.plan = *std::move(plan);
    } else {
      message(std::string("policy ")
                  .append(fresh.policy->name())
                  .append(": ")
                  .append(plan.error().message)
                  .append("; running on demand"));
    }
  }
  tabulate(fresh);
  report_places(fresh);
  if (options.observer != nullptr)
    options.observer->planned(step, fresh.id, whole_ops(fresh.units.trace, fresh.first),
                              whole_ops(fresh.plan, fresh.first));
}

void SessionState::report_places(const Bucket& placed) const {
  if (options.observer == nullptr) return;
  std::vector<Placed> of_units, of_tensors;
  for (const UnitChunks& where : placed.units.where) {
    of_units.push_back({.index = static_cast<std::uint32_t>(of_units.size()),
                        .offset = {where.first * options.chunk.value},
                        .bytes = {where.count * options.chunk.value}});
  }
  for (const std::uint32_t logged : placed.program_logged) {
    const LoggedTensor& t = placed.log.tensors[logged];
    of_tensors.push_back(
        {.index = static_cast<std::uint32_t>(of_tensors.size()), .offset = {t.offset}, .bytes = t.bytes});
  }
  options.observer->placed(step, placed.id, of_units, of_tensors);
}

void SessionState::tabulate(Bucket& fresh) {
  const Trace& trace = fresh.units.trace;
  const auto range_of = [&](TensorIndex unit) {
    return ChunkRange{fresh.units.where[unit.value].first, fresh.units.where[unit.value].count};
  };
  for (OpPlan& op : fresh.ops) op.fetches.clear(), op.evictions.clear(), op.next_uses.clear();
  const std::vector<char> unchanged = unchanged_until_gone(trace, fresh.plan);
  for (std::size_t m = 0; m < fresh.plan.moves.size(); ++m) {
    const Move& move = fresh.plan.moves[m];
    ChunkRange range = range_of(move.extent.tensor);
    if (move.extent.part) {
      const std::uint64_t chunk = options.chunk.value;
      const std::uint64_t begin = move.extent.part->begin.value / chunk,
                          end = (move.extent.part->end.value + chunk - 1) / chunk;
      range = {range.first + static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin)};
    }
    // A fetch may start one op before the plan says: the engine lets it only into frames that the running op needs no
    // more.
    const bool early = move.verb == Verb::fetch && move.issue.value > 0;
    OpPlan& op = fresh.ops[move.issue.value - (early ? 1 : 0)];
    if (move.verb == Verb::fetch)
      op.fetches.push_back({.range = range, .unchanged = unchanged[m] != 0});
    else
      op.evictions.push_back(range);
  }
  const auto count = static_cast<std::uint32_t>(trace.ops.size());
  std::vector<Ticks> next(trace.tensors.size(), never);
  for (std::uint32_t pass = 2; pass-- > 0;) {  // backwards, twice: the first pass (pass 1) is the step after this one
    for (std::uint32_t i = count; i-- > 0;) {
      const Ticks base = pass == 1 ? 1'000'000 : 0;
      for (const TensorIndex t : trace.ops[i].frees) next[t.value] = base + i + 1;
      for (const auto* list : {&trace.ops[i].reads, &trace.ops[i].writes})
        for (const TensorIndex t : *list)
          if (pass == 0) fresh.ops[i].next_uses.push_back({range_of(t), next[t.value]});
      for (const auto* list : {&trace.ops[i].reads, &trace.ops[i].writes})
        for (const TensorIndex t : *list) next[t.value] = base + i;
    }
  }
}

void SessionState::measure(Bucket& ran, Nanoseconds time, Nanoseconds stall) {
  if (op_times.size() != ran.ops.size()) return;  // it began by another bucket's plan, with other sections
  const bool first_measured = std::exchange(ran.times_are_guesses, false);
  for (std::size_t i = 0; i < op_times.size(); ++i)
    ran.least_time[i] = first_measured ? op_times[i] : std::min(ran.least_time[i], op_times[i]);
  if (ran.policy == nullptr) return;
  StepMeasured measured{.time = time, .stall = stall, .op_stall = op_stalls, .late = {}};
  constexpr Nanoseconds noticeable{50'000};
  for (std::uint32_t m = 0; m < ran.plan.moves.size(); ++m) {
    const Move& move = ran.plan.moves[m];
    if (move.verb == Verb::fetch && move.due.value < op_stalls.size() && op_stalls[move.due.value] > noticeable)
      measured.late.push_back(m);
  }
  for (std::size_t i = 0; i < ran.least_time.size(); ++i) ran.units.trace.ops[i].time = ran.least_time[i];
  const View view{.trace = ran.units.trace, .machine = machine, .where = {}, .room = {}};
  const Reaction reaction = ran.policy->react(
      {.kind = Event::Kind::step_ended, .op = {}, .tensor = {}, .bytes = {}, .measured = &measured}, view);
  if (reaction.replan) make_plan(ran);
}

void SessionState::retire_buckets() {
  if (buckets.size() <= most_buckets) return;
  const auto oldest = std::min_element(buckets.begin(), buckets.end(),
                                       [](const auto& a, const auto& b) { return a->last_run < b->last_run; });
  const std::uint64_t begin = (*oldest)->zone, end = begin + (*oldest)->zone_bytes;
  const auto first = tensors.lower_bound(begin);
  const bool lived_in = first != tensors.end() && first->first < end;
  if (!lived_in) heap->release_zone(begin, end - begin);  // else its addresses are lost: some tensor outlived the step
  buckets.erase(oldest);
}

}  // namespace vedette::detail
