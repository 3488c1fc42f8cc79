/* Compares copies of rows with copies of single bytes, for all widths up to MAX_WIDTH. */
#include "core/tensor/layout.h"
#include "support/test.h"

enum { ROWS = 7, LISTED = 11, MAX_WIDTH = 300, GAP = 5, ROOM = LISTED * (MAX_WIDTH + GAP) + GAP };

static const int64_t positions[ROWS] = {10, 0, 3, 3, 9, 1, 3}; /* position 3 is written three times */
static unsigned char listed[ROOM], other[ROOM], found[ROOM], wanted[ROOM];

static void fill(unsigned char *bytes, unsigned seed) {
  for (size_t i = 0; i < ROOM; i++) bytes[i] = (unsigned char)((i * 7 + i / 251 + seed) % 253);
}

/* Reads and writes rows of `width` bytes from byte `start` on. In the indexed array, `gap` bytes are between rows. */
static void check(size_t width, size_t gap, size_t start) {
  const size_t distance = width + gap;
  const tdict_rows rows = {positions, ROWS, (int64_t)distance, (int64_t)(width + GAP - gap)};
  fill(listed, 1);
  fill(other, 2);
  fill(found, 3);
  fill(wanted, 3);
  tdict_rows_read(found + start, listed + start, &rows, width);
  for (size_t i = 0; i < ROWS; i++)
    for (size_t k = 0; k < width; k++)
      wanted[start + i * (size_t)rows.step + k] = listed[start + (size_t)positions[i] * distance + k];
  assert_memory_equal(found, wanted, ROOM);
  fill(found, 3);
  fill(wanted, 3);
  tdict_rows_write(found + start, other + start, &rows, width);
  for (size_t i = 0; i < ROWS; i++)
    for (size_t k = 0; k < width; k++)
      wanted[start + (size_t)positions[i] * distance + k] = other[start + i * (size_t)rows.step + k];
  assert_memory_equal(found, wanted, ROOM);
}

CASE(rows_of_every_width_are_copied) {
  for (size_t width = 0; width <= MAX_WIDTH; width++) {
    check(width, 0, 0);
    check(width, GAP, 3);
  }
}

CASE(rectangles_of_every_width_are_copied) {
  for (size_t width = 1; width <= MAX_WIDTH; width++) {
    const tdict_rect rect = {found + 1, listed + 3, (int64_t)width + GAP, (int64_t)width + 2, width, ROWS};
    fill(listed, 1);
    fill(found, 3);
    fill(wanted, 3);
    tdict_rect_copy(&rect);
    for (size_t i = 0; i < ROWS; i++)
      for (size_t k = 0; k < width; k++) wanted[1 + i * (width + GAP) + k] = listed[3 + i * (width + 2) + k];
    assert_memory_equal(found, wanted, ROOM);
  }
}

CASE(rows_can_go_backwards) {
  const tdict_rows rows = {positions, ROWS, -24, -24};
  fill(listed, 1);
  fill(found, 3);
  fill(wanted, 3);
  tdict_rows_read(found + 600, listed + 600, &rows, 24);
  for (size_t i = 0; i < ROWS; i++)
    for (size_t k = 0; k < 24; k++) wanted[600 - i * 24 + k] = listed[600 - (size_t)positions[i] * 24 + k];
  assert_memory_equal(found, wanted, ROOM);
}
