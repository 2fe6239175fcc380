#!/usr/bin/env bash
# Boots another kernel in software emulation and runs programs of this build under it, as root, one after the other:
#
#   boot.sh KERNEL FOLDER PROGRAM [ARGUMENTS]...   each PROGRAM with its ARGUMENTS is one word, split at spaces
#
# The guest has in its memory busybox, the programs, and the libraries that ldd names, at the paths they have here;
# and a disk, ext4, where the programs run. Modules that these need lie beside KERNEL. Output of each program goes to
# standard output, followed by "guest: rc=N PROGRAM". Ends with 77 and a sentence where something that is needed is
# missing.
set -euo pipefail
kernel=$1 folder=$2
shift 2

skip() { echo "$*"; exit 77; }
[ -s "$kernel" ] || skip "no kernel for the guest at $kernel (scripts/setup.sh --full fetches Debian's)"
qemu=$(command -v qemu-system-x86_64) ||
  skip "qemu-system-x86_64 is not installed (scripts/setup.sh --full installs it)"
busybox=$(command -v busybox) || skip "busybox is not installed (scripts/setup.sh --full installs busybox-static)"
PATH=$PATH:/sbin:/usr/sbin
command -v mke2fs >/dev/null || skip "mke2fs is not installed (package e2fsprogs)"
command -v cpio >/dev/null || skip "cpio is not installed (scripts/setup.sh --full installs it)"

root=$folder/root
rm -rf "$root"
mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,disk,modules}
modules=(crc16 mbcache jbd2 crc32c_generic ext4 virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev
  virtio_pci virtio_blk)
for module in "${modules[@]}"; do cp "${kernel%/*}/modules/$module.ko" "$root/modules/"; done
truncate -s 4G "$folder/disk"
mke2fs -q -t ext4 "$folder/disk"
echo "root:x:0:0::/:/bin/sh" >"$root/etc/passwd"
cp "$busybox" "$root/bin/busybox"
# The loader's path is the first word of its line where there is no arrow.
for program in "$@"; do
  file=${program%% *}
  for each in "$file" $(ldd "$file" 2>/dev/null | sed -nE 's/^\t(.*=> )?(\/[^ ]+) .*/\2/p'); do
    [ -e "$root$each" ] || install -D "$each" "$root$each"
  done
done
{
  echo '#!/bin/busybox sh'
  echo '/bin/busybox --install -s /bin'
  # alone a guest needs some 180 where the machine needs 5
  echo 'export PATH=/bin HOME=/ TMPDIR=/tmp VEDETTE_WATCHDOG_SECONDS=1000'
  echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mkdir -p /dev/shm'
  echo 'mount -t tmpfs tmp /tmp; mount -t tmpfs shm /dev/shm; mount -t cgroup2 cgroup2 /sys/fs/cgroup'
  echo "for m in ${modules[*]}; do insmod /modules/\$m.ko; done"
  echo 'mount -t ext4 /dev/vda /disk; chmod 777 /disk; ip link set lo up; cd /disk; uname -a'
  for program in "$@"; do
    printf 'timeout -s KILL 1200 %s </dev/null 2>&1; echo "guest: rc=$? %s"\n' "$program" "$program"
  done
  echo 'echo guest: done; poweroff -f'
} >"$root/init"
chmod +x "$root/init"
(cd "$root" && find . -print0 | cpio --null -o -H newc --quiet | gzip -1) >"$folder/initrd"
rm -rf "$root"
timeout -s KILL "${VEDETTE_GUEST_SECONDS:-1500}" "$qemu" -accel tcg,thread=multi -cpu qemu64 -smp 2 -m 3072 \
  -nodefaults -no-reboot -display none -serial stdio -kernel "$kernel" -initrd "$folder/initrd" \
  -drive "file=$folder/disk,format=raw,if=virtio,cache=unsafe" \
  -append "console=ttyS0 quiet panic=-1" </dev/null | tr -d '\r'
