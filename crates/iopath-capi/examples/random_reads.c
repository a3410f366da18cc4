// Random reads of 4 KiB with 32 in flight, for one second.
//
//     cc -o random_reads random_reads.c $(pkg-config --cflags --libs iopath)
//     ./random_reads FILE

#include <inttypes.h>
#include <iopath.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEPTH = 32, BLOCK = 4096 };

static void fail(const char *what) {
  fprintf(stderr, "random_reads: %s: %s\n", what, iopath_last_error());
  exit(1);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: random_reads FILE\n");
    return 2;
  }
  iopath_volume *volume;
  if (iopath_open(argv[1], NULL, &volume) < 0) fail("open");
  iopath_facts facts;
  if (iopath_get_facts(volume, &facts) < 0) fail("facts");
  uint64_t blocks = facts.size_bytes / BLOCK;
  if (blocks == 0) {
    fprintf(stderr, "random_reads: %s has fewer than %d bytes\n", argv[1], BLOCK);
    return 1;
  }
  iopath_batch *batch;
  if (iopath_batch_new(volume, DEPTH, BLOCK, &batch) < 0) fail("batch");

  uint64_t state = 88172645463325252u, reads = 0;
  double start = seconds(), end = start + 1.0, now = start;
  for (;;) {
    // Fills the batch; each completion returns a buffer for the next read.
    void *buffer;
    while (now < end && (buffer = iopath_batch_buffer(batch)) != NULL) {
      uint64_t block = next_random(&state) % blocks;
      if (iopath_batch_read(batch, buffer, BLOCK, block * BLOCK, block) < 0) fail("read");
    }
    iopath_completion done;
    int waited = iopath_batch_wait(batch, -1, &done);
    if (waited < 0) fail("wait");
    if (waited == 0) break;
    if (done.result < 0) fail("read");
    iopath_batch_release(batch, done.buffer);
    reads++;
    now = seconds();
  }
  printf("%.0f reads a second\n", (double)reads / (now - start));

  iopath_batch_free(batch);
  if (iopath_close(volume) < 0) fail("close");
  return 0;
}
