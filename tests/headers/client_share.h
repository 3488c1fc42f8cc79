/* The part of client.c that uses tdict/share.h. The client plays both the sender and the worker. */
#include <sys/socket.h>
#include <unistd.h>

static void use_share(tdict_context *context) {
  const int64_t rows = 4;
  tdict_field field;
  tdict_tree *tree = NULL, *shared = NULL, *received = NULL, *batch = NULL;
  tdict_share_ring *ring = NULL, *worker = NULL;
  tdict_share_options zeros = tdict_share_options_default();
  tdict_share_ring_options o = tdict_share_ring_options_default();
  int pair[2] = {-1, -1};
  TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  memset(&field, 0, sizeof field);
  field.path = "x";
  field.dtype = TDICT_F32;
  OK(tdict_create_from(&field, 1, 1, &rows, NULL, &tree, &last_error));
  OK(tdict_share_create(tree, NULL, &shared, &last_error));
  OK(tdict_share_send(pair[0], shared, &last_error));
  OK(tdict_share_receive(pair[1], 0, &received, &last_error));
  TRUE(tdict_equal(tree, received));
  tdict_release(shared);
  zeros.is_zero = true;
  OK(tdict_share_create(tree, &zeros, &shared, &last_error));
  TRUE(tdict_is_consolidated(shared));
  TRUE(o.num_slots <= TDICT_SHARE_MAX_SLOTS && o.max_workers <= TDICT_SHARE_MAX_WORKERS);
  OK(tdict_share_ring_create(tree, &o, &ring, &last_error));
  OK(tdict_share_ring_add_worker(ring, pair[0], (int32_t)getpid(), &last_error));
  OK(tdict_share_ring_pin(context, ring, &last_error));
  OK(tdict_share_ring_attach(pair[1], 0, &worker, &last_error));
  OK(tdict_share_ring_begin(worker, 0, &batch, &last_error));
  OK(tdict_share_ring_publish(worker, batch, &last_error));
  OK(tdict_share_ring_take(ring, 0, &batch, &last_error));
  OK(tdict_share_ring_give_back(ring, batch, &last_error));
  tdict_share_ring_destroy(worker);
  tdict_share_ring_destroy(ring);
  tdict_release(received);
  tdict_release(shared);
  tdict_release(tree);
  close(pair[0]);
  close(pair[1]);
}
