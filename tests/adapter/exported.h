// Torchvision's models as TorchScript, exported by Python once a build folder.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace vedette::test {

constexpr const char* exported_models[] = {"mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5"};

struct Exported {
  std::string file;     // empty: it was not written
  std::string missing;  // what a skip names; empty: nothing, so the export failed
};

inline Exported export_model(const std::string& model) {
  const std::string folder = VEDETTE_EXPORTS, source = VEDETTE_SOURCE, python = PYTHON_OF_SETUP;
  const std::string file = folder + "/" + model + ".pt";
  if (!std::filesystem::exists(python)) return {.file = {}, .missing = "no " + python + ": scripts/setup.sh makes it"};
  std::filesystem::create_directories(folder);
  const std::string command = "flock '" + folder + "/lock' '" + python + "' '" + source +
                              "/scripts/export_torchscript.py' " + model + " '" + file + "'";
  if (std::system(command.c_str()) != 0) return {};
  return {.file = file, .missing = {}};
}

}  // namespace vedette::test
