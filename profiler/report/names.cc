// Names by which one tensor is told from all others. A recording names a tensor by the operator that made it and its
// size ("aten::mm 192.0 KiB"), which many have in common; its site says in which layer that was.
//
// "layer1.0.conv1 output" is the tensor used by other layers that the layer's forward ops made last. The others have
// the operator's name in its place, and a number where several are alike. Names that are the program's own and unique
// stay.
#include <map>
#include <set>

#include "model/liveness.h"
#include "profiler/report/run.h"

namespace vedette::report {

namespace {

std::string plain(const std::string& op) {
  const std::size_t colons = op.rfind("::");
  return colons == std::string::npos ? op : op.substr(colons + 2);
}

// By layer's name: its output.
std::map<std::string, std::uint32_t> outputs_of(const Trace& trace) {
  const auto used = uses(trace);
  std::map<std::string, std::pair<OpIndex, std::uint32_t>> last;  // by birth
  const auto layer_of = [&](OpIndex op) {
    const auto& layer = trace.ops[op.value].layer;
    return layer ? trace.layers[layer->value].name : std::string();
  };
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    const Tensor& tensor = trace.tensors[t];
    if (tensor.persistent || tensor.kind != TensorKind::activation || tensor.site.layer.empty() || used[t].empty())
      continue;
    const OpIndex birth = used[t].front();
    if (trace.ops[birth.value].phase != Phase::forward || tensor.site.op.find("backward") != std::string::npos)
      continue;
    bool elsewhere = false;
    for (const OpIndex op : used[t]) elsewhere |= layer_of(op) != tensor.site.layer;
    const auto [found, fresh] = last.try_emplace(tensor.site.layer, birth, t);
    // of equals the first: what comes behind it is what the op remembers for backward
    if (elsewhere && (fresh || found->second.first < birth)) found->second = {birth, t};
    if (!elsewhere && fresh) last.erase(found);
  }
  std::map<std::string, std::uint32_t> outputs;
  for (const auto& [layer, of] : last) outputs[layer] = of.second;
  return outputs;
}

}  // namespace

void name_tensors(Trace& trace) {
  std::map<std::string, std::uint32_t> times;
  for (const Tensor& tensor : trace.tensors) ++times[tensor.name];
  const auto outputs = outputs_of(trace);
  std::set<std::string> taken;
  for (const Tensor& tensor : trace.tensors)
    if (times[tensor.name] == 1 && tensor.name.find("::") == std::string::npos) taken.insert(tensor.name);
  std::map<std::string, std::uint32_t> numbers;
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    Tensor& tensor = trace.tensors[t];
    if (times[tensor.name] == 1 && tensor.name.find("::") == std::string::npos) continue;
    const auto output = outputs.find(tensor.site.layer);
    const bool is_output = output != outputs.end() && output->second == t;
    std::string name = is_output                ? "output"
                       : tensor.site.op.empty() ? (tensor.name.empty() ? "tensor" : plain(tensor.name))
                                                : plain(tensor.site.op);
    if (!tensor.site.layer.empty()) name = tensor.site.layer + " " + name;
    std::string unique = name;
    for (std::uint32_t& number = numbers[name]; !taken.insert(unique).second;)
      unique = name + " #" + std::to_string(++number + 1);
    tensor.name = unique;
  }
}

}  // namespace vedette::report
