// A program that records by hand.
#include <profiler/recorder.h>
#include <profiler/recording.h>

#include <cstdio>

int main() {
  {
    auto recorder = vedette::Recorder::open({.path = "program.vedette"}).value();
    recorder->step_began(0, {0});
    recorder->step_ended(0, {1000}, {});
  }
  if (vedette::Recording::open("program.vedette").value().headline().value().steps != 1) return 1;
  std::puts("vedette works");
}
