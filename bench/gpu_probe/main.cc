// What will a GPU tier stand on? Measures it, prints a table, and writes JSON: bench/gpu_hour/README.md lists points
// and keys. Where no driver is, it says so and measures the rest of the machine.
#include "gpu_probe/program.h"

int main(int count, char** words) {
  return vedette::gpu::run_program("Measures what a GPU tier would stand on", vedette::gpu::driver_groups(), count,
                                   words);
}
