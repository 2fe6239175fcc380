// One range of addresses with pieces of two kinds: in device memory, and in pinned memory of the host, which kernels
// read and write where it lies. A piece is a handle. It changes its kind at quiet points only, with its bytes.
//
// What always holds: each piece has memory, and all of its bytes. A move needs memory for one piece more, of the kind
// that the piece becomes.
//
// Thread rule: one thread at a time, in which the device's context is current. While a piece moves, and at the end,
// nothing that is queued uses the range.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/device.h"

namespace vedette::cuda {

class MixedRange {
 public:
  enum class Kind : std::uint8_t { device, host };

  // At least `bytes`, in pieces of at least `piece` bytes, all of them the host's.
  static Result<MixedRange> make(std::shared_ptr<const Device>, Bytes bytes, Bytes piece);
  MixedRange(MixedRange&&) noexcept;
  MixedRange& operator=(MixedRange&&) = delete;
  ~MixedRange();

  // The bytes that a piece has where one of `piece` bytes is asked for: whole granules of both kinds of memory.
  static Result<Bytes> piece_of(const Device&, Bytes piece);

  Address address() const noexcept { return address_; }
  Bytes piece() const noexcept { return {piece_}; }
  std::size_t pieces() const noexcept { return pieces_.size(); }
  Kind kind(std::size_t piece) const { return pieces_[piece].kind; }
  // The host waits for the copy. An error leaves the piece as it was.
  Result<void> move(std::size_t piece, Kind to);

 private:
  struct Piece {
    Handle handle = 0;
    Kind kind = Kind::host;
  };
  explicit MixedRange(std::shared_ptr<const Device> device) noexcept : device_(std::move(device)) {}
  static AllocationProperties properties(const Device&, Kind);
  Address address_of(std::size_t piece) const noexcept { return address_ + piece * piece_; }
  Result<Handle> create(Kind) const;
  // Maps a handle that stays the caller's, and gives the device access. The host gets access to its own memory, too,
  // where the driver allows it: a copy then finds memory of one owner on both sides.
  Result<void> put(Address at, Handle, Kind) const;
  void take_away(Address at) const noexcept;
  Result<void> copy_aside(std::size_t piece, Handle to, Kind kind) const;

  std::shared_ptr<const Device> device_;
  std::size_t piece_ = 0, reserved_ = 0;
  Address address_ = 0;  // behind the pieces there is room to copy one
  std::vector<Piece> pieces_;
};

}  // namespace vedette::cuda
