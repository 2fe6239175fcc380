#!/usr/bin/env bash
# Boots another kernel in software emulation and runs programs of this build under it, as root, one after the other:
#
#   boot.sh KERNEL FOLDER PROGRAM [ARGUMENTS]...   each PROGRAM with its ARGUMENTS is one word, split at spaces
#
# The guest has in its memory busybox, the programs, and the libraries that ldd names, at the paths they have here;
# and a disk, ext4, where the programs run. Modules that these need lie beside KERNEL, in modules/. Output of each
# program goes to standard output, followed by "guest: rc=N PROGRAM". Ends with 77 and a sentence where something that
# is needed is missing. Of the environment:
#
#   VEDETTE_GUEST_NODE1    MiB: a second NUMA node of so much memory, without processors, which firmware (HMAT) calls
#                          slower; node 0 has the 512 MiB, or VEDETTE_GUEST_NODE0
#   VEDETTE_GUEST_SOFT     kmem: the second node is as CXL memory is. The kernel keeps it apart ("soft reserved"), and
#                          the driver kmem gives it to the page allocator, movable
#   VEDETTE_GUEST_HMAT     off: firmware tells no latencies and bandwidths
#   VEDETTE_GUEST_DISK     a folder that is copied onto the disk, /disk there, for what is large. Programs there are
#                          named so (/disk/train), and their libraries lie in its lib/
#   VEDETTE_GUEST_PROCESSORS  how many (2); with one, none spins for another that the host does not run
#   VEDETTE_GUEST_CPU      the processor: qemu64; libtorch wants max
#   VEDETTE_GUEST_SECONDS  it is killed after so many (1500)
set -euo pipefail
kernel=$1 folder=$2
shift 2
node1=${VEDETTE_GUEST_NODE1:-} node0=${VEDETTE_GUEST_NODE0:-512}
soft=${VEDETTE_GUEST_SOFT:-} hmat=${VEDETTE_GUEST_HMAT:-on} on_disk=${VEDETTE_GUEST_DISK:-}
processors=${VEDETTE_GUEST_PROCESSORS:-2}

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
# no_timer_check: beside other work the host is too slow for the kernel to see its timer tick, and it panics.
append="console=ttyS0 quiet panic=-1 no_timer_check"
if [ "$soft" = kmem ]; then
  modules+=(dax_hmem device_dax kmem)
  [ -e "${kernel%/*}/modules/kmem.ko" ] ||
    skip "no module kmem beside $kernel (remove that folder, and scripts/setup.sh --full fetches it again)"
  # Node 1 begins at 4 GiB (max-ram-below-4g). 1 is e820's RAM, 4026531839 (0xefffffff) its "soft reserved". Below
  # 4 GiB the firmware's tables lie at its end, and then no dax device comes.
  append+=" memmap=${node1}M%4096M-1+4026531839"
fi
for module in "${modules[@]}"; do  # what is missing there is built in
  if [ -e "${kernel%/*}/modules/$module.ko" ]; then cp "${kernel%/*}/modules/$module.ko" "$root/modules/"; fi
done
truncate -s 4G "$folder/disk"
mke2fs -q -t ext4 ${on_disk:+-d "$on_disk"} "$folder/disk"
echo "root:x:0:0::/:/bin/sh" >"$root/etc/passwd"
cp "$busybox" "$root/bin/busybox"
if [ -n "$on_disk" ]; then install -D /lib64/ld-linux-x86-64.so.2 "$root/lib64/ld-linux-x86-64.so.2"; fi
# The loader's path is the first word of its line where there is no arrow.
for program in "$@"; do
  file=${program%% *}
  case $file in /disk/*) continue ;; esac
  for each in "$file" $(ldd "$file" 2>/dev/null | sed -nE 's/^\t(.*=> )?(\/[^ ]+) .*/\2/p'); do
    [ -e "$root$each" ] || install -D "$each" "$root$each"
  done
done
{
  echo '#!/bin/busybox sh'
  echo '/bin/busybox --install -s /bin'
  # alone a guest needs some 180 where the machine needs 5
  echo 'export PATH=/bin HOME=/ TMPDIR=/tmp VEDETTE_WATCHDOG_SECONDS=1000'
  if [ -n "$on_disk" ]; then echo 'export LD_LIBRARY_PATH=/disk/lib'; fi
  # Programs that were given by a path below /tmp stay reachable: no tmpfs goes over them.
  echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mkdir -p /dev/shm'
  echo '[ "$(ls /tmp)" ] || mount -t tmpfs tmp /tmp'
  echo 'mount -t tmpfs shm /dev/shm; mount -t cgroup2 cgroup2 /sys/fs/cgroup'
  if [ "$soft" = kmem ]; then echo 'echo online_movable >/sys/devices/system/memory/auto_online_blocks'; fi
  echo "for m in ${modules[*]}; do if [ -e /modules/\$m.ko ]; then insmod /modules/\$m.ko; fi; done"
  if [ "$soft" = kmem ]; then
    # Linux 6.12 gives it to kmem by itself, 6.1 does not.
    echo 'if [ ! -e /sys/bus/dax/drivers/kmem/dax0.0 ]; then'
    echo '  echo dax0.0 >/sys/bus/dax/drivers/device_dax/unbind; echo dax0.0 >/sys/bus/dax/drivers/kmem/new_id; fi'
  fi
  echo 'mount -t ext4 /dev/vda /disk; chmod 777 /disk; ip link set lo up; cd /disk; uname -a'
  for program in "$@"; do
    printf 'timeout -s KILL 1200 %s </dev/null 2>&1; echo "guest: rc=$? %s"\n' "$program" "$program"
  done
  echo 'echo guest: done; poweroff -f'
} >"$root/init"
chmod +x "$root/init"
(cd "$root" && find . -print0 | cpio --null -o -H newc --quiet | gzip -1) >"$folder/initrd"
rm -rf "$root"

machine=(-machine pc -m 3072)
if [ -n "$node1" ]; then
  between() { # FROM TO NANOSECONDS BANDWIDTH: one pair of HMAT's table
    printf '%s\n' -numa "hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-latency,latency=$3" \
      -numa "hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-bandwidth,bandwidth=$4"
  }
  initiator="" table=()
  if [ "$hmat" = on ]; then
    initiator=,initiator=0
    mapfile -t table < <(between 0 0 100 200G; between 0 1 250 50G)
  fi
  machine=(-machine "pc,hmat=$hmat${soft:+,max-ram-below-4g=${node0}M}" -m $((node0 + node1))M
    -object "memory-backend-ram,id=m0,size=${node0}M" -object "memory-backend-ram,id=m1,size=${node1}M"
    -numa "node,nodeid=0,memdev=m0,cpus=0-$((processors - 1))$initiator" -numa "node,nodeid=1,memdev=m1$initiator"
    -numa dist,src=0,dst=1,val=20 "${table[@]}")
fi
timeout -s KILL "${VEDETTE_GUEST_SECONDS:-1500}" "$qemu" -accel tcg,thread=multi -cpu "${VEDETTE_GUEST_CPU:-qemu64}" \
  -smp "$processors" "${machine[@]}" -nodefaults -no-reboot -display none -serial stdio -kernel "$kernel" \
  -initrd "$folder/initrd" -drive "file=$folder/disk,format=raw,if=virtio,cache=unsafe" \
  -append "$append" </dev/null | sed -u 's/\r//g'
