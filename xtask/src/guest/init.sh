#!/bin/busybox sh
# The first process of the guest of `cargo xtask guest`: uses an NBD export of the host as a disk. Prints a line for each step.
# The kernel's command line has the variables `port` and `fsx_ops`.

/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for word in $(cat /proc/cmdline); do
    case $word in port=* | fsx_ops=*) eval "$word" ;; esac
done

end() {
    echo "guest: $1"
    sync
    poweroff -f
}

step() {
    name=$1
    shift
    if "$@" >/tmp/log 2>&1; then
        echo "guest: ok $name"
    else
        echo "guest: exit code $? of: $*"
        tail -n 30 /tmp/log
        dmesg | tail -n 20
        end "FAILED $name"
    fi
}

for module in failover net_failover virtio_net nbd; do
    insmod /modules/$module.ko || end "FAILED: no module $module"
done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
sleep 1

connect() { nbd-client 10.0.2.2 "$port" /dev/nbd0 -N disk -C 2 -b 4096; }
fill() { for n in $(seq 1 40); do head -c 100000 /dev/urandom >/mnt/file$n || return 1; done; }
sum() { (cd /mnt && sha256sum file*) >/tmp/sums; }
compare() { (cd /mnt && sha256sum -c /tmp/sums); }

step connect connect
step mkfs mkfs.ext4 -q -F /dev/nbd0
step mount mount -t ext4 /dev/nbd0 /mnt
step fill fill
step sum sum
if [ -x /bin/fsx ]; then
    step fsx fsx -N "$fsx_ops" -S 1 /mnt/fsx
    rm -f /mnt/fsx*
fi
step fio-verify-files fio --name=files --directory=/mnt --size=8m --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio \
    --direct=1 --verify=crc32c --fsync=64
rm -f /mnt/files*
step trim fstrim /mnt
step remount sh -c "umount /mnt && mount -t ext4 /dev/nbd0 /mnt"
step compare compare
step unmount umount /mnt
step fsck e2fsck -f -n /dev/nbd0
step disconnect nbd-client -d /dev/nbd0
step connect-again connect
step fsck-again e2fsck -f -n /dev/nbd0
step fio-verify-device fio --name=device --filename=/dev/nbd0 --size=16m --rw=randwrite --bs=4k --iodepth=32 --ioengine=libaio \
    --direct=1 --verify=crc32c
step disconnect-again nbd-client -d /dev/nbd0
end "PASSED"
