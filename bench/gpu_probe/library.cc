// dlopen and dlsym: see library.h.
#include "gpu_probe/library.h"

#include <dlfcn.h>
#include <link.h>

namespace vedette::gpu {

Library::Library(Options options) : options_(std::move(options)) {
  for (const std::string& name : options_.names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) continue;
    link_map* map = nullptr;
    path_ = ::dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map->l_name != nullptr ? map->l_name
                                                                                                        : name;
    return;
  }
  throw Refused("no " + options_.what + " (" + options_.names.front() + ")");
}

void* Library::exported(const char* name) const { return ::dlsym(handle_, name); }

void* Library::find(const char* name) const {
  void* const found = exported(name);
  return found == nullptr && options_.other_lookup != nullptr ? options_.other_lookup(*this, name) : found;
}

void Library::refuse(int error, const char* function) const {
  const std::string name =
      options_.name_of_error != nullptr ? options_.name_of_error(*this, error) : "error " + std::to_string(error);
  throw Refused(name + " (" + function + ")");
}

}  // namespace vedette::gpu
