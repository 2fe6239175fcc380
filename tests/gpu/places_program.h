// Programs drawn from seeds, of blocks on two streams: the numbers are those of the same program on the host.
#pragma once
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "support/places.h"

namespace vedette::testing {

inline std::uint32_t mixed(std::uint32_t a, std::uint32_t b) {
  return (a ^ (b + 0x9e3779b9u)) * 2654435761u + (a >> 15);
}

class PlacesProgram {
  using Address = cuda::Address;
  using StreamHandle = cuda::StreamHandle;
  using BlockIndex = PlaceExecutor::BlockIndex;

 public:
  struct Tensor {
    BlockIndex block;
    std::vector<std::uint32_t> words;  // what it should hold
    bool dropped = false;
  };

  PlacesProgram(unsigned seed, Bytes budget, Bytes pinned = {}, std::unique_ptr<DiskThread> disk = nullptr)
      : budget_(budget),
        random_(seed),
        executor_(PlaceExecutor::make(device_, {.budget = budget, .most_pinned = pinned}, pointed_, std::move(disk))
                      .value()) {}
  ~PlacesProgram() {
    for (const Tensor& each : tensors_) executor_->release(each.block);
  }

  void run(int ops, std::size_t tensors, std::size_t largest) {
    largest_ = largest;
    for (int i = 0; i < ops; ++i) {
      const cuda::Stream& stream = random_() % 5 == 0 ? second_ : first_;
      if (&stream != last_) order(stream);
      last_ = &stream;
      if (tensors_.size() < tensors || random_() % 8 == 0) birth(stream);
      if (tensors_.size() > tensors) death();
      if (planned) move_by_plan();
      if (drops && random_() % 2 == 0) drop();
      if (rearranges && random_() % 8 == 0) rearrange();
      op(stream);
      for (const Tensor& each : tensors_) ASSERT_EQ(pointed_.at.at(each.block.value), executor_->address(each.block));
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) check(i);
  }
  PlaceExecutor::Counters counters() const { return executor_->counters(); }
  double share_in_place() const { return static_cast<double>(in_place_) / static_cast<double>(targets_); }
  std::size_t failures = 0, made_again = 0;
  bool drops = false;       // blocks are dropped, and made again before the op that needs them
  bool planned = false;     // blocks leave and come to places between ops, too
  bool several = false;     // up to eight of them at once
  bool far = false;         // and go on to the disk
  bool foresees = false;    // ops are told what comes, which is right or wrong
  bool rearranges = false;  // now and then all blocks that stay get other places
  bool notes = false;       // the first stream is the default one, and half of the ops' ends are only noted

 private:
  StreamHandle handle(const cuda::Stream& stream) const {
    return notes && &stream == &first_ ? nullptr : stream.handle();
  }
  PlaceExecutor::Ends ends() {
    return notes && random_() % 2 == 0 ? PlaceExecutor::Ends::noted : PlaceExecutor::Ends::marked;
  }
  // A call of the driver fails once: what was asked for is asked for again.
  template <class Ask>
  auto again(const Ask& ask) {
    auto answer = ask();
    for (int tries = 0; !answer && tries < 3; ++tries) {
      EXPECT_THAT(answer.error().message, ::testing::HasSubstr("; "));
      ++failures;
      answer = ask();
    }
    return answer;
  }
  void order(const cuda::Stream& next) {
    if (last_ == nullptr) return;
    again([&] { return event_.record(handle(*last_)); }).value();
    again([&] { return event_.let_wait(handle(next)); }).value();
  }
  void birth(const cuda::Stream& stream) {
    const std::size_t words = 1 + random_() % largest_;
    const auto born = again([&] { return executor_->allocate({words * 4}, handle(stream)); });
    ASSERT_TRUE(born) << born.error().message;
    pointed_.at[born->block.value] = born->address;
    const auto value = static_cast<std::uint32_t>(random_());
    launch_fill(handle(stream), born->address, words, value);
    tensors_.push_back({born->block, std::vector<std::uint32_t>(words, value)});
    executor_->allow_moves(born->block);
  }
  void move_several() {
    std::vector<PlaceExecutor::Leaving> leaving;
    std::vector<PlaceExecutor::Coming> coming;
    for (auto rest = random_() % 8; rest > 0; --rest)
      leaving.push_back({.block = any().block, .far = far && random_() % 2 == 0});
    for (auto rest = random_() % 8; rest > 0; --rest)
      coming.push_back({.block = any().block, .place = random_() % 256 * 512, .unchanged = random_() % 2 == 0});
    again([&] { return executor_->leave_all(leaving); }).value();
    static_cast<void>(executor_->bring_all(coming));
  }
  const Tensor& any() { return tensors_[random_() % tensors_.size()]; }
  void move_by_plan() {
    if (several) return move_several();
    const BlockIndex block = tensors_[random_() % tensors_.size()].block;
    if (random_() % 2 == 0) {
      again([&] { return executor_->leave(block, far && random_() % 2 == 0); }).value();
      return;
    }
    // Where there is no room for it, it comes when an op needs it.
    static_cast<void>(executor_->bring(block, random_() % 256 * 512, false));
  }
  void drop() {
    Tensor& tensor = tensors_[random_() % tensors_.size()];
    if (!tensor.dropped) tensor.dropped = executor_->drop(tensor.block);
  }
  // Into a block of its own, whose place the dropped one gets.
  void make_again(Tensor& tensor, const cuda::Stream& stream) {
    if (!std::exchange(tensor.dropped, false)) return;
    const auto place = random_() % 2 == 0 ? executor_->dropped_from(tensor.block) : std::nullopt;
    const auto born =
        again([&] { return executor_->allocate({tensor.words.size() * 4}, handle(stream), place); }).value();
    pointed_.at[born.block.value] = born.address;
    again([&] { return executor_->begin_again({&born.block, 1}, handle(stream)); }).value();
    void* const at = reinterpret_cast<void*>(pointed_.at.at(born.block.value));
    const std::size_t bytes = tensor.words.size() * 4;
    control().launch(handle(stream), "again", {{.at = at, .bytes = bytes, .write = true}},
                     [=, words = tensor.words] { std::memcpy(control().reach(at), words.data(), bytes); });
    executor_->end_again({&born.block, 1}, handle(stream));
    executor_->adopt(born.block, tensor.block);
    executor_->release(born.block);
    ++made_again;
  }
  // Drawn: some come in turn, others leave. Where something may not leave, or is in the way, blocks lie elsewhere.
  void rearrange() {
    std::vector<PlaceExecutor::Target> targets;
    std::vector<BlockIndex> order;
    for (const Tensor& each : tensors_) order.push_back(each.block);
    std::shuffle(order.begin(), order.end(), random_);
    std::uint64_t end = 0;
    for (const BlockIndex block : order) {
      const std::uint64_t bytes = (executor_->bytes(block).value + 511) / 512 * 512, place = end + random_() % 4 * 512;
      if (random_() % 8 == 0 || place + bytes > budget_.value) continue;
      targets.push_back({.block = block, .place = place});
      end = place + bytes;
    }
    again([&] { return executor_->rearrange(targets); }).value();
    for (const auto& [block, place] : targets) in_place_ += executor_->place(block) == place ? 1 : 0;
    targets_ += targets.size();
  }
  void expect(const Tensor& to, const Tensor& from) {
    std::vector<moves::NextUses<PlaceExecutor::BlockIndex>::Use> uses;
    std::vector<PlaceExecutor::Expected::Fetch> fetches;
    ++tick_;
    for (const Tensor& each : tensors_) {
      if (random_() % 3 == 0) continue;
      uses.push_back({.index = each.block,
                      .tick = tick_ + random_() % 40,
                      .dead_at = random_() % 4 == 0 ? tick_ + random_() % 40 : never});
      if (random_() % 4 == 0) fetches.push_back({.block = each.block, .unchanged = random_() % 2 == 0});
    }
    for (const Tensor* each : {&to, &from}) uses.push_back({.index = each->block, .tick = tick_ + 1});
    executor_->expect({.now = tick_,
                       .outlook = {.anew = random_() % 16 == 0,
                                   .makes_room = random_() % 4 != 0,
                                   .until = tick_ + random_() % 8,
                                   .calendar = {.ends = tick_ + 10, .next_begins = tick_ + 20},
                                   .next_births = random_() % 3 * (16 << 10)},
                       .uses = uses,
                       .fetches = fetches});
  }
  void death() {
    const std::size_t gone = random_() % tensors_.size();
    executor_->release(tensors_[gone].block);
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  // to[i] = mixed(to[i], from[i])
  void op(const cuda::Stream& stream) {
    Tensor& to = tensors_[random_() % tensors_.size()];
    Tensor& from = tensors_[random_() % tensors_.size()];
    make_again(to, stream);
    make_again(from, stream);
    const BlockIndex operands[] = {to.block, from.block};
    const PlaceExecutor::Ends ended = ends();
    const bool told = foresees && random_() % 8 != 0;
    const auto results = foresees ? PlaceExecutor::Results::anywhere : PlaceExecutor::Results::placed;
    told ? expect(to, from) : executor_->expect_nothing();
    again([&] { return executor_->begin_op(operands, handle(stream), results, ended); }).value();
    executor_->may_change(to.block);
    const Address into = pointed_.at.at(to.block.value), other = pointed_.at.at(from.block.value);
    ASSERT_EQ(into, executor_->address(to.block));
    const std::size_t words = std::min(to.words.size(), from.words.size());
    void* const written = reinterpret_cast<void*>(into);
    const void* const read = reinterpret_cast<const void*>(other);
    control().launch(handle(stream), "mix", {{.at = read, .bytes = words * 4}, {written, words * 4, true}}, [=] {
      auto* const a = static_cast<std::uint32_t*>(control().reach(written));
      const auto* const b = static_cast<const std::uint32_t*>(control().reach(read));
      for (std::size_t i = 0; i < words; ++i) a[i] = mixed(a[i], b[i]);
    });
    executor_->end_op(operands, handle(stream));
    if (told) again([&] { return executor_->look_ahead(); }).value();
    const std::vector<std::uint32_t> before = from.words;
    for (std::size_t i = 0; i < words; ++i) to.words[i] = mixed(to.words[i], before[i]);
  }
  void check(std::size_t which) {
    Tensor& tensor = tensors_[which];
    const BlockIndex operands[] = {tensor.block};
    order(first_);
    last_ = &first_;
    make_again(tensor, first_);
    again([&] { return executor_->begin_op(operands, handle(first_)); }).value();
    std::vector<std::uint32_t> found(tensor.words.size());
    const void* const at = reinterpret_cast<const void*>(pointed_.at.at(tensor.block.value));
    control().launch(handle(first_), "check", {{.at = at, .bytes = found.size() * 4}},
                     [&] { std::memcpy(found.data(), control().reach(at), found.size() * 4); });
    executor_->end_op(operands, handle(first_));
    again([&] { return device_->synchronize(); }).value();
    EXPECT_EQ(found, tensor.words) << "tensor " << which;
  }

  const Bytes budget_;
  std::mt19937 random_;
  std::shared_ptr<cuda::Device> device_ = open_device();
  Pointed pointed_;
  cuda::Stream first_ = cuda::Stream::create(device_).value(), second_ = cuda::Stream::create(device_).value();
  cuda::Event event_ = cuda::Event::create(device_).value();
  std::unique_ptr<PlaceExecutor> executor_;
  const cuda::Stream* last_ = nullptr;
  std::vector<Tensor> tensors_;
  std::size_t largest_ = 1;
  std::uint64_t tick_ = 0;
  std::size_t in_place_ = 0, targets_ = 0;
};

constexpr std::size_t program_tensors = 24, largest_words = 16 << 10;  // of up to 64 KiB: about 780 KiB live

// Programs of the seeds 1 to `seeds` in each of these budgets. `set_up` is called before each one runs, and `ran`
// after.
template <class SetUp, class Ran>
void run_programs(unsigned seeds, std::initializer_list<Bytes> budgets, int ops, const SetUp& set_up, const Ran& ran) {
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    for (const Bytes budget : budgets) {
      PlacesProgram program(seed, budget);
      set_up(program, seed);
      program.run(ops, program_tensors, largest_words);
      ran(program);
      EXPECT_LE(program.counters().most_in_use, budget);
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << "seed " << seed;
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << ", " << budget.value << " bytes";
    }
  }
}

}  // namespace vedette::testing
