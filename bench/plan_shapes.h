// Two training steps in the shapes of real ones, as traces. Sizes are whole units of 2 MiB. Times are spread by
// floating-point work, so that the step takes as long as the real one on a 2-core machine.
#pragma once
#include "vedette/model.h"

namespace vedette::bench {
Trace gpt_step();     // 12 layers of 640, vocabulary 8,000, batch 8 x 256, Adam
Trace resnet_step();  // ResNet-18, 64 x 3 x 32 x 32, Adam
}  // namespace vedette::bench
