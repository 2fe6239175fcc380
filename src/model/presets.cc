// The machines of published papers, and of data sheets. Each figure's source stands beside it; docs/reproduce.md has
// them as a table. Values without a source are said to be assumed.
#include <array>

#include "model/slow_memory.h"
#include "vedette/machine.h"

namespace vedette {
namespace {

// The machine of G10's published runs: an A100 with 40 GB and 128 GB of host memory (both in GiB there). PCIe 3.0 x16
// has 15.754 GB/s and 5 us each way. Behind the same link is an SSD of 3.2 GB/s each way, 12 us to read and 16 us to
// write. A fault takes 45 us.
Machine a100_g10() {
  constexpr std::uint64_t pcie = 15'754'000'000, ssd = 3'200'000'000;
  constexpr std::uint32_t in = 0, out = 1;  // the two directions of the GPU's PCIe link
  Machine machine;
  machine.tiers = {{.name = "gpu", .capacity = 40_GiB},
                   {.name = "host", .capacity = 128_GiB},
                   {.name = "ssd", .capacity = {std::uint64_t{1} << 44}}};
  machine.links = {
      {.source = {1}, .target = {0}, .bytes_per_s = pcie, .latency = {5'000}, .shared = in},
      {.source = {0}, .target = {1}, .bytes_per_s = pcie, .latency = {5'000}, .shared = out},
      {.source = {2}, .target = {0}, .bytes_per_s = ssd, .latency = {12'000}, .shared = in},
      {.source = {0}, .target = {2}, .bytes_per_s = ssd, .latency = {16'000}, .shared = out},
  };
  machine.fault_time = {45'000};
  machine.can_recompute = true;
  machine.interference_percent = 0;
  return machine;
}

// A GPU behind PCIe 5.0 x16, whose 64 GB/s each way are counted as 50, and pinned host memory. Tensors move whole.
// An H200 has 55 GB/s one way, and 50 each way at once (docs/gpu-facts.md).
Machine behind_pcie5(Bytes gpu, Bytes host) {
  constexpr std::uint64_t pcie = 50'000'000'000;
  Machine machine;
  machine.tiers = {{.name = "gpu", .capacity = gpu}, {.name = "host", .capacity = host}};
  machine.links = {{.source = {1}, .target = {0}, .bytes_per_s = pcie, .latency = {10'000}, .shared = {}},
                   {.source = {0}, .target = {1}, .bytes_per_s = pcie, .latency = {10'000}, .shared = {}}};
  machine.granule = {512};
  machine.whole_tensors = true;
  machine.interference_percent = 0;
  return machine;
}

// The host's memory, tier 1, has so many bytes a second for links and the processor together.
Machine beside(Machine machine, std::uint64_t host_bytes_per_s) {
  machine.host_memory = {.tier = {1}, .bytes_per_s = host_bytes_per_s};
  return machine;
}

Machine h200_pcie5() { return behind_pcie5({141'000'000'000}, {1'500'000'000'000}); }
Machine h100_pcie5() { return behind_pcie5({80'000'000'000}, {1'000'000'000'000}); }

// One memory over another: tier 0 is `fast`, tier 1 is `slow`, and each direction has a link of its own.
struct TwoTiers {
  Tier fast, slow;
  std::uint64_t in_per_s = 0, out_per_s = 0;  // bytes
  Nanoseconds in_latency, out_latency;
};

Machine two_tiers(TwoTiers of) {
  Machine machine;
  machine.tiers = {std::move(of.fast), std::move(of.slow)};
  machine.links = {
      {.source = {1}, .target = {0}, .bytes_per_s = of.in_per_s, .latency = of.in_latency, .shared = {}},
      {.source = {0}, .target = {1}, .bytes_per_s = of.out_per_s, .latency = of.out_latency, .shared = {}}};
  machine.interference_percent = 0;
  return machine;
}

// Memory over slower memory in which operands may stay (slow_memory.h).
template <std::size_t index>
Machine over_slow_memory() {
  constexpr SlowMemory of = slow_memories[index];
  return two_tiers({.fast = {.name = std::string(of.fast), .capacity = of.fast_bytes, .addressable = true},
                    .slow = {.name = std::string(of.slow), .capacity = of.slow_bytes, .addressable = true},
                    .in_per_s = of.read_bytes_per_s,
                    .out_per_s = of.write_bytes_per_s,
                    .in_latency = of.latency,
                    .out_latency = of.latency});
}

template <std::size_t index>
constexpr MachinePreset of_slow_memory() {
  return {slow_memories[index].name, slow_memories[index].source, over_slow_memory<index>, {}};
}

// A V100 with 16 GB behind PCIe 3.0 x16, the GPU of SwapAdvisor, Sentinel and DeepUM. Times of pinned copies are those
// that AutoSwap's authors measured: 0.0756 ns a byte and 47.2 us out, 0.0823 ns a byte and 9.7 us in (Apache SINGA,
// src/core/device/swap_gpu.cc). 256 GiB of host memory are assumed.
Machine v100_pcie3() {
  Machine machine = two_tiers({.fast = {.name = "gpu", .capacity = 16_GiB},
                               .slow = {.name = "host", .capacity = 256_GiB},
                               .in_per_s = 12'150'000'000,
                               .out_per_s = 13'230'000'000,
                               .in_latency = {9'700},
                               .out_latency = {47'200}});
  machine.can_recompute = true;
  return machine;
}

// An A100 with 80 GB (data sheet) behind PCIe 4.0 x16: 31.5 GB/s each way by the standard, of which pinned copies reach
// 25 (reports of NVIDIA's nvbandwidth). The latency is G10's, 512 GiB of host memory are assumed.
Machine a100_pcie4() {
  Machine machine = two_tiers({.fast = {.name = "gpu", .capacity = {80'000'000'000}},
                               .slow = {.name = "host", .capacity = 512_GiB},
                               .in_per_s = 25'000'000'000,
                               .out_per_s = 25'000'000'000,
                               .in_latency = {5'000},
                               .out_latency = {5'000}});
  machine.can_recompute = true;
  return machine;
}

// An RTX 4090 with 24 GB (Ada architecture paper) behind PCIe 4.0 x16, with the copies of the A100 there. 512 GiB of
// host memory are assumed, as there.
Machine rtx4090_pcie4() {
  Machine machine = two_tiers({.fast = {.name = "gpu", .capacity = 24_GiB},
                               .slow = {.name = "host", .capacity = 512_GiB},
                               .in_per_s = 25'000'000'000,
                               .out_per_s = 25'000'000'000,
                               .in_latency = {5'000},
                               .out_latency = {5'000}});
  machine.granule = {512};
  machine.whole_tensors = true;
  return machine;
}

// An RTX 5090 with 32 GB (data sheet) beside two Xeon Silver 4510 with 251 GB of DDR5: pinned copies to the GPU reach
// 56 GB/s, and as many from it are assumed. A processor that reads 70 GB/s leaves them 37, and both have 108 together
// (github.com/JustVugg/colibri, issue 537). The latency is an H200's.
Machine rtx5090_pcie5() {
  Machine machine = two_tiers({.fast = {.name = "gpu", .capacity = 32_GiB},
                               .slow = {.name = "host", .capacity = {251'000'000'000}},
                               .in_per_s = 56'000'000'000,
                               .out_per_s = 56'000'000'000,
                               .in_latency = {10'000},
                               .out_latency = {10'000}});
  machine.granule = {512};
  machine.whole_tensors = true;
  return beside(machine, 108'000'000'000);
}

// A GH200 with 96 GB of HBM3 over 480 GB of LPDDR5X (data sheet). Copies by the copy engines reach 411 GB/s to the GPU
// and 170 GB/s from it over NVLink-C2C (reports of nvbandwidth). A latency of 2 us is assumed. STREAM has 486 GB/s of
// its LPDDR5X (arXiv 2407.07850); NVIDIA's guide to benchmarks promises 307 of 480 GB, and 400 of 120.
Machine gh200() {
  Machine machine = two_tiers({.fast = {.name = "gpu", .capacity = {96'000'000'000}},
                               .slow = {.name = "host", .capacity = {480'000'000'000}},
                               .in_per_s = 411'000'000'000,
                               .out_per_s = 170'000'000'000,
                               .in_latency = {2'000},
                               .out_latency = {2'000}});
  machine.can_recompute = true;
  return beside(machine, 486'000'000'000);
}

// One GPU of a GB200 with 186 GB of HBM3e, and the 480 GB of LPDDR5X of its Grace (data sheet), whose other GPU rests.
// Copies reach 350 GB/s each way on the right node (pytorch/torchtitan, pull request 3489). Two GPUs of a GB300 reach
// 182 to 184 GB/s each where both copy to one Grace, 368 together (nvbandwidth: NVIDIA/Megatron-LM, issue 6491). The
// latency is the GH200's.
Machine gb200() {
  Machine machine = two_tiers({.fast = {.name = "gpu", .capacity = {186'000'000'000}},
                               .slow = {.name = "host", .capacity = {480'000'000'000}},
                               .in_per_s = 350'000'000'000,
                               .out_per_s = 350'000'000'000,
                               .in_latency = {2'000},
                               .out_latency = {2'000}});
  machine.granule = {512};
  machine.whole_tensors = true;
  return beside(machine, 368'000'000'000);
}

// DDR5 over a memory expander behind CXL 2.0 x8 at 32 GT/s: 31.5 GB/s each way by the standard's arithmetic, before its
// own headers. Sizes and 250 ns are assumed: production cards have two to five times the latency of local memory (arXiv
// 2405.14209).
Machine cxl_x8() {
  return two_tiers({.fast = {.name = "dram", .capacity = 128_GiB, .addressable = true},
                    .slow = {.name = "cxl", .capacity = 512_GiB, .addressable = true},
                    .in_per_s = 31'500'000'000,
                    .out_per_s = 31'500'000'000,
                    .in_latency = {250},
                    .out_latency = {250}});
}

constexpr std::array presets{
    MachinePreset{"a100-g10", "G10, MICRO'23: the settings of its published runs", a100_g10},
    MachinePreset{"h200-pcie5", "data sheet, and 50 GB/s each way at once, measured (docs/gpu-facts.md)", h200_pcie5},
    MachinePreset{"h100-pcie5", "data sheet, and the link of an H200 (docs/gpu-facts.md)", h100_pcie5},
    // Sentinel's processor; its text was not at hand
    MachinePreset{"optane-sentinel", "Sentinel's kind of machine, with rates of Izraelevitz et al., arXiv 1903.05714",
                  over_slow_memory<0>},
    MachinePreset{"v100-pcie3", "V100 16 GB, with copies as AutoSwap's authors measured them (Apache SINGA)",
                  v100_pcie3},
    MachinePreset{"a100-pcie4", "data sheet, and 25 GB/s each way as nvbandwidth reports say", a100_pcie4},
    MachinePreset{"gh200", "data sheet, and 411 and 170 GB/s as nvbandwidth reports say", gh200,
                  "486 GB/s, STREAM on a GH200 with 480 GB (arXiv 2407.07850)"},
    MachinePreset{"cxl-x8", "arithmetic of CXL 2.0 x8; sizes and latency assumed", cxl_x8},
    of_slow_memory<0>(),
    of_slow_memory<1>(),
    of_slow_memory<2>(),
    of_slow_memory<3>(),
    MachinePreset{"rtx4090-pcie4", "Ada architecture paper, and the link of the A100", rtx4090_pcie4},
    MachinePreset{"rtx5090-pcie5", "data sheet, and 56 GB/s, measured (JustVugg/colibri#537)", rtx5090_pcie5,
                  "108 GB/s: 70 of the processor beside 37 of the link (JustVugg/colibri#537)"},
    MachinePreset{"gb200", "data sheet, and 350 GB/s each way, measured (pytorch/torchtitan#3489)", gb200,
                  "368 GB/s: two GPUs of a GB300 to one Grace (NVIDIA/Megatron-LM#6491)"},
};

}  // namespace

std::span<const MachinePreset> machine_presets() noexcept { return presets; }

}  // namespace vedette
