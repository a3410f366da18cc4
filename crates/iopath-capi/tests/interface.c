// Calls every function of iopath.h, with right and wrong arguments: `interface DIRECTORY`. Prints "ok" at the end.

#include <errno.h>
#include <iopath.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "%s:%d: %s fails; last error: %s\n", __FILE__, __LINE__, #condition,           \
              iopath_last_error());                                                                  \
      exit(1);                                                                                       \
    }                                                                                                \
  } while (0)

enum { BLOCK = 4096, BLOCKS = 64, DEPTH = 8 };

static iopath_volume *open_with(const char *path, const char *mode) {
  iopath_options *options = iopath_options_new();
  CHECK(options != NULL);
  CHECK(iopath_options_set_number(options, "create", BLOCK * BLOCKS) == 0);
  CHECK(iopath_options_set_number(options, "cache_bytes", 1 << 20) == 0);
  CHECK(iopath_options_set_text(options, "mode", mode) == 0);
  iopath_volume *volume = NULL;
  CHECK(iopath_open(path, options, &volume) == 0);
  CHECK(volume != NULL);
  iopath_options_free(options);
  return volume;
}

static void errors_have_numbers_and_messages(const char *directory, const char *path) {
  iopath_volume *volume = (iopath_volume *)1;
  CHECK(iopath_open("/nonexistent/x", NULL, &volume) == -ENOENT);
  CHECK(volume == NULL);
  CHECK(strstr(iopath_last_error(), "/nonexistent/x") != NULL);
  CHECK(iopath_open(directory, NULL, &volume) == -EISDIR);
  CHECK(iopath_open(NULL, NULL, &volume) == -EINVAL);
  CHECK(strcmp(iopath_last_error(), "path is NULL") == 0);
  CHECK(iopath_open(path, NULL, NULL) == -EINVAL);

  iopath_options *options = iopath_options_new();
  CHECK(iopath_options_set_number(options, "no-such", 1) == -EINVAL);
  CHECK(strstr(iopath_last_error(), "cache_bytes") != NULL);
  CHECK(iopath_options_set_number(options, "write", 2) == -EINVAL);
  CHECK(iopath_options_set_number(options, "depth", 1ull << 40) == -EINVAL);
  CHECK(iopath_options_set_text(options, "mode", "fast") == -EINVAL);
  CHECK(strstr(iopath_last_error(), "direct, raw, buffered") != NULL);
  CHECK(iopath_options_set_text(options, "depth", "8") == -EINVAL);
  CHECK(iopath_options_set_text(options, NULL, "8") == -EINVAL);
  CHECK(iopath_options_set_text(options, "engine", "threads") == 0);
  CHECK(iopath_options_set_text(options, "unaligned", "bounce") == 0);
  CHECK(iopath_options_set_text(options, "elevator", "no-such") == 0);
  CHECK(iopath_open(path, options, &volume) == -EINVAL);
  CHECK(iopath_options_set_text(options, "elevator", "deadline:read_expire_ms=100") == 0);
  CHECK(iopath_open(path, options, &volume) == 0);
  CHECK(iopath_write_at(volume, "x", 1, 0) == -EROFS);
  CHECK(iopath_close(volume) == 0);
  CHECK(iopath_options_set_number(options, "create_new", BLOCK) == 0);
  CHECK(iopath_open(path, options, &volume) == -EEXIST);
  iopath_options_free(options);

  CHECK(iopath_read_at(NULL, NULL, 0, 0) == -EINVAL);
  CHECK(iopath_flush(NULL) == -EINVAL);
  CHECK(iopath_batch_submit(NULL) == -EINVAL);
  CHECK(iopath_batch_buffer(NULL) == NULL);
  CHECK(iopath_buffer_data(NULL) == NULL);
  CHECK(iopath_abandon(NULL) == -EINVAL);
  iopath_options_free(NULL);
  iopath_buffer_free(NULL);
  iopath_batch_free(NULL);
  CHECK(iopath_close(NULL) == 0);
}

static void a_direct_volume_needs_aligned_memory(const char *path) {
  iopath_volume *volume = open_with(path, "direct");
  iopath_facts facts;
  CHECK(iopath_get_facts(volume, &facts) == 0);
  CHECK(iopath_get_facts(volume, NULL) == -EINVAL);
  CHECK(facts.size_bytes == BLOCK * BLOCKS);
  CHECK(facts.block_bytes >= 512 && facts.request_bytes_max >= facts.block_bytes);

  iopath_buffer *buffer = iopath_buffer_new(BLOCK);
  char *data = iopath_buffer_data(buffer);
  CHECK(data != NULL && (uintptr_t)data % facts.memory_align_bytes == 0);
  memset(data, 'd', BLOCK);
  CHECK(iopath_write_durably_at(volume, data, BLOCK, 0) == 0);
  CHECK(iopath_write_at(volume, data, 1, 1) == -EINVAL);
  CHECK(iopath_read_at(volume, NULL, BLOCK, 0) == -EINVAL);
  memset(data, 0, BLOCK);
  CHECK(iopath_read_at(volume, data, BLOCK, 0) == BLOCK);
  CHECK(data[0] == 'd' && data[BLOCK - 1] == 'd');
  CHECK(iopath_read_at(volume, data, BLOCK, BLOCK * BLOCKS) == 0);
  CHECK(iopath_accept_loss(volume) == -EOPNOTSUPP);
  iopath_buffer_free(buffer);
  CHECK(iopath_close(volume) == 0);
}

static void a_buffered_volume_takes_any_bytes(const char *path) {
  iopath_volume *volume = open_with(path, "buffered");
  char text[] = "any bytes", read[sizeof text] = "";
  CHECK(iopath_write_at(volume, text, sizeof text, 12345) == 0);
  CHECK(iopath_flush_range(volume, 12345, sizeof text) == 0);
  CHECK(iopath_read_at(volume, read, sizeof read, 12345) == sizeof read);
  CHECK(strcmp(read, text) == 0);

  char first[3] = "", second[4] = "";
  struct iovec vectors[] = {{first, 3}, {NULL, 0}, {second, 4}};
  CHECK(iopath_readv_at(volume, vectors, 3, 12345) == 7);
  CHECK(memcmp(first, "any", 3) == 0 && memcmp(second, " byt", 4) == 0);
  struct iovec words[] = {{"two ", 4}, {"words", 6}};
  CHECK(iopath_writev_at(volume, words, 2, 100) == 0);
  CHECK(iopath_read_at(volume, read, sizeof read, 100) == sizeof read);
  CHECK(strcmp(read, "two words") == 0);
  CHECK(iopath_readv_at(volume, NULL, 2, 0) == -EINVAL);
  CHECK(iopath_readv_at(volume, NULL, 0, 0) == 0);

  CHECK(iopath_advise(volume, 0, BLOCK, IOPATH_ADVICE_WILL_NEED) == 0);
  CHECK(iopath_advise(volume, 0, BLOCK, 17) == -EINVAL);
  CHECK(iopath_write_zeroes(volume, 0, BLOCK) == 0);
  int discarded = iopath_discard(volume, BLOCK, BLOCK);
  CHECK(discarded == 0 || discarded == -EOPNOTSUPP);
  int allocated = iopath_allocate(volume, 0, BLOCK);
  CHECK(allocated == 0 || allocated == -EOPNOTSUPP);
  CHECK(iopath_accept_loss(volume) == 0);
  CHECK(iopath_resize(volume, BLOCK) == 0);
  CHECK(iopath_read_at(volume, read, sizeof read, BLOCK - 2) == 2);
  CHECK(iopath_resize(volume, BLOCK * BLOCKS) == 0);
  CHECK(iopath_flush(volume) == 0);
  CHECK(iopath_sync_directory(volume) == 0);
  CHECK(iopath_try_lock(volume) == 0);
  CHECK(iopath_unlock(volume) == 0);

  // Bytes that were not flushed are given up.
  CHECK(iopath_write_at(volume, "lost", 4, 0) == 0);
  iopath_batch *batch;
  CHECK(iopath_batch_new(volume, 1, BLOCK, &batch) == 0);
  CHECK(iopath_abandon(volume) == -EBUSY);
  iopath_batch_free(batch);
  CHECK(iopath_read_at(volume, read, 4, 0) == 4 && memcmp(read, "lost", 4) == 0);
  CHECK(iopath_abandon(volume) == 0);
  volume = open_with(path, "buffered");
  CHECK(iopath_read_at(volume, read, 4, 0) == 4 && memcmp(read, "\0\0\0\0", 4) == 0);
  CHECK(iopath_close(volume) == 0);
}

// Writes all blocks with DEPTH in flight, then reads them.
static void a_batch_keeps_many_requests_in_flight(const char *path, const char *mode) {
  iopath_volume *volume = open_with(path, mode);
  iopath_batch *batch;
  CHECK(iopath_batch_new(volume, DEPTH, BLOCK, &batch) == 0);
  iopath_completion done;
  CHECK(iopath_batch_wait(batch, -1, &done) == 0);
  for (int is_read = 0; is_read < 2; is_read++) {
    int next = 0, completed = 0;
    while (completed < BLOCKS) {
      char *buffer;
      while (next < BLOCKS && (buffer = iopath_batch_buffer(batch)) != NULL) {
        memset(buffer, is_read ? 0 : next, BLOCK);
        uint64_t offset = (uint64_t)next * BLOCK;
        CHECK((is_read ? iopath_batch_read(batch, buffer, BLOCK, offset, next)
                       : iopath_batch_write(batch, buffer, BLOCK, offset, 0, next)) == 0);
        // The batch has it now.
        CHECK(iopath_batch_release(batch, buffer) == -EINVAL);
        next++;
      }
      CHECK(iopath_batch_wait(batch, -1, &done) == 1);
      CHECK(done.result == BLOCK && done.token < BLOCKS && done.buffer != NULL);
      char *bytes = done.buffer;
      CHECK(bytes[0] == (char)done.token && bytes[BLOCK - 1] == (char)done.token);
      CHECK(iopath_batch_release(batch, done.buffer) == 0);
      completed++;
    }
    CHECK(iopath_batch_flush(batch, 77) == 0);
    CHECK(iopath_batch_wait(batch, -1, &done) == 1);
    CHECK(done.result == 0 && done.token == 77 && done.buffer == NULL);
  }

  char *buffer = iopath_batch_buffer(batch);
  CHECK(iopath_batch_read(batch, buffer + 1, BLOCK, 0, 0) == -EINVAL);
  CHECK(iopath_batch_write(batch, buffer, BLOCK, 0, 2, 0) == -EINVAL);
  CHECK(iopath_batch_read(batch, buffer, 2 * BLOCK, 0, 0) == -EINVAL);
  CHECK(iopath_batch_write(batch, buffer, BLOCK, 0, IOPATH_DURABLE, 5) == 0);
  CHECK(iopath_batch_submit(batch) == 0);
  while (iopath_batch_poll(batch, &done) == 0) usleep(100);
  CHECK(done.token == 5 && done.result == BLOCK);
  CHECK(iopath_batch_cancel(batch, 5) == 0);
  CHECK(iopath_batch_write_zeroes(batch, 0, BLOCK, 6) == 0);
  CHECK(iopath_batch_wait(batch, -1, &done) == 1 && done.token == 6);
  CHECK(iopath_batch_discard(batch, 0, BLOCK, 7) == 0);
  CHECK(iopath_batch_wait(batch, -1, &done) == 1 && done.token == 7);
  CHECK(iopath_batch_wait(batch, -1, NULL) == -EINVAL);
  // A request in flight does not stop either.
  CHECK(iopath_batch_read(batch, buffer, BLOCK, 0, 8) == 0);
  CHECK(iopath_close(volume) == 0);
  iopath_batch_free(batch);
}

static void an_event_loop_waits_for_a_descriptor(const char *path) {
  iopath_volume *volume = open_with(path, "direct");
  iopath_batch *batch;
  CHECK(iopath_batch_new(volume, DEPTH, BLOCK, &batch) == 0);
  int descriptor = iopath_batch_fd(batch);
  CHECK(descriptor >= 0);
  CHECK(iopath_batch_read(batch, iopath_batch_buffer(batch), BLOCK, 0, 1) == 0);
  CHECK(iopath_batch_submit(batch) == 0);
  iopath_completion done;
  while (iopath_batch_poll(batch, &done) == 0) {
    int64_t limit = iopath_batch_next_timeout(batch);
    struct pollfd event = {descriptor, POLLIN, 0};
    CHECK(poll(&event, 1, limit < 0 ? 60000 : (int)(limit / 1000000 + 1)) >= 0);
  }
  CHECK(done.token == 1 && done.result == BLOCK);
  CHECK(iopath_batch_read(batch, done.buffer, BLOCK, 0, 2) == 0);
  while (iopath_batch_wait(batch, 1000000, &done) == 0) {
  }
  CHECK(done.token == 2);
  close(descriptor);
  iopath_batch_free(batch);
  CHECK(iopath_close(volume) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  CHECK(strcmp(iopath_last_error(), "") == 0);
  CHECK(strchr(iopath_version(), '.') != NULL);
  char path[4096];
  snprintf(path, sizeof path, "%s/file", argv[1]);
  a_direct_volume_needs_aligned_memory(path);
  errors_have_numbers_and_messages(argv[1], path);
  a_buffered_volume_takes_any_bytes(path);
  a_batch_keeps_many_requests_in_flight(path, "direct");
  a_batch_keeps_many_requests_in_flight(path, "buffered");
  an_event_loop_waits_for_a_descriptor(path);
  puts("ok");
  return 0;
}
