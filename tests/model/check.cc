// The judge is tested first: for each rule a plan that is right, and one that breaks this rule only.
#include "vedette/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vedette::check_test {
namespace {

// Four ops; w and v are persistent, x is born at op 0 and dies after op 2. Op 1 uses none of w, x.
Trace small() {
  return {.tensors = {{.name = "w", .bytes = {4096}, .persistent = true},
                      {.name = "v", .bytes = {4096}, .persistent = true},
                      {.name = "x", .bytes = {4096}}},
          .ops = {{.name = "f", .reads = {{0}}, .writes = {{2}}},
                  {.name = "g", .reads = {{1}}},
                  {.name = "h", .reads = {{0}, {2}}},
                  {.name = "u", .reads = {{1}}, .writes = {{1}}}}};
}

Machine two_pages(std::uint64_t pages) {
  return {.tiers = {{.name = "dram", .capacity = {4096 * pages}}, {.name = "nvme", .capacity = {1 << 20}}},
          .links = {{.source = {0}, .target = {1}}, {.source = {1}, .target = {0}}}};
}

Move fetch(std::uint32_t issue, std::uint32_t due, std::uint32_t tensor) {
  return {.issue = {issue},
          .due = {due},
          .extent = {.tensor = {tensor}},
          .source = {1},
          .target = {0},
          .verb = Verb::fetch};
}
Move evict(std::uint32_t issue, std::uint32_t due, std::uint32_t tensor) {
  return {.issue = {issue},
          .due = {due},
          .extent = {.tensor = {tensor}},
          .source = {0},
          .target = {1},
          .verb = Verb::evict};
}
Move drop(std::uint32_t issue, std::uint32_t due, std::uint32_t tensor) {
  return {
      .issue = {issue}, .due = {due}, .extent = {.tensor = {tensor}}, .source = {0}, .target = {0}, .verb = Verb::drop};
}

// Two pages of fast memory: w and x make room for v at op 1 and op 3.
Plan moving() {
  return {.home = {{0}, {1}, {0}},
          .moves = {evict(0, 1, 0), fetch(1, 1, 1), evict(1, 2, 1), fetch(2, 2, 0), fetch(3, 3, 1), evict(3, 0, 1)}};
}
Plan resting() { return {.home = {{0}, {0}, {0}}}; }

std::string broken(const Plan& plan, const Machine& machine, Rule rule, const Trace& trace = small()) {
  const std::optional<Violation> found = check(trace, machine, plan);
  EXPECT_TRUE(found.has_value());
  if (!found) return {};
  EXPECT_EQ(found->rule, rule) << found->message;
  return found->message;
}

void right(const Plan& plan, const Machine& machine, const Trace& trace = small()) {
  const std::optional<Violation> found = check(trace, machine, plan);
  EXPECT_FALSE(found.has_value()) << found->message;
}

TEST(Check, AcceptsNoMovesWhereAllFits) { right(resting(), two_pages(3)); }
TEST(Check, AcceptsMovesWhereNotAllFits) { right(moving(), two_pages(2)); }

TEST(CheckWellFormed, WantsAHomeForEachTensor) {
  Plan plan = resting();
  plan.home.pop_back();
  broken(plan, two_pages(3), Rule::well_formed);
}
TEST(CheckWellFormed, WantsTiersThatExist) {
  Plan plan = resting();
  plan.home[1] = {2};
  broken(plan, two_pages(3), Rule::well_formed);
}
TEST(CheckWellFormed, WantsMovesSortedByIssue) {
  Plan plan = moving();
  std::swap(plan.moves[0], plan.moves[5]);
  broken(plan, two_pages(2), Rule::well_formed);
}
TEST(CheckWellFormed, WantsALinkBetweenTheTiers) {
  Machine machine = two_pages(2);
  machine.links.pop_back();
  EXPECT_THAT(broken(moving(), machine, Rule::well_formed), ::testing::HasSubstr("no link"));
}
TEST(CheckWellFormed, WantsAFetchToGoToAFasterTier) {
  Plan plan = moving();
  plan.moves[0].verb = Verb::fetch;
  broken(plan, two_pages(2), Rule::well_formed);
}
TEST(CheckWellFormed, WantsIndicesInRange) {
  Plan plan = moving();
  plan.moves[5].due = {4};
  broken(plan, two_pages(2), Rule::well_formed);
  plan = resting();
  plan.in_place = {{.op = {9}, .tensor = {0}, .tier = {1}}};
  broken(plan, two_pages(3), Rule::well_formed);
}
// The tensor may lie elsewhere when the op runs: the plan is refused all the same.
TEST(CheckWellFormed, WantsOperandsInPlaceInAddressableTiers) {
  Plan plan = resting();
  plan.in_place = {{.op = {1}, .tensor = {1}, .tier = {1}}};
  Machine machine = two_pages(3);
  EXPECT_THAT(broken(plan, machine, Rule::well_formed), ::testing::HasSubstr("not addressable"));
  machine.tiers[1].addressable = true;
  right(plan, machine);
}
TEST(CheckWellFormed, WantsBarriersAtOpsThatAreThere) {
  Plan plan = resting();
  plan.barriers = {{3}};
  right(plan, two_pages(3));
  plan.barriers = {{10'000'000}};
  EXPECT_THAT(broken(plan, two_pages(3), Rule::well_formed), ::testing::HasSubstr("barrier"));
}
TEST(CheckWellFormed, WantsPartsOfWholeGranules) {
  Plan plan = moving();
  plan.moves[0].extent.part = Span<Bytes>{{0}, {100}};
  broken(plan, two_pages(2), Rule::well_formed);
}
TEST(CheckWellFormed, WantsNoMoreReservedThanThereIs) {
  Plan plan = resting();
  plan.reserved = {4096 * 4};
  broken(plan, two_pages(3), Rule::well_formed);
}
TEST(CheckWellFormed, WantsNothingElseOfAPlanThatLeavesPagingToTheDriver) {
  Plan plan = moving();
  plan.block = {4096};
  plan.paging = Paging{};
  EXPECT_THAT(broken(plan, two_pages(2), Rule::well_formed), ::testing::HasSubstr("leaves paging to the driver"));
  plan = resting();
  plan.paging = Paging{};
  broken(plan, two_pages(3), Rule::well_formed);
}

TEST(CheckSourceHoldsIt, RefusesToFetchWhatIsNear) {
  Plan plan = resting();
  plan.moves = {fetch(2, 3, 0)};
  EXPECT_THAT(broken(plan, two_pages(3), Rule::source_holds_it), ::testing::HasSubstr("tensor 0 'w'"));
}
TEST(CheckSourceHoldsIt, RefusesToEvictWhatIsDead) {
  Plan plan = resting();
  plan.moves = {evict(2, 3, 2)};
  EXPECT_THAT(broken(plan, two_pages(3), Rule::source_holds_it), ::testing::HasSubstr("is dead"));
}
TEST(CheckSourceHoldsIt, RefusesToFetchWhatIsStillOnItsWay) {
  Plan plan = resting();
  plan.moves = {evict(0, 2, 0), fetch(1, 2, 0)};
  EXPECT_THAT(broken(plan, two_pages(4), Rule::source_holds_it), ::testing::HasSubstr("on its way"));
}

TEST(CheckDueAfterIssue, RefusesToEvictInNoTime) {
  Plan plan = moving();
  plan.moves[0].due = {0};
  broken(plan, two_pages(2), Rule::due_after_issue);
}

TEST(CheckOperandNear, RefusesAnOperandThatIsAway) {
  Plan plan = moving();
  plan.moves.erase(plan.moves.begin() + 3);
  EXPECT_EQ(broken(plan, two_pages(2), Rule::operand_near),
            "tensor 0 'w' is read by op 2 'h' but it lies in tier 1, evicted at op 0");
}
TEST(CheckOperandNear, RefusesAnOperandThatIsStillOnItsWay) {
  Plan plan = moving();
  plan.moves[3].due = {3};
  broken(plan, two_pages(2), Rule::operand_near);
}
TEST(CheckOperandNear, AcceptsAnOperandInPlaceWhereTheTierIsAddressable) {
  Plan plan = resting();
  plan.home[1] = {1};
  plan.in_place = {{.op = {1}, .tensor = {1}, .tier = {1}}, {.op = {3}, .tensor = {1}, .tier = {1}}};
  Machine machine = two_pages(2);
  machine.tiers[1].addressable = true;
  right(plan, machine);
  machine.tiers[1].addressable = false;
  broken(plan, machine, Rule::well_formed);
  machine.tiers[1].addressable = true;
  plan.in_place.pop_back();
  broken(plan, machine, Rule::operand_near);
}
TEST(CheckOperandNear, WantsOnlyTheTouchedPagesWhereTheyWereTracked) {
  Trace trace = small();
  trace.tensors[0].bytes = {3 * 4096};
  trace.pages = {{.op = {2}, .tensor = {0}, .pages = {2, 3}, .read = true}};
  Plan plan{.home = {{0}, {0}, {0}}, .moves = {evict(0, 1, 0), fetch(2, 3, 0)}};
  plan.moves[0].extent.part = Span<Bytes>{{0}, {8192}};
  plan.moves[1].extent.part = Span<Bytes>{{0}, {8192}};
  right(plan, two_pages(5), trace);
  trace.pages[0].pages = {1, 3};
  broken(plan, two_pages(5), Rule::operand_near, trace);
}

TEST(CheckCapacity, CountsWhatIsLive) {
  EXPECT_THAT(broken(resting(), two_pages(2), Rule::capacity), ::testing::HasSubstr("during op 0"));
}
TEST(CheckCapacity, CountsAMoveInFlightAtBothEnds) {
  Plan plan = moving();
  plan.moves[0].due = {2};
  broken(plan, two_pages(2), Rule::capacity);
  right(plan, two_pages(3));
}
TEST(CheckCapacity, CountsAMoveInFlightWhereItGoes) {
  const Plan plan{.home = {{0}, {1}, {0}}, .moves = {fetch(0, 1, 1), evict(3, 0, 1)}};
  EXPECT_THAT(broken(plan, two_pages(2), Rule::capacity), ::testing::HasSubstr("during op 0"));
  right(plan, two_pages(3));
}
TEST(CheckCapacity, RoundsUpToTheGranule) {
  Trace trace = small();
  trace.tensors[0].bytes = {1};
  broken(resting(), two_pages(2), Rule::capacity, trace);
}
TEST(CheckCapacity, CountsWorkspace) {
  Trace trace = small();
  trace.ops[1].workspace = {1};
  broken(resting(), two_pages(3), Rule::capacity, trace);
}
TEST(CheckCapacity, HoldsInSlowTiersToo) {
  Machine machine = two_pages(2);
  machine.tiers[1].capacity = {4095};
  broken(moving(), machine, Rule::capacity);
}

// dw is written at op 1 before it is read at op 2, in every step.
Trace with_gradient() {
  return {.tensors = {{.name = "w", .bytes = {4096}, .persistent = true},
                      {.name = "dw", .bytes = {4096}, .persistent = true}},
          .ops = {{.name = "f", .workspace = {4096}, .reads = {{0}}},
                  {.name = "b", .reads = {{0}}, .writes = {{1}}},
                  {.name = "u", .reads = {{0}, {1}}, .writes = {{0}}}}};
}

TEST(CheckNothingLost, AcceptsADropBeforeAPureWrite) {
  const Plan plan{.home = {{0}, {0}}, .moves = {drop(2, 0, 1)}};
  right(plan, two_pages(2), with_gradient());
  broken({.home = {{0}, {0}}}, two_pages(2), Rule::capacity, with_gradient());
}
TEST(CheckNothingLost, RefusesADropOfBytesThatAreRead) {
  Plan plan = resting();
  plan.moves = {drop(0, 1, 2)};
  broken(plan, two_pages(3), Rule::nothing_lost);
  plan.moves = {drop(3, 0, 1)};
  broken(plan, two_pages(3), Rule::nothing_lost);
}

TEST(CheckRepeats, RefusesAStepThatEndsUnlikeItBegan) {
  Plan plan = moving();
  plan.moves.pop_back();
  EXPECT_THAT(broken(plan, two_pages(2), Rule::repeats), ::testing::HasSubstr("tensor 1 'v'"));
}
TEST(CheckRepeats, FollowsAMoveIntoTheNextStep) {
  Plan plan{.home = {{0}, {0}, {0}}, .moves = {evict(1, 2, 1), fetch(3, 3, 1)}};
  right(plan, two_pages(3));
  plan = {.home = {{0}, {1}, {0}}, .moves = {fetch(1, 1, 1), evict(3, 0, 1)}};
  right(plan, two_pages(3));
  plan = {.home = {{0}, {0}, {0}}, .moves = {fetch(1, 1, 1), evict(3, 1, 1)}};
  right(plan, two_pages(3));
  plan.home[1] = {1};
  broken(plan, two_pages(3), Rule::repeats);
}
TEST(CheckRepeats, PlaysAStepOfOneOp) {
  const Trace trace{.tensors = {{.name = "w", .bytes = {1}, .persistent = true}},
                    .ops = {{.name = "u", .reads = {{0}}}}};
  right({.home = {{1}}, .moves = {fetch(0, 0, 0), evict(0, 0, 0)}}, two_pages(1), trace);
}

TEST(CheckOperandNear, SaysThatAnEvictionOnItsWayTakesTheOperandAway) {
  // v's eviction is issued after op 1 and due before op 0; op 3 uses it meanwhile.
  Plan plan = resting();
  plan.moves = {evict(1, 0, 1), fetch(1, 1, 1)};
  std::swap(plan.moves[0], plan.moves[1]);
  plan.home[1] = {1};
  EXPECT_THAT(
      broken(plan, two_pages(4), Rule::operand_near),
      ::testing::HasSubstr("op 3 'u' but it is on its way: its eviction, move 1, is issued at op 1 and due at op "
                           "0 of the next step"));
  plan.moves[1].due = {3};
  EXPECT_THAT(broken(plan, two_pages(4), Rule::operand_near), ::testing::HasSubstr("lies in tier 1, evicted at op 1"));
}

TEST(CheckAllowed, RefusesRecomputationWhereTheMachineCannot) {
  Plan plan = resting();
  plan.moves = {drop(0, 1, 2)};
  plan.recomputations = {{.before = {2}, .producer = {0}, .tensor = {2}}};
  Machine machine = two_pages(3);
  broken(plan, machine, Rule::allowed);
  machine.can_recompute = true;
  right(plan, machine);
}
TEST(CheckAllowed, RefusesAnOrderThatBreaksADependency) {
  Plan plan = resting();
  plan.order = {{0}, {2}, {1}, {3}};
  Machine machine = two_pages(3);
  Trace trace = small();
  trace.ops[1].name = trace.ops[2].name = "view";
  broken(plan, machine, Rule::allowed, trace);
  machine.can_reorder = true;
  right(plan, machine, trace);
  broken(plan, machine, Rule::allowed);  // what f and g told the program is not known
  plan.order = {{2}, {0}, {1}, {3}};
  broken(plan, machine, Rule::allowed, trace);
}

// Five ops: a is made from w, b from a; both die after op 3. Op 2 needs room, op 3 reads a and b, op 4 changes w.
Trace chain() {
  return {.tensors = {{.name = "w", .bytes = {4096}, .persistent = true},
                      {.name = "a", .bytes = {4096}},
                      {.name = "b", .bytes = {4096}},
                      {.name = "c", .bytes = {8192}}},
          .ops = {{.name = "f", .reads = {{0}}, .writes = {{1}}},
                  {.name = "g", .reads = {{1}}, .writes = {{2}}},
                  {.name = "h", .writes = {{3}}},
                  {.name = "k", .reads = {{1}, {2}}},
                  {.name = "u", .reads = {{0}}, .writes = {{0}}}}};
}
Plan remade() {  // a and b are thrown away before op 2 and recomputed before op 3
  return {.home = {{0}, {0}, {0}, {0}},
          .moves = {drop(1, 2, 1), drop(1, 2, 2)},
          .recomputations = {{.before = {3}, .producer = {0}, .tensor = {1}},
                             {.before = {3}, .producer = {1}, .tensor = {2}}}};
}
Machine remaking(std::uint64_t pages) {
  Machine machine = two_pages(pages);
  machine.can_recompute = true;
  return machine;
}
TEST(CheckMadeAgain, AcceptsAChainMadeFromItsBeginning) { right(remade(), remaking(3), chain()); }
TEST(CheckMadeAgain, RefusesAnotherOrderOfTheChain) {
  Plan plan = remade();
  std::swap(plan.recomputations[0], plan.recomputations[1]);
  broken(plan, remaking(3), Rule::nothing_lost, chain());
}
TEST(CheckMadeAgain, RefusesAProducerWhoseOperandChanged) {
  Trace trace = chain();
  trace.ops[2].writes.insert(trace.ops[2].writes.begin(), TensorIndex{0});
  EXPECT_THAT(broken(remade(), remaking(4), Rule::recomputed, trace), ::testing::HasSubstr("has changed since"));
}
TEST(CheckMadeAgain, RefusesAProducerThatIsRandom) {
  Trace trace = chain();
  trace.ops[1].name = "aten::native_dropout";
  broken(remade(), remaking(3), Rule::recomputed, trace);
}
TEST(CheckMadeAgain, RefusesAProducerThatWasNotTheLastToWrite) {
  Trace trace = chain();
  trace.ops[2].writes.insert(trace.ops[2].writes.begin(), TensorIndex{2});
  Plan plan = remade();
  plan.moves = {drop(1, 2, 1), drop(2, 3, 2)};
  EXPECT_THAT(broken(plan, remaking(4), Rule::recomputed, trace), ::testing::HasSubstr("not the last"));
}
// As above, but op 1 changes a in place, where that was tried; b is made in op 2, which needs room.
Trace chain_in_place() {
  Trace trace = chain();
  trace.ops[1] = {.name = "g_", .reads = {{1}}, .writes = {{1}}, .runs_again = true};
  trace.ops[2].writes = {{2}, {3}};
  return trace;
}
Plan remade_in_place() {
  return {.home = {{0}, {0}, {0}, {0}},
          .moves = {drop(1, 2, 1)},
          .recomputations = {{.before = {3}, .producer = {1}, .tensor = {1}}}};
}
TEST(CheckMadeAgain, AcceptsAChainInPlaceAsOneProducer) { right(remade_in_place(), remaking(4), chain_in_place()); }
TEST(CheckMadeAgain, RefusesAChainInPlaceThatWasNotTried) {
  Trace trace = chain_in_place();
  trace.ops[1].runs_again.reset();
  broken(remade_in_place(), remaking(4), Rule::recomputed, trace);
  trace.ops[1].runs_again = true;
  trace.ops[0].runs_again = false;
  broken(remade_in_place(), remaking(4), Rule::recomputed, trace);
}
TEST(CheckMadeAgain, RefusesAPartOfAChainInPlace) {
  Plan plan = remade_in_place();
  plan.recomputations[0].producer = {0};
  EXPECT_THAT(broken(plan, remaking(4), Rule::recomputed, chain_in_place()), ::testing::HasSubstr("not the last"));
}
TEST(CheckMadeAgain, RefusesAChainInPlaceWhoseSourceChanged) {
  Trace trace = chain_in_place();
  trace.ops[2].writes.insert(trace.ops[2].writes.begin(), TensorIndex{0});
  EXPECT_THAT(broken(remade_in_place(), remaking(4), Rule::recomputed, trace), ::testing::HasSubstr("has changed"));
  trace = chain_in_place();
  trace.ops.insert(trace.ops.begin() + 1, Op{.name = "u", .writes = {{0}}});  // between the two of the chain
  Plan plan = remade_in_place();
  plan.moves = {drop(2, 3, 1)};
  plan.recomputations = {{.before = {4}, .producer = {2}, .tensor = {1}}};
  broken(plan, remaking(4), Rule::recomputed, trace);
}

TEST(CheckMadeAgain, MakesTheDeadAgainAsAMeans) {
  Trace trace = chain();
  trace.ops[3].reads = {{2}};  // a is dead after op 1, and needed to make b
  Plan plan = remade();
  plan.moves = {drop(1, 2, 2)};
  right(plan, remaking(3), trace);
  plan.recomputations.erase(plan.recomputations.begin());
  broken(plan, remaking(3), Rule::operand_near, trace);
}
TEST(CheckMadeAgain, CountsTheScratchOfTheProducer) {
  Trace trace = chain();
  trace.ops[0].workspace = {8192};
  right(remade(), remaking(4), trace);
  broken(remade(), remaking(3), Rule::capacity, trace);
}

TEST(Check, FollowsMovesAmongThreeTiers) {
  Machine machine = two_pages(2);
  machine.tiers.push_back({.name = "far", .capacity = {1 << 20}});
  machine.tiers[1].capacity = {2048};
  machine.links.push_back({.source = {0}, .target = {2}});
  machine.links.push_back({.source = {2}, .target = {0}});
  broken(moving(), machine, Rule::capacity);
  Plan plan = moving();
  for (Move& move : plan.moves) {
    (move.verb == Verb::evict ? move.target : move.source) = {2};
  }
  plan.home[1] = {2};
  right(plan, machine);
  plan.moves[3].source = {1};
  broken(plan, machine, Rule::source_holds_it);
}

}  // namespace
}  // namespace vedette::check_test
