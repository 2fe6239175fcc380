// How the sanitizers are set in the tests; nothing in other builds. TSAN_OPTIONS and ASAN_OPTIONS still win.
//
// Many tests take faults, so the sanitizers leave SIGSEGV and SIGBUS alone. Such a signal then ends the process by the
// signal, and not with a report and another status. Weak: a test about the sanitizer itself sets its own.
#if defined(__SANITIZE_ADDRESS__)
extern "C" const char* __asan_default_options();
extern "C" [[gnu::weak]] const char* __asan_default_options() { return "handle_segv=0:handle_sigbus=0"; }
#elif defined(__SANITIZE_THREAD__)
// A race is told with both its sides only while the older one is remembered: the longest history there is. Children of
// programs with threads start threads in some tests.
extern "C" const char* __tsan_default_options();
extern "C" [[gnu::weak]] const char* __tsan_default_options() {
  return "handle_segv=0:handle_sigbus=0:history_size=7:die_after_fork=0";
}
// Copies of the simulated GPU race where a test plants it; its own detector is what has to say so.
extern "C" const char* __tsan_default_suppressions();
extern "C" [[gnu::weak]] const char* __tsan_default_suppressions() { return "race:vedette::simulated::copy\n"; }
#endif
