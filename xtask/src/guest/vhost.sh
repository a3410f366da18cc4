# The steps of `cargo xtask guest --vhost-user`, after `setup.sh` and `file_system.sh`: the disk is a vhost-user-blk
# device of the host. At the message `kill`, the host kills the server and starts it again.

ask_for_kill() {
    sleep 2
    echo "guest: kill"
}

step disk test -b /dev/vda
beside=ask_for_kill
use_file_system /dev/vda ext4 --loops=3
step fio-verify-device verify_device /dev/vda
end "PASSED"
