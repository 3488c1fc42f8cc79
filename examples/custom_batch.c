/* custom_batch: pins a batch type of the program by a hook of the program.
 *
 *   custom_batch [[--device] DEVICE]     auto (default), cpu, sim, cuda:N
 *
 * Ten inputs and ten targets of five floats, both 0, 1, 2, ..., are split into batches
 * of two. A batch is a struct with two tensors. The library knows only its tdict_type.
 * If the type has a `pin_memory` hook, both tensors of every batch are pinned. Without
 * the hook the library returns the batch unchanged. The exit status is 0 if this is
 * true.
 *
 * The program only pins. A type whose batches are also sent to a device needs the hook
 * `to_device`, too. docs/listings/custom_batch.c shows such a type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tdict/hook.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>
#include <tdict/view.h>

enum { ITEMS = 10, FLOATS = 5, BATCH = 2 };

typedef struct batch {
  tdict_tensor *inp, *tgt;
} batch;

static void batch_release(void *self) {
  batch *b = self;
  if (!b) return;
  tdict_tensor_release(b->inp);
  tdict_tensor_release(b->tgt);
  free(b);
}

/* The hook: returns a new batch with pinned tensors. It
 * runs on a thread of the context and only reads `self`. */
static tdict_status batch_pin(const void *self, const tdict_hook *hook, void **out,
                              tdict_error *err) {
  const batch *b = self;
  batch *pinned = calloc(1, sizeof *pinned);
  if (!pinned) return TDICT_ENOMEM;
  tdict_status status = tdict_hook_pin(hook, b->inp, &pinned->inp, err);
  if (status == TDICT_OK) status = tdict_hook_pin(hook, b->tgt, &pinned->tgt, err);
  if (status == TDICT_OK)
    *out = pinned; /* written on success only */
  else
    batch_release(pinned);
  return status;
}

static bool batch_is_pinned(const void *self) {
  const batch *b = self;
  return tdict_tensor_is_pinned(b->inp) && tdict_tensor_is_pinned(b->tgt);
}

/* Types must outlive their objects, so they are
 * static. The second type has no pin_memory hook. */
static const tdict_type with_hook = {.struct_size = sizeof with_hook,
                                     .name = "batch",
                                     .release = batch_release,
                                     .pin_memory = batch_pin,
                                     .is_pinned = batch_is_pinned};
static const tdict_type without_hook = {
    .struct_size = sizeof without_hook, .name = "batch", .release = batch_release};

/* Returns 0, 1, 2, ... as ten rows of five floats. */
static tdict_status make_rows(tdict_tensor **out, tdict_error *err) {
  tdict_tensor *line;
  tdict_status status =
      tdict_tensor_arange(TDICT_F32, 0, 1, ITEMS * FLOATS, &line, err);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_reshape(line, TDICT_SHAPE(ITEMS, FLOATS), out, err);
  tdict_tensor_release(line);
  return status;
}

/* Copies the rows of batch `n`, as a collate function does. */
static tdict_status take_rows(const tdict_tensor *from, int64_t n, tdict_tensor **out,
                              tdict_error *err) {
  const tdict_tensor_range range = {
      .dim = 0, .start = n * BATCH, .count = BATCH, .step = 1};
  tdict_tensor *rows;
  tdict_status status = tdict_tensor_slice(from, &range, &rows, err);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_clone(rows, NULL, out, err);
  tdict_tensor_release(rows);
  return status;
}

/* Returns true if a tensor has the numbers of batch `n`. */
static bool is_right(const tdict_tensor *t, int64_t n) {
  const float *x = tdict_tensor_const_data(t);
  bool right = x != NULL && tdict_tensor_numel(t) == BATCH * FLOATS;
  for (int64_t i = 0; right && i < BATCH * FLOATS; i++)
    right = x[i] == (float)(n * BATCH * FLOATS + i);
  return right;
}

static const char *word(bool value) { return value ? "true" : "false"; }

/* Makes a batch, pins it by its type and checks
 * it. Returns true if the result is right. */
static bool one_batch(tdict_context *c, const tdict_type *type,
                      tdict_tensor *const rows[2], int64_t n) {
  bool want = type->pin_memory != NULL, right = false;
  void *pinned = NULL;
  tdict_error err = {.status = TDICT_ENOMEM, .message = "no memory for a batch"};
  batch *made = calloc(1, sizeof *made);
  TDICT_TRY(made ? TDICT_OK : TDICT_ENOMEM);
  TDICT_TRY(take_rows(rows[0], n, &made->inp, &err));
  TDICT_TRY(take_rows(rows[1], n, &made->tgt, &err));
  TDICT_TRY(tdict_pin_object(c, type, made, NULL, &pinned,
                             /* the caller still owns `made`; without
                              * a hook the result is `made` */
                             &err));
  const batch *sample = pinned;
  bool inp = tdict_tensor_is_pinned(sample->inp),
       tgt = tdict_tensor_is_pinned(sample->tgt);
  printf("batch %d: inp pinned: %s, tgt pinned: %s\n", (int)n, word(inp), word(tgt));
  right = inp == want && tgt == want && (pinned != made) == want &&
          is_right(sample->inp, n) && is_right(sample->tgt, n);
  if (!right)
    fprintf(stderr, "custom_batch: batch %d should be %s, with its own elements\n",
            (int)n, want ? "pinned" : "as it was");

done:
  if (pinned != made) batch_release(pinned);
  batch_release(made);
  return right;
}

static int all_batches(tdict_context *c) {
  const tdict_type *const types[2] = {&with_hook, &without_hook};
  tdict_tensor *rows[2] = {NULL, NULL}; /* inputs and targets */
  tdict_error err = {0};
  int code = 1, wrong = 0;
  TDICT_TRY(make_rows(&rows[0], &err));
  TDICT_TRY(make_rows(&rows[1], &err));
  for (int t = 0; t < 2; t++) {
    printf("a type %s a pin_memory hook\n", types[t]->pin_memory ? "with" : "without");
    for (int64_t n = 0; n < ITEMS / BATCH; n++)
      wrong += !one_batch(c, types[t], rows, n);
  }
  code = wrong ? 1 : 0;

done:
  tdict_tensor_release(rows[0]);
  tdict_tensor_release(rows[1]);
  return code;
}

int main(int argc, char **argv) {
  tdict_context *c = NULL;
  tdict_error err, why;
  int code = 1;
  /* pinned memory needs a device that reads it */
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  o.sim = &sim;
  if (argc > 3 || (argc == 3 && strcmp(argv[1], "--device") != 0) ||
      (argc == 2 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: custom_batch [[--device] auto|cpu|sim|cuda:N]\n");
    return 2;
  }
  if (argc > 1) TDICT_TRY(tdict_device_parse(argv[argc - 1], &o.device, &err));
  TDICT_TRY(tdict_context_create(&o, &c, &err));
  if (tdict_context_device(c, &why).type == TDICT_DEVICE_SIM)
    printf("on the simulated device: %s\n", why.message);
  code = all_batches(c);

done:
  tdict_context_destroy(c);
  return code;
}
