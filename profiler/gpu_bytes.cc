// The words for what a process holds of a GPU's memory: see gpu_bytes.h.
#include "profiler/gpu_bytes.h"

#include "base/readable.h"

namespace vedette {

std::string parts_beside(const GpuBytes& gpu) {
  const struct {
    const char* name;
    std::uint64_t bytes;
  } parts[] = {{"operators that need more", gpu.large},
               {"graphs", gpu.pools},
               {"workspaces", gpu.workspaces},
               {"context", gpu.context}};
  std::string words;
  for (const auto& part : parts)
    if (part.bytes > 0)
      words += (words.empty() ? ": " : ", ") + std::string(part.name) + " " + readable(Bytes{part.bytes});
  return words;
}

std::string words_of_locked(const GpuBytes& gpu) {
  return readable(Bytes{gpu.locked}) + (gpu.most_locked > 0 ? " of " + readable(Bytes{gpu.most_locked}) : "") +
         ", tensors in " + readable(Bytes{gpu.in_locked}) +
         (gpu.pageable > 0 ? "; pageable behind it " + readable(Bytes{gpu.pageable}) : "");
}

}  // namespace vedette
