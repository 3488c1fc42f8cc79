/* Works of each operation, run on a device and compared with a naive model. */
#include "kernel/work.h"

#include "kernel/random_move.h"

typedef struct copy_model {
  areas *a;
  size_t item;
} copy_model;
static void model_copy(void *user, int64_t dst, int64_t src) {
  const copy_model *c = user;
  memcpy(c->a->model_dst + dst, c->a->model_src + src, c->item);
}

/* Random copies, gathers and scatters of elements of all sizes, aligned and not. */
GPU_CASE(kernel_copies_equal_a_model) {
  static const size_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  for (uint64_t seed = 0; seed < 60; seed++) {
    areas a;
    rng r = {seed};
    tdict_kernel_work work;
    areas_open(&a, seed);
    tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
    const int64_t wanted = pick(&r, 1, 100);
    for (int64_t i = 0; i < wanted; i++) {
      random_move m;
      const size_t item = sizes[pick(&r, 0, (int64_t)(sizeof sizes / sizeof *sizes) - 1)];
      if (!make_move(&r, &a, &work, (items){item, item}, &m)) break;
      td_ok(tdict_kernel_add_copy(&work, &m.move, err));
      each_element(&m, model_copy, &(copy_model){&a, item});
      free_move(&m);
    }
    td_ok(a.b.memory->ops->run(a.b.memory, &work, NULL, err));
    areas_check_dst(&a);
    tdict_kernel_work_reset(&work);
    areas_close(&a);
  }
}
