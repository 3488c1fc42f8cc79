/* Implements shared trees. The callers own the trees; each tree retains its segment. Thread rule: see tdict/share.h. */
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "services/share/message.h"
#include "services/share/segment.h"
#include "tdict/write.h"

static const char create_what[] = "share_create", send_what[] = "share_send", receive_what[] = "share_receive";

/* Makes the tree of a segment. Releases the segment, also on failure. */
static tdict_status make_tree(tdict_segment *segment, tdict_tree **out, tdict_error *err) {
  tdict_status status = tdict_segment_make_tree(segment, 0, out, err);
  tdict_segment_release(segment);
  return status;
}

tdict_status tdict_share_create(const tdict_tree *tree, const tdict_share_options *options, tdict_tree **out,
                                tdict_error *err) {
  TDICT_UNCANCELLED;
  const tdict_segment_layout wanted = {.kind = TDICT_SEGMENT_TREE, .num_slots = 1};
  tdict_share_options o = tdict_share_options_default();
  tdict_segment *segment;
  tdict_tree *made = NULL;
  if (!tree || !out) return tdict_fail_null(err, create_what, tree ? "out" : "tree");
  tdict_status status = tdict_options_read(&o, sizeof o, options, "share_options", err);
  if (status == TDICT_OK) status = tdict_segment_create(create_what, tree, &wanted, &segment, err);
  if (status == TDICT_OK) status = make_tree(segment, &made, err);
  if (status == TDICT_OK && !o.is_zero) status = tdict_copy(made, tree, NULL, err);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_status tdict_share_send(int socket, const tdict_tree *tree, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!tree) return tdict_fail(err, TDICT_EINVAL, "%s: tree is NULL", send_what);
  const tdict_segment *segment = tdict_segment_of(tree);
  if (!segment || segment->layout.kind != TDICT_SEGMENT_TREE)
    return tdict_fail(err, TDICT_EINVAL, "%s: the tree is not shared, or was unlocked; wanted one of share_create()",
                      send_what);
  const tdict_message message = {.kind = TDICT_SEGMENT_TREE, .num_fds = 1, .fds = {segment->fd}};
  return tdict_message_send(send_what, socket, &message, err);
}

tdict_status tdict_share_receive(int socket, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_message message = {.kind = TDICT_SEGMENT_TREE, .num_fds = 1};
  tdict_segment *segment;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", receive_what);
  tdict_status status = tdict_message_receive(receive_what, socket, timeout_ns, &message, err);
  if (status == TDICT_OK) status = tdict_segment_open(receive_what, message.fds[0], TDICT_SEGMENT_TREE, &segment, err);
  return status == TDICT_OK ? make_tree(segment, out, err) : status;
}
