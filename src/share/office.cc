#include "share/office.h"

#include <algorithm>
#include <utility>

namespace vedette::share {
namespace {

constexpr std::uint64_t grain = std::uint64_t{2} << 20;  // leases are whole chunks
constexpr Nanoseconds shortest_silence{30'000'000'000};
constexpr std::int64_t steps_of_silence = 8;

Bytes down(Bytes bytes) noexcept { return {bytes.value / grain * grain}; }
Bytes up(std::uint64_t bytes) noexcept { return down({std::min(bytes, std::uint64_t{1} << 60) + grain - 1}); }

}  // namespace

Office::Client* Office::find(ClientId id) noexcept {
  const auto found = std::find_if(clients_.begin(), clients_.end(), [&](const Client& each) { return each.id == id; });
  return found == clients_.end() ? nullptr : &*found;
}

Bytes Office::held() const noexcept {
  Bytes sum;
  for (const Client& each : clients_) sum += each.held;
  return sum;
}

std::vector<Letter> Office::hear(ClientId id, std::uint32_t pid, const Message& message, Nanoseconds now) {
  if (message.version != protocol) return letters();
  count_time(now);
  if (message.say == Say::list) {
    list_to(id);
    return letters();
  }
  Client* client = find(id);
  if (client == nullptr && message.say == Say::hello) {
    welcome(id, pid, message, now);
    client = find(id);
  }
  if (client == nullptr) return letters();
  client->heard = now;
  client->silent = false;
  if (message.say == Say::bye) return left(id, now);
  if (message.say == Say::step) hear_step(*client, message);
  if (message.say == Say::done) client->job.has_turn = client->job.in_step = client->asked = false;
  if (message.say == Say::resized && message.other_ns == client->resizes) {
    client->held = std::min(client->held, std::max(client->told, up(message.lease)));
  }
  settle();
  return letters();
}

void Office::welcome(ClientId id, std::uint32_t pid, const Message& hello, Nanoseconds now) {
  Client client{.id = id, .pid = pid, .heard = now, .changed = now, .name = hello.name};
  read_needs(client, hello);
  const bool refused = client.job.floor > capacity_;
  Message answer{.say = Say::lease, .yes = refused, .want = capacity_.value};
  answer.floor = client.job.floor.value;
  letters_.push_back({id, answer});
  if (!refused) clients_.push_back(client);
}

// A client's needs are made to make sense: rest <= floor <= want, none beyond the memory.
void Office::read_needs(Client& client, const Message& message) noexcept {
  Job& job = client.job;
  job.floor = std::max(up(message.floor), Bytes{grain});
  if (job.started) job.floor = std::min(job.floor, capacity_);
  job.want = std::max(job.floor, std::min(up(message.want), down(capacity_)));
  job.rest = std::min(up(message.lease), job.floor);
  job.remaining =
      message.other_ns > 0 && message.say == Say::hello ? std::optional(Nanoseconds{message.other_ns}) : job.remaining;
}

void Office::hear_step(Client& client, const Message& step) noexcept {
  const Nanoseconds time{std::clamp<std::int64_t>(step.step_ns, 0, 1'000'000'000'000'000)};
  read_needs(client, step);
  client.job.step = time;
  client.job.used += time;
  if (client.job.remaining)
    client.job.remaining->value = std::max<std::int64_t>(0, client.job.remaining->value - time.value);
  client.longest_step = std::max(client.longest_step, time);
  // Steps between which the lease stayed are the lease's.
  const Bytes lease = client.told == client.held ? client.told : Bytes();
  if (std::exchange(client.of_step, lease) == lease && lease.value > 0)
    client.profile.add(lease, {std::clamp<std::int64_t>(step.other_ns, 0, time.value)}, time);
  client.job.in_step = client.asked;  // a step that began before it heard so goes on
}

std::vector<Letter> Office::left(ClientId id, Nanoseconds now) {
  count_time(now);
  std::erase_if(clients_, [&](const Client& each) { return each.id == id; });
  settle();
  return letters();
}

std::vector<Letter> Office::tick(Nanoseconds now) {
  count_time(now);
  bool any = false;
  for (Client& each : clients_) {
    const Nanoseconds patience{std::max(shortest_silence.value, each.longest_step.value * steps_of_silence)};
    if (each.silent || !each.job.has_turn || now - each.heard < patience) continue;
    each.silent = any = true;
    each.job.has_turn = each.job.in_step = each.asked = false;
    each.knows_holder = 0;
  }
  if (any) settle();
  return letters();
}

void Office::count_time(Nanoseconds now) noexcept {
  for (Client& each : clients_) {
    const Nanoseconds passed = now - each.changed;
    (each.job.has_turn ? each.job.turn : each.job.waited) += passed;
    each.changed = now;
  }
}

void Office::settle() {
  std::vector<Job> jobs;
  for (Client& each : clients_) {
    Job job = each.job;
    job.profile = each.profile.points();
    job.ready = !each.silent;
    job.lease = each.held;
    // memory of a silent client stays its own
    if (each.silent) job.floor = job.rest = job.want = each.held;
    jobs.push_back(job);
  }
  bound_floors(jobs);
  const std::vector<Grant> grants = decide(policy_, jobs, capacity_);
  for (std::size_t c = 0; c < clients_.size(); ++c)
    if (!clients_[c].silent) shrink(clients_[c], down(grants[c].lease));
  for (const bool turn : {true, false})
    for (std::size_t c = 0; c < clients_.size(); ++c)
      if (!clients_[c].silent && grants[c].turn == turn) grow(clients_[c], down(grants[c].lease));
  pass_turns(jobs, grants);
  tell_waiting();
}

// A floor that has risen since its job started may leave no room for what the others keep while they wait. The job runs
// with the rest of the memory then, and an op beyond that runs paged: a turn comes to every started job.
void Office::bound_floors(std::vector<Job>& jobs) const noexcept {
  Bytes rests;
  for (const Job& job : jobs)
    if (job.started) rests += job.rest;
  for (Job& job : jobs) {
    if (!job.started) continue;
    const Bytes others = rests - job.rest;
    job.floor = std::min(job.floor, std::max(job.rest, down(capacity_ - std::min(capacity_, others))));
  }
}

void Office::shrink(Client& client, Bytes target) {
  if (target >= client.told) return;
  client.told = target;
  say(client, {.say = Say::resize, .lease = target.value, .other_ns = ++client.resizes});
}

void Office::grow(Client& client, Bytes target) {
  if (target <= client.told) return;
  const Bytes free = capacity_ - held();
  const Bytes most = std::max(client.held, down(client.held + free));
  target = std::min(target, most);
  if (target <= client.told) return;
  client.told = target;
  client.held = std::max(client.held, target);
  // its first lease comes with its first turn
  if (client.job.started) say(client, {.say = Say::resize, .lease = target.value, .other_ns = ++client.resizes});
}

void Office::pass_turns(const std::vector<Job>& jobs, const std::vector<Grant>& grants) {
  bool over = false;  // where one at a time has it
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    Client& client = clients_[c];
    if (!client.job.has_turn) continue;
    client.job.in_step = true;
    over = over || grants[c].turn;
    if (grants[c].turn || client.asked) continue;
    client.asked = true;
    client.knows_holder = 0;
  }
  const bool busy = policy_.room == Room::turns &&
                    std::any_of(clients_.begin(), clients_.end(), [](const Client& each) { return each.job.has_turn; });
  for (std::size_t c = 0; c < clients_.size() && !busy; ++c) {
    Client& client = clients_[c];
    if (!grants[c].turn || client.job.has_turn || client.told < down(jobs[c].floor)) continue;
    client.job.has_turn = client.job.in_step = client.job.started = true;
    client.job.turn = {};
    client.asked = false;
    say(client, {.say = Say::turn, .yes = 1, .lease = client.told.value});
  }
}

// One that waits, or is to wait, hears once of each other holder: its name, its lease and how long a step takes.
void Office::tell_waiting() {
  for (Client& client : clients_) {
    if (client.silent || (client.job.has_turn && !client.asked)) continue;
    const auto holder = std::find_if(clients_.begin(), clients_.end(), [&](const Client& each) {
      return each.id != client.id && each.held.value > 0 && (each.job.has_turn || each.silent);
    });
    const ClientId known = holder == clients_.end() ? client.id : holder->id;
    if (std::exchange(client.knows_holder, known) == known) continue;
    Message wait{.say = Say::turn, .yes = 0, .want = capacity_.value};
    if (holder != clients_.end()) {
      wait.pid = holder->pid;
      wait.lease = holder->held.value;
      wait.step_ns = holder->job.step.value;
      wait.name = holder->name;
    }
    say(client, wait);
  }
}

void Office::list_to(ClientId id) {
  for (const Client& each : clients_) {
    Message line{.say = Say::client, .yes = each.job.has_turn, .pid = each.pid, .lease = each.held.value};
    line.floor = each.job.floor.value;
    line.want = each.job.want.value;
    line.step_ns = each.job.step.value;
    line.other_ns = each.job.waited.value;
    line.name = each.name;
    letters_.push_back({id, line});
  }
  Message end{.say = Say::list, .lease = held().value, .want = capacity_.value};
  end.set_name(policy_.name);
  letters_.push_back({id, end});
}

}  // namespace vedette::share
