#include "os/page_movers.h"

#include <filesystem>
#include <fstream>

namespace vedette {
namespace {

namespace fs = std::filesystem;

std::string word_in(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Folders are numbered, beside a file that tells how many.
template <class Visit>
void each_folder(const fs::path& path, const Visit& visit) {
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(path, unreadable))
    if (entry.is_directory(unreadable)) visit(entry.path());
}

}  // namespace

PageMovers find_page_movers(const std::string& root) {
  PageMovers found;
  const std::string balancing = word_in(root + "/proc/sys/kernel/numa_balancing");
  if (balancing.size() == 1 && balancing[0] >= '0' && balancing[0] <= '9') found.balancing = balancing[0] - '0';
  const std::string demotion = word_in(root + "/sys/kernel/mm/numa/demotion_enabled");
  found.demotion = demotion == "true" || demotion == "1";
  each_folder(root + "/sys/kernel/mm/damon/admin/kdamonds", [&](const fs::path& kdamond) {
    if (word_in(kdamond / "state") != "on") return;
    each_folder(kdamond / "contexts", [&](const fs::path& context) {
      each_folder(context / "schemes", [&](const fs::path& scheme) {
        if (word_in(scheme / "action").starts_with("migrate")) ++found.schemes;
      });
    });
  });
  return found;
}

}  // namespace vedette
