#include "os/probe.h"

#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/architecture.h"
#include "base/fd.h"
#include "base/mapping.h"
#include "os/devices.h"
#include "os/page_tracker.h"
#include "os/uapi.h"
#include "os/uffd.h"

namespace vedette {
namespace {

constexpr std::size_t beyond_lock_limit_bytes = std::size_t{16} << 20;  // the usual limit is 8 MiB

Tried works() { return {.works = true}; }
Tried fails(std::string why_not) { return {.works = false, .why_not = std::move(why_not)}; }
Tried fails(const char* what, int error) { return fails(std::string(what) + ": " + std::strerror(error)); }

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::uint64_t read_number(const std::string& path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : otherwise;
}

// The value behind "MemTotal:" and the like, in the unit of the file.
std::string field(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const std::size_t colon = line.find(':');
    if (line.substr(0, name.size()) == name && colon != line.npos) {
      const std::size_t value = line.find_first_not_of(" \t", colon + 1);
      return value == line.npos ? std::string() : std::string(line.substr(value));
    }
    at = end + 1;
  }
  return {};
}

void probe_processor(MachineFacts& facts) {
  utsname name{};
  ::uname(&name);
  facts.kernel = std::string(name.sysname) + " " + name.release;
  facts.processor = field(read_text("/proc/cpuinfo"), "model name");
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  facts.processors = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
                         ? static_cast<std::uint32_t>(CPU_COUNT(&allowed))
                         : static_cast<std::uint32_t>(::sysconf(_SC_NPROCESSORS_ONLN));
}

Bytes in_meminfo(const std::string& meminfo, const char* name) {
  return {std::strtoull(field(meminfo, name).c_str(), nullptr, 10) * 1024};
}

void probe_memory(MachineFacts& facts) {
  const std::string meminfo = read_text("/proc/meminfo");
  facts.memory = in_meminfo(meminfo, "MemTotal");
  facts.available_memory = in_meminfo(meminfo, "MemAvailable");
  facts.swap = in_meminfo(meminfo, "SwapTotal");
  facts.memory_limit = memory_cgroup_limit();
  facts.max_map_count = read_number("/proc/sys/vm/max_map_count", 65530);
  facts.overcommit = static_cast<int>(read_number("/proc/sys/vm/overcommit_memory", 0));
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  facts.locked_memory_limit = limit.rlim_cur == RLIM_INFINITY ? unlimited_bytes : limit.rlim_cur;
  constexpr std::uint64_t cap_ipc_lock = 14;
  const std::uint64_t capabilities =
      std::strtoull(field(read_text("/proc/self/status"), "CapEff").c_str(), nullptr, 16);
  facts.may_exceed_locked_limit = (capabilities >> cap_ipc_lock & 1) != 0;
}

Tried try_huge_page() {
  auto memory = Mapping::reserve({huge_page_bytes}, {huge_page_bytes});
  if (!memory) return fails(memory.error().message);
  if (::madvise(memory->data(), huge_page_bytes, MADV_HUGEPAGE) != 0) return fails("MADV_HUGEPAGE", errno);
  memory->data()[0] = std::byte{1};
  // One touch makes the whole huge page resident, and of small pages only itself.
  std::vector<unsigned char> resident(huge_page_bytes / page_size);
  if (::mincore(memory->data(), huge_page_bytes, resident.data()) != 0) return fails("mincore", errno);
  const auto count =
      std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; });
  if (static_cast<std::size_t>(count) == resident.size()) return works();
  return fails("the kernel gave small pages: huge pages are switched off, or memory is too fragmented now");
}

void probe_huge_pages(MachineFacts& facts) {
  facts.huge_pages = chosen_setting(read_text("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.shared_huge_pages = chosen_setting(read_text("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  facts.huge_page = try_huge_page();
}

Tried try_move() {
  auto userfaultfd = Userfaultfd::open(uapi::feature_move);
  if (!userfaultfd) return fails(userfaultfd.error().message);
  auto source = Mapping::reserve({page_size}, {page_size});
  auto target = Mapping::reserve({page_size}, {page_size});
  if (!source || !target) return fails("no addresses left");
  source->data()[0] = std::byte{42};
  if (const int error = userfaultfd->register_missing(target->data(), page_size); error != 0) {
    return fails("registering memory with userfaultfd", error);
  }
  uapi::MoveArguments request{.destination = reinterpret_cast<std::uintptr_t>(target->data()),
                              .source = reinterpret_cast<std::uintptr_t>(source->data()),
                              .length = page_size,
                              .mode = 0,
                              .moved = 0};
  if (::ioctl(userfaultfd->fd(), uapi::uffdio_move, &request) != 0) return fails("UFFDIO_MOVE", errno);
  const bool right = target->data()[0] == std::byte{42} && source->data()[0] == std::byte{0};
  return right ? works() : fails("UFFDIO_MOVE left other bytes than it took");
}

void probe_userfaultfd(MachineFacts& facts) {
  auto userfaultfd = Userfaultfd::open(0);
  if (!userfaultfd) {
    facts.userfaultfd_refusal = userfaultfd.error().message;
    facts.move = fails("no userfaultfd");
    return;
  }
  const bool full = userfaultfd->serves_system_calls();
  facts.userfaultfd = full ? UserfaultfdAccess::full : UserfaultfdAccess::user_mode_only;
  if (!full) facts.userfaultfd_refusal = "this user may serve faults of the program, not of its system calls";
  // Everybody may open the restricted kind, and the features do not depend on the kind.
  const Fd fd{static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | uapi::user_mode_only))};
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  if (fd && ::ioctl(fd.get(), UFFDIO_API, &api) == 0) {
    facts.userfaultfd_features = api.features;
  } else {  // the system call is filtered, /dev/userfaultfd is not: ask for the features that matter one by one
    for (std::uint64_t bit = 1; bit <= uapi::feature_move; bit <<= 1) {
      if (Userfaultfd::open(bit)) facts.userfaultfd_features |= bit;
    }
  }
  facts.move = try_move();
}

Tried try_pagemap_scan() {
  const Fd pagemap{::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)};
  if (!pagemap) return fails("/proc/self/pagemap", errno);
  auto memory = Mapping::reserve({4 * page_size}, {page_size});
  if (!memory) return fails(memory.error().message);
  ::madvise(memory->data(), 4 * page_size, MADV_NOHUGEPAGE);
  memory->data()[2 * page_size] = std::byte{1};
  uapi::PageRegion regions[4] = {};
  const auto base = reinterpret_cast<std::uintptr_t>(memory->data());
  uapi::PagemapScanArguments scan{};
  scan.size = sizeof scan;
  scan.start = base;
  scan.end = base + 4 * page_size;
  scan.vec = reinterpret_cast<std::uintptr_t>(regions);
  scan.vec_len = 4;
  scan.category_mask = scan.return_mask = uapi::page_is_present;
  const int found = ::ioctl(pagemap.get(), uapi::pagemap_scan, &scan);
  if (found < 0) return fails("PAGEMAP_SCAN", errno);
  const bool right = found == 1 && regions[0].start == base + 2 * page_size && regions[0].end == base + 3 * page_size;
  return right ? works() : fails("PAGEMAP_SCAN told other pages than the one that was touched");
}

// One no-op through the ring; then buffers of a size that the usual limit on locked memory does not allow.
void probe_uring(MachineFacts& facts) {
  io_uring ring{};
  if (const int error = ::io_uring_queue_init(4, &ring, 0); error < 0) {
    facts.uring = fails("io_uring", -error);
    facts.registered_buffers = fails("no io_uring");
    return;
  }
  io_uring_sqe* const entry = ::io_uring_get_sqe(&ring);
  ::io_uring_prep_nop(entry);
  io_uring_cqe* done = nullptr;
  ::io_uring_submit(&ring);
  __kernel_timespec patience{.tv_sec = 2, .tv_nsec = 0};
  const int error = ::io_uring_wait_cqe_timeout(&ring, &done, &patience);
  facts.uring = error == 0 ? works() : fails("a request through io_uring", -error);
  if (error == 0) ::io_uring_cqe_seen(&ring, done);

  auto memory = Mapping::reserve({beyond_lock_limit_bytes}, {huge_page_bytes});
  if (memory) {
    const iovec buffer{memory->data(), beyond_lock_limit_bytes};
    const int refused = ::io_uring_register_buffers(&ring, &buffer, 1);
    facts.registered_buffers = refused == 0 ? works() : fails("registering 16 MiB", -refused);
  } else {
    facts.registered_buffers = fails(memory.error().message);
  }
  ::io_uring_queue_exit(&ring);
}

// The file of one level: "max" or a number; version 1 says "no limit" by a number beyond any memory.
std::optional<Bytes> limit_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t bytes = 0;
  if (!(file >> bytes) || bytes >= std::uint64_t{1} << 60) return std::nullopt;
  return Bytes{bytes};
}

Tried opened(const Result<std::unique_ptr<PageTracker>>& tracker) {
  return tracker ? works() : fails(tracker.error().message);
}

void probe_trackers(MachineFacts& facts) {
  facts.trackers.zap = opened(open_zap_tracker());
  facts.trackers.missing = opened(open_missing_tracker());
  facts.trackers.mprotect = opened(open_mprotect_tracker());
}

// Of "active_file 4096" and "inactive_file 8192", each on a line of its own, in both versions.
Bytes cached_files(const std::string& path) {
  std::ifstream file(path);
  Bytes sum;
  std::string name;
  for (std::uint64_t bytes = 0; file >> name >> bytes;)
    if (name == "active_file" || name == "inactive_file") sum += Bytes{bytes};
  return sum;
}

}  // namespace

std::vector<MemoryCgroup> memory_cgroups(std::string_view membership, const std::string& mount, CgroupLimit which) {
  std::vector<MemoryCgroup> found;
  const auto walk_up = [&](const std::string& root, std::string path, const char* limit_name, const char* used_name) {
    for (;;) {
      const std::string folder = root + path + "/";
      if (const auto limit = limit_in(folder + limit_name))
        found.push_back({.limit = *limit,
                         .used = limit_in(folder + used_name).value_or(Bytes{}),
                         .files = cached_files(folder + "memory.stat")});
      if (path.empty()) return;
      path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
    }
  };
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,memory:/a/b" in version 1, "0::/a/b" in version 2
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    std::string controllers(1, ',');
    controllers.append(line, first + 1, second - first - 1).push_back(',');
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == ",,") walk_up(mount, path, "memory.max", "memory.current");
    if (controllers == ",," && which == CgroupLimit::soft) walk_up(mount, path, "memory.high", "memory.current");
    if (controllers.find(",memory,") != controllers.npos)
      walk_up(mount + "/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes");
  }
  return found;
}

std::optional<Bytes> memory_cgroup_limit(std::string_view membership, const std::string& mount) {
  std::optional<Bytes> smallest;
  for (const MemoryCgroup& level : memory_cgroups(membership, mount))
    if (!smallest || level.limit < *smallest) smallest = level.limit;
  return smallest;
}

std::optional<Bytes> memory_cgroup_limit() {
  return memory_cgroup_limit(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
}

Bytes available_memory(const std::string& root) {
  Bytes available = in_meminfo(read_text(root + "/proc/meminfo"), "MemAvailable");
  for (const MemoryCgroup& level : memory_cgroups(read_text(root + "/proc/self/cgroup"), root + "/sys/fs/cgroup")) {
    const Bytes used = level.used - std::min(level.used, level.files);
    available = std::min(available, level.limit - std::min(used, level.limit));
  }
  return available;
}

std::string chosen_setting(std::string_view text) {
  const std::size_t open = text.find('['), close = text.find(']');
  if (open == text.npos || close == text.npos || close < open) return {};
  return std::string(text.substr(open + 1, close - open - 1));
}

std::vector<std::string> userfaultfd_feature_names(std::uint64_t features) {
  static constexpr const char* names[] = {"PAGEFAULT_FLAG_WP",
                                          "EVENT_FORK",
                                          "EVENT_REMAP",
                                          "EVENT_REMOVE",
                                          "MISSING_HUGETLBFS",
                                          "MISSING_SHMEM",
                                          "EVENT_UNMAP",
                                          "SIGBUS",
                                          "THREAD_ID",
                                          "MINOR_HUGETLBFS",
                                          "MINOR_SHMEM",
                                          "EXACT_ADDRESS",
                                          "WP_HUGETLBFS_SHMEM",
                                          "WP_UNPOPULATED",
                                          "POISON",
                                          "WP_ASYNC",
                                          "MOVE"};
  std::vector<std::string> found;
  for (std::uint64_t rest = features; rest != 0; rest &= rest - 1) {
    const auto bit = static_cast<std::size_t>(std::countr_zero(rest));
    found.push_back(bit < std::size(names) ? names[bit] : "bit " + std::to_string(bit));
  }
  return found;
}

MachineFacts probe_machine() {
  MachineFacts facts;
  probe_processor(facts);
  probe_memory(facts);
  probe_huge_pages(facts);
  probe_userfaultfd(facts);
  facts.pagemap_scan = try_pagemap_scan();
  probe_trackers(facts);
  probe_uring(facts);
  facts.numa_nodes = find_numa_nodes();
  return facts;
}

}  // namespace vedette
