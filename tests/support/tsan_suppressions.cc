// What the thread sanitizer cannot see: it takes mapping a frame over a chunk for a write of the chunk, and does not know that the kernel
// lets those who touch the chunk wait until the frame is there. Beside a busy thread it has forgotten who mapped ("failed to restore the
// stack"), and only the reader is left to name: training_loop_test compares every word itself.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:vedette::FileFrames::show\n"
         "race:vedette::FileFrames::hide\n"
         "race:vedette::remap_pages\n"
         "race:stress/training_loop_test.cc\n";
}
// A suppression is matched against the stack of the older access, so that must not be forgotten: the longest history there is.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "history_size=7"; }
#endif
