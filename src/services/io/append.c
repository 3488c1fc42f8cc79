/* Implements tdict_append(). Owns nothing. Thread-safe. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "services/io/request.h"
#include "services/io/tensordict/append.h"

/* Opens and locks the directory. Until the directory is closed, other calls of tdict_append() for the directory fail,
 * also in other processes. */
static tdict_status open_directory(tdict_contents *c, tdict_error *err) {
  const int fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == ENOTDIR)
    return tdict_fail_at(err, TDICT_EFORMAT, c->path, "%s: the path names no directory; an archive cannot grow",
                         c->what);
  if (fd < 0) return tdict_fail_errno(err, errno, c->path, "%s: the directory cannot be opened", c->what);
  c->root = fd;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return TDICT_OK;
  return tdict_fail_errno(err, errno, c->path, "%s: another call appends to the directory", c->what);
}

/* Checks that the directory holds a plain TensorDict, because tdict_td_recover() runs next and may change the
 * directory. */
static tdict_status check_directory(tdict_contents *c, tdict_error *err) {
  tdict_td_reader reader;
  tdict_json_document meta = {0};
  tdict_td_reader_init(&reader, c, NULL, NULL);
  tdict_status status = tdict_td_read_meta(&reader, &meta, err);
  if (status == TDICT_OK && !meta.text)
    status = tdict_fail_at(err, TDICT_EFORMAT, c->path, "%s: the directory has no meta.json", c->what);
  if (status == TDICT_OK && !tdict_json_is(tdict_json_get(tdict_json_root(&meta), "shape"), TDICT_JSON_ARRAY))
    status = tdict_fail_at(err, TDICT_ENOTSUP, c->path,
                           "%s: the directory is not a plain TensorDict; lazy stacks and tensorclasses cannot grow",
                           c->what);
  tdict_json_close(&meta);
  tdict_td_reader_reset(&reader);
  return status;
}

static tdict_status append_rows(const char *path, const tdict_tree *rows, bool flushes, tdict_error *err) {
  tdict_td_append append = {.flushes = flushes};
  tdict_contents_init(&append.contents, "append", path);
  tdict_status status = open_directory(&append.contents, err);
  if (status == TDICT_OK) status = check_directory(&append.contents, err);
  if (status == TDICT_OK) status = tdict_td_recover(&append.contents, err);
  if (status == TDICT_OK) status = tdict_td_append_check(&append, rows, err);
  if (status == TDICT_OK) status = tdict_td_append_write(&append, err);
  tdict_contents_close(&append.contents);
  free(append.leaves);
  free(append.metas);
  return status;
}

tdict_status tdict_append(tdict_context *context, const char *path, const tdict_tree *rows,
                          const tdict_append_options *options, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "append";
  tdict_append_options o = tdict_append_options_default();
  tdict_tree *host = NULL;
  if (!path || !rows) return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, path ? "rows" : "path");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "append_options", err);
  if (status == TDICT_OK) status = tdict_save_host_tree(what, context, rows, tdict_no_stream(), &host, err);
  if (status != TDICT_OK) return status;
  status = append_rows(path, host, !o.without_flush, err);
  tdict_release(host);
  return status;
}
