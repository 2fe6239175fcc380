// The features of this machine, found out by use: a feature counts when it behaved, not when a version or a return code
// promises it. No advice and no printing here; `vedette doctor` speaks.
//
// Probing takes some milliseconds and leaves nothing behind: no descriptor, no mapping, no setting. Any thread may call
// it.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vedette/units.h"

namespace vedette {

struct Tried {
  bool works = false;
  std::string why_not;  // a sentence; empty where it works
};

enum class UserfaultfdAccess : std::uint8_t {
  none,
  user_mode_only,  // faults of system calls fail with EFAULT
  full,
};

struct NumaNode {
  std::uint32_t number = 0;      // as the kernel counts
  std::uint32_t processors = 0;  // of its own; 0: memory only (CXL, HBM)
  Bytes memory;
  std::string type;  // as hwloc has it: "DRAM", "HBM", "NVM"; empty: not known
  // As firmware tells them (HMAT), for the processors that are nearest; 0: it does not.
  std::uint64_t bytes_per_s = 0;
  Nanoseconds latency = {};
  std::uint32_t kind = 0;  // nodes of one kind are one tier; 0 is the fastest
  bool described = false;  // by HWLOC_XMLFILE or the like: it is another machine's
};

struct PageTrackers {  // each opened and tried: it told a page that was read from one that was written
  Tried zap;           // WP_ASYNC and PAGEMAP_SCAN
  Tried missing, mprotect;
};

struct MachineFacts {
  std::string kernel, processor;
  std::uint32_t processors = 0;  // that this process may use

  UserfaultfdAccess userfaultfd = UserfaultfdAccess::none;
  std::string userfaultfd_refusal;         // why there is no full access
  std::uint64_t userfaultfd_features = 0;  // bits of uapi.h
  Tried move;                              // UFFDIO_MOVE took a page elsewhere with its bytes
  Tried pagemap_scan;                      // told a touched page from an untouched one
  PageTrackers trackers;

  Tried uring;                            // a ring ran a request
  Tried registered_buffers;               // registered more than the usual memory lock limit
  std::uint64_t locked_memory_limit = 0;  // bytes; unlimited_bytes: none
  bool may_exceed_locked_limit = false;   // CAP_IPC_LOCK

  std::string huge_pages, shared_huge_pages;  // the setting in force: "madvise"
  Tried huge_page;                            // private memory really got one
  std::uint64_t max_map_count = 0;
  int overcommit = 0;  // vm.overcommit_memory: 0 heuristic, 1 always, 2 never

  Bytes memory, available_memory, swap;
  std::optional<Bytes> memory_limit;  // of the memory cgroup, the smallest of all levels

  std::vector<NumaNode> numa_nodes;
};

constexpr std::uint64_t unlimited_bytes = std::numeric_limits<std::uint64_t>::max();

MachineFacts probe_machine();

// The smallest limit on the way from the cgroup that `membership` (the text of /proc/self/cgroup) names to the root,
// for both versions of the hierarchy under `mount` (/sys/fs/cgroup). nullopt: no limit, or none that can be seen.
std::optional<Bytes> memory_cgroup_limit(std::string_view membership, const std::string& mount);
struct MemoryCgroup {  // one level that has a limit
  Bytes limit, used;
  Bytes files;  // of what is used: the cache of files, which the kernel takes back where memory is asked for
};
// hard: beyond it the kernel kills. soft: also memory.high, beyond which it slows the program down.
enum class CgroupLimit : std::uint8_t { hard, soft };
// innermost first
std::vector<MemoryCgroup> memory_cgroups(std::string_view membership, const std::string& mount,
                                         CgroupLimit which = CgroupLimit::hard);
std::optional<Bytes> memory_cgroup_limit();  // of this process, as it is now
// The memory that this process could still take without swapping and without being killed: of the machine's memory, and
// of its memory cgroups. 0: not known. `root` is before /proc and /sys, for tests.
Bytes available_memory(const std::string& root = "");

// The word in brackets of a sysfs setting: "always [madvise] never" is madvise. Empty if there is none.
std::string chosen_setting(std::string_view text);

// "WP_ASYNC" and so on, in the order of their bits, unknown ones as "bit 23".
std::vector<std::string> userfaultfd_feature_names(std::uint64_t features);

}  // namespace vedette
