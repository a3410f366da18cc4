# The steps of `cargo xtask guest --vhost-user`, after `setup.sh`: the disk is a vhost-user-blk device of the host. Each step
# prints a line. At the message `kill`, the host kills the server and starts it again.

fill() { for n in $(seq 1 40); do head -c 100000 /dev/urandom >/mnt/file$n || return 1; done; }
sum() { (cd /mnt && sha256sum file*) >/tmp/sums; }
compare() { (cd /mnt && sha256sum -c /tmp/sums); }

step disk test -b /dev/vda
step mkfs mkfs.ext4 -q -F /dev/vda
step mount mount -t ext4 /dev/vda /mnt
step fill fill
step sum sum
if [ -x /bin/fsx ]; then
    step fsx fsx -N "$fsx_ops" -S 1 /mnt/fsx
    rm -f /mnt/fsx*
fi
(sleep 2 && echo "guest: kill") &
step fio-verify-files fio --name=files --directory=/mnt --size=8m --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio \
    --direct=1 --verify=crc32c --fsync=64 --loops=3
rm -f /mnt/files*
step trim fstrim /mnt
step remount sh -c "umount /mnt && mount -t ext4 /dev/vda /mnt"
step compare compare
step unmount umount /mnt
step fsck e2fsck -f -n /dev/vda
step fio-verify-device fio --name=device --filename=/dev/vda --size=16m --rw=randwrite --bs=4k --iodepth=32 --ioengine=libaio \
    --direct=1 --verify=crc32c
end "PASSED"
