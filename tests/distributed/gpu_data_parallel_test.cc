// Data parallel training of two ranks with a simulated GPU each: the bits of the same job without guards, by the
// simulated NCCL's collectives, without a race. A child of this process is a rank, so that nothing calls CUDA before.
//
// nccl.h comes with NCCL alone, so that the backend here is one of the program's own: NCCL's calls, on a stream of its
// own, as ProcessGroupNCCL makes them.
#include <ATen/ops/randn.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <array>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/job.h"
#include "simulated_gpu/torch_device.h"

namespace vedette::testing::gpu_data_parallel_test {
namespace {

// As nccl.h has them.
struct Id {
  std::array<char, 128> bytes;
};
using Communicator = struct CommunicatorTag*;
constexpr int int32 = 2, int64 = 4, float32 = 7, sum = 0, largest = 2;

template <class Function>
Function* nccl(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) throw std::runtime_error(std::string(name) + " is missing");
  return found;
}
void check(int error) {
  if (error != 0) throw std::runtime_error("NCCL failed with " + std::to_string(error));
}

// Its end is an event of the stream, for which streams wait and no host.
class StreamWork final : public c10d::Work {
 public:
  StreamWork(const std::vector<at::Tensor>& tensors, c10::Stream stream)
      : future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), std::vector{stream.device()})) {
    const c10::StreamGuard on(stream);
    future_->markCompleted(c10::IValue(tensors));
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return future_->wait(), true; }
  void synchronize() override { future_->wait(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Nccl final : public c10d::Backend {
 public:
  Nccl(c10d::Store& store, int rank, int size)
      : Backend(rank, size), stream_(gpu_.getStreamFromGlobalPool({at::kCUDA, 0})) {
    Id id{};
    if (rank == 0) {
      check(nccl<int(Id*)>("ncclGetUniqueId")(&id));
      store.set("id", std::vector<std::uint8_t>(id.bytes.begin(), id.bytes.end()));
    } else {
      const auto told = store.get("id");
      std::copy(told.begin(), told.end(), id.bytes.begin());
    }
    check(nccl<int(Communicator*, int, Id, int, void*)>("ncclCommInitRankConfig")(&communicator_, size, id, rank,
                                                                                  nullptr));
  }
  const std::string getBackendName() const override { return "own"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& all, const c10d::AllreduceOptions& o) override {
    return queue(all, [&](const at::Tensor& tensor, void* stream) {
      return nccl<int(const void*, void*, std::size_t, int, int, Communicator, void*)>("ncclAllReduce")(
          tensor.data_ptr(), tensor.data_ptr(), count(tensor), type(tensor),
          o.reduceOp == c10d::ReduceOp::MAX ? largest : sum, communicator_, stream);
    });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& all, const c10d::BroadcastOptions& o) override {
    return queue(all, [&](const at::Tensor& tensor, void* stream) {
      return nccl<int(const void*, void*, std::size_t, int, int, Communicator, void*)>("ncclBroadcast")(
          tensor.data_ptr(), tensor.data_ptr(), count(tensor), type(tensor), static_cast<int>(o.rootRank),
          communicator_, stream);
    });
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& all, const c10d::ReduceOptions& o) override {
    return queue(all, [&](const at::Tensor& tensor, void* stream) {
      return nccl<int(const void*, void*, std::size_t, int, int, int, Communicator, void*)>("ncclReduce")(
          tensor.data_ptr(), tensor.data_ptr(), count(tensor), type(tensor), sum, static_cast<int>(o.rootRank),
          communicator_, stream);
    });
  }

 private:
  static std::size_t count(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }
  static int type(const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat ? float32 : tensor.scalar_type() == at::kInt ? int32 : int64;
  }
  template <class Call>
  c10::intrusive_ptr<c10d::Work> queue(std::vector<at::Tensor>& all, Call call) {
    c10::Event made(c10::kCUDA);
    made.record(gpu_.getStream({at::kCUDA, 0}));
    made.block(stream_);
    check(call(all[0], gpu_.getStreamNativeHandle(stream_)));
    return c10::make_intrusive<StreamWork>(all, stream_);
  }
  const c10::impl::VirtualGuardImpl gpu_{c10::kCUDA};
  const c10::Stream stream_;
  Communicator communicator_ = nullptr;
};

struct Case {
  bool shard = false;
};

constexpr std::int64_t width = 128, rows = 64, steps = 10;

// Losses, parameters and the optimizer's state of one rank, as bytes; the phase, the peak and what moved.
std::string train(bool shard, std::uint64_t budget) {
  if (const std::string missing = load_simulated_libraries(); !missing.empty()) return "failed: " + missing;
  at::globalContext().lazyInitDevice(at::kCUDA);
  const at::Device device(at::kCUDA, 0);
  Ranks ranks;
  ranks.use(at::kCUDA, c10::make_intrusive<Nccl>(*ranks.store(), ranks.rank(), ranks.size()));
  std::optional<Guard> guard;
  if (budget > 0)
    guard.emplace(GuardOptions{.fast_memory = {budget}, .fast = "gpu:0", .slow = "host", .on_message = [](auto) {}});
  torch::manual_seed(static_cast<std::uint64_t>(1 + ranks.rank()));  // ranks begin with rank 0's
  torch::nn::Sequential model;
  for (int layer = 0; layer < 6; ++layer) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::Dropout(0.1));
  }
  model->to(device);
  ranks.broadcast(*model);
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(1e-3));
  DataParallel parallel(ranks, adam, {.shard_optimizer = shard});
  if (guard) guard->watch(*model);
  if (guard) guard->watch(adam);
  std::string told;
  const auto tell = [&](const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().cpu().contiguous();
    told.append(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  };
  for (std::int64_t step = 0; step < steps; ++step) {
    std::optional<Guard::Step> scope;
    if (guard) scope.emplace(*guard);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(step * 2 + ranks.rank()));
    const at::Tensor x = at::randn({rows, width}, generator).to(device);
    at::Tensor loss;
    parallel.step([&] {
      loss = (model->forward(x) - x).square().mean();
      loss.backward();
    });
    tell(loss);
  }
  for (const at::Tensor& parameter : model->parameters()) tell(parameter);
  examples::each_state(adam, [&](const std::string&, const at::Tensor& state) { tell(state); });
  nlohmann::json result{{"bits", std::hash<std::string>()(told)}, {"bytes", told.size()}};
  if (guard) {
    const Counters counters = guard->counters();
    result["phase"] = guard->session().phase();
    result["peak"] = counters.peak_bytes.value;
    result["moved"] = counters.bytes_out.value;
    result["most"] = counters.resident_max_bytes.value;
  }
  guard.reset();
  ranks.barrier();
  result["races"] = control().races();
  return result.dump();
}

class OnGpus : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
#ifndef SIMULATED_KERNELS
    GTEST_SKIP() << "libtorch_cuda.so or CUDA's headers are missing: install a libtorch for CUDA (scripts/setup.sh)";
#endif
  }
};

TEST_P(OnGpus, DataParallelHasThePlainJobsBits) {
  const bool shard = GetParam().shard;
  const auto job = [&](std::uint64_t budget) { return parsed(run_job(2, [&] { return train(shard, budget); })); };
  const auto plain = job(0);
  ASSERT_TRUE(plain[0].contains("bits")) << plain[0];
  EXPECT_NE(plain[0]["bits"], plain[1]["bits"]) << "ranks train on different batches";
  constexpr std::uint64_t all = std::uint64_t{64} << 20;
  const std::uint64_t peak = job(all)[0]["peak"].get<std::uint64_t>();
  for (const std::uint64_t percent : {100, 50, 30}) {
    const std::uint64_t budget = peak * percent / 100;
    const auto guarded = job(budget);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(guarded[rank]["bits"], plain[rank]["bits"]) << percent << " %, rank " << rank << ": " << guarded[rank];
      EXPECT_EQ(guarded[rank]["races"], nlohmann::json::array());
      EXPECT_LE(guarded[rank]["most"].get<std::uint64_t>(), budget);
      if (percent < 100) {
        EXPECT_GT(guarded[rank]["moved"].get<std::uint64_t>(), 0u) << guarded[rank];
      }
      EXPECT_THAT(guarded[rank]["phase"].get<std::string>(), ::testing::AnyOf("planned", "foreseen"))
          << "a busy machine has its plan later";
    }
    std::printf("%d %% of %.1f MiB: %s\n", static_cast<int>(percent), static_cast<double>(peak) / 1048576,
                guarded[0].dump().c_str());
    std::fflush(stdout);  // no child writes it again
  }
}

INSTANTIATE_TEST_SUITE_P(Nccl, OnGpus, ::testing::Values(Case{}, Case{true}),
                         [](const auto& info) { return info.param.shard ? "sharded" : "whole"; });

}  // namespace
}  // namespace vedette::testing::gpu_data_parallel_test
