/* Makes random moves of elements between areas of device memory, and checks them with a naive model. The model computes
 * the offset of each element from its index. Unlike the library, it neither merges dimensions nor uses wider units. */
#ifndef TDICT_TESTS_CORE_KERNEL_RANDOM_MOVE_H
#define TDICT_TESTS_CORE_KERNEL_RANDOM_MOVE_H

#include "core/kernel/work.h"
#include "device/gpu_help.h"
#include "support/random.h"

enum { AREA_BYTES = 1 << 19, MODEL_DIMS = 8, MODEL_LISTS = 3 };

/* The device memory of a case, and host arrays with the bytes that the model expects in it. */
typedef struct areas {
  fixture b;
  raw_memory *raw;
  tdict_block dst, src, lists;
  unsigned char *model_dst, *model_src;
  size_t dst_used, src_used, lists_used;
} areas;
/* Marks all areas as unused. Fills the source, the destination and their models with random bytes. */
static inline void areas_fill(areas *a, uint64_t seed) {
  a->dst_used = a->src_used = a->lists_used = 0;
  td_fill_random(a->model_dst, AREA_BYTES, seed);
  td_fill_random(a->model_src, AREA_BYTES, seed + 1);
  raw_write(a->raw, a->dst.data, a->model_dst, AREA_BYTES);
  raw_write(a->raw, a->src.data, a->model_src, AREA_BYTES);
}
static inline areas areas_open(uint64_t seed) {
  areas a = {.b = fixture_open(NULL), .model_dst = td_alloc(AREA_BYTES), .model_src = td_alloc(AREA_BYTES)};
  a.raw = raw_open(a.b.context, td_device());
  a.dst = fixture_take(&a.b, AREA_BYTES);
  a.src = fixture_take(&a.b, AREA_BYTES);
  a.lists = fixture_take(&a.b, AREA_BYTES);
  areas_fill(&a, seed);
  return a;
}
static inline void areas_check_dst(const areas *a) {
  scoped_bytes found = malloc(AREA_BYTES);
  raw_read(a->raw, found, a->dst.data, AREA_BYTES);
  for (size_t i = 0; i < AREA_BYTES; i++)
    if (found[i] != a->model_dst[i])
      fail_msg("byte %zu of the destination is %d, wanted %d", i, found[i], a->model_dst[i]);
}
static inline void areas_close(areas *a) {
  free(a->model_dst);
  free(a->model_src);
  raw_close(a->raw);
  fixture_give(&a->b, &a->dst);
  fixture_give(&a->b, &a->src);
  fixture_give(&a->b, &a->lists);
  fixture_close(&a->b);
}
#define scoped_areas TD_SCOPED(areas_close, areas)

/* The layout of one side of a move. The strides, and the offset of the first element in its area, are in bytes. */
typedef struct side {
  int ndim;
  int64_t shape[MODEL_DIMS], strides[MODEL_DIMS], first;
} side;

/* Chooses strides in random order and direction, some with gaps, some 0. Returns false if the area is full. */
static inline bool place_side(rng *r, side *s, size_t item, bool may_repeat, size_t *used) {
  int order[MODEL_DIMS];
  int64_t step = (int64_t)item, back = 0;
  const int64_t grain = pick(r, 0, 3) ? (int64_t)item : 1; /* gaps and offsets are multiples of `item`, or of 1 */
  for (int i = 0; i < s->ndim; i++) {
    const int j = (int)pick(r, 0, i);
    order[i] = order[j];
    order[j] = i;
  }
  if (pick(r, 0, 1)) /* half of the sides are in C order */
    for (int i = 0; i < s->ndim; i++) order[i] = s->ndim - 1 - i;
  const bool has_gaps = pick(r, 0, 2) == 0, turns = pick(r, 0, 2) == 0;
  for (int i = 0; i < s->ndim; i++) {
    const int d = order[i];
    const int64_t size = s->shape[d] ? s->shape[d] : 1;
    if (has_gaps) step += pick(r, 0, 3) * grain;
    s->strides[d] = step;
    if (may_repeat && pick(r, 0, 9) == 0) {
      s->strides[d] = 0;
      continue;
    }
    if (turns && pick(r, 0, 1)) {
      s->strides[d] = -step;
      back += (size - 1) * step;
    }
    step *= size;
  }
  const size_t begin = *used + (size_t)(pick(r, 0, 2) * grain) + (pick(r, 0, 1) ? (16 - *used % 16) % 16 : 0);
  s->first = (int64_t)begin + back;
  if (begin + (size_t)step > AREA_BYTES) return false;
  *used = begin + (size_t)step;
  return true;
}

/* A random move. `move` points to the strides and lists in this struct. */
typedef struct random_move {
  side dst, src; /* the indexed side has one dimension per list, in place of the listed dimension */
  tdict_kernel_move move;
  int64_t dst_strides[MODEL_DIMS], src_strides[MODEL_DIMS];
  tdict_kernel_list lists[MODEL_LISTS];
  int64_t *positions[MODEL_LISTS]; /* the positions of each list; owned */
} random_move;

static inline void free_move(random_move *m) {
  for (int k = 0; k < m->move.num_lists; k++) free(m->positions[k]);
}

/* Chooses the positions of all lists. In a scatter, no combination of positions occurs twice. Stores each list in the
 * work or in device memory. Returns false if the area for lists is full. */
static inline bool make_lists(rng *r, areas *a, tdict_kernel_work *work, random_move *m, const int64_t *sizes) {
  tdict_kernel_move *move = &m->move;
  const int64_t count = move->shape[move->listed];
  int64_t all = 1;
  for (int k = 0; k < move->num_lists; k++) {
    all *= sizes[k];
    m->positions[k] = malloc((size_t)(count ? count : 1) * sizeof(int64_t));
  }
  int64_t *places = malloc((size_t)all * sizeof *places);
  for (int64_t i = 0; i < all; i++) {
    const int64_t j = pick(r, 0, i);
    places[i] = places[j];
    places[j] = i;
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t place = move->scatter ? places[i] : pick(r, 0, all - 1);
    for (int k = 0; k < move->num_lists; k++) {
      m->positions[k][i] = place % sizes[k] - (pick(r, 0, 3) ? 0 : sizes[k]);
      place /= sizes[k];
    }
  }
  free(places);
  for (int k = 0; k < move->num_lists; k++) {
    const size_t bytes = (size_t)count * sizeof(int64_t);
    m->lists[k].size = sizes[k];
    if (pick(r, 0, 1)) {
      td_ok(tdict_kernel_add_positions(work, m->positions[k], count, &m->lists[k].positions, err));
      continue;
    }
    if (a->lists_used + bytes > AREA_BYTES) return false;
    char *at = (char *)a->lists.data + a->lists_used;
    if (bytes) raw_write(a->raw, at, m->positions[k], bytes);
    a->lists_used += bytes;
    m->lists[k].positions = tdict_kernel_positions_at(at);
  }
  return true;
}

/* The size of an element on each side, in bytes. */
typedef struct items {
  size_t dst, src;
} items;

/* Makes a random move for `work`. Returns false if an area is full; then nothing needs to be freed. */
static inline bool make_move(rng *r, areas *a, tdict_kernel_work *work, items item, random_move *m) {
  memset(m, 0, sizeof *m);
  int64_t sizes[MODEL_LISTS] = {0}, all = 1;
  tdict_kernel_move *move = &m->move;
  static _Thread_local int64_t shape[64][MODEL_DIMS]; /* `move->shape` points here after the return */
  static _Thread_local int shapes;
  int64_t *s = shape[shapes++ % 64];
  move->ndim = (int)pick(r, 0, 4);
  for (int d = 0; d < move->ndim; d++) s[d] = pick(r, 0, 30) ? pick(r, 1, 6) : 0;
  if (move->ndim > 0 && pick(r, 0, 7) == 0) s[pick(r, 0, move->ndim - 1)] = pick(r, 7, 700);
  move->shape = s;
  move->item_bytes = item.dst;
  move->scatter = pick(r, 0, 1);
  move->num_lists = move->ndim > 0 && pick(r, 0, 1) ? (int)pick(r, 1, MODEL_LISTS) : 0;
  move->listed = move->num_lists ? (int)pick(r, 0, move->ndim - 1) : -1;
  move->lists = m->lists;
  for (int k = 0; k < move->num_lists; k++) all *= sizes[k] = pick(r, 1, 6);
  while (move->num_lists && move->scatter && all < s[move->listed]) {
    const int k = (int)pick(r, 0, move->num_lists - 1);
    all = all / sizes[k] * (sizes[k] + 3);
    sizes[k] += 3;
  }
  /* Place the sides. On the indexed side, the lists' dimensions come after the others. */
  side *const sides[] = {&m->dst, &m->src};
  for (int i = 0; i < 2; i++) {
    const bool is_indexed = move->num_lists && move->scatter == (i == 0);
    for (int d = 0; d < move->ndim; d++)
      if (!is_indexed || d != move->listed) sides[i]->shape[sides[i]->ndim++] = s[d];
    for (int k = 0; is_indexed && k < move->num_lists; k++) sides[i]->shape[sides[i]->ndim++] = sizes[k];
    if (!place_side(r, sides[i], i ? item.src : item.dst, i == 1, i ? &a->src_used : &a->dst_used)) return false;
    int64_t *strides = i ? m->src_strides : m->dst_strides;
    for (int d = 0, at = 0; d < move->ndim; d++) {
      if (is_indexed && d == move->listed)
        strides[d] = 12345; /* ignored */
      else
        strides[d] = sides[i]->strides[at++];
    }
    for (int k = 0; is_indexed && k < move->num_lists; k++) m->lists[k].stride = sides[i]->strides[move->ndim - 1 + k];
  }
  move->dst_strides = m->dst_strides;
  move->src_strides = m->src_strides;
  move->dst = (char *)a->dst.data + m->dst.first;
  move->src = (char *)a->src.data + m->src.first;
  if (move->num_lists && !make_lists(r, a, work, m, sizes)) {
    free_move(m);
    return false;
  }
  return true;
}

/* Calls fn for each element in C order, with its byte offsets in the destination's area and in the source's area. */
static inline void each_element(const random_move *m, void (*fn)(void *user, int64_t dst, int64_t src), void *user) {
  const tdict_kernel_move *move = &m->move;
  int64_t index[MODEL_DIMS] = {0};
  for (int d = 0; d < move->ndim; d++)
    if (move->shape[d] == 0) return;
  for (;;) {
    int64_t offset[2] = {m->dst.first, m->src.first};
    for (int i = 0; i < 2; i++)
      for (int d = 0; d < move->ndim; d++) {
        const int64_t *strides = i ? m->src_strides : m->dst_strides;
        if (d != move->listed || move->scatter != (i == 0)) {
          offset[i] += index[d] * strides[d];
          continue;
        }
        for (int k = 0; k < move->num_lists; k++) {
          int64_t position = m->positions[k][index[d]];
          if (position < 0) position += m->lists[k].size;
          offset[i] += position * m->lists[k].stride;
        }
      }
    fn(user, offset[0], offset[1]);
    int d = move->ndim - 1;
    for (; d >= 0 && ++index[d] == move->shape[d]; d--) index[d] = 0;
    if (d < 0) return;
  }
}

#endif
