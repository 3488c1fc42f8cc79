/* Compares the kernel WINDOW with a naive model: random parts of windows, from images and from windows without gaps. */
#include "core/kernel/work.h"
#include "core/tensor/cast.h"
#include "device/gpu_help.h"
#include "support/random.h"

enum { MOST_SIDE = 12, MOST_IMAGES = 5, CHANNELS = TDICT_WINDOW_CHANNELS, GUARD = 0x5c };
enum { MOST_ELEMENTS = MOST_IMAGES * MOST_SIDE * MOST_SIDE * CHANNELS, MOST_BYTES = 4 * MOST_ELEMENTS + 8 };

/* A random entry. */
typedef struct window_case {
  tdict_kernel_windows w;
  uint64_t places[MOST_IMAGES], num_images;
  float scales[CHANNELS], offsets[CHANNELS];
} window_case;

static void choose_case(window_case *c, rng *r) {
  static const tdict_dtype dtypes[] = {TDICT_F16, TDICT_BF16, TDICT_F32};
  tdict_kernel_windows *w = &c->w;
  *c = (window_case){.num_images = (uint64_t)pick(r, 1, MOST_IMAGES)};
  w->to = dtypes[pick(r, 0, 2)];
  w->is_cut = pick(r, 0, 1);
  w->channels = (uint64_t)pick(r, 1, CHANNELS);
  w->image_height = (uint64_t)pick(r, 1, MOST_SIDE);
  w->image_width = (uint64_t)pick(r, 1, MOST_SIDE);
  w->height = (uint64_t)pick(r, 1, (int64_t)w->image_height);
  w->width = (uint64_t)pick(r, 1, (int64_t)w->image_width);
  const uint64_t bytes = tdict_dtype_bytes(w->to), pixels = w->height * w->width,
                 all = c->num_images * pixels * w->channels;
  const bool channels_first = pick(r, 0, 1);
  w->sample = pixels * w->channels * bytes;
  w->channel = channels_first ? pixels * bytes : bytes;
  w->pixel = channels_first ? bytes : w->channels * bytes;
  w->row = w->width * w->pixel;
  w->first = (size_t)pick(r, 0, (int64_t)all - 1);
  w->last = (size_t)pick(r, (int64_t)w->first + 1, (int64_t)all);
  for (uint64_t i = 0; i < c->num_images; i++) {
    const uint64_t top = (uint64_t)pick(r, 0, (int64_t)(w->image_height - w->height));
    const uint64_t left = (uint64_t)pick(r, 0, (int64_t)(w->image_width - w->width));
    c->places[i] = top << TDICT_PLACE_TOP | left << TDICT_PLACE_LEFT | (uint64_t)pick(r, 0, 1);
  }
  for (uint64_t k = 0; k < w->channels; k++) {
    uint32_t scale, offset;
    c->scales[k] = (float)pick(r, -1000, 1000) / (float)pick(r, 1, 99);
    c->offsets[k] = (float)pick(r, -1000, 1000) / (float)pick(r, 1, 99);
    memcpy(&scale, &c->scales[k], sizeof scale);
    memcpy(&offset, &c->offsets[k], sizeof offset);
    w->scales[k] = scale | (uint64_t)offset << 32;
  }
  w->places = c->places;
}

/* Writes the wanted bytes of the whole result. Elements outside the entry keep their bytes. */
static void model(const window_case *c, const unsigned char *src, unsigned char *out) {
  const tdict_kernel_windows *w = &c->w;
  const uint64_t in_row = w->width * w->channels, in_window = w->height * in_row;
  for (uint64_t e = w->first; e < w->last; e++) {
    const uint64_t image = e / in_window, row = e % in_window / in_row, column = e % in_row / w->channels;
    const uint64_t channel = e % w->channels, place = c->places[image];
    const uint64_t top = place >> TDICT_PLACE_TOP, left = (uint32_t)place >> TDICT_PLACE_LEFT;
    const uint64_t at =
        ((image * w->image_height + top + row) * w->image_width + left + column) * w->channels + channel;
    const uint64_t to = place & 1 ? w->width - 1 - column : column;
    const tdict_cast cast = {w->to, TDICT_U8, true, c->scales[channel], c->offsets[channel]};
    unsigned char *dst = out + image * w->sample + row * w->row + to * w->pixel + channel * w->channel;
    (void)tdict_cast_elements(TDICT_STREAM_PLAIN, &cast, dst, w->is_cut ? &src[e - w->first] : &src[at], 1);
  }
}

GPU_CASE(window_kernel_equals_the_model) {
  static unsigned char src[MOST_ELEMENTS], found[MOST_BYTES], wanted[MOST_BYTES];
  fixture b = fixture_open(NULL);
  raw_memory *raw = raw_open(b.context, td_device());
  tdict_block to = fixture_take(&b, MOST_BYTES), from = fixture_take(&b, MOST_BYTES);
  rng r = {3};
  td_fill_random(src, sizeof src, 9);
  raw_write(raw, from.data, src, sizeof src);
  for (int i = 0; i < 400; i++) {
    window_case c;
    tdict_kernel_work work;
    choose_case(&c, &r);
    const size_t shift = (size_t)pick(&r, 0, 3); /* the result can be at an odd address */
    c.w.dst = (char *)to.data + shift;
    c.w.src = from.data;
    raw_fill(raw, to.data, GUARD, MOST_BYTES);
    memset(wanted, GUARD, MOST_BYTES);
    model(&c, src, wanted + shift);
    tdict_kernel_work_init(&work, TDICT_KERNEL_WINDOW);
    td_ok(tdict_kernel_add_windows(&work, &c.w, err));
    td_ok(b.memory->ops->run(b.memory, &work, NULL, err));
    tdict_kernel_work_reset(&work);
    raw_read(raw, found, to.data, MOST_BYTES);
    if (memcmp(found, wanted, MOST_BYTES) != 0)
      fail_msg("case %d: elements %zu to %zu of windows %dx%d with %d channels differ", i, c.w.first, c.w.last,
               (int)c.w.height, (int)c.w.width, (int)c.w.channels);
  }
  raw_close(raw);
  fixture_give(&b, &to);
  fixture_give(&b, &from);
  fixture_close(&b);
}
