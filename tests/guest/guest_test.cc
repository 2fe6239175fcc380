// The core on a kernel that is not this machine's: Debian 12's own (6.1), without asynchronous write protection,
// UFFDIO_MOVE, PAGEMAP_SCAN and guard pages, with a memory cgroup of version 2, in software emulation (boot.sh). The
// same programs as everywhere run there; what the kernel lacks they skip by name, and doctor says what is used instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "guest/boot.h"

namespace vedette::guest_test {
namespace {

using ::testing::HasSubstr;

TEST(DebiansOwnKernel, RunsTheCoreAndDoctorSaysWhatItUsesInstead) {
  const Boot guest =
      boot("'" VEDETTE_CLI " doctor --no-disk --json' '" VEDETTE_CLI " doctor --no-disk' " VEDETTE_GUEST_PROGRAMS);
  if (guest.status == 77) GTEST_SKIP() << guest.said;
  expect_all_well(guest);
  const auto doctor = json_in(guest.said);
  ASSERT_TRUE(doctor.is_object());
  EXPECT_THAT(doctor.at("kernel").get<std::string>(), HasSubstr("Linux 6.1."));
  EXPECT_EQ(doctor.at("uses").at("memory").at("mechanism"), "userfaultfd, mremap");
  EXPECT_THAT(doctor.at("uses").at("tracking").at("mechanism").get<std::string>(), HasSubstr("missing pages, messages"))
      << "system calls into profiled memory";
  EXPECT_FALSE(doctor.at("zap_tracking").at("works").get<bool>());
  EXPECT_FALSE(doctor.at("userfaultfd").at("move").at("works").get<bool>());
}

}  // namespace
}  // namespace vedette::guest_test
