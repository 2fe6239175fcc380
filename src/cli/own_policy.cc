#include "cli/own_policy.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "vedette/own_policy.h"

namespace vedette::cli {

bool names_a_library(std::string_view policy) {
  return policy.find('/') != std::string_view::npos || policy.ends_with(".so");
}

PolicyEntry own_policy(const std::string& file) {
  std::error_code unknown;
  const auto path = std::filesystem::absolute(file, unknown);
  if (!std::filesystem::is_regular_file(path, unknown))
    throw Failure({Cause::system, file + " cannot be opened; is the path right?"});
  // never closed: its policies may live as long as the process
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Failure(
        {Cause::system, fmt::format("{} cannot be loaded: {}", file, why == nullptr ? "no reason told" : why)});
  }
  const auto function = reinterpret_cast<OwnPolicyFunction*>(::dlsym(library, "vedette_own_policy"));
  const OwnPolicy* const found = function == nullptr ? nullptr : function();
  if (found == nullptr)
    throw Failure({Cause::malformed_input,
                   file + " has no policy; end its source with VEDETTE_OWN_POLICY (vedette/own_policy.h)"});
  if (found->interface != policy_interface())
    throw Failure({Cause::unsupported,
                   fmt::format("{} was built for the policy interface {:x}, and this vedette has {:x}; build it again "
                               "with this vedette's headers",
                               file, found->interface, policy_interface())});
  const auto all = policies();
  if (std::any_of(all.begin(), all.end(), [&](const PolicyEntry& each) { return each.name == found->entry.name; }))
    throw Failure({Cause::malformed_input, fmt::format("{} calls its policy '{}', as one of vedette's is called; give "
                                                       "it another name",
                                                       file, found->entry.name)});
  return found->entry;
}

}  // namespace vedette::cli
