/* safety: shows five ways to corrupt a batch with asynchronous copies. Each corrupts
 * the batch with plain device calls, and does not with tdict.
 *
 *   safety [[--device] DEVICE]     auto (default), sim, cuda:N
 *
 * The first three are from PyTorch's guide to `non_blocking` and `pin_memory()`. 1: the
 * program overwrites a pinned source. 2: the program overwrites a pageable source. This
 * is safe if the driver copies it within the call, but not if a thread pins it later.
 * 3: the program reads a copy on the host before it has arrived. The last two need two
 * streams.
 *
 * A slow kernel delays the device, so that the mistake comes first. On the simulated
 * device the program ends this kernel, so the result does not depend on timing. The
 * exit status is 0 if tdict corrupted no batch and, on the simulated device, plain
 * calls corrupted all. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "raw/device.h"
#include "tdict/sim.h"

/* floats in a batch; all have the same value, so their sum is COUNT times the value */
enum { COUNT = 1 << 16 };
static const size_t batch_bytes = COUNT * sizeof(float);

/* A failing call jumps to the clean-up of its function. The caller prints the error. */
#define GO(call)                                  \
  do {                                            \
    if ((status = (call)) != TDICT_OK) goto done; \
  } while (0)

typedef struct scene {
  tdict_context *c;
  raw_device *raw;
  tdict_device device;
  tdict_stream copies, kernels; /* of the program's own */
  tdict_tree *sum;              /* on the device: what the sum kernel writes */
} scene;

static double sum_of(const float *x) {
  double sum = 0;
  for (int i = 0; x && i < COUNT; i++) sum += x[i];
  return sum;
}

static void fill(float *x, float value) {
  for (int i = 0; x && i < COUNT; i++) x[i] = value;
}

/* Makes a batch on the host: pinned, or pageable if `memory` is NULL. */
static tdict_status make_host(tdict_memory *memory, float value, tdict_tree **out,
                              tdict_error *err) {
  static const tdict_field field = TDICT_FIELD("x", TDICT_F32, COUNT);
  tdict_status status = tdict_create_from(&field, 1, 0, NULL, memory, out, err);
  if (status == TDICT_OK) fill(tdict_data(*out, "x"), value);
  return status;
}

static tdict_status make_pinned(const scene *s, float value, tdict_tree **out,
                                tdict_error *err) {
  return make_host(tdict_pinned_memory(s->c), value, out, err);
}

static tdict_status make_on_device(const scene *s, float value, tdict_tree **out,
                                   tdict_error *err) {
  tdict_tree *host;
  tdict_status status = make_host(NULL, value, &host, err);
  if (status != TDICT_OK) return status;
  status = tdict_to_device(s->c, host, s->device, NULL, out, err);
  tdict_release(host);
  return status;
}

/* Returns true if a batch on the device has a number other than `value`. */
static tdict_status differs(const scene *s, const tdict_tree *dev, float value,
                            bool *out, tdict_error *err) {
  tdict_tree *host;
  tdict_status status = tdict_to_device(s->c, dev, tdict_cpu(), NULL, &host, err);
  if (status != TDICT_OK) return status;
  *out = sum_of(tdict_const_data(host, "x")) != (double)COUNT * value;
  tdict_release(host);
  return status;
}

/* Returns true if the sum kernel, which has ended, read a number other than `value`. */
static tdict_status kernel_saw_other(const scene *s, float value, bool *out,
                                     tdict_error *err) {
  tdict_tree *host;
  tdict_status status = tdict_to_device(s->c, s->sum, tdict_cpu(), NULL, &host, err);
  if (status != TDICT_OK) return status;
  const float *sum = tdict_const_data(host, "sum");
  *out = !sum || *sum != (float)COUNT * value;
  tdict_release(host);
  return status;
}

/* Queues a slow kernel, and a kernel that then reads a batch. */
static tdict_status late_sum(const scene *s, const float *data, tdict_error *err) {
  tdict_status status = raw_slow_kernel(s->raw, s->kernels, err);
  if (status != TDICT_OK) return status;
  return raw_sum(s->raw, s->kernels, data, COUNT, tdict_data(s->sum, "sum"), err);
}

/* 1. The program overwrites a pinned source after the
 * call has returned, but before the copy has read it. */
static tdict_status pinned_source_raw(const scene *s, bool *happened,
                                      tdict_error *err) {
  tdict_tree *host = NULL, *dev = NULL;
  tdict_status status;
  GO(make_pinned(s, 1, &host, err));
  GO(make_on_device(s, 0, &dev, err));
  float *x = tdict_data(host, "x");
  GO(raw_slow_kernel(s->raw, s->copies, err));
  GO(raw_copy_in(s->raw, s->copies, tdict_data(dev, "x"), x, batch_bytes, err));
  fill(x, 0); /* the next batch, too early */
  raw_go(s->raw);
  GO(raw_wait(s->raw, s->copies, err));
  GO(differs(s, dev, 1, happened, err));

done:
  raw_go(s->raw);
  tdict_release(dev);
  tdict_release(host);
  return status;
}

/* Two correct ways: get the address again, or
 * keep the address and wait for the source. */
static tdict_status pinned_source_tdict(const scene *s, bool *happened,
                                        tdict_error *err) {
  tdict_tree *host = NULL, *dev = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_status status;
  o.after = s->copies;
  GO(make_pinned(s, 1, &host, err));
  float *kept = tdict_data(host, "x");
  for (int way = 0; way < 2 && !*happened; way++) {
    fill(tdict_data(host, "x"), 1);
    GO(raw_slow_kernel(s->raw, s->copies, err));
    GO(tdict_to_device_async(s->c, host, s->device, &o, &f, err));
    GO(raw_go_soon(s->raw, err));
    if (way == 0) {
      /* tdict_data() waits until the copy has read the batch */
      fill(tdict_data(host, "x"), 0);
    } else {
      GO(tdict_future_wait_source(f, err));
      fill(kept, 0);
    }
    GO(tdict_future_wait(f, &dev, err));
    GO(differs(s, dev, 1, happened, err));
    raw_go(s->raw);
    tdict_release(dev);
    tdict_future_release(f);
    dev = NULL;
    f = NULL;
  }

done:
  raw_go(s->raw);
  tdict_release(dev);
  tdict_future_release(f);
  tdict_release(host);
  return status;
}

/* A thread that pins on request, so that the result does not depend on timing. */
typedef struct pinning {
  pthread_mutex_t lock; /* guards: begin */
  pthread_cond_t changed;
  bool begin;
  const float *from;
  float *to;
} pinning;

static void *pin(void *user) {
  pinning *p = user;
  pthread_mutex_lock(&p->lock);
  while (!p->begin) pthread_cond_wait(&p->changed, &p->lock);
  pthread_mutex_unlock(&p->lock);
  memcpy(p->to, p->from, batch_bytes);
  return NULL;
}

static void begin_pinning(pinning *p) {
  pthread_mutex_lock(&p->lock);
  p->begin = true;
  pthread_cond_signal(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

/* 2. The program overwrites a pageable source before
 * a thread has copied it to pinned memory. */
static tdict_status pageable_source_raw(const scene *s, bool *happened,
                                        tdict_error *err) {
  tdict_tree *host = NULL, *pinned = NULL, *dev = NULL;
  pthread_t thread;
  pinning p = {.begin = false};
  tdict_status status;
  pthread_mutex_init(&p.lock, NULL);
  pthread_cond_init(&p.changed, NULL);
  GO(make_host(NULL, 1, &host, err));
  GO(make_pinned(s, 0, &pinned, err));
  GO(make_on_device(s, 0, &dev, err));
  p.from = tdict_const_data(host, "x");
  p.to = tdict_data(pinned, "x");
  if (pthread_create(&thread, NULL, pin, &p) != 0) {
    *err =
        (tdict_error){.status = TDICT_ENOMEM, .message = "no thread could be started"};
    GO(TDICT_ENOMEM);
  }
  fill(tdict_data(host, "x"), 0); /* the next batch, too early */
  begin_pinning(&p);
  pthread_join(thread, NULL);
  GO(raw_copy_in(s->raw, s->copies, tdict_data(dev, "x"), p.to, batch_bytes, err));
  GO(raw_wait(s->raw, s->copies, err));
  GO(differs(s, dev, 1, happened, err));

done:
  tdict_release(dev);
  tdict_release(pinned);
  tdict_release(host);
  pthread_cond_destroy(&p.changed);
  pthread_mutex_destroy(&p.lock);
  return status;
}

/* Worker threads of the context pin the source. The same rule applies. */
static tdict_status pageable_source_tdict(const scene *s, bool *happened,
                                          tdict_error *err) {
  tdict_tree *host = NULL, *dev = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_status status;
  o.mode = TDICT_MODE_NON_BLOCKING_PIN;
  GO(make_host(NULL, 1, &host, err));
  GO(tdict_to_device_async(s->c, host, s->device, &o, &f, err));
  fill(tdict_data(host, "x"), 0); /* waits until the threads have read it */
  GO(tdict_future_wait(f, &dev, err));
  GO(differs(s, dev, 1, happened, err));

done:
  tdict_release(dev);
  tdict_future_release(f);
  tdict_release(host);
  return status;
}

/* 3. The program reads a result on the host after the
 * call has returned, but before the copy has arrived. */
static tdict_status early_read_raw(const scene *s, bool *happened, tdict_error *err) {
  tdict_tree *host = NULL, *dev = NULL;
  tdict_status status;
  GO(make_pinned(s, 0, &host, err));
  GO(make_on_device(s, 1, &dev, err));
  float *x = tdict_data(host, "x");
  GO(raw_slow_kernel(s->raw, s->copies, err));
  GO(raw_copy_out(s->raw, s->copies, x, tdict_data(dev, "x"), batch_bytes, err));
  *happened = sum_of(x) != COUNT;
  raw_go(s->raw);
  GO(raw_wait(s->raw, s->copies, err));

done:
  raw_go(s->raw);
  tdict_release(dev);
  tdict_release(host);
  return status;
}

static tdict_status early_read_tdict(const scene *s, bool *happened, tdict_error *err) {
  tdict_tree *host = NULL, *dev = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_status status;
  o.after = s->copies;
  GO(make_pinned(s, 0, &host, err));
  GO(make_on_device(s, 1, &dev, err));
  GO(raw_slow_kernel(s->raw, s->copies, err));
  GO(tdict_transfer_into_async(s->c, host, dev, &o, &f, err));
  GO(raw_go_soon(s->raw, err));
  /* waits until the bytes have come */
  *happened = sum_of(tdict_const_data(host, "x")) != COUNT;
  GO(tdict_future_wait(f, NULL, err));

done:
  raw_go(s->raw);
  tdict_future_release(f);
  tdict_release(dev);
  tdict_release(host);
  return status;
}

/* 4. The program copies the next batch over a batch
 * that a kernel on another stream has not read yet. */
static tdict_status destination_raw(const scene *s, bool *happened, tdict_error *err) {
  tdict_tree *next = NULL, *dev = NULL;
  tdict_status status;
  GO(make_pinned(s, 2, &next, err));
  GO(make_on_device(s, 1, &dev, err));
  GO(late_sum(s, tdict_data(dev, "x"), err));
  GO(raw_copy_in(s->raw, s->copies, tdict_data(dev, "x"), tdict_const_data(next, "x"),
                 batch_bytes, err));
  GO(raw_wait(s->raw, s->copies, err)); /* the copies' stream, not the kernels' */
  raw_go(s->raw);
  GO(raw_wait(s->raw, s->kernels, err));
  GO(kernel_saw_other(s, 1, happened, err));

done:
  raw_go(s->raw);
  tdict_release(dev);
  tdict_release(next);
  return status;
}

static tdict_status destination_tdict(const scene *s, bool *happened,
                                      tdict_error *err) {
  tdict_tree *next = NULL, *dev = NULL;
  tdict_future *f = NULL;
  bool kernel_wrong = false, batch_wrong = false;
  tdict_status status;
  GO(make_pinned(s, 2, &next, err));
  GO(make_on_device(s, 1, &dev, err));
  GO(late_sum(s, tdict_data(dev, "x"), err));
  /* records the stream that uses the batch */
  GO(tdict_record_stream(dev, s->kernels, err));
  GO(tdict_transfer_into_async(s->c, dev, next, NULL, &f, err));
  GO(raw_go_soon(s->raw, err));
  GO(tdict_future_wait(f, NULL, err));
  GO(raw_wait(s->raw, s->kernels, err));
  GO(kernel_saw_other(s, 1, &kernel_wrong, err));
  GO(differs(s, dev, 2, &batch_wrong, err));
  *happened = kernel_wrong || batch_wrong;

done:
  raw_go(s->raw);
  tdict_future_release(f);
  tdict_release(dev);
  tdict_release(next);
  return status;
}

/* 5. The program frees an arena before a kernel has
 * read it, and the next batch gets the same memory. */
typedef struct arena_pool { /* one block, like the simple arenas of many programs */
  float *block;
  bool taken;
} arena_pool;
static float *pool_take(arena_pool *pool) {
  if (pool->taken) return NULL;
  pool->taken = true;
  return pool->block;
}
/* knows nothing of kernels */
static void pool_give(arena_pool *pool) { pool->taken = false; }

static tdict_status arena_raw(const scene *s, bool *happened, tdict_error *err) {
  tdict_tree *next = NULL, *memory = NULL;
  tdict_status status;
  GO(make_pinned(s, 2, &next, err));
  GO(make_on_device(s, 1, &memory, err));
  arena_pool pool = {.block = tdict_data(memory, "x")};
  const float *batch = pool_take(&pool);
  GO(late_sum(s, batch, err));
  pool_give(&pool); /* the host does not need the batch any more */
  float *other = pool_take(&pool);
  GO(raw_copy_in(s->raw, s->copies, other, tdict_const_data(next, "x"), batch_bytes,
                 err));
  GO(raw_wait(s->raw, s->copies, err));
  raw_go(s->raw);
  GO(raw_wait(s->raw, s->kernels, err));
  GO(kernel_saw_other(s, 1, happened, err));

done:
  raw_go(s->raw);
  tdict_release(memory);
  tdict_release(next);
  return status;
}

static tdict_status arena_tdict(const scene *s, bool *happened, tdict_error *err) {
  tdict_tree *next = NULL, *dev = NULL, *other = NULL;
  bool kernel_wrong = false, batch_wrong = false;
  tdict_status status;
  GO(make_pinned(s, 2, &next, err));
  GO(make_on_device(s, 1, &dev, err));
  GO(late_sum(s, tdict_data(dev, "x"), err));
  /* the arena is reused when the kernel is done with it */
  GO(tdict_record_stream(dev, s->kernels, err));
  tdict_release(dev);
  dev = NULL;
  GO(raw_go_soon(s->raw, err)); /* the next call may wait for memory */
  GO(tdict_to_device(s->c, next, s->device, NULL, &other, err));
  GO(raw_wait(s->raw, s->kernels, err));
  GO(kernel_saw_other(s, 1, &kernel_wrong, err));
  GO(differs(s, other, 2, &batch_wrong, err));
  *happened = kernel_wrong || batch_wrong;

done:
  raw_go(s->raw);
  tdict_release(other);
  tdict_release(dev);
  tdict_release(next);
  return status;
}

typedef tdict_status (*attempt)(const scene *s, bool *happened, tdict_error *err);
static const struct {
  const char *name;
  attempt raw, tdict;
} accidents[] = {
    {"pinned source overwritten before the copy", pinned_source_raw,
     pinned_source_tdict},
    {"pageable source overwritten before a thread pins", pageable_source_raw,
     pageable_source_tdict},
    {"result on the host read before the copy", early_read_raw, early_read_tdict},
    {"destination overwritten under a kernel", destination_raw, destination_tdict},
    {"arena reused under a kernel", arena_raw, arena_tdict},
};

/* Runs every case both ways. Returns the number of wrong results. */
static int run_table(const scene *s) {
  int wrong = 0;
  printf("%-50s| %-9s| %s\n", "accident", "raw", "through tdict");
  for (size_t i = 0; i < sizeof accidents / sizeof accidents[0]; i++) {
    bool raw = false, kept = false;
    tdict_error err = {0};
    tdict_status status = accidents[i].raw(s, &raw, &err);
    if (status == TDICT_OK) status = accidents[i].tdict(s, &kept, &err);
    if (status != TDICT_OK) {
      fprintf(stderr, "safety: %s: %s: %s\n", accidents[i].name,
              tdict_status_name(status), err.message);
      wrong++;
      continue;
    }
    printf("%-50s| %-9s| %s\n", accidents[i].name, raw ? "happened" : "did not",
           kept ? "happened" : "did not");
    wrong += kept || (!raw && s->device.type == TDICT_DEVICE_SIM);
  }
  return wrong;
}

static int run(tdict_context *c) {
  static const tdict_field field = TDICT_FIELD("sum", TDICT_F32, 1);
  scene s = {.c = c, .device = tdict_context_device(c, NULL)};
  tdict_error err = {0};
  tdict_status status;
  int code = 1;
  GO(raw_open(c, s.device, &s.raw, &err));
  GO(tdict_stream_create(c, s.device, &s.copies, &err));
  GO(tdict_stream_create(c, s.device, &s.kernels, &err));
  GO(tdict_create_from(&field, 1, 0, NULL, tdict_device_memory(c, s.device), &s.sum,
                       &err));
  code = run_table(&s) ? 1 : 0;

done:
  if (status != TDICT_OK)
    fprintf(stderr, "safety: %s: %s\n", tdict_status_name(status), err.message);
  tdict_release(s.sum);
  if (s.kernels.handle) tdict_stream_destroy(c, s.kernels);
  if (s.copies.handle) tdict_stream_destroy(c, s.copies);
  raw_close(s.raw);
  return code;
}

int main(int argc, char **argv) {
  tdict_context *c = NULL;
  tdict_error err, why;
  tdict_status status;
  int code = 1;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  o.sim = &sim;
  if (argc > 3 || (argc == 3 && strcmp(argv[1], "--device") != 0) ||
      (argc == 2 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: safety [[--device] auto|sim|cuda:N]\n");
    return 2;
  }
  if (argc > 1) GO(tdict_device_parse(argv[argc - 1], &o.device, &err));
  GO(tdict_context_create(&o, &c, &err));
  if (tdict_context_device(c, &why).type == TDICT_DEVICE_SIM)
    printf("on the simulated device: %s\n", why.message);
  code = run(c);

done:
  if (status != TDICT_OK)
    fprintf(stderr, "safety: %s: %s\n", tdict_status_name(status), err.message);
  tdict_context_destroy(c);
  return code;
}
