# The steps of `cargo xtask guest`, after `setup.sh` and `file_system.sh`: use an NBD export of the host as a disk.

connect() { nbd-client 10.0.2.2 "$port" /dev/nbd0 -N disk -C 2 -b 4096; }

step connect connect
use_file_system /dev/nbd0 ext4
step disconnect nbd-client -d /dev/nbd0
step connect-again connect
step fsck-again check_ext4 /dev/nbd0
step fio-verify-device verify_device /dev/nbd0
step disconnect-again nbd-client -d /dev/nbd0
end "PASSED"
