// Tensors that a call of watch() or bring_home() leaves where they are: one sentence for each reason, with their number
// and bytes, however many there are.
//
// Thread rule: none of its own.
#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "vedette/units.h"

namespace vedette::adapter {

class LeftOut {
 public:
  enum class Why : std::size_t { foreign, shared, exported, exported_from_arena, other_kind };

  void add(Why why, std::string_view name, Bytes bytes);
  // One sentence for each reason since the last call, where it is another one than the last of that reason.
  void say(const std::function<void(std::string_view)>& say);

 private:
  struct Tensors {
    std::string first;
    std::size_t count = 0;
    Bytes bytes;
  };
  std::array<Tensors, 5> tensors_;  // by reason
  std::array<std::string, 5> said_;
};

}  // namespace vedette::adapter
