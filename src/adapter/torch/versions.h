// libtorch differs here between the minor versions that vedette is written for, 2.11 to 2.15. Every #if on a version
// stands here, or, of CUDA's part, in versions_cuda.h, with a line of why. Thread rule: none of its own.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <string_view>

namespace vedette::adapter {

// Minor version: those after it were never tried (behaviour.h).
constexpr int newest_tried = 15;

// libtorch has no kind for others.
#if TORCH_VERSION_MINOR >= 13  // since then a kind is the address of its name, which others may have, too
inline constexpr std::string_view name_of_our_debug_info = "vedette";
inline constexpr c10::DebugInfoKind our_debug_info{&name_of_our_debug_info};
#else  // a member of an enum, whose last one is used by libtorch's own tests alone
inline constexpr c10::DebugInfoKind our_debug_info = c10::DebugInfoKind::TEST_INFO_2;
#endif

// Since 2.13 no tensor has names. A template, since only there an expression may lack its function.
template <class Tensor>
bool has_names(const Tensor& tensor) {
  if constexpr (requires { tensor.has_names(); }) return tensor.has_names();
  return false;
}

// Since 2.13 a storage tells one listener that it is about to be written. Templates, as above.
template <class Storage>
inline constexpr bool hears_of_writes = requires(Storage& storage) {
  storage.clear_materializer();
};
// False: it tells another one, or none.
template <class Storage>
bool hear_of_writes(Storage& storage, void (*listener)(Storage*)) {
  if constexpr (hears_of_writes<Storage>) {
    if (storage.has_materializer()) return false;
    storage.set_materializer(listener);
    return true;
  }
  return false;
}
template <class Storage>
void hear_of_no_writes(Storage& storage) {
  if constexpr (hears_of_writes<Storage>) storage.clear_materializer();
}

}  // namespace vedette::adapter
