// Runs a fuzzer's one function where libFuzzer is missing: PROGRAM [-max_total_time=SECONDS] [-seed=N] [other options]
// CORPUS... Each file of the corpus first, then random changes of them until the time is over.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string changed(std::string input, const std::vector<std::string>& corpus, std::mt19937_64& random) {
  for (std::uint64_t changes = random() % 8 + 1; changes > 0; --changes) {
    const std::size_t at = random() % (input.size() + 1);
    switch (random() % 4) {
      case 0:
        input.insert(at, 1, static_cast<char>(random()));
        break;
      case 1:
        input.erase(at, random() % 16);
        break;
      case 2:
        if (at < input.size()) input[at] = static_cast<char>(random());
        break;
      default: {
        const std::string& other = corpus[random() % corpus.size()];
        input.insert(at, other.substr(random() % (other.size() + 1), random() % 64));
      }
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 2;
  std::uint64_t seed = 1;
  std::vector<std::string> corpus = {""};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-max_total_time=")) seconds = std::atof(word.c_str() + 16);
    if (word.starts_with("-seed=")) seed = std::strtoull(word.c_str() + 6, nullptr, 10);
    std::error_code ignored;
    if (word.starts_with("-") || !std::filesystem::is_directory(word, ignored)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(word)) {
      std::ifstream file(entry.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  for (const std::string& input : corpus) run(input);
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::size_t runs = corpus.size();
  for (; std::chrono::steady_clock::now() < end; ++runs) run(changed(corpus[random() % corpus.size()], corpus, random));
  std::printf("%zu runs\n", runs);
  return 0;
}
