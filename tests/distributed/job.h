// The ranks of a job as forked children of a test, and a training whose end they tell. A test that uses this runs no
// operator before it forks: libtorch's threads do not survive that.
#pragma once
#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <torch/utils.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/mixed_precision.h"
#include "models/model.h"
#include "models/state.h"
#include "vedette/distributed.h"

namespace vedette::testing {

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  (void)::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  (void)::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

struct Rank {
  pid_t process = -1;
  int told = -1;
};

// Begins `ranks` children with torchrun's environment. What `body` returns, or the sentence that it throws, is told.
inline std::vector<Rank> start_job(int ranks, const std::function<std::string()>& body, int restarts = 0) {
  const int port = free_port();
  std::vector<Rank> job;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t process = ::fork();
    if (process == 0) {
      constexpr unsigned patience_s = 240;
      ::alarm(patience_s);
      ::close(ends[0]);
      const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
      set("RANK", std::to_string(rank));
      set("WORLD_SIZE", std::to_string(ranks));
      set("MASTER_ADDR", "127.0.0.1");
      set("MASTER_PORT", std::to_string(port));
      set("GLOO_SOCKET_IFNAME", "lo");
      set("TORCHELASTIC_RESTART_COUNT", std::to_string(restarts));
      at::set_num_threads(1);
      resolve_vector_math();
      std::string text;
      try {
        text = body();
      } catch (const std::exception& failure) {
        text = std::string("failed: ") + failure.what();
      }
      for (std::size_t done = 0; done < text.size();) {
        const ssize_t n = ::write(ends[1], text.data() + done, text.size() - done);
        if (n <= 0) break;
        done += static_cast<std::size_t>(n);
      }
      ::_exit(text.starts_with("failed: ") ? 1 : 0);
    }
    ::close(ends[1]);
    job.push_back({process, ends[0]});
  }
  return job;
}

// What each rank told; empty where it was killed. With a signal, the ranks get that first.
inline std::vector<std::string> end_of(const std::vector<Rank>& job, int signal = 0) {
  std::vector<std::string> told;
  for (const Rank& rank : job) {
    if (signal != 0) ::kill(rank.process, signal);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(rank.told, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(n));
    ::close(rank.told);
    int status = 0;
    ::waitpid(rank.process, &status, 0);
    told.push_back(std::move(text));
  }
  return told;
}

inline std::vector<std::string> run_job(int ranks, const std::function<std::string()>& body) {
  return end_of(start_job(ranks, body));
}

struct Training {
  std::string model = "mlp";
  DataParallelOptions parallel = {};
  std::uint64_t budget = 0;  // bytes; 0: no guard
  std::string policy = "vedette", slow = "host";
  std::int64_t steps = 10;
  bool amp = false;             // autocast to bf16, and a scaler of gradients
  std::string checkpoint = {};  // folder; empty: none
  std::function<void(int rank, std::int64_t step)> before_step = {};
};

inline constexpr Bytes chunk_of_a_training = {std::uint64_t{32} << 10};

// Trains as one rank of the job that the environment names. Losses and all that training leaves, by name; and what the
// guard counted.
inline nlohmann::json train(const Training& training) {
  Ranks ranks;
  nlohmann::json told;
  std::unique_ptr<Guard> guard;
  if (training.budget > 0)
    guard.reset(new Guard({.fast_memory = Bytes{training.budget},
                           .slow = training.slow,
                           .policy = training.policy,
                           .chunk = chunk_of_a_training,
                           .on_message = [](auto) {}}));
  const auto model = examples::make_model(training.model, {.small = true, .seed = 7, .script = {}});
  ranks.broadcast(model->module());
  torch::manual_seed(100 + static_cast<std::uint64_t>(ranks.rank()));
  DataParallel parallel(ranks, model->optimizer(), training.parallel);
  if (training.amp) model->use_mixed_precision();
  model->use([&](torch::optim::Optimizer&, const std::function<void()>& backward) {
    training.amp ? parallel.reduce(backward) : parallel.step(backward);
  });
  std::unique_ptr<Checkpoints> checkpoints;
  std::int64_t first = 0;
  if (!training.checkpoint.empty()) {
    checkpoints = std::make_unique<Checkpoints>(ranks, training.checkpoint);
    first = checkpoints->load(model->module(), model->optimizer(), model->scaler_state()).value_or(0);
  }
  told["first"] = first;
  if (guard) guard->watch(model->module());
  if (guard) guard->watch(model->optimizer());
  std::vector<std::uint32_t> losses;
  std::vector<std::uint64_t> moved, faults;
  for (std::int64_t step = first; step < training.steps; ++step) {
    if (training.before_step) training.before_step(ranks.rank(), step);
    const Counters before = guard ? guard->counters() : Counters{};
    {
      std::optional<Guard::Step> scope;
      if (guard) scope.emplace(*guard);
      losses.push_back(std::bit_cast<std::uint32_t>(model->train_step(step * ranks.size() + ranks.rank())));
    }
    const Counters now = guard ? guard->counters() : Counters{};
    moved.push_back(now.bytes_in.value + now.bytes_out.value - before.bytes_in.value - before.bytes_out.value);
    faults.push_back(now.faults - before.faults);
    constexpr std::int64_t between_checkpoints = 3;
    if (checkpoints && (step + 1) % between_checkpoints == 0)
      checkpoints->save(model->module(), model->optimizer(), step + 1, model->scaler_state());
  }
  told["losses"] = losses;
  told["state"] = examples::digests(*model);
  if (model->scaler() != nullptr) told["scale"] = model->scaler()->value();
  // Buffers are each rank's own, of its batches.
  for (const auto& parameter : model->module().named_parameters())
    told["parameters"][parameter.key()] = told["state"][parameter.key()];
  std::uint64_t optimizer_bytes = 0;
  examples::each_state(model->optimizer(),
                       [&](const std::string&, const at::Tensor& state) { optimizer_bytes += state.nbytes(); });
  told["optimizer_bytes"] = optimizer_bytes;
  if (!guard) return told;
  told["peak"] = guard->counters().peak_bytes.value;
  told["phase"] = guard->session().phase();
  told["moved"] = moved;
  told["faults"] = faults;
  return told;
}

inline std::vector<nlohmann::json> parsed(const std::vector<std::string>& told) {
  std::vector<nlohmann::json> results;
  for (const std::string& text : told) {
    results.push_back(nlohmann::json::parse(text, nullptr, false));
    EXPECT_FALSE(results.back().is_discarded()) << text;
  }
  return results;
}

inline std::vector<nlohmann::json> train_on(int ranks, const Training& training) {
  return parsed(run_job(ranks, [&] { return train(training).dump(); }));
}

inline void expect_same(const std::vector<nlohmann::json>& one, const std::vector<nlohmann::json>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t rank = 0; rank < one.size(); ++rank) {
    ASSERT_FALSE(one[rank].is_discarded() || other[rank].is_discarded());
    EXPECT_EQ(one[rank]["losses"], other[rank]["losses"]) << rank;
    EXPECT_EQ(one[rank]["state"], other[rank]["state"]) << rank;
  }
}

// Of a job that goes on from a checkpoint: the losses of its first steps are another process's.
inline void expect_same_end(const std::vector<nlohmann::json>& resumed, const std::vector<nlohmann::json>& whole) {
  ASSERT_EQ(resumed.size(), whole.size());
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    ASSERT_FALSE(resumed[rank].is_discarded());
    EXPECT_EQ(resumed[rank]["state"], whole[rank]["state"]) << rank;
  }
}

struct Folder {  // that is gone with it
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "vedette_job_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path;
};

// Of a rank, in a guard that moves nothing.
inline std::uint64_t peak_of(int ranks, Training training) {
  training.budget = std::uint64_t{1} << 30;
  training.policy = "on-demand";
  training.steps = 3;
  std::uint64_t peak = 0;
  for (const auto& rank : train_on(ranks, training)) peak = std::max(peak, rank["peak"].get<std::uint64_t>());
  return peak;
}

}  // namespace vedette::testing
