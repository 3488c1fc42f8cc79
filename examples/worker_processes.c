/* worker_processes: worker processes fill batches in shared memory, and the trainer
 * moves the batches to a device.
 *
 *   worker_processes [DEVICE]     auto (default), cpu, sim, cuda:N
 *
 * The workers are this program, started again with the argument "worker". The first
 * worker also has the argument "dies": it ends in the middle of a batch, and the
 * trainer starts another worker in its place. */
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tdict/share.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>
#include <unistd.h>

enum {
  WORKERS = 2,
  BATCHES = 20,
  ROWS = 32,
  SOCKET = 3 /* the descriptor that a worker has for its socket */
};
enum {
  BATCHES_OF_DYING = 4,
  MOST_LOST = 5 /* a program that always fails must not be started forever */
};

/* A worker: fills and publishes its batches. */
static int run_worker(bool dies) {
  tdict_share_ring *ring = NULL;
  tdict_tree *batch = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_share_ring_attach(SOCKET, INT64_MAX, &ring, &err));
  for (int n = 0; n < BATCHES; n++) {
    TDICT_TRY(tdict_share_ring_begin(ring, INT64_MAX, &batch, &err));
    if (dies && n == BATCHES_OF_DYING) _exit(1); /* as if the worker had crashed */
    float *obs = tdict_data(batch, "obs"), *reward = tdict_data(batch, "reward");
    /* a real worker would run an environment here */
    for (int i = 0; i < ROWS * 17; i++) obs[i] = (float)i;
    for (int i = 0; i < ROWS; i++) reward[i] = 1;
    TDICT_TRY(tdict_share_ring_publish(ring, batch, &err));
  }
done:
  tdict_share_ring_destroy(ring);
  return err.status != TDICT_OK;
}

/* Starts a worker and sends the ring to it. Starting
 * by exec is safe, even if a context exists. */
static tdict_status start_worker(tdict_share_ring *ring, bool dies, tdict_error *err) {
  extern char **environ;
  char *const argv[] = {(char *)"worker_processes", (char *)"worker",
                        dies ? (char *)"dies" : NULL, NULL};
  posix_spawn_file_actions_t actions;
  int pair[2];
  pid_t pid = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return TDICT_EIO;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pair[1], SOCKET);
  tdict_status status = TDICT_EIO;
  if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ) == 0)
    status = tdict_share_ring_add_worker(ring, pair[0], (int32_t)pid, err);
  posix_spawn_file_actions_destroy(&actions);
  close(pair[0]);
  close(pair[1]);
  return status;
}

static int run_trainer(const char *device) {
  const tdict_field fields[] = {TDICT_FIELD("obs", TDICT_F32, 17),
                                TDICT_FIELD("reward", TDICT_F32)};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *like = NULL, *batch = NULL, *moved = NULL;
  tdict_share_ring *ring = NULL;
  int num_batches = 0, num_lost = 0;
  tdict_error err = {0}, why = {0};
  TDICT_TRY(tdict_create_from(fields, 2, TDICT_SHAPE(ROWS), NULL, &like, &err));
  TDICT_TRY(tdict_share_ring_create(like, NULL, &ring, &err));
  for (int i = 0; i < WORKERS; i++) TDICT_TRY(start_worker(ring, i == 0, &err));
  TDICT_TRY(tdict_device_parse(device, &options.device, &err));
  options.sim = &sim; /* the default device where there is no GPU */
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  if (tdict_share_ring_pin(context, ring, &why) != TDICT_OK)
    printf("copies are staged: %s\n", why.message);
  for (;;) {
    tdict_status status = tdict_share_ring_take(ring, INT64_MAX, &batch, &err);
    if (status == TDICT_ENOTFOUND) break; /* all workers have left */
    if (status == TDICT_ELOST && num_lost++ < MOST_LOST) {
      printf("started a new worker\n");
      TDICT_TRY(start_worker(ring, false, &err));
      continue;
    }
    TDICT_TRY(status);
    TDICT_TRY(tdict_to_device(context, batch, tdict_context_device(context, NULL), NULL,
                              &moved, &err));
    TDICT_TRY(tdict_share_ring_give_back(ring, batch, &err));
    num_batches++; /* a training step would use `moved` here */
    tdict_release(moved);
  }
  err.status = TDICT_OK;
  printf("%d batches of %d workers\n", num_batches, (int)WORKERS + num_lost);
done:
  tdict_share_ring_destroy(ring); /* workers that still run then end */
  while (wait(NULL) > 0) {}
  tdict_release(like);
  tdict_context_destroy(context);
  return err.status != TDICT_OK || num_batches != WORKERS * BATCHES + BATCHES_OF_DYING;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "worker") == 0) return run_worker(argc > 2);
  return run_trainer(argc > 1 ? argv[1] : "auto");
}
