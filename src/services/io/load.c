/* Implements tdict_load() and its variants: reads the description of the files, makes a tree of unloaded tensors, and
 * starts a transfer of this tree. The threads of the transfer read the files. Owns nothing. Thread-safe. */

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "device/devices.h"
#include "engine/start.h"
#include "services/io/contents/contents.h"

/* The state of one call. The caller of start_load() sets the first two members. */
typedef struct loader {
  const char *path;
  const tdict_load_options *given;
  tdict_load_options options;
  tdict_open_options open;
  tdict_transfer_options transfer;
  tdict_contents contents;
  tdict_io_progress *progress; /* owned; NULL: the program wants no progress */
  tdict_tree *metadata;        /* owned; for the option `metadata` */
} loader;

/* Writes the metadata to the program if the call succeeds. Returns the status. */
static tdict_status give_metadata(const loader *l, tdict_status status) {
  if (status == TDICT_OK && l->open.metadata)
    *l->open.metadata = l->metadata;
  else
    tdict_release(l->metadata);
  return status;
}

static tdict_status read_options(loader *l, const char *what, tdict_error *err) {
  l->options = tdict_load_options_default();
  l->transfer = tdict_transfer_options_default();
  tdict_status status = tdict_options_read(&l->options, sizeof l->options, l->given, "load_options", err);
  if (status == TDICT_OK) status = tdict_contents_options(what, l->options.open, &l->open, err);
  if (status == TDICT_OK)
    status = tdict_options_read(&l->transfer, sizeof l->transfer, l->options.transfer, "transfer options", err);
  if (status != TDICT_OK) return status;
  if (l->options.first_row < 0 || l->options.num_rows < -1)
    return tdict_fail(err, TDICT_EINVAL, "%s: first_row is %lld and num_rows is %lld, wanted 0 or more, and -1 or more",
                      what, (long long)l->options.first_row, (long long)l->options.num_rows);
  if (l->transfer.num_keep || l->transfer.check_sources)
    return tdict_fail(err, TDICT_EINVAL, "%s: transfer->%s must not be set: the source is a file", what,
                      l->transfer.num_keep ? "keep" : "check_sources");
  return TDICT_OK;
}

/* Returns the number of bytes that the transfer reads. */
static uint64_t count_bytes(const tdict_contents *c) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < c->num_items; i++)
    if (tdict_item_has_tensor(&c->items[i]) && !tdict_item_is_read_early(&c->items[i])) bytes += c->items[i].span.bytes;
  return bytes;
}

/* Reads the description of the files, again if a directory was replaced in between. */
static tdict_status read_description(tdict_contents *c, const tdict_open_options *o, tdict_error *err) {
  tdict_error why; /* a call that succeeds leaves *err alone */
  tdict_status status = tdict_format_read(c, o, &why);
  for (int i = 0; i < TDICT_FORMAT_RETRIES && status != TDICT_OK && tdict_format_was_replaced(c); i++) {
    tdict_contents_close(c);
    status = tdict_format_read(c, o, &why);
  }
  if (status != TDICT_OK && err) *err = why;
  return status;
}

/* Makes a tree of unloaded tensors, which the caller releases also if `progress` returned false. */
static tdict_status build_source(loader *l, tdict_tree **out, tdict_error *err) {
  tdict_contents *c = &l->contents;
  const bool selects_rows = l->options.first_row > 0 || l->options.num_rows >= 0;
  tdict_status status = read_description(c, &l->open, err);
  if (status == TDICT_OK && l->open.metadata) status = tdict_contents_metadata(c, &l->metadata, err);
  if (status == TDICT_OK && selects_rows)
    status = tdict_contents_select_rows(c, l->options.first_row, l->options.num_rows, err);
  if (status == TDICT_OK && l->options.progress)
    status = tdict_io_progress_create(c->what, l->options.progress, l->options.user, &l->progress, err);
  if (status != TDICT_OK) return status;
  status = tdict_contents_unload(c, l->progress, selects_rows, err);
  if (status == TDICT_OK) status = tdict_contents_build(c, out, err);
  if (status == TDICT_OK && l->progress) status = tdict_io_progress_begin(l->progress, count_bytes(c), err);
  return status;
}

/* Tells the program that the result lacks tensors that the files have. */
static void log_unnamed(tdict_context *context, const tdict_contents *c) {
  if (c->num_unnamed)
    tdict_log_write(tdict_devices_log(tdict_context_devices(context)), TDICT_LOG_INFO,
                    "%s: %zu tensors of the shards are left out, because the index of %.200s does not name them",
                    c->what, c->num_unnamed, c->path);
}

/* Makes the source of a transfer and starts the transfer. The caller has set the name of the call and the target in
 * *start, and releases start->src, also after an error. If start->caller_waits is true, the transfer does not retain
 * the storages of start->src. The caller must then release start->src only after the transfer has ended. */
static tdict_status start_load(tdict_context *context, tdict_start *start, loader *l, tdict_future **future,
                               tdict_error *err) {
  tdict_tree *source = NULL;
  if (!context || !l->path || !future)
    return tdict_fail_null(err, start->what, !context ? "context" : !l->path ? "path" : "out");
  tdict_status status = read_options(l, start->what, err);
  if (status != TDICT_OK) return status;
  tdict_contents_init(&l->contents, start->what, l->path);
  status = build_source(l, &source, err);
  start->src = source;
  start->reads_files = true;
  if (status == TDICT_OK) log_unnamed(context, &l->contents);
  if (status == TDICT_OK) status = tdict_start_call(context, start, &l->transfer, future, err);
  tdict_contents_close(&l->contents);
  tdict_io_progress_release(l->progress);
  return status;
}

static tdict_status load_and_wait(tdict_context *context, tdict_start *start, const char *path,
                                  const tdict_load_options *options, tdict_tree **out, tdict_error *err) {
  tdict_future *future = NULL;
  loader l = {.path = path, .given = options};
  start->caller_waits = true;
  tdict_status status = start_load(context, start, &l, &future, err);
  if (status == TDICT_OK) status = tdict_start_wait(future, start->options.stats, out, err);
  tdict_release((tdict_tree *)start->src);
  return give_metadata(&l, status);
}

static tdict_status load_async(tdict_context *context, tdict_start *start, const char *path,
                               const tdict_load_options *options, tdict_future **out, tdict_error *err) {
  loader l = {.path = path, .given = options};
  tdict_status status = start_load(context, start, &l, out, err);
  tdict_release((tdict_tree *)start->src);
  return give_metadata(&l, status);
}

tdict_status tdict_load(tdict_context *context, const char *path, tdict_device device,
                        const tdict_load_options *options, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "load: out is NULL");
  return load_and_wait(context, &(tdict_start){.what = "load", .device = device}, path, options, out, err);
}

tdict_status tdict_load_async(tdict_context *context, const char *path, tdict_device device,
                              const tdict_load_options *options, tdict_future **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  return load_async(context, &(tdict_start){.what = "load_async", .device = device}, path, options, out, err);
}

tdict_status tdict_load_into_async(tdict_context *context, tdict_tree *dst, const char *path,
                                   const tdict_load_options *options, tdict_future **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!dst) return tdict_fail(err, TDICT_EINVAL, "load_into_async: dst is NULL");
  return load_async(context, &(tdict_start){.what = "load_into_async", .dst = dst}, path, options, out, err);
}
