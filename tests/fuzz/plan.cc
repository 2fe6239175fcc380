// The reader of vedette-plan-1, and who takes what it read: the judge and the simulator, which must stand any plan.
// What the judge finds sound, the simulator replays.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "cli/plan_file.h"
#include "fuzz/fuzz.h"
#include "vedette/check.h"
#include "vedette/machine.h"
#include "vedette/replay.h"

namespace {

const vedette::Trace& trace() {
  static const vedette::Trace read = [] {
    std::ifstream file(VEDETTE_FUZZ_CORPUS "/trace/chain4.json", std::ios::binary);
    return vedette::parse_trace(std::string(std::istreambuf_iterator<char>(file), {})).value();
  }();
  return read;
}

const vedette::Machine& machine() {
  static const vedette::Machine made = [] {
    vedette::Machine preset = vedette::machine_presets().front().make();
    preset.tiers.front().capacity = {std::uint64_t{1} << 20};  // of chain4's 2.6 MiB
    return preset;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto plan = vedette::cli::parse_plan({reinterpret_cast<const char*>(data), size}, trace());
  if (!plan) return 0;
  const std::string text = vedette::cli::format_plan(*plan);
  const auto again = vedette::cli::parse_plan(text, trace());
  if (!again || vedette::cli::format_plan(*again) != text) std::abort();
  const bool sound = !vedette::check(trace(), machine(), *plan);
  const auto replayed = vedette::replay(trace(), machine(), *plan);
  if (sound && !replayed && replayed.error().cause != vedette::Cause::unsupported) std::abort();
  return 0;
}
