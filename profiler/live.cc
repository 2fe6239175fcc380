// The page as a file, and its reader, which copies it with one read(): a file that shrinks under it is an error and no
// signal.
#include "profiler/live.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/fd.h"
#include "base/printable.h"

namespace vedette {
namespace {

constexpr std::uint64_t magic = 0x6576696c74646476;  // "vddtlive"
constexpr std::string_view prefix = "vedette-";
constexpr std::size_t counters = static_cast<std::size_t>(Live::count_);

}  // namespace

struct LivePage::Page {
  std::uint64_t magic = 0, version = 0;
  std::int64_t pid = 0;
  char program[96] = {}, policy[32] = {};
  std::atomic<std::uint64_t> values[counters] = {};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(LivePage::Page) <= 4096);

namespace {

std::string path_of(const std::string& directory, std::int64_t pid) {
  return directory + "/" + std::string(prefix) + std::to_string(pid);
}

bool lives(std::int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM; }

std::vector<std::int64_t> named(const std::string& directory) {
  std::vector<std::int64_t> pids;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(directory, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(prefix)) continue;
    std::int64_t pid = 0;
    const auto [stop, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), pid);
    if (error == std::errc() && stop == name.data() + name.size() && pid > 0) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

template <std::size_t Size>
void copy(std::string_view text, char (&into)[Size]) noexcept {
  std::memset(into, 0, Size);
  std::memcpy(into, text.data(), std::min(text.size(), Size - 1));
}

template <std::size_t Size>
std::string text_in(const char (&from)[Size]) {
  return printable({from, ::strnlen(from, Size)});
}

}  // namespace

std::unique_ptr<LivePage> LivePage::make(std::string_view program, const std::string& directory) {
  for (const std::int64_t pid : named(directory))
    if (!lives(pid)) ::unlink(path_of(directory, pid).c_str());  // fails where it is another user's
  std::string path = path_of(directory, ::getpid());
  ::unlink(path.c_str());
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) return nullptr;
  // Room is taken now: a page of a full file system would be a signal at the first store.
  if (::posix_fallocate(file.get(), 0, sizeof(Page)) != 0) {
    ::unlink(path.c_str());
    return nullptr;
  }
  void* const memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    ::unlink(path.c_str());
    return nullptr;
  }
  Page* const page = new (memory) Page{.magic = 0, .version = live_version, .pid = ::getpid()};
  copy(program, page->program);
  // release: a reader that sees it sees the stores above
  std::atomic_ref(page->magic).store(magic, std::memory_order_release);
  return std::unique_ptr<LivePage>(new LivePage(page, std::move(path)));
}

LivePage::~LivePage() {
  ::munmap(page_, sizeof(Page));
  ::unlink(path_.c_str());
}

std::atomic<std::uint64_t>& LivePage::counter(Live which) noexcept {
  return page_->values[static_cast<std::size_t>(which)];
}
void LivePage::policy(std::string_view name) noexcept { copy(name, page_->policy); }
void LivePage::phase(std::string_view name) noexcept {
  const auto* const found = std::find(std::begin(live_phases), std::end(live_phases), name);
  set(Live::phase, found == std::end(live_phases) ? 0 : static_cast<std::uint64_t>(found - std::begin(live_phases)));
}

Result<LiveReading> read_live(std::int64_t pid, const std::string& directory) {
  const std::string path = path_of(directory, pid);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0)
    return Error{
        Cause::unavailable,
        "process " + std::to_string(pid) + " shows no counters; only programs with a guard, or a vedette::Recorder, do",
        errno};
  LivePage::Page page;
  const ssize_t got = ::pread(file.get(), static_cast<void*>(&page), sizeof page, 0);
  if (got != static_cast<ssize_t>(sizeof page) || page.magic != magic)
    return Error{Cause::malformed_input, path + " holds no counters"};
  if (page.version != live_version)
    return Error{Cause::unsupported, path + " has version " + std::to_string(page.version) +
                                         ", and this program reads version " + std::to_string(live_version)};
  LiveReading reading{.pid = pid, .program = text_in(page.program), .policy = text_in(page.policy)};
  for (std::size_t i = 0; i < counters; ++i) reading.values[i] = page.values[i].load(std::memory_order_relaxed);
  return reading;
}

std::vector<std::int64_t> live_processes(const std::string& directory) {
  std::vector<std::int64_t> pids = named(directory);
  std::erase_if(pids, [](std::int64_t pid) { return !lives(pid); });
  return pids;
}

}  // namespace vedette
