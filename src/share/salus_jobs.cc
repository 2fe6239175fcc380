// The networks of SymbioticLab/Salus, tests/workloads.csv, as measured on a P100: from the times alone of two lengths
// follow the time of an iteration and that of the start-up. P is 4 bytes for each parameter of the network.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/arithmetic.h"
#include "share/jobs.h"

namespace vedette::share {
namespace {

struct Network {
  std::string_view name;  // with its batch
  double peak_mb, iteration_ms, start_s, parameters_m;
};

constexpr std::array networks{
    Network{"vgg11_25", 3709.6, 105.9, 7.2, 132.9},        Network{"vgg11_50", 5087.5, 185.4, 8.3, 132.9},
    Network{"vgg11_100", 9203.4, 334.0, 12.1, 132.9},      Network{"vgg16_25", 4316.8, 191.6, 8.7, 138.4},
    Network{"vgg16_50", 6183.3, 353.2, 12.1, 138.4},       Network{"vgg16_100", 10445.2, 657.9, 17.5, 138.4},
    Network{"vgg19_25", 4463.1, 223.9, 9.5, 143.7},        Network{"vgg19_50", 6359.0, 415.0, 12.8, 143.7},
    Network{"vgg19_100", 12024.1, 770.2, 19.0, 143.7},     Network{"resnet50_25", 2116.0, 125.4, 19.1, 25.6},
    Network{"resnet50_50", 4008.2, 225.7, 20.9, 25.6},     Network{"resnet50_75", 5914.6, 325.1, 22.6, 25.6},
    Network{"resnet101_25", 3237.5, 216.5, 34.1, 44.5},    Network{"resnet101_50", 6105.8, 382.6, 36.6, 44.5},
    Network{"resnet101_75", 8988.4, 548.1, 39.2, 44.5},    Network{"resnet152_25", 4563.0, 308.7, 51.8, 60.2},
    Network{"resnet152_50", 8637.3, 548.4, 51.8, 60.2},    Network{"resnet152_75", 12725.7, 783.5, 55.0, 60.2},
    Network{"googlenet_25", 756.1, 59.3, 12.9, 7.0},       Network{"googlenet_50", 1411.4, 100.2, 14.9, 7.0},
    Network{"googlenet_100", 2534.1, 179.8, 16.9, 7.0},    Network{"alexnet_25", 686.6, 21.3, 4.5, 61.1},
    Network{"alexnet_50", 1154.8, 29.3, 5.2, 61.1},        Network{"alexnet_100", 1396.5, 45.2, 6.7, 61.1},
    Network{"overfeat_25", 3255.0, 50.4, 5.0, 145.9},      Network{"overfeat_50", 3416.3, 63.9, 5.2, 145.9},
    Network{"overfeat_100", 6240.0, 99.0, 6.6, 145.9},     Network{"inception3_25", 2499.6, 197.7, 31.4, 23.8},
    Network{"inception3_50", 4775.3, 361.8, 35.8, 23.8},   Network{"inception3_100", 9379.0, 682.9, 45.9, 23.8},
    Network{"inception4_25", 4445.1, 405.4, 48.2, 42.7},   Network{"inception4_50", 8540.5, 728.5, 57.5, 42.7},
    Network{"inception4_75", 12662.0, 1036.6, 72.1, 42.7},
};

double fraction(std::uint64_t& state) {  // random, in (0, 1)
  return (static_cast<double>(next_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

double normal(std::uint64_t& state) {  // Box and Muller
  const double radius = std::sqrt(-2 * std::log(fraction(state)));
  return radius * std::cos(2 * std::numbers::pi * fraction(state));
}

Nanoseconds seconds(double s) { return {static_cast<std::int64_t>(s * 1e9)}; }

ListedJob job_of(const Network& network, double length_s) {
  const auto mb = [](double amount) { return Bytes{static_cast<std::uint64_t>(amount * 1e6)}; };
  const double persistent = network.parameters_m * 4;
  const double start = std::min(network.start_s, length_s / 2);  // of short jobs
  const double iteration = std::min(network.iteration_ms / 1e3, length_s);
  const double iterations = std::max(1.0, std::round(length_s / iteration));
  const Bytes p = mb(std::min(persistent, network.peak_mb)), peak = mb(network.peak_mb);
  return {.name = std::string(network.name),
          .iterations = static_cast<std::uint64_t>(iterations),
          .iteration = seconds(length_s / iterations),
          .busy = 1 - start / length_s,
          .persistent = p,
          .ephemeral = peak - p,
          .floor = peak,
          .want = peak};
}

}  // namespace

std::vector<ListedJob> salus_jobs(std::uint64_t seed) {
  constexpr std::size_t count = 100;
  constexpr double sigma = 1.4, all_s = 303.4 * 60;
  std::uint64_t state = seed;
  std::vector<double> lengths(count);
  double sum = 0;
  for (double& length : lengths) sum += length = std::exp(sigma * normal(state));
  std::vector<ListedJob> jobs;
  for (const double length : lengths) {
    const auto which = static_cast<std::size_t>(fraction(state) * static_cast<double>(networks.size()));
    jobs.push_back(job_of(networks[std::min(which, networks.size() - 1)], length * all_s / sum));
    jobs.back().name += "_" + std::to_string(jobs.size());
  }
  return jobs;
}

}  // namespace vedette::share
