// What a guard asks libtorch at its opening: each answer that is not as it was is named, and nothing crashes.
#include "adapter/torch/behaviour.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/neg.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>

#include "adapter/torch/operator_table.h"
#include "adapter/torch/versions.h"
#include "vedette/torch.h"

namespace vedette::testing::behaviour_test {
namespace {

using adapter::Libtorch;
using adapter::libtorch_as_it_is;
using adapter::what_differs;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr const char *allocation = "an allocation of CPU memory does not come to vedette",
                     *storage = "a tensor's storage does not follow its new pointer",
                     *inputs = "an operator does not announce its inputs",
                     *results = "an operator does not announce its results",
                     *layout = "not laid out as its headers say";

TEST(Behaviour, OfThisLibtorchIsAsItWas) {
  EXPECT_EQ(what_differs(), std::nullopt);
  std::array<double, 50> microseconds{};
  for (double& each : microseconds) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(what_differs(), std::nullopt);
    each = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("the questions take %.0f us\n", microseconds[microseconds.size() / 2]);
  EXPECT_LT(microseconds.front(), 10'000.0);
}

TEST(Behaviour, NamesAnAllocationThatGoesElsewhere) {
  Libtorch libtorch = libtorch_as_it_is();
  libtorch.make = [](std::int64_t floats) {
    static std::array<float, 16> memory{};
    return at::from_blob(memory.data(), {floats});
  };
  EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr(allocation)));
}

TEST(Behaviour, NamesAStorageThatKeepsItsOldPointer) {
  Libtorch libtorch = libtorch_as_it_is();
  libtorch.exchange = [](c10::StorageImpl&, c10::DataPtr) {};
  EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr(storage)));
}

TEST(Behaviour, NamesAnOperatorThatIsNotAnnounced) {
  Libtorch libtorch = libtorch_as_it_is();
  libtorch.negate = [](const at::Tensor& tensor) {
    const at::DisableRecordFunctionGuard off;
    return at::neg(tensor);
  };
  EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr(inputs)));
}

// Announced by hand, as an operator would be.
at::Tensor announced(const at::Tensor& tensor, std::vector<c10::IValue> given) {
  at::RecordFunction function(at::RecordScope::FUNCTION);
  function.before("aten::neg", c10::ArrayRef<const c10::IValue>(given.data(), given.size()));
  const at::DisableRecordFunctionGuard off;
  return at::neg(tensor);
}

TEST(Behaviour, NamesAnOperatorWhoseInputsAreEmptyOrAreOthers) {
  Libtorch libtorch = libtorch_as_it_is();
  libtorch.negate = [](const at::Tensor& tensor) { return announced(tensor, {}); };
  EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr(inputs)));
  libtorch.negate = [](const at::Tensor& tensor) { return announced(tensor, {tensor.alias()}); };
  EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr(inputs)));
  libtorch.negate = [](const at::Tensor& tensor) { return announced(tensor, {1.0}); };
  EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr(inputs)));
}

TEST(Behaviour, NamesAnOperatorThatReadsOtherMemory) {
  Libtorch libtorch = libtorch_as_it_is();
  libtorch.negate = [](const at::Tensor& tensor) { return at::neg(tensor).zero_(); };
  EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr("does not read where its operand's storage points")));
}

TEST(Behaviour, NamesEachStructureThatLiesEightBytesFurther) {
  for (const std::ptrdiff_t bytes : {8, -8}) {
    Libtorch libtorch = libtorch_as_it_is();
    libtorch.beside = {.data_ptr = bytes};
    EXPECT_THAT(what_differs(libtorch), Optional(HasSubstr(allocation))) << bytes;
    libtorch.beside = {.storage = bytes};
    EXPECT_THAT(what_differs(libtorch), Optional(AnyOf(HasSubstr(storage), HasSubstr(layout)))) << bytes;
    libtorch.beside = {.tensor = bytes};
    EXPECT_THAT(what_differs(libtorch), Optional(AnyOf(HasSubstr(storage), HasSubstr(layout)))) << bytes;
    libtorch.beside = {.value = bytes};
    EXPECT_THAT(what_differs(libtorch), Optional(AnyOf(HasSubstr(inputs), HasSubstr(layout)))) << bytes;
    libtorch.beside = {.operator_call = bytes};
    EXPECT_THAT(what_differs(libtorch), Optional(AnyOf(HasSubstr(inputs), HasSubstr(results), HasSubstr(layout))))
        << bytes;
  }
}

TEST(Behaviour, ThatDiffersIsAGuardsRefusal) {
  { const Guard before({.fast_memory = Bytes{16 << 20}, .slow = "host"}); }
  c10::SetAllocator(c10::kCPU, c10::GetDefaultCPUAllocator(), 255);  // the program takes ours away
  try {
    const Guard guard({.fast_memory = Bytes{16 << 20}, .slow = "host"});
    FAIL() << "a guard opened that no allocation comes to";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.cause, Cause::unsupported);
    EXPECT_THAT(failure.what(), AllOf(HasSubstr(allocation), HasSubstr("install a torch that was tried")));
  }
}

TEST(Behaviour, OfAVersionThatWasNeverTriedIsSaidOnce) {
  EXPECT_EQ(adapter::never_tried(TORCH_VERSION_MINOR, TORCH_VERSION), "");
  EXPECT_EQ(adapter::never_tried(adapter::newest_tried + 1, "2.99.0"),
            "libtorch 2.99.0 was never tried with vedette; what a guard stands on is as it was in 2.15");
}

// Its schema calls the state read. cuDNN draws from it, so that the next pass finds another one.
TEST(OperatorTable, KnowsThatCudnnsDropoutWritesItsState) {
  const auto rnn = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_cudnn_rnn", "");
  at::RecordFunction function(at::RecordScope::FUNCTION);
  function.before(std::cref(rnn.schema()));
  using adapter::Operator;
  adapter::OperatorTable table;
  const Operator& known = table.of(function);
  const auto index = rnn.schema().argumentIndexWithName("dropout_state");
  ASSERT_TRUE(index && known.uses.size() == rnn.schema().arguments().size());
  for (std::size_t i = 0; i < known.uses.size(); ++i) {
    EXPECT_EQ((known.uses[i] & Operator::write) != 0, i == static_cast<std::size_t>(*index))
        << rnn.schema().arguments()[i].name();
  }
}

}  // namespace
}  // namespace vedette::testing::behaviour_test
