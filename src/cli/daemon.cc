// `vedette daemon`: shares one memory among the programs of a user. `vedette jobs` lists these.
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/readable.h"
#include "cli/finite.h"
#include "cli/memory_daemon.h"
#include "cli/nearest.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "os/local_socket.h"

namespace vedette::cli {
namespace {

struct Socket {
  std::string path;  // empty: the runtime directory's
  std::optional<int> gpu;
};

void add_options(CLI::App& verb, Socket& socket) {
  CLI::Option* const gpu = verb.add_option("--gpu", socket.gpu, "the memory of a GPU, by its number, not the host's")
                               ->check(CLI::Range(0, 1023));
  verb.add_option("--socket", socket.path, "the path of the daemon's socket (default: in the user's runtime directory)")
      ->excludes(gpu);
}

struct DaemonOptions {
  std::string memory, policy = "fair";
  Socket socket;
  double quantum_s = 5;
};

std::string path_of(const Socket& socket) {
  if (!socket.path.empty()) return socket.path;
  auto path = runtime_socket(socket.gpu);
  if (!path) throw Failure(path.error());
  return *path;
}

share::Policy policy_of(const DaemonOptions& options) {
  std::vector<std::string> known;
  for (const share::Policy& policy : share::policies())
    if (policy.room != share::Room::lanes) known.emplace_back(policy.name);
  if (std::find(known.begin(), known.end(), options.policy) == known.end())
    throw Failure({Cause::malformed_input, fmt::format("a daemon has no policy '{}'{}; there are {}", options.policy,
                                                       did_you_mean(options.policy, known), fmt::join(known, ", "))});
  share::Policy policy = *share::policy_named(options.policy);
  policy.quantum = {static_cast<std::int64_t>(options.quantum_s * 1e9)};
  return policy;
}

void serve(const DaemonOptions& options) {
  const auto capacity = vedette::read_size(options.memory);
  constexpr Bytes least = 16_MiB;
  if (!capacity || *capacity < least)
    throw Failure(
        {Cause::malformed_input, "--memory '" + options.memory + "' is no size of 16 MiB or more; write 8GiB"});
  const std::string path = path_of(options.socket);
  auto daemon = MemoryDaemon::open(path, policy_of(options), *capacity);
  if (!daemon) throw Failure(daemon.error());
  print("shares {} by the policy {} at {}\n", readable(*capacity), options.policy, path);
  std::fflush(stdout);
  const std::atomic<bool> never = false;
  daemon->serve(never);
}

struct JobsOptions {
  Socket socket;
  std::uint32_t ping = 0;
  bool json = false;
};

// The daemon's answer; its last message is the sum.
std::vector<share::Message> ask_for_list(const Fd& socket) {
  const share::Message ask{.say = share::Say::list};
  std::vector<share::Message> list;
  if (send_now(socket.get(), std::as_bytes(std::span(&ask, 1))) == Sent::yes) {
    share::Message line;
    while (receive(socket.get(), std::as_writable_bytes(std::span(&line, 1)))) {
      list.push_back(line);
      if (line.say == share::Say::list) return list;
    }
  }
  throw Failure({Cause::unavailable, "the daemon has not answered; another version of it may run: start it again"});
}

void ping(const Fd& socket, std::uint32_t count) {
  std::vector<double> us;
  for (std::uint32_t n = 0; n < count; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    ask_for_list(socket);
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(us.begin(), us.end());
  print("{} round trips: median {:.1f} us, 99 of 100 within {:.1f} us\n", count, us[us.size() / 2],
        us[us.size() * 99 / 100]);
}

std::string time_words(std::int64_t ns) {
  return ns >= 10'000'000'000 ? fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9)
                              : fmt::format("{:.1f} ms", static_cast<double>(ns) / 1e6);
}

void print_jobs(const JobsOptions& options) {
  const std::string path = path_of(options.socket);
  auto socket = connect_to(path);
  if (!socket)
    throw Failure({Cause::unavailable, "no daemon shares memory here (" + socket.error().message +
                                           "); `vedette daemon --memory 8GiB` starts one"});
  if (options.ping > 0) return ping(*socket, options.ping);
  std::vector<share::Message> list = ask_for_list(*socket);
  const share::Message all = list.back();
  list.pop_back();
  if (options.json) {
    nlohmann::ordered_json json{{"policy", all.name_text()}, {"memory_bytes", all.want}, {"leased_bytes", all.lease}};
    json["jobs"] = nlohmann::ordered_json::array();
    for (const share::Message& job : list)
      json["jobs"].push_back({{"pid", job.pid},
                              {"name", job.name_text()},
                              {"turn", job.yes != 0},
                              {"lease_bytes", job.lease},
                              {"floor_bytes", job.floor},
                              {"want_bytes", job.want},
                              {"step_ns", job.step_ns},
                              {"waited_ns", job.other_ns}});
    return print_data(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  print("{} of {} leased, policy {}\n", readable({all.lease}), readable({all.want}), all.name_text());
  if (!list.empty())
    print("{:>8} {:<16}{:<8}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "process", "name", "", "lease", "floor", "wants",
          "a step", "waited");
  for (const share::Message& job : list)
    print("{:>8} {:<16}{:<8}{:>11}{:>11}{:>11}{:>11}{:>11}\n", job.pid, job.name_text(),
          job.yes != 0 ? "runs" : "waits", readable({job.lease}), readable({job.floor}), readable({job.want}),
          time_words(job.step_ns), time_words(job.other_ns));
}

}  // namespace

void add_daemon(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("daemon", "Shares one memory among programs: how much each fills, and when it runs");
  auto options = std::make_shared<DaemonOptions>();  // shared: the callback is copied into the App
  verb->add_option("--memory", options->memory, "what they share: 8GiB")->required();
  verb->add_option("--policy", options->policy, "fifo, srtf, fair or pack")->capture_default_str();
  verb->add_option("--quantum", options->quantum_s, "seconds that a turn lasts at least, under fair")
      ->capture_default_str()
      ->check(finite_between(0, 1e6));
  add_options(*verb, options->socket);
  verb->callback([options] { serve(*options); });
}

void add_jobs(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("jobs", "The programs that share memory by `vedette daemon`");
  auto options = std::make_shared<JobsOptions>();  // shared: the callback is copied into the App
  add_options(*verb, options->socket);
  verb->add_option("--ping", options->ping, "measure so many round trips instead")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{10'000'000}));
  verb->add_flag("--json", options->json, "one JSON object");
  verb->callback([options] { print_jobs(*options); });
}

}  // namespace vedette::cli
