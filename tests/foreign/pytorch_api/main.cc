// The entry of PyTorch's own tests: as they are, or with --guarded under one guard of 2 MiB for the whole program,
// where each test is a step. Tests of CUDA are left out, as PyTorch's entry does where there is none.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "vedette/torch.h"

namespace {

using namespace vedette::literals;

class StepOfEachTest : public ::testing::EmptyTestEventListener {
 public:
  StepOfEachTest() : guard_({.fast_memory = 2_MiB, .slow = "host", .chunk = 16_KiB, .on_message = [](auto) {}}) {}

  void OnTestStart(const ::testing::TestInfo&) override {
    try {
      step_.emplace(guard_);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "the step before this test left an error: " << error.what();
    }
  }
  void OnTestEnd(const ::testing::TestInfo&) override { step_.reset(); }
  void OnTestProgramEnd(const ::testing::UnitTest&) override {
    const auto counted = guard_.counters();
    std::printf("guarded: %.1f MiB left fast memory, %.1f MiB came back\n",
                static_cast<double>(counted.bytes_out.value) / (1 << 20),
                static_cast<double>(counted.bytes_in.value) / (1 << 20));
  }

 private:
  vedette::Guard guard_;
  std::optional<vedette::Guard::Step> step_;
};

}  // namespace

int main(int arguments, char** values) {
  ::testing::InitGoogleTest(&arguments, values);
  std::string filter = GTEST_FLAG_GET(filter);
  filter += filter.find('-') == std::string::npos ? "-" : ":";
  GTEST_FLAG_SET(filter, filter + "*_CUDA:*_MultiCUDA");
  if (arguments > 1 && std::string_view(values[1]) == "--guarded")
    ::testing::UnitTest::GetInstance()->listeners().Append(new StepOfEachTest);  // owned and deleted there
  return RUN_ALL_TESTS();
}
