// A whole training under a guard of GPU memory, with each call of the driver failing once: the program ends with a
// sentence, or with the right numbers. It never ends with wrong ones, a race, a crash or a hang.
//
// Each training is a fork of this process, which has loaded libtorch's CUDA libraries and called none of them.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "models/model.h"
#include "models/state.h"
#include "simulated_gpu/memory_file.h"
#include "simulated_gpu/torch_device.h"
#include "vedette/torch.h"

namespace vedette::testing::failing_training_test {
namespace {

constexpr Bytes budget = {std::uint64_t{2600} << 10};  // Adam's largest op needs 2.3 MiB of it
constexpr int steps = 5;                               // two by a plan
constexpr auto patience = std::chrono::seconds(120);

// What a training leaves: its digests under the guard and behind its end, and how often it made each call.
std::string told_state() {
  at::set_num_threads(1);
  const auto model = examples::make_model("mlp", {.small = true, .seed = 3, .script = {}});
  std::ostringstream text;
  const auto tell = [&] {
    for (const auto& [name, digest] : examples::digests(*model)) text << name << ' ' << digest << '\n';
  };
  {
    Guard guard{{.fast_memory = budget, .fast = "gpu:0", .slow = "host"}};
    model->module().to(at::Device(at::kCUDA, 0));
    guard.watch(model->module());
    for (torch::optim::Optimizer* const optimizer : model->optimizers()) guard.watch(*optimizer);
    for (int i = 0; i < steps; ++i) {
      const auto step = guard.step();
      text << model->train_step(i) << '\n';
    }
    tell();
  }
  tell();
  return text.str();
}

struct Failing {
  std::string call;  // empty: none
  unsigned nth = 1;
  int error = 999;
};

[[noreturn]] void train_in_child(const Failing& failing, const MemoryFile& state, const MemoryFile& calls,
                                 const MemoryFile& output) {
  ::dup2(output.number(), STDOUT_FILENO);
  ::dup2(output.number(), STDERR_FILENO);
  control().choose({.memory = std::size_t{256} << 20});
  if (!failing.call.empty()) control().fail(failing.call, failing.nth, failing.error);
  try {
    state.write(told_state());
    control().fail_none();
    std::ostringstream made;
    for (const auto& [name, count] : control().calls()) made << name << ' ' << count << '\n';
    calls.write(made.str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    std::exit(1);
  }
  std::exit(0);
}

struct Trained {
  bool ended = false;
  int status = 0;  // of waitpid
  std::string state, output;
  std::map<std::string, unsigned> calls;
};

Trained train(const Failing& failing) {
  const MemoryFile state, calls, output;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) train_in_child(failing, state, calls, output);
  Trained trained;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!trained.ended && std::chrono::steady_clock::now() < until) {
    trained.ended = ::waitpid(child, &trained.status, WNOHANG) == child;
    if (!trained.ended) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!trained.ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &trained.status, 0);
  }
  trained.state = state.read();
  trained.output = output.read();
  std::istringstream made(calls.read());
  unsigned count = 0;
  for (std::string name; made >> name >> count;) trained.calls[name] = count;
  return trained;
}

// An error is a sentence of libtorch's or of vedette's, by an exception or as the last words of a process.
void expect_right_or_error(const Trained& trained, const Trained& whole, const std::string& what) {
  ASSERT_TRUE(trained.ended) << what << " hangs\n" << trained.output;
  if (WIFEXITED(trained.status) && WEXITSTATUS(trained.status) == 0) {
    EXPECT_TRUE(trained.state == whole.state) << what << ": wrong numbers\n" << trained.output;
    return;
  }
  if (WIFEXITED(trained.status)) {
    EXPECT_EQ(WEXITSTATUS(trained.status), 1) << what << "\n" << trained.output;
    EXPECT_THAT(trained.output, ::testing::HasSubstr("error: ")) << what;
    return;
  }
  EXPECT_EQ(WTERMSIG(trained.status), SIGABRT) << what << "\n" << trained.output;
  EXPECT_THAT(trained.output, ::testing::HasSubstr("vedette: ")) << what << " crashes";
  EXPECT_THAT(trained.output, ::testing::Not(::testing::HasSubstr("terminate called"))) << what;
}

// Calls that vedette makes, and those of libtorch's that queue work or take memory. What gives back has no receiver for
// an error.
const char* const failing_calls[] = {"cuInit",
                                     "cuDeviceGet",
                                     "cuDevicePrimaryCtxRetain",
                                     "cuCtxSetCurrent",
                                     "cuMemGetInfo_v2",
                                     "cuMemGetAllocationGranularity",
                                     "cuMemCreate",
                                     "cuMemAddressReserve",
                                     "cuMemMap",
                                     "cuMemSetAccess",
                                     "cuMemHostRegister_v2",
                                     "cuMemcpyAsync",
                                     "cuMemcpyBatchAsync",
                                     "cuStreamCreate",
                                     "cuStreamWaitEvent",
                                     "cuStreamSynchronize",
                                     "cuEventCreate",
                                     "cuEventRecord",
                                     "cuEventQuery",
                                     "cuEventSynchronize",
                                     "cuEventElapsedTime",
                                     "launch",
                                     "cudaMalloc",
                                     "cudaMemcpyAsync",
                                     "cudaStreamSynchronize"};

class FailingTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    whole_ = train({});
    ASSERT_TRUE(whole_.ended && whole_.status == 0) << whole_.output;
    ASSERT_FALSE(whole_.state.empty());
  }
  unsigned made(const std::string& call) const {
    const auto found = whole_.calls.find(call);
    return found == whole_.calls.end() ? 0 : found->second;
  }
  void expect_right_or_error_at(const std::string& call, unsigned nth) {
    const Trained trained = train({.call = call, .nth = nth});
    expect_right_or_error(trained, whole_, call + ", call " + std::to_string(nth));
    if (WIFEXITED(trained.status) && WEXITSTATUS(trained.status) == 0) {
      ++right_;
    } else {
      ++errors_;
    }
  }
  Trained whole_;
  unsigned right_ = 0, errors_ = 0;
};

TEST_F(FailingTraining, IsTheSameTwice) {
  const Trained again = train({});
  EXPECT_TRUE(again.state == whole_.state);
  EXPECT_GT(made("cuMemcpyAsync") + made("cuMemcpyBatchAsync"), 100u) << "the budget is too large to move anything";
}

TEST_F(FailingTraining, EndsRightOrWithASentenceAtCallsOfEachKind) {
  for (const char* const call : failing_calls) {
    const unsigned count = made(call);
    for (const unsigned nth : std::set<unsigned>{std::min(count, 1u), count * 2 / 3}) {
      if (nth > 0) expect_right_or_error_at(call, nth);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(right_, 0u);
  EXPECT_GT(errors_, 12u);
  std::printf("%u trainings ended right, %u with a sentence\n", right_, errors_);
}

// Many of them as the guard ends.
TEST_F(FailingTraining, EndsRightOrWithASentenceAtTheLastCallOfEachKind) {
  for (const char* const call : failing_calls) {
    if (const unsigned count = made(call); count > 1) expect_right_or_error_at(call, count);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(right_ + errors_, 12u);
}

}  // namespace
}  // namespace vedette::testing::failing_training_test
