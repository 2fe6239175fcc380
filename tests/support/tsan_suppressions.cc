// What the thread sanitizer cannot see: it takes mapping a frame over a chunk for a write of the chunk, and does not know that the kernel
// lets those who touch the chunk wait until the frame is there.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:vedette::FileFrames::show\n"
         "race:vedette::FileFrames::hide\n"
         "race:vedette::remap_pages\n";
}
#endif
