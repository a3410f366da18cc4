#!/bin/sh
# A launch agent of mpirun: `agent.sh HOST COMMAND…` runs the command on a host that is a network namespace of this name,
# with a name and a mount namespace of its own: the directory $HOST_DIRECTORY is another one on each host.
host=$1
shift
exec nsenter --net="/run/netns/$host" unshare --mount --uts sh -c '
  hostname "$1" && mount -t tmpfs tmpfs "$HOST_DIRECTORY" && shift && exec sh -c "$*"' sh "$host" "$@"
