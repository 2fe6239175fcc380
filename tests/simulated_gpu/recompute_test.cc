// Small models on the simulated GPU under a guard that drops all that can be recomputed at every opportunity. Losses,
// parameters, buffers, optimizer state and generators are those of the run without a guard, and the budget holds.
#include "simulated_gpu/training_process.h"

namespace vedette::testing::recompute_test {
namespace {

class Recomputing : public SimulatedGuard {
 protected:
  void expect_equal_with_all_dropped(const std::string& model, std::initializer_list<int> percents) {
    expect_equal_bits_at(model, percents, "", "--recompute-all");
  }
};

// Dropout, layer norms, batch norms with running statistics and ReLU in place.
TEST_F(Recomputing, AnMlpWithDropoutHasThePlainRunsBits) { expect_equal_with_all_dropped("mlp", {100, 50}); }
TEST_F(Recomputing, AGptHasThePlainRunsBits) { expect_equal_with_all_dropped("gpt", {50, 25}); }
TEST_F(Recomputing, AMobileNetHasThePlainRunsBits) { expect_equal_with_all_dropped("mobilenetv2", {50}); }

}  // namespace
}  // namespace vedette::testing::recompute_test
