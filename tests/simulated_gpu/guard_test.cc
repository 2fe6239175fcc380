// What a program may do to its tensors while a guard of GPU memory moves them: dangers of docs/gpu-tier.md, two
// streams, and memory that is used up. Numbers are right on the simulated GPU, and no access is a race.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include <cstring>
#include <sstream>
#include <thread>

#include "adapter/torch/gpu_beside.h"
#include "adapter/torch/gpu_storages.h"
#include "simulated_gpu/torch_device.h"
#include "vedette/torch.h"

namespace vedette::testing::guard_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::int64_t many = 64 << 10;  // floats of a tensor: 256 KiB, an eighth of the budget
constexpr Bytes budget = 2_MiB;
const c10::Device device(at::kCUDA, 0);

at::Tensor filled(double value, std::int64_t size = many) { return at::full({size}, value, device); }

c10::StorageImpl& storage(const at::Tensor& tensor) { return *tensor.storage().unsafeGetStorageImpl(); }
bool is_away(const at::Tensor& tensor) { return storage(tensor).data_ptr().get() == nullptr; }

void expect_all(const at::Tensor& tensor, float value) {
  const at::Tensor here = tensor.cpu();
  for (std::int64_t i = 0; i < here.numel(); ++i) {
    if (here.const_data_ptr<float>()[i] == value) continue;
    FAIL() << "element " << i << " is " << here.const_data_ptr<float>()[i] << " instead of " << value;
  }
}

// Other tensors that fill the budget, so that what may leave has left.
void crowd(double value = -1) {
  std::vector<at::Tensor> others;
  for (int i = 0; i < 10; ++i) others.push_back(filled(value - i));
  for (const at::Tensor& each : others) static_cast<void>(each.add(1));
}

class GpuGuard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{256} << 20});
    control().forget_races();
    open();
  }
  void open(Bytes fast = budget, std::string slow = "host") {
    guard_.emplace(
        GuardOptions{.fast_memory = fast, .fast = "gpu:0", .slow = std::move(slow), .on_message = [this](auto s) {
                       messages_.emplace_back(s);
                     }});
  }
  void TearDown() override {
    guard_.reset();
    EXPECT_EQ(control().races(), std::vector<std::string>());
  }
  std::optional<Guard> guard_;
  std::vector<std::string> messages_;
};

// 1: pointers that are kept across operators.
TEST_F(GpuGuard, APointerThatIsHeldStaysAndWhatIsWrittenThroughItIsKept) {
  at::Tensor tensor = filled(3);
  crowd();
  ASSERT_TRUE(is_away(tensor));
  {
    const auto held = guard_->resident(tensor);
    void* const pointer = tensor.mutable_data_ptr();
    ASSERT_NE(pointer, nullptr);
    crowd();
    EXPECT_EQ(tensor.data_ptr(), pointer);
    at::Tensor alias = at::from_blob(pointer, {many}, at::TensorOptions().device(device));
    expect_all(alias, 3);
    alias.fill_(4);  // no operator says that it is this tensor
  }
  crowd();
  EXPECT_TRUE(is_away(tensor));
  expect_all(tensor, 4);
}

// 2: pointers that change their storage.
TEST_F(GpuGuard, StoragesThatExchangeTheirMemoryKeepTheirNumbers) {
  const at::Tensor a = filled(1), b = filled(2);
  {
    const auto a_held = guard_->resident(a), b_held = guard_->resident(b);
    c10::DataPtr of_a = storage(a).set_data_ptr(c10::DataPtr());
    c10::DataPtr of_b = storage(b).set_data_ptr(std::move(of_a));
    storage(a).set_data_ptr(std::move(of_b));
  }
  crowd();  // neither was seen since
  expect_all(a, 2);
  expect_all(b, 1);
  crowd();
  EXPECT_TRUE(is_away(a));
  EXPECT_TRUE(is_away(b)) << "an operator was seen with each";
  expect_all(a, 2);
  expect_all(b, 1);
}

TEST_F(GpuGuard, MemoryThatNoOperatorWasSeenWithStays) {
  c10::DataPtr memory = c10::GetAllocator(at::kCUDA)->allocate(static_cast<std::size_t>(many) * 4);
  void* const pointer = memory.get();
  at::from_blob(pointer, {many}, at::TensorOptions().device(device)).fill_(6);
  crowd();
  EXPECT_EQ(memory.get(), pointer);
  expect_all(at::from_blob(pointer, {many}, at::TensorOptions().device(device)), 6);
}

TEST_F(GpuGuard, MemoryThatOutlivesTheStorageThatHeldItStays) {
  at::Tensor tensor = filled(5);
  c10::DataPtr memory;
  {
    const auto held = guard_->resident(tensor);
    memory = storage(tensor).set_data_ptr(c10::DataPtr());
    tensor.reset();
  }
  crowd();
  expect_all(at::from_blob(memory.get(), {many}, at::TensorOptions().device(device)), 5);
}

// 3: a storage that is freed while it is away.
TEST_F(GpuGuard, AStorageThatIsFreedWhileItIsAwayLeavesNothing) {
  const auto live = guard_->counters().live_bytes.value;
  for (int round = 0; round < 5; ++round) {
    at::Tensor tensor = filled(3);
    crowd();
    ASSERT_TRUE(is_away(tensor));
  }
  EXPECT_EQ(guard_->counters().live_bytes.value, live);
  at::Tensor after = filled(8);
  crowd();
  expect_all(after, 8);
}

// 4: storages that are copied when they are written.
TEST_F(GpuGuard, ALazyCloneIsRefusedOrHasNumbersOfItsOwn) {
  at::Tensor tensor = filled(3);
  at::Tensor clone;
  try {
    clone = at::_lazy_clone(tensor);
  } catch (const c10::Error&) {
  }
  crowd();
  if (clone.defined()) {
    tensor.add_(1);
    crowd();
    expect_all(clone, 3);
    clone.add_(5);
    expect_all(clone, 8);
  } else {
    tensor.add_(1);
  }
  crowd();
  expect_all(tensor, 4);
}

// 6: what is allocated in an open operator.
TEST_F(GpuGuard, WhatAnOperatorMakesStaysUntilItHasEnded) {
  const std::int64_t large = many + many / 2;
  at::Tensor a = filled(1, large), b = filled(2, large);
  for (int round = 0; round < 6; ++round) {
    at::Tensor sum = a + b;
    const at::Tensor both = at::cat({a, b}, 0);  // two of 384 KiB, one of 768 KiB: three quarters of the budget
    expect_all(both.slice(0, large), 2.0f + static_cast<float>(round));
    b = sum - a + 1;
  }
  expect_all(a, 1);
}

// 8: storages that change under their tensors.
TEST_F(GpuGuard, ResizedSetAndExchangedStoragesKeepTheirNumbers) {
  at::Tensor grown = filled(3);
  crowd();
  grown.resize_({2 * many});
  crowd();
  expect_all(grown.slice(0, 0, many), 3);
  at::Tensor source = filled(4), target = filled(9);
  const at::Tensor view = source.view({2, many / 2});
  target.set_(source);
  crowd();
  target.add_(1);
  crowd();
  expect_all(view.reshape({-1}), 5);
  at::Tensor parameter = filled(6).requires_grad_(true);
  parameter.set_data(filled(7));
  crowd();
  expect_all(parameter.detach(), 7);
}

// 9: tensors that outlive the guard.
TEST_F(GpuGuard, TensorsThatOutliveTheGuardComeHome) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < 24; ++i) all.push_back(filled(i));
  EXPECT_TRUE(is_away(all[0]));
  guard_.reset();
  for (int i = 0; i < 24; ++i) {
    expect_all(all[static_cast<std::size_t>(i)].add(1), static_cast<float>(i + 1));
  }
  open();  // a guard for each epoch
  crowd();
  for (int i = 0; i < 24; ++i) expect_all(all[static_cast<std::size_t>(i)], static_cast<float>(i));
}

TEST_F(GpuGuard, WhatAnotherLibraryHasStaysWhereItIsAlsoWhenTheGuardEnds) {
  at::Tensor shared = filled(3);
  const at::Tensor other = filled(4);
  std::vector<Guard::Named> both{{shared, "shared"}, {other, "other"}};
  guard_->watch(both);
  crowd();
  ASSERT_TRUE(is_away(shared));
  mark_exported(shared);
  void* const address = storage(shared).data_ptr().get();
  const auto is_there = [&] {
    EXPECT_EQ(storage(shared).data_ptr().get(), address);
    expect_all(at::from_blob(address, {many}, at::TensorOptions().device(device)), 3);
  };
  crowd();
  is_there();
  guard_->bring_home();
  is_there();
  EXPECT_THAT(messages_, Contains(HasSubstr("it stays in the guard's memory")));
  guard_.reset();
  is_there();
  EXPECT_THAT(messages_, Contains(HasSubstr("256.0 KiB of tensors that another library has, too")));
  open();
  guard_->watch(both);
  shared.record_stream(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(device));
  crowd();
  is_there();
  expect_all(other, 4);
  guard_.reset();
  is_there();
  const unsigned released = control().calls()["cuMemRelease"];
  both.clear();
  shared.reset();
  EXPECT_GT(control().calls()["cuMemRelease"], released);  // the first guard's memory ends with it
}

TEST_F(GpuGuard, TensorsForWhichNoMemoryIsLeftAreToldOfWhenTheGuardEnds) {
  guard_.reset();
  open(32_MiB);
  std::vector<at::Tensor> all;
  for (int i = 0; i < 30; ++i) all.push_back(filled(i, 32 * many));  // 8 MiB each: 240 of 256 MiB
  guard_.reset();
  EXPECT_THAT(messages_, Contains(HasSubstr("the guard ends with ")));
  std::size_t home = 0;
  for (int i = 0; i < 30; ++i) {
    if (is_away(all[static_cast<std::size_t>(i)])) continue;
    ++home;
    expect_all(all[static_cast<std::size_t>(i)], static_cast<float>(i));
  }
  EXPECT_GT(home, 20u);
}

// 10: checkpoints between steps.
TEST_F(GpuGuard, ACheckpointBetweenStepsHasTheNumbersAndTrainingGoesOn) {
  torch::nn::Linear layer(128, 256);
  layer->to(device);
  guard_->watch(*layer);
  torch::optim::Adam adam(layer->parameters());
  guard_->watch(adam);
  const auto step = [&] {
    const auto scope = guard_->step();
    adam.zero_grad();
    layer->forward(at::ones({8, 128}, device)).pow(2).sum().backward();
    adam.step();
  };
  for (int i = 0; i < 6; ++i) step();
  crowd();
  std::stringstream file;
  torch::save(layer, file);
  torch::nn::Linear loaded(128, 256);
  torch::load(loaded, file, at::Device(at::kCPU));
  EXPECT_TRUE(at::equal(loaded->weight, layer->weight.cpu()));
  guard_->bring_home();
  EXPECT_TRUE(at::equal(loaded->weight, layer->weight.cpu()));
  guard_->watch(*layer);
  guard_->watch(adam);
  step();
  EXPECT_FALSE(at::equal(loaded->weight, layer->weight.cpu()));
}

// A plan knows which tensors its step does not write; what is written between two steps is not lost.
TEST_F(GpuGuard, WhatIsWrittenBetweenStepsIsKeptByAPlanThatOnlyReads) {
  std::vector<at::Tensor> weights, expected;
  for (int i = 0; i < 12; ++i) weights.push_back(filled(i));
  for (int s = 0; s < 10; ++s) {
    {
      const auto step = guard_->step();
      for (int i = 0; i < 12; ++i) static_cast<void>(weights[static_cast<std::size_t>(i)].add(1));
    }
    for (at::Tensor& weight : weights) weight.add_(1);
  }
  for (int i = 0; i < 12; ++i) expect_all(weights[static_cast<std::size_t>(i)], static_cast<float>(i + 10));
}

// --- two streams -----------------------------------------------------------------------------------------------------

class TwoStreams : public GpuGuard {
 protected:
  void SetUp() override {
    GpuGuard::SetUp();
    if (!IsSkipped()) impl.emplace(at::kCUDA);
  }
  std::optional<c10::impl::VirtualGuardImpl> impl;  // of a device that is loaded
  // `other` runs behind the training's stream, and the training's behind `other` when `back` is asked for.
  template <class Work>
  void beside(const c10::Stream& other, bool back, const Work& work) {
    c10::Event before(at::kCUDA), after(at::kCUDA);
    before.record(impl->getStream(device));
    before.block(other);
    {
      const c10::StreamGuard there(other);
      work();
      after.record(other);
    }
    if (back) after.block(impl->getStream(device));
  }
  // What another stream reads is freed at once by the training's, which goes on.
  void use_and_free(bool recorded) {
    const c10::Stream other = impl->getNewStream(device);
    std::vector<at::Tensor> results;
    for (int i = 0; i < 12; ++i) {
      const auto step = guard_->step();
      at::Tensor tensor = filled(i);
      beside(other, false, [&] {
        results.push_back(tensor * 2);
        if (recorded) tensor.record_stream(other);
      });
      tensor.reset();
      crowd(i);
    }
    beside(other, true, [] {});
    for (int i = 0; i < 12; ++i) expect_all(results[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i));
  }
};

TEST_F(TwoStreams, WithRecordStreamHaveRightNumbers) { use_and_free(true); }
// Operators are announced with their stream, so that the guard knows what libtorch has to be told.
TEST_F(TwoStreams, OfAnnouncedOperatorsNeedNoRecordStream) { use_and_free(false); }

// A kernel of the program's own is no operator: without record_stream nothing orders it.
TEST_F(TwoStreams, AKernelOfOnesOwnNeedsRecordStreamAndTheMissingOneIsReported) {
  const c10::Stream other = impl->getNewStream(device);
  for (const bool recorded : {true, false}) {
    at::Tensor tensor = filled(1, 4 * many);
    void* const memory = tensor.mutable_data_ptr();
    beside(other, false, [&] {
      auto* const stream = static_cast<cuda::StreamHandle>(impl->getStreamNativeHandle(other));
      control().launch(stream, "a kernel of one's own", {{.at = memory, .bytes = 4 * many * 4}},
                       [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    });
    if (recorded) tensor.record_stream(other);
    tensor.reset();
    crowd();
    if (recorded) {
      EXPECT_THAT(control().races(), ::testing::IsEmpty());
    } else {
      EXPECT_THAT(control().races(), Contains(HasSubstr("a kernel of one's own on stream")));
    }
    control().forget_races();
  }
}

TEST_F(TwoStreams, AnEventThatIsMissingBetweenThemIsReported) {
  const c10::Stream other = impl->getNewStream(device);
  // The first time the simulated device learns an operator's results while the host waits, which is an order.
  for (int round = 0; round < 3; ++round) {
    const at::Tensor tensor = filled(1);
    const c10::StreamGuard there(other);  // does not wait for the fill
    static_cast<void>(tensor.add(1));
  }
  EXPECT_THAT(control().races(), Contains(HasSubstr("nothing orders the two")));
  beside(other, true, [] {});
  control().forget_races();
}

// --- memory that is used up ------------------------------------------------------------------------------------------

TEST_F(GpuGuard, OutOfMemoryInAStepIsLibtorchsErrorAndTheGuardGoesOn) {
  const at::Tensor kept = filled(3);
  for (int i = 0; i < 6; ++i) {
    const auto step = guard_->step();
    const at::Tensor sum = kept + i;
    EXPECT_THROW(static_cast<void>(filled(0, 2048 * many)), c10::OutOfMemoryError) << "twice the device";
    const at::Tensor beside = filled(i, 16 * many);  // twice the budget
    const at::Tensor most = filled(i, 6 * many);     // everything else leaves for it
    expect_all(most, static_cast<float>(i));
    expect_all(sum, static_cast<float>(3 + i));
    expect_all(beside, static_cast<float>(i));
  }
  crowd();
  expect_all(kept, 3);
  EXPECT_EQ(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 6u);
  EXPECT_LE(guard_->counters().resident_max_bytes.value, budget.value);
}

// And with one result more than there is room for; the guard goes on.
TEST_F(GpuGuard, AnOperatorWhoseOperandsExceedTheBudgetRunsWithMemoryBesideIt) {
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(filled(i + 1, 4 * many));
  for (int i = 0; i < 6; ++i) {
    const auto step = guard_->step();
    std::vector<at::Tensor> parts;
    for (const at::Tensor& each : kept) parts.push_back(each + i);
    const at::Tensor whole = at::cat(parts);
    for (int p = 0; p < 3; ++p)
      expect_all(whole.slice(0, p * 4 * many, (p + 1) * 4 * many), static_cast<float>(p + 1 + i));
    for (at::Tensor& each : kept) each.mul_(1);
  }
  crowd();
  for (int i = 0; i < 3; ++i) expect_all(kept[static_cast<std::size_t>(i)], static_cast<float>(i + 1));
  EXPECT_GT(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 6u);
  const auto says = [](const std::string& each) { return each.find("beside the budget") != each.npos; };
  EXPECT_EQ(std::count_if(messages_.begin(), messages_.end(), says), 1);
  EXPECT_LE(guard_->counters().resident_max_bytes.value, budget.value);
}

TEST_F(GpuGuard, WhatLayBesideTheBudgetIsGivenBackWithItsTensor) {
  const auto allocated = [] {
    constexpr std::size_t all = 0;  // StatType::AGGREGATE
    return c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).allocated_bytes[all].current;
  };
  std::vector<std::int64_t> after;
  for (int i = 0; i < 4; ++i) {
    {
      std::vector<at::Tensor> parts;
      for (int p = 0; p < 3; ++p) parts.push_back(filled(p + 1, 4 * many));
      const std::int64_t before = allocated();
      expect_all(at::cat(parts).slice(0, 0, 4 * many), 1);
      EXPECT_GT(allocated(), before) << "all of it had room in the budget: the test shows nothing";
    }
    after.push_back(allocated());
  }
  EXPECT_EQ(after[1], after[3]);
}

// Of libtorch's own allocator, until the device has no piece of so many bytes.
std::vector<c10::DataPtr> all_of_the_device(std::size_t piece) {
  std::vector<c10::DataPtr> all;
  try {
    while (true) all.push_back(adapter::GpuStorages::opened()->native(piece));
  } catch (const c10::OutOfMemoryError&) {
  }
  return all;
}

TEST_F(GpuGuard, AnOperatorInPlaceThatHasNoRoomAnywhereIsLibtorchsErrorAndChangesNothing) {
  if (!adapter::Refused::writes_too()) GTEST_SKIP() << "an operator that writes cannot be refused before libtorch 2.13";
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(filled(i + 1, 4 * many));  // half of the budget, each
  auto others = all_of_the_device(1 << 20);
  for (int i = 0; i < 4; ++i) {
    const auto step = guard_->step();
    EXPECT_THROW(kept[0].addcmul_(kept[1], kept[2]), c10::OutOfMemoryError);
    const std::vector<at::Tensor> adds{kept[1], kept[2]};
    EXPECT_THROW(at::cat_out(kept[0], adds), c10::OutOfMemoryError);
    kept[1].add_(1);
  }
  for (int i = 0; i < 3; ++i) expect_all(kept[static_cast<std::size_t>(i)], static_cast<float>(i == 1 ? 6 : i + 1));
  EXPECT_EQ(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 0u);
  others.clear();
  kept[0].addcmul_(kept[1], kept[2]);
  expect_all(kept[0], 19);
  crowd();
  expect_all(kept[0], 19);
}

// What is held leaves less than the operands need.
TEST_F(GpuGuard, OperandsThatHaveNoRoomBesideWhatIsHeldLieBesideTheBudget) {
  if (!adapter::Refused::writes_too()) GTEST_SKIP() << "an operator that writes cannot be refused before libtorch 2.13";
  const at::Tensor big = filled(7, 5 * many);
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 2; ++i) kept.push_back(filled(i + 1, 2 * many));
  static_cast<void>(kept[0].add(kept[1]));  // the simulated device knows the shape of a result once it has run
  const auto held = guard_->resident(big);
  {
    const auto others = all_of_the_device(512 << 10);
    EXPECT_THROW(kept[0].add_(kept[1]), c10::OutOfMemoryError);
    EXPECT_THROW(static_cast<void>(kept[0].add(kept[1])), c10::OutOfMemoryError);
    expect_all(kept[0], 1);
    expect_all(kept[1], 2);
  }
  EXPECT_EQ(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 0u);
  kept[0].add_(kept[1]);
  EXPECT_EQ(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 1u);
  expect_all(kept[0], 3);
  expect_all(kept[1], 2);
  expect_all(big, 7);
}

TEST_F(GpuGuard, WhereBothMemoriesAreFullOperandsLieBesideThemOrTheErrorIsLibtorchs) {
  if (!adapter::Refused::writes_too()) GTEST_SKIP() << "an operator that writes cannot be refused before libtorch 2.13";
  guard_.reset();
  open(budget, "host:2MiB");
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 4; ++i) kept.push_back(filled(i, 4 * many));  // half of one, each
  auto others = all_of_the_device(1 << 20);
  const auto sum_up = [&] {
    int failed = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      try {
        kept[i].add_(1);
      } catch (const c10::OutOfMemoryError&) {
        ++failed;
      }
    }
    return failed;
  };
  std::vector<int> failed;
  for (int i = 0; i < 3; ++i) {
    const auto step = guard_->step();
    failed.push_back(sum_up());
  }
  EXPECT_THAT(failed, ::testing::Each(::testing::Gt(0))) << "there was room";
  for (at::Tensor& each : kept) {
    EXPECT_TRUE(each.defined());
  }
  others.clear();
  EXPECT_EQ(sum_up(), 0);
  EXPECT_GT(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 0u);
}

// --- steps that move nothing ----------------------------------------------------------------------------------------

TEST_F(GpuGuard, WhereNothingMovesOperatorsAreNotHeardAndWhatMovesLaterIsRight) {
  guard_.reset();
  open(8_MiB);
  at::Tensor weight = filled(1).requires_grad_(), expected = at::full({many}, 1.0);
  const auto train = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto step = guard_->step();
      at::Tensor hidden = weight * 2;
      for (int layer = 0; layer < 4; ++layer) hidden = hidden.sigmoid() + weight;
      hidden.sum().backward();
      const at::NoGradGuard no_gradients;
      weight.sub_(weight.grad(), 0.125);
      weight.mutable_grad().reset();
    }
  };
  train(40);
  EXPECT_FALSE(guard_->session().wants_ops());
  const Counters before = guard_->counters();
  train(10);
  EXPECT_EQ(guard_->counters().ops, before.ops);
  EXPECT_EQ(guard_->counters().steps, before.steps + 10);
  EXPECT_EQ(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 0u) << "of a backward pass, too";
  EXPECT_EQ(guard_->counters().live_bytes.value, before.live_bytes.value);

  std::vector<at::Tensor> others;  // three times the budget
  for (int i = 0; i < 96; ++i) others.push_back(filled(i));
  EXPECT_LE(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 1u) << "the one that woke it";
  for (int i = 0; i < 96; ++i) expect_all(others[static_cast<std::size_t>(i)], static_cast<float>(i));
  EXPECT_GT(guard_->counters().bytes_out.value, 0u);
  train(4);

  at::Tensor plain = at::full({many}, 1.0).requires_grad_();
  for (int i = 0; i < 54; ++i) {
    at::Tensor hidden = plain * 2;
    for (int layer = 0; layer < 4; ++layer) hidden = hidden.sigmoid() + plain;
    hidden.sum().backward();
    const at::NoGradGuard no_gradients;
    plain.sub_(plain.grad(), 0.125);
    plain.mutable_grad().reset();
  }
  EXPECT_TRUE(at::equal(weight.detach().cpu(), plain.detach()));
}

TEST_F(GpuGuard, AnEmptiedCacheInAStepChangesNothing) {
  const at::Tensor kept = filled(3);
  for (int i = 0; i < 6; ++i) {
    const auto step = guard_->step();
    const at::Tensor small = at::full({16}, i, device), sum = kept + small[0];
    c10::getDeviceAllocator(at::kCUDA)->emptyCache();
    crowd(i);
    expect_all(sum, static_cast<float>(3 + i));
  }
}

// The budget holds the guard's memory, in whole granules of the driver's. What libtorch's own allocator reserves comes
// beside it: small tensors.
TEST_F(GpuGuard, TheDeviceHoldsTheBudgetAndWhatLibtorchReserves) {
  const auto reserved = [] {
    constexpr std::size_t all = 0;  // StatType::AGGREGATE
    return c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).reserved_bytes[all].peak;
  };
  const std::size_t before = control().most_in_use();
  torch::nn::Linear layer(256, 512);
  layer->to(device);
  guard_->watch(*layer);
  torch::optim::Adam adam(layer->parameters());
  for (int i = 0; i < 8; ++i) {
    const auto step = guard_->step();
    layer->forward(filled(1).view({256, 256})).pow(2).sum().backward();
    adam.step();
    crowd();
  }
  EXPECT_LE(before, budget.value + static_cast<std::size_t>(reserved()))
      << "opening measures the link in the budget's memory";
  EXPECT_LE(control().most_in_use(), budget.value + static_cast<std::size_t>(reserved()));
  EXPECT_GT(guard_->counters().bytes_out.value, 0u);
}

// What is left out comes first in a list of operands: x[:, numbers].
TEST_F(GpuGuard, AnIndexBehindOneThatIsLeftOutIsAnOperand) {
  const at::Tensor table = filled(3).view({2, many / 2});
  const at::Tensor numbers = at::arange(many / 2, at::TensorOptions(device).dtype(at::kLong));
  crowd();
  ASSERT_TRUE(is_away(numbers));
  expect_all(at::index(table, c10::List<std::optional<at::Tensor>>({std::nullopt, numbers})).flatten(), 3);
}

// 5: another thread uses a tensor while it moves.
TEST_F(GpuGuard, AThreadWhoseOperatorsAreNotTheTrainingsHasRightNumbersWhileTensorsMove) {
  const at::Tensor shared = filled(2);
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0, looked = 0;
  std::thread other([&] {
    const at::NoGradGuard no_gradients;
    while (!stop) {
      at::Tensor sum = shared.sum();
      if (sum.item<float>() != 2.0f * many) ++wrong;
      const at::Tensor copy = shared * 3;  // memory of this thread
      if (copy.max().item<float>() != 6.0f) ++wrong;
      ++looked;
    }
  });
  for (int round = 0; round < 15 || looked < 10; ++round) {
    const auto step = guard_->step();
    crowd(round);
    expect_all(shared, 2);  // the host waits: else it queues without end, and the other thread waits behind that
  }
  stop = true;
  other.join();
  std::thread([last = filled(4)]() mutable { last.reset(); }).join();  // a thread that only frees
  EXPECT_EQ(wrong, 0);
  expect_all(shared, 2);
}

}  // namespace
}  // namespace vedette::testing::guard_test
