// Programs that do what people do with libtorch, each run twice: as it is, and inside a small budget. Both must give
// the same bits.
#include <ATen/Parallel.h>
#include <ATen/ops/_lazy_clone.h>
#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/data.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <sstream>
#include <thread>

#include "adapter/trial.h"

namespace vedette::test::programs_test {
namespace {

using Adam = torch::optim::Adam;

constexpr std::int64_t width = 192, samples = 48;

nn::Sequential network() {
  return nn::Sequential(nn::Linear(width, width), nn::BatchNorm1d(width), nn::ReLU(), nn::Dropout(0.2),
                        nn::Linear(width, width), nn::GELU(), nn::Linear(width, 10));
}

struct Trainee {  // a network that is watched, and its optimizer
  explicit Trainee(Trial& run, std::string_view name = "")
      : net(network()), adam(net->parameters(), torch::optim::AdamOptions(1e-3)) {
    run.watch(*net, name);
    run.watch(adam);
  }
  at::Tensor loss(const at::Tensor& images, const at::Tensor& labels) {
    return nn::functional::cross_entropy(net->forward(images), labels);
  }
  at::Tensor loss() { return loss(torch::randn({samples, width}), torch::randint(10, {samples}, torch::kLong)); }
  void train_once(Trial& run) {
    run.within([&] {
      adam.zero_grad();
      const at::Tensor value = loss();
      value.backward();
      adam.step();
      run.keep(value);
    });
  }
  void keep(Trial& run, const std::string& prefix = "") {
    run.keep(*net, prefix);
    run.keep(adam, prefix);
  }
  nn::Sequential net;
  Adam adam;
};

TEST(Programs, AccumulateGradientsAndClipThem) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    for (int i = 0; i < 16; ++i) {
      run.within([&] {
        const at::Tensor loss = it.loss() / 4;
        loss.backward();
        run.keep(loss);
        if (i % 4 != 3) return;
        nn::utils::clip_grad_norm_(it.net->parameters(), 1.0);
        it.adam.step();
        it.adam.zero_grad();
      });
    }
    it.keep(run);
  });
}

TEST(Programs, RunAGraphTwice) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    for (int i = 0; i < 8; ++i) {
      run.within([&] {
        it.adam.zero_grad();
        const at::Tensor loss = it.loss();
        loss.backward({}, /*retain_graph=*/true);
        loss.backward();
        it.adam.step();
        run.keep(loss);
      });
    }
    it.keep(run);
  });
}

TEST(Programs, DifferentiateGradients) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    for (int i = 0; i < 8; ++i) {
      run.within([&] {
        it.adam.zero_grad();
        const at::Tensor images = torch::randn({samples, width}).requires_grad_();
        const at::Tensor loss = it.loss(images, torch::randint(10, {samples}, torch::kLong));
        const auto slope = torch::autograd::grad({loss}, {images}, {}, /*retain_graph=*/true, /*create_graph=*/true);
        const at::Tensor penalised = loss + slope[0].square().sum();
        penalised.backward();
        it.adam.step();
        run.keep(penalised);
      });
    }
    it.keep(run);
  });
}

// Gradient checkpointing as one writes it by hand: the forward pass keeps the input, the backward pass computes again,
// with a backward pass inside the backward pass.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            nn::SequentialImpl* segment) {
    context->save_for_backward({input});
    context->saved_data["segment"] = reinterpret_cast<std::int64_t>(segment);
    const torch::NoGradGuard no_gradients;
    return segment->forward(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* const segment = reinterpret_cast<nn::SequentialImpl*>(context->saved_data["segment"].toInt());
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode gradients_on(true);
    torch::autograd::backward({segment->forward(input)}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

TEST(Programs, ComputeActivationsAgain) {
  expect_same_bits([](Trial& run) {
    std::vector<nn::Sequential> segments;
    nn::ModuleList all;
    for (int i = 0; i < 4; ++i) {
      segments.emplace_back(nn::Linear(width, width), nn::GELU(), nn::Linear(width, width), nn::Tanh());
      all->push_back(segments.back());
    }
    Adam adam(all->parameters(), torch::optim::AdamOptions(1e-3));
    run.watch(*all);
    run.watch(adam);
    for (int i = 0; i < 8; ++i) {
      run.within([&] {
        adam.zero_grad();
        at::Tensor x = torch::randn({samples, width}).requires_grad_();
        for (auto& segment : segments) x = Checkpointed::apply(x, segment.get());
        const at::Tensor loss = x.square().mean();
        loss.backward();
        adam.step();
        run.keep(loss);
      });
    }
    run.keep(*all);
    run.keep(adam);
  });
}

TEST(Programs, EvaluateBetweenAndInsideSteps) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    const auto evaluate = [&] {
      const torch::NoGradGuard no_gradients;
      it.net->eval();
      run.keep(it.loss());
      it.net->train();
    };
    for (int i = 0; i < 12; ++i) {
      it.train_once(run);
      if (i % 3 == 1) evaluate();
      if (i % 3 == 2) run.within(evaluate);
      if (i % 4 == 3) {
        const c10::InferenceMode inference;
        it.net->eval();
        run.keep(it.net->forward(torch::ones({4, width})).sum());
        it.net->train();
      }
    }
    it.keep(run);
  });
}

TEST(Programs, FreezeAndAddLayersBetweenSteps) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    for (int i = 0; i < 4; ++i) it.train_once(run);
    for (auto& parameter : it.net->ptr(0)->parameters()) parameter.set_requires_grad(false);
    for (int i = 0; i < 4; ++i) it.train_once(run);
    nn::Linear added(10, 10);
    it.net->push_back(added);
    it.adam.add_param_group(torch::optim::OptimizerParamGroup(added->parameters()));
    run.watch(*it.net);
    for (int i = 0; i < 4; ++i) it.train_once(run);
    for (auto& parameter : it.net->ptr(0)->parameters()) parameter.set_requires_grad(true);
    for (int i = 0; i < 4; ++i) it.train_once(run);
    it.keep(run);
  });
}

// More lengths than there are plans kept: old ones go and come again.
TEST(Programs, ReadSequencesOfManyLengths) {
  expect_same_bits([](Trial& run) {
    nn::Embedding token(64, 64);
    nn::GRU gru(nn::GRUOptions(64, 96).batch_first(true));
    nn::Linear head(96, 10);
    nn::Sequential all(token, head);
    auto parameters = all->parameters();
    for (const auto& parameter : gru->parameters()) parameters.push_back(parameter);
    Adam adam(parameters, torch::optim::AdamOptions(1e-3));
    run.watch(*all);
    run.watch(*gru, "gru");
    run.watch(adam);
    for (int i = 0; i < 45; ++i) {
      const std::int64_t length = i < 39 ? 3 + i % 13 : 9;
      run.within([&] {
        adam.zero_grad();
        const auto [output, state] = gru->forward(token(torch::randint(64, {16, length}, torch::kLong)));
        const at::Tensor loss =
            nn::functional::cross_entropy(head(output.select(1, -1)), torch::randint(10, {16}, torch::kLong));
        loss.backward();
        adam.step();
        run.keep(loss);
      });
    }
    run.keep(*all);
    run.keep(*gru, "gru.");
    run.keep(adam);
  });
}

TEST(Programs, TrainTwoModelsInOneGuard) {
  expect_same_bits([](Trial& run) {
    Trainee teacher(run, "teacher"), student(run, "student");
    for (int i = 0; i < 10; ++i) {
      run.within([&] {
        const at::Tensor images = torch::randn({samples, width});
        teacher.adam.zero_grad();
        const at::Tensor taught = teacher.loss(images, torch::randint(10, {samples}, torch::kLong));
        taught.backward();
        teacher.adam.step();
        student.adam.zero_grad();
        const at::Tensor wanted = teacher.net->forward(images).detach();
        const at::Tensor distance = (student.net->forward(images) - wanted).square().mean();
        distance.backward();
        student.adam.step();
        run.keep(taught + distance);
      });
    }
    teacher.keep(run, "teacher.");
    student.keep(run, "student.");
  });
}

TEST(Programs, SaveLoadAndTrainOn) {
  expect_same_bits([](Trial& run) {
    const std::string path = ::testing::TempDir() + "vedette_programs_test.pt";
    std::optional<Trainee> first(std::in_place, run);
    for (int i = 0; i < 5; ++i) first->train_once(run);
    std::stringstream optimizer;
    torch::save(first->net, path);
    torch::save(first->adam, optimizer);
    first.reset();
    Trainee second(run);
    torch::load(second.net, path);
    torch::load(second.adam, optimizer);
    std::filesystem::remove(path);
    run.watch(*second.net);
    run.watch(second.adam);
    for (int i = 0; i < 5; ++i) second.train_once(run);
    second.keep(run);
  });
}

TEST(Programs, ResizeShareAndViewTensors) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    at::Tensor grows = torch::arange(1000, torch::kFloat);
    at::Tensor shared = torch::empty({0});
    for (int i = 0; i < 10; ++i) {
      it.train_once(run);
      run.within([&] {
        grows.resize_({1000 + 5000 * (i + 1)}).slice(0, 1000 + 5000 * i).fill_(i);
        shared.set_(grows.storage(), 100, {50, 20}, {20, 1});
        shared.t().select(0, 3).add_(1);
        const at::Tensor lazy = at::_lazy_clone(grows);
        lazy.mul_(2);   // gets bytes of its own only now
        grows.mul_(1);  // so does it: to resize bytes that two tensors share fails in libtorch 2.15 itself
        run.keep(grows.sum() + lazy.sum() + shared.as_strided({10}, {7}, 40).sum());
        it.net->ptr(0)->named_parameters()["weight"].mutable_grad().resize_({width * width}).resize_({width, width});
      });
      if (i == 5) grows = grows.clone().view({-1, 2}).flatten();
    }
    it.keep(run);
    run.keep("grows", grows);
  });
}

TEST(Programs, FreeTensorsOnOtherThreadsAndAfterTheGuard) {
  testing::compute_with_given_threads();
  const auto program = [](Trial& run, std::vector<at::Tensor>& kept) {
    Trainee it(run);
    for (int i = 0; i < 8; ++i) {
      it.train_once(run);
      auto sums = std::async(std::launch::async, [doomed = torch::randn({40'000})]() mutable {
        const float sum = doomed.sum().item<float>();
        doomed.reset();
        return std::pair(sum, torch::full({30'000}, sum));  // born there, dies here
      });
      const auto [sum, born_there] = sums.get();
      run.keep(born_there.mean() + sum);
      kept.push_back(born_there.slice(0, 10));
    }
    it.keep(run);
  };
  Trial plain, guarded;
  std::vector<at::Tensor> kept_plain, kept;
  examples::forget_peak();
  torch::manual_seed(3);
  program(plain, kept_plain);
  {
    Guard guard(tight(examples::counted_peak_bytes() * 2 / 5));
    guarded.guard = &guard;
    torch::manual_seed(3);
    program(guarded, kept);
  }
  expect_same(guarded.outcome, plain.outcome);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].equal(kept_plain[i])) << i;
  std::thread([last = std::move(kept)]() mutable { last.clear(); }).join();
}

TEST(Programs, BorrowMemoryOfTheirOwn) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    std::vector<float> input(samples * width), output(samples * 10);
    for (int i = 0; i < 8; ++i) {
      for (std::size_t k = 0; k < input.size(); ++k)
        input[k] = static_cast<float>((k * 7 + static_cast<std::size_t>(i)) % 11) / 11;
      const at::Tensor images = torch::from_blob(input.data(), {samples, width});
      const at::Tensor scores = torch::from_blob(output.data(), {samples, 10});
      run.within([&] {
        it.adam.zero_grad();
        const at::Tensor loss = it.loss(images, torch::randint(10, {samples}, torch::kLong));
        loss.backward();
        it.adam.step();
        const torch::NoGradGuard no_gradients;
        scores.copy_(it.net->forward(images));
        run.keep(loss + scores.sum());
      });
    }
    it.keep(run);
  });
}

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(std::size_t index) override {
    const auto number = static_cast<std::int64_t>(index);
    return {torch::full({width}, static_cast<float>(number % 17) / 17) + torch::arange(width) / width,
            torch::tensor(number % 10)};
  }
  std::optional<std::size_t> size() const override { return samples * 6; }
};

TEST(Programs, LoadDataWithWorkerThreads) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        Numbers().map(torch::data::transforms::Stack<>()),
        torch::data::DataLoaderOptions(samples).workers(2).enforce_ordering(true));
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const auto& batch : *loader) {
        run.within([&] {
          it.adam.zero_grad();
          const at::Tensor loss = it.loss(batch.data, batch.target);
          loss.backward();
          it.adam.step();
          run.keep(loss);
        });
      }
    }
    it.keep(run);
  });
}

TEST(Programs, UseThreadsOfLibtorch) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    for (int i = 0; i < 8; ++i) {
      it.train_once(run);
      run.within([&] {
        const at::Tensor table = torch::randn({64, 4096});
        const at::Tensor sums = torch::zeros({64});
        at::parallel_for(0, 64, 4, [&](std::int64_t begin, std::int64_t end) {
          const torch::NoGradGuard no_gradients;
          for (std::int64_t row = begin; row < end; ++row) sums[row].copy_(table[row].clone().mul_(2).sum());
        });
        std::promise<at::Tensor> product;
        at::launch([&] {
          const torch::NoGradGuard no_gradients;
          product.set_value(torch::mm(table, table.t()));
        });
        run.keep(sums.sum() + product.get_future().get().sum());
      });
    }
    it.keep(run);
  });
}

TEST(Programs, CallBackwardOnTwoThreads) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    nn::Sequential other(nn::Linear(width, width), nn::ReLU(), nn::Linear(width, width));
    run.watch(*other, "other");
    std::atomic<bool> stop = false;
    std::atomic<int> passes = 0, wrong = 0;
    at::Tensor gradient;
    std::thread thread([&, images = torch::ones({samples, width})] {
      for (constexpr int fewest = 8; !stop || passes < fewest; ++passes) {
        other->zero_grad();
        other->forward(images).square().mean().backward();
        const at::Tensor now = other->parameters()[0].grad().clone();
        if (gradient.defined() && !at::equal(now, gradient)) ++wrong;
        gradient = now;
      }
    });
    for (int i = 0; i < 24; ++i) it.train_once(run);
    stop = true;
    thread.join();
    EXPECT_EQ(wrong, 0) << "of " << passes;
    it.keep(run);
    run.keep("gradient", gradient);
  });
}

TEST(Programs, AreGuardedInPartAndTwice) {
  testing::compute_with_given_threads();
  const auto some = [](Trial& run, Trainee& it, int steps) {
    run.watch(*it.net);
    run.watch(it.adam);
    for (int i = 0; i < steps; ++i) it.train_once(run);
  };
  Trial plain, guarded;
  examples::forget_peak();
  torch::manual_seed(3);
  Trainee expected(plain);
  some(plain, expected, 20);
  const std::uint64_t peak = examples::counted_peak_bytes();
  torch::manual_seed(3);
  Trainee it(guarded);
  some(guarded, it, 3);
  for (const std::uint64_t percent : {40, 60}) {
    {
      Guard guard(tight(peak * percent / 100));
      guarded.guard = &guard;
      some(guarded, it, 6);
      if (percent == 60) guard.bring_home();
    }
    guarded.guard = nullptr;
    for (int i = 0; i < (percent == 40 ? 2 : 3); ++i) it.train_once(guarded);
  }
  expected.keep(plain);
  it.keep(guarded);
  expect_same(guarded.outcome, plain.outcome);
}

// The table of the recommender is larger than the budget, and stays away but for the rows that are looked up.
TEST(Programs, LookUpFewRowsOfALargeTable) {
  testing::compute_with_given_threads();
  const auto model = small("recommender");
  const std::uint64_t table = model->module().named_parameters()["table.weight"].nbytes();
  std::vector<std::string> said;
  Guard guard({.fast_memory = Bytes{table / 2},
               .slow = "host",
               .chunk = trial_chunk,
               .on_message = [&](std::string_view sentence) { said.emplace_back(sentence); }});
  guard.watch(model->module());
  Outcome outcome;
  train(*model, 0, 6, outcome, &guard);
  const Counters before = guard.counters();
  train(*model, 6, 16, outcome, &guard);
  const Counters after = guard.counters();
  EXPECT_LT((after.bytes_in.value - before.bytes_in.value) / 10, table / 8);
  EXPECT_LT((after.bytes_out.value - before.bytes_out.value) / 10, table / 8);
  EXPECT_EQ(after.faults, before.faults);  // who looks up says what
  EXPECT_THAT(said, ::testing::Not(::testing::Contains(::testing::HasSubstr("runs paged"))));
  std::printf("a step moves %lu KiB in and %lu KiB out; the table has %lu KiB\n",
              (after.bytes_in.value - before.bytes_in.value) / 10240,
              (after.bytes_out.value - before.bytes_out.value) / 10240, table / 1024);
}

// A step of the optimizer within the backward pass, or after it where there is no guard: the bits must be the same.
void learn(const Trial& run, Adam& adam, const at::Tensor& loss) {
  if (run.guard != nullptr) return step_in_backward(adam, [&] { loss.backward(); });
  loss.backward();
  adam.step();
  adam.zero_grad();
}

TEST(StepInBackward, GivesTheBitsOfAStepAfterwards) {
  expect_same_bits([](Trial& run) {
    Trainee it(run);
    for (int i = 0; i < 10; ++i) {
      run.within([&] {
        const at::Tensor loss = it.loss();
        learn(run, it.adam, loss);
        run.keep(loss);
      });
    }
    it.keep(run);
  });
}

// Two groups of parameters, a layer that is used twice, one that only an earlier pass reaches, a frozen one,
// accumulation, rates that change.
TEST(StepInBackward, GivesTheBitsWhereParametersAreReachedInManyWays) {
  expect_same_bits([](Trial& run) {
    nn::Linear first(width, width), twice(width, width), last(width, 10), aside(width, 10), frozen(width, width);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    nn::ModuleList all(first, twice, last, aside, frozen);
    std::vector<at::Tensor> some = twice->parameters(), others = last->parameters();
    for (const auto& more : {first->parameters(), frozen->parameters()})
      some.insert(some.end(), more.begin(), more.end());
    for (const auto& parameter : aside->parameters()) others.push_back(parameter);
    Adam adam(
        std::vector<torch::optim::OptimizerParamGroup>{{some},
                                                       {others, std::make_unique<torch::optim::AdamOptions>(1e-2)}},
        {1e-3});
    run.watch(*all);
    run.watch(adam);
    for (int i = 0; i < 12; ++i) {
      run.within([&] {
        const auto hidden = [&] {
          return twice(twice(frozen(first(torch::randn({samples, width}))).relu()).relu()).relu();
        };
        const at::Tensor labels = torch::randint(10, {samples}, torch::kLong);
        nn::functional::cross_entropy(aside(hidden().detach()), labels).backward();
        if (i % 2 == 1) (nn::functional::cross_entropy(last(hidden()), labels) / 2).backward();
        const at::Tensor loss = nn::functional::cross_entropy(last(hidden()), labels);
        learn(run, adam, loss);
        run.keep(loss);
        adam.param_groups()[0].options().set_lr(1e-3 / (i + 1));
      });
    }
    run.keep(*all);
    run.keep(adam);
  });
}

TEST(StepInBackward, FreesGradientsOnTheWay) {
  nn::Sequential deep;
  for (int i = 0; i < 10; ++i) deep->push_back(nn::Linear(width, width));
  Adam adam(deep->parameters(), {});
  const auto peak_of = [&](bool in_backward) {
    const at::Tensor loss = deep->forward(torch::randn({1, width})).sum();
    examples::forget_peak();
    if (in_backward) {
      step_in_backward(adam, [&] { loss.backward(); });
    } else {
      loss.backward();
      adam.step();
      adam.zero_grad();
    }
    return examples::counted_peak_bytes();
  };
  peak_of(true);  // makes the optimizer's state
  constexpr std::uint64_t layer = std::uint64_t{width} * width * sizeof(float);
  EXPECT_LE(peak_of(true) + 5 * layer, peak_of(false)) << "of ten layers one has its gradient";
}

TEST(StepInBackward, KnowsTheOptimizersStateAsWhatItIs) {
  Guard guard(tight(0));
  Trial run{.guard = &guard};
  Trainee it(run);
  for (int i = 0; i < 4; ++i) run.within([&] { learn(run, it.adam, it.loss()); });
  const Trace* const trace = guard.session().trace();
  ASSERT_NE(trace, nullptr);
  std::size_t states = 0;
  for (const auto& tensor : trace->tensors)
    states +=
        tensor.persistent && tensor.kind == TensorKind::optimizer && tensor.name.find(".exp_avg") != std::string::npos
            ? 1
            : 0;
  EXPECT_GE(states, 4u) << "two of each large layer";
}

TEST(StepInBackward, LeavesNoHooksWhenBackwardThrows) {
  Trial plain;
  Trainee it(plain);
  EXPECT_THROW(step_in_backward(it.adam, [] { throw std::runtime_error("no more"); }), std::runtime_error);
  it.loss().backward();
  EXPECT_TRUE(it.net->parameters().front().grad().defined()) << "nobody has stepped and freed it";
}

TEST(StepInBackward, RefusesASecondPassOverAGraphThatWasKept) {
  Trial plain;
  Trainee it(plain);
  const at::Tensor loss = it.loss();
  step_in_backward(it.adam, [&] { loss.backward({}, /*retain_graph=*/true); });
  EXPECT_THAT([&] { loss.backward(); },
              ::testing::ThrowsMessage<c10::Error>(::testing::HasSubstr("modified by an inplace operation")));
}

TEST(StepInBackward, RefusesAGradientInTwoParts) {
  Trial plain;
  Trainee it(plain);
  const at::Tensor one = it.loss(), other = it.net->parameters().front().square().sum();
  const auto both = [&] {
    other.backward();
    one.backward();
  };
  EXPECT_THAT([&] { step_in_backward(it.adam, both); },
              ::testing::Throws<std::exception>(
                  ::testing::Property(&std::exception::what, ::testing::HasSubstr("in two parts"))));
}

TEST(StepInBackward, RefusesAnOptimizerThatLooksAtAllGradientsTogether) {
  Trial plain;
  Trainee it(plain);
  torch::optim::LBFGS lbfgs(it.net->parameters());
  EXPECT_THAT([&] { step_in_backward(lbfgs, [&] { it.loss().backward(); }); },
              ::testing::ThrowsMessage<Failure>(::testing::HasSubstr("LBFGS")));
}

// It counts its steps.
struct Counting : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    ++steps;
    return SGD::step(std::move(closure));
  }
  int steps = 0;
};

TEST(StepInBackward, RefusesAnOptimizerOfTheProgramsOwnUnlessItsRuleIsForEachParameter) {
  Trial plain;
  Trainee it(plain);
  Counting own(it.net->parameters(), torch::optim::SGDOptions(0.1));
  const at::Tensor before = it.net->parameters().front().detach().clone();
  EXPECT_THAT(
      [&] { step_in_backward(own, [&] { it.loss().backward(); }); },
      ::testing::ThrowsMessage<Failure>(::testing::HasSubstr("may look at more than one parameter's gradient")));
  EXPECT_EQ(own.steps, 0);
  EXPECT_TRUE(at::equal(before, it.net->parameters().front())) << "refused before the first update";
  step_in_backward(own, [&] { it.loss().backward(); }, {.per_parameter = true});
  EXPECT_GT(own.steps, 1) << "one for each parameter";
  EXPECT_FALSE(at::equal(before, it.net->parameters().front()));
}

}  // namespace
}  // namespace vedette::test::programs_test
