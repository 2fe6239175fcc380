// See executor.h.
#include "gpu_hour/executor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace vedette::gpu {

Executor::Executor(const Options& options) : options_(options), places_(options.budget) {
  cuda_ok(cudaMalloc(reinterpret_cast<void**>(&memory_), options.budget), "cudaMalloc");
  cuda_ok(cudaStreamCreateWithPriority(&in_, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  cuda_ok(cudaStreamCreateWithPriority(&out_, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
}

Executor::~Executor() {
  cudaDeviceSynchronize();
  for (const auto& [bytes, home] : homes_) cudaFreeHost(home.data);
  homes_.clear();
  cudaStreamDestroy(in_);
  cudaStreamDestroy(out_);
  bool empty = true;
  places_.each_owner([&](Block& block) {  // somebody keeps it, as cuBLAS its workspace: the memory stays
    block.owner = nullptr;
    empty = false;
  });
  if (empty) cudaFree(memory_);
}

ExecutorCounts Executor::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Executor::begin_step() {
  const std::lock_guard lock(mutex_);
  ++step_;
  op_ = fetched_to_ = 0;
  carried_ = std::move(born_);
  born_.clear();
}

void Executor::end_step() {
  const std::lock_guard lock(mutex_);
  if (step_ == options_.recorded_step) record_.end(op_ + 1);
  if (record_.complete() && record_.ops() != op_ + 1) ++counts_.other_steps;
}

BlockName Executor::name_of(const Block& block) const {
  if (block.born_in >= 0 && block.born_in == step_) return {.age = Age::born, .number = block.number};
  if (block.born_in >= 0 && block.born_in + 1 == step_) return {.age = Age::carried, .number = block.number};
  return {.age = Age::kept, .number = block.kept_as};
}

void Executor::number_kept(Block& block) {
  if (block.kept_as != unnumbered || name_of(block).age != Age::kept) return;
  block.kept_as = static_cast<std::uint32_t>(kept_.size());
  kept_.push_back(&block);
}

Block* Executor::named(BlockName name) const {
  const auto& all = name.age == Age::born ? born_ : name.age == Age::carried ? carried_ : kept_;
  return name.number < all.size() ? all[name.number] : nullptr;
}

void Executor::begin_op() {
  const std::lock_guard lock(mutex_);
  ++op_;
  now_.reset();
  if (!record_.complete() || step_ <= options_.recorded_step) return;
  make_room_ahead();
  fetch_ahead();
}

const Mark& Executor::now() {
  if (!now_) now_ = marks_.record(options_.stream);
  return now_;
}

Block* Executor::allocate(std::size_t bytes, bool pinned) {
  const std::lock_guard lock(mutex_);
  auto block = std::make_unique<Block>();
  block->owner = this;
  block->bytes = (bytes + options_.grain - 1) / options_.grain * options_.grain;
  block->born_in = step_;
  block->number = static_cast<std::uint32_t>(born_.size());
  const std::optional<Place> place = room(*block, op_);
  if (!place) throw Refused("an op needs more than there is in one piece");
  for (const Mark& mark : place->after) wait_for(options_.stream, mark);
  block->at = memory_ + place->at;
  block->pins = pinned ? 1 : 0;
  counts_.live_bytes += block->bytes;
  counts_.most_bytes = std::max(counts_.most_bytes, counts_.live_bytes);
  if (step_ == options_.recorded_step) record_.birth(op_, block->number, block->bytes);
  if (step_ >= 0) born_.push_back(block.get());
  return block.release();
}

void Executor::operands(const std::vector<Operand>& operands) {
  const std::lock_guard lock(mutex_);
  for (const Operand& each : operands) {  // before any is fetched: an operand is no victim
    each.block->storage = each.storage;
    ++each.block->pins;
    number_kept(*each.block);
    if (step_ == options_.recorded_step) record_.use(op_, name_of(*each.block));
  }
  if (!bring(operands)) {  // those that are here lie in the way: nothing has been launched with them yet
    for (const Operand& each : operands) {
      const auto same = [&](const Operand& other) { return other.block == each.block; };
      if (each.block->at != nullptr && each.block->pins == std::count_if(operands.begin(), operands.end(), same))
        leave(*each.block);
    }
    if (!bring(operands)) {
      std::fprintf(stderr, "an op's operands do not fit into %zu bytes\n", options_.budget);
      std::_Exit(no_room);
    }
  }
  for (const Operand& each : operands) {
    Block& block = *each.block;
    if (block.arrives) wait_for(options_.stream, std::exchange(block.arrives, nullptr));
    if (std::exchange(block.ahead, false)) ahead_bytes_ -= block.bytes;
    if (each.written) block.clean = false;
  }
}

// Fetches those that are away, the largest first.
bool Executor::bring(const std::vector<Operand>& operands) {
  away_.clear();
  for (const Operand& each : operands) {
    if (each.block->at == nullptr) away_.push_back(each.block);
  }
  std::stable_sort(away_.begin(), away_.end(), [](const Block* a, const Block* b) { return a->bytes > b->bytes; });
  return std::all_of(away_.begin(), away_.end(),
                     [&](Block* block) { return block->at != nullptr || fetch(*block, op_); });
}

void Executor::seen(Block* block, c10::StorageImpl* storage) {
  const std::lock_guard lock(mutex_);
  block->storage = storage;
}

void Executor::unpin(Block* block) {
  const std::lock_guard lock(mutex_);
  now_.reset();  // the op has been launched
  if (--block->pins == 0 && block->dead) drop(block);
}

void Executor::free(void* block) {
  auto* const it = static_cast<Block*>(block);
  if (it->owner == nullptr) return delete it;  // its executor has ended
  it->owner->release(it);
}

void Executor::release(Block* block) {
  const std::lock_guard lock(mutex_);
  now_.reset();  // its last use may have been launched since
  counts_.live_bytes -= block->bytes;
  block->dead = true;
  if (block->storage == nullptr) counts_.most_workspace_bytes = std::max(counts_.most_workspace_bytes, block->bytes);
  const BlockName name = name_of(*block);
  if (step_ == options_.recorded_step) record_.death(op_, name);
  auto& all = name.age == Age::born ? born_ : name.age == Age::carried ? carried_ : kept_;
  if (name.number < all.size() && all[name.number] == block) all[name.number] = nullptr;
  if (block->kept_as != unnumbered) kept_[block->kept_as] = nullptr;
  if (std::exchange(block->ahead, false)) ahead_bytes_ -= block->bytes;
  if (block->at != nullptr) {
    std::vector<Mark> after;
    if (block->arrives) after.push_back(block->arrives);
    places_.give(static_cast<std::size_t>(block->at - memory_), std::move(after));
    block->at = nullptr;
  }
  if (block->pins == 0) drop(block);
}

void Executor::drop(Block* block) {
  if (block->home.data != nullptr) {
    if (block->arrives) block->home.after.push_back(block->arrives);
    homes_.emplace(block->bytes, std::move(block->home));
  }
  delete block;
}

Home Executor::take_home(std::size_t bytes) {
  if (auto idle = homes_.extract(bytes)) return std::move(idle.mapped());
  Home home;
  cuda_ok(cudaHostAlloc(&home.data, bytes, 0), "cudaHostAlloc");
  counts_.pinned_bytes += bytes;
  return home;
}

// The storage is told where it is, or that it is away: views and saved tensors read their storage's pointer.
void Executor::point(Block& block) {
  c10::DataPtr old =
      block.storage->set_data_ptr(c10::DataPtr(block.at, &block, &Executor::free, c10::Device(c10::kCUDA, 0)));
  static_cast<void>(old.release_context());
}

void Executor::leave(Block& block) {
  std::vector<Mark> after;
  if (block.clean) {
    if (block.arrives) after.push_back(block.arrives);
    ++counts_.clean;
  } else {
    if (block.home.data == nullptr) block.home = take_home(block.bytes);
    for (const Mark& mark : block.home.after) wait_for(out_, mark);
    wait_for(out_, now());
    cuda_ok(cudaMemcpyAsync(block.home.data, block.at, block.bytes, cudaMemcpyDeviceToHost, out_), "cudaMemcpyAsync");
    block.home.after = {marks_.record(out_)};
    after = block.home.after;
    block.clean = true;
    ++counts_.out;
    counts_.out_bytes += block.bytes;
  }
  if (std::exchange(block.ahead, false)) ahead_bytes_ -= block.bytes;
  places_.give(static_cast<std::size_t>(block.at - memory_), std::move(after));
  block.at = nullptr;
  point(block);
}

// False when there is no room that spares what ops up to `spared` use.
bool Executor::fetch(Block& block, Op spared) {
  const std::optional<Place> place = room(block, spared);
  if (!place) return false;
  for (const Mark& mark : place->after) wait_for(in_, mark);
  for (const Mark& mark : block.home.after) wait_for(in_, mark);
  wait_for(in_, now());  // what the compute stream still does in that place
  block.at = memory_ + place->at;
  cuda_ok(cudaMemcpyAsync(block.at, block.home.data, block.bytes, cudaMemcpyHostToDevice, in_), "cudaMemcpyAsync");
  block.arrives = marks_.record(in_);
  block.home.after = {block.arrives};
  point(block);
  ++counts_.in;
  counts_.in_bytes += block.bytes;
  return true;
}

// Bytes weighted by how soon they are used again; nothing for what has to stay.
std::optional<double> Executor::cost(const Block& block, Op spared) const {
  if (block.pins != 0 || block.storage == nullptr) return {};
  const bool known = record_.complete() && step_ > options_.recorded_step;
  if (!known) return static_cast<double>(block.bytes);
  const Op next = record_.next_use(name_of(block), op_);
  if (next != never && next <= spared) return {};
  const double distance = next == never ? 4.0 * record_.ops() : static_cast<double>(next - op_);
  return static_cast<double>(block.bytes) * (block.clean ? 1 : 2) / (distance + 1);
}

std::optional<Executor::Place> Executor::room(Block& block, Op spared) {
  // Whoever dies soon is born at the top, so that the others' places stay together.
  const bool brief = record_.complete() && block.born_in == step_ && record_.life(block.number) < 16;
  const auto from = brief ? Places<Block, Mark>::From::top : Places<Block, Mark>::From::bottom;
  if (auto place = places_.take(&block, block.bytes, from)) return place;
  const auto run = places_.cheapest_run(block.bytes, [&](const Block& each) { return cost(each, spared); });
  if (run.empty()) return {};
  for (Block* const each : run) leave(*each);
  return places_.take(&block, block.bytes, from);
}

// Evicts what is used last, so that births of the next ops find room whose copies have ended.
void Executor::make_room_ahead() {
  const auto most = static_cast<std::size_t>(options_.room_share * static_cast<double>(options_.budget));
  const Op horizon = op_ + options_.ahead_ops / 4;
  const std::size_t wanted = std::min(most, record_.born_bytes(op_ + 1, horizon));
  while (places_.free_bytes() < wanted) {
    Block* furthest = nullptr;
    Op use = horizon;
    places_.each_owner([&](Block& block) {
      if (block.pins != 0 || block.storage == nullptr || block.ahead) return;
      const Op next = record_.next_use(name_of(block), op_);
      if (next > use) use = next, furthest = &block;
    });
    if (furthest == nullptr) return;
    leave(*furthest);
  }
}

void Executor::fetch_ahead() {
  const auto most = static_cast<std::size_t>(options_.ahead_share * static_cast<double>(options_.budget));
  fetched_to_ = std::max(fetched_to_, op_);
  for (; fetched_to_ < std::min(op_ + options_.ahead_ops, record_.ops() - 1); ++fetched_to_) {
    for (const BlockName name : record_.used_by(fetched_to_ + 1)) {
      Block* const block = named(name);
      if (block == nullptr || block->at != nullptr || block->storage == nullptr || block->home.data == nullptr)
        continue;
      if (ahead_bytes_ + block->bytes > most || !fetch(*block, fetched_to_ + 1)) return;  // again at the next op
      block->ahead = true;
      ahead_bytes_ += block->bytes;
      ++counts_.ahead;
    }
  }
}

}  // namespace vedette::gpu
