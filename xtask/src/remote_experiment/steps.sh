# The steps of the guest of `cargo xtask remote-experiment`, after `setup.sh`: read an NBD export of the host through the page cache
# of the kernel. Each read prints a line: readahead, longest request and block in KiB, then the time in units of 10 ms.

clock() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}"
}

read_once() {
    echo 3 >/proc/sys/vm/drop_caches
    start=$(clock)
    dd if=/dev/nbd0 of=/dev/null bs="$1k" count=$((mib * 1024 / $1)) 2>/tmp/log || end "FAILED dd: $(tail -n 1 /tmp/log)"
    echo "guest: read $2 $3 $1 $(($(clock) - start))"
}

step connect nbd-client "$host" "$port" /dev/nbd0 -N disk -b 4096
# QEMU translates the code of the guest when it first runs.
step warm-up dd if=/dev/nbd0 of=/dev/null bs=64k count=512
queue=/sys/block/nbd0/queue
for setting in $(echo "$settings" | tr , ' '); do
    readahead=${setting%:*} request=${setting#*:}
    echo "$request" >$queue/max_sectors_kb || end "FAILED: max_sectors_kb"
    echo "$readahead" >$queue/read_ahead_kb || end "FAILED: read_ahead_kb"
    for block in $(echo "$blocks" | tr , ' '); do
        for _ in $(seq "$repeat"); do
            read_once "$block" "$readahead" "$request"
        done
    done
done
step disconnect nbd-client -d /dev/nbd0
end "PASSED"
