// Which living tensor of a step has which number in the step's log, by the tensor's offset in the arena. Every op looks
// up its operands here, so a look-up is one multiplication and mostly one line of memory; clear() takes no time.
//
// What always holds: at most half of the places are taken in the running step, so that a search ends. A place of an
// earlier step is free.
//
// Not thread safe: the session's lock guards it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace vedette::detail {

class LoggedOffsets {
 public:
  std::optional<std::uint32_t> find(std::uint64_t offset) const {
    const Place& place = places_[search(offset)];
    return place.round == round_ && place.number != gone ? std::optional(place.number) : std::nullopt;
  }
  // The number there; `fresh` where none was, which is stored.
  std::pair<std::uint32_t, bool> find_or_add(std::uint64_t offset, std::uint32_t fresh) {
    Place* place = &places_[search(offset)];
    if (place->round == round_ && place->number != gone) return {place->number, false};
    if (place->round != round_ && ++taken_ * 2 > places_.size()) {
      make_room();
      place = &places_[search(offset)];
    }
    *place = {.offset = offset, .round = round_, .number = fresh};
    return {fresh, true};
  }
  void erase(std::uint64_t offset) {
    Place& place = places_[search(offset)];
    if (place.round == round_) place.number = gone;  // the place stays taken: others may lie behind it
  }
  void clear() {
    ++round_;
    taken_ = 0;
  }

 private:
  static constexpr std::uint32_t gone = ~0u;
  struct Place {
    std::uint64_t offset = 0, round = 0;
    std::uint32_t number = gone;
  };

  // Where `offset` is, or the place where it would be.
  std::size_t search(std::uint64_t offset) const {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
    std::size_t at = (offset * golden) >> shift_;
    while (places_[at].round == round_ && places_[at].offset != offset) at = (at + 1) & (places_.size() - 1);
    return at;
  }
  // Room for as many again as live; dead ones make room, too.
  void make_room() {
    const auto lives = [&](const Place& place) { return place.round == round_ && place.number != gone; };
    const auto living = static_cast<std::size_t>(std::count_if(places_.begin(), places_.end(), lives));
    const bool grows = living * 4 > places_.size();
    std::vector<Place> before(places_.size() * (grows ? 2 : 1));
    before.swap(places_);
    if (grows) --shift_;
    taken_ = living + 1;  // and the one about to be added
    for (const Place& place : before)
      if (lives(place)) places_[search(place.offset)] = place;
  }

  std::uint64_t round_ = 1;
  std::size_t taken_ = 0;
  unsigned shift_ = 64 - 10;
  std::vector<Place> places_{std::size_t{1} << 10};
};

}  // namespace vedette::detail
