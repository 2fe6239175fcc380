// Steps of other sizes than those that are planned. Once the first tensors tell the sizes, the rest of the step is
// foretold from the logs of two planned ones, gets addresses, and a plan by likeness. A step that then is otherwise
// leaves that plan as it would leave any other.
#include <algorithm>
#include <unordered_set>

#include "session/like_log.h"
#include "session/plans.h"

namespace vedette::detail {

// Memory that moves whole tensors has a plan of places, too; and what can be recomputed is worth a search. What the
// program gave a place may not have it by likeness.
bool Plans::may_plan_by_likeness() const noexcept {
  return foresees() && options_.policy == "vedette" && logger_.named_places().none() &&
         !executor_->traits().whole_tensors && !recomputes_;
}

// nullopt: not known yet, or never in this step.
std::optional<StepLog> Plans::rest_of_step(const std::vector<Bucket*>& alike) {
  const auto sized = [](const Bucket& bucket) {
    return SizedStep{.log = &bucket.as_logged()->log, .times = bucket.plan.least_times()};
  };
  ForetoldLog foretold = foretell(sized(*alike[0]), sized(*alike[1]), logger_.log());
  if (foretold.is == ForetoldLog::Is::not_yet) return std::nullopt;
  buckets_.try_no_likeness();
  if (foretold.is == ForetoldLog::Is::another || !find_addresses(foretold.log)) return std::nullopt;
  return std::move(foretold.log);
}

// Of what lived before the step. All else that lives is no operand of it, but takes room.
bool Plans::find_addresses(StepLog& foretold) const {
  std::unordered_set<std::uint64_t> known;
  for (std::uint32_t t = 0; t < foretold.tensors.size(); ++t) {
    LoggedTensor& tensor = foretold.tensors[t];
    if (t >= logger_.log().tensors.size()) {
      if (tensor.birth > 0) continue;
      const std::optional<std::uint64_t> offset = foresight_.offset_of(t);
      if (!offset) return false;
      const auto found = arena_.holding(arena_.base() + *offset);
      if (found == arena_.tensors().end() || found->first != *offset || found->second.bytes != tensor.bytes)
        return false;
      tensor.offset = *offset;
    }
    known.insert(tensor.offset);
  }
  for (const auto& [offset, live] : arena_.tensors())
    if (known.count(offset) == 0) {
      LoggedTensor& beside = foretold.tensors.emplace_back();
      beside.name = live.name;
      beside.bytes = live.bytes;
      beside.kind = live.kind;
      beside.offset = offset;
    }
  return true;
}

namespace {

// A plan takes some 25 us an op of another processor, which quick ops would use better.
bool is_worth_a_plan(const StepPlan& alike) {
  constexpr Nanoseconds an_op{250'000};
  Nanoseconds time;
  for (const Nanoseconds each : alike.least_times()) time += each;
  return time.value >= static_cast<std::int64_t>(alike.least_times().size()) * an_op.value;
}

}  // namespace

bool Plans::plan_by_likeness() {
  constexpr std::uint32_t most_ops = 64;  // by then, some tensor has told the sizes
  if (buckets_.likeness_was_tried() || !may_plan_by_likeness()) return false;
  if (making_.makes_one_by_likeness() || logger_.next_op() > most_ops || buckets_.is_often_another(logger_.step()))
    return buckets_.try_no_likeness(), false;
  const std::vector<Bucket*> alike = buckets_.alike(logger_.kinds(), frames());
  if (alike.empty() || !foresight_.follows_step_of(alike[0]->as_logged()->kinds)) return false;
  if (!executor_->traits().replays && !is_worth_a_plan(alike[0]->plan)) return buckets_.try_no_likeness(), false;
  std::optional<StepLog> foretold = rest_of_step(alike);
  return foretold && begin_by_likeness(*std::move(foretold), alike);
}

bool Plans::begin_by_likeness(StepLog foretold, const std::vector<Bucket*>& alike) {
  const std::vector<std::uint64_t> hashes = hashes_of(foretold);
  if (buckets_.has_sequence(hashes)) return false;
  std::uint32_t events = 0;
  for (const LoggedTensor& t : foretold.tensors) events = std::max({events, t.birth, t.death == ~0u ? 0 : t.death});
  AddressPlan addresses(foretold, events, arena_, options_.chunk, Heap::Chunks::shared, logger_.events());
  if (addresses.zone_bytes() == 0) return false;  // the log has another step's addresses, for other sizes
  auto fresh =
      std::make_unique<Bucket>(buckets_.next_id(), foretold, hashes, std::move(addresses), plan_options(std::nullopt));
  if (options_.observer != nullptr) options_.observer->profiled(logger_.step(), fresh->id(), fresh->program());
  fresh->profiled(logger_.step(), alike[0]->unplanned());
  fresh->is_planned_by_likeness(true);
  fresh->sections = SectionLearner(std::vector<char>(fresh->ops()));
  for (Bucket* const each : alike) each->served(logger_.step());
  Bucket& added = buckets_.expect(std::move(fresh));
  added.waits_for_plan();
  making_.make_plan_by_likeness(added, alike);
  retire_buckets();
  take_plan_in_step();
  if (executor_->traits().replays && buckets_.follow(logger_.next_op() - 1, logger_.prefix())) executor_->forget_plan();
  return follows_plan();
}

// The op at hand, or a later one, is the first that follows it.
void Plans::take_plan_in_step() {
  const Bucket* const coming = buckets_.coming();
  if (coming == nullptr || !making_.take_plan_of(*coming)) return;
  if (coming->plan.has_failed()) buckets_.forget(*coming)->addresses().give_back(arena_);
}

// A step that was another one leaves nothing, nor does one whose plan came too late.
void Plans::end_foretold_step() {
  const Bucket* const foretold = buckets_.coming();
  if (foretold == nullptr) return;
  buckets_.count_foretold(foretold->runs() > 0);
  if (foretold->runs() > 0) return;
  making_.give_up(*foretold);
  buckets_.forget(*foretold)->addresses().give_back(arena_);
}

}  // namespace vedette::detail
