// Readers of the examples' data: see data.h.
#include "models/data.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>

#include "models/made_up_data.h"

namespace vedette::examples {
namespace {

constexpr std::int64_t side = 28;
constexpr std::size_t image_bytes = side * side;
constexpr std::int64_t images_of_fashion_mnist = 60'000, characters_of_licences = 400'000;
constexpr std::uint64_t made_up_seed = 1;
bool is_made_up = false;

// An IDX file: big-endian magic number, one extent a dimension, then the bytes. `header` bytes are skipped.
std::vector<std::uint8_t> read_idx(const std::string& path, std::size_t header) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), &gzclose);
  if (!file) throw std::runtime_error(path + " cannot be read: install Debian's package dataset-fashion-mnist");
  std::vector<std::uint8_t> bytes, part(1 << 20);
  while (true) {
    const int count = gzread(file.get(), part.data(), static_cast<unsigned>(part.size()));
    if (count < 0) throw std::runtime_error(path + " is damaged: reinstall Debian's package dataset-fashion-mnist");
    if (count == 0) break;
    bytes.insert(bytes.end(), part.begin(), part.begin() + count);
  }
  if (bytes.size() <= header) throw std::runtime_error(path + " is too short to be an IDX file");
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  return bytes;
}

// read only: the data is never written through it
at::Tensor borrowed(const std::uint8_t* bytes, at::IntArrayRef shape) {
  return at::from_blob(const_cast<std::uint8_t*>(bytes), shape, at::TensorOptions(at::kByte));
}

}  // namespace

void use_made_up_data() noexcept { is_made_up = true; }

std::shared_ptr<const Images> Images::fashion_mnist() {
  static const auto images = is_made_up ? made_up(images_of_fashion_mnist, made_up_seed)
                                        : std::make_shared<const Images>(read("/usr/share/datasets/fashion-mnist"));
  return images;
}

Images Images::read(const std::string& folder) {
  Images images;
  images.pixels_ = read_idx(folder + "/train-images-idx3-ubyte.gz", 16);
  images.labels_ = read_idx(folder + "/train-labels-idx1-ubyte.gz", 8);
  if (images.pixels_.size() != images.labels_.size() * image_bytes) {
    throw std::runtime_error(folder + ": images and labels are not of one number");
  }
  return images;
}

std::shared_ptr<const Images> Images::made_up(std::int64_t count, std::uint64_t seed) {
  Images images;
  std::mt19937_64 random(seed);
  images.pixels_.resize(static_cast<std::size_t>(count) * image_bytes);
  images.labels_.resize(static_cast<std::size_t>(count));
  for (auto& pixel : images.pixels_) pixel = static_cast<std::uint8_t>(random() & 255);
  for (auto& label : images.labels_) label = static_cast<std::uint8_t>(random() % 10);
  return std::make_shared<const Images>(std::move(images));
}

Images::Batch Images::batch(std::int64_t step, std::int64_t stride, std::int64_t size) const {
  const std::int64_t slices = std::max<std::int64_t>(count() / stride, 1);
  const std::size_t first = static_cast<std::size_t>(step % slices * stride);
  return {borrowed(pixels_.data() + first * image_bytes, {size, 1, side, side}).to(at::kFloat).div_(255),
          borrowed(labels_.data() + first, {size}).to(at::kLong)};
}

void Text::number(const std::string& text) {
  std::array<bool, 256> used{};
  std::array<std::uint8_t, 256> number{};
  for (const char c : text) used[static_cast<std::uint8_t>(c)] = true;
  for (std::size_t c = 0; c < used.size(); ++c) {
    if (used[c]) number[c] = static_cast<std::uint8_t>(symbols_++);
  }
  text_.reserve(text.size());
  for (const char c : text) text_.push_back(number[static_cast<std::uint8_t>(c)]);
}

std::shared_ptr<const Text> Text::licences() {
  static const auto text = is_made_up ? made_up(characters_of_licences, made_up_seed)
                                      : std::make_shared<const Text>(read("/usr/share/common-licenses"));
  return text;
}

Text Text::read(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (entry.is_regular_file() && !entry.is_symlink()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string all;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    all.append(std::istreambuf_iterator<char>(file), {});
  }
  if (all.size() < 100'000) {
    throw std::runtime_error(folder + " holds too little text to train on; it belongs to Debian's package base-files");
  }
  Text text;
  text.number(all);
  return text;
}

std::shared_ptr<const Text> Text::made_up(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string all(static_cast<std::size_t>(count), ' ');
  for (char& c : all) c = static_cast<char>('a' + static_cast<int>(random() % 26));
  Text text;
  text.number(all);
  return std::make_shared<const Text>(std::move(text));
}

Text::Batch Text::batch(std::int64_t step, std::int64_t stride, std::int64_t size, std::int64_t length) const {
  // Sequence k starts at k * length; neighbours in a batch are neighbours in the text.
  const std::int64_t sequences = (static_cast<std::int64_t>(text_.size()) - 1) / length;
  std::vector<at::Tensor> symbols, next;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint8_t* const begin = text_.data() + (step * stride + i) % sequences * length;
    symbols.push_back(borrowed(begin, {length}));
    next.push_back(borrowed(begin + 1, {length}));
  }
  return {at::stack(symbols).to(at::kLong), at::stack(next).to(at::kLong)};
}

}  // namespace vedette::examples
