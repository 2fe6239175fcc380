// A recommender whose table of rows is larger than the memory for it: hot pieces of the table are in GPU memory, cold
// ones in the host's, where operators use them. It has the plain run's bits on the simulated GPU, within the budget.
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <filesystem>
#include <random>

#include "profiler/recording.h"
#include "simulated_gpu/torch_device.h"
#include "vedette/gpu.h"
#include "vedette/torch.h"

namespace vedette::testing::table_test {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t categories = 2, rows = 262'144, width = 16, batch = 512;  // 16 MiB a category
constexpr Bytes table_bytes = 32_MiB;
constexpr int steps = 10, until_counted = 4;
constexpr Bytes of_libtorch = 4_MiB;  // small tensors, and what a kernel's index takes

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().cpu().contiguous();
  return {static_cast<const char*>(here.const_data_ptr()), here.nbytes()};
}

// Of 100 look-ups 99 fall on the first hundredth of a category's rows; `moved`: on rows in the middle.
at::Tensor rows_of_step(int step, bool moved) {
  std::mt19937_64 random(static_cast<std::uint64_t>(step) + 7);
  const at::Tensor numbers = at::empty({batch, categories}, at::kLong);
  for (std::int64_t i = 0; i < batch * categories; ++i) {
    const bool cold = random() % 100 == 0;
    const auto row = static_cast<std::int64_t>(random() % (cold ? rows : rows / 100));
    numbers.mutable_data_ptr<std::int64_t>()[i] = i % categories * rows + (cold || !moved ? row : row + rows / 2);
  }
  return numbers;
}

struct Trained {
  std::string state;  // losses and parameters
  GpuTableCounters counted, all;
  Counters counters;
};

class Recommender {
 public:
  Recommender() {
    torch::manual_seed(3);
    table_ = nn::Embedding(nn::EmbeddingOptions(categories * rows, width).sparse(true));
    top_ = nn::Sequential(nn::Linear(categories * width, 256), nn::ReLU(), nn::Linear(256, 256), nn::ReLU(),
                          nn::Linear(256, 1));
    table_->to(at::Device(at::kCUDA, 0));
    top_->to(at::Device(at::kCUDA, 0));
    std::vector<at::Tensor> parameters = top_->parameters();
    parameters.push_back(table_->weight);
    sgd_.emplace(parameters, torch::optim::SGDOptions(0.1));
  }
  void watch(Guard& guard) {
    guard.watch(*table_, "table");
    guard.watch(*top_, "top");
    guard.watch(*sgd_);
  }
  std::string step(int number, bool moved) {
    sgd_->zero_grad();
    const at::Tensor numbers = rows_of_step(number, moved).to(at::kCUDA);
    const at::Tensor said = top_->forward(table_->forward(numbers).flatten(1)).squeeze(1);
    const at::Tensor loss = nn::functional::mse_loss(said, (numbers.sum(1) % 3).to(at::kFloat));
    loss.backward();
    sgd_->step();
    return bytes_of(loss);
  }
  std::string parameters() {
    std::string all = bytes_of(table_->weight);
    for (const at::Tensor& each : top_->parameters()) all += bytes_of(each);
    return all;
  }

 private:
  nn::Embedding table_{nullptr};
  nn::Sequential top_{nullptr};
  std::optional<torch::optim::SGD> sgd_;
};

std::string train_plain(int count, int moved_from = steps) {
  Recommender model;
  std::string state;
  for (int i = 0; i < count; ++i) state += model.step(i, i >= moved_from);
  return state + model.parameters();
}

class TableOfRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    control().choose({.memory = std::size_t{256} << 20});
    at::set_num_threads(1);
  }
  void TearDown() override { EXPECT_EQ(control().races(), std::vector<std::string>()); }
  Trained train(Bytes budget, Bytes for_tables, int count = steps, int moved_from = steps) {
    Trained trained;
    std::optional<Guard> guard(std::in_place, GuardOptions{.fast_memory = budget,
                                                           .fast = "gpu:0",
                                                           .table_memory = for_tables,
                                                           .slow = "host",
                                                           .on_message = [](auto) {}});
    Recommender model;
    model.watch(*guard);
    const GpuMemory& memory = *guard->session().gpu();
    for (int i = 0; i < count; ++i) {
      const auto step = guard->step();
      trained.state += model.step(i, i >= moved_from);
      if (i + 1 == until_counted) trained.counted = memory.tables();
      EXPECT_LE(memory.tables().device_bytes, for_tables.value);
    }
    trained.all = memory.tables();
    trained.counters = guard->counters();
    phase_ = guard->session().phase();
    trained.state += model.parameters();
    guard.reset();
    EXPECT_EQ(model.parameters(), trained.state.substr(trained.state.size() - model.parameters().size()))
        << "the table is there when the guard has ended";
    return trained;
  }
  std::string phase_;
  std::vector<std::string> states_;
};

double share_on_device(const GpuTableCounters& from, const GpuTableCounters& to) {
  const double there = static_cast<double>(to.rows_on_device - from.rows_on_device),
               away = static_cast<double>(to.rows_on_host - from.rows_on_host);
  return there / (there + away);
}

TEST_F(TableOfRows, LargerThanTheBudgetHasThePlainRunsBitsAndItsHotRowsInGpuMemory) {
  const Bytes peak = table_bytes + 1_MiB;
  for (const std::uint64_t percent : {25u, 50u}) {
    const Bytes budget{peak.value * percent / 100 / 4096 * 4096};
    const Trained trained = train(budget, 4_MiB);
    EXPECT_EQ(phase_, "planned") << percent;
    EXPECT_LE(control().most_in_use(), (budget + 2_MiB + of_libtorch).value) << percent;
    EXPECT_EQ(trained.all.device_bytes, (4_MiB).value);
    EXPECT_EQ(trained.all.device_bytes + trained.all.host_bytes, table_bytes.value);
    const double share = share_on_device(trained.counted, trained.all);
    std::printf("at %lu %%: %.3f of the rows were looked up in GPU memory, %lu pieces moved\n",
                static_cast<unsigned long>(percent), share, static_cast<unsigned long>(trained.all.moves));
    EXPECT_GT(share, 0.95) << "99 of 100 look-ups fall on two pieces";
    EXPECT_EQ(trained.all.moves, 2u) << "a steady step moves nothing";
    states_.push_back(trained.state);
  }
  const std::string plain = train_plain(steps);
  for (const std::string& state : states_) EXPECT_TRUE(state == plain);
}

std::int64_t allocated_beside(const GpuMemory& memory) {  // the statistics, without tensors in the guard's range
  constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
  EXPECT_GE(stats.allocated_bytes[all].peak, stats.allocated_bytes[all].current);
  EXPECT_GE(stats.reserved_bytes[all].current, stats.allocated_bytes[all].current);
  return stats.allocated_bytes[all].current - static_cast<std::int64_t>(memory.memory().in_use);
}

TEST_F(TableOfRows, StatisticsAndARecordingTellIt) {
  const std::string path = ::testing::TempDir() + "table_of_rows.vedette";
  std::filesystem::remove(path);
  std::optional<Guard> guard(std::in_place, GuardOptions{.fast_memory = 16_MiB,
                                                         .fast = "gpu:0",
                                                         .table_memory = 4_MiB,
                                                         .slow = "host",
                                                         .on_message = [](auto) {},
                                                         .record = path});
  GpuTableCounters told;
  {
    Recommender model;
    model.watch(*guard);
    const GpuMemory& memory = *guard->session().gpu();
    std::int64_t cold = 0;
    for (int i = 0; i < steps; ++i) {
      const auto step = guard->step();
      model.step(i, false);
      if (i == 0) {
        EXPECT_EQ(memory.tables().device_bytes, 0u);
        cold = allocated_beside(memory);
      }
    }
    told = memory.tables();
    EXPECT_EQ(told.device_bytes, (4_MiB).value);
    EXPECT_NEAR(static_cast<double>(allocated_beside(memory) - cold), static_cast<double>((4_MiB).value), 1 << 20);
  }
  guard.reset();
  const GpuTableCounters recorded = Recording::open(path).value().headline().value().origin.tables;
  EXPECT_EQ(recorded.device_bytes, told.device_bytes);
  EXPECT_EQ(recorded.host_bytes, told.host_bytes);
  EXPECT_EQ(recorded.moves, told.moves);
  EXPECT_GT(recorded.rows_on_device, 0u);
  EXPECT_GT(recorded.rows_on_host, 0u);
  EXPECT_GE(recorded.rows_on_device + recorded.rows_on_host, told.rows_on_device + told.rows_on_host);
}

TEST_F(TableOfRows, RowsThatBecomeHotLaterComeThen) {
  const Trained trained = train(16_MiB, 4_MiB, 12, 5);
  EXPECT_EQ(trained.all.moves, 4u);
  EXPECT_TRUE(trained.state == train_plain(12, 5));
}

}  // namespace
}  // namespace vedette::testing::table_test
