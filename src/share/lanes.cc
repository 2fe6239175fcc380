#include "share/lanes.h"

#include <algorithm>
#include <map>

namespace vedette::share {
namespace {

class Lanes {
 public:
  Lanes(std::span<const Job> jobs, Bytes capacity) : capacity_(capacity) {
    for (const Job& job : jobs)
      if (job.lane) add(*job.lane, job);
  }

  // FindLane: 1. a lane of its own, 2. the smallest that is large enough, 3. the smallest that may grow.
  std::optional<std::uint32_t> find(const Job& job) const {
    const Bytes with = persistent_ + in_lanes_ + job.persistent;
    if (with + job.ephemeral <= capacity_) return unused();
    const std::vector<std::pair<Bytes, std::uint32_t>> lanes = by_size();
    for (const auto& [size, lane] : lanes)
      if (size >= job.ephemeral && with <= capacity_) return lane;
    for (const auto& [size, lane] : lanes)
      if (size < job.ephemeral && with - size + job.ephemeral <= capacity_) return lane;
    return std::nullopt;
  }

  void add(std::uint32_t lane, const Job& job) {
    Bytes& size = sizes_[lane];
    persistent_ += job.persistent;
    in_lanes_ += std::max(size, job.ephemeral) - size;
    size = std::max(size, job.ephemeral);
  }

 private:
  std::uint32_t unused() const {
    std::uint32_t lane = 0;
    while (sizes_.contains(lane)) ++lane;
    return lane;
  }
  std::vector<std::pair<Bytes, std::uint32_t>> by_size() const {
    std::vector<std::pair<Bytes, std::uint32_t>> lanes;
    for (const auto& [lane, size] : sizes_) lanes.emplace_back(size, lane);
    std::sort(lanes.begin(), lanes.end());
    return lanes;
  }

  Bytes capacity_, persistent_, in_lanes_;
  std::map<std::uint32_t, Bytes> sizes_;
};

}  // namespace

std::vector<Grant> by_lanes(const Policy& policy, std::span<const Job> jobs, Bytes capacity) {
  std::vector<Grant> grants(jobs.size());
  Lanes lanes(jobs, capacity);
  std::map<std::uint32_t, std::uint32_t> runs;  // the job that has each lane's turn
  for (std::uint32_t j = 0; j < jobs.size(); ++j) {
    grants[j].lane = jobs[j].lane;
    if (!jobs[j].lane && jobs[j].ready && (grants[j].lane = lanes.find(jobs[j]))) lanes.add(*grants[j].lane, jobs[j]);
    if (grants[j].lane && jobs[j].has_turn && jobs[j].in_step) runs.emplace(*grants[j].lane, j);
  }
  for (const std::uint32_t j : in_order(policy, jobs))
    if (grants[j].lane && jobs[j].ready) runs.emplace(*grants[j].lane, j);
  for (std::uint32_t j = 0; j < jobs.size(); ++j)
    if (grants[j].lane) grants[j].lease = jobs[j].persistent;
  for (const auto& [lane, j] : runs) {
    grants[j].turn = true;
    grants[j].lease += jobs[j].ephemeral;
  }
  return grants;
}

}  // namespace vedette::share
