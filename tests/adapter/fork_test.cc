// Children of fork() while a guard lives, as a data loader's workers are: they compute on tensors of their own.
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include "adapter/training.h"
#include "support/child.h"

namespace vedette::test::fork_test {
namespace {

using testing::died_of;
using testing::exited_well;
using ::testing::HasSubstr;
using testing::in_child;
using testing::listen_to_child;

GuardOptions small_guard() { return {.fast_memory = Bytes{4 << 20}, .slow = "host", .chunk = small_chunk}; }

// What a worker does: makes tensors, computes, and sends bytes.
at::Tensor a_batch(int seed) {
  at::set_num_threads(1);  // OpenMP's other threads are not there after a fork
  const at::Tensor x = at::arange(1 << 18, at::kFloat).reshape({512, 512}).add(seed);
  at::Tensor weights = at::ones({512, 512}).requires_grad_(true);
  at::matmul(x, weights).sum().backward();
  return weights.grad().slice(0, 0, 4).contiguous().clone();
}

TEST(Fork, AWorkerComputesOnTensorsOfItsOwn) {
  const at::Tensor expected = a_batch(3);
  Guard guard(small_guard());
  for (const bool in_step : {false, true}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const auto work = [&] {
      const at::Tensor batch = a_batch(3);
      if (Session::owns(batch.const_data_ptr())) ::_exit(1);
      const auto sent = ::write(ends[1], batch.const_data_ptr(), batch.nbytes());
      ::_exit(sent == static_cast<ssize_t>(batch.nbytes()) ? 0 : 2);
    };
    const auto run = [&] {
      const auto status = in_child(work);
      EXPECT_TRUE(exited_well(status)) << status.value_or(-1) << " in a step: " << in_step;
      at::Tensor got = at::empty_like(expected);
      ASSERT_EQ(::read(ends[0], got.mutable_data_ptr(), got.nbytes()), static_cast<ssize_t>(got.nbytes()));
      EXPECT_TRUE(at::equal(got, expected));
    };
    if (in_step) {
      auto scope = guard.step();
      run();
    } else {
      run();
    }
    ::close(ends[0]);
    ::close(ends[1]);
  }
  const at::Tensor after = at::ones({1 << 16});
  EXPECT_TRUE(Session::owns(after.const_data_ptr()));
}

TEST(Fork, AChildThatTouchesAGuardedTensorEndsWithASentence) {
  Guard guard(small_guard());
  const at::Tensor guarded = at::ones({1 << 16});
  const auto heard = listen_to_child([&] {
    testing::leave_no_core();
    at::set_num_threads(1);
    if (guarded.sum().item<float>() == 0) ::_exit(1);
  });
  EXPECT_TRUE(died_of(heard.status, SIGABRT)) << heard.status.value_or(-1);
  EXPECT_THAT(heard.said, HasSubstr("a child of fork() touched a tensor of its parent's guard"));
}

TEST(Fork, AChildsStepAndWatchThrowAndItMayEndTheGuard) {
  auto guard = std::make_unique<Guard>(small_guard());
  at::Tensor guarded = at::ones({1 << 16});
  const auto status = in_child([&] {
    at::set_num_threads(1);
    try {
      auto step = guard->step();
      ::_exit(1);
    } catch (const Failure& failure) {
      if (std::string(failure.what()).find("child of fork") == std::string::npos) ::_exit(2);
    }
    guarded.reset();
    guard.reset();
    const at::Tensor ordinary = at::ones({1 << 16}) + 1;
    if (ordinary.sum().item<float>() != 2 << 16 || Session::owns(ordinary.const_data_ptr())) ::_exit(3);
    Guard own(small_guard());
    const at::Tensor inside = at::ones({1 << 16}) + 1;
    if (!Session::owns(inside.const_data_ptr()) || inside.sum().item<float>() != 2 << 16) ::_exit(4);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
  EXPECT_EQ(guarded.sum().item<float>(), 1 << 16);
}

// A thread forks while another one's op runs, which is a thread that the child does not have.
std::atomic<bool> op_runs{false}, child_ended{false};

TEST(Fork, AChildHasAGuardOfItsOwnThoughAnOpOfItsParentRan) {
  Guard guard(small_guard());
  const at::Tensor a = at::ones({64, 64});
  std::optional<int> status;
  std::thread forks([&] {
    while (!op_runs) std::this_thread::yield();
    status = in_child([] {
      ::alarm(20);
      at::set_num_threads(1);
      Guard own(small_guard());
      const at::Tensor inside = at::ones({1 << 16}) + 1;
      if (!Session::owns(inside.const_data_ptr())) ::_exit(3);
    });
    child_ended = true;
  });
  // Called after the guard's own callback: the op has begun.
  const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        if (std::string_view(function.name()) != "aten::mm" || op_runs.exchange(true)) return nullptr;
        while (!child_ended) std::this_thread::yield();
        return nullptr;
      }));
  const float sum = a.mm(a).sum().item<float>();
  forks.join();
  at::removeCallback(handle);
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
  EXPECT_EQ(sum, 64 * 64 * 64);
}

}  // namespace
}  // namespace vedette::test::fork_test
