// The words for what a process holds of a GPU's memory: see gpu_bytes.h.
#include "profiler/gpu_bytes.h"

#include "base/readable.h"

namespace vedette {

std::string parts_beside(const GpuBytes& gpu) {
  const struct {
    const char* name;
    Bytes bytes;
  } parts[] = {{"operators that need more", gpu.large},
               {"graphs", gpu.pools},
               {"workspaces", gpu.workspaces},
               {"context", gpu.context}};
  std::string words;
  for (const auto& part : parts)
    if (part.bytes.value > 0)
      words += (words.empty() ? ": " : ", ") + std::string(part.name) + " " + readable(part.bytes);
  return words;
}

std::string words_of_locked(const GpuBytes& gpu) {
  return readable(gpu.locked) + (gpu.most_locked.value > 0 ? " of " + readable(gpu.most_locked) : "") +
         ", tensors in " + readable(gpu.in_locked) +
         (gpu.pageable.value > 0 ? "; pageable behind it " + readable(gpu.pageable) : "");
}

}  // namespace vedette
