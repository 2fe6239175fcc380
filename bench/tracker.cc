// What does it cost to see which pages a program touches? Per touched page, for all trackers side by side, beside the
// kernel's own minor fault, the floor for trackers of first touches.
//
// A tick is: touch some pages, then collect (which arms them again). Reported are medians over alternating rounds, so
// that other load disturbs all trackers alike.
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mapping.h"
#include "median.h"
#include "os/address_ranges.h"
#include "os/page_tracker.h"
#include "os/tracked_memory.h"
#include "os/uapi.h"
#include "os/uffd.h"

namespace {

using namespace vedette;

constexpr std::size_t page_count = 16384;  // 64 MiB, larger than the caches and the TLB
constexpr const char* floor_name = "kernel minor fault (floor)";

double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Source {
  std::string name;
  std::byte* base = nullptr;
  std::unique_ptr<PageTracker> tracker;
  bool tracks = true;  // false: the kernel alone, for comparison
  AddressRange range() const { return {base, page_count * page_size}; }
};

// What the kernel does anyway: page-table entries cleared, refilled at the next touch, nobody looking. An ordinary
// mapping gets sixteen entries back for one read (fault-around), so it could not tell pages; memory registered with a
// userfaultfd gets one entry a fault, which is the floor.
class Floor final : public PageTracker {
 public:
  Result<void> arm(std::span<const AddressRange> ranges) override {
    for (const AddressRange& range : ranges) ::madvise(range.begin, range.bytes, MADV_DONTNEED);
    return {};
  }
  Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>&) override {
    return arm(ranges);
  }
  Result<void> disarm(std::span<const AddressRange>) override { return {}; }
  bool sees_system_calls() const noexcept override { return false; }
  std::string_view mechanism() const noexcept override { return "minor fault"; }
};

// userfaultfd the classical way: a thread answers minor faults of a memfd with UFFDIO_CONTINUE and notes the address.
class HandlerThread final : public PageTracker {
 public:
  HandlerThread(Userfaultfd userfaultfd, AddressRange range)
      : userfaultfd_(std::move(userfaultfd)), range_(range), seen_(range.bytes / page_size) {
    uffdio_register request{};
    request.range = {reinterpret_cast<std::uintptr_t>(range.begin), range.bytes};
    request.mode = UFFDIO_REGISTER_MODE_MINOR;
    registered_ = ::ioctl(userfaultfd_.fd(), UFFDIO_REGISTER, &request) == 0;
    reader_ = std::make_unique<FaultReader>(userfaultfd_, [this](const MissingPage& fault) { return answer(fault); });
  }
  bool registered() const { return registered_; }

  Result<void> arm(std::span<const AddressRange> ranges) override {
    for (const AddressRange& range : ranges) ::madvise(range.begin, range.bytes, MADV_DONTNEED);
    return {};
  }
  Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) override {
    const std::size_t first = touched.size();
    for (std::size_t page = 0; page < seen_.size(); ++page) {
      const unsigned char seen = seen_[page].exchange(0, std::memory_order_relaxed);
      if (seen == 0) continue;
      append_touched(touched, first,
                     {.pages = {range_.begin + page * page_size, page_size}, .read = seen == 1, .written = seen == 2});
    }
    return arm(ranges);
  }
  Result<void> disarm(std::span<const AddressRange>) override { return {}; }
  bool sees_system_calls() const noexcept override { return userfaultfd_.serves_system_calls(); }
  std::string_view mechanism() const noexcept override { return "userfaultfd thread"; }

 private:
  bool answer(const MissingPage& fault) {
    seen_[static_cast<std::size_t>(fault.page - range_.begin) / page_size].store(fault.write ? 2 : 1,
                                                                                 std::memory_order_relaxed);
    uffdio_continue request{};
    request.range = {reinterpret_cast<std::uintptr_t>(fault.page), page_size};
    return ::ioctl(userfaultfd_.fd(), UFFDIO_CONTINUE, &request) == 0 || errno == EEXIST;
  }

  Userfaultfd userfaultfd_;
  AddressRange range_;
  std::vector<std::atomic<unsigned char>> seen_;
  bool registered_ = false;
  std::unique_ptr<FaultReader> reader_;
};

// Kept for the length of the program.
std::byte* map_file() {
  const Fd file{::memfd_create("bench", MFD_CLOEXEC)};
  const std::size_t bytes = page_count * page_size;
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  std::memset(at, 1, bytes);
  return static_cast<std::byte*>(at);
}

void add(std::vector<Source>& sources, const char* name, std::byte* base, Result<std::unique_ptr<PageTracker>> tracker,
         bool tracks = true) {
  if (!tracker || base == nullptr) {
    std::printf("%s: not here (%s)\n", name, tracker ? "no memory" : tracker.error().message.c_str());
    return;
  }
  sources.push_back({.name = name, .base = base, .tracker = std::move(tracker).value(), .tracks = tracks});
}

Result<std::unique_ptr<PageTracker>> open_handler_thread(std::byte* file) {
  auto userfaultfd = Userfaultfd::open(uapi::feature_minor_shmem);
  if (!userfaultfd) return userfaultfd.error();
  if (file == nullptr) return Error{.cause = Cause::out_of_memory, .message = "no memory"};
  auto made =
      std::make_unique<HandlerThread>(std::move(userfaultfd).value(), AddressRange{file, page_count * page_size});
  if (!made->registered()) return Error{.cause = Cause::unavailable, .message = "minor faults cannot be registered"};
  return std::unique_ptr<PageTracker>(std::move(made));
}

std::vector<Source> open_sources() {
  std::vector<Source> sources;
  const auto kernel = [] { return std::unique_ptr<PageTracker>(std::make_unique<Floor>()); };
  static auto floor = TrackedMemory::create({page_count * page_size});
  add(sources, floor_name, floor ? floor->data() : nullptr, kernel(), false);
  add(sources, "kernel, with fault-around", map_file(), kernel(), false);

  static auto memory = TrackedMemory::create({page_count * page_size});
  add(sources, "zap", memory ? memory->data() : nullptr, open_zap_tracker());

  static auto anonymous = Mapping::reserve({page_count * page_size}, {page_size});
  if (anonymous) std::memset(anonymous->data(), 1, page_count * page_size);
  add(sources, "mprotect + SIGSEGV", anonymous ? anonymous->data() : nullptr, open_mprotect_tracker());

  std::byte* const file = map_file();
  add(sources, "userfaultfd + thread", file, open_handler_thread(file));
  return sources;
}

struct Pattern {
  const char* name;
  bool write;
  std::vector<std::uint32_t> pages;
};

std::vector<Pattern> patterns() {
  std::vector<std::uint32_t> all(page_count);
  std::iota(all.begin(), all.end(), 0u);
  std::vector<std::uint32_t> scattered = all;
  std::shuffle(scattered.begin(), scattered.end(), std::mt19937(7));
  scattered.resize(page_count / 4);
  return {{"all, in order, read", false, all},
          {"all, in order, written", true, all},
          {"a quarter, at random, read", false, scattered},
          {"a quarter, at random, written", true, scattered}};
}

struct Cost {
  double touch_ns, collect_ns;  // per touched page
  double total() const { return touch_ns + collect_ns; }
};

Cost tick(Source& source, const Pattern& pattern) {
  const AddressRange ranges[] = {source.range()};
  std::vector<TouchedRange> touched;
  touched.reserve(pattern.pages.size());
  auto* const bytes = reinterpret_cast<volatile unsigned char*>(source.base);
  const double began = now_ns();
  if (pattern.write) {
    for (const std::uint32_t page : pattern.pages) bytes[page * page_size] = 2;
  } else {
    for (const std::uint32_t page : pattern.pages) static_cast<void>(bytes[page * page_size]);
  }
  const double mid = now_ns();
  if (auto collected = source.tracker->collect(ranges, touched); !collected) {
    std::fprintf(stderr, "%s: %s\n", source.name.c_str(), collected.error().message.c_str());
    std::exit(1);
  }
  const double ended = now_ns();
  std::size_t told = 0;
  for (const TouchedRange& run : touched) told += run.written == pattern.write ? run.pages.bytes / page_size : 0;
  if (told != pattern.pages.size() && source.tracks) {
    std::fprintf(stderr, "%s told %zu pages of %zu\n", source.name.c_str(), told, pattern.pages.size());
    std::exit(1);
  }
  const auto pages = static_cast<double>(pattern.pages.size());
  return {(mid - began) / pages, (ended - mid) / pages};
}

void print_machine() {
  utsname name{};
  ::uname(&name);
  std::string model = "unknown CPU", line;
  for (std::ifstream cpus("/proc/cpuinfo"); std::getline(cpus, line);) {
    if (line.rfind("model name", 0) == 0) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  double load[1] = {0};
  ::getloadavg(load, 1);
  std::printf("%s, %ld CPUs, Linux %s, pages of 4 KiB, load %.1f\n", model.c_str(), ::sysconf(_SC_NPROCESSORS_ONLN),
              name.release, load[0]);
}

void print_pattern(const Pattern& pattern, const std::vector<Source>& sources,
                   const std::vector<std::vector<Cost>>& costs) {
  std::printf("\n%s (%zu pages a tick)\n", pattern.name, pattern.pages.size());
  std::printf("  %-28s %9s %9s %9s %17s %9s\n", "ns per touched page", "touch", "collect", "both", "(least - most)",
              "of floor");
  double floor = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::vector<double> touch, collect, total;
    for (const Cost& cost : costs[i]) {
      touch.push_back(cost.touch_ns);
      collect.push_back(cost.collect_ns);
      total.push_back(sources[i].tracks ? cost.total() : cost.touch_ns);
    }
    const auto [least, most] = std::minmax_element(total.begin(), total.end());
    const double both = median(total);
    if (sources[i].name == floor_name) floor = both;
    const std::string looked = sources[i].tracks ? std::to_string(std::lround(median(collect))) : "-";
    const std::string spread = std::to_string(std::lround(*least)) + " - " + std::to_string(std::lround(*most));
    std::printf("  %-28s %9.0f %9s %9.0f %17s %8.1fx\n", sources[i].name.c_str(), median(touch), looked.c_str(), both,
                spread.c_str(), floor > 0 ? both / floor : 0.0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  print_machine();
  std::printf("medians of %d alternating rounds\n", rounds);
  std::vector<Source> sources = open_sources();
  for (Source& source : sources) {
    const AddressRange ranges[] = {source.range()};
    if (auto armed = source.tracker->arm(ranges); !armed) {
      std::fprintf(stderr, "%s: %s\n", source.name.c_str(), armed.error().message.c_str());
      return 1;
    }
  }
  for (const Pattern& pattern : patterns()) {
    std::vector<std::vector<Cost>> costs(sources.size());
    for (int round = -1; round < rounds; ++round) {  // the first one warms up
      for (std::size_t i = 0; i < sources.size(); ++i) {
        const Cost cost = tick(sources[i], pattern);
        if (round >= 0) costs[i].push_back(cost);
      }
    }
    print_pattern(pattern, sources, costs);
  }
  return 0;
}
