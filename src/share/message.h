// Messages between a daemon that shares memory among jobs, and its clients on the same machine: 64 bytes each.
//
//     client -> daemon   hello, step after each one, resized, done when a turn is given up, bye; list
//     daemon -> client   lease (the answer to hello), resize, turn; client, one for each, and list at their end
//
// Pure; values.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "vedette/units.h"

namespace vedette::share {

constexpr std::uint16_t protocol = 1;

enum class Say : std::uint8_t { hello, lease, step, resize, resized, turn, done, bye, list, client };

struct Message {
  std::uint16_t version = protocol;
  Say say = Say::list;
  std::uint8_t yes = 0;   // of turn: it begins, otherwise it is over, or another job has it; of lease: refused
  std::uint32_t pid = 0;  // of turn and client: whose figures these are
  // hello, step: the part that the job keeps while it waits. Others: its lease; of turn that is no: the holder's.
  std::uint64_t lease = 0;
  std::uint64_t floor = 0, want = 0;  // of lease: `want` is all there is
  std::int64_t
      step_ns = 0,
      other_ns = 0;  // of a step; its stall, of hello the remaining time (0: unknown), of resize and resized its number
  std::array<char, 16> name{};  // shortened, padded with 0

  std::string_view name_text() const noexcept {
    return {name.data(), static_cast<std::size_t>(std::find(name.begin(), name.end(), '\0') - name.begin())};
  }
  void set_name(std::string_view text) noexcept {
    name = {};
    std::copy_n(text.begin(), std::min(text.size(), name.size() - 1), name.begin());
  }
};
static_assert(sizeof(Message) == 64);

}  // namespace vedette::share
