/* A program that uses the public headers. It is compiled as C99 and, by client.cpp, as C++11, both with -pedantic, so
 * it uses only what both languages have. It is linked with the shared library and runs on the simulated device. The
 * gate `headers` fails if a macro or an inline function of include/ is missing here.
 * It mainly checks that calls succeed. Other tests check what the calls do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tdict/arrow.h"
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/comm.h"
#include "tdict/comm_nccl.h"
#include "tdict/comm_table.h"
#include "tdict/context.h"
#include "tdict/convert.h"
#include "tdict/dataset.h"
#include "tdict/debug.h"
#include "tdict/devices.h"
#include "tdict/dlpack.h"
#include "tdict/export.h"
#include "tdict/hook.h"
#include "tdict/index.h"
#include "tdict/io.h"
#include "tdict/keysets.h"
#include "tdict/lazy_stack.h"
#include "tdict/loader.h"
#include "tdict/memory.h"
#include "tdict/nontensor.h"
#include "tdict/object.h"
#include "tdict/path.h"
#include "tdict/ragged.h"
#include "tdict/random.h"
#include "tdict/records.h"
#include "tdict/replay.h"
#include "tdict/run.h"
#include "tdict/sampler.h"
#include "tdict/schema.h"
#include "tdict/shape.h"
#include "tdict/share.h"
#include "tdict/sim.h"
#include "tdict/status.h"
#include "tdict/tdict.h"
#include "tdict/tensor.h"
#include "tdict/tokens.h"
#include "tdict/trace.h"
#include "tdict/transfer.h"
#include "tdict/tree.h"
#include "tdict/try.h"
#include "tdict/unbatched.h"
#include "tdict/values.h"
#include "tdict/view.h"
#include "tdict/visit.h"
#include "tdict/wire.h"
#include "tdict/write.h"

static int failures;
static tdict_error last_error;

static void check(int good, const char *what, int line) {
  if (good) return;
  failures++;
  fprintf(stderr, "client.c:%d: %s: %s\n", line, what, last_error.message);
}
#define OK(call) check((call) == TDICT_OK, #call, __LINE__)
#define TRUE(what) check((what) ? 1 : 0, #what, __LINE__)

/* Returns a tree that several parts of the client use. */
static tdict_tree *make_tree(tdict_memory *memory) {
  static const tdict_field fields[] = {TDICT_FIELD("obs", TDICT_F32, 5), {"done", TDICT_BOOL, 0, {0, 0, 0, 0, 0, 0}}};
  const int64_t batch[1] = {8};
  tdict_tree *td = NULL;
  OK(tdict_create_from(fields, 2, 1, batch, memory, &td, &last_error));
  return td;
}

#include "client_arrow.h"
#include "client_comm.h"
#include "client_devices.h"
#include "client_io.h"
#include "client_lazy.h"
#include "client_more.h"
#include "client_mpi.h"
#include "client_nccl.h"
#include "client_ragged.h"
#include "client_replay.h"
#include "client_schema.h"
#include "client_share.h"
#include "client_tensor.h"
#include "client_transfer.h"
#include "client_values.h"

static void ignore_log(void *user, int32_t level, const char *text) {
  (void)user, (void)text;
  TRUE(level == TDICT_LOG_ERROR || level == TDICT_LOG_WARNING || level == TDICT_LOG_INFO);
}

static int try_to(tdict_status status) {
  tdict_error err;
  memset(&err, 0, sizeof err);
  TDICT_TRY(status);
  TDICT_TRY_RETURN(status, 0);

done:
  return (int)err.status;
}

static void use_status(void) {
  static const tdict_status all[] = {
      TDICT_OK,         TDICT_EINVAL,       TDICT_ENOMEM,    TDICT_ENOTFOUND, TDICT_EEXIST,
      TDICT_ETYPE,      TDICT_ESHAPE,       TDICT_EDTYPE,    TDICT_EOVERFLOW, TDICT_ELOCKED,
      TDICT_EREADONLY,  TDICT_EWRONGDEVICE, TDICT_ENODEVICE, TDICT_EDEVICE,   TDICT_ELOST,
      TDICT_ECANCELLED, TDICT_ETIMEDOUT,    TDICT_EDEADLOCK, TDICT_EFORKED,   TDICT_ECAPTURE,
      TDICT_ECHANGED,   TDICT_EHOOK,        TDICT_EIO,       TDICT_EFORMAT,   TDICT_ENOTSUP};
  size_t i;
  for (i = 0; i < sizeof all / sizeof all[0]; i++) TRUE(tdict_status_name(all[i]) != NULL);
  TRUE(try_to(TDICT_OK) == 0);
  TRUE(tdict_error_set(NULL, TDICT_EIO, "path", "%d", 1) == TDICT_EIO);
  tdict_error_print(NULL, stderr);
  TRUE(sizeof(tdict_error) == 512);
  TRUE(tdict_version() == TDICT_VERSION_MAJOR * 10000 + TDICT_VERSION_MINOR * 100 + TDICT_VERSION_PATCH);
}

static void use_values(void) {
  static const tdict_dtype all[] = {
      TDICT_I8,  TDICT_I16,  TDICT_I32,  TDICT_I64,    TDICT_U8,     TDICT_U16,
      TDICT_U32, TDICT_U64,  TDICT_F16,  TDICT_F32,    TDICT_F64,    TDICT_BF16,
      TDICT_C64, TDICT_C128, TDICT_BOOL, TDICT_F8E4M3, TDICT_F8E5M2, TDICT_DTYPE(2, 32, 4)};
  char text[32];
  tdict_device device = tdict_cuda(1);
  size_t i;
  for (i = 0; i < sizeof all / sizeof all[0]; i++) {
    TRUE(tdict_dtype_bytes(all[i]) > 0 && tdict_dtype_name(all[i]) != NULL);
    TRUE(tdict_dtype_format(all[i], text, TDICT_DTYPE_TEXT_BYTES) == text);
  }
  TRUE(device.type == TDICT_DEVICE_CUDA && tdict_cpu().type == TDICT_DEVICE_CPU &&
       tdict_sim(0).type == TDICT_DEVICE_SIM);
  OK(tdict_device_parse("auto", &device, &last_error));
  TRUE(device.type == TDICT_DEVICE_AUTO);
  OK(tdict_device_parse(tdict_device_format(tdict_sim(1), text, sizeof text), &device, &last_error));
  TRUE(tdict_device_equal(device, tdict_sim(1)));
}

static tdict_status count_entry(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  if (entry->tensor && entry->path && entry->key && !entry->tree && entry->depth >= 0) ++*(int *)user;
  return TDICT_OK;
}

static void use_tree_keys(tdict_tree *td) {
  tdict_tensor *tensor = NULL;
  tdict_tree *child = NULL;
  tdict_entry entry;
  OK(tdict_get(td, "obs", &tensor, &last_error));
  OK(tdict_set(td, "next.obs", tensor, &last_error));
  OK(tdict_get_tree(td, "next", &child, &last_error));
  OK(tdict_set_tree(td, "again", child, &last_error));
  OK(tdict_get_entry(td, "again", &entry, &last_error));
  TRUE(entry.tree == child);
  entry = tdict_get_entry_at(td, 0);
  TRUE(entry.tensor == tensor);
  TRUE(tdict_has(td, "again.obs") && tdict_num_keys(td) == 4 && tdict_num_leaves(td) == 4);
  OK(tdict_rename(td, "again", "later", true, &last_error));
  OK(tdict_pop_tree(td, "later", &child, &last_error));
  tdict_release(child);
  OK(tdict_pop(td, "next.obs", &tensor, &last_error));
  tdict_tensor_release(tensor);
  OK(tdict_delete(td, "next", &last_error));
  TRUE(strcmp(tdict_get_entry_at(td, 0).key, "obs") == 0);
  TRUE(tdict_data(td, "obs") == tdict_const_data(td, "obs"));
  TRUE(tdict_checked_data(td, "obs", TDICT_U8, 0, NULL, &last_error) == NULL && last_error.status == TDICT_EDTYPE);
  TRUE(tdict_checked_const_data(td, "obs", TDICT_F32, -1, NULL, &last_error) == tdict_const_data(td, "obs"));
}

static void use_tree_rules(tdict_tree *td) {
  const int64_t batch[1] = {8};
  tdict_device device = tdict_cpu();
  TRUE(TDICT_MAX_BATCH_NDIM >= 1 && tdict_batch_ndim(td) == 1 && tdict_batch_size(td)[0] == 8);
  OK(tdict_set_batch_size(td, 1, batch, &last_error));
  OK(tdict_set_device(td, &device, &last_error));
  TRUE(tdict_get_device(td, &device));
  OK(tdict_set_device(td, NULL, &last_error));
  tdict_lock(td);
  TRUE(tdict_is_locked(td));
  OK(tdict_unlock(td, &last_error));
}

static void use_tree_text(tdict_tree *td) {
  const char *keys[2] = {"a.b", "c"};
  char text[256];
  int leaves = 0;
  size_t bytes = 0;
  FILE *file = tmpfile();
  tdict_visitor visit = count_entry;
  OK(tdict_walk(td, visit, &leaves, &last_error));
  OK(tdict_unique_bytes(td, &bytes, &last_error));
  TRUE(leaves == 2 && tdict_bytes(td) > 0 && bytes >= tdict_bytes(td));
  TRUE(tdict_format(td, text, sizeof text) > 0);
  if (file) {
    OK(tdict_print(td, file, &last_error));
    fclose(file);
  }
  TRUE(tdict_path_escape("a.b", text, sizeof text) == 4);
  TRUE(tdict_path_join(keys, 2, text, sizeof text) == 6);
}

static tdict_status move_nothing(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  (void)self, (void)hook, (void)err;
  *out = NULL;
  return TDICT_ENOTSUP;
}

static void use_objects(tdict_tree *td) {
  int object = 0;
  void *got = NULL;
  tdict_type type = tdict_type_default();
  type.name = "counter";
  type.release = release_nothing;
  type.to_device = move_nothing;
  OK(tdict_set_object(td, "object", &type, &object, &last_error));
  OK(tdict_get_object(td, "object", &type, &got, &last_error));
  TRUE(got == &object && tdict_object_type(td, "object") == &type && tdict_num_objects(td) == 1);
  released = 0;
  OK(tdict_delete(td, "object", &last_error));
  TRUE(released == 1);
}

static void use_index(tdict_tree *td) {
  static const int64_t rows[2] = {1, 0}, batch[1] = {8}, two[1] = {2};
  const int32_t kinds[] = {TDICT_INDEX_AT,   TDICT_INDEX_RANGE, TDICT_INDEX_NEW_AXIS, TDICT_INDEX_REST,
                           TDICT_INDEX_LIST, TDICT_INDEX_MASK,  TDICT_INDEX_LIST_OF};
  tdict_index item = tdict_index_of(kinds[0], 1, 0, 0, NULL);
  tdict_indices index = tdict_indices_none();
  tdict_tensor *mask = NULL;
  tdict_tree *out = NULL;
  const tdict_run run = tdict_run_default();
  tdict_indices_add(&index, item);
  TRUE(kinds[6] > kinds[5] && kinds[5] > kinds[4] && kinds[3] > kinds[2] && kinds[1] > kinds[0] &&
       index.count < TDICT_MAX_INDEX);
  OK(tdict_index_get(NULL, td, &index, NULL, &out, &last_error));
  OK(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_AT(2)), out, NULL, &last_error));
  OK(tdict_write_rows(td, 3, out, &last_error));
  tdict_release(out);
  OK(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, 4, 2), TDICT_NEW_AXIS, TDICT_REST), NULL, &out,
                     &last_error));
  tdict_release(out);
  OK(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(rows, 2)), NULL, &out, &last_error));
  OK(tdict_index_into(NULL, out, td, TDICT_INDEX(TDICT_LIST(rows, 2)), NULL, &last_error));
  OK(tdict_write_rows(td, 6, out, &last_error));
  OK(tdict_index_into(NULL, out, td, TDICT_INDEX(TDICT_LIST(rows, 2)), &run, &last_error));
  OK(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(rows, 2)), out, &run, &last_error));
  tdict_release(out);
  OK(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(rows, 2)), &run, &out, &last_error));
  tdict_release(out);
  OK(tdict_tensor_from_array(TDICT_I64, 1, two, rows, &mask, &last_error));
  OK(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST_OF(mask)), NULL, &out, &last_error));
  tdict_release(out);
  tdict_tensor_release(mask);
  OK(tdict_tensor_zeros(TDICT_BOOL, 1, batch, NULL, &mask, &last_error));
  OK(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(mask)), NULL, &out, &last_error));
  TRUE(tdict_batch_size(out)[0] == 0);
  OK(tdict_write(td, "done", NULL, mask, &last_error));
  OK(tdict_write(td, "done", TDICT_INDEX(TDICT_ALL), mask, &last_error));
  tdict_release(out);
  tdict_tensor_release(mask);
}

static void use_shape(const tdict_tree *td) {
  static const int64_t two_rows[2] = {2, -1}, wide[2] = {3, 8}, sizes[2] = {5, 3};
  static const int order[2] = {1, 0};
  tdict_tree *two = NULL, *out[8];
  size_t count = 8, num_trees, i, made;
  OK(tdict_reshape_view(td, 2, two_rows, &two, &last_error));
  OK(tdict_reshape(td, 2, two_rows, &out[0], &last_error));
  OK(tdict_merge_dims(two, 0, -1, &out[1], &last_error));
  OK(tdict_split_dim(td, 0, 2, two_rows, &out[2], &last_error));
  OK(tdict_unsqueeze(td, 0, &out[3], &last_error));
  OK(tdict_squeeze(out[3], TDICT_EVERY_DIM, &out[4], &last_error));
  OK(tdict_expand(td, 2, wide, &out[5], &last_error));
  OK(tdict_permute(two, 2, order, &out[6], &last_error));
  OK(tdict_transpose(two, 0, 1, &out[7], &last_error));
  for (i = 0; i < 8; i++) tdict_release(out[i]);
  num_trees = 2;
  OK(tdict_split(td, 0, sizes, out, &num_trees, &last_error));
  OK(tdict_unbind(td, 0, NULL, &made, &last_error));
  OK(tdict_split_every(td, 0, 4, NULL, &made, &last_error));
  OK(tdict_split_every(td, 0, 4, out + 2, &count, &last_error));
  made = 2 + count;
  count = 2;
  OK(tdict_unbind(two, 0, out + made, &count, &last_error));
  for (i = 0; i < made + count; i++) tdict_release(out[i]);
  tdict_release(two);
}

static void use_combine(const tdict_tree *td) {
  const tdict_tree *both[2];
  tdict_join_options options = tdict_join_options_default();
  tdict_run run = tdict_run_default();
  tdict_pad_options padding = tdict_pad_options_default();
  tdict_pack_options packing = tdict_pack_options_default();
  tdict_tree *out[4];
  int i;
  both[0] = both[1] = td;
  OK(tdict_stack(both, 2, &options, &run, &out[0], &last_error));
  OK(tdict_stack_into(out[0], both, 2, &options, &run, &last_error));
  OK(tdict_cat(both, 2, &options, &run, &out[1], &last_error));
  OK(tdict_cat_into(out[1], both, 2, &options, &run, &last_error));
  padding.value = 0;
  padding.masks = "masks";
  OK(tdict_pad_sequence(both, 2, &padding, &run, &out[2], &last_error));
  OK(tdict_pack_sequence(both, 2, &packing, NULL, &out[3], &last_error));
  for (i = 0; i < 4; i++) tdict_release(out[i]);
}

static void use_keysets(const tdict_tree *td) {
  static const char *const paths[1] = {"obs"};
  tdict_key_set set;
  tdict_tree *out[8];
  size_t num_trees;
  int i;
  set.paths = paths;
  set.count = 1;
  OK(tdict_select(td, paths, 1, true, &out[0], &last_error));
  OK(tdict_exclude(td, paths, 1, &out[1], &last_error));
  num_trees = 2;
  OK(tdict_split_keys(td, &set, 1, out + 2, &num_trees, &last_error));
  OK(tdict_flatten_keys(td, NULL, &out[4], &last_error));
  OK(tdict_unflatten_keys(td, NULL, &out[5], &last_error));
  OK(tdict_assign(out[5], out[4], &last_error));
  OK(tdict_clone(out[0], &out[6], &last_error));
  OK(tdict_update(out[6], out[1], NULL, 0, &last_error));
  OK(tdict_clone(td, &out[7], &last_error));
  OK(tdict_update(out[7], td, NULL, 0, &last_error));
  for (i = 0; i < 8; i++) tdict_release(out[i]);
}

static tdict_status see_leaves(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)user, (void)err;
  return at->count == 1 ? TDICT_OK : TDICT_EINVAL;
}
static tdict_status same_leaf(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user, (void)err;
  *out = tdict_tensor_retain(at->tensors[0]);
  return TDICT_OK;
}
static bool keep_all(void *user, const tdict_leaves *at) {
  (void)user;
  return at->path != NULL;
}

static void use_dtypes(const tdict_tree *td) {
  tdict_dtype_options options = tdict_dtype_options_default();
  tdict_run run = tdict_run_default();
  tdict_tree *out = NULL;
  tdict_tensor *wide = NULL, *narrow = NULL;
  options.filter = keep_all;
  options.floats_only = true;
  OK(tdict_to_dtype(td, TDICT_F64, &options, &run, &out, &last_error));
  tdict_release(out);
  OK(tdict_tensor_arange(TDICT_I64, 0, 1, 6, &wide, &last_error));
  OK(tdict_tensor_to_dtype(wide, TDICT_I32, NULL, &narrow, &last_error));
  OK(tdict_convert(wide, narrow, &last_error));
  tdict_tensor_release(narrow);
  tdict_tensor_release(wide);
}

static void use_visit(const tdict_tree *td) {
  tdict_difference_options exact = tdict_difference_options_default();
  tdict_leaf_visitor visit = see_leaves;
  tdict_leaf_maker make = same_leaf;
  tdict_leaf_predicate keep = keep_all;
  tdict_difference found;
  tdict_tree *out = NULL, *deep = NULL;
  tdict_tensor *bytes = NULL;
  OK(tdict_visit(NULL, &td, 1, visit, NULL, NULL, &last_error));
  OK(tdict_apply(NULL, &td, 1, make, NULL, NULL, &out, &last_error));
  tdict_release(out);
  OK(tdict_filter(td, keep, NULL, &out, &last_error));
  TRUE(tdict_depth(out) == 0 && !(tdict_num_leaves(out) + tdict_num_objects(out) == 0));
  use_dtypes(td);
  OK(tdict_contiguous(td, NULL, &deep, &last_error));
  tdict_release(deep);
  OK(tdict_clone_deep(td, NULL, &deep, &last_error));
  OK(tdict_get_difference(deep, out, &exact, &found, &last_error));
  TRUE(!found.differs && tdict_equal(deep, out));
  OK(tdict_fill(deep, "obs", 1, NULL, &last_error));
  OK(tdict_fill(deep, NULL, 0, NULL, &last_error));
  OK(tdict_copy(deep, td, NULL, &last_error));
  OK(tdict_update_in_place(deep, td, NULL, 0, &last_error));
  tdict_release(deep);
  OK(tdict_consolidate(td, NULL, &deep, &last_error));
  TRUE(tdict_is_consolidated(deep));
  OK(tdict_consolidated_bytes(deep, &bytes, &last_error));
  tdict_tensor_release(bytes);
  tdict_release(deep);
  tdict_release(out);
}

static void use_run(void) {
  const tdict_run run = tdict_run_default();
  const tdict_stream none = tdict_no_stream();
  TRUE(run.struct_size == sizeof run && run.num_threads == -1 && !run.memory);
  TRUE(run.stream.device.type == none.device.type && run.stream.handle == none.handle);
}

static void use_tree(void) {
  tdict_tree *td = make_tree(NULL), *empty = NULL;
  OK(tdict_create(0, NULL, &empty, &last_error));
  tdict_release(tdict_retain(empty));
  tdict_release(empty);
  use_tree_keys(td);
  use_tree_rules(td);
  use_tree_text(td);
  use_objects(td);
  use_leaves();
  use_index(td);
  use_shape(td);
  use_combine(td);
  use_keysets(td);
  use_visit(td);
  use_run();
  tdict_release(td);
}

static void use_device_operations(tdict_context *context) {
  static const int64_t batch[1] = {4};
  tdict_tensor *t = NULL;
  tdict_tree *host = NULL, *device = NULL, *out = NULL;
  tdict_run run = tdict_run_default();
  OK(tdict_create(1, batch, &host, &last_error));
  OK(tdict_tensor_zeros(TDICT_F32, 1, batch, NULL, &t, &last_error));
  OK(tdict_set(host, "a", t, &last_error));
  OK(tdict_to_device(context, host, tdict_sim(0), NULL, &device, &last_error));
  OK(tdict_stream_create(context, tdict_sim(0), &run.stream, &last_error));
  OK(tdict_clone_deep(device, &run, &out, &last_error));
  OK(tdict_fill(device, "a", 2, &run, &last_error));
  OK(tdict_copy(out, device, &run, &last_error));
  tdict_release(out);
  OK(tdict_contiguous(device, &run, &out, &last_error));
  OK(tdict_stream_synchronize(context, run.stream, &last_error));
  tdict_stream_destroy(context, run.stream);
  tdict_release(out);
  tdict_release(device);
  tdict_release(host);
  tdict_tensor_release(t);
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context *context = NULL;
  options.device = tdict_sim(0);
  options.sim = &sim;
  options.num_threads = 2;
  options.log = ignore_log;
  use_mpi();
  use_status();
  use_values();
  use_tensor_makers();
  use_tensor();
  use_tree();
  use_ragged();
  use_schema();
  use_replay();
  use_io();
  OK(tdict_context_create(&options, &context, &last_error));
  if (context) use_transfers(context);
  if (context) use_device_operations(context);
  if (context) use_comm(context), use_devices(context), use_lazy_stack(context), use_share(context);
  if (context) use_nccl(context);
  if (context) use_trace(context);
  if (context) use_arrow(context);
  tdict_context_destroy(context);
  printf("client of the public headers: %d checks failed\n", failures);
  return failures ? 1 : 0;
}
