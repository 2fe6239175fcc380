// The data the models train on: Fashion-MNIST as Debian packages it, and the text of the licences Debian ships. Small
// models train on bytes made up from a seed, so that tests need no data. Batches are slices in order. Data is shared by
// the models of a process: it is read only, and as large as some models. Thread rule: one thread. Errors:
// std::runtime_error with a sentence naming the package that is missing.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vedette::examples {

class Images {
 public:
  static std::shared_ptr<const Images> fashion_mnist();  // read once a process
  static std::shared_ptr<const Images> made_up(std::int64_t count, std::uint64_t seed);

  struct Batch {
    at::Tensor images;  // [n, 1, 28, 28], float in [0, 1]
    at::Tensor labels;  // [n], int64 in [0, 10)
  };
  // `size` samples from step * stride on; size <= stride
  Batch batch(std::int64_t step, std::int64_t stride, std::int64_t size) const;
  std::int64_t count() const noexcept { return static_cast<std::int64_t>(labels_.size()); }

 private:
  static Images read(const std::string& folder);
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

class Text {
 public:
  static std::shared_ptr<const Text> licences();  // read once a process
  static std::shared_ptr<const Text> made_up(std::int64_t count, std::uint64_t seed);

  struct Batch {
    at::Tensor symbols, next;  // [n, length], int64 in [0, symbols()): each position and the one after it
  };
  Batch batch(std::int64_t step, std::int64_t stride, std::int64_t size, std::int64_t length) const;
  std::int64_t symbols() const noexcept { return symbols_; }

 private:
  static Text read(const std::string& folder);
  void number(const std::string& text);
  std::vector<std::uint8_t> text_;  // numbers of characters
  std::int64_t symbols_ = 0;
};

}  // namespace vedette::examples
