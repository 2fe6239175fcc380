// The guard's promises, and the accidents that happen to training loops: each ends right or with one clear sentence.
#include <ATen/DLConvertor.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "adapter/training.h"
#include "support/store_file.h"

namespace vedette::test::guard_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

GuardOptions tight(std::uint64_t budget) {
  return {.fast_memory = Bytes{budget}, .slow = "host", .chunk = small_chunk};
}

// A quarter of what the model needs, but room for the largest op.
std::uint64_t quarter(const Plain& plain) { return plain.peak_bytes / 4; }

bool all_in_arena(examples::Model& model, bool wanted) {
  bool all = true;
  for (const auto& item : model.module().named_parameters())
    all &= Session::owns(item.value().const_data_ptr()) == wanted;
  for (const auto& item : model.module().named_buffers()) all &= Session::owns(item.value().const_data_ptr()) == wanted;
  each_state(model.optimizer(), [&](const std::string&, const at::Tensor& state) {
    all &= Session::owns(state.const_data_ptr()) == wanted;
  });
  return all;
}

TEST(Guard, RefusesAFractionThatIsNone) {
  for (const double value : {0.0, -1.0, 1.5}) {
    EXPECT_THROW(Guard({.fast_memory = fraction(value), .slow = "host"}), Failure) << value;
  }
}

// Two models that are trained by turns.
struct ByTurns {
  std::unique_ptr<examples::Model> one = small("mlp"), other = small("lstm");
  Outcome of_one, of_other;
  void train(std::int64_t steps, Guard* guard = nullptr, Guard* second = nullptr) {
    for (std::int64_t i = 0; i < steps; ++i) {
      test::train(*one, i, i + 1, of_one, guard);
      test::train(*other, i, i + 1, of_other, second);
    }
  }
};

TEST(Guard, ThatIsASecondOneSharesTheMemoryOfTheFirst) {
  constexpr std::int64_t steps = 12;
  const Bytes part{quarter(train_plain("mlp", 2))}, other_part{quarter(train_plain("lstm", 2))};
  ByTurns plain;
  torch::manual_seed(5);
  plain.train(steps);
  auto first = std::make_unique<Guard>(tight(part.value));
  auto second = std::make_unique<Guard>(GuardOptions{.fast_memory = other_part});
  EXPECT_EQ(&first->session(), &second->session());
  EXPECT_LE(first->session().budget(), part + other_part);
  EXPECT_GT(first->session().budget() + 2 * small_chunk, part + other_part) << "each in whole chunks";
  ByTurns guarded;
  first->watch(guarded.one->module());
  first->watch(guarded.one->optimizer());
  second->watch(guarded.other->module());
  second->watch(guarded.other->optimizer());
  torch::manual_seed(5);
  guarded.train(steps, first.get(), second.get());
  EXPECT_EQ(guarded.of_one, plain.of_one);
  EXPECT_EQ(guarded.of_other, plain.of_other);
  EXPECT_EQ(first->session().phase(), "planned");
  EXPECT_LE(first->counters().resident_max_bytes, part + other_part);
  first->bring_home();
  EXPECT_TRUE(all_in_arena(*guarded.one, false));
  EXPECT_TRUE(all_in_arena(*guarded.other, true)) << "the other guard's stays";
  first.reset();
  EXPECT_LE(second->session().budget(), other_part) << "its part went with it";
  test::train(*guarded.other, steps, steps + 1, guarded.of_other, second.get());
  test::train(*plain.other, steps, steps + 1, plain.of_other);
  EXPECT_EQ(guarded.of_other, plain.of_other);
  second->bring_home();
  second.reset();
  Guard third(tight(4 << 20));  // a first one again
  EXPECT_LE(third.session().budget(), 4_MiB) << "less what tensors of the others keep";
}

TEST(Guard, ThatIsASecondOneIsRefusedWithOtherOptionsAndInAStep) {
  const auto why_not = [](GuardOptions options) -> std::string {
    try {
      const Guard second(std::move(options));
      return "it is there";
    } catch (const Failure& failure) {
      return failure.what();
    }
  };
  Guard first(tight(4 << 20));
  EXPECT_EQ(why_not(tight(4 << 20)), "it is there");
  EXPECT_THAT(why_not({.fast_memory = 4_MiB, .slow = "nvme:/tmp"}), HasSubstr("where `slow` has another value"));
  EXPECT_THAT(why_not({.fast_memory = 4_MiB, .policy = "sentinel"}), HasSubstr("where `policy` has another value"));
  EXPECT_THAT(why_not({.fast_memory = 4_MiB, .record = "/tmp/run"}), HasSubstr("where `record` has another value"));
  EXPECT_THAT(why_not({.fast_memory = 1024 * 1024_GiB}), HasSubstr("more than"));
  const Bytes before = first.session().budget();
  {
    const auto step = first.step();
    EXPECT_THAT(why_not(tight(4 << 20)), HasSubstr("open another guard between steps"));
  }
  EXPECT_EQ(first.session().budget(), before);
  const auto still_served = at::ones({1 << 16});
  EXPECT_TRUE(Session::owns(still_served.const_data_ptr()));
}

std::set<std::string> open_files_and_threads() {
  std::set<std::string> all;
  for (const char* const folder : {"/proc/self/fd", "/proc/self/task"})
    for (const auto& each : std::filesystem::directory_iterator(folder)) {
      std::error_code gone;  // the iterator's own
      const auto target = std::filesystem::read_symlink(each.path(), gone);
      if (std::string(folder).ends_with("task") || !gone) all.insert(each.path().filename().string() + target.string());
    }
  return all;
}

// As a program has it that sets VEDETTE_OFF=1: no thread, no file, the losses of a plain run; two at a time are none.
TEST(Guard, ThatIsSwitchedOffDoesNothing) {
  const Plain plain = train_plain("mlp", 3);
  const auto before = open_files_and_threads();
  const auto runs_plain = [&](GuardOptions options) {
    Guard guard(std::move(options));
    Guard other({.slow = "nvme:/nowhere/at/all", .enabled = false});
    const auto model = small("mlp");
    guard.watch(model->module());
    guard.watch(model->optimizer());
    Outcome outcome;
    train(*model, 0, 3, outcome, &guard);
    keep_tensors(*model, outcome);
    EXPECT_EQ(outcome, plain.outcome);
    EXPECT_TRUE(all_in_arena(*model, false));
    EXPECT_EQ(open_files_and_threads(), before);
    EXPECT_EQ(guard.session().phase(), "off");
    EXPECT_EQ(guard.counters(), Counters{});
    const auto held = guard.resident(model->module().parameters().front());
    guard.bring_home();
  };
  runs_plain({.fast_memory = 4_MiB, .slow = "host", .enabled = false});
  ::setenv("VEDETTE_OFF", "1", 1);
  std::vector<std::string> said;
  runs_plain(
      {.fast_memory = 4_MiB, .slow = "host", .on_progress = [&](std::string_view line) { said.emplace_back(line); }});
  EXPECT_THAT(said, ::testing::ElementsAre("VEDETTE_OFF is set: this guard does nothing"));
  ::setenv("VEDETTE_OFF", "0", 1);
  EXPECT_NE(Guard(tight(4 << 20)).session().phase(), "off");
  ::unsetenv("VEDETTE_OFF");
}

TEST(Guard, SaysThatParametersAreNotWatched) {
  const auto said = [](bool watches, bool made_inside) {
    std::vector<std::string> sentences;
    GuardOptions options = tight(32 << 20);
    options.on_message = [&](std::string_view sentence) { sentences.emplace_back(sentence); };
    std::optional<torch::nn::Linear> linear;
    if (!made_inside) linear.emplace(512, 1024);
    Guard guard(std::move(options));
    if (made_inside) linear.emplace(512, 1024);
    if (watches) guard.watch(**linear);
    for (int s = 0; s < 3; ++s) {
      const auto step = guard.step();
      (*linear)(at::ones({8, 512})).sum().backward();
    }
    std::erase_if(sentences, [](const std::string& each) { return each.find("not watched") == each.npos; });
    return sentences;
  };
  EXPECT_THAT(said(false, false),
              ::testing::ElementsAre(::testing::StartsWith("2 parameters of 2.0 MiB that operators use")));
  EXPECT_THAT(said(true, false), ::testing::IsEmpty());
  EXPECT_THAT(said(false, true), ::testing::IsEmpty());
}

TEST(Guard, RefusesAStepWhileOneRunsAndGoesOn) {
  Guard guard(tight(4 << 20));
  const auto begins = [&] { const auto step = guard.step(); };
  {
    const auto step = guard.step();
    EXPECT_THAT(begins, ::testing::ThrowsMessage<Failure>(HasSubstr("steps do not nest")));
    std::thread([&] { EXPECT_THAT(begins, ::testing::ThrowsMessage<Failure>(HasSubstr("steps do not nest"))); }).join();
    EXPECT_EQ(at::ones({1 << 16}).sum().item<float>(), 1 << 16);
  }
  EXPECT_NO_THROW(begins());
}

TEST(Guard, GivesAlignedMemoryAndTakesEmptyTensors) {
  Guard guard(tight(4 << 20));
  const at::Tensor empty = at::empty({0});
  EXPECT_EQ(empty.numel(), 0);
  for (const std::int64_t count : {1, 3, 1000, 100'000}) {
    const at::Tensor tensor = at::empty({count});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64, 0u) << count;
  }
  EXPECT_THROW(at::empty({std::int64_t{1} << 50}), c10::Error);
  EXPECT_EQ(at::full({1000}, 3.0f).sum().item<float>(), 3000.0f);
}

TEST(Guard, AdoptsStoragesAndViewsFollow) {
  torch::nn::Linear linear(64, 64);
  const at::Tensor view = linear->weight.detach().view({-1}).slice(0, 10, 20);
  const std::string before = bytes_of(linear->weight);
  Guard guard(tight(4 << 20));
  guard.watch(*linear);
  EXPECT_TRUE(Session::owns(linear->weight.const_data_ptr()));
  EXPECT_EQ(bytes_of(linear->weight), before);
  {
    const torch::NoGradGuard no_gradients;
    linear->weight.zero_();
  }
  EXPECT_EQ(view.sum().item<float>(), 0.0f);
}

// A program may watch the tensors of each batch.
TEST(Guard, ForgetsWatchedTensorsThatAreGone) {
  Guard guard(tight(4 << 20));
  at::Tensor first = at::zeros({1000});
  const auto storage = first.storage().getWeakStorageImpl();
  guard.watch(std::vector<Guard::Named>{{first, "batch", TensorKind::input}});
  EXPECT_EQ(storage.weak_use_count(), 3u) << "of the test, of the guard, and of the tensor";
  first = at::Tensor();
  for (int i = 0; i < 3000; ++i) {
    const at::Tensor later = at::zeros({1000});
    guard.watch(std::vector<Guard::Named>{{later, "batch", TensorKind::input}});
  }
  EXPECT_EQ(storage.weak_use_count(), 1u);
}

TEST(Guard, LeavesForeignMemoryWhereItIsAndSaysSo) {
  std::vector<float> foreign(64 * 64, 1.0f);
  torch::nn::Linear linear(64, 64);
  linear->weight.set_data(torch::from_blob(foreign.data(), {64, 64}));
  std::vector<std::string> said;
  auto options = tight(4 << 20);
  options.on_message = [&](std::string_view sentence) { said.emplace_back(sentence); };
  Guard guard(options);
  guard.watch(*linear);
  EXPECT_EQ(linear->weight.const_data_ptr(), foreign.data());
  EXPECT_THAT(said, Contains(HasSubstr("'weight' lives in memory that libtorch did not allocate")));
}

TEST(Guard, LeavesExportedMemoryWhereItIs) {
  torch::nn::Linear before(64, 64), later(64, 64);
  const auto handle = [](const at::Tensor& tensor) {
    mark_exported(tensor);
    return std::unique_ptr<DLManagedTensor, void (*)(DLManagedTensor*)>(at::toDLPack(tensor.detach()),
                                                                        [](DLManagedTensor* of) { of->deleter(of); });
  };
  const auto first = handle(before->weight);
  std::vector<std::string> said;
  auto options = tight(4 << 20);
  options.on_message = [&](std::string_view sentence) { said.emplace_back(sentence); };
  Guard guard(options);
  guard.watch(*before);
  guard.watch(*later);
  EXPECT_EQ(before->weight.const_data_ptr(), first->dl_tensor.data);
  EXPECT_TRUE(Session::owns(before->bias.const_data_ptr()));
  EXPECT_THAT(said, Contains(HasSubstr("'weight' is in use by another library, too")));
  const auto second = handle(later->weight);
  guard.bring_home();
  EXPECT_EQ(later->weight.const_data_ptr(), second->dl_tensor.data);
  EXPECT_FALSE(Session::owns(later->bias.const_data_ptr()));
  EXPECT_THAT(said, Contains(HasSubstr("it stays in the guard's memory")));
}

TEST(Guard, MovesWhatAReaderMadeGradientsThatExistSparseTensorsAndLBFGSsHistory) {
  torch::nn::Linear linear(64, 64);
  torch::optim::LBFGS lbfgs(linear->parameters(), torch::optim::LBFGSOptions(1).max_iter(3));
  const at::Tensor x = at::randn({16, 64});
  const auto closure = [&] {
    lbfgs.zero_grad();
    const at::Tensor loss = linear->forward(x).square().mean();
    loss.backward();
    return loss;
  };
  lbfgs.step(closure);
  const at::Tensor made = at::rand({64, 64});
  at::Tensor read = torch::pickle_load(torch::pickle_save(made)).toTensor();
  at::Tensor sparse = linear->register_buffer("sparse", at::eye(64).to_sparse());
  Guard guard(tight(4 << 20));
  guard.watch(*linear);
  guard.watch(lbfgs);
  guard.watch(std::vector<Guard::Named>{{read, "read"}});
  auto& state = static_cast<torch::optim::LBFGSParamState&>(
      *lbfgs.state().at(linear->parameters().front().unsafeGetTensorImpl()));
  for (const at::Tensor& each : {linear->weight.grad(), sparse._values(), sparse._indices(), read, state.d(),
                                 state.old_dirs().front(), state.prev_flat_grad()})
    EXPECT_TRUE(Session::owns(each.const_data_ptr()));
  EXPECT_TRUE(at::equal(read, made));
  EXPECT_EQ(sparse.to_dense().sum().item<float>(), 64.0f);
}

TEST(Guard, MovesTheTangentOfADualNumberAndBringsItHome) {
  const std::uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  {
    const at::Tensor number = at::rand({64, 64}), slope = at::rand({64, 64});
    const at::Tensor dual = at::_make_dual(number.clone(), slope.clone(), static_cast<std::int64_t>(level));
    const at::Tensor tangent = dual._fw_grad(level);
    Guard guard(tight(4 << 20));
    guard.watch(std::vector<Guard::Named>{{dual, "dual"}});
    EXPECT_TRUE(Session::owns(dual.const_data_ptr()));
    EXPECT_TRUE(Session::owns(tangent.const_data_ptr()));
    guard.bring_home();
    EXPECT_FALSE(Session::owns(dual.const_data_ptr()));
    EXPECT_FALSE(Session::owns(tangent.const_data_ptr()));
    EXPECT_TRUE(at::equal(dual._fw_grad(level), slope));
  }
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST(Guard, RefusesToKeepATensorResidentThatIsLargerThanTheBudget) {
  Guard guard(tight(1 << 20));
  const at::Tensor large = at::ones({1 << 20});
  EXPECT_THAT([&] { const auto pinned = guard.resident(large); },
              ::testing::ThrowsMessage<Failure>(HasSubstr("4.0 MiB does not fit into the budget of 1.0 MiB")));
}

TEST(Guard, RefusesToKeepATensorResidentThatHasNoRoomBesideOthersThatAre) {
  Guard guard(tight(1 << 20));
  const at::Tensor first = at::ones({3 << 16}), second = at::ones({3 << 16});  // 768 KiB each
  {
    const auto pinned = guard.resident(first);
    EXPECT_THAT([&] { const auto more = guard.resident(second); },
                ::testing::ThrowsMessage<Failure>(HasSubstr("cannot be kept in fast memory")));
  }
  const auto pinned = guard.resident(second);
  EXPECT_EQ(second.sum().item<float>(), 3 << 16);
}

TEST(Guard, ServesATensorThatOutlivesIt) {
  at::Tensor survivor;
  {
    Guard guard(tight(2 << 20));
    survivor = at::arange(1 << 20, at::kFloat);  // 4 MiB, twice the budget
  }
  EXPECT_EQ(survivor[12345].item<float>(), 12345.0f);
  EXPECT_EQ(survivor.to(at::kDouble).sum().item<double>(), 0.5 * (1 << 20) * ((1 << 20) - 1.0));
  survivor.resize_({1 << 21});  // its storage still knows our allocator
  EXPECT_EQ(survivor[4321].item<float>(), 4321.0f);
  std::thread([tensor = std::move(survivor)]() mutable { tensor.reset(); }).join();
}

TEST(Guard, TrainsOnAfterAnExceptionOutOfTheLoop) {
  const auto run = [](Guard* guard, examples::Model& model, Outcome& outcome) {
    train(model, 0, 4, outcome, guard);
    for (const int accident : {4, 5}) {
      try {
        std::optional<Guard::Step> none;
        if (guard != nullptr) {
          const auto step = guard->step();
          const at::Tensor loss = model.loss(accident, model.batch());
          at::mm(loss, loss);  // throws out of an operator: a scalar is no matrix
        } else {
          const at::Tensor loss = model.loss(accident, model.batch());
          at::mm(loss, loss);
        }
        ADD_FAILURE() << "no exception";
      } catch (const c10::Error&) {
      }
    }
    train(model, 6, 10, outcome, guard);
    keep_tensors(model, outcome);
  };
  Outcome plain, guarded;
  examples::forget_peak();
  const auto plain_model = small("mlp");
  run(nullptr, *plain_model, plain);
  const std::uint64_t peak = examples::counted_peak_bytes();
  const auto model = small("mlp");
  Guard guard(tight(peak / 4));
  guard.watch(model->module());
  guard.watch(model->optimizer());
  run(&guard, *model, guarded);
  EXPECT_TRUE(plain == guarded);
}

TEST(Guard, TakesALastBatchOfAnotherSize) {
  const auto run = [](Guard* guard, examples::Model& model, Outcome& outcome) {
    for (std::int64_t i = 0; i < 15; ++i) {
      const std::int64_t size = i % 5 == 4 ? 3 : model.batch();
      std::optional<float> loss;
      if (guard != nullptr) {
        const auto step = guard->step();
        loss = model.train_step(i, size);
      } else {
        loss = model.train_step(i, size);
      }
      outcome.losses.push_back(std::bit_cast<std::uint32_t>(*loss));
    }
    keep_tensors(model, outcome);
  };
  Outcome plain, guarded;
  examples::forget_peak();
  const auto plain_model = small("resnet18");
  run(nullptr, *plain_model, plain);
  const std::uint64_t peak = examples::counted_peak_bytes();
  const auto model = small("resnet18");
  Guard guard(tight(peak / 3));
  guard.watch(model->module());
  run(&guard, *model, guarded);
  EXPECT_TRUE(plain == guarded);
}

TEST(Guard, TakesAnEvaluationBetweenStepsAndInsideThem) {
  const auto run = [](Guard* guard, examples::Model& model, Outcome& outcome) {
    for (std::int64_t i = 0; i < 8; ++i) {
      train(model, i, i + 1, outcome, guard);
      if (i % 2 == 1) outcome.losses.push_back(std::bit_cast<std::uint32_t>(model.evaluate(100 + i)));
      if (i % 3 == 2 && guard != nullptr) {
        const auto step = guard->step();
        outcome.losses.push_back(std::bit_cast<std::uint32_t>(model.evaluate(200 + i)));
      } else if (i % 3 == 2) {
        outcome.losses.push_back(std::bit_cast<std::uint32_t>(model.evaluate(200 + i)));
      }
    }
    keep_tensors(model, outcome);
  };
  Outcome plain, guarded;
  examples::forget_peak();
  const auto plain_model = small("mlp");
  run(nullptr, *plain_model, plain);
  const std::uint64_t peak = examples::counted_peak_bytes();
  const auto model = small("mlp");
  Guard guard(tight(peak / 4));
  guard.watch(model->module());
  run(&guard, *model, guarded);
  EXPECT_TRUE(plain == guarded);
}

TEST(Guard, WatchesStateThatExistsAlready) {
  const Plain plain = train_plain("mlp", 9);
  Outcome outcome;
  const auto model = small("mlp");
  train(*model, 0, 3, outcome);
  Guard guard(tight(quarter(plain)));
  guard.watch(model->module());
  guard.watch(model->optimizer());
  EXPECT_TRUE(all_in_arena(*model, true));
  train(*model, 3, 9, outcome, &guard);
  keep_tensors(*model, outcome);
  EXPECT_TRUE(outcome == plain.outcome);
}

TEST(Guard, ManagesStateThatAppearsAfterWatching) {
  const Plain plain = train_plain("mlp", 3);
  Outcome outcome;
  const auto model = small("mlp");
  Guard guard(tight(quarter(plain)));
  guard.watch(model->module());
  guard.watch(model->optimizer());
  guard.watch(model->module());  // again: nothing happens
  train(*model, 0, 3, outcome, &guard);
  EXPECT_TRUE(all_in_arena(*model, true));
}

TEST(Guard, TrainsOnWithoutIt) {
  const Plain plain = train_plain("mlp", 10);
  Outcome outcome;
  const auto model = small("mlp");
  {
    Guard guard(tight(quarter(plain)));
    guard.watch(model->module());
    train(*model, 0, 5, outcome, &guard);
  }
  train(*model, 5, 10, outcome);
  keep_tensors(*model, outcome);
  EXPECT_TRUE(outcome == plain.outcome);
}

TEST(Guard, BringsHomeWhatItWatchesAndTrainingGoesOn) {
  const Plain plain = train_plain("mlp", 10);
  Outcome outcome;
  const auto model = small("mlp");
  {
    Guard guard(tight(quarter(plain)));
    guard.watch(model->module());
    guard.watch(model->optimizer());
    train(*model, 0, 5, outcome, &guard);
    guard.bring_home();
    EXPECT_TRUE(all_in_arena(*model, false));
    for (const auto& parameter : model->module().parameters())
      EXPECT_FALSE(Session::owns(parameter.grad().const_data_ptr()));
  }
  train(*model, 5, 10, outcome);
  keep_tensors(*model, outcome);
  EXPECT_TRUE(outcome == plain.outcome);
}

TEST(Guard, SavesTheModelThatItHolds) {
  const Plain plain = train_plain("mlp", 4);
  const std::string path = ::testing::TempDir() + "vedette_guard_test.pt";
  Outcome outcome;
  const auto model = small("mlp");
  {
    Guard guard(tight(quarter(plain)));
    guard.watch(model->module());
    train(*model, 0, 4, outcome, &guard);
    torch::serialize::OutputArchive archive;
    model->module().save(archive);
    archive.save_to(path);
  }
  const auto loaded = small("mlp");
  torch::serialize::InputArchive archive;
  archive.load_from(path);
  loaded->module().load(archive);
  for (const auto& item : loaded->module().named_parameters()) {
    EXPECT_TRUE(plain.outcome.tensors.at(item.key()) == bytes_of(item.value())) << item.key();
  }
  std::filesystem::remove(path);
}

TEST(Guard, KeepsATensorResidentForASystemCall) {
  Guard guard(tight(1 << 20));
  const at::Tensor wanted = at::arange(1 << 16, at::kFloat);  // 256 KiB
  const at::Tensor other = at::ones({1 << 19});               // 2 MiB: pushes the first one out
  const auto pinned = guard.resident(wanted);
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const char* const memory = static_cast<const char*>(wanted.const_data_ptr());
  for (std::size_t offset = 0; offset < wanted.nbytes(); offset += 4096) {
    char copy[4096];
    ASSERT_EQ(write(ends[1], memory + offset, sizeof copy), static_cast<ssize_t>(sizeof copy)) << std::strerror(errno);
    ASSERT_EQ(read(ends[0], copy, sizeof copy), static_cast<ssize_t>(sizeof copy));
    ASSERT_EQ(std::memcmp(copy, memory + offset, sizeof copy), 0);
  }
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(other.sum().item<float>(), static_cast<float>(1 << 19));
}

TEST(Guard, TrainsToTheSameBitsWithEveryTrackerThatTheMemoryAllows) {
  constexpr std::int64_t steps = 3;  // warm-up, profiled, planned
  const Plain plain = train_plain("mlp", steps);
  for (const std::string_view tracker : tracker_names()) {
    if (tracker == "best") continue;  // the other tests'
    GuardOptions options = tight(std::max<std::uint64_t>(quarter(plain), 8 * small_chunk.value));
    options.tracker = tracker;
    options.on_message = [](std::string_view) {};
    std::optional<Guard> guard;
    try {
      guard.emplace(std::move(options));
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), HasSubstr("does not work here")) << tracker;
      continue;
    }
    const auto model = small("mlp");
    guard->watch(model->module());
    guard->watch(model->optimizer());
    Outcome outcome;
    train(*model, 0, steps, outcome, &*guard);
    keep_tensors(*model, outcome);
    EXPECT_TRUE(outcome == plain.outcome) << tracker;
    ASSERT_NE(guard->session().trace(), nullptr) << tracker;
    EXPECT_FALSE(guard->session().trace()->pages.empty()) << tracker << " saw no page";
    EXPECT_EQ(guard->session().tracker(), tracker);
  }
}

TEST(Guard, RefusesATrackerThatNobodyKnowsAndNamesThoseThereAre) {
  GuardOptions options = tight(4 << 20);
  options.tracker = "seeing-stones";
  try {
    const Guard guard(std::move(options));
    FAIL() << "it was taken";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("no page tracker 'seeing-stones'; there are: best, zap, missing"));
  }
}

// More than fits, then the slow tier's file is written over by somebody else.
void read_what_others_wrote() {
  at::set_num_threads(1);
  Guard guard({.fast_memory = 1_MiB, .slow = "nvme:.", .policy = "on-demand", .chunk = small_chunk, .checksums = true});
  torch::nn::Module model;
  for (int layer = 0; layer < 16; ++layer)
    model.register_module("layer" + std::to_string(layer), std::make_shared<torch::nn::LinearImpl>(256, 256));
  guard.watch(model);
  double sum = 0;
  for (const at::Tensor& weight : model.parameters()) sum += weight.detach().sum().item<double>();
  testing::overwrite_store(128);
  for (const at::Tensor& weight : model.parameters()) sum += weight.detach().sum().item<double>();
  std::_Exit(sum == 0 ? 0 : 3);  // a number came out of it
}

TEST(GuardDeathTest, WithChecksumsEndsWithAddressTensorAndCauseWhereOthersWroteIntoTheSlowTier) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // libtorch's threads are not there after a fork
  EXPECT_EXIT(read_what_others_wrote(), ::testing::KilledBySignal(SIGABRT),
              "reading chunk [0-9]+ of the arena \\(0x[0-9a-f]+ to 0x[0-9a-f]+, tensor '.*weight.*' of .*back from the "
              "slow tier: .*checksum.*lost");
}

TEST(Guard, SaysThatTheDiskIsFull) {
  const std::string folder = ::testing::TempDir() + "vedette_full_disk";
  std::filesystem::create_directories(folder);
  if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "mounting a small tmpfs needs root";
  {
    auto options = tight(2 << 20);
    options.slow = "nvme:" + folder;
    Outcome outcome;
    std::string said;
    try {
      Guard guard(options);
      std::vector<at::Tensor> tensors;
      for (int i = 0; i < 16; ++i) tensors.push_back(at::full({1 << 18}, static_cast<float>(i)));  // 16 MiB
      const auto step = guard.step();
      for (int i = 0; i < 16; ++i)
        EXPECT_EQ(tensors[static_cast<std::size_t>(i)][77].item<float>(), static_cast<float>(i));
    } catch (const Failure& failure) {
      said = failure.what();
    } catch (const c10::Error& error) {
      said = error.what_without_backtrace();
    }
    EXPECT_THAT(said, HasSubstr("disk full"));
  }
  EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000.0f);  // the process lives
  umount2(folder.c_str(), MNT_DETACH);
}

// What the guard told the session, kept by an observer.
struct Heard final : Observer {
  void op_began(std::uint64_t, OpIndex, std::string_view name, Nanoseconds) override {
    const std::lock_guard lock(mutex);
    ops.emplace(name);
  }
  void profiled(std::uint64_t, std::uint64_t, const Trace& trace) override {
    const std::lock_guard lock(mutex);
    last = trace;
  }
  std::mutex mutex;
  std::set<std::string> ops;
  Trace last;
};

// Five steps of the small ResNet-18 under a guard.
void hear_resnet18(Heard& heard) {
  const auto model = small("resnet18");
  auto options = tight(64 << 20);
  options.observer = &heard;
  Guard guard(options);
  guard.watch(model->module());
  guard.watch(model->optimizer());
  Outcome outcome;
  train(*model, 0, 5, outcome, &guard);
}

TEST(Guard, AnnouncesOperatorsLayersAndPhases) {
  Heard heard;
  hear_resnet18(heard);
  const std::lock_guard lock(heard.mutex);
  EXPECT_THAT(heard.ops, Contains("aten::native_batch_norm"));
  EXPECT_THAT(heard.ops, Contains("aten::convolution_backward"));
  EXPECT_THAT(heard.ops, Contains("aten::addcdiv_"));
  EXPECT_THAT(heard.ops, ::testing::Not(Contains("aten::view")));
  EXPECT_THAT(heard.ops, ::testing::Not(Contains("aten::linear")));
  // zero_grad's: it would fetch gradients that nobody reads
  EXPECT_THAT(heard.ops, ::testing::Not(Contains("detach_")));
  EXPECT_THAT(heard.last.layers, ::testing::Not(Contains(Layer{"optimizer", Phase::backward})));
  EXPECT_THAT(heard.last.layers, Contains(Layer{"layer1.0.conv1", Phase::forward}));
  EXPECT_THAT(heard.last.layers, Contains(Layer{"layer1.0.conv1", Phase::backward}));
  EXPECT_THAT(heard.last.layers, Contains(Layer{"optimizer", Phase::optimizer}));
  const auto named = [&](std::string_view name) {
    return std::any_of(heard.last.tensors.begin(), heard.last.tensors.end(),
                       [&](const Tensor& tensor) { return tensor.name == name; });
  };
  EXPECT_TRUE(named("layer4.1.conv2.weight"));
}

TEST(Guard, NamesGradientsAndTheStateOfOptimizersAfterTheirParameters) {
  Heard heard;
  hear_resnet18(heard);
  const std::lock_guard lock(heard.mutex);
  const auto find = [&](std::string_view name, TensorKind kind) {
    const auto& all = heard.last.tensors;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Tensor& t) { return t.name == name && t.kind == kind; });
    EXPECT_NE(found, all.end()) << name;
    return TensorIndex{static_cast<std::uint32_t>(found - all.begin())};
  };
  const TensorIndex weight = find("layer4.1.conv2.weight", TensorKind::weight),
                    gradient = find("layer4.1.conv2.weight.grad", TensorKind::gradient);
  const TensorIndex average = find("layer4.1.conv2.weight.exp_avg", TensorKind::optimizer);
  const TensorIndex square = find("layer4.1.conv2.weight.exp_avg_sq", TensorKind::optimizer);
  const auto has = [](const std::vector<TensorIndex>& list, TensorIndex t) {
    return std::find(list.begin(), list.end(), t) != list.end();
  };
  const auto ran = [&](std::string_view name, TensorIndex reads, TensorIndex writes) {
    return std::any_of(heard.last.ops.begin(), heard.last.ops.end(),
                       [&](const Op& op) { return op.name == name && has(op.reads, reads) && has(op.writes, writes); });
  };
  // As Adam uses them: its average takes the gradient, the average of squares takes the gradient by itself, the weight
  // the average.
  EXPECT_TRUE(ran("aten::add_", gradient, average));
  EXPECT_TRUE(ran("aten::addcmul_", gradient, square));
  EXPECT_TRUE(ran("aten::addcdiv_", average, weight));
  EXPECT_FALSE(ran("aten::addcmul_", gradient, average));
}

TEST(Guard, NamesAModelThatWasBuiltUnderIt) {
  Heard heard;
  auto options = tight(64 << 20);
  options.observer = &heard;
  {
    Guard guard(options);
    const auto model = small("resnet18");
    guard.watch(model->module());
    Outcome outcome;
    train(*model, 0, 5, outcome, &guard);
  }
  const std::lock_guard lock(heard.mutex);
  const auto is_weight = [](const Tensor& tensor) {
    return tensor.name == "layer4.1.conv2.weight" && tensor.kind == TensorKind::weight;
  };
  EXPECT_TRUE(std::any_of(heard.last.tensors.begin(), heard.last.tensors.end(), is_weight));
}

TEST(Guard, TakesTheUsersLayersInstead) {
  Heard heard;
  const auto model = small("mlp");
  auto options = tight(64 << 20);
  options.observer = &heard;
  {
    Guard guard(options);
    guard.watch(model->module());
    for (int i = 0; i < 5; ++i) {
      const auto step = guard.step();
      model->optimizer().zero_grad();
      at::Tensor loss;
      {
        const auto mine = guard.layer("the whole model");
        loss = model->loss(i, model->batch());
      }
      loss.backward();
      model->optimizer().step();
    }
  }
  const std::lock_guard lock(heard.mutex);
  EXPECT_THAT(heard.last.layers, Contains(Layer{"the whole model", Phase::forward}));
  EXPECT_THAT(heard.last.layers, Contains(Layer{"the whole model", Phase::backward}));
  EXPECT_THAT(heard.last.layers, ::testing::Not(Contains(Layer{"0", Phase::forward})));
}

}  // namespace
}  // namespace vedette::test::guard_test
