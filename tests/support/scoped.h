/* Variables that are released at the end of their block, in reverse order:
 *
 *   scoped_tree td = td_tree("obs:f32[4,3]"), out = NULL;
 *
 * A variable may be NULL. If a case fails, nothing is released, because cmocka leaves the case with longjmp(). */
#ifndef TDICT_TESTS_SUPPORT_SCOPED_H
#define TDICT_TESTS_SUPPORT_SCOPED_H

#include <stdlib.h>
#include <string.h>

#include "tdict/comm.h"
#include "tdict/lazy_stack.h"
#include "tdict/memory.h"
#include "tdict/ragged.h"
#include "tdict/replay.h"
#include "tdict/sampler.h"
#include "tdict/schema.h"
#include "tdict/share.h"
#include "tdict/tdict.h"

TDICT_BEGIN_DECLS
/* Internal types, declared here because most tests do not include the headers of src/. */
typedef struct tdict_storage tdict_storage;
typedef struct tdict_pool tdict_pool;
typedef struct tdict_driver tdict_driver;
void tdict_storage_release(tdict_storage *s);
void tdict_pool_destroy(tdict_pool *pool);
void tdict_driver_release(tdict_driver *d);

/* The type of a variable whose address is passed to `function` at the end of its block. Example: `#define scoped_rig
 * TD_SCOPED(rig_close, rig)`. */
#define TD_SCOPED(function, type) __attribute__((cleanup(function), unused)) type
/* Declares what `#define scoped_NAME TD_SCOPED_NAMED(NAME)` needs, for pointers to `type`. */
#define TD_DECLARE_SCOPED(name, type, release) \
  typedef type *td_scoped_##name;              \
  static inline void td_end_##name(td_scoped_##name *variable) { release(*variable); }
#define TD_SCOPED_NAMED(name) TD_SCOPED(td_end_##name, td_scoped_##name)

TD_DECLARE_SCOPED(tree, tdict_tree, tdict_release)
TD_DECLARE_SCOPED(tensor, tdict_tensor, tdict_tensor_release)
TD_DECLARE_SCOPED(future, tdict_future, tdict_future_release)
TD_DECLARE_SCOPED(context, tdict_context, tdict_context_destroy)
TD_DECLARE_SCOPED(storage, tdict_storage, tdict_storage_release)
TD_DECLARE_SCOPED(memory, tdict_memory, tdict_memory_release)
TD_DECLARE_SCOPED(driver, tdict_driver, tdict_driver_release)
TD_DECLARE_SCOPED(pool, tdict_pool, tdict_pool_destroy)
TD_DECLARE_SCOPED(loader, tdict_loader, tdict_loader_destroy)
TD_DECLARE_SCOPED(dataset, tdict_dataset, tdict_dataset_release)
TD_DECLARE_SCOPED(sampler, tdict_sampler, tdict_sampler_release)
TD_DECLARE_SCOPED(replay, tdict_replay, tdict_replay_release)
TD_DECLARE_SCOPED(schema, tdict_schema, tdict_schema_release)
TD_DECLARE_SCOPED(ragged, tdict_ragged, tdict_ragged_release)
TD_DECLARE_SCOPED(lazy_stack, tdict_lazy_stack, tdict_lazy_stack_release)
TD_DECLARE_SCOPED(share_ring, tdict_share_ring, tdict_share_ring_destroy)
TD_DECLARE_SCOPED(comm, tdict_comm, tdict_comm_destroy)
TD_DECLARE_SCOPED(bytes, unsigned char, free)
TD_DECLARE_SCOPED(chars, char, free)

#define scoped_tree TD_SCOPED_NAMED(tree)
#define scoped_tensor TD_SCOPED_NAMED(tensor)
#define scoped_future TD_SCOPED_NAMED(future)
#define scoped_context TD_SCOPED_NAMED(context)
#define scoped_storage TD_SCOPED_NAMED(storage)
#define scoped_memory TD_SCOPED_NAMED(memory)
#define scoped_driver TD_SCOPED_NAMED(driver)
#define scoped_pool TD_SCOPED_NAMED(pool)
#define scoped_loader TD_SCOPED_NAMED(loader)
#define scoped_dataset TD_SCOPED_NAMED(dataset)
#define scoped_sampler TD_SCOPED_NAMED(sampler)
#define scoped_replay TD_SCOPED_NAMED(replay)
#define scoped_schema TD_SCOPED_NAMED(schema)
#define scoped_ragged TD_SCOPED_NAMED(ragged)
#define scoped_lazy_stack TD_SCOPED_NAMED(lazy_stack)
#define scoped_share_ring TD_SCOPED_NAMED(share_ring)
#define scoped_comm TD_SCOPED_NAMED(comm)
#define scoped_bytes TD_SCOPED_NAMED(bytes) /* of malloc() */
#define scoped_chars TD_SCOPED_NAMED(chars) /* of malloc() */

/* An attribute for pointers that are passed to free() at the end of the block: TD_FREED float *wide = malloc(bytes); */
#define TD_FREED __attribute__((cleanup(td_end_malloc), unused))
static inline void td_end_malloc(void *variable) {
  void *bytes = NULL;
  memcpy(&bytes, variable, sizeof bytes);
  free(bytes);
}

/* Declares the stream `name` on a device of a context, and destroys the stream at the end of the block. */
typedef struct td_owned_stream {
  tdict_context *context;
  tdict_stream stream;
} td_owned_stream;
static inline void td_end_stream(td_owned_stream *owned) { tdict_stream_destroy(owned->context, owned->stream); }
#define TD_STREAM(name, context, device)                                              \
  TD_SCOPED(td_end_stream, td_owned_stream) name##_owned = {context, {{0, 0}, NULL}}; \
  td_ok(tdict_stream_create(context, device, &name##_owned.stream, err));             \
  const tdict_stream name = name##_owned.stream

TDICT_END_DECLS
#endif
