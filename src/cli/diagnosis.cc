#include "cli/diagnosis.h"

#include <fmt/core.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <string>

#include "base/mapping.h"
#include "base/readable.h"
#include "cli/beside.h"
#include "cli/disk_speed.h"
#include "cli/host_speed.h"
#include "os/chunk_memory.h"
#include "os/tracker_kinds.h"
#include "os/uapi.h"
#include "tier/store.h"
#include "vedette/session.h"

namespace vedette::cli {
namespace {

// A memory of two frames under four chunks: small, and the mechanism is the one that large ones get. The choice of page
// trackers depends on it.
void find_memory(Uses& uses) {
  constexpr Bytes chunk = 2_MiB;
  auto arena = Mapping::reserve({4 * chunk.value}, chunk);
  if (!arena) {
    uses.memory = uses.tracking = arena.error();
    return;
  }
  auto memory = open_best_memory(
      {.arena = arena->data(), .chunks = 4, .frames = 2, .chunk_bytes = chunk, .on_fault = [](const Fault&) {}});
  if (!memory) {
    uses.memory = uses.tracking = memory.error();
    return;
  }
  uses.memory = std::string((*memory)->mechanism());
  const auto chosen = choose_tracker("best", **memory);
  uses.registers_buffers = (*memory)->reach().keeps_buffers && !(chosen && chosen->kind->frames != FrameKind::fast);
  if (!chosen) {
    uses.tracking = chosen.error();
    return;
  }
  const auto tracker = chosen->kind->open();
  uses.tracking = tracker ? Result<std::string>(std::string((*tracker)->mechanism())) : tracker.error();
}

std::string file_system_of(const std::string& directory) {
  struct statfs info {};
  if (::statfs(directory.c_str(), &info) != 0) return {};
  switch (static_cast<std::uint32_t>(info.f_type)) {  // statfs(2)
    case 0xef53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794c7630:
      return "overlayfs";
    case 0x6969:
      return "nfs";
    case 0x65735546:
      return "fuse";
    case 0x2fc12fc1:
      return "zfs";
    default:
      return "unknown file system";
  }
}

Line kernel_line(const MachineFacts& facts) {
  return {
      .subject = "machine",
      .finding = fmt::format("{}, {} processor{}, {}", facts.processor.empty() ? "unnamed processor" : facts.processor,
                             facts.processors, facts.processors == 1 ? "" : "s", facts.kernel)};
}

Line memory_line(const Diagnosis& diagnosis) {
  const MachineFacts& facts = diagnosis.facts;
  Line line{.subject = "memory",
            .finding = fmt::format("{}, {} available, ", readable(facts.memory), readable(facts.available_memory))};
  if (facts.memory_limit && *facts.memory_limit < facts.memory) {
    line.finding += fmt::format(
        "memory cgroup allows {}: who exceeds it is killed, so fast_memory, {} of a session's own and what the program "
        "itself "
        "allocates must fit (fast_memory of at most {}, less the program's own)",
        readable(*facts.memory_limit), readable(session_overhead), readable(largest_budget(facts)));
  } else {
    line.finding += "no memory cgroup limit";
  }
  if (diagnosis.host_bytes_per_s)
    line.finding +=
        fmt::format("; processors go through it at {}, which transfers share", rate(*diagnosis.host_bytes_per_s));
  return line;
}

Line userfaultfd_line(const MachineFacts& facts) {
  switch (facts.userfaultfd) {
    case UserfaultfdAccess::full:
      return {.mark = Mark::fine, .subject = "userfaultfd", .finding = "full"};
    case UserfaultfdAccess::user_mode_only:
      return {
          .mark = Mark::partly,
          .subject = "userfaultfd",
          .finding = "user mode only",
          .unlocks =
              "system calls (read, write, torch::save) may touch memory that is away; here they fail with EFAULT",
          .remedy = "sysctl vm.unprivileged_userfaultfd=1, or let this user open /dev/userfaultfd, or CAP_SYS_PTRACE"};
    case UserfaultfdAccess::none:
      break;
  }
  return {
      .mark = Mark::missing,
      .subject = "userfaultfd",
      .finding = facts.userfaultfd_refusal,
      .unlocks =
          "chunks that move in 11 us (UFFDIO_MOVE), system calls into memory that is away, profiling for 1 to 3 us a "
          "page instead of 5 to 10 (WP_ASYNC); and threads that block SIGSEGV: without userfaultfd the kernel kills "
          "them when "
          "they touch memory that is away",
      .remedy = "in a container: --device /dev/userfaultfd, or a seccomp profile that allows userfaultfd"};
}

// The features of userfaultfd that vedette needs, each tried out.
Line behaviour_line(const char* subject, const Tried& tried, const char* finding, const char* unlocks,
                    const char* remedy) {
  if (tried.works) return {.mark = Mark::fine, .subject = subject, .finding = finding};
  return {.mark = Mark::missing, .subject = subject, .finding = tried.why_not, .unlocks = unlocks, .remedy = remedy};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void add_userfaultfd(const MachineFacts& facts, std::vector<Line>& lines) {
  lines.push_back(userfaultfd_line(facts));
  if (facts.userfaultfd == UserfaultfdAccess::none) return;  // the rest hangs on it, and its line says what it unlocks
  lines.push_back({.subject = "  features", .finding = joined(userfaultfd_feature_names(facts.userfaultfd_features))});
  lines.push_back(behaviour_line("  MOVE", facts.move, "works (a page moved with its bytes)",
                                 "chunks move in 11 us and never split mappings; mremap takes about 16",
                                 "Linux 6.8 or later"));
  lines.push_back(behaviour_line(
      "  WP_ASYNC", facts.trackers.zap, "works (with PAGEMAP_SCAN it told pages read, written and untouched apart)",
      "profiling for 1 to 3 us a page that is touched, system calls included; SIGSEGV costs 5 to 10 "
      "and system calls into tracked memory fail",
      "Linux 6.7 or later, /proc mounted"));
}

// Every page tracker, tried; a session takes zap, else missing pages where they see system calls, else mprotect, or
// the one of its options.
void add_trackers(const MachineFacts& facts, std::vector<Line>& lines) {
  struct Known {
    const char* subject;
    const Tried& tried;
    const char* what;
  };
  const Known all[] = {
      {"  zap", facts.trackers.zap, "1 to 3 us a touched page, system calls seen; what a session takes"},
      {"  missing", facts.trackers.missing,
       "told to a thread in their order, system calls too where userfaultfd is full; what a session takes then without "
       "zap"},
      {"  mprotect", facts.trackers.mprotect,
       "5 to 10 us a touched page, system calls into watched memory fail; what a session takes where nothing better "
       "works"},
  };
  lines.push_back({.subject = "page trackers",
                   .finding = "each opened, and tried with pages of its own where the kernel may lack it"});
  for (const Known& known : all) {
    Line line{.subject = known.subject, .finding = known.what};
    if (known.tried.works)
      line.mark = Mark::fine;
    else
      line.finding = std::string("not here: ").append(known.tried.why_not);
    lines.push_back(std::move(line));
  }
}

std::string lock_limit(const MachineFacts& facts) {
  const std::string limit =
      facts.locked_memory_limit == unlimited_bytes ? "unlimited" : readable({facts.locked_memory_limit});
  return facts.may_exceed_locked_limit ? limit + ", does not bind this user (CAP_IPC_LOCK)" : limit;
}

void add_scan_and_io(const MachineFacts& facts, std::vector<Line>& lines) {
  lines.push_back(behaviour_line("PAGEMAP_SCAN", facts.pagemap_scan, "works (told a touched page from others)",
                                 "exact profiling without signals, together with userfaultfd's WP_ASYNC",
                                 "Linux 6.7 or later, /proc mounted"));
  lines.push_back(behaviour_line("io_uring", facts.uring, "works (a ring ran a request)",
                                 "transfers without a pool of threads, at less CPU time",
                                 "sysctl kernel.io_uring_disabled=0; in a container a seccomp profile that allows "
                                 "io_uring_setup, io_uring_enter and io_uring_register"));
  const Line locked{.subject = "locked memory", .finding = lock_limit(facts)};
  if (!facts.uring.works) {
    lines.push_back(locked);
    return;
  }
  Line buffers =
      behaviour_line("  buffers", facts.registered_buffers, "can be registered (tried with 16 MiB)",
                     "10 us of CPU instead of 15 for a transfer of 2 MiB where mremap moves the frames; with MOVE they "
                     "are not used anyway",
                     "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1)");
  if (!facts.registered_buffers.works && facts.move.works) buffers.mark = Mark::partly;
  lines.push_back(std::move(buffers));
  lines.push_back(locked);
}

void add_memory_settings(const MachineFacts& facts, std::vector<Line>& lines) {
  Line huge{.mark = Mark::fine, .subject = "huge pages"};
  huge.finding =
      fmt::format("{}, for shared memory {}", facts.huge_pages.empty() ? "not in this kernel" : facts.huge_pages,
                  facts.shared_huge_pages.empty() ? "never" : facts.shared_huge_pages);
  if (facts.huge_page.works) {
    huge.finding += " (asked for one and got it)";
  } else {
    huge.mark = Mark::partly;
    huge.finding += "; " + facts.huge_page.why_not;
    huge.unlocks = "a chunk of 2 MiB moves as one page instead of 512";
    huge.remedy =
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; free or compact memory "
        "(echo 1 > /proc/sys/vm/compact_memory)";
  }
  lines.push_back(std::move(huge));

  constexpr std::uint64_t usual_map_count = 65530;
  Line maps{
      .mark = Mark::fine, .subject = "mappings", .finding = fmt::format("{} (vm.max_map_count)", facts.max_map_count)};
  if (facts.max_map_count < usual_map_count) {
    maps.mark = Mark::partly;
    maps.unlocks =
        "single pages instead of larger runs where pages are tracked by mprotect; more chunks moved by mremap";
    maps.remedy = "sysctl vm.max_map_count=65530";
  }
  lines.push_back(std::move(maps));

  constexpr const char* policies[] = {"heuristic", "always", "never"};
  const int policy = std::clamp(facts.overcommit, 0, 2);
  Line overcommit{.mark = policy == 2 ? Mark::partly : Mark::fine,
                  .subject = "overcommit",
                  .finding = fmt::format("{} (vm.overcommit_memory={})", policies[policy], facts.overcommit)};
  if (policy == 2) {
    overcommit.unlocks =
        "a large arena: only its addresses are reserved, but they count where overcommit is never allowed";
    overcommit.remedy = "sysctl vm.overcommit_memory=0";
  }
  lines.push_back(std::move(overcommit));
}

void add_places(const MachineFacts& facts, std::vector<Line>& lines) {
  lines.push_back({.subject = "host memory",
                   .finding = readable(facts.available_memory) +
                              " available; a session's slow = \"host:SIZE+nvme:DIR\" keeps up "
                              "to SIZE of what leaves there, over the disk"});
}

std::string rates(const LinkHabits& link) {
  return fmt::format("pinned memory to it {}, back {}, both at once {} ({})", rate(link.speed.read),
                     rate(link.speed.write), rate(link.speed.mixed),
                     link.duplex() ? "both ways at once" : "each direction is slower beside the other");
}

void add_gpus(const Diagnosis& diagnosis, std::vector<Line>& lines) {
  if (!diagnosis.gpus || diagnosis.gpus->empty()) {
    const std::string why = diagnosis.gpus ? "CUDA's driver lists none" : diagnosis.gpus.error().message;
    lines.push_back({.subject = "GPU", .finding = "none: " + why});
    return;
  }
  int ordinal = 0;
  for (const GpuFacts& gpu : *diagnosis.gpus) {
    Line line{.mark = gpu.link ? Mark::fine : Mark::missing,
              .subject = fmt::format("GPU {}", ordinal),
              .finding = fmt::format("{}, {} free of {}; ", gpu.name, readable(gpu.free), readable(gpu.total))};
    line.finding += gpu.link ? rates(*gpu.link) : gpu.link.error().message;
    if (gpu.numa_node) line.finding += fmt::format("; pinned memory is taken from NUMA node {}", *gpu.numa_node);
    line.finding += gpu.watts ? fmt::format("; {:.0f} W now", *gpu.watts) : "; " + gpu.watts.error().message;
    line.finding += fmt::format("; a session or guard of fast = \"gpu:{}\" trains in its memory", ordinal);
    if (!gpu.link) {
      line.unlocks = fmt::format("fast = \"gpu:{}\": what leaves a GPU goes to pinned memory of the host", ordinal);
      line.remedy = "end what uses the GPU's or the host's memory; in a container, raise its limit of memory";
    }
    lines.push_back(std::move(line));
    ++ordinal;
  }
}

Line disk_line(const Diagnosis& diagnosis, const std::string& directory) {
  Line line{.subject = "slow directory", .finding = directory};
  if (!diagnosis.file_system.empty()) line.finding += ", " + diagnosis.file_system;
  if (diagnosis.disk_room) line.finding += ", " + readable(*diagnosis.disk_room) + " free";
  if (!diagnosis.uses.io) {
    line.mark = Mark::missing;
    line.finding += ": " + diagnosis.uses.io.error().message;
    line.unlocks = "a slow tier: nothing can leave fast memory without one";
    line.remedy = "--slow DIR, on a local disk, writable by this user";
    return line;
  }
  if (diagnosis.file_system == "tmpfs") {
    line.mark = Mark::partly;
    line.unlocks = "memory beyond memory: this directory lies in memory itself";
    line.remedy = "--slow DIR on a local disk";
  }
  if (!diagnosis.disk) return line;
  if (!*diagnosis.disk) {
    line.mark = Mark::missing;
    line.finding += ": " + diagnosis.disk->error().message;
    line.unlocks = "a slow tier: nothing can leave fast memory without one";
    line.remedy = "--slow DIR, on a local disk with at least 256 MiB free";
    return line;
  }
  const LinkHabits& link = **diagnosis.disk;
  const LinkSpeed& speed = link.speed;
  if (line.mark == Mark::fact) line.mark = Mark::fine;
  line.finding +=
      fmt::format(", write {}, read {}, both at once {}", rate(speed.write), rate(speed.read), rate(speed.mixed));
  line.finding += fmt::format(" ({}); {} reads at once keep it busy, and {} us go by before the first byte",
                              link.duplex() ? "both ways at once" : "one bus for both ways", link.reads_in_flight,
                              link.latency.value / 1000);
  if (diagnosis.interference_percent)
    line.finding +=
        fmt::format("; a computation on all processors takes {} % of the transfers' time longer beside them",
                    *diagnosis.interference_percent);
  if (diagnosis.fault_time)
    line.finding += fmt::format("; a fault takes {} us beside its transfer", diagnosis.fault_time->value / 1000);
  return line;
}

}  // namespace

// The most memory for a session's frames: the machine's or the memory cgroup's, less the session's own need beside
// them.
Bytes largest_budget(const MachineFacts& facts) {
  const Bytes all = std::min(facts.memory, facts.memory_limit.value_or(facts.memory));
  return all - std::min(all, session_overhead);
}

Diagnosis examine(const std::string& slow, Bytes chunk, bool measures) {
  Diagnosis diagnosis{.facts = probe_machine(),
                      .uses = {.memory = std::string(), .tracking = std::string(), .io = std::string()},
                      .file_system = file_system_of(slow)};
  find_memory(diagnosis.uses);
  diagnosis.nodes = examine_nodes(diagnosis.facts.numa_nodes);
  diagnosis.gpus = examine_gpus();
  struct statvfs room {};
  if (::statvfs(slow.c_str(), &room) == 0) diagnosis.disk_room = Bytes{room.f_bavail * room.f_frsize};
  auto store = open_nvme_store({.directory = slow, .slot_bytes = chunk});
  if (!store) {
    diagnosis.uses.io = store.error();
    return diagnosis;
  }
  if (measures) {
    diagnosis.disk = measure_disk(**store, diagnosis.uses.registers_buffers);
    if (const auto percent = measure_interference(**store)) diagnosis.interference_percent = *percent;
    diagnosis.fault_time = measure_fault(chunk);
    if (const std::uint64_t speed = measure_host_memory(); speed > 0) diagnosis.host_bytes_per_s = speed;
  }
  diagnosis.uses.io = std::string((*store)->mechanism());
  return diagnosis;
}

std::vector<Line> lines_of(const Diagnosis& diagnosis, const std::string& directory) {
  const MachineFacts& facts = diagnosis.facts;
  std::vector<Line> lines{kernel_line(facts), memory_line(diagnosis)};
  add_userfaultfd(facts, lines);
  add_trackers(facts, lines);
  add_scan_and_io(facts, lines);
  add_memory_settings(facts, lines);
  lines.push_back(disk_line(diagnosis, directory));
  add_nodes(facts.numa_nodes, diagnosis.nodes, lines);
  add_places(facts, lines);
  add_gpus(diagnosis, lines);
  return lines;
}

}  // namespace vedette::cli
