// The engine over a store of two slow tiers: planned targets reach the store, and a planned move from one slow tier to
// the other passes no frame. Random programs keep their bytes whatever fails below.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "engine/rig.h"
#include "support/faulty_store.h"
#include "support/manual_program.h"

namespace vedette::tiers_test {
namespace {

using testing::at;
using testing::chunk_bytes;
using testing::eventually;
using testing::words_per_chunk;

constexpr std::uint32_t depth = 16 + layered_extra_depth;

std::unique_ptr<Store> two_tiers(std::uint32_t near_slots, std::uint32_t fail_one_in = 0) {
  const auto level = [&](std::uint32_t slots) {
    return std::make_unique<FaultyStore>(open_host_store(chunk_bytes, depth, slots).value(),
                                         FaultyStoreOptions{.script = {}, .fail_one_in = fail_one_in});
  };
  return layered(level(near_slots), near_slots, level(unlimited_slots)).value();
}

class Tiers {
 public:
  Tiers(std::uint32_t frames, std::uint32_t chunks, std::unique_ptr<Store> store) {
    arena_ = Mapping::reserve({chunks * chunk_bytes.value}, chunk_bytes).value();
    engine_ = std::make_unique<Engine>(EngineOptions{.chunks = chunks,
                                                     .frames = frames,
                                                     .chunk_bytes = chunk_bytes,
                                                     .store = hashed(std::move(store), Hashing::verify),
                                                     .habits = LinkHabits{},
                                                     .on_message = {}});
    Engine* const engine = engine_.get();
    engine_->start(open_best_memory({.arena = arena_.data(),
                                     .chunks = chunks,
                                     .frames = frames,
                                     .chunk_bytes = chunk_bytes,
                                     .on_fault = [engine](const Fault& fault) { engine->fault(fault); }})
                       .value());
  }
  ~Tiers() { engine_.reset(); }

  Engine& engine() { return *engine_; }
  std::uint64_t* words(std::uint32_t c) {
    return reinterpret_cast<std::uint64_t*>(arena_.data() + c * chunk_bytes.value);
  }
  void fill(std::uint32_t c, std::uint64_t mark) {
    for (std::size_t i = 0; i < words_per_chunk; ++i) words(c)[i] = mark * 1'000'003 + i;
  }
  bool holds(std::uint32_t c, std::uint64_t mark) {
    for (std::size_t i = 0; i < words_per_chunk; ++i)
      if (words(c)[i] != mark * 1'000'003 + i) return false;
    return true;
  }
  void op(std::vector<ChunkRange> operands, std::vector<detail::OpMoves::Departure> evictions) {
    engine_->begin_op({0}, "op", {.tick = ++tick_, .operands = operands, .planned = true});
    engine_->end_op(evictions);
  }
  bool away(std::uint32_t c) {
    return eventually([&] { return engine_->state({c}) == ChunkState::away; });
  }

 private:
  Mapping arena_;
  std::unique_ptr<Engine> engine_;
  Ticks tick_ = 0;
};

TEST(EngineTiers, APlannedEvictionGoesToItsTier) {
  Tiers tiers(6, 16, two_tiers(8));
  for (std::uint32_t c = 0; c < 2; ++c) {
    tiers.engine().born(at(c)).value();
    tiers.fill(c, c);
  }
  tiers.op({}, {{.chunks = at(0), .source = {}, .target = {1}}, {.chunks = at(1), .source = {}, .target = {2}}});
  ASSERT_TRUE(tiers.away(0) && tiers.away(1));
  Counters counters = tiers.engine().counters();
  EXPECT_EQ(counters.bytes_out.value, 2 * chunk_bytes.value);
  EXPECT_EQ(counters.far_bytes_out.value, chunk_bytes.value);
  tiers.op({at(0), at(1)}, {});
  EXPECT_TRUE(tiers.holds(0, 0) && tiers.holds(1, 1));
  counters = tiers.engine().counters();
  EXPECT_EQ(counters.bytes_in.value, 2 * chunk_bytes.value);
  EXPECT_EQ(counters.far_bytes_in.value, chunk_bytes.value);
}

TEST(EngineTiers, APlannedMoveBetweenSlowTiersPassesNoFrame) {
  Tiers tiers(6, 16, two_tiers(8));
  tiers.engine().born(at(0)).value();
  tiers.fill(0, 5);
  tiers.op({}, {{.chunks = at(0), .source = {}, .target = {1}}});
  ASSERT_TRUE(tiers.away(0));
  tiers.op({}, {{.chunks = at(0), .source = {1}, .target = {2}}});
  ASSERT_TRUE(
      eventually([&] { return tiers.engine().counters().moved_between_slow_tiers.value == chunk_bytes.value; }));
  EXPECT_EQ(tiers.engine().state({0}), ChunkState::away);
  EXPECT_EQ(tiers.engine().counters().bytes_in.value, 0u);
  EXPECT_TRUE(tiers.holds(0, 5));
}

// What still is on its way to the near tier goes on to the far one when it is there.
TEST(EngineTiers, AMoveBetweenSlowTiersWaitsForTheWriteBeforeIt) {
  auto scripted = std::make_unique<testing::ScriptedStore>(open_host_store(chunk_bytes, depth, 8).value());
  testing::ScriptedStore& near = *scripted;
  Tiers tiers(6, 16, layered(std::move(scripted), 8, open_host_store(chunk_bytes, depth).value()).value());
  tiers.engine().born(at(0)).value();
  tiers.fill(0, 5);
  near.close_gate(testing::Direction::write);
  tiers.op({}, {{.chunks = at(0), .source = {}, .target = {1}}});
  ASSERT_TRUE(eventually([&] { return near.waiting() == 1; }));
  EXPECT_EQ(tiers.engine().state({0}), ChunkState::evicting);
  tiers.op({}, {{.chunks = at(0), .source = {1}, .target = {2}}});
  near.open_gate(testing::Direction::write);
  EXPECT_TRUE(
      eventually([&] { return tiers.engine().counters().moved_between_slow_tiers.value == chunk_bytes.value; }));
  EXPECT_TRUE(tiers.holds(0, 5));
}

// What is in fast memory, or dead, has nothing to move.
TEST(EngineTiers, AMoveBetweenSlowTiersOfWhatIsElsewhereIsNothing) {
  Tiers tiers(6, 16, two_tiers(8));
  tiers.engine().born(at(0)).value();
  tiers.fill(0, 5);
  tiers.op({}, {{.chunks = at(0, 3), .source = {1}, .target = {2}}});
  EXPECT_TRUE(tiers.holds(0, 5));
  EXPECT_EQ(tiers.engine().state({0}), ChunkState::resident);
  EXPECT_EQ(tiers.engine().counters().moved_between_slow_tiers.value, 0u);
}

// A slot goes back when its chunk is resident and may change, or dead: what cycles through fast memory never crowds the
// near tier.
TEST(EngineTiers, SlotsOfWhatCameOrDiedHoldNothingNear) {
  Tiers tiers(6, 200, two_tiers(16));
  std::uint32_t dead = 0;
  for (std::uint32_t c = 0; c < 200; ++c) {
    tiers.engine().born(at(c)).value();
    tiers.fill(c, c);
    for (; c >= 12 && dead + 12 <= c; ++dead) {
      EXPECT_TRUE(tiers.holds(dead, dead));
      tiers.engine().died(at(dead));
    }
  }
  EXPECT_EQ(tiers.engine().counters().moved_between_slow_tiers.value, 0u);
  EXPECT_EQ(tiers.engine().counters().far_bytes_out.value, 0u);
}

// Of what start() measures: the figures of links whose speeds and latencies are known.
std::vector<LinkHabits> measured(std::unique_ptr<Store> store, Program* program = nullptr) {
  auto arena = Mapping::reserve({32 * chunk_bytes.value}, chunk_bytes).value();
  Engine engine({.chunks = 32,
                 .frames = 20,
                 .chunk_bytes = chunk_bytes,
                 .store = std::move(store),
                 .program = program,
                 .on_message = {}});
  return engine.start(open_best_memory({.arena = arena.data(),
                                        .chunks = 32,
                                        .frames = 20,
                                        .chunk_bytes = chunk_bytes,
                                        .on_fault = [&engine](const Fault& fault) { engine.fault(fault); }})
                          .value());
}

// A link on the program's clock, which other load does not touch: requests follow each other at its speed, each comes
// `latency` later, and the clock stands while memory is copied.
class LinkByHand final : public StoreWrapper {
 public:
  LinkByHand(std::unique_ptr<Store> inner, ManualProgram& program, std::uint64_t bytes_per_s, Nanoseconds latency)
      : StoreWrapper(std::move(inner)), program_(program), speed_(bytes_per_s), latency_(latency) {}
  void submit(std::span<const StoreRequest> requests) noexcept override {
    for (const StoreRequest& request : requests) {
      free_ = std::max(free_, program_.now()) + transfer_time(slot_bytes(), speed_);
      due_[request.token] = free_ + latency_;
    }
    inner_->submit(requests);
  }
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override {
    if (due_.empty()) return inner_->wait(out, timeout);
    while (arrived_.size() < due_.size()) {
      std::array<StoreCompletion, 16> some;
      const std::size_t count = inner_->wait(some, timeout);
      for (std::size_t i = 0; i < count; ++i) arrived_.push_back(some[i]);
    }
    const auto next = std::min_element(arrived_.begin(), arrived_.end(),
                                       [&](auto& a, auto& b) { return due_[a.token] < due_[b.token]; });
    program_.advance(std::max(Nanoseconds{}, due_[next->token] - program_.now()));
    due_.erase(next->token);
    out[0] = *next;
    arrived_.erase(next);
    return 1;
  }

 private:
  ManualProgram& program_;
  const std::uint64_t speed_;
  const Nanoseconds latency_;
  Nanoseconds free_;
  std::map<std::uint64_t, Nanoseconds> due_;  // by token, of what is on the link
  std::vector<StoreCompletion> arrived_;
};

TEST(EngineTiers, EachTierIsMeasuredApart) {
  constexpr std::uint64_t read = 128 << 20, write = 64 << 20;
  auto far = throttled(open_host_store(chunk_bytes, depth).value(),
                       {.read_bytes_per_s = read, .write_bytes_per_s = write, .latency = {}});
  const auto habits = measured(layered(open_host_store(chunk_bytes, depth, 40).value(), 40, std::move(far)).value());
  ASSERT_EQ(habits.size(), 2u);
  const LinkSpeed &near_speed = habits[0].speed, &far_speed = habits[1].speed;
  EXPECT_LE(far_speed.read, read + read / 20);
  EXPECT_LE(far_speed.write, write + write / 20);
  EXPECT_GT(far_speed.read, 0u);
  EXPECT_GT(near_speed.read, far_speed.read) << "memory is not throttled";
}

TEST(EngineTiers, TheLatencyOfALinkIsWhatOneTransferTakesLonger) {
  constexpr std::uint64_t fast = std::uint64_t{1} << 30;
  constexpr Nanoseconds latency{5'000'000};
  ManualProgram program;
  const auto habits = measured(
      std::make_unique<LinkByHand>(open_host_store(chunk_bytes, 16).value(), program, fast, latency), &program);
  ASSERT_EQ(habits.size(), 1u);
  // 96 reads, 16 at once: six rounds, each of the latency and of what one takes; in the others' time the link is busy
  const auto one = static_cast<double>(transfer_time(chunk_bytes, fast).value), alone = 5e6 + one;
  const double among_many = (6 * std::max(16 * one, alone) + 15 * one) / 96;
  EXPECT_NEAR(static_cast<double>(habits[0].latency.value), alone - among_many, 2e3);
  EXPECT_GE(habits[0].latency, Nanoseconds{4'000'000});
  EXPECT_EQ(habits[0].reads_in_flight, default_in_flight) << "two wait for their first bytes most of the time";
}

TEST(EngineTiers, RandomProgramsKeepTheirBytesWhateverFailsBelow) {
  for (std::uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    constexpr std::uint32_t chunks = 40;
    // a read that fails three times in a row ends the program
    Tiers tiers(8, chunks, two_tiers(4 + below(12), below(2) == 0 ? 0 : 60));
    std::vector<std::optional<std::uint64_t>> marks(chunks);
    for (std::uint64_t event = 1; event <= 1500 && !HasFailure(); ++event) {
      const std::uint32_t c = below(chunks);
      if (!marks[c]) {
        if (!tiers.engine().born(at(c))) continue;
        tiers.fill(c, event);
        marks[c] = event;
      } else if (below(8) == 0) {
        tiers.engine().died(at(c));
        marks[c].reset();
      } else if (below(3) == 0) {
        const TierIndex source{below(2)};
        tiers.op({}, {{.chunks = at(c), .source = source, .target = {source.value + 1 + below(2 - source.value)}}});
      } else {
        tiers.op({at(c)}, {});
        EXPECT_TRUE(tiers.holds(c, *marks[c])) << "chunk " << c;
        if (below(2) == 0) tiers.fill(c, event), marks[c] = event;
      }
    }
    for (std::uint32_t c = 0; c < chunks; ++c) EXPECT_TRUE(!marks[c] || tiers.holds(c, *marks[c])) << "chunk " << c;
  }
}

Move move(std::uint32_t issue, std::uint32_t tensor, std::uint32_t source, std::uint32_t target, Verb verb) {
  return {
      .issue = {issue}, .due = {issue}, .extent = {{tensor}, {}}, .source = {source}, .target = {target}, .verb = verb};
}

TEST(EngineTiers, APlanThatChunksCannotFollowIsRefusedInASentence) {
  Tiers tiers(6, 16, open_host_store(chunk_bytes, depth).value());
  Plan plan;
  plan.moves = {move(0, 0, 0, 1, Verb::evict), move(1, 0, 1, 0, Verb::fetch), move(2, 0, 0, 0, Verb::drop)};
  EXPECT_TRUE(tiers.engine().accepts(plan));
  const auto refused = [&](const Plan& bad) { return tiers.engine().accepts(bad).error().message; };
  Plan bad = plan;
  bad.moves[0].target = {2};
  EXPECT_EQ(refused(bad),
            "memory here cannot move bytes from tier 0 to tier 2; there are fast memory (0) and one slow tier (1), and "
            "what comes goes to fast memory");
  bad = plan;
  bad.in_place.push_back({.op = {4}, .tensor = {0}, .tier = {1}});
  EXPECT_TRUE(tiers.engine().accepts(bad)) << "its slow tier is memory";
  EXPECT_TRUE(Tiers(6, 16, two_tiers(8)).engine().accepts(bad)) << "the nearer one is";
  bad.in_place[0].tier = {2};
  EXPECT_EQ(Tiers(6, 16, two_tiers(8)).engine().accepts(bad).error().message,
            "memory here cannot use an operand where it lies in slow tier 2, which the plan does at op 4");
  bad = plan;
  bad.recomputations.push_back({.before = {5}, .producer = {1}, .tensor = {0}});
  EXPECT_EQ(refused(bad), "memory here cannot run an op again, which the plan does before op 5");
  bad = plan;
  bad.order = {{0}};
  EXPECT_EQ(refused(bad), "memory here cannot run ops in another order than the program's");
}

TEST(EngineTiers, APlanMovesToTheTiersThatThereAreAndFromANearSlowOneToAFarOne) {
  Tiers tiers(6, 16, two_tiers(8));
  Plan plan;
  plan.moves = {move(0, 0, 0, 2, Verb::evict), move(1, 0, 2, 0, Verb::fetch), move(2, 0, 0, 1, Verb::evict),
                move(2, 0, 1, 2, Verb::evict)};
  EXPECT_TRUE(tiers.engine().accepts(plan));
  const auto refused = [&](const Move& bad) {
    Plan alone;
    alone.moves = {bad};
    return tiers.engine().accepts(alone).error().message;
  };
  const std::string why = "; there are fast memory (0) and slow tiers 1 to 2, and what comes goes to fast memory";
  EXPECT_EQ(refused(move(0, 0, 2, 1, Verb::fetch)), "memory here cannot move bytes from tier 2 to tier 1" + why);
  EXPECT_EQ(refused(move(0, 0, 0, 3, Verb::evict)), "memory here cannot move bytes from tier 0 to tier 3" + why);
  EXPECT_EQ(refused(move(0, 0, 3, 0, Verb::fetch)), "memory here cannot move bytes from tier 3 to tier 0" + why);
}

}  // namespace
}  // namespace vedette::tiers_test
