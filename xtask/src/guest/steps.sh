# The steps of `cargo xtask guest`, after `setup.sh`: use an NBD export of the host as a disk. Each step prints a line.

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
