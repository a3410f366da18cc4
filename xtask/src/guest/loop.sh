# The steps of `cargo xtask guest --loop`, after `setup.sh` and `file_system.sh`: random reads of a file through
# `iopath attach` and through a loop device, one after the other, past the page cache of the guest and through a page cache.

iops() {
    fio --name=reads --filename="$1" --rw=randread --bs=4k --iodepth=32 --ioengine=libaio --direct=1 --size=64m \
        --time_based --ramp_time=2 --runtime=8 --minimal | cut -d ";" -f 8
}

read_loop() {
    # The losetup of the shell has no such option.
    /bin/losetup --direct-io="$1" /dev/loop0 /data/disk && loop=$(iops /dev/loop0) && /bin/losetup -d /dev/loop0
}

read_attached() {
    rm -f /tmp/devices
    iopath attach --path "$1" --cache 128m --device 0 /data/disk >/tmp/devices &
    server=$!
    for n in $(seq 1 300); do
        [ -s /tmp/devices ] && break
        sleep 0.1
    done
    attached=$(iops /dev/ublkb0) && iopath detach 0 && wait $server
}

step host-file-system mount_targets
step file dd if=/dev/zero of=/data/disk bs=1M count=64 conv=fsync
for round in 1 2 3; do
    for pair in "on iopath-direct" "off iopath-buffered"; do
        set -- $pair
        step "loop-$2" read_loop "$1"
        step "$2" read_attached "$2"
        echo "guest: $2: $attached IOPS, loop device (direct I/O $1): $loop IOPS, ratio $(echo "$attached $loop" | awk '{ printf "%.2f", $1 / $2 }')"
    done
done
end "PASSED"
