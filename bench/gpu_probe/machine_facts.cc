// Point 6: the rest of the machine, so that the processor's tiers can be run there, too. Found out by what `vedette
// doctor` uses: the probe of src/os, and the speed of the disk through the very store that training uses.
#include "cli/disk_speed.h"
#include "gpu_probe/groups.h"
#include "gpu_probe/library.h"
#include "os/probe.h"
#include "tier/store.h"

namespace vedette::gpu {
namespace {

Json json_of(const Tried& tried) { return tried.works ? Json("works") : Json("no: " + tried.why_not); }

void measure_facts(const MachineFacts& facts, Cell& cell) {
  constexpr const char* accesses[] = {"none", "user mode only", "full"};
  cell.fact("kernel", facts.kernel);
  cell.fact("processor", facts.processor);
  cell.fact("processors", facts.processors);
  cell.fact("memory_bytes", facts.memory.value);
  cell.fact("cgroup_limit_bytes", facts.memory_limit ? Json(facts.memory_limit->value) : Json("none"));
  cell.fact("userfaultfd", accesses[static_cast<std::size_t>(facts.userfaultfd)]);
  cell.fact("userfaultfd_features", userfaultfd_feature_names(facts.userfaultfd_features));
  cell.fact("userfaultfd_move", json_of(facts.move));
  cell.fact("pagemap_scan", json_of(facts.pagemap_scan));
  cell.fact("zap_tracking", json_of(facts.trackers.zap));
  cell.fact("io_uring", json_of(facts.uring));
  cell.fact("registered_buffers", json_of(facts.registered_buffers));
  cell.fact("huge_page", json_of(facts.huge_page));
  cell.fact("huge_pages_setting", facts.huge_pages);
  Json nodes = Json::array();
  for (const NumaNode& node : facts.numa_nodes) {
    nodes.push_back({{"node", node.number}, {"bytes", node.memory.value}, {"processors", node.processors}});
  }
  cell.fact("numa_nodes", nodes);
}

void measure_slow_directory(const std::string& directory, bool registered, int repetitions, Cell& cell) {
  for (int i = 0; i < repetitions; ++i) {
    auto store = open_nvme_store({.directory = directory});
    if (!store) throw Refused(store.error().message);
    cell.fact("mechanism", (*store)->mechanism());
    const auto habits = cli::measure_disk(**store, registered);
    if (!habits) throw Refused(habits.error().message);
    cell.sample("read", static_cast<double>(habits->speed.read) * 1e-9);
    cell.sample("write", static_cast<double>(habits->speed.write) * 1e-9);
  }
}

}  // namespace

void measure_machine(const ProbeOptions& options, Recorder& recorder) {
  const MachineFacts facts = probe_machine();
  recorder.measure(6, "machine", {},
                   {{"kernel"},
                    {"processor"},
                    {"processors"},
                    {"memory_bytes"},
                    {"cgroup_limit_bytes"},
                    {"userfaultfd"},
                    {"userfaultfd_features"},
                    {"userfaultfd_move"},
                    {"pagemap_scan"},
                    {"zap_tracking"},
                    {"io_uring"},
                    {"registered_buffers"},
                    {"huge_page"},
                    {"huge_pages_setting"},
                    {"numa_nodes"}},
                   [&](Cell& cell) { measure_facts(facts, cell); });
  if (options.slow_directory.empty()) return;
  for (const bool registered : {false, true}) {
    if (registered && (!facts.registered_buffers.works || recorder.quick())) continue;
    recorder.measure(6, "disk", {{"slot_mib", 2}, {"buffers", registered ? "registered" : "plain"}},
                     {{"mechanism", ""}, {"read", "GB/s"}, {"write", "GB/s"}}, [&](Cell& cell) {
                       measure_slow_directory(options.slow_directory, registered, recorder.quick() ? 1 : 5, cell);
                     });
  }
}

}  // namespace vedette::gpu
