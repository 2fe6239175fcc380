// See run_groups.h.
#include "gpu_probe/run_groups.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "machine.h"
#include "vedette/result.h"

namespace vedette::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int most_processes = 12;  // of a group: a driver that hangs in every cell ends the group

class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "gpu_probe-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw Failure({.message = "making " + path_ + " failed"});
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string cause_of(const bench::ChildRun& run, double limit_s, double cell_limit_s) {
  char text[80];
  if (run.status == Recorder::timed_out) {
    std::snprintf(text, sizeof text, "timeout (%g s)", cell_limit_s);
  } else if (run.status == 128 + SIGKILL && run.wall_s >= limit_s) {
    std::snprintf(text, sizeof text, "timeout of the group (%.0f s)", limit_s);
  } else if (run.status > 128) {
    std::snprintf(text, sizeof text, "signal %d", run.status - 128);
  } else {
    std::snprintf(text, sizeof text, "the process ended with status %d", run.status);
  }
  return text;
}

class GroupRun {
 public:
  GroupRun(const RunOptions& options, const Group& group, double limit_s, const Folder& folder)
      : options_(options), group_(group), limit_s_(limit_s), folder_(folder), began_(Clock::now()) {}

  // Rows of all its processes.
  Json run() {
    Json rows = Json::array();
    for (std::uint64_t skip = 0; processes_ < most_processes; ++processes_) {
      const double left = limit_s_ - seconds();
      if (left <= 0) {
        rows.push_back(refused("no time was left"));
        break;
      }
      const std::string file = folder_.file(std::string(group_.name) + "." + std::to_string(processes_));
      const bench::ChildRun child = start(file, skip, left);
      const std::string why = cause_of(child, left, options_.cell_limit_s);
      std::uint64_t cells = 0;
      std::ifstream lines(file);
      for (Json& row : rows_of(lines, why, cells)) rows.push_back(std::move(row));
      skip += cells;
      if (child.status == 0) break;
      if (cells == 0) {
        rows.push_back(refused(why));
        break;
      }
    }
    return rows;
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  int processes() const { return processes_ + 1; }

 private:
  bench::ChildRun start(const std::string& file, std::uint64_t skip, double limit_s) {
    std::vector<std::string> words = {options_.program, "--group",           group_.name, "--rows", file,
                                      "--skip",         std::to_string(skip)};
    words.insert(words.end(), options_.words.begin(), options_.words.end());
    return bench::run_child(std::move(words), folder_.file("log"), limit_s);
  }

  Json refused(const std::string& why) const {
    return {{"point", group_.point},
            {"name", group_.name},
            {"setting", Json::object()},
            {"quantity", "all"},
            {"refused", why}};
  }

  const RunOptions& options_;
  const Group& group_;
  double limit_s_;
  const Folder& folder_;
  Clock::time_point began_;
  int processes_ = 0;
};

}  // namespace

void run_groups(const RunOptions& options, Json& document) {
  const Folder folder;
  const auto began = Clock::now();
  for (const Group& group : options.groups) {
    if (!options.only.empty() && std::find(options.only.begin(), options.only.end(), group.name) == options.only.end())
      continue;
    const double left = options.budget_s - std::chrono::duration<double>(Clock::now() - began).count();
    // A quick run is a test's, perhaps on a busy machine: only hangs may end it.
    GroupRun run(options, group, options.quick ? left : std::min(group.limit_s, left), folder);
    for (Json& row : run.run()) document["rows"].push_back(std::move(row));
    document["groups"].push_back(
        {{"name", group.name}, {"point", group.point}, {"seconds", run.seconds()}, {"processes", run.processes()}});
    std::fprintf(stderr, "%s: %.1f s\n", group.name, run.seconds());
    options.after_each();
  }
}

}  // namespace vedette::gpu
