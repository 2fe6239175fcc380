// A swap file and a memory cgroup: see kernel_swap.h.
#include "kernel_swap.h"

#include <fcntl.h>
#include <sys/swap.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/fd.h"
#include "support/memory_cgroup.h"
#include "vedette/result.h"

namespace vedette::bench {
namespace {

// A name that an interrupt can give to the kernel: the handler may call nothing but system calls.
char swap_path[4096];
void switch_off(int signal) {
  ::swapoff(swap_path);
  ::unlink(swap_path);
  ::_exit(128 + signal);
}

[[noreturn]] void refuse(const char* what, int error) {
  ::unlink(swap_path);
  throw Failure({.message = error == 0 ? std::string(what) : std::string(what) + ": " + std::strerror(error)});
}

}  // namespace

SwapFile::SwapFile(const std::string& directory, Bytes bytes) {
  std::string path = directory + "/vedette-swap-XXXXXX";
  Fd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) throw Failure({.message = "no swap file can be made in " + directory + ": " + std::strerror(errno)});
  path = std::filesystem::absolute(path);
  std::snprintf(swap_path, sizeof swap_path, "%s", path.c_str());
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, switch_off);
  if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes.value)); error != 0)
    refuse("no room for a swap file", error);
  if (run_child({"/sbin/mkswap", path}, "/dev/null", 60).status != 0) refuse("mkswap failed (package util-linux)", 0);
  if (::swapon(path.c_str(), 0) != 0) refuse("the kernel refuses a swap file here (swapon)", errno);
}

SwapFile::~SwapFile() {
  ::swapoff(swap_path);
  ::unlink(swap_path);
}

LimitedRun run_within(Bytes limit, std::vector<std::string> words, const std::string& log, double limit_s) {
  testing::MemoryCgroup group("vedette-swap");
  if (!group.made() || !group.set_limit(limit, true)) throw Failure({.message = group.why_not()});
  words.insert(words.begin(), {"/bin/sh", "-c", "echo 0 >\"$0\" && exec \"$@\"", group.folder() + "/cgroup.procs"});
  const ChildRun run = run_child(std::move(words), log, limit_s);
  return {.run = run, .charged = group.peak().value};
}

}  // namespace vedette::bench
