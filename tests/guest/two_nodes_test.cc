// A machine of two NUMA nodes in software emulation, under two kernels. Node 0 has the processor and 512 MiB, node 1 is
// memory only: RAM from the start, or as CXL memory is (soft reserved, given to the page allocator by the driver kmem,
// movable). Its speeds are not real: rates are not checked but for those that firmware claims.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "guest/boot.h"

namespace vedette::guest_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TwoNodes : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(TwoNodes, AreFoundAndUsedAndOneThatIsFullKillsNoProgram) {
  const auto& [kernel, soft] = GetParam();
  const std::string settings = "VEDETTE_GUEST_PROCESSORS=1 VEDETTE_GUEST_NODE1=1024 VEDETTE_GUEST_SOFT=" + soft + " ";
  const Boot guest =
      boot("'" VEDETTE_CLI " doctor --no-disk --json' '" VEDETTE_CLI " doctor --no-disk' " VEDETTE_NODE_PROGRAMS,
           kernel, settings);
  if (guest.status == 77) GTEST_SKIP() << guest.said;
  expect_all_well(guest);
  EXPECT_THAT(guest.said, Not(HasSubstr("this machine has one NUMA node")));
  EXPECT_THAT(guest.said, Not(HasSubstr("is large, and the test would fill it")));
  const auto doctor = json_in(guest.said);
  ASSERT_TRUE(doctor.is_object());
  const auto& nodes = doctor.at("numa_nodes");
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].at("processors"), 1);
  EXPECT_EQ(nodes[1].at("processors"), 0) << "the near one's are not the far one's";
  EXPECT_EQ(nodes[0].at("kind"), 0);
  EXPECT_EQ(nodes[1].at("kind"), 1);
  EXPECT_EQ(nodes[0].at("firmware_latency_ns"), 100);
  EXPECT_EQ(nodes[1].at("firmware_latency_ns"), 250);
  EXPECT_EQ(nodes[1].at("firmware_bytes_per_s"), std::uint64_t{51'200} << 20);
  EXPECT_GT(nodes[1].at("free_bytes").get<std::uint64_t>(), std::uint64_t{800} << 20);
  EXPECT_THAT(guest.said, HasSubstr("of 2 kinds, the fastest first"));
}

INSTANTIATE_TEST_SUITE_P(Kernels, TwoNodes,
                         ::testing::Combine(::testing::Values("guest", "guest-6.12"), ::testing::Values("", "kmem")),
                         [](const auto& each) {
                           const std::string kernel = std::get<0>(each.param) == "guest" ? "Linux6_1" : "Linux6_12";
                           return kernel + (std::get<1>(each.param).empty() ? "Ram" : "LikeCxl");
                         });

}  // namespace
}  // namespace vedette::guest_test
