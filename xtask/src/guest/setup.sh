#!/bin/busybox sh
# The start of the first process of a guest; the steps follow. They have the variables of the kernel's command line, such as
# `port`. A line `guest: MESSAGE` is a message to the host.

/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for word in $(cat /proc/cmdline); do
    case $word in *=*) eval "$word" ;; esac
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

for module in failover net_failover virtio_net virtio_blk nbd libcrc32c xfs loop ublk_drv; do
    insmod /modules/$module.ko || end "FAILED: no module $module"
done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2
sleep 1
