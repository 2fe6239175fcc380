// What a program has beside the tensors that a guard of GPU memory moves: another GPU, lists of tensors, collectives,
// kernels that are no operators. And what was there before the guard, or beside it: models, threads that do not train.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/library.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/operators.h"
#include "simulated_gpu/torch_device.h"
#include "support/whole_run.h"
#include "vedette/torch.h"

namespace vedette::testing::surroundings_test {
namespace {

using ::testing::HasSubstr;

const c10::Device device(at::kCUDA, 0);
constexpr std::int64_t many = 64 << 10;  // floats: 256 KiB, an eighth of the budget
constexpr Bytes budget = 2_MiB;

at::Tensor filled(double value, c10::Device where = device) { return at::full({many}, value, where); }
bool is_away(const at::Tensor& tensor) { return tensor.storage().data_ptr().get() == nullptr; }
bool all_are(const at::Tensor& tensor, double value) { return tensor.cpu().eq(value).all().item<bool>(); }

class Surroundings : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{256} << 20, .devices = 2});
  }
  void TearDown() override {
    guard_.reset();
    if (IsSkipped()) return;
    EXPECT_EQ(control().races(), std::vector<std::string>());
  }
  Guard& open(GuardOptions options = {.fast_memory = budget}) {
    options.fast = "gpu:0";
    options.slow = "host";
    return guard_.emplace(std::move(options));
  }
  static void crowd() {
    std::vector<at::Tensor> others;
    for (int i = 0; i < 10; ++i) others.push_back(filled(-i));
    for (const at::Tensor& each : others) static_cast<void>(each.add(1));
  }
  std::optional<Guard> guard_;
};

// --- what the session has the program compare
// -------------------------------------------------------------------------

TEST_F(Surroundings, BytesOfTheDeviceAreComparedThereToTheLastOne) {
  adapter::GpuStorages& storages = adapter::GpuStorages::open();
  constexpr std::int64_t piece = 64 << 20;  // that one kernel compares
  const auto copies = [] {
    auto calls = control().calls();
    return calls["cuMemcpyAsync"] + calls["cuMemcpyBatchAsync"] + calls["cudaMemcpyAsync"];
  };
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{7}, std::int64_t{8}, std::int64_t{4099}, piece + 8}) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(device);
    at::Tensor one = at::full({bytes}, 3, options), other = at::full({bytes}, 3, options);
    const auto same = [&] {
      const auto address = [](const at::Tensor& of) { return reinterpret_cast<DeviceAddress>(of.data_ptr()); };
      return storages.same_bytes(address(one), address(other), static_cast<std::uint64_t>(bytes));
    };
    const unsigned before = copies();
    EXPECT_EQ(same(), std::optional(true)) << bytes;
    EXPECT_LE(copies() - before, 1u) << "the answer";
    for (const std::int64_t at : {std::int64_t{0}, bytes / 2, piece - 1, piece, bytes - 1}) {
      if (at >= bytes) continue;
      other[at] = 4;
      EXPECT_EQ(same(), std::optional(false)) << bytes << " bytes, of which one differs at " << at;
      other[at] = 3;
    }
  }
}

// --- another GPU -----------------------------------------------------------------------------------------------------

TEST_F(Surroundings, TensorsOfAnotherGpuAreLibtorchsOwn) {
  Guard& guard = open();
  const auto live = guard.counters().live_bytes.value;
  const c10::Device other(at::kCUDA, 1);
  at::Tensor there;
  for (int i = 0; i < 3; ++i) {
    const c10::DeviceGuard on(other);
    there = filled(3, other);
    there.add_(1);
  }
  EXPECT_EQ(guard.counters().live_bytes.value, live);
  EXPECT_EQ(there.storage().data_ptr().device(), other);
  const Guard::Named named[] = {{.tensor = there, .name = "there"}};
  guard.watch(named);
  EXPECT_EQ(guard.counters().live_bytes.value, live);
  EXPECT_TRUE(all_are(there, 4));
}

// The current device stays the first.
TEST_F(Surroundings, AGuardMayBeOfAnyGpu) {
  const at::Device second("cuda:1");
  std::vector<at::Tensor> before;
  for (int i = 0; i < 3; ++i) before.push_back(filled(i, second));
  Guard& guard = guard_.emplace(GuardOptions{.fast_memory = budget, .fast = "cuda:1", .slow = "host"});
  EXPECT_EQ(guard.counters().live_bytes.value, 0u);
  for (const at::Tensor& each : before) {
    const Guard::Named named[] = {{.tensor = each, .name = "before"}};
    guard.watch(named);
  }
  EXPECT_EQ(guard.counters().live_bytes.value, 3 * before[0].nbytes());
  const at::Tensor of_the_first = filled(7);
  EXPECT_EQ(guard.counters().live_bytes.value, 3 * before[0].nbytes());
  std::vector<at::Tensor> made;
  for (int round = 0; round < 8; ++round) {
    const auto step = guard.step();
    for (int i = 0; i < 12; ++i) {
      if (round == 0) made.push_back(filled(i, second));
      made[static_cast<std::size_t>(i)].add_(1);
    }
  }
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(all_are(made[static_cast<std::size_t>(i)], static_cast<float>(i + 8))) << i;
  EXPECT_GT(guard.counters().bytes_in.value, 0u);
  EXPECT_TRUE(all_are(of_the_first, 7));
  guard_.reset();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(before[static_cast<std::size_t>(i)].device(), second);
  EXPECT_TRUE(all_are(before[2], 2));
}

TEST_F(Surroundings, AGpuThatIsNotThereIsRefusedWithASentence) {
  try {
    const Guard guard{{.fast_memory = budget, .fast = "gpu:2", .slow = "host"}};
    ADD_FAILURE() << "it was made";
  } catch (const Failure& refused) {
    EXPECT_STREQ(refused.what(), "there is no gpu:2: this program sees 2 GPUs, of which the first is gpu:0");
  }
}

TEST_F(Surroundings, TheGpuOfARankIsItsOwn) {
  ::setenv("LOCAL_RANK", "1", 1);
  EXPECT_EQ(adapter::GpuStorages::own_number(), 1);
  ::setenv("LOCAL_RANK", "5", 1);  // each rank sees its own alone, as the first
  EXPECT_EQ(adapter::GpuStorages::own_number(), 0);
  ::unsetenv("LOCAL_RANK");
  guard_.emplace(GuardOptions{.fast_memory = budget, .fast = "cuda", .slow = "host"});
  EXPECT_EQ(adapter::GpuStorages::device(), at::Device("cuda:0"));
}

TEST_F(Surroundings, AFractionIsOneOfTheGpusMemory) {
  Guard& guard = open({.fast_memory = fraction(0.25)});
  EXPECT_EQ(guard.session().budget().value, std::uint64_t{64} << 20);
}

// --- lists of tensors ------------------------------------------------------------------------------------------------

TEST_F(Surroundings, AListThatIsLargerThanTheBudgetGoesInGroupsWithTheSameBits) {
  const auto run = [&] {
    std::vector<at::Tensor> weights, gradients;
    std::vector<at::Scalar> numbers;
    for (int i = 0; i < 12; ++i) {
      weights.push_back(filled(1.0 + i));
      gradients.push_back(filled(0.25 * i));
      numbers.emplace_back(0.5 + i);
    }
    const at::NoGradGuard no_gradients;
    std::vector<at::Tensor> norms;
    for (int step = 0; step < 6; ++step) {
      std::optional<Guard::Step> scope;
      if (guard_) scope.emplace(*guard_);
      at::_foreach_add_(weights, gradients, 0.5);
      at::_foreach_addcdiv_(weights, gradients, weights, numbers);
      at::_foreach_mul_(weights, numbers);
      norms = at::_foreach_norm(weights, 2);
    }
    std::vector<at::Tensor> all;
    for (const auto* list : {&weights, &norms})
      for (const at::Tensor& each : *list) all.push_back(each.cpu());
    return all;
  };
  const std::vector<at::Tensor> plain = run();
  open();
  const std::vector<at::Tensor> inside = run();
  ASSERT_EQ(plain.size(), inside.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], inside[i])) << i;
  EXPECT_EQ(guard_->session().phase(), "planned");
}

TEST_F(Surroundings, AScalersCheckAndAFusedStepGoInGroups) {
  const auto run = [&] {
    std::vector<at::Tensor> weights, gradients, averages, squares, steps;
    for (int i = 0; i < 8; ++i) {
      weights.push_back(filled(1.0 + i));
      gradients.push_back(filled(i == 7 ? INFINITY : 8.0 * i));
      averages.push_back(filled(0));
      squares.push_back(filled(0));
      steps.push_back(at::ones({}, device));
    }
    at::Tensor found = at::zeros({1}, device);
    const at::Tensor scale = at::full({1}, 0.125, device);
    const at::NoGradGuard no_gradients;
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, scale);
    gradients.back().fill_(1);
    at::_fused_adam_(weights, gradients, averages, squares, {}, steps, 0.1, 0.9, 0.99, 0.0, 1e-8, false, false);
    weights.push_back(found);
    for (at::Tensor& each : weights) each = each.cpu();
    return weights;
  };
  const std::vector<at::Tensor> plain = run();
  EXPECT_EQ(plain.back().item<float>(), 1) << "one of them is infinite";
  open();
  const std::vector<at::Tensor> inside = run();
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], inside[i])) << i;
}

TEST_F(Surroundings, AListInAGraphKeepsItsGradients) {
  open();
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(filled(1.0 + i).requires_grad_(true));
  const std::vector<at::Tensor> twice = at::_foreach_mul(weights, 2.0);
  at::Tensor sum = at::zeros({}, device);
  for (const at::Tensor& each : twice) sum = sum + each.sum();
  sum.backward();
  for (const at::Tensor& each : weights) EXPECT_TRUE(all_are(each.grad(), 2));
}

// --- kernels that are no operators, collectives ----------------------------------------------------------------------

TEST_F(Surroundings, AKernelThatIsAnnouncedHasItsTensorsInPlace) {
  open();
  at::Tensor source = filled(3), target = filled(0);
  crowd();
  ASSERT_TRUE(is_away(source) && is_away(target));
  {
    const adapter::KernelOp op("a compiled kernel", {&source, 1}, {&target, 1});
    ASSERT_FALSE(is_away(source) || is_away(target));
    const void* const from = source.const_data_ptr();
    void* const to = target.mutable_data_ptr();
    constexpr std::size_t bytes = many * 4;
    control().launch(nullptr, "a compiled kernel",
                     {{.at = from, .bytes = bytes}, {.at = to, .bytes = bytes, .write = true}},
                     [=] { std::memcpy(control().reach(to), control().reach(from), bytes); });
  }
  crowd();
  EXPECT_TRUE(is_away(target));
  EXPECT_TRUE(all_are(target, 3));
}

// Asked for with a type, an address that is none is libtorch's own error; what libtorch copies to the host is fetched.
TEST_F(Surroundings, TheAddressOfATensorThatIsAwayIsAnErrorAndItsNumbersAreThere) {
  open();
  const at::Tensor tensor = filled(3);
  crowd();
  ASSERT_TRUE(is_away(tensor));
  try {
    static_cast<void>(tensor.const_data_ptr<float>());
    ADD_FAILURE() << "it has an address";
  } catch (const c10::Error& refused) {
    EXPECT_THAT(refused.what(), HasSubstr("not allocated"));
  }
  EXPECT_EQ(tensor[5].item<float>(), 3);
}

// --- results that are larger than their operands --------------------------------------------------------------------

// The operands lie in the middle of the budget, or everywhere, and more than half of it is wanted in one piece.
TEST_F(Surroundings, ALargeResultOfSmallOperandsHasRoomWhereverTheyLie) {
  using Tensors = std::vector<at::Tensor>;
  open({.fast_memory = 3_MiB});
  const auto rows = [] { return at::arange(1088, at::kLong).remainder(16); };
  const auto expect_room = [](const char* name, const Tensors& on_host, bool apart, const auto& op) {
    Tensors others, operands;
    for (int i = 0; i < (apart ? 0 : 6); ++i) others.push_back(filled(i));
    for (const at::Tensor& each : on_host) {
      operands.push_back(each.to(device));
      if (apart) others.push_back(at::zeros_like(operands.back()));
    }
    for (int i = 0; i < (apart ? 0 : 4); ++i) others.push_back(filled(-i));
    try {
      EXPECT_TRUE(at::equal(op(operands).cpu(), op(on_host))) << name;
      EXPECT_EQ(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 0u) << name;
    } catch (const c10::OutOfMemoryError& error) {
      ADD_FAILURE() << name << ": " << error.what_without_backtrace();
    }
  };
  Tensors many_small;
  for (int i = 0; i < 30; ++i) many_small.push_back(at::full({10 << 10}, double(i)));
  expect_room("cat", many_small, true, [](const Tensors& t) { return at::cat(t); });
  expect_room("stack", many_small, true, [](const Tensors& t) { return at::stack(t); });
  expect_room("mm", {at::rand({660, 16}), at::rand({16, 660})}, false, [](const Tensors& t) { return t[0].mm(t[1]); });
  expect_room("bmm", {at::rand({4, 330, 8}), at::rand({4, 8, 330})}, false,
              [](const Tensors& t) { return t[0].bmm(t[1]); });
  expect_room("addmm", {at::rand({660}), at::rand({660, 16}), at::rand({16, 660})}, false,
              [](const Tensors& t) { return at::addmm(t[0], t[1], t[2]); });
  expect_room("mul", {at::rand({660, 1}), at::rand({1, 660})}, false, [](const Tensors& t) { return t[0] * t[1]; });
  expect_room("clone", {at::rand({1, 660})}, false, [](const Tensors& t) { return t[0].expand({660, 660}).clone(); });
  expect_room("repeat", {at::rand({64, 100})}, false, [](const Tensors& t) { return t[0].repeat({68, 1}); });
  expect_room("embedding", {at::rand({16, 400}), rows()}, false,
              [](const Tensors& t) { return at::embedding(t[0], t[1]); });
  expect_room("index", {at::rand({16, 400}), rows()}, false,
              [](const Tensors& t) { return at::index(t[0], c10::List<std::optional<at::Tensor>>({t[1]})); });
  expect_room("index_select", {at::rand({400, 16}), rows()}, false,
              [](const Tensors& t) { return at::index_select(t[0], 1, t[1]); });
  expect_room("embedding_dense_backward", {at::rand({16, 400}), rows().slice(0, 0, 16)}, false,
              [](const Tensors& t) { return at::embedding_dense_backward(t[0], t[1], 1088, -1, false); });
  expect_room("upsample", {at::rand({1, 3, 64, 64})}, false, [](const Tensors& t) {
    return at::upsample_nearest2d(t[0], {380, 380});
  });
  expect_room("pad", {at::rand({100, 100})}, false, [](const Tensors& t) {
    return at::constant_pad_nd(t[0], {280, 280, 280, 280}, 1);
  });
  expect_room("convolution", {at::rand({1, 3, 80, 80}), at::rand({68, 3, 3, 3})}, false, [](const Tensors& t) {
    return at::convolution(t[0], t[1], {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
  });
  expect_room("transposed", {at::rand({1, 8, 20, 20}), at::rand({8, 68, 4, 4})}, false, [](const Tensors& t) {
    return at::convolution(t[0], t[1], {}, {4, 4}, {0, 0}, {1, 1}, true, {0, 0}, 1);
  });
  expect_room("to", {at::rand({217'600})}, false, [](const Tensors& t) { return t[0].to(at::kDouble); });
}

// An op's operands leave what its results take, and little more, in two pieces: the first result has room in the first
// one, of so many KiB, and then the second one has none.
TEST_F(Surroundings, SeveralResultsThatFitHaveRoomWhereverTheOperandsLie) {
  using Tensors = std::vector<at::Tensor>;
  open();
  const auto expect_room = [](const char* name, std::int64_t kib, const Tensors& on_host, const auto& op) {
    const at::Tensor first = at::full({kib * 256}, 1.0, device);
    Tensors operands;
    for (const at::Tensor& each : on_host) operands.push_back(each.to(device));
    try {
      const auto results = op(operands), wanted = op(on_host);
      for (std::size_t i = 0; i < results.size(); ++i)
        EXPECT_TRUE(at::allclose(results[i].cpu(), wanted[i])) << name << ", result " << i;
      EXPECT_EQ(adapter::GpuStorages::opened()->pieces_beside_the_budget(), 0u) << name;
    } catch (const c10::OutOfMemoryError& error) {
      ADD_FAILURE() << name << ": " << error.what_without_backtrace();
    }
  };
  expect_room("sort", 660, {at::rand({124 << 10})}, [](const Tensors& t) {
    const auto [values, indices] = t[0].sort();
    return Tensors{values, indices};
  });
  expect_room("max_pool2d", 660, {at::rand({1, 1, 352, 352})}, [](const Tensors& t) {
    const auto [values, indices] = at::max_pool2d_with_indices(t[0], {3, 3}, {1, 1}, {1, 1});
    return Tensors{values, indices};
  });
  expect_room("native_dropout", 940, {at::rand({224 << 10})}, [](const Tensors& t) {
    const auto [values, mask] = at::native_dropout(t[0], 0.0, true);
    return Tensors{values, mask};
  });
  expect_room("convolution_backward", 660,
              {at::rand({1, 64, 48, 48}), at::rand({1, 64, 48, 48}), at::rand({64, 64, 3, 3})}, [](const Tensors& t) {
                const auto [x, w, b] = at::convolution_backward(t[0], t[1], t[2], c10::nullopt, {1, 1}, {1, 1}, {1, 1},
                                                                false, {0, 0}, 1, {true, true, false});
                return Tensors{x, w};
              });
}

// --- models that are older than the guard ----------------------------------------------------------------------------

struct Net {
  explicit Net(int count) {
    at::manual_seed(3);
    for (int i = 0; i < count; ++i) layers.emplace_back(256, 256), layers.back()->to(device);
    std::vector<at::Tensor> parameters;
    for (const auto& each : layers)
      for (const at::Tensor& parameter : each->parameters()) parameters.push_back(parameter);
    adam = std::make_unique<torch::optim::Adam>(parameters);
  }
  void watch(Guard& guard) {
    for (auto& each : layers) guard.watch(*each);
    guard.watch(*adam);
  }
  at::Tensor loss() {
    at::Tensor x = at::ones({64, 256}, device);
    for (auto& each : layers) x = each->forward(x).tanh();
    return x.square().mean();
  }
  void step() {
    loss().backward();
    adam->step();
    adam->zero_grad();
  }
  std::vector<torch::nn::Linear> layers;
  std::unique_ptr<torch::optim::Adam> adam;
};

// 7.5 MiB of parameters and moments, in 2 MiB, by two guards one after the other.
TEST_F(Surroundings, AModelAndItsOptimizersStateMayBeLargerThanTheBudgetThatWatchesThem) {
  Net plain(10), guarded(10);
  for (Net* net : {&plain, &guarded}) net->step();
  for (int turn = 0; turn < 2; ++turn) {
    Guard& guard = open();
    guarded.watch(guard);
    EXPECT_LE(guard.counters().resident_max_bytes.value, budget.value);
    EXPECT_EQ(guard.counters().bytes_out.value, 0u) << "what does not fit goes to the host at once";
    EXPECT_FALSE(is_away(guarded.layers[0]->weight)) << "what is watched first stays";
    EXPECT_TRUE(is_away(guarded.layers[9]->weight));
    for (int i = 0; i < 5; ++i) {
      const auto step = guard.step();
      guarded.step();
    }
    EXPECT_LE(guard.counters().resident_max_bytes.value, budget.value);
    guard_.reset();
    guarded.step();
    for (int i = 0; i < 6; ++i) plain.step();
    for (std::size_t i = 0; i < plain.layers.size(); ++i)
      EXPECT_TRUE(at::equal(plain.layers[i]->weight, guarded.layers[i]->weight)) << "turn " << turn << ", layer " << i;
  }
}

// 4 MiB, in 2 MiB: the op has memory beside the budget, and the guard's end loses nothing.
TEST_F(Surroundings, ATensorThatIsLargerThanTheBudgetIsUsedBesideItAndIsThereAfterTheGuard) {
  const at::NoGradGuard no_grad;
  torch::nn::Linear used(torch::nn::LinearOptions(1024, 1024).bias(false)), away(used->options);
  for (torch::nn::Linear* each : {&used, &away}) {
    (*each)->to(device);
    (*each)->weight.fill_(3);
  }
  Guard& guard = open();
  guard.watch(*used);
  guard.watch(*away);
  EXPECT_TRUE(is_away(used->weight));
  for (int i = 0; i < 2; ++i) {
    const auto step = guard.step();
    used->weight.mul_(2);
  }
  guard_.reset();
  EXPECT_EQ(used->weight.min().item<float>(), 12);
  EXPECT_EQ(used->weight.max().item<float>(), 12);
  ASSERT_FALSE(is_away(away->weight));
  EXPECT_EQ(away->weight.sum().item<float>(), 3 * 1024 * 1024);
}

// --- threads that do not train ---------------------------------------------------------------------------------------

// libtorch runs the backward passes of all threads on one thread of the device.
void train_beside_another_thread(Guard& guard, const Net& plain) {
  Net mine(5), others(5);
  mine.watch(guard);
  std::atomic<int> wrong = 0, passes = 0;
  std::atomic<bool> stop = false;
  const auto pass = [&](Net& net) {
    net.loss().backward();
    for (std::size_t i = 0; i < net.layers.size(); ++i)
      if (!at::equal(net.layers[i]->weight.grad(), plain.layers[i]->weight.grad())) ++wrong;
    net.adam->zero_grad();
  };
  c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  cuda.synchronizeDevice(0);
  std::thread other([&] {
    const c10::StreamGuard stream(cuda.getNewStream(device));
    for (; !stop; ++passes) pass(others);
    cuda.synchronizeStream(cuda.getStream(device));
  });
  std::vector<std::uint64_t> ops;
  for (int i = 0; i < 25 || passes < 25; ++i) {
    const std::uint64_t before = guard.counters().ops;
    {
      const auto step = guard.step();
      pass(mine);
    }
    ops.push_back(guard.counters().ops - before);
  }
  EXPECT_EQ(guard.session().phase(), "planned");
  stop = true;
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_THAT(ops, ::testing::Each(ops.front())) << "the other thread's operators are not the step's";
}

TEST_F(Surroundings, ABackwardPassThatAnotherThreadBeganIsNoPartOfTheStep) {
  Net plain(5);
  plain.loss().backward();
  const int rounds = whole_run() ? 100 : 1;
  for (int round = 0; round < rounds && !HasFailure(); ++round)
    train_beside_another_thread(open({.fast_memory = 4_MiB}), plain);
}

// As gloo's: it goes on after the function has returned, on no stream.
class Unordered final : public c10d::Work {
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
  }
};
c10::intrusive_ptr<c10d::Work> exchange(const at::Tensor&) { return c10::make_intrusive<Unordered>(); }

TORCH_LIBRARY_FRAGMENT(c10d, library) {
  library.def("surroundings_test_(Tensor(a!) tensor) -> __torch__.torch.classes.c10d.Work");
}
TORCH_LIBRARY_IMPL(c10d, CUDA, library) { library.impl("surroundings_test_", &exchange); }

TEST_F(Surroundings, ACollectiveThatNoStreamOrdersIsRefusedWithASentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("c10d::surroundings_test_", "")
                      .typed<c10::intrusive_ptr<c10d::Work>(const at::Tensor&)>();
  const at::Tensor before = filled(1);
  open();
  op.call(before);  // libtorch's own memory
  EXPECT_DEATH(op.call(filled(2)), "by a backend whose work no stream orders; use nccl");
}

}  // namespace
}  // namespace vedette::testing::surroundings_test
