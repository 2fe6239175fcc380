// A policy of one's own, in forty lines: random replacement beside two others. `write_a_policy TRACE.json`. To give it
// a name everywhere (command line, tests, training), put the class and a maker into a file in src/policy, and a line
// into policies.def there.
#include <cstdio>
#include <fstream>

#include "vedette/policy.h"
#include "vedette/replay.h"
using namespace vedette;

struct AnybodyLeaves final : Policy {  // when an op lacks room: tensors drawn at random, until there is room
  std::uint64_t state = 1;
  std::string_view name() const noexcept override { return "anybody"; }
  Reaction react(const Event& event, const View& view) override {
    if (event.kind != Event::Kind::short_of_room) return {};
    Reaction reaction;
    Bytes freed;
    for (std::size_t tries = 0; tries < 4 * view.where.size() && freed < event.bytes; ++tries) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const TensorIndex victim{static_cast<std::uint32_t>((state >> 33) % view.where.size())};
      if (view.where[victim.value] != TierIndex{0}) continue;  // away already
      reaction.moves.push_back(
          {.extent = {.tensor = victim, .part = {}}, .source = {0}, .target = {1}, .verb = Verb::evict});
      freed += view.trace.tensors[victim.value].bytes;
    }
    return reaction;
  }
};

int main(int count, char** arguments) try {
  const std::string_view file = count > 1 ? arguments[1] : "";
  if (file.empty() || file.starts_with("-")) {
    std::puts("usage: write_a_policy TRACE.json (vedette-trace-1)");
    return file == "--help" ? 0 : 1;
  }
  std::ifstream in(arguments[1]);
  const Trace trace = parse_trace(std::string(std::istreambuf_iterator<char>(in), {})).value();
  const Machine machine{.tiers = {{"fast", {peak_bytes(trace).value * 3 / 5}}, {"slow", {std::uint64_t{1} << 50}}},
                        .links = {{{0}, {1}, 10'000'000'000, {}, {}}, {{1}, {0}, 10'000'000'000, {}, {}}}};
  const std::unique_ptr<Policy> all[] = {std::make_unique<AnybodyLeaves>(), make_policy("on-demand", 1),
                                         make_policy("vedette", 1)};
  for (const auto& policy : all) {
    const Replayed step = replay(trace, machine, *policy).value();
    std::printf("%-10s %8.3f ms a step\n", std::string(policy->name()).c_str(),
                static_cast<double>(step.measured.time.value) / 1e6);
  }
} catch (const std::exception& failure) {
  return std::fprintf(stderr, "write_a_policy: %s\n", failure.what()), 1;
}
