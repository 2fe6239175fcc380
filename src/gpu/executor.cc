// Names to blocks, and a plan's moves as the place executor's: see executor.h.
#include "gpu/executor.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/readable.h"

namespace vedette::detail {

Result<std::unique_ptr<GpuExecutor>> GpuExecutor::make(std::shared_ptr<const cuda::Device> device, Options options,
                                                       std::unique_ptr<DiskThread> disk) {
  options.disk = disk != nullptr;
  std::unique_ptr<GpuExecutor> executor(new GpuExecutor(device, options));
  const auto reaches = device->attribute(cuda::Attribute::can_use_host_pointer_for_registered_memory);
  auto places = PlaceExecutor::make(std::move(device),
                                    {.budget = options.budget,
                                     .most = options.most,
                                     .most_pinned = options.host,
                                     .alignment = options.unit,
                                     .managed = options.managed,
                                     .link = options.link,
                                     .reaches_host = reaches.value_or(0) != 0},
                                    *executor, std::move(disk));
  if (!places) return places.error();
  executor->places_ = std::move(*places);
  if (options.tables.value > 0) {
    auto tables = GpuTables::make(executor->device_, options.tables);
    if (!tables) return tables.error();
    executor->tables_ = std::move(*tables);
  }
  return executor;
}

GpuExecutor::GpuExecutor(std::shared_ptr<const cuda::Device> device, const Options& options)
    : Executor({.whole_tensors = true, .times_later = true, .predicts = true}),
      device_(device),
      options_(options),
      names_(options.arena, options.chunk),
      times_(device, options.reports) {}

Executor::Stretch GpuExecutor::range_of_plans() const noexcept {
  const std::lock_guard lock(mutex_);
  return movable();
}

Executor::Stretch GpuExecutor::movable() const noexcept {
  const moves::RangeAllocator::Stretch found = places_->longest_movable();
  return {.first = found.first, .bytes = found.bytes, .unit = options_.unit};
}

Result<void> GpuExecutor::accepts(const Plan& plan) const {
  const auto cannot = [](const std::string& what) {
    return Error{.cause = Cause::unsupported, .message = "a GPU's memory cannot " + what};
  };
  if (!plan.in_place.empty()) return cannot("leave an operand where it lies in a slower tier");
  if (!plan.recomputations.empty()) return cannot("run an op again, which the plan does; the session does that");
  if (!plan.order.empty()) return cannot("run ops in another order than the program's");
  const TierIndex last{options_.disk ? 2u : 1u};
  for (const Move& move : plan.moves) {
    if (move.extent.part) return cannot("move a part of a tensor");
    const TierIndex away = move.verb == Verb::fetch ? move.source : move.target;
    if (move.verb != Verb::drop && (away == TierIndex{0} || away > last))
      return cannot("reach tier " + std::to_string(away.value) + "; there are GPU memory (0) and host memory (1)" +
                    (options_.disk ? " and a disk (2)" : ""));
    if (move.verb == Verb::fetch && move.target != TierIndex{0}) return cannot("fetch to a slower tier");
  }
  return {};
}

// Slots of a step's own tensors are free when the copies that use them have passed. The host runs ahead: two steps have
// theirs at once.
void GpuExecutor::will_leave(std::span<const Leaving> tensors) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  std::vector<Bytes> slots;
  for (const Leaving& each : tensors) {
    const BlockIndex* const block = each.persistent ? names_.block(each.chunks) : nullptr;
    if (block != nullptr && places_->has_slot(*block)) continue;
    slots.insert(slots.end(), each.persistent ? 1 : 2, each.bytes);
  }
  places_->prepare_slots(std::move(slots));
}

bool GpuExecutor::may_move(BlockIndex block) noexcept { return options_.program->may_move(names_.name(block)); }

void GpuExecutor::moved(BlockIndex block, cuda::Address address) noexcept {
  options_.program->moved(names_.name(block), address);
}

void GpuExecutor::begins(const PlaceExecutor::Transfer& transfer) noexcept {
  if (options_.reports != nullptr) options_.reports->move_queues(transfer.stream);
}

void GpuExecutor::is_queued(const PlaceExecutor::Transfer& transfer) noexcept {
  if (options_.reports == nullptr) return;
  options_.reports->move_is_queued({.verb = transfer.verb,
                                    .cause = transfer.cause,
                                    .slow = transfer.slow,
                                    .chunk = names_.first(transfer.block).value,
                                    .bytes = transfer.bytes},
                                   transfer.stream);
}

void GpuExecutor::wait_begins(HostSlots::WaitsFor what) noexcept {
  times_.begin_wait(stream(), what == HostSlots::WaitsFor::room);
}

void GpuExecutor::wait_ends() noexcept { times_.end_wait(stream()); }

void GpuExecutor::pins_no_more(Bytes limit, bool there_is_a_disk) noexcept {
  if (!options_.say) return;
  const std::string before = "the driver pins no more than " + readable(limit) + " of host memory; ";
  options_.say(before + (there_is_a_disk
                             ? "what does not fit there goes on to the disk below it"
                             : "tensors that are away go through it to pageable memory and back, which is slower; "
                               "allow more locked memory, or give less to hold: a limit (\"host:SIZE\"), or a disk "
                               "(\"host:SIZE+nvme:DIRECTORY\")"));
}

void GpuExecutor::set_observer(Observer* observer) noexcept {
  VEDETTE_ASSERT(observer == nullptr);
  if (options_.reports == nullptr) return;
  if (tables_ != nullptr) options_.reports->has_tables(tables_->counters());
  options_.reports->finish();
}

cuda::StreamHandle GpuExecutor::stream() const noexcept {
  return static_cast<cuda::StreamHandle>(options_.program->current_stream());
}

// A refused operand is the op's own error; a refused fetch ahead of need comes later.
void GpuExecutor::note(const Result<void>& result) {
  if (!result && result.error().cause != Cause::out_of_memory && !error_) error_ = result.error();
}

// --- tensors come and go ---------------------------------------------------------------------------------------------

Result<void> GpuExecutor::born(ChunkRange chunks, Bytes bytes) {
  const cuda::CurrentAmongSeveral current(*device_);
  const std::lock_guard lock(mutex_);
  const auto born = places_->allocate(bytes, stream(), place_of_birth(chunks));
  if (!born) return born.error();
  names_.enter(chunks.first(), born->block);
  if (op_runs_) chunks_.of_op += chunks.size();
  chunks_.largest_op = std::max(chunks_.largest_op, chunks_.of_op + chunks_.held);
  return {};
}

Result<void> GpuExecutor::born_as_copy(ChunkRange chunks, Bytes bytes, std::uint64_t from) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const auto born = places_->allocate_copy(bytes, from, stream());
  if (!born) return born.error();
  names_.enter(chunks.first(), born->block);
  return {};
}

// Before a step's first op its plan is not known: it is likely the one that the step before followed.
PlaceExecutor::Place GpuExecutor::place_of_birth(ChunkRange chunks) const {
  const PlannedPlaces* const plan = step_is_new_ ? before_ : planned_;
  if (plan == nullptr) return std::nullopt;
  const auto found = plan->births.find(chunks.first().value);
  return found == plan->births.end() ? std::nullopt : PlaceExecutor::Place(found->second);
}

void GpuExecutor::died(ChunkRange chunks) noexcept {
  const cuda::CurrentAmongSeveral current(*device_);
  const std::lock_guard lock(mutex_);
  places_->release(names_.remove(chunks.first()));
  if (auto held = holds_.of_the_living.extract(chunks.first().value); !held.empty())
    holds_.of_the_dead.insert(std::move(held));
}

// An op that lasts until release_hold(). It may be a thread's first call for the device, which has no context yet.
Result<void> GpuExecutor::hold(ChunkRange chunks) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  if (const auto held = holds_.of_the_living.find(chunks.first().value); held != holds_.of_the_living.end()) {
    Hold& hold = held->second;
    if (const auto here = stream(); here != hold.stream) {
      places_->record_stream(hold.block, here);
      if (std::find(hold.others.begin(), hold.others.end(), here) == hold.others.end()) hold.others.push_back(here);
    }
    ++hold.count;
    return {};
  }
  const BlockIndex* const block = names_.block(chunks);
  VEDETTE_ASSERT(block != nullptr);
  const cuda::StreamHandle here = stream();
  if (auto begun = places_->begin_op({block, 1}, here); !begun) return begun.error();
  places_->may_change(*block);  // the program may write there
  chunks_.held += chunks.size();
  holds_.of_the_living.emplace(chunks.first().value, Hold{.block = *block, .stream = here, .others = {}, .count = 1});
  return {};
}

void GpuExecutor::release_hold(ChunkRange chunks) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  // Where another tensor has the name by now: the hold that is older.
  Holds& holds = holds_.of_the_dead.contains(chunks.first().value) ? holds_.of_the_dead : holds_.of_the_living;
  const auto found = holds.find(chunks.first().value);
  if (found == holds.end() || --found->second.count > 0) return;
  // Their work was queued after they had been recorded, and may have been covered before.
  for (const cuda::StreamHandle other : found->second.others) places_->record_stream(found->second.block, other);
  places_->end_op({&found->second.block, 1}, found->second.stream);
  chunks_.held -= chunks.size();
  holds.erase(found);
}

// --- ops -------------------------------------------------------------------------------------------------------------

void GpuExecutor::begin_step(std::uint64_t step) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  take_pending_size();
  if (tables_ != nullptr) {
    note(tables_->between_steps());
    if (options_.reports != nullptr) options_.reports->has_tables(tables_->counters());
  }
  const std::uint64_t misplaced = places_->counters().misplaced;
  times_.begin_step(step, stream(), planned_);
  before_ = std::exchange(planned_, nullptr);
  followed_ = misplaced == misplaced_ ? before_ : nullptr;  // else blocks lie elsewhere than the plan has them
  made_ = {};
  misplaced_ = misplaced;
  step_is_new_ = true;
  staging_.reset();
}

// Tensors move to where the plan begins with them, or has them that were born before its first op; small ones come
// first, and of each kind those that are used first.
void GpuExecutor::restore(const PlannedPlaces& places, const StepStart* start) {
  std::unordered_map<std::uint32_t, std::uint32_t> first_uses;
  if (start != nullptr)
    for (const StepStart::Unit& unit : start->near) first_uses[unit.chunks.first().value] = unit.first_use;
  std::unordered_map<std::uint32_t, std::uint64_t> offsets = places.births;
  for (const auto& [chunks, offset] : places.at_start) offsets.emplace(chunks.first().value, offset);
  std::vector<std::pair<std::uint32_t, PlaceExecutor::Target>> by_use;
  for (const auto& [first, offset] : offsets) {
    const BlockIndex* const block = names_.block(ChunkIndex{first});
    const auto use = first_uses.find(first);
    if (block == nullptr) continue;
    by_use.emplace_back(use == first_uses.end() ? 0 : use->second,
                        PlaceExecutor::Target{.block = *block, .place = offset});
  }
  std::sort(by_use.begin(), by_use.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.place) < std::pair(b.first, b.second.place);
  });
  std::vector<PlaceExecutor::Target> targets;
  for (const auto& [use, target] : by_use) targets.push_back(target);
  note(places_->rearrange(targets));
}

void GpuExecutor::bring(const OpMoves& moves) {
  std::vector<PlaceExecutor::Coming>& coming = moves_.coming;
  coming.clear();
  for (const OpMoves::Fetch& fetch : moves.fetches) {
    if (const BlockIndex* const block = names_.block(fetch.chunks))
      coming.push_back({.block = *block, .place = fetch.place, .unchanged = fetch.unchanged});
  }
  note(places_->bring_all(coming));
  for (const OpMoves::Made& made : moves.made) {  // it left for the host instead of being dropped
    const BlockIndex* const block = names_.block(made.chunks);
    if (block != nullptr && !places_->is_dropped(*block)) note(places_->bring(*block, made.place, false));
  }
}

void GpuExecutor::prepare(const Part& part) {
  if (is_woken_) wake();
  take_pending_size();
  if (std::exchange(step_is_new_, false) && part.places != nullptr && part.places != followed_)
    restore(*part.places, part.start);
  planned_ = part.places;
  made_ = part.moves.made;
  bring(part.moves);
}

// The place executor hears of blocks what an earlier step predicts of tensors.
void GpuExecutor::expect(const Part& part) {
  if (std::exchange(ahead_.known, part.ahead != nullptr) && !ahead_.known) places_->expect_nothing();
  if (!ahead_.known) return;
  const Ahead& ahead = *part.ahead;
  ahead_.uses.clear();
  ahead_.fetches.clear();
  for (const OpMoves::NextUse& use : ahead.next_uses) {
    const BlockIndex* const block = names_.block(use.chunks);
    if (block == nullptr) continue;
    ahead_.uses.push_back({.index = *block,
                           .tick = part.step_begins + use.after,
                           .dead_at = use.dead_at ? part.step_begins + *use.dead_at : never});
  }
  for (const OpMoves::Fetch& fetch : ahead.fetches)
    if (const BlockIndex* const block = names_.block(fetch.chunks))
      ahead_.fetches.push_back({.block = *block, .unchanged = fetch.unchanged});
  moves::Outlook outlook = moves::outlook_of(ahead, part.step_begins);
  outlook.next_births *= options_.chunk.value;  // those of the running op have no part in it: it begins
  places_->expect({.now = part.tick, .outlook = outlook, .uses = ahead_.uses, .fetches = ahead_.fetches});
}

PlaceExecutor::Ends GpuExecutor::ends_of(OpIndex op) const noexcept {
  const bool noted = planned_ != nullptr && op.value < planned_->waited_for.size() && !planned_->waited_for[op.value];
  return noted ? PlaceExecutor::Ends::noted : PlaceExecutor::Ends::marked;
}

void GpuExecutor::find_operands(const Part& part) {
  operands_.clear();
  chunks_.of_op = 0;
  for (const ChunkRange chunks : part.operands) {
    const BlockIndex* const block = names_.block(chunks);
    if (block == nullptr || std::find(operands_.begin(), operands_.end(), *block) != operands_.end()) continue;
    operands_.push_back(*block);
    chunks_.of_op += chunks.size();
  }
  moves_.few.clear();
  for (const bool many : {true, false})  // where the op uses more of it in all than of a few rows, it comes
    for (const Part::Few& each : part.few) {
      const BlockIndex* const block = names_.block(each.chunks);
      if (block == nullptr || std::find(operands_.begin(), operands_.end(), *block) != operands_.end()) continue;
      if (many != (4 * each.bytes.value > places_->bytes(*block).value)) continue;
      operands_.push_back(*block);
      if (!many) moves_.few.push_back({.block = *block, .bytes = each.bytes, .written = each.written});
    }
}

Result<bool> GpuExecutor::pin_operands(OpIndex op, const Part& part) {
  const auto results = part.places == nullptr ? PlaceExecutor::Results::anywhere : PlaceExecutor::Results::placed;
  const auto whole = std::span(operands_).first(operands_.size() - moves_.few.size());
  return places_->begin_op(whole, op_stream_, results, ends_of(op), part.result, moves_.few);
}

// The program is asked without the lock: it releases tensors. Of an op that it leaves out none is pinned.
bool GpuExecutor::pin_fewer_operands(OpIndex op, std::string_view name, const Part& part, Error error,
                                     std::unique_lock<std::mutex>& lock) {
  while (true) {
    std::vector<const void*> names;
    for (const BlockIndex block : operands_) names.push_back(names_.name(block));
    const auto whole = std::span(std::as_const(names)).first(names.size() - moves_.few.size());
    lock.unlock();
    using NoRoom = GpuProgram::NoRoom;
    auto answer = NoRoom::end;
    if (error.cause == Cause::out_of_memory) {  // rows need no room where they are used in pinned memory
      if (!whole.empty()) answer = options_.program->no_room(whole, error);
      if (answer != NoRoom::begin_again) answer = options_.program->no_room(names, error);
    }
    lock.lock();
    if (answer == NoRoom::end) die((std::string(name) + ": " + error.message).c_str());
    find_operands(part);
    if (answer == NoRoom::run_without) return operands_.clear(), false;
    auto waits = pin_operands(op, part);
    if (waits) return *waits;
    error = waits.error();
  }
}

void GpuExecutor::begin_op(OpIndex op, std::string_view name, const Part& part) {
  const cuda::CurrentAmongSeveral current(*device_);
  std::unique_lock lock(mutex_);
  op_stream_ = stream();
  prepare(part);
  find_operands(part);
  expect(part);
  op_runs_ = true;
  chunks_.largest_op = std::max(chunks_.largest_op, chunks_.of_op + chunks_.held);
  auto waits = pin_operands(op, part);
  if (!waits) waits = pin_fewer_operands(op, name, part, waits.error(), lock);
  for (const ChunkRange chunks : part.written)
    if (const BlockIndex* const block = names_.block(chunks)) places_->may_change(*block);
  for (const Part::Few& each : part.few)
    if (const BlockIndex* const block = each.written ? names_.block(each.chunks) : nullptr) places_->may_change(*block);
  times_.begin_op(op_stream_, *waits);
  ++ops_;
}

// Ops have no sections here: only the device knows their touches and their times.
void GpuExecutor::continue_op(std::span<const OpMoves::Departure>, const Part&, const std::function<void()>&) {}

void GpuExecutor::end_op(std::span<const OpMoves::Departure> departures) noexcept {
  const cuda::CurrentAmongSeveral current(*device_);
  const std::lock_guard lock(mutex_);
  places_->end_op(operands_, op_stream_);
  times_.end_op(op_stream_);
  op_runs_ = false;
  std::vector<PlaceExecutor::Leaving>& leaving = moves_.leaving;
  leaving.clear();
  for (const OpMoves::Departure& departure : departures) {
    if (const BlockIndex* const block = names_.block(departure.chunks))
      leaving.push_back({.block = *block, .far = departure.target == TierIndex{2}});
  }
  note(places_->leave_all(leaving));
  if (ahead_.known) note(places_->look_ahead());
  take_pending_size();
}

void GpuExecutor::forget_plan() noexcept {
  const std::lock_guard lock(mutex_);
  planned_ = before_ = followed_ = nullptr;
  times_.forget_plan();
  made_ = {};
  places_->forget_plan();
}

// --- figures ---------------------------------------------------------------------------------------------------------

std::optional<Executor::StepTimes> GpuExecutor::take_times(bool wait) noexcept {
  const std::lock_guard lock(mutex_);
  return times_.take(wait);
}

Counters GpuExecutor::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  const PlaceExecutor::Counters places = places_->counters();
  return {.bytes_in = places.fetched,
          .bytes_out = places.evicted,
          .bytes_dropped = places.unchanged,
          .far_bytes_in = places.from_far,
          .moved_between_slow_tiers = places.host.to_disk,
          .bytes_in_place = places.in_slots,
          .stall_count = times_.totals().stall_count,
          .stall_ns = times_.totals().stall_ns,
          .recompute_ns = times_.totals().recompute_ns,
          .resident_bytes = places.in_use,
          .resident_max_bytes = places.most_in_use,
          .ops = ops_};
}

std::optional<Error> GpuExecutor::take_error() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, std::nullopt);
}

std::string GpuExecutor::mechanism() const {
  return "tensors at planned places of " + device_->name() + ", copied on a stream each way" +
         (options_.disk ? std::string(", a thread for the disk") : std::string());
}

}  // namespace vedette::detail
