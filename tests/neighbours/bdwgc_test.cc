// The Boehm-Demers-Weiser collector in one process with a session: in its incremental mode it write-protects its heap
// and learns from SIGSEGV what was written. It collects while memory of ours moves, it chains to us or we to it, and it
// finds its pointers in memory of ours that is away, when that is told as a root.
#define GC_THREADS
#include <gc.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "neighbours/loop_result.h"

namespace vedette::bdwgc_test {
namespace {

using namespace testing;

std::atomic<int> seen_by_collector{0};
struct sigaction collectors {};

// Stands before the collector's handler and counts.
void count_and_pass_on(int signal, siginfo_t* info, void* context) {
  ++seen_by_collector;
  collectors.sa_sigaction(signal, info, context);
}

void start_collector() {
  ::setenv("GC_USE_GETWRITEWATCH", "0", 1);  // protection and SIGSEGV, not the kernel's soft-dirty bits
  GC_INIT();
  GC_enable_incremental();
  if (GC_is_incremental_mode() == 0 || GC_incremental_protection_needs() == GC_PROTECTS_NONE) ::_exit(30);
  struct sigaction action {};
  action.sa_sigaction = count_and_pass_on;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  if (::sigaction(SIGSEGV, &action, &collectors) != 0 || (collectors.sa_flags & SA_SIGINFO) == 0) ::_exit(31);
}

struct Node {
  Node* next;
  std::uint64_t number;
};

// A list that is written again and again, and garbage beside it.
class Lists {
 public:
  void work() {
    for (std::uint64_t i = 0; i < 3000; ++i) {
      auto* const node = static_cast<Node*>(GC_MALLOC(sizeof(Node)));
      *node = {head_, count_};
      if (i % 4 == 0) head_ = node, ++count_;
      if (i % 64 == 0 && head_->next != nullptr) head_->next->number = count_ - 2;  // a write to what may be protected
    }
    GC_gcollect();
  }
  bool whole() const {
    std::uint64_t number = count_;
    for (const Node* node = head_; node != nullptr; node = node->next)
      if (node->number != --number) return false;
    return number == 0;
  }

 private:
  Node* head_ = nullptr;
  std::uint64_t count_ = 0;
};

int loop_beside_lists(Session& session, std::uint64_t right) {
  Lists lists;
  Loop loop(session, 5, 120'000);
  loop.in_op = [&](std::size_t op) {
    if (op % 4 == 0) lists.work();
  };
  std::uint64_t all = 0;
  for (std::uint64_t s = 0; s < 5; ++s) all = all * 31 + loop.step(s);
  if (all * 31 + loop.state() != right) return 1;
  if (!lists.whole()) return 2;
  return bytes_survive(session) ? 0 : 3;
}

class Bdwgc : public ::testing::TestWithParam<Forbidden> {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a conservative collector reads whole stacks, which sanitizers take for errors";
#endif
    forbid(GetParam());
  }
  void TearDown() override { forbid(Forbidden::nothing); }
};

TEST_P(Bdwgc, CollectsBesideALoopWhenItCameFirst) {
  const std::uint64_t right = right_result(5);
  const auto status = in_child([&] {
    start_collector();
    const auto session = open_session(tight_budget, "host", "vedette");
    const int wrong = loop_beside_lists(*session, right);
    ::_exit(wrong != 0 ? wrong : seen_by_collector > 0 ? 0 : 4);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST_P(Bdwgc, CollectsBesideALoopWhenItCameLater) {
  const std::uint64_t right = right_result(5);
  const auto status = in_child([&] {
    const auto session = open_session(tight_budget, "host", "vedette");
    if (!bytes_survive(*session)) ::_exit(5);
    start_collector();
    if (!bytes_survive(*session)) ::_exit(6);  // the collector's handler stands first, and calls ours
    const int wrong = loop_beside_lists(*session, right);
    ::_exit(wrong != 0 ? wrong : seen_by_collector > 0 ? 0 : 4);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

TEST_P(Bdwgc, FindsItsPointersInMemoryThatIsAway) {
  const auto status = in_child([] {
    start_collector();
    const auto session = open_session(tight_budget, "host", "on-demand");
    Block roots(*session, 400'000), other(*session, 900'000);
    auto* const first = const_cast<char*>(static_cast<const char*>(roots.address()));
    GC_add_roots(first, first + 400'000);
    for (std::size_t i = 0; i < roots.count(); ++i) roots[i] = 0;
    for (std::size_t i = 0; i < roots.count(); i += 50) {
      auto* const node = static_cast<Node*>(GC_MALLOC(sizeof(Node)));
      *node = {nullptr, i};
      roots[i] = reinterpret_cast<std::uint64_t>(node);
    }
    for (int again = 0; again < 5; ++again) {
      other.fill(2);  // the roots are away now
      Lists().work();
      for (int garbage = 0; garbage < 20'000; ++garbage)
        *static_cast<std::uint64_t*>(GC_MALLOC(sizeof(Node))) = ~std::uint64_t{0};
    }
    for (std::size_t i = 0; i < roots.count(); i += 50)
      if (reinterpret_cast<const Node*>(roots[i])->number != i) ::_exit(1);
    GC_remove_roots(first, first + 400'000);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

INSTANTIATE_TEST_SUITE_P(Faults, Bdwgc, ::testing::Values(Forbidden::nothing, Forbidden::userfaultfd),
                         [](const auto& forbidden) { return name_of_faults(forbidden.param); });

}  // namespace
}  // namespace vedette::bdwgc_test
