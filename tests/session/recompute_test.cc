// Tensors that are dropped at every opportunity and recomputed: the same bytes, whatever happens in the middle.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "session/loop.h"

namespace vedette::recompute_test {
namespace {

using testing::Block;
using testing::CombineAgain;
using testing::Loop;
using testing::Outcome;

constexpr Bytes chunk = 64_KiB;
constexpr std::size_t layers = 8, bytes = 300'000;

std::unique_ptr<Session> open(Bytes budget, Recompute recompute, const std::string& policy = "vedette",
                              std::vector<std::string>* messages = nullptr, const std::string& slow = "host") {
  return Session::open({.fast_memory = budget,
                        .slow = slow,
                        .policy = policy,
                        .chunk = chunk,
                        .on_message =
                            [messages](std::string_view m) {
                              if (messages != nullptr) messages->emplace_back(m);
                            },
                        .recompute = recompute})
      .value();
}

Outcome run(Bytes budget, Recompute recompute, const std::string& policy = "vedette") {
  Outcome outcome;
  const auto session = open(budget, recompute, policy, &outcome.messages);
  Loop loop(*session, layers, bytes);
  loop.give_recipes();
  for (std::uint64_t s = 0; s < 8; ++s) outcome.losses.push_back(loop.step(s));
  outcome.state = loop.state();
  outcome.counters = session->counters();
  return outcome;
}

TEST(Recompute, EndsWithTheSameBytesInAnyBudget) {
  const Outcome plenty = run(64_MiB, Recompute::off);
  EXPECT_EQ(plenty.counters.ops_recomputed, 0u);
  for (const std::uint64_t percent : {200U, 100U, 50U, 25U}) {
    SCOPED_TRACE(std::to_string(percent) + " %");
    const Outcome dropped = run({plenty.counters.peak_bytes.value * percent / 100}, Recompute::always);
    EXPECT_EQ(dropped, plenty);
    EXPECT_GT(dropped.counters.ops_recomputed, layers - 2) << "nothing was recomputed";
    EXPECT_LE(dropped.counters.resident_max_bytes.value, plenty.counters.peak_bytes.value * percent / 100);
    for (const std::string& m : dropped.messages) ADD_FAILURE() << m;
  }
}

// --- one step, by hand -----------------------------------------------------------------------------------------------

std::function<void(const void* operand)> in_recipes;  // that run

// What `body` makes of its operands, again; the last operand is the result.
class Again final : public Recipe {
 public:
  using Body = void (*)(std::span<std::uint64_t* const> at, std::size_t count);
  Again(Body body, std::vector<const std::byte*> operands, std::size_t count)
      : body_(body), operands_(std::move(operands)), count_(count) {}
  bool run(std::span<const Place> places) noexcept override {
    std::vector<std::uint64_t*> at;
    for (const std::byte* operand : operands_) {
      const std::byte* lies = operand;
      for (const Place& place : places)
        if (place.was == operand) lies = place.now;
      at.push_back(reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(lies)));
    }
    if (reinterpret_cast<const std::byte*>(at.back()) == operands_.back()) return false;  // not where it is wanted
    if (in_recipes) in_recipes(at.front());
    body_(at, count_);
    return true;
  }
  bool uses(const std::byte* first, Bytes) const noexcept override {
    return std::count(operands_.begin(), operands_.end(), first) > 0;
  }
  std::uint64_t signature() const noexcept override { return reinterpret_cast<std::uint64_t>(body_); }

 private:
  const Body body_;
  const std::vector<const std::byte*> operands_;
  const std::size_t count_;
};

void copy_and_add(std::span<std::uint64_t* const> at, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) at[1][i] = at[0][i] * 7 + i;
}
void change(std::span<std::uint64_t* const> at, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) at[0][i] ^= at[0][i] >> 3;
}
std::atomic<std::uint64_t> random_state = 1;
void differently(std::span<std::uint64_t* const> at, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) at[1][i] = at[0][i] + random_state;
  ++random_state;
}

// Makes a, then b of it and changes b, then c and d; in the middle the first three are dropped. Then reads all.
class ByHand {
 public:
  explicit ByHand(Session& session) : session_(session), weight_(session, bytes, true) {
    weight_.fill(5);
    session_.label(weight_.address(), "weight", TensorKind::weight);
  }

  struct Tensors {
    Block a, b, c, d;
    std::uint64_t changed = 0;  // in a's first word, and nobody has read it since
    bool right() const {
      std::vector<std::uint64_t> expected(a.count());
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 5 * 1'000'003 + i;
      const auto next = [&] {
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = expected[i] * 7 + i;
      };
      const auto holds = [&](const Block& block) { return std::equal(expected.begin(), expected.end(), &block[0]); };
      next();
      expected[0] ^= changed;
      const bool a_holds = holds(a);
      expected[0] ^= changed;
      next();
      for (std::uint64_t& e : expected) e ^= e >> 3;
      const bool b_holds = holds(b);
      next();
      const bool c_holds = holds(c);
      next();
      return a_holds && b_holds && c_holds && holds(d);
    }
  };
  std::function<void(Tensors&)> in_the_middle = [](Tensors&) {};

  void step() {
    const auto scope = session_.step();
    Tensors t;
    t.a = make("a", copy_and_add, weight_);
    t.b = make("b", copy_and_add, t.a);
    {
      const void* const both[] = {t.b.address()};
      const auto op = session_.op("change", both, both);
      const std::array<std::uint64_t*, 1> at{&t.b[0]};
      change(at, t.b.count());
      keep(change, {t.b.address()}, t.b.count());
    }
    t.c = make("c", copy_and_add, t.b);
    t.d = make("d", copy_and_add, t.c);
    in_the_middle(t);
    use(t.c);
    use(t.a);
    use(t.b);
    use(t.d);
    all_right = all_right && t.right();
  }
  bool all_right = true;

  Block make(const char* name, Again::Body body, Block& from) {
    const void* const reads[] = {from.address()};
    const auto op = session_.op(name, reads, {});
    Block out(session_, bytes);
    const std::array<std::uint64_t*, 2> at{&from[0], &out[0]};
    body(at, out.count());
    keep(body, {from.address(), out.address()}, out.count());
    return out;
  }
  void use(const Block& block) {
    const void* const reads[] = {block.address()};
    const auto op = session_.op("use", reads, {});
  }
  Block& weight() { return weight_; }

 private:
  void keep(Again::Body body, std::vector<const void*> operands, std::size_t count) {
    if (!session_.wants_recipe()) return;
    std::vector<const std::byte*> addresses;
    for (const void* operand : operands) addresses.push_back(static_cast<const std::byte*>(operand));
    session_.keep_recipe(std::make_unique<Again>(body, addresses, count));
  }
  Session& session_;
  Block weight_;
};

constexpr Bytes room = 4_MiB;

void expect_right(const std::function<void(Session&, ByHand&, ByHand::Tensors&)>& in_the_middle, Bytes budget = room) {
  const auto session = open(budget, Recompute::always);
  ByHand program(*session);
  for (int i = 0; i < 4; ++i) program.step();
  const std::uint64_t before = session->counters().bytes_recomputed.value;
  EXPECT_GT(before, 0u);
  program.in_the_middle = [&](ByHand::Tensors& t) { in_the_middle(*session, program, t); };
  program.step();
  program.in_the_middle = [](ByHand::Tensors&) {};
  program.step();
  EXPECT_TRUE(program.all_right);
  EXPECT_GT(session->counters().bytes_recomputed.value, before);
}

TEST(Recompute, RepeatsWhatWasChangedInPlace) {
  expect_right([](Session&, ByHand&, ByHand::Tensors&) {});
}

TEST(Recompute, ServesAnotherThreadThatReadsInTheMiddle) {
  expect_right([](Session&, ByHand& program, ByHand::Tensors& t) {
    std::thread([&] { program.all_right = program.all_right && t.right(); }).join();
  });
}

TEST(Recompute, ServesManyThreadsThatReadAllTheTime) {
  std::atomic<bool> wrong = false;
  expect_right([&](Session&, ByHand&, ByHand::Tensors& t) {
    std::vector<std::jthread> readers;
    for (int n = 0; n < 3; ++n)
      readers.emplace_back([&] {
        for (int i = 0; i < 5; ++i)
          if (!t.right()) wrong = true;
      });
  });
  EXPECT_FALSE(wrong);
}

// Small tensors share chunks with those that are dropped.
TEST(Recompute, SparesWhatAnotherThreadMakesInAChunkThatIsDropped) {
  const auto session = open(room, Recompute::always);
  ByHand program(*session);
  std::atomic<bool> wrong = false;
  {
    std::jthread other([&](const std::stop_token& stop) {
      for (std::uint64_t mark = 1; !stop.stop_requested(); ++mark) {
        Block small(*session, chunk.value / 3);
        small.fill(mark);
        if (mark % 4 == 0) std::this_thread::yield();
        if (!small.holds(mark)) wrong = true;
      }
    });
    for (int i = 0; i < 100; ++i) program.step();
  }
  EXPECT_FALSE(wrong);
  EXPECT_TRUE(program.all_right);
  EXPECT_GT(session->counters().bytes_recomputed.value, 0u);
}

TEST(Recompute, ServesTheOpThreadThatReadsWithoutAnOp) {
  expect_right(
      [](Session&, ByHand& program, ByHand::Tensors& t) { program.all_right = program.all_right && t.right(); });
}

TEST(Recompute, KeepsInFastMemoryWhatIsHeldInTheMiddle) {
  expect_right([](Session& session, ByHand& program, ByHand::Tensors& t) {
    const auto held = session.resident(t.b.address());
    program.all_right = program.all_right && t.right();
  });
}

// b was made from a, and both have recipes that know nothing of the write.
TEST(Recompute, ForgetsNothingThatIsWrittenWithoutAnOp) {
  for (const bool in_a_scope : {true, false}) {
    SCOPED_TRACE(in_a_scope);
    expect_right([&](Session& session, ByHand&, ByHand::Tensors& t) {
      t.changed = 1;
      if (in_a_scope) {
        const auto held = session.resident(t.a.address());
        t.a[0] ^= t.changed;
      } else {
        session.others_write(t.a.address());
        t.a[0] ^= t.changed;
      }
    });
  }
}

// As a kernel in Python does that uses numpy.
TEST(Recompute, LetsARecipeExportAndHoldItsOperands) {
  const auto session = open(room, Recompute::always);
  ByHand program(*session);
  in_recipes = [&](const void* operand) {
    session->others_write(operand);
    const auto held = session->resident(operand);
  };
  for (int i = 0; i < 6; ++i) program.step();
  in_recipes = nullptr;
  EXPECT_TRUE(program.all_right);
  EXPECT_GT(session->counters().bytes_recomputed.value, 0u);
}

TEST(Recompute, MakesAllBeforeAnOpThatThePlanDoesNotHave) {
  expect_right([](Session&, ByHand& program, ByHand::Tensors& t) { program.use(t.d), program.use(t.d); });
}

TEST(Recompute, MakesATensorBeforeItsSourceChanges) {
  const auto session = open(room, Recompute::always);
  ByHand program(*session);
  program.in_the_middle = [&](ByHand::Tensors&) {  // a was made from it
    const void* const both[] = {program.weight().address()};
    const auto op = session->op("update", both, both);
    program.weight().fill(6);
  };
  for (int i = 0; i < 6; ++i) {
    program.step();
    program.weight().fill(5);
  }
  EXPECT_TRUE(program.all_right);
}

// b and c are made from a, which dies while they are dropped: from then on b is made from the weight.
TEST(Recompute, LetsASourceDieThatCanBeMadeItself) {
  expect_right([](Session& session, ByHand&, ByHand::Tensors& t) {
    Block again = Block(session, bytes);
    std::memcpy(&again[0], &t.a[0], t.a.count() * 8);
    t.a = std::move(again);
  });
}

TEST(Recompute, EndsAStepEarlyWithItsTensorsAlive) {
  const auto session = open(room, Recompute::always);
  ByHand program(*session);
  for (int i = 0; i < 4; ++i) program.step();
  ByHand::Tensors survivors;
  program.in_the_middle = [&](ByHand::Tensors& t) {
    std::swap(survivors, t);
    throw std::runtime_error("in the middle of a step");
  };
  EXPECT_THROW(program.step(), std::runtime_error);
  EXPECT_TRUE(survivors.right());
  program.in_the_middle = [](ByHand::Tensors&) {};
  program.step();
  EXPECT_TRUE(program.all_right);
}

void again(Session& session, Again::Body body, std::vector<const void*> operands, std::size_t count) {
  if (!session.wants_recipe()) return;
  std::vector<const std::byte*> addresses;
  for (const void* operand : operands) addresses.push_back(static_cast<const std::byte*>(operand));
  session.keep_recipe(std::make_unique<Again>(body, addresses, count));
}

void compute_on_registers() {  // long enough for a section
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  while (std::chrono::steady_clock::now() < until) {
  }
}

// The op reads `a` before its second allocation alone, so it is planned in sections, and `a` is dropped while it runs.
TEST(Recompute, DropsAnOperandWhileItsOpRuns) {
  constexpr std::size_t large = 16 * chunk.value;
  const auto session = open(64_MiB, Recompute::always);
  Block weight(*session, large, true);
  weight.fill(5);
  session->label(weight.address(), "weight", TensorKind::weight);
  std::uint64_t dropped_inside = 0;
  for (int step = 0; step < 8; ++step) {
    const auto scope = session->step();
    Block a;
    {
      const void* const reads[] = {weight.address()};
      const auto op = session->op("make", reads, {});
      a = Block(*session, large);
      const std::array<std::uint64_t*, 2> at{&weight[0], &a[0]};
      copy_and_add(at, a.count());
      again(*session, copy_and_add, {weight.address(), a.address()}, a.count());
    }
    const std::uint64_t sum = a.sum();
    {
      const void* const reads[] = {a.address()};
      const auto op = session->op("large", reads, {});
      Block scratch(*session, large);
      for (std::size_t i = 0; i < scratch.count(); ++i) scratch[i] = a[i] * 3;
      compute_on_registers();
      const std::uint64_t before = session->counters().bytes_dropped.value;
      Block more(*session, large);
      dropped_inside = session->counters().bytes_dropped.value - before;
      for (std::size_t i = 0; i < more.count(); ++i) more[i] = scratch[i] + 1;
      compute_on_registers();
    }
    const void* const reads[] = {a.address()};
    { const auto op = session->op("other", {}, {}); }
    const auto op = session->op("use", reads, {});
    EXPECT_EQ(a.sum(), sum);
  }
  EXPECT_GE(dropped_inside, large - 2 * chunk.value);
  EXPECT_GT(session->counters().ops_recomputed, 0u);
}

TEST(Recompute, NeverUsesARecipeThatGaveOtherBytes) {
  const auto session = open(room, Recompute::always);
  ByHand program(*session);
  for (int i = 0; i < 5; ++i) {
    const auto scope = session->step();
    Block a = program.make("random", differently, program.weight());
    const std::uint64_t sum = a.sum();
    Block b = program.make("b", copy_and_add, a);
    Block c = program.make("c", copy_and_add, b);
    program.use(c);
    program.use(a);
    EXPECT_EQ(a.sum(), sum);
  }
}

// --- as policies plan ------------------------------------------------------------------------------------------------

struct Phases {
  Recompute recompute = Recompute::off;
  std::string policy = "superneurons", slow = "host";
  bool in_place = false;  // each activation is changed by an op of its own
};

// Forward, every third op a convolution by name; backward, which needs the activations in reverse order. Tensors are
// whole chunks, so that each is a unit.
Outcome run_phases(Bytes budget, const Phases& how) {
  constexpr std::size_t whole = 3 * chunk.value;
  Outcome outcome;
  const auto session = open(budget, how.recompute, how.policy, &outcome.messages, how.slow);
  Block weight(*session, whole, true);
  weight.fill(5);
  session->label(weight.address(), "weight", TensorKind::weight);
  for (int step = 0; step < 12; ++step) {
    const auto scope = session->step();
    std::vector<Block> activations;
    session->mark_layer("forward", Phase::forward);
    for (std::uint32_t l = 0; l < 12; ++l) {
      const Block& from = l == 0 ? weight : activations.back();
      const void* const reads[] = {from.address()};
      Block out;
      {
        const auto op = session->op(l % 3 == 0 ? "convolution" : "relu", reads, {});
        out = Block(*session, whole);
        const std::array<std::uint64_t*, 2> at{const_cast<std::uint64_t*>(&from[0]), &out[0]};
        copy_and_add(at, out.count());
        again(*session, copy_and_add, {from.address(), out.address()}, out.count());
      }
      if (how.in_place) {
        const void* const both[] = {out.address()};
        const auto op = session->op("relu_", both, both);
        const std::array<std::uint64_t*, 1> at{&out[0]};
        change(at, out.count());
        again(*session, change, {out.address()}, out.count());
      }
      activations.push_back(std::move(out));
    }
    session->mark_layer("backward", Phase::backward);
    while (!activations.empty()) {
      const void* const reads[] = {activations.back().address(), weight.address()};
      const auto op = session->op("backward", reads, {});
      outcome.losses.push_back(activations.back().sum());
      activations.pop_back();
    }
  }
  outcome.state = weight.sum();
  outcome.counters = session->counters();
  return outcome;
}

class PlannedBy : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(PlannedBy, MovesLessWithTheSameBytes) {
  const auto [policy, in_place] = GetParam();
  const Outcome plenty = run_phases(64_MiB, {.policy = policy, .in_place = in_place});
  // The link is slower than ops make tensors anew. Capuchin swaps wherever it hides that; what it recomputes pins its
  // sources, for which half of the memory is too little.
  const bool capuchin = policy == std::string("capuchin");
  const Bytes budget{plenty.counters.peak_bytes.value * (capuchin ? 7 : 5) / 10};
  const std::string slow = capuchin ? "host@20MB/s" : "host@100MB/s";
  const Outcome moved = run_phases(budget, {.policy = policy, .slow = slow, .in_place = in_place}),
                made = run_phases(
                    budget, {.recompute = Recompute::planned, .policy = policy, .slow = slow, .in_place = in_place});
  EXPECT_EQ(moved, plenty);
  EXPECT_EQ(made, plenty);
  EXPECT_EQ(moved.counters.ops_recomputed, 0u);
  EXPECT_GT(made.counters.ops_recomputed, 0u);
  EXPECT_LT(made.counters.bytes_out.value, moved.counters.bytes_out.value);
  for (const std::string& m : made.messages) ADD_FAILURE() << m;
  std::printf("%s: out %.1f MiB without, %.1f MiB with %lu ops run again\n", policy,
              static_cast<double>(moved.counters.bytes_out.value) / 1048576,
              static_cast<double>(made.counters.bytes_out.value) / 1048576,
              static_cast<unsigned long>(made.counters.ops_recomputed));
}

INSTANTIATE_TEST_SUITE_P(Recompute, PlannedBy,
                         ::testing::Combine(::testing::Values("superneurons", "capuchin", "dtr", "vedette"),
                                            ::testing::Bool()),
                         [](const auto& the) {
                           return std::string(std::get<0>(the.param)) + (std::get<1>(the.param) ? "_in_place" : "");
                         });

}  // namespace
}  // namespace vedette::recompute_test
