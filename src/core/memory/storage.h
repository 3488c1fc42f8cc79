/* A storage is a reference-counted range of bytes on a device. A storage frees its bytes when its last reference is
 * released. A storage lists the marks of transfers that use its bytes, and the fences of streams that use its bytes.
 * Bytes are *lost* if a transfer that writes the bytes failed or was cancelled, and no later write through the library
 * has filled the bytes. The bytes of an *unloaded* storage are not in memory, but for example in a file. Transfers read
 * these bytes through a callback. A *sink* is an unloaded storage that transfers only write, through a callback. Thread
 * rule: every function is safe from any thread. */
#ifndef TDICT_CORE_MEMORY_STORAGE_H
#define TDICT_CORE_MEMORY_STORAGE_H

#include <stdatomic.h>

#include "core/memory/extent.h"
#include "core/memory/memory.h"

#define TDICT_STORAGE_READ_ONLY 1u
#define TDICT_STORAGE_PINNED 2u    /* page-locked by the library */
#define TDICT_STORAGE_CLAIMED 4u   /* the program says that the memory is page-locked */
#define TDICT_STORAGE_ARENA 8u     /* leaf offsets are multiples of 256 bytes; the gaps between leaves are unused */
#define TDICT_STORAGE_FOREIGN 16u  /* the storage did not allocate its memory; set by tdict_storage_wrap() */
#define TDICT_STORAGE_UNLOADED 32u /* see tdict_storage_create_unloaded() */
#define TDICT_STORAGE_SINK 64u     /* an unloaded storage that is written, see tdict_storage_create_sink() */

typedef struct tdict_storage tdict_storage;
typedef struct tdict_fence_node tdict_fence_node;
/* A mark of a transfer, which allocates it in advance, so that attaching allocates nothing. */
struct tdict_fence_node {
  /* Relaxed: once attached, written only under the list's lock. The thread that detaches may read it without. */
  _Atomic(tdict_fence_node *) next;
  tdict_storage *storage; /* the transfer holds the reference */
  tdict_fence *fence;
  bool writes;
  bool was_detached; /* only for the owner of the mark: true if the owner has detached the mark early */
};

/* How work on a stream uses the bytes of a storage. */
typedef enum tdict_use_kind {
  TDICT_USE_READS, /* reading the bytes need not wait for the work */
  TDICT_USE_FILLS, /* work of the memory's owner. Reading waits for the work, but freeing memory of the program does
                       * not, because the owner orders later work after the filler */
  TDICT_USE_WRITES /* work of the library. Reading waits for the work, and so does freeing memory of the program */
} tdict_use_kind;

typedef struct tdict_storage_reader {
  /* Copies `bytes` bytes, which begin `offset` bytes after the start of the storage, to `dst`. Sets *done to the number
   * of copied bytes; any number other than `bytes` is an error. Several threads can call `read` at the same time. The
   * calling thread can hold a staging slot, so `read` must not wait for a transfer. */
  tdict_status (*read)(void *user, size_t offset, void *dst, size_t bytes, size_t *done, tdict_error *err);
  /* Called with `user` when the storage is freed, on the thread that drops the last reference; may be NULL. */
  void (*release)(void *user);
  void *user;
} tdict_storage_reader;

typedef struct tdict_storage_writer {
  /* Writes to the sink, `offset` bytes after the start of the storage. Several threads may call it, in any order. The
   * caller may hold a staging slot, so `write` must not wait for a transfer. */
  tdict_status (*write)(void *user, size_t offset, const void *src, size_t bytes, tdict_error *err);
  void (*release)(void *user); /* as in tdict_storage_reader */
  void *user;
} tdict_storage_writer;

struct tdict_storage {
  /* A large tree can have one storage for each leaf, and a cache miss costs more than all other work on a storage. To
   * mark a source, a transfer accesses only `marks`, `busy_uses` and `lost`. These fields come first, in 16 bytes. All
   * 16 bytes are in one cache line, because malloc() aligns to 16 bytes. */
  /* The address of the first mark, or 0 (acquire/release). Bit 1 is set if some mark writes. If bit 0 is set, the list
   * is locked, and the other bits are the id of the process that holds the lock. */
  _Atomic(uintptr_t) marks;
  _Atomic(int32_t) busy_uses; /* equals num_uses; read without the lock (acquire/release) */
  _Atomic(bool) lost;         /* true if some bytes are lost, see lost_bytes (acquire/release) */
  _Atomic(int64_t) refs;
  void *data; /* of an unloaded storage: an address without memory, from which offsets are counted */
  size_t bytes;
  tdict_device device;
  uint32_t flags;
  tdict_memory *memory; /* retained; NULL: plain host memory or memory of the program */
  union {
    tdict_block block; /* the block that `memory` allocated; plain host memory: free() frees block.data */
    /* reads an unloaded storage; called with `user` */
    tdict_status (*read)(void *user, size_t offset, void *dst, size_t bytes, size_t *done, tdict_error *err);
    tdict_status (*write)(void *user, size_t offset, const void *src, size_t bytes, tdict_error *err); /* of a sink */
  };
  void (*release)(void *user);
  void *user;
  /* Guards uses, num_uses, cap_uses, filler, filler_is_owners and lost_bytes. 0: unlocked. Any other value: bit 0 is
   * set, and the other bits are the id of the process that holds the lock. */
  _Atomic(uintptr_t) lock;
  tdict_fence **uses; /* retained fences of work on streams of the program; writing and freeing the bytes wait for this
                       * work */
  int num_uses, cap_uses;
  tdict_fence *filler;          /* the use that still writes the bytes, see tdict_use_kind; NULL: none */
  bool filler_is_owners;        /* true: the owner of the memory orders its work after the filler */
  tdict_extent_set *lost_bytes; /* owned; if NULL while `lost` is true, all bytes are lost */
};

/* Creates a storage with one reference. If `memory` is NULL, allocates plain host memory, aligned to 256 bytes. If
 * `zero` is true, sets every byte to zero. `bytes` may be 0. Returns TDICT_ENOMEM or an error of the memory. */
tdict_status tdict_storage_create(tdict_memory *memory, size_t bytes, bool zero, tdict_storage **out, tdict_error *err);
/* Creates a storage with uninitialized bytes, preferably on NUMA node `node`. Ignores `node` if the number is negative,
 * or if `memory` is NULL or has no operation `allocate_near`. Fails as tdict_storage_create() does. */
tdict_status tdict_storage_create_near(tdict_memory *memory, size_t bytes, int node, tdict_storage **out,
                                       tdict_error *err);
/* Creates a storage over memory of the program. The caller may then set `release`, which is called with `user` when the
 * storage is freed. Returns TDICT_ENOMEM. */
tdict_status tdict_storage_wrap(void *data, size_t bytes, tdict_device device, uint32_t flags, tdict_storage **out,
                                tdict_error *err);
/* Creates a read-only host storage whose bytes are not in memory. Only transfers can read the bytes. All bytes count as
 * lost, so all other functions refuse to read the bytes. Copies *reader. Returns TDICT_EOVERFLOW if `bytes` does not
 * fit 63 bits, and TDICT_ENOMEM if host memory is exhausted. After an error, the caller must release reader->user. */
tdict_status tdict_storage_create_unloaded(const tdict_storage_reader *reader, size_t bytes, tdict_storage **out,
                                           tdict_error *err);
/* Creates a host storage whose bytes leave the process, for example to a file. Only transfers can write them, and
 * nothing can read them: they count as lost. Copies *writer. Fails as above. */
tdict_status tdict_storage_create_sink(const tdict_storage_writer *writer, size_t bytes, tdict_storage **out,
                                       tdict_error *err);
static inline bool tdict_storage_is_sink(const tdict_storage *s) { return s->flags & TDICT_STORAGE_SINK; }
/* Passes bytes to the callback of a sink. The bytes must be inside the storage. Returns the error of the callback, or
 * TDICT_EHOOK if the callback returned a number that is not a tdict_status. */
tdict_status tdict_storage_write(const tdict_storage *s, size_t offset, const void *src, size_t bytes,
                                 tdict_error *err);
/* Returns true for unloaded storages, including sinks. */
static inline bool tdict_storage_is_unloaded(const tdict_storage *s) { return s->flags & TDICT_STORAGE_UNLOADED; }
/* Reads bytes of an unloaded storage into `dst`. The bytes must be inside the storage. Returns the error of the
 * callback, or TDICT_EIO if the callback read another number of bytes. Returns TDICT_EHOOK if the callback returned a
 * number that is not a tdict_status. After an error, the bytes at `dst` are unspecified. */
tdict_status tdict_storage_read(const tdict_storage *s, size_t offset, void *dst, size_t bytes, tdict_error *err);
/* Returns true for ordinary host memory that the library allocated. */
static inline bool tdict_storage_is_plain(const tdict_storage *s) {
  const uint32_t others = TDICT_STORAGE_FOREIGN | TDICT_STORAGE_UNLOADED | TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED;
  return s->device.type == TDICT_DEVICE_CPU && !s->memory && !(s->flags & others);
}
tdict_storage *tdict_storage_retain(tdict_storage *s);
void tdict_storage_release(tdict_storage *s);

/* Returns true if both storages are on one device. Storages of one memory are the usual case. */
static inline bool tdict_storage_devices_equal(const tdict_storage *a, const tdict_storage *b) {
  return (a->memory && a->memory == b->memory) || tdict_device_equal(a->device, b->device);
}

/* The bit of the word `marks` that is set if some mark writes. */
#define TDICT_MARKS_WRITE ((uintptr_t)2)
/* The word `marks` of a storage whose only mark is `node`. */
#define TDICT_MARK_WORD(node) ((uintptr_t)(node) | ((node)->writes ? TDICT_MARKS_WRITE : 0))
/* Marks node->storage as used by node->fence until tdict_storage_detach(). The caller must have filled the fields
 * `storage`, `fence` and `writes` of the node. */
void tdict_storage_attach(tdict_fence_node *node);
void tdict_storage_detach(tdict_fence_node *node);
/* Marks node->storage if the storage is idle, which is the usual case. Nothing uses the bytes then before the owner of
 * the mark. If the storage has another mark or a recorded use, returns false and changes nothing but node->next. */
static inline bool tdict_storage_attach_if_idle(tdict_fence_node *node) {
  uintptr_t none = 0;
  if (atomic_load_explicit(&node->storage->busy_uses, memory_order_acquire) != 0) return false;
  atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
  return atomic_compare_exchange_strong_explicit(&node->storage->marks, &none, TDICT_MARK_WORD(node),
                                                 memory_order_acq_rel, memory_order_acquire);
}
/* Returns true if the storage has no recorded use. A finished use counts until it is removed from the list. */
static inline bool tdict_storage_has_no_uses(const tdict_storage *s) {
  return atomic_load_explicit(&s->busy_uses, memory_order_acquire) == 0;
}
/* Returns true if a transfer uses the bytes. */
static inline bool tdict_storage_has_marks(const tdict_storage *s) {
  return atomic_load_explicit(&s->marks, memory_order_acquire) != 0;
}
/* Returns true if no transfer uses the bytes and the storage has no recorded use. */
static inline bool tdict_storage_is_idle(const tdict_storage *s) {
  return !tdict_storage_has_marks(s) && tdict_storage_has_no_uses(s);
}
/* Calls fn for every fence that must be done before the bytes are read, or written if `to_write` is true. A reader
 * waits for the marks of writers and for the filler. A writer waits for all marks and uses. Some fences may be done
 * already, and one fence may come twice. The list of marks or of uses is locked during these calls, so fn must be
 * short, must not wait, and must not touch storages. To keep a fence, fn retains the fence. */
void tdict_storage_each_before(tdict_storage *s, bool to_write, void (*fn)(void *user, tdict_fence *fence), void *user);
/* Adds the fences of tdict_storage_each_before() to the set. If several storages add fences to a set, uses need one
 * system call for all of them. Use such a set only until the next fork. */
void tdict_storage_collect(tdict_storage *s, bool to_write, tdict_fences *set);
/* Waits for the fences of tdict_storage_each_before() until tdict_now_ns() passes the deadline. Returns true if all
 * fences are done, and then removes uses that are done. In a forked child, transfers of the parent process never end,
 * so the function returns false at the first unfinished transfer of the parent. */
bool tdict_storage_wait(tdict_storage *s, bool to_write, int64_t deadline_ns);
/* Adds a use: the bytes may be freed or written only after the fence is done. If the use fills or writes the bytes, it
 * must run after all earlier uses of the storage. Retains the fence. If the list of uses is full, removes the uses that
 * are done. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_storage_add(tdict_storage *s, tdict_fence *fence, tdict_use_kind kind, tdict_error *err);
/* Adds a use to several storages, as tdict_storage_add() does, with one system call for all storages and one poll of
 * each use that is pending. The fence must be done after all fences of `after`. Uses in this set are removed, because
 * the new use replaces them. If host memory is exhausted, some storages can have the use. */
tdict_status tdict_storage_add_all(tdict_storage *const *storages, size_t count, tdict_fence *fence,
                                   tdict_use_kind kind, const tdict_fences *after, tdict_error *err);
/* Marks the bytes of the extent as lost. Call this function if a transfer into these bytes failed or was cancelled. If
 * memory to record the bytes is exhausted, marks all bytes of the storage as lost. */
void tdict_storage_lose(tdict_storage *s, const tdict_extent *bytes);
void tdict_storage_lose_all(tdict_storage *s);
/* Removes the extent from the lost bytes after a write. Without host memory, they can stay lost. Does nothing for
 * unloaded storages. For strided extents see tdict_extent_set_remove(). */
void tdict_storage_regain(tdict_storage *s, const tdict_extent *bytes);
static inline bool tdict_storage_has_lost(const tdict_storage *s) {
  return atomic_load_explicit(&s->lost, memory_order_acquire);
}
/* Returns true if a byte of the extent is lost, and sometimes if none is: the set is not exact. */
bool tdict_storage_is_lost(tdict_storage *s, const tdict_extent *bytes);

#endif
