#!/usr/bin/env bash
# The inside of a small machine: systemd as process 1, over a copy-on-write view of this machine's files.
#
#   machine.sh FOLDER LAYER    FOLDER: empty, for what is written; LAYER: files that lie over this machine's
#
# To be run in fresh namespaces (mount, pid, ipc, uts, net, cgroup): see machine.py.
set -euo pipefail
folder=$1 layer=$2
mount --make-rprivate /
mount -t tmpfs tmpfs "$folder" # an overlay cannot write to another overlay, and this machine's own root may be one
mkdir "$folder/written" "$folder/work" "$folder/root"
cp -a "$layer/." "$folder/written"
chmod 755 "$folder/written" # it becomes /
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/written,workdir=$folder/work" "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys # the kernel's settings are the real machine's
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty dev
mkdir dev/shm dev/pts dev/mqueue dev/hugepages
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx

# Nothing of this machine's is started: systemd sees these units only.
mkdir -p run/units/outboxd.service.d
for target in sysinit basic network-online shutdown; do
    printf '[Unit]\nDefaultDependencies=no\n' >"run/units/$target.target"
done
echo 'Wants=systemd-journald.socket' >>run/units/basic.target
cp lib/systemd/system/systemd-journald{.service,.socket,-dev-log.socket} etc/systemd/system/outboxd.service run/units
echo 0123456789abcdef0123456789abcdef >etc/machine-id

pivot_root . tmp
umount -l /tmp
mount --make-rshared / # as every systemd has it, which mounts credentials in a process of its own
exec env -i container=other SYSTEMD_UNIT_PATH=/run/units PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    /lib/systemd/systemd --system --unit=basic.target --log-target=journal
