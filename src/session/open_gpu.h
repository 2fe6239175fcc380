// Opens the parts below a GPU session: the device, a range of its memory, pinned host memory, the measured link.
//
// Thread rule: any thread; the device's context is current there afterwards.
#pragma once
#include <memory>
#include <string_view>

#include "session/core.h"

namespace vedette::detail {

// The page tracker of a GPU's memory, which is managed memory then (cuda/managed_tracker.h).
constexpr std::string_view managed_tracker = "cupti";

// options.fast names the GPU. Errors: unsupported for an option's value, unavailable where there is no driver or no
// such GPU, out_of_memory where the budget is more than is free.
Result<std::unique_ptr<SessionCore>> open_gpu_core(SessionOptions options);

}  // namespace vedette::detail
