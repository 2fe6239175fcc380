// A small training under a guard of GPU memory, again and again, each time with another call of the driver failing. It
// ends with an error that is a sentence, or with the right numbers.
//
// One process trains again and again, so that what an error leaves behind is tested, too: every few trainings one in
// which nothing fails has to be right. Where a process ends by a last word of vedette's, another one goes on. Calls
// that only a process's first training makes fail in the first training of a process of their own.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "simulated_gpu/memory_file.h"
#include "simulated_gpu/torch_device.h"
#include "vedette/torch.h"

namespace vedette::testing::every_failing_call_test {
namespace {

constexpr std::int64_t width = 64;     // weights and activations of 16 KiB
constexpr Bytes budget = {128 << 10};  // less than lives at once
constexpr int steps = 5;               // two by a plan
constexpr int trainings_a_check = 25;  // among so many one in which nothing fails
constexpr unsigned most_alone = 60;  // calls of the first training that fail in a process each: its opening makes fewer
constexpr auto patience = std::chrono::seconds(60);  // for one training

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().cpu().contiguous();
  return {static_cast<const char*>(here.const_data_ptr()), here.nbytes()};
}

// What a training leaves: losses, and the parameters under the guard and behind its end.
std::string train(Recompute recompute) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(width, width), torch::nn::ReLU(), torch::nn::Linear(width, width));
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor batch = torch::randn({width, width});
  std::string state;
  const auto tell = [&] {
    for (const at::Tensor& parameter : net->parameters()) state += bytes_of(parameter);
  };
  {
    Guard guard{
        {.fast_memory = budget, .fast = "gpu:0", .slow = "host", .on_message = [](auto) {}, .recompute = recompute}};
    net->to(at::Device(at::kCUDA, 0));
    guard.watch(*net);
    guard.watch(sgd);
    for (int i = 0; i < steps; ++i) {
      const auto step = guard.step();
      sgd.zero_grad();
      const at::Tensor input = batch.to(at::kCUDA);
      const at::Tensor loss = torch::nn::functional::mse_loss(net->forward(input), input);
      loss.backward();
      sgd.step();
      state += bytes_of(loss);
    }
    tell();
  }
  tell();
  return state;
}

struct Shared {  // of the test and the process that trains
  std::atomic<unsigned> nth{0}, right{0}, sentences{0};
  char failure[4096] = {};
};

class Training {
 public:
  Training()
      : shared_(new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                    Shared) {}
  ~Training() { ::munmap(shared_, sizeof(Shared)); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  Shared& shared() { return *shared_; }

  // Runs `work` in a process. Empty: it ended well; "vedette: ...": its last words; else what is wrong.
  template <class Work>
  std::string in_process(const Work& work) {
    const MemoryFile output;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(output.number(), STDOUT_FILENO);
      ::dup2(output.number(), STDERR_FILENO);
      control().choose({.memory = std::size_t{256} << 20});
      at::set_num_threads(1);
      work();
      std::exit(shared_->failure[0] == 0 ? 0 : 1);
    }
    const int status = wait_for(child);
    const std::string text = output.read();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return "wrong: " + std::string(shared_->failure);
    const auto last_words = text.rfind("vedette: ");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && last_words != text.npos &&
        text.find("terminate called") == text.npos)
      return text.substr(last_words);
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? "hangs: " : "crashes: ") + text;
  }

 private:
  int wait_for(pid_t child) {
    int status = 0;
    unsigned before = shared_->nth;
    auto since = std::chrono::steady_clock::now();
    while (::waitpid(child, &status, WNOHANG) != child) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (const unsigned nth = shared_->nth; nth != before) {
        before = nth;
        since = std::chrono::steady_clock::now();
      }
      if (std::chrono::steady_clock::now() - since < patience) continue;
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      break;
    }
    return status;
  }
  Shared* const shared_;
};

struct Share {  // of calls: of each name those whose number leaves `rest` when divided by `of`
  const char* name;
  std::vector<const char*> calls;
  unsigned rest = 0, of = 1;
  Recompute recompute = Recompute::off;
};

void fail(Shared& shared, const std::string& what) {
  std::snprintf(shared.failure, sizeof shared.failure, "%s", what.c_str());
}

// One training, with the nth call from now failing. False: it is neither right nor ended by a sentence.
bool train_once(Shared& shared, const std::string& whole, Recompute recompute, const std::string& call, unsigned nth) {
  control().fail_none();
  if (!call.empty()) control().fail(call, nth, 999);
  std::string state, sentence;
  try {
    state = train(recompute);
  } catch (const std::exception& error) {
    sentence = error.what();
    if (sentence.empty()) sentence = "an exception without a word";
  }
  control().fail_none();
  if (const auto races = control().races(); !races.empty()) {
    fail(shared, races.front());
    return false;
  }
  if (call.empty() && !sentence.empty()) fail(shared, "where nothing fails: " + sentence);
  if (sentence.empty() && state != whole)
    fail(shared, call.empty() ? "other numbers where nothing fails" : "other numbers");
  if (!call.empty()) ++(sentence.empty() ? shared.right : shared.sentences);
  return shared.failure[0] == 0;
}

class EveryFailingCall : public ::testing::TestWithParam<Share> {
 protected:
  using Counts = std::map<std::string, unsigned>;

  void SetUp() override {
    if (const std::string missing = load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    const MemoryFile whole, first, later;
    const std::string said = training_.in_process([&] {
      whole.write(train(GetParam().recompute));
      const Counts of_first = control().calls();
      for (const auto& [call, count] : of_first) first.write(call + ' ' + std::to_string(count) + '\n');
      static_cast<void>(train(GetParam().recompute));
      for (const auto& [call, count] : control().calls()) {
        const auto before = of_first.find(call);
        later.write(call + ' ' + std::to_string(count - (before == of_first.end() ? 0 : before->second)) + '\n');
      }
    });
    ASSERT_EQ(said, "");
    whole_ = whole.read();
    read(first, first_);
    read(later, later_);
  }
  static void read(const MemoryFile& file, Counts& counts) {
    std::istringstream text(file.read());
    unsigned count = 0;
    for (std::string call; text >> call >> count;) counts[call] = count;
  }
  // Each of its calls, in trainings that are not their process's first.
  void fail_later(const std::string& call) {
    const auto [name, calls, rest, of, recompute] = GetParam();
    Shared& shared = training_.shared();
    for (shared.nth = rest + 1; shared.nth <= later_[call];) {
      const std::string said = training_.in_process([&, of = of, recompute = recompute] {
        if (!train_once(shared, whole_, recompute, "", 0)) return;
        for (int done = 0; shared.nth <= later_[call]; shared.nth += of) {
          if (!train_once(shared, whole_, recompute, call, shared.nth)) return;
          if (++done % trainings_a_check == 0 && !train_once(shared, whole_, recompute, "", 0)) return;
        }
      });
      if (said.empty()) return;
      ASSERT_TRUE(said.starts_with("vedette: ")) << call << ", call " << shared.nth << ": " << said;
      ++shared.sentences;
      shared.nth += of;
    }
  }
  // What only a process's first training calls, in the first training of a process.
  void fail_first(const std::string& call) {
    const auto [name, calls, rest, of, recompute] = GetParam();
    Shared& shared = training_.shared();
    if (first_[call] == later_[call]) return;
    for (shared.nth = rest + 1; shared.nth <= std::min(first_[call], most_alone); shared.nth += of) {
      const std::string said =
          training_.in_process([&, recompute = recompute] { train_once(shared, whole_, recompute, call, shared.nth); });
      if (said.empty()) continue;
      ASSERT_TRUE(said.starts_with("vedette: ")) << call << ", call " << shared.nth << " of the first: " << said;
      ++shared.sentences;
    }
  }
  Training training_;
  std::string whole_;
  Counts first_, later_;  // calls that a process's first training makes, and the next one
};

// What gives back has no receiver for an error, and what asks for names and numbers is asked again.
bool is_exempt(const std::string& call) {
  for (const char* const word : {"Destroy", "Release", "Unmap", "Unregister", "Free", "Get"}) {
    if (call.find(word) != call.npos) return true;
  }
  return false;
}

// All that vedette calls but what gives back, and the calls of libtorch's that queue work, take memory or wait.
std::vector<Share> shares() {
  return {
      {"opening",
       {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuMemGetInfo_v2", "cuMemGetAllocationGranularity",
        "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemHostRegister_v2", "cuStreamCreate"}},
      {"copies", {"cuMemcpyAsync", "cuMemcpyBatchAsync"}},
      {"launches", {"launch"}},
      {"waits", {"cuStreamWaitEvent", "cuStreamSynchronize", "cuEventSynchronize"}},
      {"questions", {"cuEventQuery", "cuEventElapsedTime", "cuCtxGetCurrent"}},
      {"events", {"cuEventCreate"}},
      {"records", {"cuEventRecord"}, 0, 2},
      {"records", {"cuEventRecord"}, 1, 2},
      {"contexts", {"cuCtxSetCurrent"}},
      {"libtorchs", {"cudaMalloc"}},
      {"recomputing", {"cuStreamSynchronize", "cuMemcpyAsync", "cuStreamWaitEvent"}, 0, 1, Recompute::planned},
      {"recomputing", {"cuEventRecord"}, 0, 2, Recompute::planned},
      {"recomputing", {"cuEventRecord"}, 1, 2, Recompute::planned}};
}

std::string in_no_share(const std::map<std::string, unsigned>& calls) {
  std::set<std::string> known;
  for (const Share& share : shares()) known.insert(share.calls.begin(), share.calls.end());
  std::string names;
  for (const auto& [call, count] : calls) {
    if (!known.contains(call) && !is_exempt(call)) names += call + " ";
  }
  return names;
}

TEST_P(EveryFailingCall, LeavesRightNumbersOrASentence) {
  EXPECT_EQ(in_no_share(first_), "");
  for (const char* const call : GetParam().calls) {
    ASSERT_GT(first_[call], 0u) << "the training never calls " << call;
    Shared& shared = training_.shared();
    shared.right = shared.sentences = 0;
    fail_first(call);
    if (HasFatalFailure()) return;
    fail_later(call);
    if (HasFatalFailure()) return;
    std::printf(
        "%s: %u calls in a process's first training, %u in the next; %u trainings ended right, %u with a sentence\n",
        call, first_[call], later_[call], shared.right.load(), shared.sentences.load());
    std::fflush(stdout);
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, EveryFailingCall, ::testing::ValuesIn(shares()), [](const auto& the) {
  const Share& share = the.param;
  const std::string part = share.of == 1 ? "" : "_" + std::to_string(share.rest + 1) + "_of_2";
  return share.name + part + (share.name == std::string("recomputing") ? std::string("_") + share.calls[0] : "");
});

}  // namespace
}  // namespace vedette::testing::every_failing_call_test
