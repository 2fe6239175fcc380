// The records of the recorder's ring: small and trivially copyable, most of them the observer's own.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "vedette/observer.h"

namespace vedette {

struct MoveEvent {
  std::uint64_t step = 0;
  MoveRecord move;
};

struct OpEvent {  // one op that has ended
  std::uint64_t step = 0;
  OpIndex op;
  std::uint32_t name = 0;  // 0: unknown
  Nanoseconds began, ended;
  Bytes resident = unknown, live = unknown;  // when it ended
  std::uint32_t stream = no_stream;          // of a GPU
  static constexpr Bytes unknown{~std::uint64_t{0}};
  static constexpr std::uint32_t no_stream = ~std::uint32_t{0};
};

struct NameEvent {  // the text of a name, sent before its first use; cut to what fits
  std::uint32_t name = 0;
  std::uint8_t length = 0;
  std::array<char, 48> text{};

  static NameEvent of(std::uint32_t name, std::string_view text) noexcept {
    NameEvent event{.name = name};
    event.length = static_cast<std::uint8_t>(std::min(text.size(), event.text.size()));
    std::copy_n(text.begin(), event.length, event.text.begin());
    return event;
  }
};

using Event = std::variant<OpEvent, NameEvent, MoveEvent, StallRecord, FaultRecord>;
static_assert(std::is_trivially_copyable_v<Event>);
static_assert(sizeof(Event) <= 64);

}  // namespace vedette
