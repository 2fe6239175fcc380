// A memory cgroup for a test: a child of this process's own (version 1), or beside it where it may have no children
// (version 2). The memory charged to its processes, page tables and file pages included, stays below a limit, or the
// kernel kills one of them. Where no group can be made, why_not names the obstacle. The destructor removes the group;
// its processes have ended by then.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "vedette/units.h"

namespace vedette::testing {

class [[nodiscard]] MemoryCgroup {
 public:
  explicit MemoryCgroup(const std::string& name) {
    const auto parents = find_parents();
    if (parents.empty()) why_not_ = "no memory cgroup is mounted here";
    for (const Parent& parent : parents) {
      const std::string folder = parent.folder + "/" + name + "-" + std::to_string(::getpid());
      if (::mkdir(folder.c_str(), 0755) != 0) {
        why_not_ = "no memory cgroup can be made in " + parent.folder + ": " + std::strerror(errno);
        continue;
      }
      folder_ = folder;
      version_ = parent.version;
      if (::access(file(limit_name()).c_str(), W_OK) == 0) return;
      why_not_ = "the memory controller is not given on to the children of " + parent.folder;
      ::rmdir(folder.c_str());
      folder_.clear();
    }
  }
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;
  ~MemoryCgroup() {  // a killed process leaves its group a moment after it was waited for
    for (int tries = 0; !folder_.empty() && ::rmdir(folder_.c_str()) != 0 && errno == EBUSY && tries < 500; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  bool made() const { return !folder_.empty(); }
  const std::string& why_not() const { return why_not_; }
  int version() const { return version_; }
  const std::string& folder() const { return folder_; }

  // Swap beside it: as much as there is, or none. False with a reason in why_not() where the kernel refuses.
  bool set_limit(Bytes most, bool swap) {
    const std::string bytes = std::to_string(most.value);
    if (version_ == 1 && has("memory.memsw.limit_in_bytes")) put("memory.memsw.limit_in_bytes", "-1");
    if (!put(limit_name(), bytes)) return refuse("the limit");
    if (version_ == 2 && has("memory.swap.max") && !put("memory.swap.max", swap ? "max" : "0"))
      return refuse("the limit of swap");
    if (version_ == 1 && !swap && has("memory.memsw.limit_in_bytes") && !put("memory.memsw.limit_in_bytes", bytes))
      return refuse("the limit of swap");
    return true;
  }
  // The calling process lives inside from here on; its earlier memory stays charged where it was.
  // Async-signal-safe.
  bool enter() const { return put("cgroup.procs", "0"); }

  // The most that was ever charged; 0 where the kernel does not tell (version 2 before Linux 5.19).
  Bytes peak() const { return {number(version_ == 1 ? "memory.max_usage_in_bytes" : "memory.peak")}; }
  std::uint64_t kills() const { return field(version_ == 1 ? "memory.oom_control" : "memory.events", "oom_kill"); }
  // The charged bytes of one kind: "rss" or "anon", "shmem", "cache" or "file", in bytes.
  std::uint64_t charged(const char* what) const { return field("memory.stat", what); }

 private:
  struct Parent {
    int version = 0;
    std::string folder;
  };

  static std::string text(const std::string& path) {
    std::ifstream stream(path);
    std::ostringstream all;
    all << stream.rdbuf();
    return all.str();
  }
  // Where the process's group of this hierarchy lies under its mount; in a container the mount is the group.
  static std::string own_folder(const std::string& mount, bool second) {
    std::istringstream lines(text("/proc/self/cgroup"));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t begin = line.find(':'), end = line.find(':', begin + 1);
      if (end == line.npos) continue;
      const std::string controllers = std::string(1, ',').append(line, begin + 1, end - begin - 1).append(1, ',');
      if (second ? controllers != ",," : controllers.find(",memory,") == controllers.npos) continue;
      std::string folder = mount + line.substr(end + 1);
      while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
      return ::access(folder.c_str(), F_OK) == 0 ? folder : mount;
    }
    return mount;
  }
  static std::vector<Parent> find_parents() {
    std::vector<Parent> parents;
    std::istringstream mounts(text("/proc/self/mounts"));
    std::string device, point, type, options;
    for (std::string line; std::getline(mounts, line);) {
      std::istringstream(line) >> device >> point >> type >> options;
      if (type == "cgroup" && (options + ",").find(",memory,") != options.npos)
        parents.push_back({1, own_folder(point, false)});
      if (type != "cgroup2" || text(point + "/cgroup.controllers").find("memory") == std::string::npos) continue;
      // A group that has processes gives nothing on, so its children may lack the controller; its parent's then have
      // it.
      const std::string own = own_folder(point, true);
      std::ofstream(own + "/cgroup.subtree_control") << "+memory";
      parents.push_back({2, own});
      if (own != point) parents.push_back({2, own.substr(0, own.rfind('/'))});
    }
    return parents;
  }

  const char* limit_name() const { return version_ == 1 ? "memory.limit_in_bytes" : "memory.max"; }
  std::string file(const char* name) const { return folder_ + "/" + name; }
  bool has(const char* name) const { return ::access(file(name).c_str(), F_OK) == 0; }
  bool put(const char* name, const std::string& value) const {
    const int fd = ::open(file(name).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool done = ::write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
    ::close(fd);
    return done;
  }
  bool refuse(const char* what) {
    why_not_ = std::string("the kernel refuses ") + what + " of a memory cgroup: " + std::strerror(errno);
    return false;
  }
  std::uint64_t number(const char* name) const {
    std::ifstream stream(file(name));
    std::uint64_t value = 0;
    return stream >> value ? value : 0;
  }
  std::uint64_t field(const char* name, const std::string& key) const {
    std::ifstream stream(file(name));
    std::string word;
    for (std::uint64_t value = 0; stream >> word >> value;)
      if (word == key) return value;
    return 0;
  }

  std::string folder_, why_not_;
  int version_ = 0;
};

}  // namespace vedette::testing
