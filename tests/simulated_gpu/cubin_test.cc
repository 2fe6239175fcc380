// A cubin made by hand: its kernel is launched with copies of its arguments, in the order of its stream.
#include <elf.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "simulated_gpu/interpreted.h"
#include "simulated_gpu/test_device.h"

namespace vedette::testing::cubin_test {
namespace {

using simulated::InterpretedAccess;
using simulated::InterpretedLaunch;

constexpr unsigned words = 8;

template <class Function>
Function* of_driver(const char* name) {
  static void* const library = ::dlopen(SIMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

// The sections of a kernel "add" with a pointer and a word, as ptxas writes them: the last parameter comes first.
std::string cubin() {
  std::string image(sizeof(Elf64_Ehdr), 0);
  std::vector<Elf64_Shdr> sections;
  const std::string names("\0.shstrtab\0.text.add\0.nv.info.add", 34);
  const auto add = [&](unsigned name, const std::string& content) {
    Elf64_Shdr section{};
    section.sh_name = name;
    section.sh_type = SHT_PROGBITS;
    section.sh_offset = image.size();
    section.sh_size = content.size();
    sections.push_back(section);
    image += content;
  };
  const auto parameter = [](unsigned char place, unsigned char offset, std::uint32_t bytes) {
    std::string record{4, 0x17, 12, 0, 0, 0, 0, 0, static_cast<char>(place), 0, static_cast<char>(offset), 0};
    const std::uint32_t word = bytes << 18 | 0x1f000;
    return record.append(reinterpret_cast<const char*>(&word), sizeof word);
  };
  add(1, names);
  add(11, "code");
  add(21,
      std::string{4, 0x37, 4, 0, 1, 2, 3, 4} + parameter(1, 8, 4) + std::string{3, 0x50, 0, 0} + parameter(0, 0, 8));
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_shoff = image.size();
  header.e_shnum = static_cast<std::uint16_t>(sections.size());
  std::memcpy(image.data(), &header, sizeof header);
  return image.append(reinterpret_cast<const char*>(sections.data()), sections.size() * sizeof(Elf64_Shdr));
}

int ask(const InterpretedLaunch* launch, InterpretedAccess* room, int count) {
  if (launch->argument_count != 2 || count < 1) return 0;
  void* at = nullptr;
  std::memcpy(&at, launch->arguments[0], sizeof at);
  room[0] = {.at = at, .bytes = 4096, .write = 1};
  return 1;
}

VEDETTE_ON_THE_DEVICE void run(const InterpretedLaunch* launch) {
  std::uint32_t value = 0;
  std::memcpy(&value, launch->arguments[1], launch->argument_bytes[1]);
  auto* const words = static_cast<std::uint32_t*>(control().reach(launch->accesses[0].at));
  for (std::size_t i = 0; i < launch->grid[0]; ++i) words[i] += value;
}

using Launch = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cuda::StreamHandle,
                   void**, void**);

struct Bench {
  Bench() {
    of_driver<void(simulated::AskAccesses, simulated::RunInterpreted)>("simulated_gpu_interpret")(&ask, &run);
    const std::string image = cubin();
    EXPECT_EQ(of_driver<int(void**, const void*)>("cuModuleLoadData")(&module, image.data()), 0);
    EXPECT_EQ(function_of("add"), 0);
  }
  ~Bench() {
    of_driver<int(void*)>("cuModuleUnload")(module);
    of_driver<void(simulated::AskAccesses, simulated::RunInterpreted)>("simulated_gpu_interpret")(nullptr, nullptr);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  int function_of(const char* name) {
    return of_driver<int(void**, void*, const char*)>("cuModuleGetFunction")(&function, module, name);
  }
  void add(const cuda::Stream& to, std::uint32_t value) {
    cuda::Address at = range.address();
    void* arguments[] = {&at, &value};
    const auto launch = of_driver<Launch>("cuLaunchKernel");
    EXPECT_EQ(launch(function, words, 1, 1, 32, 1, 1, 0, to.handle(), arguments, nullptr), 0);
    at = value = 0;  // they were copied
  }
  const std::shared_ptr<cuda::Device> device = open_device();
  const cuda::DeviceRange range = cuda::DeviceRange::make(device, {.bytes = 2_MiB, .handle = 2_MiB}).value();
  const cuda::Stream stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
  void* module = nullptr;
  void* function = nullptr;
};

TEST_F(SimulatedGpu, AKernelOfACubinRunsOnItsStreamWithCopiesOfItsArguments) {
  Bench bench;
  launch_fill(bench.stream.handle(), bench.range.address(), words, 5);
  bench.add(bench.stream, 2);
  bench.add(bench.stream, 3);
  std::uint32_t sum = 0;
  launch_read(bench.stream.handle(), bench.range.address(), words, &sum);
  bench.stream.synchronize().value();
  EXPECT_EQ(sum, words * 10);
  EXPECT_EQ(bench.function_of("subtract"), cuda::error_not_found);
}

TEST_F(SimulatedGpu, AKernelOfACubinThatNothingOrdersIsARace) {
  Bench bench;
  bench.add(bench.stream, 2);
  bench.add(bench.other, 3);
  bench.stream.synchronize().value();
  bench.other.synchronize().value();
  EXPECT_EQ(control().races().size(), 1U);
  control().forget_races();
}

class KernelsLeftOut : public SimulatedGpu {
 protected:
  simulated::Options options() const override { return {.memory = std::size_t{256} << 20, .skip_kernels = true}; }
};

TEST_F(KernelsLeftOut, AKernelThatNoProgramInterpretsIsLeftOutWhereThatIsAskedFor) {
  Bench bench;
  of_driver<void(simulated::AskAccesses, simulated::RunInterpreted)>("simulated_gpu_interpret")(nullptr, nullptr);
  launch_fill(bench.stream.handle(), bench.range.address(), words, 5);
  bench.add(bench.stream, 2);
  std::uint32_t sum = 0;
  launch_read(bench.stream.handle(), bench.range.address(), words, &sum);
  bench.stream.synchronize().value();
  EXPECT_EQ(sum, words * 5);
}

}  // namespace
}  // namespace vedette::testing::cubin_test
