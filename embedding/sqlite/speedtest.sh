#!/bin/bash
# Compares SQLite's speedtest1 over the VFS `unix` and over iopath: speedtest.sh SOURCE DIRECTORY [SIZE [REPETITIONS]]
# SOURCE is the source tree of SQLite, for example from `apt-get source sqlite3`; databases are in DIRECTORY.
# Prints a table of medians: wall and CPU seconds of the process. The sides alternate. EXTENSION is the built extension, if there is one.
set -euo pipefail
source=$(realpath "$1") directory=$(realpath "$2") size=${3:-100} repetitions=${4:-3}
here=$(dirname "$(realpath "$0")")
target=${CARGO_TARGET_DIR:-$here/target}
build=$target/speedtest
if [ -z "${EXTENSION:-}" ]; then
  cargo build --release --manifest-path "$here/Cargo.toml"
  export EXTENSION=$target/release/libiopath_vfs.so
fi
mkdir -p "$build"
if [ ! -x "$build/speedtest1" ]; then
  (cd "$build" && "$source/configure" --disable-tcl && make sqlite3.c) > "$build/log" 2>&1
  cc -O2 -I"$build" -I"$source" "$here/speedtest.c" "$build/sqlite3.c" -o "$build/speedtest1" -lpthread -ldl -lm
fi

# One run: appends wall and CPU time to a file.
run() {
  local vfs=$1 mode=$2
  rm -f "$directory"/speedtest.db*
  sync
  /usr/bin/env TIMEFORMAT='%R %U %S' bash -c 'time "$@" > /dev/null' run \
    "$build/speedtest1" --vfs "$vfs" --journal "$mode" --size "$size" "$directory/speedtest.db" \
    2>> "$build/$mode-$vfs"
}

# The median of a sum of columns.
median() {
  awk "{ print $2 }" "$1" | sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

echo "| speedtest1 --size $size, medians of $repetitions | unix: wall, CPU s | iopath: wall, CPU s | wall, against unix | CPU |"
echo '|---|---|---|---|---|'
for mode in delete wal; do
  rm -f "$build/$mode"-*
  for repetition in $(seq "$repetitions"); do
    for vfs in $([ $((repetition % 2)) = 1 ] && echo unix iopath || echo iopath unix); do run "$vfs" "$mode"; done
  done
  wu=$(median "$build/$mode-unix" '$1') cu=$(median "$build/$mode-unix" '$2 + $3')
  wi=$(median "$build/$mode-iopath" '$1') ci=$(median "$build/$mode-iopath" '$2 + $3')
  ratio=$(awk "BEGIN { printf \"%.2f× | %.2f×\", $wi / $wu, $ci / $cu }")
  echo "| $mode | $wu, $cu | $wi, $ci | $ratio |"
done
rm -f "$directory"/speedtest.db*
