// Near and far slots, and the order of their transfers: see host_slots.h.
#include "gpu/host_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vedette {
namespace {

constexpr std::uint64_t spare_part = 8;  // of the limit: kept free ahead of need
constexpr Bytes page = 4_KiB;            // of pageable memory behind it: the pool's alignment
constexpr std::uint32_t depth = 64;      // of its copies

}  // namespace

HostSlots::HostSlots(std::shared_ptr<const cuda::Device> device, cuda::Points& points, Options options)
    : device_(std::move(device)),
      points_(points),
      limit_(options.most_pinned),
      disk_(std::move(options.disk)),
      waiting_(std::move(options.waiting)),
      pins_no_more_(std::move(options.pins_no_more)),
      pool_(device_, {.most = limit_, .alignment = disk_ == nullptr ? 4_KiB : disk_->piece()}) {}

HostSlots::~HostSlots() {
  disk_.reset();  // its transfers end before the memory goes
}

std::uint64_t HostSlots::room_of(Bytes bytes) const noexcept {
  const std::uint64_t unit = disk_ == nullptr ? 4096 : disk_->piece().value;
  return (std::max<std::uint64_t>(bytes.value, 1) + unit - 1) / unit * unit;
}

// --- memory ----------------------------------------------------------------------------------------------------------

void HostSlots::drop_memory(Slot& slot) {
  pool_.give_back(slot.memory, slot.bytes);
  slot.memory = nullptr;
}

bool HostSlots::has_passed(cuda::StreamPoint use) {
  const auto passed = points_.passed(use);
  return passed && *passed;
}

Result<void> HostSlots::wait_for(cuda::StreamPoint use) {
  if (has_passed(use)) return {};
  if (waiting_) waiting_(WaitsFor::room, true);
  auto waited = points_.wait(use);
  if (waiting_) waiting_(WaitsFor::room, false);
  return waited;
}

int HostSlots::wait_for_job(const Slot& slot, WaitsFor what) {
  if (waiting_) waiting_(what, true);
  const int error = disk_->wait(slot.job);
  if (waiting_) waiting_(what, false);
  return error;
}

bool HostSlots::let_go(Slot& slot) {
  if (slot.state == State::writing || slot.state == State::reading) return false;
  if (slot.memory != nullptr) {
    if (!has_passed(slot.filled) || !has_passed(slot.last_read)) return false;
    drop_memory(slot);
  }
  free_pieces_.insert(free_pieces_.end(), slot.pieces.begin(), slot.pieces.end());
  unused_.push_back({static_cast<std::uint32_t>(&slot - slots_.data())});
  slot = {};
  return true;
}

bool HostSlots::bury_the_dead() {
  return std::erase_if(dead_, [&](HostSlot slot) { return let_go(slots_[slot.value]); }) > 0;
}

bool HostSlots::make_room_of_what_ended() {
  const bool ended = end_jobs(), buried = bury_the_dead();  // both, whatever the first one finds
  return ended || buried;
}

std::byte* HostSlots::memory_of_the_dead(Bytes bytes) {
  std::byte* memory = pool_.take_registered(bytes);
  while (memory == nullptr && !dead_.empty()) {
    const Slot& oldest = slots_[dead_.front().value];
    if (!wait_for(oldest.filled) || !wait_for(oldest.last_read) || !bury_the_dead()) return nullptr;
    memory = pool_.take_registered(bytes);
  }
  return memory;
}

Result<std::byte*> HostSlots::memory_for(Bytes bytes, bool may_wait) {
  if (prepared_ && may_wait) {
    if (std::byte* const memory = memory_of_the_dead(bytes)) return memory;
  }
  auto memory = pool_.take(bytes);
  if (!memory && goes_on_pageable()) memory = pool_.take(bytes);
  // A slot that does not fit waits for room; a refusal of the driver is the caller's.
  const auto lacks_room = [&] { return !memory && memory.error().cause == Cause::out_of_memory; };
  if (lacks_room() && make_room_of_what_ended()) memory = pool_.take(bytes);
  while (lacks_room() && may_wait && wait_for_something(bytes)) memory = pool_.take(bytes);
  // Its own piece where those that are pinned are too small, once all that lay in them is elsewhere.
  if (lacks_room() && may_wait && pool_.regroup(bytes)) memory = pool_.take(bytes);
  if (lacks_room() && failed_) return *std::exchange(failed_, std::nullopt);
  return memory;
}

bool HostSlots::goes_on_pageable() {
  const cuda::PinnedPool::Usage usage = pool_.usage();
  if (!usage.refused || is_pageable_ || limit_ == usage.registered) return false;
  const Bytes left = limit_ - usage.registered;  // of what was asked for
  const auto pages = limit_.value == 0 ? unlimited_slots : static_cast<std::uint32_t>(left.value / page.value);
  limit_ = usage.registered;
  const bool has_disk = disk_ != nullptr;
  if (!has_disk) {
    auto store = open_host_store(page, depth, pages);
    if (!store) return false;
    disk_ = std::make_unique<DiskThread>(std::move(*store));
    is_pageable_ = true;
  }
  if (pins_no_more_) pins_no_more_(limit_, has_disk);
  return true;
}

// Room comes from slots that died and from slots that go far. Their copies may still run: the host waits for one.
bool HostSlots::wait_for_something(Bytes bytes) {
  if (make_room_of_what_ended()) return true;
  if (disk_ != nullptr && !failed_) {
    std::uint64_t leaving = 0;
    for (const Slot& slot : slots_) leaving += slot.state == State::writing ? slot.bytes.value : 0;
    while (leaving < bytes.value) {
      const auto cold = coldest();
      if (!cold) break;
      Slot& slot = slots_[cold->value];
      if (!start_write(slot, true)) break;
      if (slot.state == State::far) return true;  // the disk had it
      leaving += slot.bytes.value;
    }
    for (Slot& slot : slots_) {
      if (slot.state != State::writing && !(slot.dead && slot.state == State::reading)) continue;
      end_job(slot, wait_for_job(slot, WaitsFor::room));
      return true;
    }
    if (give_up_a_wish()) return true;
  }
  for (const HostSlot dead : dead_) {
    static_cast<void>(wait_for(slots_[dead.value].filled));
    static_cast<void>(wait_for(slots_[dead.value].last_read));
  }
  return bury_the_dead();
}

// Slots that the plan wants back ahead of need go again: the op that needs one reads it once more.
bool HostSlots::give_up_a_wish() {
  for (Slot& slot : slots_) {
    if (!slot.wanted || slot.needed || slot.dead || slot.state == State::far) continue;
    slot.wanted = false;
    if (slot.state == State::reading) end_job(slot, wait_for_job(slot, WaitsFor::room));
    if (slot.state == State::near && !start_write(slot, true)) continue;
    return true;
  }
  return false;
}

// The largest first, which have the fewest holes to lie in.
void HostSlots::prepare(std::vector<Bytes> slots) {
  std::sort(slots.begin(), slots.end(), [](Bytes a, Bytes b) { return a > b; });
  prepared_ = true;
  std::vector<std::pair<std::byte*, Bytes>> taken;
  const cuda::PinnedPool::Usage usage = pool_.usage();
  const std::uint64_t half = limit_.value == 0 ? ~std::uint64_t{0} : limit_.value / 2;
  std::uint64_t all = 0;
  for (const Bytes bytes : slots) all += room_of(bytes);
  all -= std::min(all, (usage.registered - usage.taken).value);
  pool_.expect({std::min(all, half - std::min(half, usage.registered.value))});
  for (const Bytes bytes : slots) {
    if (limit_.value != 0 && pool_.usage().registered + bytes > Bytes{limit_.value / 2}) break;
    const auto memory = pool_.take(bytes);
    if (!memory) break;  // take() says so where the slot is needed
    taken.emplace_back(*memory, bytes);
  }
  pool_.expect({});
  for (const auto& [memory, bytes] : taken) pool_.give_back(memory, bytes);
}

Result<HostSlot> HostSlots::take(Bytes bytes) {
  advance();
  static_cast<void>(bury_the_dead());
  const auto memory = memory_for(bytes, true);
  if (!memory) return memory.error();
  if (unused_.empty()) {
    unused_.push_back({static_cast<std::uint32_t>(slots_.size())});
    slots_.emplace_back();
  }
  const HostSlot taken = unused_.back();
  unused_.pop_back();
  // Not filled yet: it goes nowhere before filled().
  slots_[taken.value] = {.state = State::near, .bytes = bytes, .memory = *memory, .needed = true};
  return taken;
}

void HostSlots::give_back(HostSlot slot) {
  slots_[slot.value].dead = true;
  if (!let_go(slots_[slot.value])) dead_.push_back(slot);
}

std::byte* HostSlots::memory(HostSlot slot) const {
  const Slot& found = slots_[slot.value];
  return found.state == State::near || found.state == State::writing ? found.memory : nullptr;
}

void HostSlots::filled(HostSlot slot, cuda::StreamPoint copied) {
  Slot& found = slots_[slot.value];
  found.filled = copied;
  found.age = ++ages_;
  found.disk_has_it = found.was_far = found.wanted = found.needed = false;
}

void HostSlots::is_read(HostSlot slot, cuda::StreamPoint copied) {
  Slot& found = slots_[slot.value];
  found.last_read = copied;
  found.wanted = found.needed = false;
}

// --- to the disk and back --------------------------------------------------------------------------------------------

Result<void> HostSlots::make_pieces(Slot& slot) {
  const std::uint64_t count = room_of(slot.bytes) / disk_->piece().value;
  while (slot.pieces.size() < count) {
    if (free_pieces_.empty()) {
      const auto more = static_cast<std::uint32_t>(count - slot.pieces.size());
      if (auto reserved = disk_->reserve(pieces_ + more); !reserved) return reserved;
      for (std::uint32_t i = 0; i < more; ++i) free_pieces_.push_back({pieces_ + more - 1 - i});
      pieces_ += more;
    }
    slot.pieces.push_back(free_pieces_.back());
    free_pieces_.pop_back();
  }
  return {};
}

// Behind the copy that fills the slot, and those that read it, since its memory goes when the write has ended.
bool HostSlots::start_write(Slot& slot, bool may_wait) {
  for (const cuda::StreamPoint& use : {slot.filled, slot.last_read}) {
    if (may_wait) {
      if (!wait_for(use)) return false;
    } else if (!has_passed(use)) {
      return false;
    }
  }
  slot.leaves = false;
  if (slot.disk_has_it) {
    drop_memory(slot);
    slot.state = State::far;
    slot.was_far = true;
    return true;
  }
  if (auto made = make_pieces(slot); !made) {
    failed_ = made.error();
    return false;
  }
  slot.job = disk_->begin({.direction = StoreRequest::Direction::write, .memory = slot.memory, .pieces = slot.pieces});
  slot.state = State::writing;
  return true;
}

// Filled longest ago, of those that nothing waits for.
std::optional<HostSlot> HostSlots::coldest() const {
  std::optional<HostSlot> found;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != State::near || slot.dead || slot.wanted || slot.needed) continue;
    if (!found || slot.age < slots_[found->value].age) found = HostSlot{i};
  }
  return found;
}

void HostSlots::end_job(Slot& slot, int error) {
  const bool wrote = slot.state == State::writing;
  slot.state = wrote ? State::near : State::far;
  if (error != 0) {
    failed_ = Error{.cause = Cause::system,
                    .message = std::string(wrote ? "writing to" : "reading from") +
                               " the disk below the GPU: " + std::strerror(error) +
                               "; name a directory of a disk that works, or give the host more memory",
                    .errno_value = error};
    if (!wrote) drop_memory(slot);
    return;
  }
  slot.disk_has_it = slot.was_far = true;
  (wrote ? to_disk_ : from_disk_) += slot.bytes;
  if (!wrote) {
    slot.state = State::near;
  } else if (!slot.dead && !slot.wanted && !slot.needed && has_passed(slot.last_read)) {
    drop_memory(slot);
    slot.state = State::far;
  }
}

bool HostSlots::end_jobs() {
  bool any = false;
  for (Slot& slot : slots_) {
    if (slot.state != State::writing && slot.state != State::reading) continue;
    if (const auto error = disk_->ended(slot.job)) end_job(slot, *error), any = true;
  }
  return any;
}

// Begins to read a far slot, where room is there or the host may wait for it.
Result<void> HostSlots::start_read(HostSlot slot, bool may_wait) {
  const auto memory = memory_for(slots_[slot.value].bytes, may_wait);
  if (!memory) return memory.error();
  Slot& found = slots_[slot.value];
  found.memory = *memory;
  found.filled = found.last_read = {};
  found.job = disk_->begin({.direction = StoreRequest::Direction::read, .memory = *memory, .pieces = found.pieces});
  found.state = State::reading;
  return {};
}

void HostSlots::bring(HostSlot slot) {
  slots_[slot.value].wanted = true;
  if (slots_[slot.value].state == State::far) static_cast<void>(start_read(slot, false));  // need() waits for room
}

bool HostSlots::is_near(HostSlot slot) {
  if (disk_ != nullptr) static_cast<void>(end_jobs());
  return memory(slot) != nullptr;
}

Result<void> HostSlots::need(HostSlot slot, bool to_change) {
  Slot& found = slots_[slot.value];
  found.needed = true;
  const auto give_up = [&](const Error& error) {
    found.needed = false;
    return error;
  };
  if (found.state == State::far) {
    if (auto begun = start_read(slot, true); !begun) return give_up(begun.error());
  }
  if (found.state == State::reading || (to_change && found.state == State::writing))
    end_job(found, wait_for_job(found, WaitsFor::bytes));
  if (memory(slot) != nullptr) return {};
  return give_up(*std::exchange(failed_, std::nullopt));
}

void HostSlots::forget_wish(HostSlot slot) { slots_[slot.value].wanted = slots_[slot.value].needed = false; }

void HostSlots::send_far(HostSlot slot) {
  if (disk_ != nullptr) slots_[slot.value].leaves = true;
}

void HostSlots::advance() {
  if (disk_ == nullptr) return;
  static_cast<void>(end_jobs());
  static_cast<void>(bury_the_dead());
  if (failed_) return;
  std::uint64_t leaving = 0, taken = 0;
  for (Slot& slot : slots_) {
    if (slot.leaves && slot.state == State::near && !slot.dead && !slot.wanted && !slot.needed)
      static_cast<void>(start_write(slot, false));
    if (slot.memory != nullptr) taken += room_of(slot.bytes);
    if (slot.state == State::writing) leaving += room_of(slot.bytes);
  }
  while (!failed_ && limit_.value != 0 && taken - leaving > limit_.value - limit_.value / spare_part) {
    const auto cold = coldest();
    if (!cold || !start_write(slots_[cold->value], false)) return;
    leaving += room_of(slots_[cold->value].bytes);
  }
}

HostSlots::Counters HostSlots::counters() const {
  const auto usage = pool_.usage();
  return {.pinned = usage.registered,
          .taken = usage.taken,
          .most_pinned = limit_,
          .pageable = is_pageable_ ? Bytes{std::uint64_t{pieces_ - free_pieces_.size()} * page.value} : Bytes(),
          .to_disk = to_disk_,
          .from_disk = from_disk_};
}

}  // namespace vedette
