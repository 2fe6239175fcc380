// Checkpoints of a job: see Checkpoints in vedette/distributed.h. Each rank has a file "step-S.rank-R-of-N": its
// buffers, its part of the optimizer's state, its generators and what else it was given; rank 0's has the parameters,
// too.
//
// Invariant: a file has its final name only when every rank's file of that step is whole. So where one is final, a rank
// that was killed before it renamed its own still has it, as a ".part".
#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <fcntl.h>
#include <torch/serialize/archive.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "adapter/torch/collective.h"
#include "base/fd.h"
#include "vedette/distributed.h"

namespace vedette {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_on(const std::string& path, int error) {
  throw Failure({.cause = Cause::system,
                 .message = "the checkpoint " + path + " failed: " + std::strerror(error) +
                            "; check the folder's rights and its free space",
                 .errno_value = error});
}

// Files by way of a buffer of our own: where userfaultfd is missing, a system call into a tensor that is away fails.
class File {
 public:
  File(std::string path, int flags) : path_(std::move(path)), fd_(::open(path_.c_str(), flags | O_CLOEXEC, 0666)) {
    if (!fd_) fail_on(path_, errno);
  }
  std::size_t write(const void* data, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t part = std::min(bytes - done, buffer_.size());
      std::memcpy(buffer_.data(), static_cast<const char*>(data) + done, part);
      for (std::size_t sent = 0; sent < part;) {
        const ssize_t n = ::write(fd_.get(), buffer_.data() + sent, part - sent);
        if (n < 0 && errno != EINTR) fail_on(path_, errno);
        sent += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
      }
      done += part;
    }
    return bytes;
  }
  std::size_t read(std::uint64_t from, void* data, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t part = std::min(bytes - done, buffer_.size());
      const ssize_t n = ::pread(fd_.get(), buffer_.data(), part, static_cast<off_t>(from + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_on(path_, errno);
      if (n == 0) return done;
      std::memcpy(static_cast<char*>(data) + done, buffer_.data(), static_cast<std::size_t>(n));
      done += static_cast<std::size_t>(n);
    }
    return bytes;
  }
  void finish() {
    if (::fsync(fd_.get()) != 0) fail_on(path_, errno);
  }

 private:
  static constexpr std::size_t piece = std::size_t{1} << 20;
  std::string path_;
  Fd fd_;
  std::vector<char> buffer_ = std::vector<char>(piece);
};

constexpr std::string_view part_ending = ".part";

struct Name {  // of a file here: step-STEPS.rank-RANK-OF-SIZE
  std::int64_t steps = 0;
  int rank = 0, size = 0;
};

template <class Number>
bool take(std::string_view& text, std::string_view word, Number& number) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return failed == std::errc{};
}

std::optional<Name> name_of(const std::string& file) {
  Name name;
  std::string_view rest(file);
  if (!take(rest, "step-", name.steps) || !take(rest, ".rank-", name.rank) || !take(rest, "-of-", name.size))
    return std::nullopt;
  return rest.empty() ? std::optional(name) : std::nullopt;
}

// Of `module`, in an order that its structure fixes.
std::vector<std::pair<std::string, at::Tensor>> tensors_of(torch::nn::Module& module, bool parameters) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  const std::string kind = parameters ? "parameter" : "buffer";
  for (const at::Tensor& tensor : parameters ? module.parameters() : module.buffers())
    found.emplace_back(kind + std::to_string(found.size()), tensor.detach());
  return found;
}

std::vector<std::pair<std::string, at::Tensor>> named(const Checkpoints::Others& others) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  for (const at::Tensor& tensor : others) found.emplace_back("other" + std::to_string(found.size()), tensor);
  return found;
}

// The processor's, and that of the parameters' GPU.
std::vector<std::pair<std::string, at::Generator>> generators_of(torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Generator>> found{
      {"generator", at::globalContext().defaultGenerator(c10::kCPU)}};
  const auto parameters = module.parameters();
  if (!parameters.empty() && parameters.front().is_cuda())
    found.emplace_back("generator_of_gpu", at::globalContext().defaultGenerator(parameters.front().device()));
  return found;
}

void write_part(torch::nn::Module& module, torch::optim::Optimizer& optimizer, const Checkpoints::Others& others,
                bool with_parameters, File& file) {
  torch::serialize::OutputArchive archive, state;
  if (with_parameters)
    for (const auto& [key, tensor] : tensors_of(module, true)) archive.write(key, tensor);
  for (const auto& [key, tensor] : tensors_of(module, false)) archive.write(key, tensor, /*is_buffer=*/true);
  optimizer.save(state);
  archive.write("optimizer", state);
  for (const auto& [key, tensor] : named(others)) archive.write(key, tensor, /*is_buffer=*/true);
  for (auto& [key, generator] : generators_of(module)) {
    const std::lock_guard lock(generator.mutex());
    archive.write(key, generator.get_state());
  }
  archive.save_to([&](const void* data, std::size_t bytes) { return file.write(data, bytes); });
  file.finish();
}

void read_tensors(torch::serialize::InputArchive& archive,
                  const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  for (const auto& [key, tensor] : tensors) {
    at::Tensor kept;
    if (!archive.try_read(key, kept) || kept.sizes() != tensor.sizes() || kept.scalar_type() != tensor.scalar_type())
      throw Failure({Cause::malformed_input,
                     "the checkpoint is of another model or training: its " + key + " is missing or has another shape",
                     0});
    tensor.copy_(kept);
  }
}

// The largest value of any rank.
std::int64_t largest(const Ranks& ranks, std::int64_t value) {
  const at::Tensor shared = at::full({1}, value, at::kLong);
  adapter::Collective::largest(ranks, shared).wait();
  return shared.item<std::int64_t>();
}

}  // namespace

Checkpoints::Checkpoints(Ranks& ranks, std::string folder) : ranks_(ranks), folder_(std::move(folder)) {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) fail_on(folder_, failed.value());
}

std::string Checkpoints::path_of(std::int64_t steps) const {
  return folder_ + "/step-" + std::to_string(steps) + ".rank-" + std::to_string(ranks_.rank()) + "-of-" +
         std::to_string(ranks_.size());
}

void Checkpoints::save(torch::nn::Module& module, torch::optim::Optimizer& optimizer, std::int64_t steps,
                       const Others& others) {
  const at::NoGradGuard no_gradients;
  const std::string path = path_of(steps), part = path + std::string(part_ending);
  {
    File file(part, O_WRONLY | O_CREAT | O_TRUNC);
    write_part(module, optimizer, others, ranks_.rank() == 0, file);
  }
  ranks_.barrier();
  std::error_code failed;
  fs::rename(part, path, failed);
  if (failed) fail_on(path, failed.value());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    std::string file = entry.path().filename().string();
    if (file.ends_with(part_ending)) file.resize(file.size() - part_ending.size());  // of a rank that was killed
    const auto name = name_of(file);
    std::error_code gone_already;
    if (name && name->rank == ranks_.rank() && name->size == ranks_.size() && name->steps != steps)
      fs::remove(entry.path(), gone_already);
  }
}

std::optional<std::int64_t> Checkpoints::load(torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                                              const Others& others) {
  std::int64_t newest = -1, other_size = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const auto name = name_of(entry.path().filename().string());
    if (!name) continue;
    (name->size == ranks_.size() ? newest : other_size) =
        name->size == ranks_.size() ? std::max(newest, name->steps) : name->size;
  }
  newest = largest(ranks_, newest);
  other_size = largest(ranks_, other_size);
  if (newest < 0 && other_size == 0) return std::nullopt;
  const std::string path = path_of(std::max<std::int64_t>(newest, 0)), part = path + std::string(part_ending);
  std::error_code failed;
  if (newest >= 0 && !fs::exists(path)) fs::rename(part, path, failed);
  if (largest(ranks_, newest < 0 ? other_size : 0) > 0)
    throw Failure({Cause::malformed_input,
                   "the checkpoint in " + folder_ + " is of " + std::to_string(other_size) + " ranks and the job has " +
                       std::to_string(ranks_.size()) + "; start as many, or name another folder",
                   0});
  if (largest(ranks_, failed ? 1 : 0) > 0)
    throw Failure({Cause::malformed_input,
                   "a rank's part of the checkpoint of step " + std::to_string(newest) + " is missing in " + folder_ +
                       "; all machines have to see the same folder",
                   0});
  const at::NoGradGuard no_gradients;
  File file(path, O_RDONLY);
  torch::serialize::InputArchive archive, state;
  const std::uint64_t bytes = fs::file_size(path);
  archive.load_from([&](std::uint64_t from, void* to, std::size_t count) { return file.read(from, to, count); },
                    [&] { return static_cast<std::size_t>(bytes); });
  if (ranks_.rank() == 0) read_tensors(archive, tensors_of(module, true));
  ranks_.broadcast(module);
  read_tensors(archive, tensors_of(module, false));
  archive.read("optimizer", state);
  optimizer.load(state);
  read_tensors(archive, named(others));
  for (auto& [key, generator] : generators_of(module)) {
    at::Tensor random;
    archive.read(key, random);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(random);
  }
  return newest;
}

}  // namespace vedette
