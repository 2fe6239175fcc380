// oneMKL's vector functions compute the same from their first call on, when resolve_vector_math() has been called
// before.
#include <ATen/Parallel.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "vedette/torch.h"

namespace vedette::test::vector_math_test {
namespace {

constexpr int differs = 3;

// In a process that has computed nothing yet: what two threads compute at once at first, and what they compute after
// that.
[[noreturn]] void compare_first_with_second(bool resolved) {
  ::alarm(60);
  at::set_num_threads(2);
  if (resolved) resolve_vector_math();
  at::Tensor numbers = at::rand({192, 192});
  for (int i = 0; i < 3; ++i) numbers = at::relu(at::mm(numbers, numbers) / 200);  // by now both threads are awake
  for (const auto& function :
       {at::sqrt, at::exp, at::tanh, at::log, at::erf, at::sin, at::cos, at::atan, at::asin, at::acos}) {
    const at::Tensor first = function(numbers);
    if (!first.equal(function(numbers))) ::_exit(differs);
  }
  ::_exit(0);
}

int processes_that_differ(int processes, bool resolved) {
  int count = 0;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child == 0) compare_first_with_second(resolved);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    count += WIFEXITED(status) && WEXITSTATUS(status) == differs;
  }
  return count;
}

TEST(VectorMath, ComputesTheSameFromTheFirstCallOn) {
  EXPECT_EQ(processes_that_differ(150, true), 0);
  std::printf("of 20 processes that did not resolve it, %d had other bits at first\n",
              processes_that_differ(20, false));
}

}  // namespace
}  // namespace vedette::test::vector_math_test
