// Pieces, tiers and links.
#include "sim/traffic.h"

#include <algorithm>
#include <string>

#include "base/assert.h"
#include "base/room_for_reads.h"

namespace vedette::sim {

Traffic::Traffic(const Trace& trace, const Machine& machine, const Plan& plan)
    : trace_(trace),
      machine_(machine),
      plan_(plan),
      writes_wait_(machine.habits.writes_wait),
      used_(machine.tiers.size()),
      leaves_to_near_(machine.tiers.size()),
      kept_(machine.tiers.size()),
      pins_(trace.tensors.size()) {}

std::optional<Error> Traffic::prepare() {
  const std::size_t tiers = machine_.tiers.size();
  line_at_.assign(tiers * tiers, none);
  for (const Link& link : machine_.links) {
    if (link.source.value >= tiers || link.target.value >= tiers)
      return Error{Cause::malformed_input, "replay: a link of the machine joins a tier that is not there"};
    line_at_[link.source.value * tiers + link.target.value] = static_cast<std::uint32_t>(lines_.size());
    lines_.push_back({.link = &link});
  }
  auto pieces = cut_pieces(trace_, plan_, machine_.granule);
  if (!pieces) return pieces.error();
  pieces_ = *std::move(pieces);
  place_at_home();
  return std::nullopt;
}

// A tensor that does not fit at home starts further down.
void Traffic::place_at_home() {
  for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
    if (!trace_.tensors[t].persistent) continue;
    for (std::uint32_t p = pieces_.of_tensor[t].begin; p < pieces_.of_tensor[t].end; ++p) {
      std::uint32_t home = plan_.home.empty() ? 0 : plan_.home[t].value;
      while (home + 1 < machine_.tiers.size() &&
             used_[home] + size_in(pieces_.all[p], home) > machine_.tiers[home].capacity.value)
        ++home;
      place(p, home);
    }
  }
}

// ---- room ----

std::uint64_t Traffic::free_room(std::uint32_t tier) const {
  const std::uint64_t capacity = machine_.tiers[tier].capacity.value;
  return capacity > used_[tier] ? capacity - used_[tier] : 0;
}

void Traffic::occupy(const Piece& piece, std::uint32_t tier) {
  used_[tier] += size_in(piece, tier);
  if (tier == 0) peak_ = std::max(peak_, used_[0]);
}

void Traffic::vacate(Piece& piece, std::uint32_t tier) {
  if ((piece.copies >> tier & 1) == 0) return;
  piece.copies &= ~(std::uint64_t{1} << tier);
  used_[tier] -= size_in(piece, tier);
}

bool Traffic::take(std::uint64_t bytes) {
  if (used_[0] + bytes > machine_.tiers[0].capacity.value) return false;
  used_[0] += bytes;
  peak_ = std::max(peak_, used_[0]);
  return true;
}

// A slower tier forgets the copies it keeps beside those in faster ones, oldest first, as far as needed.
bool Traffic::make_room_in(std::uint32_t tier, std::uint64_t bytes) {
  const std::uint64_t capacity = machine_.tiers[tier].capacity.value;
  std::deque<std::uint32_t>& kept = kept_[tier];
  while (used_[tier] + bytes > capacity && !kept.empty()) {
    Piece& piece = pieces_.all[kept.front()];
    kept.pop_front();
    if (piece.place != Piece::Place::nowhere && piece.tier != tier) vacate(piece, tier);
  }
  // Where a fetch takes the bytes along, the two pieces swap places.
  return used_[tier] + bytes <= capacity + (one_copy() ? leaves_to_near_[tier] : 0);
}

void Traffic::expect(const Piece& piece, bool comes) {
  if (piece.tier == 0 || piece.target != 0) return;
  leaves_to_near_[piece.tier] += comes ? size_in(piece, piece.tier) : 0;
  leaves_to_near_[piece.tier] -= comes ? 0 : size_in(piece, piece.tier);
}

// ---- links ----

void Traffic::advance_to(std::int64_t time) {
  for (;;) {
    const std::int64_t end = next_end();
    const std::int64_t until = std::min(end, time);
    for (Line& line : lines_) {
      if (!line.busy) continue;
      if (line.transfers(now_)) line.work -= line.share * (until - now_);
      busy_ += until - now_;
    }
    now_ = until;
    if (end > time) return;
    for (Line& line : lines_) {
      if (line.transfers(now_) && line.work <= 0) finish(line);
    }
    start_jobs();
  }
}

bool Traffic::in_flight() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.busy; });
}

void Traffic::start_jobs() {
  for (bool again = true; again;) {
    again = false;
    for (Line& line : lines_) {
      while (!line.busy && !line.queue.empty() && start(line)) again = true;
    }
  }
  // Shares change with the lines that transfer, and most calls start nothing.
  std::uint64_t transferring = 0;
  for (const Line& line : lines_) transferring = transferring << 1 | (line.transfers(now_) ? 1 : 0);
  if (transferring == shared_by_ && lines_.size() <= 64) return;
  shared_by_ = transferring;
  share_out(lines_, now_, machine_.host_memory);
}

// Starts the head of the queue, throws it away where it is void, sends it elsewhere where its target is full; false: it
// waits.
bool Traffic::start(Line& line) {
  const Job job = line.queue.front();
  Piece& piece = pieces_.all[job.piece];
  if (piece.place != Piece::Place::queued || piece.ticket != job.ticket) {
    line.queue.pop_front();
    return true;
  }
  const std::uint32_t target = piece.target;
  const std::uint64_t bytes = piece.bytes.end - piece.bytes.begin;
  if (target == 0) {
    const std::uint64_t clear = piece.urgent ? 0 : kept_clear_ + awaited_room_ + plan_.reserved.value;
    if (used_[0] + piece.room + clear > machine_.tiers[0].capacity.value) return false;
  } else if (pinned(piece.tensor) && piece.tier == 0) {
    cancel(job.piece);
    line.queue.pop_front();
    return true;
  } else if (piece.tier == 0 && waits_for_reads()) {
    return false;
  } else if (!make_room_in(target, size_in(piece, target))) {
    return redirect(line);
  }
  line.queue.pop_front();
  occupy(piece, target);
  if (piece.awaited && target == 0) awaited_room_ -= piece.room;
  piece.place = Piece::Place::moving;
  line.busy = true;
  line.running = job.piece;
  line.began = now_;
  // Requests overlap: only a link that was idle makes the first byte wait.
  const Nanoseconds latency = line.ended == now_ ? Nanoseconds{} : line.link->latency;
  line.first_byte = now_ + latency.value;
  if (bytes != line.timed)
    line.timed = bytes, line.whole_work = transfer_time({bytes}, line.link->bytes_per_s).value * work_per_ns;
  line.work = line.whole_work;
  if (result_ != nullptr && target == 0) result_->bytes_in += Bytes{bytes};
  if (result_ != nullptr && piece.tier == 0) result_->bytes_out += Bytes{bytes};
  if (piece.tier == 0) remapped_ += granules(piece);
  update(job.piece);
  return true;
}

// Whether an eviction waits for a fetch that runs or could start. Where room is scarce, or an op waits for room, it
// does not.
bool Traffic::waits_for_reads() const {
  const std::uint64_t capacity = machine_.tiers[0].capacity.value;
  if (!writes_wait_ || kept_clear_ > 0 || used_[0] + room_for_reads * machine_.granule.value >= capacity) return false;
  return std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    if (line.link->target.value != 0) return false;
    if (line.busy || line.queue.empty()) return line.busy;
    const Piece& next = pieces_.all[line.queue.front().piece];
    const std::uint64_t clear = next.urgent ? 0 : awaited_room_ + plan_.reserved.value;
    return used_[0] + next.room + clear <= capacity;
  });
}

// The next slower tier that has room and a link.
bool Traffic::redirect(Line& line) {
  const Job job = line.queue.front();
  Piece& piece = pieces_.all[job.piece];
  for (std::uint32_t tier = piece.target + 1U; tier < machine_.tiers.size(); ++tier) {
    const std::uint32_t other = line_of(piece.tier, tier);
    if (other == none || !make_room_in(tier, size_in(piece, tier))) continue;
    line.queue.pop_front();
    piece.target = static_cast<std::uint8_t>(tier);
    enqueue(job.piece, other, job.urgent);
    return true;
  }
  return false;
}

void Traffic::finish(Line& line) {
  line.busy = false;
  line.ended = now_;
  const std::uint32_t index = line.running;
  Piece& piece = pieces_.all[index];
  if (result_ != nullptr) {
    result_->link_busy[static_cast<std::size_t>(&line - lines_.data())].value +=
        now_ - std::max(line.began, measured_from_);
    if (timeline_)
      result_->timeline.push_back(
          {.kind = Bar::Kind::move,
           .tensor = {piece.tensor},
           .source = {piece.tier},
           .target = {piece.target},
           .bytes = {piece.bytes.end - piece.bytes.begin},
           .time = {{std::max<std::int64_t>(0, line.began - measured_from_)}, {now_ - measured_from_}}});
  }
  const std::uint32_t source = piece.tier, target = piece.target;
  expect(piece, false);
  piece.copies |= std::uint64_t{1} << target;
  piece.place = Piece::Place::lies;
  piece.tier = static_cast<std::uint8_t>(target);
  if (source == 0) leaving_ -= piece.room;
  if (target != 0 || one_copy()) vacate(piece, source);
  if (target == 0 && (piece.copies >> source & 1) != 0) kept_[source].push_back(index);
  if (piece.doomed) {
    piece.doomed = false;
    release(index);
    return;
  }
  if (target == 0) {
    remapped_ += granules(piece);
    arrived_near(piece);
  }
  if (target != 0 && (piece.awaited || piece.back != none)) {
    piece.place = Piece::Place::lies;
    const bool urgent = piece.awaited;
    piece.back = none;
    move(index, 0, none, urgent);
  }
  update(index);
}

void Traffic::arrived_near(Piece& piece) {
  if (!piece.awaited) return;
  piece.awaited = false;
  --awaited_;
}

// ---- moves ----

void Traffic::cancel(std::uint32_t index) {
  Piece& piece = pieces_.all[index];
  if (piece.place != Piece::Place::queued) return;
  if (piece.tier == 0) leaving_ -= piece.room;
  expect(piece, false);
  piece.place = Piece::Place::lies;
  piece.urgent = false;
  ++piece.ticket;
}

void Traffic::enqueue(std::uint32_t index, std::uint32_t line, bool urgent) {
  Piece& piece = pieces_.all[index];
  piece.place = Piece::Place::queued;
  piece.urgent = urgent;
  expect(piece, true);
  const Job job{.piece = index, .ticket = ++piece.ticket, .urgent = urgent};
  std::deque<Job>& queue = lines_[line].queue;
  if (!urgent) {
    queue.push_back(job);
    return;
  }
  std::size_t at = 0;
  while (at < queue.size() && queue[at].urgent) ++at;
  queue.insert(queue.begin() + static_cast<std::ptrdiff_t>(at), job);
}

void Traffic::queue(const Move& move, std::uint32_t number) {
  const Span<std::uint32_t> range = number == none ? pieces_.inside(move.extent) : pieces_.of_move[number];
  for (std::uint32_t p = range.begin; p < range.end; ++p) {
    const Piece& piece = pieces_.all[p];
    if (move.verb == Verb::drop) {
      if (!pinned(piece.tensor)) drop(p);
    } else if (piece.place != Piece::Place::nowhere) {
      const bool away_from_there =
          piece.place == Piece::Place::lies && piece.tier != move.source.value && move.verb == Verb::evict;
      if (!away_from_there) this->move(p, move.target.value, number, false);
    }
  }
}

void Traffic::move(std::uint32_t index, std::uint32_t target, std::uint32_t from_plan, bool urgent) {
  Piece& piece = pieces_.all[index];
  if (piece.place == Piece::Place::nowhere) return;
  if (piece.place == Piece::Place::moving) {
    if (target == 0 && piece.target != 0) piece.back = from_plan == none ? none - 1 : from_plan;
    return;
  }
  if (piece.place == Piece::Place::queued) {
    if (piece.target == target && (piece.urgent || !urgent)) return;
    cancel(index);
  }
  if (piece.tier == target) return update(index);
  if (piece.dead && target != 0) return release(index);
  // the slower tier has the same bytes: they leave for nothing
  if (target > piece.tier && (piece.copies >> target & 1) != 0) {
    if (result_ != nullptr && piece.tier == 0) result_->bytes_dropped += Bytes{piece.bytes.end - piece.bytes.begin};
    if (piece.tier == 0) remapped_ += granules(piece);
    vacate(piece, piece.tier);
    piece.tier = static_cast<std::uint8_t>(target);
    return update(index);
  }
  const std::uint32_t line = line_of(piece.tier, target);
  if (line == none) return;
  piece.target = static_cast<std::uint8_t>(target);
  if (piece.tier == 0) leaving_ += piece.room;
  enqueue(index, line, urgent);
  update(index);
}

bool Traffic::await(std::uint32_t index) {
  Piece& piece = pieces_.all[index];
  if (piece.place == Piece::Place::nowhere) return false;
  if (piece.tier == 0 && piece.place == Piece::Place::queued) cancel(index), update(index);
  if (piece.tier == 0 && piece.place == Piece::Place::lies) return false;
  const bool on_its_way = piece.place == Piece::Place::moving || piece.place == Piece::Place::queued;
  if (!piece.awaited) {
    piece.awaited = true;
    ++awaited_;
    if (piece.place != Piece::Place::moving || piece.target != 0) awaited_room_ += piece.room;
  }
  if (piece.place != Piece::Place::moving) move(index, 0, none, true);
  return !on_its_way;
}

void Traffic::drop(std::uint32_t index) {
  Piece& piece = pieces_.all[index];
  if (piece.place == Piece::Place::nowhere) return;
  piece.dropped = true;
  if (result_ != nullptr && piece.tier == 0) result_->bytes_dropped += Bytes{piece.bytes.end - piece.bytes.begin};
  release(index);
}

void Traffic::place(std::uint32_t index, std::uint32_t tier) {
  Piece& piece = pieces_.all[index];
  occupy(piece, tier);
  piece.place = Piece::Place::lies;
  piece.tier = static_cast<std::uint8_t>(tier);
  piece.copies = std::uint64_t{1} << tier;
  piece.dropped = piece.dead = false;
  update(index);
}

void Traffic::release(std::uint32_t index) {
  Piece& piece = pieces_.all[index];
  if (piece.place == Piece::Place::moving) {
    piece.doomed = true;
    piece.back = none;
    return;
  }
  cancel(index);
  for (std::uint32_t tier = 0; tier < machine_.tiers.size(); ++tier) vacate(piece, tier);
  piece.place = Piece::Place::nowhere;
  piece.dead = false;
  update(index);
}

void Traffic::bury(std::uint32_t index) {
  if (plan_.after_life == AfterLife::kept) return;
  Piece& piece = pieces_.all[index];
  const bool lingers = plan_.after_life == AfterLife::dropped && piece.tier == 0 && piece.place != Piece::Place::moving;
  if (!lingers || piece.place == Piece::Place::nowhere) return release(index);
  cancel(index);
  piece.dead = true;
  update(index);
}

void Traffic::touch(std::uint32_t index, bool write, std::uint64_t serial) {
  Piece& piece = pieces_.all[index];
  piece.last_use = serial;
  piece.dead = false;
  if (write && piece.copies != std::uint64_t{1} << piece.tier) {
    for (std::uint32_t tier = 0; tier < machine_.tiers.size(); ++tier) {
      if (tier != piece.tier) vacate(piece, tier);
    }
  }
  update(index);
}

void Traffic::measure(Replayed* into, bool timeline) {
  result_ = into;
  timeline_ = timeline;
  measured_from_ = now_;
  if (into != nullptr) into->link_busy.assign(lines_.size(), {});
}

void Traffic::update(std::uint32_t index) {
  if (extents == nullptr) return;
  const Piece& piece = pieces_.all[index];
  PlacedExtent& extent = (*extents)[index];
  extent = {.state = PlacedExtent::State::resident,
            .tensor = {piece.tensor},
            .bytes = {{piece.bytes.begin}, {piece.bytes.end}},
            .tier = {piece.tier},
            .last_use = piece.last_use};
  if (piece.place == Piece::Place::nowhere) extent.state = PlacedExtent::State::absent;
  if (piece.dead) extent.state = PlacedExtent::State::dead;
  if (piece.place == Piece::Place::queued || piece.place == Piece::Place::moving)
    extent.state = piece.target < piece.tier ? PlacedExtent::State::arriving : PlacedExtent::State::leaving;
}

}  // namespace vedette::sim
