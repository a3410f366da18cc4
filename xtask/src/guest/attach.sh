# The steps of `cargo xtask guest --attach`, after `setup.sh` and `file_system.sh`: `iopath attach` in the guest, on
# files of a file system on /dev/vda, and on models. The kernel has the driver.

# Starts `iopath` with these arguments and waits until it has printed its devices.
start() {
    rm -f /tmp/devices
    iopath "$@" >/tmp/devices 2>>/tmp/messages &
    echo $! >/tmp/server
    for n in $(seq 1 300); do
        [ -s /tmp/devices ] && return 0
        kill -0 "$(cat /tmp/server)" || break
        sleep 0.2
    done
    cat /tmp/messages
    return 1
}

# The server ends, and its last message contains $1. It need not be a child of this shell.
ends() {
    for n in $(seq 1 300); do
        state=$(cut -d " " -f 3 "/proc/$(cat /tmp/server)/stat" 2>/dev/null)
        case $state in "" | Z) break ;; esac
        sleep 0.2
    done
    tail -n 3 /tmp/messages
    tail -n 1 /tmp/messages | grep -q "$1"
}

is_gone() { [ ! -e "$1" ]; }

# The server is killed, and another one continues the device. A pause shows that requests wait.
kill_and_recover() {
    sleep 2
    kill -9 "$(cat /tmp/server)"
    sleep 1
    start attach --recover 0
}

# A server that gets no memory for its buffers leaves the device as it is: another one continues it.
recovers_without_memory() {
    (
        ulimit -v "$1"
        refuses "memory" attach --recover 0
    )
}

# A target that does not respond: `detach` ends, and states how to go on.
detaches_a_silent_device() {
    # The device stays open, so that the end of dd does not write what it has left in the page cache.
    exec 9<>/dev/ublkb0
    dd if=/dev/urandom of=/dev/ublkb0 bs=64k count=16 conv=notrunc
    kill -STOP "$(cat /tmp/server)"
    refuses "has completed no request .* kill -9" detach 0
    result=$?
    kill -CONT "$(cat /tmp/server)"
    exec 9>&-
    return $result
}

# Many pages of a slow disk are not written when its server is to end.
dirty() {
    fio --name=dirty --filename=/dev/ublkb3 --rw=randwrite --bs=4k --iodepth=32 --ioengine=libaio --direct=1 --size=8g \
        --io_size=4m
}

# The device $1 is removed while $2 is not.
is_removed_before() {
    for n in $(seq 1 300); do
        [ -e "/dev/ublkc$1" ] || break
        sleep 0.1
    done
    [ ! -e "/dev/ublkc$1" ] && [ -e "/dev/ublkc$2" ]
}

refuses() {
    expected=$1
    shift
    if iopath "$@" >/tmp/refusal 2>&1; then
        echo "success of: iopath $*"
        return 1
    fi
    cat /tmp/refusal
    grep -q "$expected" /tmp/refusal
}

# The list has the line $1, soon.
lists() {
    for n in $(seq 1 20); do
        iopath attach --list >/tmp/list && grep -q "$1" /tmp/list && return 0
        sleep 0.2
    done
    cat /tmp/list
    return 1
}

has() { [ "$(cat /sys/block/ublkb0/$1)" = "$2" ] || { echo "$1: $(cat /sys/block/ublkb0/$1)"; return 1; }; }

properties() {
    has queue/write_cache "write back" && has queue/fua 1 && has queue/logical_block_size 512 && has ro 0 &&
        has size $((320 * 2048))
}

# The 99th percentile of four readers beside a writer with 32 writes in flight, in microseconds.
p99_of_reads() {
    fio --name=writer --filename=/dev/ublkb0 --rw=randwrite --bs=16k --iodepth=32 --ioengine=libaio --direct=1 --size=8g \
        --time_based --runtime=10 >/dev/null &
    writer=$!
    fio --name=readers --filename=/dev/ublkb0 --rw=randread --bs=4k --ioengine=psync --direct=1 --size=8g --numjobs=4 \
        --group_reporting --time_based --runtime=9 --minimal | grep -o "99.000000%=[0-9]*" | head -n 1 | cut -d = -f 2
    wait $writer
}

step host-file-system mount_targets
step target truncate -s 320M /data/disk

rmmod ublk_drv
step no-driver refuses "modprobe ublk_drv" attach /data/disk
insmod /modules/ublk_drv.ko

step attach start attach /data/disk
step properties properties
step list lists "ublkb0 .*live.*/data/disk"
step locked refuses "is locked" attach /data/disk
beside=kill_and_recover
use_file_system /dev/ublkb0 ext4 --loops=3
beside=true
step fio-verify-device verify_device /dev/ublkb0
step remake make_ext4 /dev/ublkb0
step mount-again mount -t ext4 /dev/ublkb0 /mnt
step in-use refuses "is in use: mounted on /mnt" detach 0
# A server that ends leaves a device that is in use, and the next one continues it.
kill "$(cat /tmp/server)"
step left ends "is in use and waits"
step list-waiting lists "ublkb0 .*waits for a server"
truncate -s 100M /data/other
step other-target refuses "the target is not the one" attach --recover 0 /data/other
step volatile refuses "needs a target on iopath-direct" attach --recover 0 --path iopath-buffered /data/disk
step no-memory recovers_without_memory 120000
step recover start attach --recover 0 --metrics /tmp/metrics
step write fill
step unmount-again umount /mnt
step silent detaches_a_silent_device
step detach iopath detach /dev/ublkb0
step ends ends "served .* requests"
step metrics grep "^iopath_transfers_total [1-9]" /tmp/metrics
step gone is_gone /dev/ublkb0
step missing refuses "there is no device 0" detach 0

step attach-buffered start attach --path iopath-buffered --cache 16m --elevator deadline /data/disk
use_file_system /dev/ublkb0 xfs
step fio-verify-device verify_device /dev/ublkb0
# Its completed writes are in its memory: the device ends with a killed server.
kill -9 "$(cat /tmp/server)"
sleep 2
step list-stopped lists "ublkb0 .*stopped"
step not-recoverable refuses "cannot go on" attach --recover 0
step detach-dead iopath detach 0

step attach-two start attach --device 3 model:hdd-20tb /data/disk
step lists-model lists "ublkb3 .*model:hdd-20tb"
step read-model dd if=/dev/ublkb3 of=/dev/null bs=64k count=16 skip=1000000
step detach-all iopath detach --all
step ends-all ends "served .* requests"

step attach-slow start attach --device 3 --path iopath-buffered model:ide-2001 /data/disk
step dirty dirty
kill "$(cat /tmp/server)"
step end-beside is_removed_before 4 3
step ends-slow ends "served .* requests"

for elevator in none deadline fair; do
    step "attach-$elevator" start attach model:ide-2001 --elevator $elevator --queues 1
    echo "guest: p99 of reads beside a writer with $elevator: $(p99_of_reads) us"
    step "detach-$elevator" iopath detach 0
    step "end-$elevator" ends "served .* requests"
done
end "PASSED"
