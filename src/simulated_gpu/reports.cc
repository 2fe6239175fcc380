// Lines of JSON, one write(2) each: see reports.h.
#include "simulated_gpu/reports.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "simulated_gpu/call_stacks.h"
#include "simulated_gpu/options.h"

namespace vedette::simulated {
namespace {

const char* folder() {
  static const char* const found = ::secure_getenv("SIMULATED_GPU_REPORTS");
  return found;
}

struct Block {
  std::size_t bytes = 0;
  std::string how;
  std::uint32_t stack = 0;
};

struct State {
  std::mutex guard;
  std::set<std::tuple<std::string, std::uint32_t, bool, std::string, std::uint32_t, bool>> told;
  std::map<std::string, std::uint64_t, std::less<>> commands, missing;
  std::uint64_t copies = 0, copied = 0, waits = 0;
  std::set<Order::StreamNumber> streams;  // that had commands
  std::map<std::uintptr_t, Block> memory;
  bool ended = false;
};

State& state() {
  static auto* const whole = new State;  // for ever: threads of streams outlive main()
  return *whole;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out += ' ';
    else
      out += c;
  }
  return out + "\"";
}

template <class Values, class Each>
std::string listed(char open, const Values& values, char close, const Each& each) {
  std::string out(1, open);
  for (const auto& value : values) {
    if (out.size() > 1) out += ", ";
    out += each(value);
  }
  return out + close;
}

void write_line(const std::string& line) {
  char path[PATH_MAX];
  std::snprintf(path, sizeof path, "%s/%d.jsonl", folder(), static_cast<int>(::getpid()));
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string whole = line + "\n";
  if (file < 0 || ::write(file, whole.data(), whole.size()) < 0)
    std::fprintf(stderr, "simulated GPU: %s cannot be written; the report lacks a line\n", path);
  if (file >= 0) ::close(file);
}

std::string own_program() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return {path, length < 0 ? 0 : static_cast<std::size_t>(length)};
}

std::string native(const std::vector<void*>& frames) {
  static const std::string program = own_program();
  return listed('[', frames, ']', [&](void* address) {
    const auto call = reinterpret_cast<std::uintptr_t>(address) - 1;  // a return address may be the next function's
    Dl_info found{};
    if (::dladdr(reinterpret_cast<const void*>(call), &found) == 0 || found.dli_fname == nullptr)
      return std::string("{}");
    std::string file = found.dli_fname;
    if (file.find(".so") == file.npos) file = program;  // it has the name that it was started by
    return "{\"file\": " + quoted(file) +
           ", \"offset\": " + std::to_string(call - reinterpret_cast<std::uintptr_t>(found.dli_fbase)) +
           ", \"symbol\": " + quoted(found.dli_sname == nullptr ? "" : found.dli_sname) + "}";
  });
}

std::string in_json(const Order::Side& side) {
  const CallStack stack = call_stack(side.stack);
  const auto texts = [](const std::vector<std::string>& all) {
    return listed('[', all, ']', [](const std::string& text) { return quoted(text); });
  };
  return "{\"what\": " + quoted(side.what) + ", \"stream\": " + std::to_string(side.stream) +
         ", \"write\": " + (side.write ? "true" : "false") + ", \"python\": " + texts(stack.python) +
         ", \"of_first_thread\": " + texts(stack.of_first_thread) + ", \"native\": " + native(stack.native) + "}";
}

// Under the lock.
std::string memory_at(std::uintptr_t at, std::string* allocated) {
  const auto next = state().memory.upper_bound(at);
  if (next == state().memory.begin()) return "memory that no call of CUDA allocated";
  const auto& [begin, block] = *std::prev(next);
  if (at >= begin + block.bytes) return "memory that no call of CUDA allocated";
  *allocated = native(call_stack(block.stack).native);
  return block.how + " of " + std::to_string(block.bytes) + " bytes, from byte " + std::to_string(at - begin) +
         " of it";
}

std::string counted(const std::map<std::string, std::uint64_t, std::less<>>& counts) {
  return listed('{', counts, '}',
                [](const auto& each) { return quoted(each.first) + ": " + std::to_string(each.second); });
}

// dlopen() would run the constructors of libraries again that the end of the process has finished with.
std::string torch_in_process() {
  std::string found;
  const auto look = [](dl_phdr_info* info, std::size_t, void* into) {
    const std::string_view path(info->dlpi_name);
    std::string& best = *static_cast<std::string*>(into);
    if (path.ends_with("/libtorch_cuda.so")) best = "cuda";
    if (path.ends_with("/libtorch_cpu.so") && best.empty()) best = "cpu";
    return 0;
  };
  ::dl_iterate_phdr(look, &found);
  return found;
}

__attribute__((constructor)) void begin() {
  if (!reporting()) return;
  static_cast<void>(std::atexit(report_covered));
  before_the_end = report_stop;
}

}  // namespace

bool reporting() { return folder() != nullptr && *folder() != 0; }

void report_device() {
  static const bool once = (write_line(R"({"device": true})"), true);
  static_cast<void>(once);
}

void report_race(const Order::Race& race) {
  if (!reporting()) return;
  const Order::Side &first = race.first, &second = race.second;
  {
    const std::lock_guard lock(state().guard);
    if (!state().told.emplace(first.what, first.stack, first.write, second.what, second.stack, second.write).second)
      return;
  }
  std::string memory, allocated = "[]";
  {
    const std::lock_guard lock(state().guard);
    memory = memory_at(race.bytes.begin, &allocated);
  }
  write_line("{\"race\": {\"first\": " + in_json(first) + ", \"second\": " + in_json(second) +
             ", \"begin\": " + std::to_string(race.bytes.begin) + ", \"end\": " + std::to_string(race.bytes.end) +
             ", \"memory\": " + quoted(memory) + ", \"allocated\": " + allocated + "}}");
}

void report_stop(const std::string& sentence) {
  if (!reporting()) return;
  write_line("{\"stopped\": " + quoted(sentence) + "}");
  report_covered();
}

void report_covered() {
  if (!reporting()) return;
  State& all = state();
  std::string line;
  {
    const std::lock_guard lock(all.guard);
    if (std::exchange(all.ended, true)) return;
    line = "{\"covered\": {\"commands\": " + counted(all.commands) + ", \"copies\": " + std::to_string(all.copies) +
           ", \"copied\": " + std::to_string(all.copied) + ", \"streams\": " + std::to_string(all.streams.size()) +
           ", \"waits\": " + std::to_string(all.waits) + ", \"missing\": " + counted(all.missing) +
           ", \"torch\": " + quoted(torch_in_process()) + "}}";
  }
  write_line(line);
}

namespace {
template <class Change>
void change(const Change& wanted) {
  if (!reporting()) return;
  const std::lock_guard lock(state().guard);
  wanted(state());
}
}  // namespace

void count_command(std::string_view what, Order::StreamNumber stream) {
  change([&](State& s) {
    ++s.commands[std::string(what.substr(0, what.find(" of ")))];  // without autograd's node
    s.streams.insert(stream);
  });
}
void count_copy(std::size_t bytes, Order::StreamNumber stream) {
  change([&](State& s) {
    ++s.copies;
    s.copied += bytes;
    s.streams.insert(stream);
  });
}
void count_wait() {
  change([](State& s) { ++s.waits; });
}
void count_missing(std::string_view kernel) {
  change([&](State& s) { ++s.missing[std::string(kernel)]; });
}

void note_memory(const void* at, std::size_t bytes, const char* how) {
  if (!reporting()) return;
  const std::uint32_t stack = stack_here(PythonLock::only_where_held);
  change([&](State& s) { s.memory[reinterpret_cast<std::uintptr_t>(at)] = {bytes, how, stack}; });
}
void forget_memory(const void* at) {
  change([&](State& s) { s.memory.erase(reinterpret_cast<std::uintptr_t>(at)); });
}

}  // namespace vedette::simulated
