#ifndef IOPATH_H
#define IOPATH_H

// Made from crates/iopath-capi/src by cbindgen: a test compares it, and writes it with IOPATH_BLESS=1.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

// Flags of iopath_batch_write: the request completes when its bytes are durable.
#define IOPATH_DURABLE 1

// Advice on a range of a buffered volume, as of posix_fadvise.
typedef enum {
  // None: readahead detects patterns. Cancels earlier advice.
  IOPATH_ADVICE_NORMAL = 0,
  // Sequential access: the first read starts a full window.
  IOPATH_ADVICE_SEQUENTIAL = 1,
  // Random access: nothing is read ahead.
  IOPATH_ADVICE_RANDOM = 2,
  // The range is read now, up to half of the cache.
  IOPATH_ADVICE_WILL_NEED = 3,
  // The clean pages of the range are dropped.
  IOPATH_ADVICE_DONT_NEED = 4,
  // Pages are read once: they are evicted before others.
  IOPATH_ADVICE_NO_REUSE = 5,
} iopath_advice;

// Many requests in flight on a volume. One thread at a time may use it.
typedef struct iopath_batch iopath_batch;

// Memory that every device accepts. Made by iopath_buffer_new.
typedef struct iopath_buffer iopath_buffer;

// The options of a volume: read-only and direct unless set.
typedef struct iopath_options iopath_options;

// An open file or block device. Any number of threads may use it at once.
typedef struct iopath_volume iopath_volume;

// The facts of a volume.
typedef struct {
  // The current size in bytes.
  uint64_t size_bytes;
  // Offsets and lengths of direct I/O are multiples of this many bytes.
  uint32_t block_bytes;
  // Memory of direct I/O starts at a multiple of this many bytes.
  uint32_t memory_align_bytes;
  // The longest request in bytes; longer I/O is split.
  uint64_t request_bytes_max;
} iopath_facts;

// A completed request.
typedef struct {
  // The token of the request.
  uint64_t token;
  // The number of bytes, or a negative error. Of a read, fewer bytes than requested only at the end of the volume.
  int64_t result;
  // The buffer of the request, for its next one or for iopath_batch_release; NULL for a request without buffer, and
  // for a cancelled one.
  void *buffer;
} iopath_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of the last function that failed on this thread, or an empty string. Valid until another function fails
// on this thread, or the thread ends.
const char *iopath_last_error(void);

// The version of the library: "0.1.0".
const char *iopath_version(void);

// Options with their defaults, for iopath_options_free.
iopath_options *iopath_options_new(void);

// Frees options; NULL is allowed. Volumes that were opened with them stay as they are.
//
// Contract:
// The options are NULL or from iopath_options_new, and are not used any longer.
void iopath_options_free(iopath_options *options);

// Sets an option with a number. Switches, 0 or 1: "write", "extend" (a write past the end extends the file),
// "overwrite" (a block device with a filesystem or another signature), "claim" (1 unless set: no other program mounts
// the device meanwhile), "lock" (other programs that lock the file), "second_cache" (of a file that another volume of
// the process writes through a page cache). In bytes: "create" (the file, extended to this size), "create_new",
// "extend_step", "request_bytes_max", "cache_bytes" (256 MiB unless set), "page_bytes", "readahead_bytes" (0: none;
// adaptive unless set). Others: "depth" (requests in flight of a thread at the device, 32 unless set), "device_depth"
// (the same of a shared queue), "file_mode" (0666 unless set).
//
// Returns 0, or -EINVAL: no such option, or the value is out of range.
//
// Contract:
// The options are NULL or from iopath_options_new, and no other thread uses them. The name is NULL or a string.
int iopath_options_set_number(iopath_options *options,
                              const char *name,
                              uint64_t value);

// Sets an option with a text: "mode" ("direct", "raw" or "buffered"), "unaligned" ("refuse", "bounce" or "buffered"),
// "engine" ("auto", "uring" or "threads"), "elevator" ("none", "deadline", "fair:quantum_bytes=65536", …).
//
// Returns 0, or -EINVAL: no such option or value. iopath_open checks the elevator.
//
// Contract:
// As iopath_options_set_number. The value is NULL or a string.
int iopath_options_set_text(iopath_options *options,
                            const char *name,
                            const char *value);

// Opens a file or block device; NULL for the default options. Returns 0 and the volume in `*volume`, or a negative
// error: -ENOENT, -EBUSY for a device in use, -EINVAL for an option. The volume is for iopath_close.
//
// Contract:
// The path is NULL or a string. The options are NULL or from iopath_options_new, and no other thread changes them.
// `volume` is NULL or points to a pointer.
int iopath_open(const char *path,
                const iopath_options *options,
                iopath_volume **volume);

// Flushes a volume and closes it; NULL is allowed. The handle is freed also if the flush fails: a program that must
// not lose writes calls iopath_flush before, and handles its error. Batches of the volume stay usable. Returns 0 or
// the error of the flush.
//
// Contract:
// The volume is NULL or from iopath_open, and is not used any longer.
int iopath_close(iopath_volume *volume);

// Closes a volume without writing its dirty pages back, so that the bytes of a failed commit do not appear later.
// Returns 0; or -EBUSY if it has batches: then it stays open.
//
// Contract:
// The volume is NULL or from iopath_open, and no other thread uses it. After success it is not used any longer.
int iopath_abandon(iopath_volume *volume);

// The facts of a volume. Returns 0 or -EINVAL.
//
// Contract:
// The volume is NULL or from iopath_open; `facts` is NULL or points to memory for them.
int iopath_get_facts(const iopath_volume *volume, iopath_facts *facts);

// Reads `bytes` bytes at `offset`. Returns the number of bytes, fewer than `bytes` only at the end of the volume; or a
// negative error: -EINVAL if a direct volume gets an unaligned range or unaligned memory.
//
// Contract:
// The volume is NULL or from iopath_open. The buffer has `bytes` bytes, which no other thread uses.
int64_t iopath_read_at(const iopath_volume *volume,
                       void *buffer,
                       size_t bytes,
                       uint64_t offset);

// Writes `bytes` bytes at `offset`, all or an error. They are durable after the next iopath_flush.
//
// Contract:
// The volume is NULL or from iopath_open. The buffer has `bytes` bytes, to which no other thread writes.
int iopath_write_at(const iopath_volume *volume, const void *buffer, size_t bytes, uint64_t offset);

// Writes as iopath_write_at does. On return the bytes are durable.
//
// Contract:
// As iopath_write_at.
int iopath_write_durably_at(const iopath_volume *volume, const void *buffer, size_t bytes, uint64_t offset);

// Reads into several buffers, one after another. Returns the number of bytes, as iopath_read_at does.
//
// Contract:
// The volume is NULL or from iopath_open. There are `buffers_count` vectors, each of memory that no other vector has
// and no other thread uses.
int64_t iopath_readv_at(const iopath_volume *volume,
                        const struct iovec *buffers,
                        size_t buffers_count,
                        uint64_t offset);

// Writes several buffers, one after another, as iopath_write_at does.
//
// Contract:
// The volume is NULL or from iopath_open. There are `buffers_count` vectors, each of memory to which no other thread
// writes.
int iopath_writev_at(const iopath_volume *volume,
                     const struct iovec *buffers,
                     size_t buffers_count,
                     uint64_t offset);

// Makes all writes durable that returned before this call. While writes of a buffered volume are lost, each flush
// fails: iopath_accept_loss.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_flush(const iopath_volume *volume);

// Locks the file against other programs, as the option "lock" does at open. Returns 0, or -EBUSY: another program or
// volume has the lock; or -EBADF: the volume is read-only.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_try_lock(const iopath_volume *volume);

// Releases the lock of iopath_try_lock.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_unlock(const iopath_volume *volume);

// Makes the directory entry of the file durable, after its creation or a rename. Does not flush its bytes.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_sync_directory(const iopath_volume *volume);

// Makes the bytes of a range durable, as iopath_flush does for all.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_flush_range(const iopath_volume *volume, uint64_t offset, uint64_t bytes);

// Changes the size of the volume.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_resize(const iopath_volume *volume, uint64_t size_bytes);

// Frees the space of a range, whose content is not needed any longer.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_discard(const iopath_volume *volume, uint64_t offset, uint64_t bytes);

// Zeroes a range.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_write_zeroes(const iopath_volume *volume, uint64_t offset, uint64_t bytes);

// Reserves the space of a range of a file, so that writes to it cannot fail with -ENOSPC.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_allocate(const iopath_volume *volume, uint64_t offset, uint64_t bytes);

// Advises the page cache of a buffered volume: a number of `iopath_advice`.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_advise(const iopath_volume *volume, uint64_t offset, uint64_t bytes, int advice);

// Acknowledges lost writes of a buffered volume, so that flushes can succeed again. The program first handles the
// loss, for example by repeating every write since the last flush. Returns 1 if there were lost writes, 0 if not, or
// a negative error.
//
// Contract:
// The volume is NULL or from iopath_open.
int iopath_accept_loss(const iopath_volume *volume);

// Zeroed memory of `bytes` bytes, aligned for every device; NULL if the system has none. Huge pages where it has them.
iopath_buffer *iopath_buffer_new(size_t bytes);

// The first byte of a buffer, for reads and writes of any volume; NULL if it has no bytes.
//
// Contract:
// The buffer is NULL or from iopath_buffer_new.
void *iopath_buffer_data(const iopath_buffer *buffer);

// Frees a buffer; NULL is allowed.
//
// Contract:
// The buffer is NULL or from iopath_buffer_new, no I/O uses it, and it is not used any longer.
void iopath_buffer_free(iopath_buffer *buffer);

// Makes a batch of up to `depth` requests in flight, with a buffer of `buffer_bytes` bytes for each. Returns 0 and the
// batch in `*batch`, or a negative error. The batch is for iopath_batch_free, and keeps the volume open.
//
// Contract:
// The volume is NULL or from iopath_open. `batch` is NULL or points to a pointer.
int iopath_batch_new(const iopath_volume *volume,
                     uint32_t depth,
                     size_t buffer_bytes,
                     iopath_batch **batch);

// Waits for all requests in flight, and frees a batch and its buffers; NULL is allowed.
//
// Contract:
// The batch is NULL or from iopath_batch_new, and neither it nor a buffer of it is used any longer.
void iopath_batch_free(iopath_batch *batch);

// A free buffer of the batch, with its last content; NULL if each is borrowed or in flight.
//
// Contract:
// The batch is NULL or from iopath_batch_new, and no other thread uses it.
void *iopath_batch_buffer(iopath_batch *batch);

// Returns a buffer to the batch that iopath_batch_buffer or a completion gave to the program. Returns 0, or -EINVAL if
// the program does not have it.
//
// Contract:
// As iopath_batch_buffer.
int iopath_batch_release(iopath_batch *batch,
                         void *buffer);

// Queues a read of `bytes` bytes at `offset` into a buffer of the batch. The program does not use the buffer until the
// completion returns it. Returns 0; or a negative error, and the program keeps the buffer: -EAGAIN if the batch is
// full, -EINVAL.
//
// Contract:
// As iopath_batch_buffer. No thread uses the buffer until its completion.
int iopath_batch_read(iopath_batch *batch,
                      void *buffer,
                      size_t bytes,
                      uint64_t offset,
                      uint64_t token);

// Queues a write of the first `bytes` bytes of a buffer, as iopath_batch_read does for a read. `flags` is 0 or
// IOPATH_DURABLE.
//
// Contract:
// As iopath_batch_read.
int iopath_batch_write(iopath_batch *batch,
                       void *buffer,
                       size_t bytes,
                       uint64_t offset,
                       uint32_t flags,
                       uint64_t token);

// Queues a flush. It covers the writes whose completions the program has before.
//
// Contract:
// As iopath_batch_buffer.
int iopath_batch_flush(iopath_batch *batch, uint64_t token);

// Queues a discard of a range, whose content is not needed any longer.
//
// Contract:
// As iopath_batch_buffer.
int iopath_batch_discard(iopath_batch *batch, uint64_t offset, uint64_t bytes, uint64_t token);

// Queues zeroes for a range.
//
// Contract:
// As iopath_batch_buffer.
int iopath_batch_write_zeroes(iopath_batch *batch, uint64_t offset, uint64_t bytes, uint64_t token);

// Submits the queued requests. Does not wait; iopath_batch_wait submits them, too.
//
// Contract:
// As iopath_batch_buffer.
int iopath_batch_submit(iopath_batch *batch);

// Submits the queued requests, and waits for a completion, for `timeout_ns` nanoseconds at most; without limit if
// that is negative. Returns 1 and the completion in `*done`; or 0 if nothing is in flight or the limit has passed; or
// a negative error of the wait. The first wait with a limit is before the first request of the batch, or fails.
//
// Contract:
// As iopath_batch_buffer. `done` is NULL or points to memory for a completion.
int iopath_batch_wait(iopath_batch *batch,
                      int64_t timeout_ns,
                      iopath_completion *done);

// Takes a completion if there is one. Does not wait. Returns as iopath_batch_wait does.
//
// Contract:
// As iopath_batch_wait.
int iopath_batch_poll(iopath_batch *batch, iopath_completion *done);

// Cancels a request in flight: the next wait or poll returns its completion with -ECANCELED and without its buffer,
// which returns to the batch when the device has completed the request. Returns 1, or 0 if no request with this token
// is in flight.
//
// Contract:
// As iopath_batch_buffer.
int iopath_batch_cancel(iopath_batch *batch,
                        uint64_t token);

// A descriptor for poll, select or epoll of an event loop: readable when a completion may be there for
// iopath_batch_poll, which resets it: the program does not read it. The program submits, polls until there is no
// completion, and waits for the descriptor, for iopath_batch_next_timeout at most. Before the first request of the
// batch. Returns the descriptor, which the program closes, or a negative error.
//
// Contract:
// As iopath_batch_buffer.
int iopath_batch_fd(iopath_batch *batch);

// The time after which an event loop polls the batch, even if the descriptor is not readable, in nanoseconds; -1 for
// no limit, and -EINVAL if the batch is NULL.
//
// Contract:
// As iopath_batch_buffer.
int64_t iopath_batch_next_timeout(iopath_batch *batch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IOPATH_H */
