// The places of one device allocation: an order of pieces by address, each a hole or a block's place. Nothing is ever
// remapped: a block that leaves makes its piece a hole, and whoever comes gets a hole or a run of holes and neighbours
// that are told to leave.
//
// `Mark` is whatever tells when earlier copies in a piece have ended; a hole keeps the marks of all that it is made of.
// No CUDA: offsets only. Thread rule: the caller's lock.
#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

namespace vedette::gpu {

template <class Owner, class Mark>
class Places {
 public:
  enum class From { bottom, top };
  struct Place {
    std::size_t at = 0;
    std::vector<Mark> after;  // to be waited for before the place is written
  };

  explicit Places(std::size_t bytes) : free_(bytes) { pieces_[0] = {.bytes = bytes}; }

  std::size_t free_bytes() const { return free_; }

  // The first hole from one end that is large enough; it is the owner's then.
  std::optional<Place> take(Owner* owner, std::size_t bytes, From from) {
    if (bytes > free_) return {};
    if (from == From::bottom) {
      for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
        if (fits(piece->second, bytes)) return occupy(piece, owner, bytes, from);
      }
    } else {
      for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
        if (fits(piece->second, bytes)) return occupy(std::prev(piece.base()), owner, bytes, from);
      }
    }
    return {};
  }

  // The cheapest run of neighbours that makes room for `bytes` once its owners leave; `cost` of an owner, or nothing if
  // it has to stay. Empty if there is none.
  std::vector<Owner*> cheapest_run(std::size_t bytes, const std::function<std::optional<double>(const Owner&)>& cost) {
    run_.clear();
    double best = 0, sum = 0;
    std::size_t room = 0, first = 0;
    std::optional<std::pair<std::size_t, std::size_t>> found;  // in run_
    for (const auto& [at, piece] : pieces_) {
      const std::optional<double> price = piece.owner == nullptr ? 0.0 : cost(*piece.owner);
      run_.push_back({piece.owner, piece.bytes, price.value_or(0)});
      if (!price) {
        first = run_.size(), room = 0, sum = 0;
        continue;
      }
      room += piece.bytes, sum += *price;
      while (room - run_[first].bytes >= bytes) room -= run_[first].bytes, sum -= run_[first].cost, ++first;
      if (room >= bytes && (!found || sum < best)) best = sum, found = {first, run_.size()};
    }
    std::vector<Owner*> owners;
    if (!found) return owners;
    for (std::size_t i = found->first; i < found->second; ++i) {
      if (run_[i].owner != nullptr) owners.push_back(run_[i].owner);
    }
    return owners;
  }

  // The piece at this place becomes a hole and joins its neighbours.
  void give(std::size_t at, std::vector<Mark> after) {
    auto hole = pieces_.find(at);
    free_ += hole->second.bytes;
    hole->second.owner = nullptr;
    hole->second.after = std::move(after);
    if (const auto next = std::next(hole); next != pieces_.end() && next->second.owner == nullptr) join(hole, next);
    if (hole == pieces_.begin()) return;
    if (const auto before = std::prev(hole); before->second.owner == nullptr) join(before, hole);
  }

  template <class Action>
  void each_owner(const Action& action) const {
    for (const auto& [at, piece] : pieces_) {
      if (piece.owner != nullptr) action(*piece.owner);
    }
  }

 private:
  struct Piece {
    std::size_t bytes = 0;
    Owner* owner = nullptr;
    std::vector<Mark> after;
  };
  struct Step {
    Owner* owner;
    std::size_t bytes;
    double cost;
  };
  using Pieces = std::map<std::size_t, Piece>;

  static bool fits(const Piece& piece, std::size_t bytes) { return piece.owner == nullptr && piece.bytes >= bytes; }

  Place occupy(typename Pieces::iterator hole, Owner* owner, std::size_t bytes, From from) {
    const std::size_t rest = hole->second.bytes - bytes;
    Place place{.at = from == From::top ? hole->first + rest : hole->first, .after = hole->second.after};
    if (rest > 0 && from == From::top) {
      hole->second.bytes = rest;
      pieces_[place.at] = {.bytes = bytes, .owner = owner};
    } else {
      if (rest > 0) pieces_[place.at + bytes] = {.bytes = rest, .after = std::move(hole->second.after)};
      hole->second = {.bytes = bytes, .owner = owner};
    }
    free_ -= bytes;
    return place;
  }

  void join(typename Pieces::iterator first, typename Pieces::iterator second) {
    first->second.bytes += second->second.bytes;
    auto& after = first->second.after;
    after.insert(after.end(), second->second.after.begin(), second->second.after.end());
    pieces_.erase(second);
  }

  Pieces pieces_;
  std::vector<Step> run_;
  std::size_t free_;
};

}  // namespace vedette::gpu
