// Machines as text.
#include "vedette/machine.h"

#include <gtest/gtest.h>

namespace vedette::machine_test {
namespace {

TEST(Machines, PresetsSurviveTheirText) {
  for (const MachinePreset& preset : machine_presets()) {
    const Machine machine = preset.make();
    EXPECT_EQ(parse_machine(format_machine(machine, preset.name)).value(), machine) << preset.name;
    EXPECT_FALSE(preset.source.empty());
  }
}

TEST(Machines, SayWhatMovesCostOpsOrThatNobodyKnows) {
  Machine machine = machine_presets()[0].make();
  for (const std::optional<std::uint32_t> percent :
       {std::optional<std::uint32_t>{}, std::optional<std::uint32_t>{25}}) {
    machine.interference_percent = percent;
    machine.remap_time.value += 7;
    EXPECT_EQ(parse_machine(format_machine(machine, {})).value(), machine);
  }
}

TEST(Machines, SayHowTheirMovesAreCarriedOut) {
  Machine machine = machine_presets()[0].make();
  for (const Habits& habits : {Habits{.early_fetches = true}, Habits{.writes_wait = true},
                               Habits{.plans_in_turns = true}, habits_of_sessions}) {
    machine.habits = habits;
    EXPECT_EQ(parse_machine(format_machine(machine, {})).value(), machine);
  }
}

TEST(Machines, SayWhatALinkCarriesBesideTheOtherAndAlone) {
  Machine machine = machine_presets()[0].make();
  machine.links[2].alone_bytes_per_s = 2 * machine.links[2].bytes_per_s;
  const std::string text = format_machine(machine, {});
  EXPECT_NE(text.find(R"("alone_bytes_per_s": 6400000000)"), std::string::npos);
  EXPECT_EQ(parse_machine(text).value(), machine);
}

TEST(Machines, SayWhatKindsOfOpsLoseByOperandsInPlace) {
  Machine machine{.tiers = {{.name = "dram", .capacity = {1000}, .addressable = true},
                            {.name = "cxl", .capacity = {1000}, .addressable = true}},
                  .links = {{.source = {1}, .target = {0}, .bytes_per_s = 1'000'000'000},
                            {.source = {0}, .target = {1}, .bytes_per_s = 500'000'000}}};
  EXPECT_EQ(machine.time_in_place("gelu", {1}, {100}, {100}), Nanoseconds{300});
  machine.in_place_prices = {{.op = "addmm", .percent = 10}, {.op = "gather", .percent = 250}};
  EXPECT_EQ(machine.time_in_place("addmm", {1}, {100}, {100}), Nanoseconds{30});
  EXPECT_EQ(machine.time_in_place("gather", {1}, {100}, {}), Nanoseconds{250});
  EXPECT_EQ(machine.time_in_place("gelu", {1}, {100}, {}), Nanoseconds{100});
  EXPECT_EQ(parse_machine(format_machine(machine, {})).value(), machine);
  const auto refused = [&] { return parse_machine(format_machine(machine, {})).error().message; };
  machine.in_place_prices[0].percent = 0;
  EXPECT_EQ(refused(), "machine: in-place price 0 percent is not an integer between 1 and 2^60");
  machine.in_place_prices[0].percent = 20'000;
  EXPECT_EQ(refused(), "machine: in-place price 0 has a percent above 10000");
  machine.in_place_prices = {{.op = "gather"}, {.op = "addmm"}};
  EXPECT_EQ(refused(), "machine: in-place price 1 is out of the order of the ops' names");
}

TEST(Machines, SayWhatTheHostsMemoryHas) {
  Machine machine = machine_presets()[0].make();
  EXPECT_EQ(format_machine(machine, {}).find("host_memory"), std::string::npos);
  machine.host_memory = {.tier = {1}, .bytes_per_s = 108'000'000'000, .processor_bytes_per_s = 70'000'000'000};
  const std::string text = format_machine(machine, {});
  EXPECT_NE(text.find(R"("tier": "host")"), std::string::npos);
  EXPECT_NE(text.find(R"("processor_bytes_per_s": 70000000000)"), std::string::npos);
  EXPECT_EQ(parse_machine(text).value(), machine);
  machine.host_memory.processor_bytes_per_s = 0;
  EXPECT_EQ(format_machine(machine, {}).find("processor"), std::string::npos);
  EXPECT_EQ(parse_machine(format_machine(machine, {})).value(), machine);
}

TEST(Machines, NoLinkOfTheHostIsFasterThanItsMemory) {
  Machine machine = machine_presets()[0].make();
  EXPECT_EQ(within_host_memory(machine), machine);
  EXPECT_EQ(on_its_bus(machine), machine);
  machine.host_memory = {.tier = {1}, .bytes_per_s = 12'000'000'000, .processor_bytes_per_s = 2'000'000'000};
  machine.links[1].bytes_per_s = 0;  // no limit of its own
  for (const Machine& within : {within_host_memory(machine), on_its_bus(machine)}) {
    EXPECT_EQ(within.link({1}, {0})->bytes_per_s, 10'000'000'000U);
    EXPECT_EQ(within.link({0}, {1})->bytes_per_s, 10'000'000'000U);
    EXPECT_EQ(within.link({2}, {0})->bytes_per_s, 3'200'000'000U);  // it does not touch the host's memory
  }
}

// A figure without a source is none, and a preset without one is said to have no limit.
TEST(Machines, PresetsNameTheSourceOfTheirHostsMemory) {
  int limited = 0;
  for (const MachinePreset& preset : machine_presets()) {
    const HostMemory host = preset.make().host_memory;
    EXPECT_EQ(host.bytes_per_s != 0, !preset.host_memory.empty()) << preset.name;
    if (host.bytes_per_s == 0) continue;
    ++limited;
    EXPECT_EQ(preset.make().tiers[host.tier.value].name, "host") << preset.name;
    EXPECT_EQ(host.processor_bytes_per_s, 0U) << preset.name << ": its programs are not known";
  }
  EXPECT_EQ(limited, 3);
}

TEST(Machines, TheA100IsAsPublished) {
  const Machine machine = machine_presets()[0].make();
  EXPECT_EQ(machine.tiers[0].capacity, 40_GiB);
  EXPECT_EQ(machine.tiers[1].capacity, 128_GiB);
  EXPECT_EQ(machine.link({1}, {0})->bytes_per_s, 15'754'000'000U);
  EXPECT_EQ(machine.link({0}, {2})->bytes_per_s, 3'200'000'000U);
  EXPECT_EQ(machine.fault_time, Nanoseconds{45'000});
}

TEST(Machines, SayWhatIsWrongInOneSentence) {
  const struct {
    const char* json;
    const char* says;
  } cases[] = {
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}], "links": [],
           "host_memory": {"tier": "b", "bytes_per_s": 1}})",
       "host_memory lies in 'b', which is no tier"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}], "links": [],
           "host_memory": {"tier": "a", "bytes_per_s": 5, "processor_bytes_per_s": 5}})",
       "host_memory leaves nothing to links; give a processor_bytes_per_s below its bytes_per_s"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}], "links": [],
           "host_memory": {"tier": "a"}})",
       "host_memory lacks the key 'bytes_per_s'"},
      {"{", "not JSON"},
      {R"({"format": "vedette-machine-2", "tiers": [], "links": []})",
       "is a vedette-machine-2; a vedette-machine-1 is wanted"},
      {R"({"format": "vedette-machine-1", "tiers": [], "links": []})", "no tiers"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": -1}], "links": []})",
       "bytes is not an integer"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}, {"name": "a", "bytes": 1}], "links": []})",
       "another tier"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}], "links": [{"from": "a", "to": "b"}]})",
       "is no tier"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}], "links": [], "granule_bytes": 0})",
       "granule_bytes"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}], "links": [], "interference_percent": 1001})",
       "interference_percent above 1000"},
      {R"({"format": "vedette-machine-1", "tiers": [{"name": "a", "bytes": 1}, {"name": "b", "bytes": 1}], "links": [)"
       R"({"from": "a", "to": "b", "bytes_per_s": 5, "alone_bytes_per_s": 4}]})",
       "link 0 has an alone_bytes_per_s below its bytes_per_s"},
  };
  for (const auto& each : cases) {
    const auto machine = parse_machine(each.json);
    ASSERT_FALSE(machine.ok()) << each.json;
    EXPECT_EQ(machine.error().cause, Cause::malformed_input);
    EXPECT_NE(machine.error().message.find(each.says), std::string::npos) << machine.error().message;
  }
}

}  // namespace
}  // namespace vedette::machine_test
