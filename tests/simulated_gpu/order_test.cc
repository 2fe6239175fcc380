// The detector alone, against an independent judge: random programs of streams, events and waits, whose order is
// computed as reachability in a graph.
#include "simulated_gpu/order.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace vedette::simulated::order_test {
namespace {

constexpr std::size_t streams = 4, events = 3, places = 6;

// Every command is a node; `reaches` holds what happened before it. Quadratic, and shares nothing with Order.
class Judge {
 public:
  void access(std::size_t stream, std::size_t first, std::size_t count, bool write) {
    const std::size_t node = add(stream);
    for (std::size_t place = first; place < first + count; ++place) {
      for (const Touch& earlier : touched_[place]) {
        if (earlier.stream != stream && (write || earlier.write) && !before_[node].contains(earlier.node)) raced = true;
      }
      // A write hides what came before it: a later access is compared with the write alone.
      if (write) touched_[place].clear();
      touched_[place].push_back({node, stream, write});
    }
  }
  void record(std::size_t event, std::size_t stream) { event_[event] = known_after(stream); }
  void let_wait(std::size_t event, std::size_t stream) { join(stream_[stream], event_[event]); }
  void host_waits(std::size_t event) { join(host_, event_[event]); }
  void host_waits_for_stream(std::size_t stream) { join(host_, known_after(stream)); }
  bool raced = false;

 private:
  using Nodes = std::set<std::size_t>;
  struct Touch {
    std::size_t node, stream;
    bool write;
  };
  static void join(Nodes& into, const Nodes& from) { into.insert(from.begin(), from.end()); }
  Nodes known_after(std::size_t stream) {
    Nodes all = stream_[stream];
    join(all, host_);
    return all;
  }
  std::size_t add(std::size_t stream) {
    before_.push_back(known_after(stream));
    stream_[stream] = before_.back();
    stream_[stream].insert(before_.size() - 1);
    return before_.size() - 1;
  }
  std::vector<Nodes> before_;
  Nodes stream_[streams], event_[events], host_;
  std::vector<Touch> touched_[places + 3];
};

TEST(Order, AgreesWithReachabilityInRandomPrograms) {
  std::size_t raced = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t bound) { return random() % bound; };
    Order order;
    Judge judge;
    std::shared_ptr<const VectorClock> clocks[events];
    for (auto& clock : clocks) clock = std::make_shared<const VectorClock>();
    for (int command = 0; command < 12 && !judge.raced; ++command) {
      const std::size_t stream = below(streams), event = below(events), first = below(places), count = 1 + below(3);
      const bool write = below(3) == 0;
      switch (below(10)) {
        case 0:
          judge.record(event, stream);
          clocks[event] = order.record(stream);
          break;
        case 1:
        case 2:
        case 4:
        case 5:
          judge.let_wait(event, stream);
          order.stream_waits(stream, *clocks[event]);
          break;
        case 3:
          if (below(4) == 0) {
            judge.host_waits(event);
            order.host_waits(*clocks[event]);
          } else if (below(4) == 0) {
            judge.host_waits_for_stream(stream);
            order.host_waits(*order.record(stream));
          }
          break;
        default:
          judge.access(stream, first, count, write);
          order.access(stream, {.begin = 64 + first * 8, .end = 64 + (first + count) * 8}, write, "access");
      }
      ASSERT_EQ(!order.races().empty(), judge.raced) << "seed " << seed << ", command " << command;
    }
    raced += judge.raced ? 1 : 0;
  }
  EXPECT_GT(raced, 300u) << "the programs are too tame to show anything";
  EXPECT_LT(raced, 2900u) << "the programs are too wild to show anything";
}

TEST(Order, BytesThatOnlyTouchDoNotOverlap) {
  Order order;
  order.access(0, {.begin = 0, .end = 100}, true, "left");
  order.access(1, {.begin = 100, .end = 200}, true, "right");
  order.access(2, {.begin = 50, .end = 51}, true, "middle");
  EXPECT_EQ(order.races().size(), 1u);
}

TEST(Order, ARaceNamesTheReaderThatIsNotOrdered) {
  Order order;
  order.access(0, {.begin = 0, .end = 100}, false, "early", 7);
  order.access(1, {.begin = 0, .end = 100}, false, "late", 8);
  order.stream_waits(2, *order.record(1));
  const std::vector<Order::Race> found = order.access(2, {.begin = 40, .end = 60}, true, "writer", 9);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first.what, "early");
  EXPECT_EQ(found[0].first.stack, 7u);
  EXPECT_FALSE(found[0].first.write);
  EXPECT_EQ(found[0].second.stack, 9u);
  EXPECT_EQ(found[0].bytes.begin, 40u);
  EXPECT_EQ(found[0].bytes.end, 60u);
}

TEST(Order, AnAccessReturnsEachCommandThatItRacesWith) {
  Order order;
  order.access(0, {.begin = 0, .end = 50}, true, "left");
  order.access(1, {.begin = 50, .end = 100}, true, "right");
  EXPECT_EQ(order.access(2, {.begin = 0, .end = 100}, false, "reader").size(), 2u);
  EXPECT_EQ(order.races().size(), 1u) << "one sentence for an access";
}

TEST(Order, MemoryThatGoesAwayNamesWhatMayStillRun) {
  Order order;
  order.access(3, {.begin = 0, .end = 100}, false, "aten::relu");
  EXPECT_EQ(order.take_away({.begin = 50, .end = 60}), "aten::relu on stream 3 may still read there");
  order.host_waits(*order.record(3));
  EXPECT_EQ(order.take_away({.begin = 0, .end = 100}), "");
}

}  // namespace
}  // namespace vedette::simulated::order_test
