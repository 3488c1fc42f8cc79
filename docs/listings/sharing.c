#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tdict/clone.h>
#include <tdict/records.h>
#include <tdict/share.h>

#include "batch.h"

/* Sends a tree in shared memory through a socket. Here both ends are in one process. */
static int share_memory(tdict_tree *batch) {
  tdict_tree *shared = NULL, *received = NULL, *empty = NULL;
  tdict_share_options options = tdict_share_options_default();
  int ends[2] = {-1, -1};
  tdict_error err = {0};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  /* a copy in shared memory */
  TDICT_TRY(tdict_share_create(batch, NULL, &shared, &err));
  TDICT_TRY(tdict_share_send(ends[0], shared, &err));
  TDICT_TRY(tdict_share_receive(ends[1], INT64_MAX, &received, &err));
  ((float *)tdict_data(shared, "reward"))[1] = 5; /* visible at both ends */
  printf("received: %.0f\n",
         (double)((const float *)tdict_const_data(received, "reward"))[1]);
  options.is_zero = true;
  /* the same tensors, with zeros */
  TDICT_TRY(tdict_share_create(batch, &options, &empty, &err));
  printf("%d tensors\n", (int)tdict_num_leaves(empty));
done:
  tdict_release(empty);
  tdict_release(received);
  tdict_release(shared);
  close(ends[0]);
  close(ends[1]);
  return err.status != TDICT_OK;
}

typedef struct particle {
  float position[3];
  int32_t id;
} particle;

/* Uses an array of structs as a tree, without
 * copies, and writes a tree to the array. */
static int use_structs(void) {
  static const tdict_record_field fields[] = {
      TDICT_RECORD_FIELD(particle, position, "position", TDICT_F32, 3),
      TDICT_RECORD_FIELD(particle, id, "id", TDICT_I32)};
  particle particles[2] = {{{1, 2, 3}, 10}, {{4, 5, 6}, 20}};
  tdict_records records = tdict_records_default();
  tdict_tree *view = NULL, *copy = NULL;
  tdict_error err = {0};
  records.data = particles;
  records.num_records = 2;
  records.record_bytes = sizeof(particle);
  records.fields = fields;
  records.num_fields = 2;
  TDICT_TRY(tdict_records_view(&records, NULL, NULL, &view, &err));
  TDICT_TRY(tdict_clone_deep(view, NULL, &copy, &err));
  ((int32_t *)tdict_data(copy, "id"))[1] = 30;
  TDICT_TRY(tdict_records_write(&records, copy, &err));
  printf("id 1: %d\n", (int)particles[1].id);
done:
  tdict_release(copy);
  tdict_release(view);
  return err.status != TDICT_OK;
}

int main(void) { return run_on_batch(share_memory) + use_structs(); }
