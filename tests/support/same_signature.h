// Does a function's type of ours stand for one of a C header? For declarations that are written out here, so that no
// header is needed to build, and compared where the header is installed.
#pragma once
#include <type_traits>

namespace vedette::testing {

constexpr bool same(auto mine, auto theirs) { return static_cast<long long>(mine) == static_cast<long long>(theirs); }

// A parameter of ours stands for one of theirs: numbers of the same size and kind, pointers to such or to the same
// struct by size.
template <class Mine, class Theirs>
constexpr bool stands_for() {
  if constexpr (std::is_pointer_v<Mine> != std::is_pointer_v<Theirs>) {
    return false;
  } else if constexpr (std::is_pointer_v<Mine>) {
    using M = std::remove_pointer_t<Mine>;
    using T = std::remove_pointer_t<Theirs>;
    if constexpr (std::is_pointer_v<M> && std::is_pointer_v<T>)
      return true;
    else if constexpr (std::is_void_v<M> || std::is_void_v<T>)
      return std::is_void_v<M> == std::is_void_v<T>;
    else if constexpr (std::is_function_v<M> || std::is_function_v<T>)
      return std::is_function_v<M> && std::is_function_v<T>;
    else if constexpr (requires {
                         sizeof(M);
                         sizeof(T);
                       })
      return sizeof(M) == sizeof(T) && std::is_class_v<M> == std::is_class_v<T>;
    else
      return true;  // opaque handles
  } else {
    return sizeof(Mine) == sizeof(Theirs) && std::is_class_v<Mine> == std::is_class_v<Theirs>;
  }
}

// Functions that answer with a number of an int's size.
template <class Answer, class... Mine, class Result, class... Theirs>
constexpr bool same_signature(Answer (*)(Mine...), Result (*)(Theirs...)) {
  if constexpr (sizeof...(Mine) != sizeof...(Theirs) || sizeof(Result) != sizeof(Answer))
    return false;
  else
    return (stands_for<Mine, Theirs>() && ...);
}

}  // namespace vedette::testing
