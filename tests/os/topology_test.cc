// NUMA nodes of machines that a file describes (HWLOC_XMLFILE): which have processors, which are of one kind, and which
// kind is faster. The files were made with hwloc's synthetic topologies; their figures are those of published machines.
// And what moves pages unasked, in a made-up /proc and /sys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "os/devices.h"
#include "os/page_movers.h"

namespace vedette {

static bool operator==(const NumaNode& a, const NumaNode& b) {
  return a.number == b.number && a.processors == b.processors && a.memory == b.memory && a.type == b.type &&
         a.bytes_per_s == b.bytes_per_s && a.latency == b.latency && a.kind == b.kind && a.described == b.described;
}

static void PrintTo(const NumaNode& node, std::ostream* out) {
  *out << "node " << node.number << ", " << node.processors << " processors, " << (node.memory.value >> 30) << " GiB "
       << node.type << ", " << (node.bytes_per_s >> 20) << " MiB/s, " << node.latency.value << " ns, kind "
       << node.kind;
}

namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

std::vector<NumaNode> nodes_of(const std::string& name) {
  ::setenv("HWLOC_XMLFILE", (fs::path(VEDETTE_SOURCE_DIR) / "tests/os/topologies" / name).c_str(), 1);
  std::vector<NumaNode> nodes = find_numa_nodes();
  ::unsetenv("HWLOC_XMLFILE");
  return nodes;
}

struct Told {
  std::uint32_t number, processors;
  std::uint64_t gib;
  const char* type;
  std::uint64_t mib_per_s;
  std::int64_t latency;
  std::uint32_t kind;
};

NumaNode node(const Told& told) {
  return {.number = told.number,
          .processors = told.processors,
          .memory = {told.gib << 30},
          .type = told.type,
          .bytes_per_s = told.mib_per_s << 20,
          .latency = {told.latency},
          .kind = told.kind,
          .described = true};
}

TEST(Topology, HbmBesideDramIsTheFasterKindAndHasNoProcessors) {
  EXPECT_THAT(nodes_of("hbm-flat.xml"),
              ElementsAre(node({0, 2, 32, "DRAM", 76'800, 110, 1}), node({1, 0, 16, "HBM", 204'800, 140, 0}),
                          node({2, 2, 32, "DRAM", 76'800, 110, 1}), node({3, 0, 16, "HBM", 204'800, 140, 0}),
                          node({4, 2, 32, "DRAM", 76'800, 112, 1}), node({5, 0, 16, "HBM", 204'800, 140, 0}),
                          node({6, 2, 32, "DRAM", 76'000, 110, 1}), node({7, 0, 16, "HBM", 204'800, 140, 0})));
}

TEST(Topology, CxlMemoryOfBothSocketsIsTheSlowerKind) {
  EXPECT_THAT(nodes_of("ddr-cxl.xml"),
              ElementsAre(node({0, 4, 256, "DRAM", 245'760, 105, 0}), node({1, 4, 256, "DRAM", 245'760, 105, 0}),
                          node({2, 0, 128, "", 24'576, 255, 1})));
}

TEST(Topology, WithoutFirmwaresFiguresMemoryWithoutProcessorsIsTheSlowerKind) {
  EXPECT_THAT(nodes_of("ddr-nvm.xml"),
              ElementsAre(node({0, 6, 96, "DRAM", 0, 0, 0}), node({1, 0, 768, "NVM", 0, 0, 1}),
                          node({2, 6, 96, "DRAM", 0, 0, 0}), node({3, 0, 768, "NVM", 0, 0, 1})));
}

TEST(Topology, TwoSocketsAloneAreOneKind) {
  std::vector<NumaNode> nodes{{.number = 0, .processors = 8}, {.number = 1, .processors = 8}};
  find_kinds(nodes);
  EXPECT_EQ(nodes[0].kind, nodes[1].kind);
}

TEST(Topology, ANodeIsNamedByItsNumber) {
  const std::vector<NumaNode> nodes{{.number = 0}, {.number = 2}};
  EXPECT_EQ(node_named("2", nodes).value(), NodeIndex{2});
  for (const char* const none : {"", "x", "1000", "2x", "-1"})
    EXPECT_EQ(node_named(none, nodes).error().message, "there is no such NUMA node; there are 0, 2") << none;
}

TEST(PageMovers, AreFoundWhereTheyRun) {
  const fs::path root = fs::path(::testing::TempDir()) / "vedette_movers";
  fs::remove_all(root);
  EXPECT_EQ(find_page_movers(root).balancing, 0);
  const auto write = [&](const fs::path& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  };
  const fs::path kdamonds = "sys/kernel/mm/damon/admin/kdamonds", schemes = "contexts/0/schemes";
  write("proc/sys/kernel/numa_balancing", "2");
  write("sys/kernel/mm/numa/demotion_enabled", "true");
  write(kdamonds / "nr_kdamonds", "2");
  write(kdamonds / "0/state", "on");
  write(kdamonds / "0" / schemes / "nr_schemes", "2");
  write(kdamonds / "0" / schemes / "0/action", "migrate_cold");
  write(kdamonds / "0" / schemes / "1/action", "stat");
  write(kdamonds / "1/state", "off");
  write(kdamonds / "1" / schemes / "0/action", "migrate_hot");
  const PageMovers found = find_page_movers(root);
  EXPECT_EQ(found.balancing, 2);
  EXPECT_TRUE(found.demotion);
  EXPECT_EQ(found.schemes, 1u);
  fs::remove_all(root);
}

}  // namespace
}  // namespace vedette
