// The adapter's parts that need no libtorch: layers from operators, and the machine's memory from /proc and /sys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "adapter/torch/layer_tracker.h"
#include "adapter/torch/machine_memory.h"

namespace vedette::adapter::parts_test {
namespace {

using Mark = LayerTracker::Mark;

TEST(LayerTracker, AParameterStartsItsLayerAndOthersStayInIt) {
  LayerTracker tracker;
  const auto conv = tracker.intern("conv"), fc = tracker.intern("fc");
  tracker.begin_step();
  EXPECT_EQ(tracker.begin_op({.sequence = 1}), std::nullopt);
  EXPECT_EQ(tracker.begin_op({.parameter = conv, .sequence = 2}), (Mark{"conv", Phase::forward}));
  EXPECT_EQ(tracker.begin_op({.sequence = 3}), std::nullopt);
  EXPECT_EQ(tracker.begin_op({.parameter = conv, .sequence = 4}), std::nullopt);
  EXPECT_EQ(tracker.begin_op({.parameter = fc, .sequence = 5}), (Mark{"fc", Phase::forward}));
}

TEST(LayerTracker, ABackwardNodeBelongsToTheLayerThatMadeIt) {
  LayerTracker tracker;
  const auto conv = tracker.intern("conv"), fc = tracker.intern("fc");
  tracker.begin_step();
  tracker.begin_op({.sequence = 1});                     // makes no node: the number goes to the next op
  tracker.begin_op({.parameter = conv, .sequence = 1});  // makes nodes 1, 2 and 3
  tracker.begin_op({.parameter = fc, .sequence = 4});
  tracker.begin_backward(4);
  EXPECT_EQ(tracker.begin_op({}), (Mark{"fc", Phase::backward}));
  tracker.end_backward();
  tracker.begin_backward(-1);  // a gradient is accumulated
  EXPECT_EQ(tracker.begin_op({}), std::nullopt);
  tracker.end_backward();
  tracker.begin_backward(3);
  EXPECT_EQ(tracker.begin_op({}), (Mark{"conv", Phase::backward}));
  tracker.end_backward();
  tracker.begin_backward(1);
  EXPECT_EQ(tracker.begin_op({}), std::nullopt);
  tracker.end_backward();
}

TEST(LayerTracker, SumsOfGradientsBelongToTheNodeBefore) {
  LayerTracker tracker;
  const auto conv = tracker.intern("conv");
  tracker.begin_step();
  tracker.begin_op({.parameter = conv, .sequence = 1});
  tracker.begin_backward(-1);  // the engine's wrapper
  tracker.begin_backward(1);
  EXPECT_EQ(tracker.begin_op({.gradients_on = false}), (Mark{"conv", Phase::backward}));
  tracker.end_backward();
  EXPECT_EQ(tracker.begin_op({.gradients_on = false}), std::nullopt);
  tracker.end_backward();
}

TEST(LayerTracker, OpsWithoutGradientsAfterABackwardPassAreTheOptimizers) {
  LayerTracker tracker;
  const auto fc = tracker.intern("fc");
  tracker.begin_step();
  EXPECT_EQ(tracker.begin_op({.parameter = fc, .gradients_on = false}), (Mark{"fc", Phase::forward}));  // evaluation
  tracker.begin_op({.parameter = fc, .sequence = 1});
  tracker.begin_backward(1);
  tracker.begin_op({});
  tracker.end_backward();
  EXPECT_EQ(tracker.begin_op({.parameter = fc, .gradients_on = false}), (Mark{"optimizer", Phase::optimizer}));
  EXPECT_EQ(tracker.begin_op({.parameter = fc, .sequence = 2}), (Mark{"fc", Phase::forward}));  // gradients accumulate
  tracker.begin_step();
  EXPECT_EQ(tracker.begin_op({.parameter = fc, .gradients_on = false}), (Mark{"fc", Phase::forward}));
}

TEST(LayerTracker, TheUsersLayerWinsAndIsFoundAgainInBackward) {
  LayerTracker tracker;
  const auto fc = tracker.intern("fc");
  tracker.begin_step();
  tracker.begin_named("mine");
  EXPECT_EQ(tracker.begin_op({.parameter = fc, .sequence = 1}), std::nullopt);  // the scope has told the session
  tracker.end_named();
  EXPECT_EQ(tracker.begin_op({.parameter = fc, .sequence = 2}), (Mark{"fc", Phase::forward}));
  tracker.begin_backward(1);
  EXPECT_EQ(tracker.begin_op({}), (Mark{"mine", Phase::backward}));
  tracker.end_backward();
}

TEST(LayerTracker, ForgetsTheUsersLayersWhereTheirNamesAreEverNewAndNoParameters) {
  LayerTracker tracker;
  const auto before = tracker.intern("before");
  const std::size_t many = 4 * LayerTracker::most_passing;
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < many; ++i) {
    tracker.begin_step();
    const std::string name = "mine " + std::to_string(i);
    tracker.begin_named(name);
    tracker.begin_op({.sequence = static_cast<std::int64_t>(i)});
    tracker.end_named();
    tracker.begin_backward(static_cast<std::int64_t>(i));
    ASSERT_EQ(tracker.begin_op({}), (Mark{name, Phase::backward}));
    tracker.end_backward();
    if (i % 1000 == 0) largest = std::max(largest, tracker.intern("parameter " + std::to_string(i)).value);
  }
  EXPECT_LE(largest, LayerTracker::most_passing + many / 1000 + 2);
  tracker.begin_step();
  EXPECT_EQ(tracker.begin_op({.parameter = before, .sequence = 0}), (Mark{"before", Phase::forward}));
  EXPECT_EQ(tracker.begin_op({.parameter = tracker.intern("parameter 0")}), (Mark{"parameter 0", Phase::forward}));
}

class MachineMemoryTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void SetUp() override {
    std::filesystem::remove_all(root);
    write("/proc/meminfo", "MemTotal:       8192 kB\nMemFree: 1 kB\nMemAvailable:   4096 kB\n");
  }
  const std::string root = ::testing::TempDir() + "vedette_machine_memory_" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(MachineMemoryTest, IsTheMachinesWhereNothingLimitsIt) {
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(machine_memory(root).total, Bytes{8192 << 10});
  EXPECT_EQ(machine_memory(root).available, Bytes{4096 << 10});
}

TEST_F(MachineMemoryTest, IsTheSmallestLimitOfTheCgroupsAbove) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/memory.max", "2097152\n");
  write("/sys/fs/cgroup/a/memory.current", "1048576\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(machine_memory(root).total, Bytes{2097152});
  EXPECT_EQ(machine_memory(root).available, Bytes{1048576});
}

TEST_F(MachineMemoryTest, KnowsTheFirstVersionOfCgroups) {
  write("/proc/self/cgroup", "11:cpu,cpuacct:/x\n4:memory:/x\n0::/\n");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(machine_memory(root).total, Bytes{1048576});
}

TEST_F(MachineMemoryTest, KnowsControllersOfTheFirstVersionThatAreMountedTogether) {
  write("/proc/self/cgroup", "4:cpuset,memory:/x\n0::/\n");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1048576\n");
  write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(machine_memory(root).total, Bytes{1048576});
  EXPECT_EQ(machine_memory(root).available, Bytes{48576});
}

}  // namespace
}  // namespace vedette::adapter::parts_test
