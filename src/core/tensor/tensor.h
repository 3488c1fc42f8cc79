/* Defines the tensor, and the slab of many tensors in one allocation. Thread rule: as in tdict/tensor.h. */
#ifndef TDICT_CORE_TENSOR_TENSOR_H
#define TDICT_CORE_TENSOR_TENSOR_H

#include <stdatomic.h>

#include "core/memory/storage.h"
#include "core/tensor/layout.h"
#include "tdict/tensor.h"

typedef struct tdict_slab tdict_slab;
struct tdict_tensor {
  _Atomic(int64_t) refs;  /* reference count of a single tensor; for tensors of a slab, see the slab's `refs` */
  tdict_slab *slab;       /* NULL: a single tensor */
  tdict_storage *storage; /* a single tensor retains its storage; the slab retains the storage of its tensors */
  /* the first element, NULL only without elements. Never dereferenced on a device or if unloaded */
  void *data;
  tdict_dtype dtype;
  int32_t ndim;
  int64_t numel;
  const int64_t *dims; /* ndim counts, then ndim strides in elements */
};
static inline const int64_t *tdict_tensor_dims_strides(const tdict_tensor *t) { return t->dims + t->ndim; }

/* Many tensors with one reference count: all contiguous and over one storage, or all views. */
struct tdict_slab {
  _Atomic(int64_t) refs; /* references to the slab and to all of its tensors */
  /* NULL: a slab of views, in which consecutive tensors over one storage hold one reference together */
  tdict_storage *storage;
  size_t num_tensors, cap_tensors;
  int64_t *next_dims; /* room for the counts and strides of the next tensor */
  tdict_tensor tensors[];
};
/* Creates a slab with one reference. The slab has room for `num_tensors` tensors with `num_dims` dimensions in total.
 * Retains `storage`, which is NULL for a slab of views. Returns TDICT_ENOMEM or TDICT_EOVERFLOW. */
tdict_status tdict_slab_create(size_t num_tensors, size_t num_dims, tdict_storage *storage, tdict_slab **out,
                               tdict_error *err);
/* Adds a tensor in C order at byte `offset` of the storage. The caller owns one reference to the tensor. The caller
 * must have checked the layout with tdict_layout_check(). No other thread may use the slab yet. Cannot fail. */
tdict_tensor *tdict_slab_add(tdict_slab *slab, tdict_dtype dtype, int ndim, const int64_t *shape, size_t offset);
/* The place of the next tensors in a slab over one storage. Several threads can fill different places of one slab. */
typedef struct tdict_slab_place {
  tdict_slab *slab;
  tdict_tensor *next;       /* the next tensor */
  int64_t *next_dims;       /* room for its counts and strides */
  const int64_t *dims;      /* of the tensor that was added last; NULL: none */
  const int64_t *like_dims; /* of the tensor that the last one was made like; only compared */
  int32_t ndim;             /* of both */
} tdict_slab_place;
/* The place of the first tensor of a new slab. */
#define TDICT_FIRST_PLACE(from) \
  ((tdict_slab_place){.slab = (from), .next = (from)->tensors, .next_dims = (from)->next_dims})
/* Writes the counts of a tensor and the strides of C order to `dims`, and returns the end. */
int64_t *tdict_slab_write_dims(int64_t *dims, const tdict_tensor *like);
/* Adds a tensor with the dtype and shape of `like`, in C order at address `data`. Consecutive tensors of equal shape
 * share their counts and strides. Does not count the tensor: the caller counts all added tensors at once with
 * tdict_slab_count(). The tensors `like` must live until the last tensor is added. Cannot fail. */
static inline tdict_tensor *tdict_slab_add_like(tdict_slab_place *place, const tdict_tensor *like, void *data) {
  /* tensors of a slab can share their counts, but a tensor without dimensions has the same address as the next one */
  if (like->dims != place->like_dims || like->ndim != place->ndim) {
    place->like_dims = like->dims;
    if (like->ndim != place->ndim || !place->dims || !tdict_sizes_equal(place->dims, like->dims, like->ndim)) {
      place->dims = place->next_dims;
      place->next_dims = tdict_slab_write_dims(place->next_dims, like);
      place->ndim = like->ndim;
    }
  }
  tdict_tensor *t = place->next++;
  atomic_init(&t->refs, 0);
  t->slab = place->slab;
  t->storage = place->slab->storage;
  t->data = data;
  t->dtype = like->dtype;
  t->ndim = like->ndim;
  t->numel = like->numel;
  t->dims = place->dims;
  return t;
}
/* Counts `more` tensors that were added with tdict_slab_add_like(), and a reference to the slab for each. */
void tdict_slab_count(tdict_slab *slab, size_t more);
/* Adds a view to a slab of views. Uses data, dtype, ndim, shape and strides (NULL: C order) of `view`. The caller must
 * have checked these fields. The slab retains `storage`. The caller owns one reference to the tensor. No other thread
 * may use the slab yet. Cannot fail. */
tdict_tensor *tdict_slab_add_view(tdict_slab *slab, tdict_storage *storage, const tdict_tensor_desc *view);
/* Adds a tensor that differs from `like`, a tensor of the slab, only in its storage and in the address of its first
 * element. Both tensors share their counts and strides. Otherwise the same as tdict_slab_add_view(). */
tdict_tensor *tdict_slab_add_repeated(tdict_slab *slab, const tdict_tensor *like, tdict_storage *storage, void *data);
/* Gives a tensor the dtype, counts and strides of `like`, which is in the same slab, and an address. Returns it. */
static inline tdict_tensor *tdict_tensor_be_like(tdict_tensor *t, const tdict_tensor *like, void *data) {
  t->data = data;
  t->dtype = like->dtype;
  t->ndim = like->ndim;
  t->numel = like->numel;
  t->dims = like->dims;
  return t;
}
/* The place of the next view in a slab of views. */
#define TDICT_NEXT_PLACE(from) ((tdict_slab_place){.slab = (from), .next = &(from)->tensors[(from)->num_tensors]})
/* Adds a view like tdict_slab_add_repeated(), but does not count the view: the caller counts all added views at once
 * with tdict_slab_count(). */
static inline tdict_tensor *tdict_slab_repeat(tdict_slab_place *place, const tdict_tensor *like, tdict_storage *storage,
                                              void *data) {
  tdict_tensor *t = place->next++;
  atomic_init(&t->refs, 0);
  t->slab = place->slab;
  t->storage = t > place->slab->tensors && t[-1].storage == storage ? storage : tdict_storage_retain(storage);
  return tdict_tensor_be_like(t, like, data);
}
/* Adds `count` references at once. */
static inline void tdict_slab_retain(tdict_slab *slab, int64_t count) {
  atomic_fetch_add_explicit(&slab->refs, count, memory_order_relaxed);
}
/* Drops `count` references at once. Frees the slab with the last reference. */
void tdict_slab_release(tdict_slab *slab, int64_t count);

/* Creates a tensor that retains an existing storage, with data, dtype, ndim, shape and strides (NULL: C order) of
 * `view`, which the caller has checked. Returns TDICT_ENOMEM. */
tdict_status tdict_tensor_over(tdict_storage *storage, const tdict_tensor_desc *view, tdict_tensor **out,
                               tdict_error *err);
/* Creates a host tensor in C order that retains an unloaded storage, `offset` bytes after its start, with dtype, ndim
 * and shape of `layout`. Only transfers can access it. Returns TDICT_ESHAPE outside the storage, and the errors of
 * tdict_layout_check(). */
tdict_status tdict_tensor_unloaded(tdict_storage *storage, const tdict_tensor_desc *layout, size_t offset,
                                   tdict_tensor **out, tdict_error *err);
/* Chooses the memory for a new tensor made from `like`: `given`, else the memory of `like` on a device, else NULL,
 * which is plain host memory. Without `given`, returns TDICT_EWRONGDEVICE if `like` is in device memory of the
 * program. */
tdict_status tdict_tensor_choose_memory(const char *what, const tdict_tensor *like, tdict_memory *given,
                                        tdict_memory **out, tdict_error *err);
static inline bool tdict_is_on_host(const tdict_tensor *t) { return t->storage->device.type == TDICT_DEVICE_CPU; }
/* Returns true if tdict_pin_memory() has nothing to do for the tensor. */
static inline bool tdict_tensor_needs_no_pin(const tdict_tensor *t) {
  return !tdict_is_on_host(t) || tdict_tensor_is_pinned(t);
}
/* Checks everything except the shapes. Does not wait for transfers. Returns TDICT_EDTYPE if the dtypes differ, and
 * TDICT_EREADONLY if `dst` is read-only. Returns TDICT_EWRONGDEVICE for two different devices if neither is the host,
 * and if a tensor is on a device, but neither tensor is in device memory with a copy function. */
tdict_status tdict_tensor_check_copy(const char *what, const tdict_tensor *dst, const tdict_tensor *src,
                                     tdict_error *err);
/* Returns TDICT_ESHAPE if the shapes differ, and TDICT_EREADONLY if `dst` may not be written. */
tdict_status tdict_tensor_check_target(const char *what, const tdict_tensor *dst, const tdict_tensor *src,
                                       tdict_error *err);
/* Returns the bytes that the tensor's elements cover, as offsets in the tensor's storage. */
tdict_extent tdict_tensor_extent(const tdict_tensor *t);
/* Returns true if bytes of the tensor are lost, and sometimes if none is, like tdict_storage_is_lost(). */
bool tdict_tensor_check_lost(const tdict_tensor *t);
/* Like tdict_tensor_check_lost(), but looks first at the storage's flag, which is nearly always false. */
static inline bool tdict_tensor_is_lost(const tdict_tensor *t) {
  return tdict_storage_has_lost(t->storage) && tdict_tensor_check_lost(t);
}
/* Returns TDICT_EINVAL for a tensor with lost bytes. The message begins with `what`, names the bytes (`bytes`: "the
 * source's bytes"), and says whether a transfer failed or the tensor is unloaded. */
tdict_status tdict_tensor_refuse_lost(const char *what, const char *bytes, const tdict_tensor *t, tdict_error *err);
void tdict_tensor_lose(const tdict_tensor *t);
/* Removes the tensor's bytes from the lost bytes. Call this function after all elements have been written. */
void tdict_tensor_regain_lost(const tdict_tensor *t);
static inline void tdict_tensor_regain(const tdict_tensor *t) {
  if (tdict_storage_has_lost(t->storage)) tdict_tensor_regain_lost(t);
}
/* Waits like tdict_storage_wait(). Usually the storage is idle, and the function returns at once. */
static inline void tdict_tensor_await(const tdict_tensor *t, bool to_write) {
  if (!tdict_storage_is_idle(t->storage)) (void)tdict_storage_wait(t->storage, to_write, INT64_MAX);
}
/* Returns the bytes of an element. Faster than tdict_dtype_bytes(), because the dtype of a tensor is known to exist. */
static inline size_t tdict_tensor_item_bytes(const tdict_tensor *t) {
  return (size_t)(t->dtype >> 8 & 0xffu) / 8 * (t->dtype >> 16);
}
/* Returns the result of tdict_tensor_bytes(). This version is inline, for use in loops. */
static inline size_t tdict_tensor_nbytes(const tdict_tensor *t) {
  return (size_t)t->numel * ((size_t)(t->dtype >> 8 & 0xffu) / 8 * (t->dtype >> 16));
}

#endif
