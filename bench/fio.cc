// fio's command line and its output: see fio.h.
#include "fio.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "vedette/result.h"

namespace vedette::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::string command_line(const FioJob& job, const std::string& pattern) {
  std::ostringstream command;
  command << "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=ideal --filename='" << job.file << "' " << pattern
          << " --bs=" << job.block.value << " --iodepth=" << job.depth << " --size=" << job.size.value
          << " --ioengine=io_uring --direct=1 --iomem_align=2m --scramble_buffers=0 --fallocate=none --overwrite=1"
          << " --output-format=json" << (job.fixed_buffers ? " --fixedbufs" : "") << " 2>&1";
  return command.str();
}

nlohmann::json answer(const std::string& command) {
  const std::string text = output_of(command);
  const auto json = nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())), nullptr, false);
  if (json.is_discarded() || !json.contains("jobs") || json["jobs"][0]["error"] != 0) {
    throw Failure({.message = "fio said: " + text.substr(0, 400)});
  }
  return json["jobs"][0];
}

}  // namespace

bool fio_is_installed() { return !output_of("command -v fio").empty(); }

DiskFile::DiskFile(const std::string& directory, Bytes size) : path_(directory + "/vedette-bench-XXXXXX") {
  fd_ = Fd(::mkostemp(path_.data(), O_DIRECT | O_CLOEXEC));
  if (!fd_) throw Failure({.message = "making " + path_ + ": " + std::strerror(errno)});
  if (const int code = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(size.value)); code != 0) {
    ::unlink(path_.c_str());
    throw Failure({.message = "preallocating " + path_ + ": " + std::strerror(code)});
  }
}

DiskFile::~DiskFile() { ::unlink(path_.c_str()); }

FioResult run_fio(const FioJob& job) {
  std::ostringstream pattern;
  if (job.read_percent >= 100) {
    pattern << "--rw=randread";
  } else if (job.read_percent <= 0) {
    pattern << "--rw=randwrite";
  } else {
    pattern << "--rw=randrw --rwmixread=" << job.read_percent;
  }
  pattern << " --norandommap --randrepeat=0 --time_based --runtime=" << std::lround(job.seconds * 1e3) << "ms";
  const auto begin = Clock::now();
  const nlohmann::json result = answer(command_line(job, pattern.str()));
  const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto sum = [&](const char* key) {
    return result["read"][key].get<double>() + result["write"][key].get<double>();
  };
  const double wall =
      std::max(result["read"]["runtime"].get<double>(), result["write"]["runtime"].get<double>()) * 1e-3;
  const double cpu = (result["usr_cpu"].get<double>() + result["sys_cpu"].get<double>()) / 100 * wall;
  return {sum("io_bytes") / wall, cpu * 1e6 / sum("total_ios"), std::max(0.0, whole - wall)};
}

void fill_by_fio(const FioJob& job) { answer(command_line(job, "--rw=write")); }

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 4096> part;
  while (pipe && std::fgets(part.data(), part.size(), pipe.get()) != nullptr) text += part.data();
  return text;
}

}  // namespace vedette::bench
