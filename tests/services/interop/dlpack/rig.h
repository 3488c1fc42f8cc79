/* Code that the tests of DLPack share: a producer that counts the calls of its deleter, and naive loops that read
 * managed tensors. The test releases what these functions make. Thread rule: deleters run on any thread, all else on
 * the main thread. */
#ifndef TDICT_TESTS_SERVICES_INTEROP_DLPACK_RIG_H
#define TDICT_TESTS_SERVICES_INTEROP_DLPACK_RIG_H

#include <stdatomic.h>

#include "core/tensor/naive.h"
#include "core/tensor/tensor.h"
#include "services/interop/dlpack/abi.h"

static inline tdict_dl_versioned *versioned_of(struct DLManagedTensorVersioned *m) { return (void *)m; }
static inline tdict_dl_legacy *legacy_of(struct DLManagedTensor *m) { return (void *)m; }
static inline void delete_versioned_of(struct DLManagedTensorVersioned *m) {
  versioned_of(m)->deleter(versioned_of(m));
}
static inline void delete_legacy_of(struct DLManagedTensor *m) { legacy_of(m)->deleter(legacy_of(m)); }

/* The following functions export or import one tensor in one of DLPack's two structs. */
static inline tdict_status export_versioned(tdict_context *context, const tdict_tensor *tensor,
                                            const tdict_dlpack_export_options *options,
                                            struct DLManagedTensorVersioned **out, tdict_error *err) {
  tdict_dlpack_entry entry = {0};
  tdict_status status = tdict_dlpack_export(context, tensor, options, out ? &entry : NULL, err);
  if (status != TDICT_OK) return status;
  assert_null(entry.legacy);
  assert_string_equal(entry.name, "");
  *out = entry.versioned;
  return TDICT_OK;
}
static inline tdict_status export_legacy(tdict_context *context, const tdict_tensor *tensor,
                                         const tdict_dlpack_export_options *options, struct DLManagedTensor **out,
                                         tdict_error *err) {
  tdict_dlpack_export_options o = options ? *options : tdict_dlpack_export_options_default();
  tdict_dlpack_entry entry = {0};
  o.legacy = true;
  tdict_status status = tdict_dlpack_export(context, tensor, &o, out ? &entry : NULL, err);
  if (status != TDICT_OK) return status;
  assert_null(entry.versioned);
  *out = entry.legacy;
  return TDICT_OK;
}
static inline tdict_status import_versioned(tdict_context *context, struct DLManagedTensorVersioned **managed,
                                            const tdict_dlpack_import_options *options, tdict_tensor **out,
                                            tdict_error *err) {
  tdict_dlpack_entry entry = {.versioned = *managed};
  tdict_status status = tdict_dlpack_import(context, &entry, options, out, err);
  *managed = entry.versioned;
  return status;
}
static inline tdict_status import_legacy(tdict_context *context, struct DLManagedTensor **managed,
                                         const tdict_dlpack_import_options *options, tdict_tensor **out,
                                         tdict_error *err) {
  tdict_dlpack_entry entry = {.legacy = *managed};
  tdict_status status = tdict_dlpack_import(context, &entry, options, out, err);
  *managed = entry.legacy;
  return status;
}

/* A producer's tensor in both structs. The test owns its bytes. */
typedef struct produced {
  tdict_dl_versioned versioned;
  tdict_dl_legacy legacy;
  int64_t shape[8], strides[8];
  atomic_int deleted;
} produced;
static inline void count_deletion(produced *p) { atomic_fetch_add(&p->deleted, 1); }
static inline void delete_produced(tdict_dl_versioned *m) { count_deletion(m->manager_ctx); }
static inline void delete_produced_legacy(tdict_dl_legacy *m) { count_deletion(m->manager_ctx); }

static inline void produce(produced *p, void *data, tdict_dl_device device, tdict_dtype dtype,
                           const naive_layout *layout) {
  memset(p, 0, sizeof *p);
  tdict_dl_tensor *t = &p->versioned.tensor;
  t->data = data;
  t->device = device;
  t->ndim = layout->ndim;
  t->dtype = (tdict_dl_dtype){(uint8_t)dtype, (uint8_t)(dtype >> 8), (uint16_t)(dtype >> 16)};
  memcpy(p->shape, layout->shape, sizeof p->shape);
  memcpy(p->strides, layout->strides, sizeof p->strides);
  t->shape = p->shape;
  t->strides = p->strides;
  p->versioned.major = 1;
  p->versioned.minor = 1;
  p->versioned.manager_ctx = p;
  p->versioned.deleter = delete_produced;
  p->legacy = (tdict_dl_legacy){*t, p, delete_produced_legacy};
}
/* Makes a producer's vector of bytes on the host. */
static inline void produce_bytes(produced *p, void *data, int64_t count) {
  const naive_layout line = {.ndim = 1, .shape = {count}, .strides = {1}, .numel = count};
  produce(p, data, (tdict_dl_device){TDICT_DL_CPU, 0}, TDICT_U8, &line);
}
static inline struct DLManagedTensorVersioned *give_versioned(produced *p) { return (void *)&p->versioned; }
static inline struct DLManagedTensor *give_legacy(produced *p) { return (void *)&p->legacy; }
static inline int times_deleted(produced *p) { return atomic_load(&p->deleted); }

static inline naive_layout layout_of_managed(const tdict_dl_tensor *t) {
  naive_layout layout = {.ndim = t->ndim, .numel = 1};
  for (int i = 0; i < t->ndim; i++) {
    layout.shape[i] = t->shape[i];
    layout.strides[i] = t->strides[i];
    layout.numel *= t->shape[i];
  }
  return layout;
}
/* Returns a copy of elements in host memory, in C order. The caller frees it. */
static inline unsigned char *elements_at(const void *data, const naive_layout *from, size_t item) {
  naive_layout to = *from;
  for (int64_t i = to.ndim - 1, step = 1; i >= 0; step *= to.shape[i--]) to.strides[i] = step;
  unsigned char *out = td_zeros((size_t)from->numel + 1, item);
  naive_copy(&to, out, from, data, item);
  return out;
}

/* Counts the releases of the program's memory. */
static inline void count_release(void *user) { atomic_fetch_add((atomic_int *)user, 1); }
static inline tdict_tensor *counted_tensor(void *data, int64_t count, uint32_t flags, atomic_int *released) {
  tdict_tensor_desc desc =
      td_with(tdict_tensor_desc, data = data, dtype = TDICT_U8, ndim = 1, shape = &count, flags = flags);
  return td_made(tensor, tdict_tensor_from_data(&desc, count_release, released, &made, err));
}
static inline tdict_tree *plain_tree(void) { return td_made(tree, tdict_create(0, NULL, &made, err)); }
static inline tdict_tensor *small_tensor(tdict_dtype dtype, int64_t count, uint64_t seed) {
  return naive_tensor(dtype, 1, &count, seed);
}

#endif
