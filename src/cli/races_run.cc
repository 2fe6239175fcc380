// Finds the simulated GPU and the program, starts the one on the other, and waits: see races_run.h.
#include "cli/races_run.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "vedette/result.h"

namespace vedette::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(Cause cause, std::string sentence) {
  throw Failure({.cause = cause, .message = std::move(sentence)});
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string variable(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

// Beside this command in a build tree, or where it is installed.
fs::path component() {
  std::error_code unknown;
  const fs::path own = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  const fs::path built = own / "src/simulated_gpu/lib";
  const fs::path installed = (own.parent_path() / VEDETTE_LIBRARIES / "vedette/simulated_gpu").lexically_normal();
  for (const fs::path& each : {built, installed}) {
    if (fs::exists(each / "preload", unknown)) return each;
    if (fs::exists(each / "libcuda.so.1", unknown))
      fail(Cause::unavailable,
           "the simulated GPU in " + each.string() +
               " has no CUDA runtime; build the target simulated_gpu with a libtorch for CUDA and CUDA's headers");
  }
  fail(Cause::unavailable, "there is no simulated GPU in " + installed.string() + " or " + built.string() +
                               "; build the target simulated_gpu with a libtorch for CUDA, and install it with cmake "
                               "--install BUILD --component simulated_gpu");
}

std::vector<std::string> libraries(const fs::path& folder) {
  std::vector<std::string> names;
  std::istringstream list(read(folder / "preload"));
  for (std::string name; std::getline(list, name);) names.push_back(name);
  names.push_back("libnvidia-ml.so.1");
  if (folder.string().find_first_of(": ") != std::string::npos)
    fail(Cause::unsupported, "the simulated GPU's folder " + folder.string() +
                                 " has a space or a colon in its name, which LD_PRELOAD cannot have; move it");
  return names;
}

fs::path find_program(const std::string& name) {
  std::error_code unknown;
  const auto runs = [&](const fs::path& path) {
    return fs::is_regular_file(path, unknown) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    if (runs(name)) return name;
    fail(Cause::malformed_input, fs::exists(name, unknown) ? name +
                                                                 " is no program that may be run; for a script of "
                                                                 "Python write -- python " +
                                                                 name
                                                           : "there is no program " + name);
  }
  std::istringstream folders(variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (const fs::path path = fs::path(folder.empty() ? "." : folder) / name; runs(path)) return path;
  }
  fail(Cause::malformed_input, "there is no program '" + name + "' in the folders of PATH" +
                                   (fs::exists(name, unknown) ? "; write ./" + name : std::string()));
}

// A runtime that is part of the program asks the driver for tables that only CUDA's own has.
void refuse_other_runtimes(const fs::path& program, const std::vector<std::string>& names) {
  const std::string text = read(program);
  constexpr std::string_view prefix = "libcudart.so.";
  if (!text.starts_with("\177ELF")) return;
  if (const std::size_t at = text.find(prefix); at != std::string::npos) {
    const std::string wanted = text.substr(at, text.find_first_not_of("0123456789", at + prefix.size()) - at);
    for (const std::string& name : names)
      if (name.starts_with(prefix) && name != wanted)
        fail(Cause::unsupported, program.string() + " is linked to " + wanted + ", and the simulated GPU has " + name +
                                     "; build one of them with the other's CUDA");
    return;
  }
  const bool has_runtime =
      text.find("libcudart_static") != std::string::npos ||
      (text.find("cudaErrorInvalidValue") != std::string::npos && text.find("libcuda.so.1") != std::string::npos);
  if (has_runtime)
    fail(Cause::unsupported, program.string() +
                                 " has CUDA's runtime inside of it, which cannot be replaced; link it with nvcc "
                                 "-cudart shared, or to libcudart.so");
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "vedette-races-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      fail(Cause::system, "no folder can be made in " + fs::temp_directory_path().string() +
                              " for the report; set TMPDIR to one that can be written");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void set_default(const char* name, const char* value) { ::setenv(name, value, 0); }

// In the child. Small workspaces of cuBLAS, and threads that do not spin: scripts/with_simulated_gpu says why.
void set_environment(const fs::path& folder, const std::vector<std::string>& names, const fs::path& reports,
                     const std::string& options) {
  std::string preload = variable("LD_PRELOAD");
  for (const std::string& name : names) preload += (preload.empty() ? "" : ":") + (folder / name).string();
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  ::setenv("SIMULATED_GPU_REPORTS", reports.c_str(), 1);
  ::setenv("SIMULATED_GPU", (options + " " + variable("SIMULATED_GPU")).c_str(), 1);
  set_default("CUBLAS_WORKSPACE_CONFIG", ":16:8");
  set_default("CUBLASLT_WORKSPACE_SIZE", "128");
  set_default("OMP_WAIT_POLICY", "passive");
}

volatile std::sig_atomic_t child = 0;

void pass_on(int signal) {
  if (child > 0) ::kill(static_cast<pid_t>(child), signal);
}

// The keyboard's signals reach the program by themselves; the others are passed on.
int wait_for(pid_t started) {
  child = static_cast<std::sig_atomic_t>(started);
  for (const int each : {SIGINT, SIGQUIT}) std::signal(each, SIG_IGN);
  for (const int each : {SIGTERM, SIGHUP}) std::signal(each, pass_on);
  int status = 0;
  while (::waitpid(started, &status, 0) < 0 && errno == EINTR) {
  }
  child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

RacesRun run_on_simulated_gpu(const std::vector<std::string>& words, const std::string& options) {
  const fs::path folder = component(), program = find_program(words.front());
  const std::vector<std::string> names = libraries(folder);
  refuse_other_runtimes(program, names);
  const Folder reports;
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t started = ::fork();
  if (started < 0) fail(Cause::system, "no process can be started; too many are running");
  if (started == 0) {
    set_environment(folder, names, reports.path(), options);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  RacesRun run{.status = wait_for(started)};
  for (const fs::directory_entry& each : fs::directory_iterator(reports.path())) {
    std::ifstream file(each.path());
    for (std::string line; std::getline(file, line);) {
      auto read = nlohmann::json::parse(line, nullptr, false);
      if (read.is_object()) run.lines.push_back(std::move(read));
    }
  }
  return run;
}

}  // namespace vedette::cli
