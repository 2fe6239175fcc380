// For tests that run as root and change to the user `nobody`.
#pragma once
#include <unistd.h>

#include <filesystem>

namespace vedette::testing {

// Some machines' root folder is root's alone (a debootstrap into mktemp -d): other users find no library there.
inline bool nobody_finds_files() {
  return ::geteuid() != 0 || (std::filesystem::status("/").permissions() & std::filesystem::perms::others_exec) !=
                                 std::filesystem::perms::none;
}
inline constexpr const char* no_files_for_nobody =
    "the folder / is closed to other users than root, so a program that becomes nobody finds no libraries";

}  // namespace vedette::testing
