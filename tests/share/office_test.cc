// The daemon's books: what clients are told, and what holds after each event, whatever clients do.
#include "share/office.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <string>

namespace vedette::office_test {
namespace {

using share::ClientId;
using share::Letter;
using share::Message;
using share::Office;
using share::policy_named;
using share::Say;

constexpr Nanoseconds second{1'000'000'000};

Message hello(std::uint64_t floor_mib, std::uint64_t want_mib, std::uint64_t rest_mib = 16) {
  Message message{.say = Say::hello, .lease = rest_mib << 20};
  message.floor = floor_mib << 20;
  message.want = want_mib << 20;
  message.set_name("job");
  return message;
}

Message step(const Message& needs, std::int64_t ns = second.value) {
  Message message = needs;
  message.say = Say::step;
  message.step_ns = ns;
  return message;
}

std::vector<Letter> of(std::vector<Letter> letters, Say say) {
  std::erase_if(letters, [&](const Letter& letter) { return letter.message.say != say; });
  return letters;
}

TEST(Office, GivesTheFirstAllItWantsAndTellsTheSecondWhomItWaitsFor) {
  Office office(*policy_named("fifo"), 256_MiB);
  auto letters = office.hear(1, 41, hello(64, 200), {});
  ASSERT_EQ(of(letters, Say::turn).size(), 1u);
  EXPECT_EQ(of(letters, Say::turn)[0].message.lease, 200u << 20);
  office.hear(1, 41, step(hello(64, 200)), second);
  letters = of(office.hear(2, 42, hello(64, 200), second), Say::turn);
  ASSERT_EQ(letters.size(), 1u);
  EXPECT_EQ(letters[0].to, 2u);
  EXPECT_EQ(letters[0].message.yes, 0);
  EXPECT_EQ(letters[0].message.pid, 41u);
  EXPECT_EQ(letters[0].message.lease, 200u << 20);
  EXPECT_EQ(letters[0].message.step_ns, second.value);
  EXPECT_EQ(letters[0].message.name_text(), "job");
  letters = of(office.left(1, second), Say::turn);
  ASSERT_EQ(letters.size(), 1u) << "its death gives all on";
  EXPECT_EQ(letters[0].message.yes, 1);
  EXPECT_EQ(office.held(), 200_MiB);
}

TEST(Office, GrowsOneOnlyWhenTheOtherHasGivenBack) {
  Office office(*policy_named("pack"), 256_MiB);
  office.hear(1, 41, hello(64, 256), {});
  EXPECT_EQ(office.held(), 256_MiB);
  auto letters = office.hear(2, 42, hello(64, 128), {});
  EXPECT_TRUE(of(letters, Say::turn).empty() || of(letters, Say::turn)[0].message.yes == 0);
  ASSERT_EQ(of(letters, Say::resize).size(), 1u);
  const Message resize = of(letters, Say::resize)[0].message;
  EXPECT_LT(resize.lease, 256u << 20);
  Message late{.say = Say::resized, .lease = resize.lease, .other_ns = resize.other_ns - 1};
  EXPECT_TRUE(office.hear(1, 41, late, {}).empty()) << "an answer to something else";
  late.other_ns = resize.other_ns;
  letters = of(office.hear(1, 41, late, {}), Say::turn);
  ASSERT_EQ(letters.size(), 1u);
  EXPECT_EQ(letters[0].to, 2u);
  EXPECT_EQ(letters[0].message.yes, 1);
  EXPECT_EQ(office.held(), 256_MiB);
}

// Both run at their floor, and the first has what is left, since nothing is known. The second one's steps stall, then
// the first one's, by less: it is the second that gets more.
TEST(Office, PoursMemoryWhereStepsStallMost) {
  Office office(*policy_named("pack"), 256_MiB);
  std::map<ClientId, std::uint64_t> lease;
  const auto follow = [&](std::vector<Letter> letters) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const auto& [to, message] = letters[i];
      if (message.say == Say::turn && message.yes == 1) lease[to] = message.lease >> 20;
      if (message.say != Say::resize) continue;
      lease[to] = message.lease >> 20;
      const Message done{.say = Say::resized, .lease = message.lease, .other_ns = message.other_ns};
      const auto more = office.hear(to, 0, done, {});
      letters.insert(letters.end(), more.begin(), more.end());
    }
  };
  const auto steps = [&](ClientId id, std::int64_t stall_ms) {
    Message message = step(hello(64, 192));
    message.other_ns = stall_ms * 1'000'000;
    for (int i = 0; i < 2; ++i) follow(office.hear(id, 0, message, {}));
  };
  follow(office.hear(1, 41, hello(64, 192), {}));
  follow(office.hear(2, 42, hello(64, 192), {}));
  EXPECT_EQ(lease[1], 192u);
  EXPECT_EQ(lease[2], 64u);
  steps(1, 0);
  steps(2, 500);
  EXPECT_EQ(lease[1], 64u);
  EXPECT_EQ(lease[2], 192u);
  steps(1, 200);
  steps(2, 10);
  EXPECT_EQ(lease[2], 192u);
  steps(1, 600);
  EXPECT_EQ(lease[1], 192u) << "its steps stall longer than the other's did";
  steps(2, 620);
  EXPECT_EQ(lease[1], 192u) << "by less than an eighth of a step";
}

TEST(Office, TakesTheTurnOfOneThatSaysNothingButNotItsMemory) {
  Office office(*policy_named("fifo"), 256_MiB);
  office.hear(1, 41, hello(64, 160), {});
  office.hear(1, 41, step(hello(64, 160)), second);
  office.hear(2, 42, hello(64, 200), second);
  EXPECT_TRUE(office.tick({20 * second.value}).empty());
  const auto letters = of(office.tick({40 * second.value}), Say::turn);
  ASSERT_GE(letters.size(), 1u);
  Message turn;
  for (const Letter& letter : letters)
    if (letter.to == 2 && letter.message.yes == 1) turn = letter.message;
  EXPECT_EQ(turn.lease, 96u << 20) << "what is left";
  EXPECT_EQ(office.held(), 256_MiB);
  office.hear(1, 41, step(hello(64, 160)), {50 * second.value});
  EXPECT_LE(office.held(), 256_MiB) << "it speaks again";
}

// However long the client's earlier turns were.
TEST(Office, UnderFairEveryTurnLastsAQuantum) {
  share::Policy fair = *policy_named("fair");
  fair.quantum = {4 * second.value};
  Office office(fair, 256_MiB);
  ClientId runs = 0;
  std::vector<int> steps;  // of each turn
  const auto follow = [&](const std::vector<Letter>& letters) {
    for (const Letter& each : of(letters, Say::turn)) {
      if (each.message.yes == 0) continue;
      runs = each.to;
      steps.push_back(0);
    }
  };
  follow(office.hear(1, 41, hello(64, 64), {}));
  follow(office.hear(2, 42, hello(64, 64), {}));
  for (std::int64_t s = 1; s <= 16; ++s) {
    ++steps.back();
    const auto letters = of(office.hear(runs, 0, step(hello(64, 64)), {s * second.value}), Say::turn);
    const bool asked = std::any_of(letters.begin(), letters.end(),
                                   [&](const Letter& each) { return each.to == runs && each.message.yes == 0; });
    if (asked) follow(office.hear(runs, 0, {.say = Say::done}, {s * second.value}));
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(4, 4, 4, 4, 0));
}

TEST(Office, AShorterJobIsServedAtTheEndOfTheStepThatRuns) {
  Office office(*policy_named("srtf"), 256_MiB);
  const auto lasts = [](std::int64_t seconds) {
    Message message = hello(64, 64);
    message.other_ns = seconds * second.value;
    return message;
  };
  office.hear(1, 41, lasts(100), {});
  office.hear(1, 41, step(hello(64, 64)), second);
  for (const Letter& each : of(office.hear(2, 42, lasts(5), second), Say::turn))
    EXPECT_EQ(each.to, 2u) << "the other's second step runs";
  const auto letters = of(office.hear(1, 41, step(hello(64, 64)), {2 * second.value}), Say::turn);
  ASSERT_EQ(letters.size(), 1u);
  EXPECT_EQ(letters[0].to, 1u);
  EXPECT_EQ(letters[0].message.yes, 0);
}

// The steps of two jobs in 89 rounds after the floor of the first, or of both, has risen to about the whole memory.
std::map<ClientId, int> steps_with_risen_floors(const char* policy, ClientId last_to_rise, Bytes capacity) {
  Office office(*policy_named(policy), capacity);
  std::map<ClientId, Message> needs;
  std::map<ClientId, int> steps;
  std::map<ClientId, bool> turn, asked;
  Nanoseconds now;
  const auto follow = [&](std::vector<Letter> letters) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const auto [to, message] = letters[i];
      if (message.say == Say::turn) {
        asked[to] = message.yes == 0 && turn[to];
        turn[to] = turn[to] || message.yes == 1;
      }
      if (message.say != Say::resize) continue;
      const Message done{.say = Say::resized, .lease = message.lease, .other_ns = message.other_ns};
      const auto more = office.hear(to, 7, done, now);
      letters.insert(letters.end(), more.begin(), more.end());
    }
  };
  for (const ClientId id : {1, 2}) {
    needs[id] = hello(32, 200);
    follow(office.hear(id, 7, needs[id], now));
  }
  for (int round = 0; round < 100; ++round) {
    now += second;
    if (round == 10)
      for (ClientId id = 1; id <= last_to_rise; ++id) needs[id] = hello(255, 255);
    for (const ClientId id : {1, 2}) {
      if (!turn[id]) continue;
      steps[id] += round > 10 ? 1 : 0;
      follow(office.hear(id, 7, step(needs[id]), now));
      if (!asked[id]) continue;
      turn[id] = asked[id] = false;
      follow(office.hear(id, 7, {.say = Say::done}, now));
    }
    follow(office.tick(now));
  }
  return steps;
}

TEST(Office, ATurnComesToEachStartedJobHoweverLargeItsOpsHaveBecome) {
  for (const char* policy : {"srtf", "fair", "pack"}) {
    for (const ClientId last_to_rise : {1, 2}) {
      SCOPED_TRACE(std::string(policy) + ", " + std::to_string(last_to_rise) + " of 2 rise");
      auto steps = steps_with_risen_floors(policy, last_to_rise, 256_MiB);
      EXPECT_GT(steps[1], 20);
      EXPECT_GT(steps[2], 20);
    }
  }
}

TEST(Office, AMemoryThatIsNotWholeChunksHasTurnsToo) {
  auto steps = steps_with_risen_floors("fair", 2, {255'500'000});
  EXPECT_GT(steps[1], 20);
  EXPECT_GT(steps[2], 20);
}

TEST(Office, RefusesAFloorBeyondTheMemory) {
  Office office(*policy_named("fifo"), 256_MiB);
  const auto letters = office.hear(1, 41, hello(300, 400), {});
  ASSERT_EQ(letters.size(), 1u);
  EXPECT_EQ(letters[0].message.say, Say::lease);
  EXPECT_EQ(letters[0].message.yes, 1);
  EXPECT_EQ(office.clients(), 0u);
}

// Clients that follow late, in part or not at all, die, and say what makes no sense.
class World {
 public:
  World(const char* policy, std::uint64_t seed) : office_(*policy_named(policy), capacity), random_(seed) {}

  void run(int events) {
    for (int e = 0; e < events && !::testing::Test::HasFailure(); ++e) {
      now_.value += static_cast<std::int64_t>(random_() % 3'000'000'000);
      one_event();
      check();
    }
  }
  std::uint64_t turns() const { return turns_; }

 private:
  static constexpr Bytes capacity = 1_GiB;
  struct Client {
    Message needs;
    std::deque<Message> unread;
    std::uint64_t fills = 0;  // bytes that it may have in memory
    bool turn = false, asked = false, stopped = false;
  };

  void one_event() {
    const std::uint64_t what = random_() % 16;
    if (what == 0 || clients_.empty()) return arrive();
    const auto at = std::next(clients_.begin(), static_cast<std::ptrdiff_t>(random_() % clients_.size()));
    const ClientId id = at->first;
    Client& client = at->second;
    if (what == 1 && clients_.size() > 2) {
      clients_.erase(at);
      return deliver(office_.left(id, now_));
    }
    if (what == 2) client.stopped = !client.stopped;
    if (what == 3) return deliver(office_.tick(now_));
    if (client.stopped) return;
    if (!client.unread.empty() && what < 10) return read(id, client);
    if (what == 10) {
      client.needs.floor = (16 + random_() % 900) << 20;
      client.needs.want = random_() % 2 << 40;
    }
    if (!client.turn) return;
    deliver(office_.hear(id, 7, step(client.needs, static_cast<std::int64_t>(random_() % 1'000'000'000)), now_));
    if (!client.asked) return;
    client.turn = client.asked = false;
    deliver(office_.hear(id, 7, {.say = Say::done}, now_));
  }

  void arrive() {
    if (clients_.size() >= 8) return;
    const std::uint64_t floor = 16 + random_() % 900;
    const ClientId id = ++last_;
    clients_[id].needs = hello(floor, floor + random_() % 900, random_() % 100);
    deliver(office_.hear(id, 7, clients_[id].needs, now_));
  }

  void read(ClientId id, Client& client) {
    const Message message = client.unread.front();
    client.unread.pop_front();
    if (message.say == Say::turn && message.yes == 1) {
      ++turns_;
      client.turn = true;
      client.asked = false;
      if (client.fills == 0) client.fills = message.lease;
    }
    if (message.say == Say::turn && message.yes == 0) client.asked = client.turn;
    if (message.say != Say::resize) return;
    client.fills = message.lease;
    Message answer{.say = Say::resized, .lease = client.fills, .other_ns = message.other_ns};
    deliver(office_.hear(id, 7, answer, now_));
  }

  void deliver(const std::vector<Letter>& letters) {
    for (const Letter& letter : letters)
      if (const auto found = clients_.find(letter.to); found != clients_.end())
        found->second.unread.push_back(letter.message);
  }

  void check() const {
    ASSERT_LE(office_.held(), capacity);
    std::uint64_t filled = 0;
    for (const auto& [id, client] : clients_) filled += client.fills;
    ASSERT_LE(filled, capacity.value) << "what clients fill";
  }

  Office office_;
  std::mt19937_64 random_;
  Nanoseconds now_;
  ClientId last_ = 0;
  std::map<ClientId, Client> clients_;
  std::uint64_t turns_ = 0;
};

TEST(Office, NeverLeasesMoreThanThereIs) {
  for (const char* policy : {"fifo", "srtf", "fair", "pack"}) {
    std::uint64_t turns = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(std::string(policy) + ", seed " + std::to_string(seed));
      World world(policy, seed);
      world.run(400);
      if (HasFailure()) return;
      turns += world.turns();
    }
    EXPECT_GT(turns, 200u) << policy;
  }
}

}  // namespace
}  // namespace vedette::office_test
