// Kernel interface that is younger than the headers of Debian 12 (Linux 6.1): userfaultfd up to UFFDIO_MOVE (6.8) and
// PAGEMAP_SCAN (6.7). The numbers are the kernel's ABI (include/uapi/linux/userfaultfd.h, include/uapi/linux/fs.h);
// they have names of our own, so that newer system headers cannot clash with them. The features of the running kernel
// are probed at run time.
#pragma once
#include <linux/ioctl.h>
#include <linux/userfaultfd.h>

#include <cstdint>

namespace vedette::uapi {

// Advice for madvise() that the system headers may lack.
constexpr int madvise_dontneed_locked = 24;  // Linux 5.18
constexpr int madvise_collapse = 25;         // Linux 6.1

// Features of UFFDIO_API that the system headers may lack.
constexpr std::uint64_t feature_pagefault_flag_wp = 1u << 0;
constexpr std::uint64_t feature_missing_shmem = 1u << 5;
constexpr std::uint64_t feature_thread_id = 1u << 8;
constexpr std::uint64_t feature_minor_shmem = 1u << 10;
constexpr std::uint64_t feature_exact_address = 1u << 11;
constexpr std::uint64_t feature_wp_hugetlbfs_shmem = 1u << 12;
constexpr std::uint64_t feature_wp_unpopulated = 1u << 13;  // Linux 6.4
constexpr std::uint64_t feature_poison = 1u << 14;          // Linux 6.6
constexpr std::uint64_t feature_wp_async = 1u << 15;        // Linux 6.7
constexpr std::uint64_t feature_move = 1u << 16;            // Linux 6.8

// Flag of userfaultfd(2), Linux 5.11, and the ioctl of /dev/userfaultfd, Linux 6.1.
constexpr int user_mode_only = 1;
constexpr unsigned long userfaultfd_ioc_new = _IO(0xAA, 0x00);

// Moves pages from `source` to `destination` without copying; both lie in the caller's address space, the destination
// is registered with the userfaultfd. `moved` comes back as bytes, or a negative errno when nothing was moved.
struct MoveArguments {
  std::uint64_t destination, source, length, mode;
  std::int64_t moved;
};
constexpr std::uint64_t move_dontwake = 1u << 0;
constexpr std::uint64_t move_allow_source_holes = 1u << 1;
constexpr unsigned long uffdio_move = _IOWR(0xAA, 0x05, MoveArguments);

// Write protection of a registered range; the structure is struct uffdio_writeprotect.
struct WriteProtectArguments {
  std::uint64_t start, length, mode;
};
constexpr std::uint64_t writeprotect_mode_wp = 1u << 0;
constexpr std::uint64_t writeprotect_mode_dontwake = 1u << 1;
constexpr unsigned long uffdio_writeprotect = _IOWR(0xAA, 0x06, WriteProtectArguments);

// PAGEMAP_SCAN of /proc/self/pagemap: struct pm_scan_arg and struct page_region.
constexpr std::uint64_t page_is_wpallowed = 1u << 0;
constexpr std::uint64_t page_is_written = 1u << 1;
constexpr std::uint64_t page_is_file = 1u << 2;
constexpr std::uint64_t page_is_present = 1u << 3;
constexpr std::uint64_t page_is_swapped = 1u << 4;
constexpr std::uint64_t page_is_pfnzero = 1u << 5;
constexpr std::uint64_t page_is_huge = 1u << 6;

constexpr std::uint64_t scan_wp_matching = 1u << 0;    // write-protect the pages that match
constexpr std::uint64_t scan_check_wpasync = 1u << 1;  // fail where the range is not registered with WP_ASYNC

struct PageRegion {
  std::uint64_t start, end, categories;
};
struct PagemapScanArguments {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
constexpr unsigned long pagemap_scan = _IOWR('f', 16, PagemapScanArguments);

static_assert(sizeof(MoveArguments) == 40 && sizeof(WriteProtectArguments) == 24);
static_assert(sizeof(PageRegion) == 24 && sizeof(PagemapScanArguments) == 96);

}  // namespace vedette::uapi
