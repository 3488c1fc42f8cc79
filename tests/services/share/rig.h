/* Sockets, worker processes and trees for the tests of shared memory. */
#ifndef TDICT_TESTS_SERVICES_SHARE_RIG_H
#define TDICT_TESTS_SERVICES_SHARE_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/tree/help.h"
#include "services/share/ring.h"
#include "services/share/segment.h"
#include "support/descriptors.h"

/* A worker is a case that is not a CTest entry. Another case starts it in a new process, with a socket as descriptor
 * RIG_SOCKET. */
#define WORKER(name) TD_CASE(name)
enum { RIG_SOCKET = 3 };
#define RIG_SECOND ((int64_t)1000000000)

typedef struct rig_pair {
  int ours, theirs;
} rig_pair;
static inline rig_pair rig_sockets(int type) {
  int both[2];
  assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, both), 0);
  return (rig_pair){both[0], both[1]};
}
static inline void rig_close(rig_pair pair) {
  close(pair.ours);
  close(pair.theirs);
}

/* Starts this program as a worker in a new process, and closes our copy of the worker's end of the socket. */
static inline pid_t rig_spawn(const char *worker, rig_pair *pair) {
  extern char **environ;
  posix_spawn_file_actions_t actions;
  pid_t pid = 0;
  char *const argv[] = {(char *)"worker", (char *)worker, (char *)"host", NULL};
  assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
  assert_int_equal(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0), 0);
  assert_int_equal(posix_spawn_file_actions_adddup2(&actions, pair->theirs, RIG_SOCKET), 0);
  assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(pair->theirs);
  return pid;
}
/* Waits for a process to end. Returns its exit status, or the negated number of the signal that killed it. */
static inline int rig_reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
static inline void rig_kill(pid_t pid) {
  assert_int_equal(kill(pid, SIGKILL), 0);
  assert_int_equal(rig_reap(pid), -SIGKILL);
}

static inline void rig_write(int fd, const void *bytes, size_t count) {
  for (const char *at = bytes; count;) {
    ssize_t done = write(fd, at, count);
    assert_true(done > 0);
    at += done;
    count -= (size_t)done;
  }
}
/* Reads exactly `count` bytes. Returns false at the end of the stream. */
static inline bool rig_read_bytes(int fd, void *bytes, size_t count) {
  for (char *at = bytes; count;) {
    ssize_t done = read(fd, at, count);
    if (done <= 0) return false;
    at += done;
    count -= (size_t)done;
  }
  return true;
}

/* Counts this process's mappings whose file name contains the string `text`. */
static inline int rig_count_maps_of(const char *text) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  int count = 0;
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps)) count += strstr(line, text) != NULL;
  fclose(maps);
  return count;
}
/* Counts the mappings of segments in this process. */
static inline int rig_count_maps(void) { return rig_count_maps_of("/memfd:tdict"); }
/* Resources that a case must not leak. */
typedef struct rig_resources {
  int fds, maps;
} rig_resources;
static inline rig_resources rig_resources_now(void) {
  return (rig_resources){td_count_descriptors(), rig_count_maps()};
}
static inline void rig_nothing_leaked(rig_resources before) {
  assert_int_equal(td_count_descriptors(), before.fds);
  assert_int_equal(rig_count_maps(), before.maps);
}

/* Makes a tree of batch size [2, 3]: "obs.pixels" U8 [2, 3, 4, 5] in a child of batch size [2, 3, 4], "obs.none" an
 * empty tree, "r" F32 [2, 3], "h.0" I64 [2, 3, 0], "wide" F64 [2, 3, 700], which is not contiguous. */
static inline tdict_tree *rig_tree(void) {
  tdict_tree *td = TREE(2, 3);
  tdict_tree *obs = td_put_tree(td, "obs", TREE(2, 3, 4));
  tdict_tensor *t = td_made(tensor, tdict_tensor_zeros(TDICT_U8, COUNTS(2, 3, 4, 5), NULL, &made, err)), *turned = NULL;
  td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), 7);
  td_put(obs, "pixels", t);
  td_put_tree(obs, "none", TREE(2, 3, 4));
  td_put(td, "r", TENSOR(2, 3));
  td_put(td, "h\\.0", td_made(tensor, tdict_tensor_zeros(TDICT_I64, COUNTS(2, 3, 0), NULL, &made, err)));
  td_ok(tdict_tensor_zeros(TDICT_F64, COUNTS(700, 2, 3), NULL, &t, err));
  td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), 8);
  td_ok(tdict_tensor_permute(t, 3, (const int[]){1, 2, 0}, &turned, err));
  tdict_tensor_release(t);
  td_put(td, "wide", turned);
  return td;
}
static inline tdict_tree *rig_shared(void) {
  tdict_tree *td = rig_tree(), *shared = td_made(tree, tdict_share_create(td, NULL, &made, err));
  tdict_release(td);
  return shared;
}

/* Makes a batch for a ring: "seed" I64 [4], "x" F32 [4, 500], "n.y" U8 [4, 33]. */
static inline tdict_tree *rig_batch(void) {
  tdict_tree *td = TREE(4);
  td_put(td, "seed", td_made(tensor, tdict_tensor_zeros(TDICT_I64, COUNTS(4), NULL, &made, err)));
  td_put(td, "x", TENSOR(4, 500));
  td_put_tree(td, "n", TREE(4));
  td_put(td, "n.y", td_made(tensor, tdict_tensor_zeros(TDICT_U8, COUNTS(4, 33), NULL, &made, err)));
  return td;
}
enum { RIG_X_BYTES = 4 * 500 * 4, RIG_Y_BYTES = 4 * 33 };
static inline void rig_fill(tdict_tree *batch, int64_t seed) {
  *(int64_t *)tdict_data(batch, "seed") = seed;
  td_fill_random(tdict_data(batch, "x"), RIG_X_BYTES, (uint64_t)seed);
  td_fill_random(tdict_data(batch, "n.y"), RIG_Y_BYTES, (uint64_t)seed + 1);
}
/* Checks a batch against its seed, and returns the seed. */
static inline int64_t rig_check(const tdict_tree *batch) {
  unsigned char wanted[RIG_X_BYTES];
  const int64_t seed = *(const int64_t *)tdict_const_data(batch, "seed");
  td_fill_random(wanted, RIG_X_BYTES, (uint64_t)seed);
  assert_memory_equal(tdict_const_data(batch, "x"), wanted, RIG_X_BYTES);
  td_fill_random(wanted, RIG_Y_BYTES, (uint64_t)seed + 1);
  assert_memory_equal(tdict_const_data(batch, "n.y"), wanted, RIG_Y_BYTES);
  return seed;
}

static inline tdict_share_ring *rig_ring(int num_slots, int max_workers) {
  scoped_tree like = rig_batch();
  tdict_share_ring *ring = NULL;
  tdict_share_ring_options o = td_with(tdict_share_ring_options, num_slots = num_slots, max_workers = max_workers);
  td_ok(tdict_share_ring_create(like, &o, &ring, err));
  return ring;
}
/* Attaches this process to its own ring as a worker. */
static inline tdict_share_ring *rig_own_worker(tdict_share_ring *ring) {
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  tdict_share_ring *worker = NULL;
  td_ok(tdict_share_ring_add_worker(ring, pair.ours, (int32_t)getpid(), err));
  td_ok(tdict_share_ring_attach(pair.theirs, 0, &worker, err));
  rig_close(pair);
  return worker;
}
/* Starts a worker process and adds it to the ring. Returns our end of its socket. */
static inline int rig_add_process(tdict_share_ring *ring, const char *worker, pid_t *pid) {
  rig_pair pair = rig_sockets(SOCK_STREAM);
  *pid = rig_spawn(worker, &pair);
  td_ok(tdict_share_ring_add_worker(ring, pair.ours, (int32_t)*pid, err));
  return pair.ours;
}
/* Attaches this worker process to the ring. */
static inline tdict_share_ring *rig_attach(void) {
  return td_made(share_ring, tdict_share_ring_attach(RIG_SOCKET, 60 * RIG_SECOND, &made, err));
}
static inline void rig_publish(tdict_share_ring *worker, int64_t seed) {
  tdict_tree *batch = td_made(tree, tdict_share_ring_begin(worker, 60 * RIG_SECOND, &made, err));
  rig_fill(batch, seed);
  td_ok(tdict_share_ring_publish(worker, batch, err));
}
/* Takes a batch, checks it, gives it back and returns its seed. */
static inline int64_t rig_take(tdict_share_ring *ring) {
  tdict_tree *batch = td_made(tree, tdict_share_ring_take(ring, 60 * RIG_SECOND, &made, err));
  const int64_t seed = rig_check(batch);
  td_ok(tdict_share_ring_give_back(ring, batch, err));
  return seed;
}

/* Compares two trees. NaN equals NaN, because random floats may be NaN. */
static inline bool rig_equal(const tdict_tree *a, const tdict_tree *b) {
  tdict_difference difference;
  td_ok(tdict_get_difference(a, b, td_options(tdict_difference_options, nan_equal = true), &difference, err));
  return !difference.differs;
}

/* Sends this process a signal every millisecond, to interrupt system calls. */
static volatile sig_atomic_t rig_signals;
static inline void rig_on_signal(int number) {
  (void)number;
  rig_signals++;
}
static inline void rig_signals_begin(void) {
  const struct sigaction action = {.sa_handler = rig_on_signal};
  const struct itimerval every = {{0, 1000}, {0, 1000}};
  assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
  rig_signals = 0;
  assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}
static inline void rig_signals_end(void) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
  assert_true(rig_signals > 0);
}

#endif
