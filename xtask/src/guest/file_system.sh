# A file system on a disk, for the steps of all guests that have one. Each step prints a line.

fill() { for n in $(seq 1 40); do head -c 100000 /dev/urandom >/mnt/file$n || return 1; done; }
sum() { (cd /mnt && sha256sum file*) >/tmp/sums; }
compare() { (cd /mnt && sha256sum -c /tmp/sums); }

make_ext4() { mkfs.ext4 -q -F "$1"; }
check_ext4() { e2fsck -f -n "$1"; }
make_xfs() { mkfs.xfs -q -f "$1"; }
check_xfs() { xfs_repair -n "$1"; }

# A folder for the targets of `iopath attach`, on the disk of the guest.
mount_targets() { mkdir -p /run /data && make_ext4 /dev/vda && mount -t ext4 /dev/vda /data; }

verify_files() {
    fio --name=files --directory=/mnt --size=8m --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
        --verify=crc32c --fsync=64 "$@"
}

verify_device() {
    fio --name=device --filename="$1" --size=16m --rw=randwrite --bs=4k --iodepth=32 --ioengine=libaio --direct=1 \
        --verify=crc32c
}

# A function that runs beside fio, such as the end of a server.
beside=true

# Makes a file system of type $2 on the disk $1 and checks it. More options of fio may follow.
use_file_system() {
    disk=$1
    type=$2
    shift 2
    step "mkfs-$type" "make_$type" "$disk"
    step mount mount -t "$type" "$disk" /mnt
    step fill fill
    step sum sum
    if [ -x /bin/fsx ]; then
        step fsx fsx -N "$fsx_ops" -S 1 /mnt/fsx
        rm -f /mnt/fsx*
    fi
    $beside &
    other=$!
    step fio-verify-files verify_files "$@"
    step beside wait $other
    rm -f /mnt/files*
    step trim fstrim /mnt
    step remount sh -c "umount /mnt && mount -t $type $disk /mnt"
    step compare compare
    step unmount umount /mnt
    step "fsck-$type" "check_$type" "$disk"
}
