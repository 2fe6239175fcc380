// Holes, pieces and their registration: see pinned_pool.h.
#include "cuda/pinned_pool.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <thread>
#include <vector>

#include "base/quiet_thread.h"
#include "base/readable.h"

namespace vedette::cuda {
namespace {

constexpr Bytes huge_page = 2_MiB;

// Pages are there before they are pinned, so that the driver does not fault them in one by one. The first step of a
// training evicts on demand and waits for them: several threads have the kernel zero them.
void populate(const Mapping& memory) {
  ::madvise(memory.data(), memory.bytes().value, MADV_HUGEPAGE);  // a wish: smaller pages work as well
#ifdef MADV_POPULATE_WRITE
  constexpr std::size_t least_part = 8 << 20, most_threads = 8;
  const std::size_t bytes = memory.bytes().value,
                    threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, most_threads),
                    part = std::max<std::size_t>(
                        (bytes / threads + huge_page.value - 1) / huge_page.value * huge_page.value, least_part);
  const auto make = [&](std::size_t from) {
    ::madvise(memory.data() + from, std::min(part, bytes - from), MADV_POPULATE_WRITE);
  };
  std::vector<std::jthread> others;
  try {
    for (std::size_t from = part; from < bytes; from += part)
      others.push_back(start_quiet_thread<std::jthread>([&make, from] { make(from); }));
  } catch (const std::system_error&) {  // pages that are missing are the driver's to fault in
  }
  make(0);
#endif
}

}  // namespace

PinnedPool::PinnedPool(std::shared_ptr<const Device> device, const Options& options)
    : device_(std::move(device)), options_(options), most_(options.most.value), of_driver_(options.of_driver) {}

PinnedPool::~PinnedPool() {
  const Current current(*device_);
  const BesideCaptures here(*device_);
  for (const Piece& piece : pieces_) give_back_to_driver(piece);
}

void PinnedPool::give_back_to_driver(const Piece& piece) const {
  if (piece.mapping)
    device_->calls().host_unregister(piece.data);
  else
    device_->calls().host_free(piece.data);
}

std::size_t PinnedPool::rounded(Bytes bytes) const noexcept {
  const std::size_t unit = options_.alignment.value;
  return (std::max<std::size_t>(bytes.value, 1) + unit - 1) / unit * unit;
}

bool PinnedPool::bind_to_nearest_node(const Mapping& memory) const noexcept {
  const std::optional<int> node = device_->numa_node();
  if (!node || *node >= 64) return false;
  constexpr int preferred = 1;  // MPOL_PREFERRED: a full node is no failure
  const unsigned long mask = 1ul << *node;
  return ::syscall(SYS_mbind, memory.data(), memory.bytes().value, preferred, &mask, sizeof mask * 8, 0) == 0;
}

Result<void> PinnedPool::grow(std::size_t bytes) {
  if (most_ != 0 && registered_ + bytes > most_)
    return Error{.cause = Cause::out_of_memory,
                 .message = "pinned memory is limited to " + readable(Bytes{most_}) + ", and " +
                            readable({registered_}) +
                            " are in use; raise the host's budget (\"host:SIZE\"), or put a disk below it "
                            "(\"host:SIZE+nvme:DIRECTORY\")"};
  auto piece = of_driver_ ? allocated(bytes) : registered(bytes);
  if (!piece) return piece.error();
  holes_[piece->data] = piece->bytes = bytes;
  registered_ += bytes;
  pieces_.push_back(std::move(*piece));
  return {};
}

Result<PinnedPool::Piece> PinnedPool::registered(std::size_t bytes) {
  auto memory = Mapping::reserve({bytes}, huge_page);
  if (!memory) return memory.error();
  ::madvise(memory->data(), bytes, MADV_DONTFORK);
  const bool bound = bind_to_nearest_node(*memory);
  populate(*memory);
  std::byte* const data = memory->data();
  const BesideCaptures here(*device_);
  constexpr unsigned flags = host_register_portable | host_register_mapped;  // ops use rows there (gpu/place_rows.h)
  const int number = device_->calls().host_register(data, bytes, flags);
  if (number == success) {
    on_nearest_node_ = bound;
    return Piece{.data = data, .mapping = std::move(*memory), .bytes = bytes};
  }
  memory->empty();  // its pages are the driver's to take
  auto piece = allocated(bytes);
  if (!piece) return piece.error();  // the last resort's reason
  of_driver_ = number != error_out_of_memory;
  return piece;
}

Result<PinnedPool::Piece> PinnedPool::allocated(std::size_t bytes) const {
  void* data = nullptr;
  const BesideCaptures here(*device_);
  const int number = device_->calls().host_allocate(&data, bytes, host_allocate_portable);
  if (number != success)
    return device_->driver().error(number, "pinning " + readable({bytes}) + " of host memory", Driver::Memory::of_host);
  return Piece{.data = static_cast<std::byte*>(data), .mapping = std::nullopt, .bytes = bytes};
}

// Best fit: the smallest hole that is wide enough.
std::byte* PinnedPool::take_hole(std::size_t bytes) {
  auto best = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second >= bytes && (best == holes_.end() || hole->second < best->second)) best = hole;
  }
  if (best == holes_.end()) return nullptr;
  const auto [at, width] = *best;
  holes_.erase(best);
  if (width > bytes) holes_[at + bytes] = width - bytes;
  taken_ += bytes;
  return at;
}

Result<std::byte*> PinnedPool::take(Bytes wanted) {
  const std::size_t bytes = rounded(wanted);
  const std::lock_guard lock(guard_);
  if (std::byte* const slot = take_hole(bytes); slot != nullptr) return slot;
  const std::size_t piece = piece_for(bytes);
  auto grown = grow(piece);
  if (!grown && piece > bytes) grown = grow(bytes);  // the driver may still have so much
  if (!grown) {
    const bool by_driver = grown.error().cause == Cause::out_of_memory && (most_ == 0 || registered_ + bytes <= most_);
    if (by_driver && registered_ > 0) refused_ = true, most_ = registered_;
    return grown.error();
  }
  expected_ -= std::min(expected_, piece);
  return take_hole(bytes);
}

std::size_t PinnedPool::piece_for(std::size_t bytes) const {
  constexpr std::size_t part = 20, least = 2 << 20;
  const std::size_t most = options_.piece.value;
  const std::size_t wanted = std::min(most, std::max({expected_, registered_ / part, least}));
  const std::size_t whole = expected_ > 0 ? std::max(wanted, bytes) : std::max<std::size_t>(wanted / bytes, 1) * bytes;
  // The last piece before the limit may be smaller than the others.
  return most_ > registered_ ? std::max(bytes, std::min(whole, most_ - registered_)) : whole;
}

void PinnedPool::expect(Bytes bytes) {
  const std::lock_guard lock(guard_);
  expected_ = bytes.value;
}

bool PinnedPool::regroup(Bytes wanted) {
  const std::size_t bytes = rounded(wanted);
  const std::lock_guard lock(guard_);
  const auto is_free = [&](const Piece& piece) {
    const auto hole = holes_.find(piece.data);
    return hole != holes_.end() && hole->second == piece.bytes;
  };
  if (most_ == 0) return false;
  std::size_t free = most_ - registered_;
  for (const Piece& piece : pieces_) free += is_free(piece) ? piece.bytes : 0;
  if (free < bytes) return false;
  const Current current(*device_);
  std::erase_if(pieces_, [&](const Piece& piece) {
    if (registered_ + bytes <= most_ || !is_free(piece)) return false;
    holes_.erase(piece.data);
    registered_ -= piece.bytes;
    const BesideCaptures here(*device_);
    give_back_to_driver(piece);
    return true;
  });
  return grow(bytes).ok();
}

std::byte* PinnedPool::take_registered(Bytes wanted) {
  const std::lock_guard lock(guard_);
  return take_hole(rounded(wanted));
}

void PinnedPool::give_back(std::byte* slot, Bytes wanted) {
  const std::size_t bytes = rounded(wanted);
  const std::lock_guard lock(guard_);
  taken_ -= bytes;
  auto hole = holes_.emplace(slot, bytes).first;
  const auto begins_piece = [&](const std::byte* at) {
    return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& each) { return each.data == at; });
  };
  // A slot lies in one piece: holes of two pieces stay two, also where the pieces touch.
  if (const auto next = std::next(hole);
      next != holes_.end() && hole->first + hole->second == next->first && !begins_piece(next->first)) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin() || begins_piece(hole->first)) return;
  if (const auto before = std::prev(hole); before->first + before->second == hole->first) {
    before->second += hole->second;
    holes_.erase(hole);
  }
}

PinnedPool::Usage PinnedPool::usage() const {
  const std::lock_guard lock(guard_);
  return {.registered = {registered_},
          .taken = {taken_},
          .on_nearest_node = on_nearest_node_,
          .of_driver = of_driver_,
          .refused = refused_};
}

}  // namespace vedette::cuda
