// A policy of one's own, in forty lines: random replacement. Compile it against vedette::vedette, give it a trace, see what it costs beside
// the others. To give it a name everywhere (command line, tests, training), put the class into src/policy and a line into table.cc.
//
//   write_a_policy TRACE.json
#include <cstdio>
#include <fstream>
#include <iterator>

#include "vedette/policy.h"
#include "vedette/replay.h"

using namespace vedette;

class AnybodyLeaves final : public Policy {  // whoever comes first in a shuffled order, when an op lacks room
 public:
  std::string_view name() const noexcept override { return "anybody"; }

  Reaction react(const Event& event, const View& view) override {
    if (event.kind != Event::Kind::short_of_room) return {};
    Reaction reaction;
    Bytes freed;
    for (std::size_t tries = 0; tries < 4 * view.where.size() && freed < event.bytes; ++tries) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      const TensorIndex victim{static_cast<std::uint32_t>((state_ >> 33) % view.where.size())};
      if (view.where[victim.value] != TierIndex{0}) continue;  // away already
      reaction.moves.push_back({.extent = {.tensor = victim, .part = {}}, .source = {0}, .target = {1}, .verb = Verb::evict});
      freed += view.trace.tensors[victim.value].bytes;
    }
    return reaction;
  }

 private:
  std::uint64_t state_ = 1;
};

int main(int count, char** arguments) {
  std::ifstream in(count > 1 ? arguments[1] : "");
  const auto trace = parse_trace(std::string(std::istreambuf_iterator<char>(in), {}));
  if (!trace) return std::fprintf(stderr, "%s\n", trace.error().message.c_str()), 1;
  Machine machine{.tiers = {{.name = "fast", .capacity = {peak_bytes(*trace).value * 2 / 5}}, {.name = "slow", .capacity = {std::uint64_t{1} << 50}}},
                  .links = {{.source = {0}, .target = {1}, .bytes_per_s = 10'000'000'000}, {.source = {1}, .target = {0}, .bytes_per_s = 10'000'000'000}}};
  AnybodyLeaves ours;
  const auto demand = make_policy("on-demand", 1), vedette = make_policy("vedette", 1);
  for (Policy* policy : {static_cast<Policy*>(&ours), demand.get(), vedette.get()}) {
    const auto step = replay(*trace, machine, *policy);
    if (step) std::printf("%-10s %8.3f ms a step\n", std::string(policy->name()).c_str(), static_cast<double>(step->measured.time.value) / 1e6);
    else std::printf("%-10s %s\n", std::string(policy->name()).c_str(), step.error().message.c_str());
  }
}
