// Chrome trace events, in the dialect that torch.profiler writes (kineto): Perfetto, HTA and TensorBoard's plugin read
// them.
//
// Tracks: the program (a step holds layers, a layer holds ops, so slices nest), its stalls, and tracks of fetches and
// of evicts. Of these each link has as many as moves were in flight at once, so that slices of one track never overlap.
// An op on a GPU says on which stream it ran.
//
// HTA sees what has a stream, and tells by names and categories what it is. So an op is a "kernel" once more, on a
// track of the fastest tier and without its stalls, and a move is called as CUDA calls copies to and from a device.
// Each has a launch of its number ("correlation"), on a track of launches: an op's is its begin, a move's when it was
// asked for.
//
// Flows lead from a layer's forward to its backward ("fwdbwd"), and from the op during which a fetch was issued to the
// fetch. Counters tell each tier's bytes.
#include <algorithm>
#include <map>

#include "profiler/export_parts.h"
#include "profiler/tables.h"

namespace vedette::exports {
namespace {

constexpr int process = 1, program_track = 1, wait_track = 2, launch_track = 3, kernel_track = 4;

// As many of each as it takes: even and odd numbers, so that they never meet.
constexpr int fetch_track(std::size_t lane) { return 100 + 2 * static_cast<int>(lane); }
constexpr int evict_track(std::size_t lane) { return 101 + 2 * static_cast<int>(lane); }

class Events {
 public:
  explicit Events(std::ostream& out) : out_(out) {}

  std::string at(std::int64_t ns) const { return microseconds(std::max<std::int64_t>(0, ns - base_)); }
  void base(std::int64_t ns) { base_ = ns; }

  void slice(const char* category, std::string_view name, int track, std::int64_t began, std::int64_t ended,
             const std::string& args) {
    const std::int64_t length = std::max<std::int64_t>(0, ended - began);
    row("\"ph\":\"X\",\"cat\":\"" + std::string(category) + "\",\"name\":" + json_string(name) + place(track) +
        ",\"ts\":" + at(began) + ",\"dur\":" + microseconds(length) + ",\"args\":{" + args + "}");
  }
  void instant(std::string_view name, int track, std::int64_t when, const std::string& args) {
    row("\"ph\":\"i\",\"s\":\"t\",\"cat\":\"cpu_instant_event\",\"name\":" + json_string(name) + place(track) +
        ",\"ts\":" + at(when) + ",\"args\":{" + args + "}");
  }
  void counter(std::string_view name, std::int64_t when, const std::string& args) {
    row("\"ph\":\"C\",\"name\":" + json_string(name) + place(0) + ",\"ts\":" + at(when) + ",\"args\":{" + args + "}");
  }
  void flow(const char* category, int from, std::int64_t leaves, int to, std::int64_t arrives) {
    const std::string id =
        ",\"cat\":\"" + std::string(category) + "\",\"name\":\"" + category + "\",\"id\":" + std::to_string(++flows_);
    row("\"ph\":\"s\"" + id + place(from) + ",\"ts\":" + at(leaves));
    row("\"ph\":\"f\",\"bp\":\"e\"" + id + place(to) + ",\"ts\":" + at(arrives));
  }
  void track_name(int track, std::string_view name, int order) {
    row("\"ph\":\"M\",\"name\":\"thread_name\"" + place(track) + ",\"ts\":0,\"args\":{\"name\":" + json_string(name) +
        "}");
    row("\"ph\":\"M\",\"name\":\"thread_sort_index\"" + place(track) +
        ",\"ts\":0,\"args\":{\"sort_index\":" + std::to_string(order) + "}");
  }
  void process_name(std::string_view name) {
    row("\"ph\":\"M\",\"name\":\"process_name\"" + place(0) + ",\"ts\":0,\"args\":{\"name\":" + json_string(name) +
        "}");
  }

 private:
  // With three digits: whole nanoseconds, so that nested slices still nest.
  static std::string microseconds(std::int64_t ns) {
    const std::string digits = std::to_string(ns % 1000);
    return std::to_string(ns / 1000) + '.' + std::string(3 - digits.size(), '0') + digits;
  }
  static std::string place(int track) {
    return ",\"pid\":" + std::to_string(process) + ",\"tid\":" + std::to_string(track);
  }
  void row(const std::string& members) {
    out_ << (any_ ? ",\n{" : "\n{") << members << '}';
    any_ = true;
  }
  std::ostream& out_;
  std::int64_t base_ = 0;
  std::uint64_t flows_ = 0;
  bool any_ = false;
};

struct Ran {  // an op of the told step
  std::uint32_t op = 0;
  std::string name;
  std::int64_t began = 0, ended = 0, resident = -1, live = -1, stream = -1;
};

struct Lane {            // a track of moves
  std::size_t tier = 0;  // the slow one of its link
  std::int64_t free_from = 0;
};

class Teller {
 public:
  Teller(const ExportSource& source, Events& events) : source_(source), events_(events) {}

  void step(const report::StepRow& step) {
    const std::vector<Ran> ops = ops_of(step);
    events_.slice("user_annotation", "ProfilerStep#" + std::to_string(step.step), program_track, step.began.value,
                  step.ended.value,
                  "\"phase\":" + json_string(step.phase) + ",\"stall ns\":" + std::to_string(step.counters.stall_ns) +
                      ",\"faults\":" + std::to_string(step.counters.faults) +
                      (step.energy ? ",\"energy mJ\":" + std::to_string(step.energy->millijoules) : ""));
    if (const report::Profile* const profile = profile_for(step, ops.size())) layers(ops, *profile);
    for (const Ran& op : ops) told_op(op);
    tiers(ops);
    moves(step, ops);
    kernels(ops, waits(step));
  }

  // The tracks that moves of all steps needed.
  void name_tracks() {
    for (std::size_t i = 0; i < lanes_[0].size(); ++i)
      events_.track_name(fetch_track(i), "fetches, " + link(true, lanes_[0][i].tier), 2);
    for (std::size_t i = 0; i < lanes_[1].size(); ++i)
      events_.track_name(evict_track(i), "evicts, " + link(false, lanes_[1][i].tier), 3);
  }

 private:
  std::vector<Ran> ops_of(const report::StepRow& step) {
    std::vector<Ran> ops;
    Statement ask(source_.database,
                  "SELECT op, IFNULL(text, ''), began_ns, ended_ns, IFNULL(resident_bytes, -1), IFNULL(live_bytes, -1),"
                  " IFNULL(stream, -1)"
                  " FROM op_times LEFT JOIN names USING(name) WHERE step = ? ORDER BY op");
    std::int64_t now = step.began.value;
    for (ask.ask(step.step); ask.row();) {
      Ran op{.op = static_cast<std::uint32_t>(ask.integer(0)),
             .name = ask.text(1),
             .began = ask.integer(2),
             .ended = ask.integer(3),
             .resident = ask.integer(4),
             .live = ask.integer(5),
             .stream = ask.integer(6)};
      op.began = std::clamp(op.began, now, std::max(now, step.ended.value));
      op.ended = now = std::clamp(op.ended, op.began, std::max(op.began, step.ended.value));
      ops.push_back(std::move(op));
    }
    return ops;
  }

  const report::Profile* profile_for(const report::StepRow& step, std::size_t ops) const {
    for (const report::Profile& profile : source_.run.profiles) {
      if (profile.trace.ops.size() == ops && (profile.bucket == step.bucket || profile.step == step.step))
        return &profile;
    }
    return nullptr;
  }

  // Runs of ops of one layer, and the way from each layer's forward to its backward.
  void layers(const std::vector<Ran>& ops, const report::Profile& profile) {
    const Trace& trace = profile.trace;
    std::map<std::string, std::int64_t> forward;  // by layer: when its last op began
    for (std::size_t i = 0; i < ops.size();) {
      const auto layer = trace.ops[i].layer;
      std::size_t end = i;
      while (end < ops.size() && trace.ops[end].layer == layer) ++end;
      if (layer) {
        const Layer& told = trace.layers[layer->value];
        events_.slice("user_annotation", told.name + " (" + std::string(name_of(told.phase)) + ")", program_track,
                      ops[i].began, ops[end - 1].ended, "");
        if (told.phase == Phase::forward) forward[told.name] = ops[end - 1].began;
        const auto came_from = forward.find(told.name);
        if (told.phase == Phase::backward && came_from != forward.end()) {
          events_.flow("fwdbwd", program_track, came_from->second, program_track, ops[i].began);
          forward.erase(came_from);
        }
      }
      i = end;
    }
  }

  void told_op(const Ran& op) {
    events_.slice(
        "cpu_op", op.name.empty() ? "op" : op.name, program_track, op.began, op.ended,
        "\"External id\":" + std::to_string(op.op + 1) + ",\"Record function id\":0" +
            (op.stream < 0 ? ""
                           : ",\"ran on\":" + json_string(tier_name(0) + ", stream " + std::to_string(op.stream))));
  }

  std::string tier_name(std::size_t tier) const {
    const auto& tiers = source_.run.machine.tiers;
    return tier < tiers.size() ? tiers[tier].name : tier == 0 ? "fast" : "slow";
  }
  std::string link(bool fetch, std::size_t slow) const {
    return fetch ? tier_name(slow) + " -> " + tier_name(0) : tier_name(0) + " -> " + tier_name(slow);
  }

  // Device -1 of type 0 is kineto's name for the CPU. A tier below the first holds living tensors that are not
  // resident.
  void tiers(const std::vector<Ran>& ops) {
    const std::string fast = tier_name(0), slow = tier_name(1);
    std::int64_t before = -1;
    for (const Ran& op : ops) {
      if (op.resident < 0 || op.live < 0) continue;
      events_.counter(fast + " bytes", op.ended, "\"resident\":" + std::to_string(op.resident));
      events_.counter(slow + " bytes", op.ended,
                      "\"away\":" + std::to_string(std::max<std::int64_t>(0, op.live - op.resident)));
      if (op.live != before) {
        events_.instant("[memory]", program_track, op.ended,
                        "\"Total Reserved\":" + std::to_string(op.resident) +
                            ",\"Total Allocated\":" + std::to_string(op.live) +
                            ",\"Bytes\":" + std::to_string(before < 0 ? op.live : op.live - before) +
                            ",\"Addr\":0,\"Device Id\":-1,\"Device Type\":0,\"Ev Idx\":" + std::to_string(op.op));
      }
      before = op.live;
    }
  }

  void moves(const report::StepRow& step, const std::vector<Ran>& ops) {
    Statement ask(source_.database,
                  "SELECT verb, cause, chunk, bytes, issued_ns, started_ns, ended_ns, tier FROM moves WHERE step = ?"
                  " ORDER BY started_ns, move");
    for (ask.ask(step.step); ask.row();) {
      const bool fetch = ask.text(0) == "fetch";
      const std::int64_t issued = ask.nanoseconds(4), started = std::max(issued, ask.nanoseconds(5)),
                         ended = std::max(started, ask.nanoseconds(6));
      const auto tier = static_cast<std::size_t>(ask.integer(7));
      std::vector<Lane>& lanes = lanes_[fetch ? 0 : 1];
      std::size_t lane = 0;
      while (lane < lanes.size() && (lanes[lane].tier != tier || lanes[lane].free_from > started)) ++lane;
      if (lane == lanes.size()) lanes.push_back({.tier = tier});
      lanes[lane].free_from = ended;
      const int track = fetch ? fetch_track(lane) : evict_track(lane);
      const std::string what = ask.text(0) + " (" + ask.text(1) + ")";
      if (ask.text(0) == "drop")  // nothing is copied
        events_.slice("user_annotation", what, track, started, ended,
                      "\"chunk\":" + std::to_string(ask.integer(2)) + ",\"bytes\":" + std::to_string(ask.integer(3)));
      else
        events_.slice("gpu_memcpy", (fetch ? "Memcpy HtoD " : "Memcpy DtoH ") + what, track, started, ended,
                      "\"chunk\":" + std::to_string(ask.integer(2)) + ",\"bytes\":" + std::to_string(ask.integer(3)) +
                          ",\"memory bandwidth (GB/s)\":" + gigabytes_per_s(ask.integer(3), ended - started) +
                          ",\"link\":" + json_string(link(fetch, tier)) + "," +
                          launched("cudaMemcpyAsync", issued, track));
      const auto issuer = std::upper_bound(ops.begin(), ops.end(), issued,
                                           [](std::int64_t when, const Ran& op) { return when < op.began; });
      if (fetch && issuer != ops.begin() && issued < std::prev(issuer)->ended)
        events_.flow("fetch", program_track, issued, track, started);
    }
  }

  // Stalls, in order.
  std::vector<Span<std::int64_t>> waits(const report::StepRow& step) {
    std::vector<Span<std::int64_t>> found;
    Statement stalls(
        source_.database,
        "SELECT op, in_allocation, began_ns, ended_ns FROM stalls WHERE step = ? ORDER BY began_ns, stall");
    std::int64_t now = 0;
    for (stalls.ask(step.step); stalls.row();) {
      const std::int64_t began = std::max(now, stalls.nanoseconds(2));
      now = std::max(began, stalls.nanoseconds(3));
      events_.slice("user_annotation", stalls.integer(1) != 0 ? "waits for room" : "waits for an operand", wait_track,
                    began, now, "\"op\":" + std::to_string(stalls.integer(0)));
      found.push_back({began, now});
    }
    Statement faults(source_.database,
                     "SELECT op, chunk, page, write, began_ns FROM faults WHERE step = ? ORDER BY fault");
    for (faults.ask(step.step); faults.row();) {
      events_.instant(faults.integer(3) != 0 ? "fault (write)" : "fault (read)", wait_track, faults.nanoseconds(4),
                      "\"op\":" + std::to_string(faults.integer(0)) + ",\"chunk\":" +
                          std::to_string(faults.integer(1)) + ",\"page\":" + std::to_string(faults.integer(2)));
    }
    return found;
  }

  // A launch, and the arguments by which a reader finds what it launched.
  std::string launched(const char* call, std::int64_t when, int stream) {
    const std::string number = "\"correlation\":" + std::to_string(++launches_);
    events_.slice("cuda_runtime", call, launch_track, when, when, number);
    return number + ",\"stream\":" + std::to_string(stream) + ",\"device\":0";
  }

  // Ops without the stalls in them.
  void kernels(const std::vector<Ran>& ops, const std::vector<Span<std::int64_t>>& stalls) {
    auto stall = stalls.begin();
    for (const Ran& op : ops) {
      std::int64_t from = op.began;
      const auto tell = [&](std::int64_t until) {
        if (until <= from) return;
        events_.slice(
            "kernel", op.name.empty() ? "op" : op.name, kernel_track, from, until,
            "\"External id\":" + std::to_string(op.op + 1) + "," + launched("cudaLaunchKernel", from, kernel_track));
      };
      while (stall != stalls.end() && stall->end <= op.began) ++stall;
      for (; stall != stalls.end() && stall->begin < op.ended; ++stall) {
        tell(stall->begin);
        from = std::max(from, std::min(stall->end, op.ended));
        if (stall->end > op.ended) break;
      }
      tell(op.ended);
    }
  }

  static std::string gigabytes_per_s(std::int64_t bytes, std::int64_t ns) {
    const double speed = bytes <= 0 || ns <= 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(ns);
    const auto thousandths = static_cast<std::int64_t>(1e3 * std::min(speed, 1e12));
    const std::string digits = std::to_string(thousandths % 1000);
    return std::to_string(thousandths / 1000) + "." + std::string(3 - digits.size(), '0') + digits;
  }

  const ExportSource& source_;
  Events& events_;
  std::uint64_t launches_ = 1 << 30;  // HTA puts row numbers where these fit, in as few bytes as they take
  std::vector<Lane> lanes_[2];        // of fetches and evicts
};

}  // namespace

Result<void> to_perfetto(const ExportSource& source, std::ostream& out) {
  std::vector<const report::StepRow*> steps;
  for (const report::StepRow& step : source.run.steps) {
    const bool asked = source.options.steps
                           ? step.step >= source.options.steps->begin && step.step < source.options.steps->end
                           : source.run.shown_step() == &step;
    if (asked) steps.push_back(&step);
  }
  if (steps.empty()) return Error{Cause::malformed_input, source.run.path + " has no such step"};
  out << "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":0,\"deviceProperties\":[],"
         "\"distributedInfo\":{\"backend\":\"none\",\"rank\":0,\"world_size\":1},"
         "\"traceName\":"
      << json_string(source.run.path) << ",\n\"traceEvents\":[";
  Events events(out);
  std::int64_t base = steps.front()->began.value;
  Statement first(source.database, "SELECT MIN(issued_ns) FROM moves WHERE step = ?");
  first.ask(steps.front()->step);
  if (first.row() && !first.is_null(0)) base = std::min(base, first.nanoseconds(0));
  events.base(base);
  events.process_name("vedette: " + (source.run.program.empty() ? source.run.path : source.run.program));
  events.track_name(program_track, "program", 0);
  events.track_name(wait_track, "waiting", 1);
  events.track_name(launch_track, "launches", 4);
  events.track_name(kernel_track, "ops without their stalls", 1);
  Teller teller(source, events);
  for (const report::StepRow* const step : steps) teller.step(*step);
  teller.name_tracks();
  out << "\n]}\n";
  return {};
}

}  // namespace vedette::exports
