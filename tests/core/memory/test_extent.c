/* Compares extents and sets of extents with an array of flags, one per byte. */
#include "core/memory/extent.h"

#include "core/memory/storage.h"
#include "support/test.h"

enum { BYTES = 240 };

static tdict_extent rows(size_t begin, size_t pitch, size_t width, size_t count) {
  return (tdict_extent){.begin = begin,
                        .end = begin + (count - 1) * pitch + width,
                        .layout = 1 + begin + BYTES * (pitch + BYTES * (width + BYTES * count)),
                        .origin = begin,
                        .pitch = pitch,
                        .width = width};
}
static bool has_byte(const tdict_extent *e, size_t at) {
  if (at < e->begin || at >= e->end) return false;
  return !e->layout || (at - e->origin) % e->pitch < e->width;
}
static uint32_t next(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}
static tdict_extent random_extent(uint32_t *seed) {
  const size_t pitch = 2 + next(seed) % 12, width = 1 + next(seed) % (pitch - 1), count = 2 + next(seed) % 8;
  const size_t begin = next(seed) % 100;
  return next(seed) % 2 ? rows(begin, pitch, width, count) : tdict_extent_all(begin, begin + 1 + next(seed) % 100);
}

CASE(extent_overlap_is_exact_for_one_pitch) {
  uint32_t seed = 7;
  int known = 0;
  for (int i = 0; i < 20000; i++) {
    const tdict_extent a = random_extent(&seed), b = random_extent(&seed);
    bool common = false;
    for (size_t at = 0; at < BYTES; at++) common = common || (has_byte(&a, at) && has_byte(&b, at));
    const tdict_overlap found = tdict_extent_overlap(&a, &b);
    assert_int_equal(found, tdict_extent_overlap(&b, &a));
    if (!a.layout || !b.layout || a.pitch == b.pitch) assert_int_not_equal(found, TDICT_OVERLAP_UNKNOWN);
    if (found == TDICT_OVERLAP_UNKNOWN) continue;
    known++;
    assert_int_equal(found == TDICT_OVERLAP_YES, common);
  }
  assert_true(known > 10000);
}

/* Extents without gaps: the set has exactly the bytes that were added and not removed again. */
CASE(extent_set_is_exact) {
  uint32_t seed = 11;
  for (int round = 0; round < 200; round++) {
    tdict_extent_set set = {0};
    bool there[BYTES] = {false};
    for (int i = 0; i < 40; i++) {
      const size_t begin = next(&seed) % 100;
      const tdict_extent e = tdict_extent_all(begin, begin + next(&seed) % 60);
      const bool adds = next(&seed) % 2;
      assert_true(adds ? tdict_extent_set_add(&set, &e) : tdict_extent_set_remove(&set, &e));
      for (size_t at = e.begin; at < e.end; at++) there[at] = adds;
      bool any = false;
      for (size_t at = 0; at < BYTES; at++) {
        const tdict_extent one = tdict_extent_all(at, at + 1);
        assert_int_equal(tdict_extent_set_may_have(&set, &one), there[at]);
        any = any || there[at];
      }
      assert_int_equal(tdict_extent_set_is_empty(&set), !any);
      const tdict_extent ask = random_extent(&seed);
      bool has = false;
      for (size_t at = 0; at < BYTES; at++) has = has || (there[at] && has_byte(&ask, at));
      assert_int_equal(tdict_extent_set_may_have(&set, &ask), has);
    }
    tdict_extent_set_reset(&set);
  }
}

/* Extents with gaps: the set has all bytes that were added and not removed, and none that were never added. */
CASE(extent_set_loses_no_strided_byte) {
  uint32_t seed = 13;
  for (int round = 0; round < 500; round++) {
    tdict_extent_set set = {0};
    bool there[BYTES] = {false}, ever[BYTES] = {false};
    tdict_extent kept[4];
    for (int i = 0; i < 4; i++) kept[i] = rows(next(&seed) % 40, 12, 1 + next(&seed) % 11, 6);
    for (int i = 0; i < 30; i++) {
      const bool adds = next(&seed) % 2;
      const tdict_extent e =
          next(&seed) % 3 ? kept[next(&seed) % 4] : tdict_extent_all(next(&seed) % 60, 60 + next(&seed) % 60);
      assert_true(adds ? tdict_extent_set_add(&set, &e) : tdict_extent_set_remove(&set, &e));
      for (size_t at = 0; at < BYTES; at++)
        if (has_byte(&e, at)) there[at] = adds, ever[at] = ever[at] || adds;
      for (size_t at = 0; at < BYTES; at++) {
        const tdict_extent one = tdict_extent_all(at, at + 1);
        if (there[at]) assert_true(tdict_extent_set_may_have(&set, &one));
        if (!ever[at]) assert_false(tdict_extent_set_may_have(&set, &one));
      }
    }
    for (int i = 0; i < 4; i++) assert_true(tdict_extent_set_remove(&set, &kept[i]));
    const tdict_extent all = tdict_extent_all(0, BYTES);
    assert_true(tdict_extent_set_remove(&set, &all));
    assert_true(tdict_extent_set_is_empty(&set));
    tdict_extent_set_reset(&set);
  }
}

static bool is_lost(tdict_storage *s, size_t begin, size_t end) {
  const tdict_extent e = tdict_extent_all(begin, end);
  return tdict_storage_is_lost(s, &e);
}

CASE(storage_without_memory_for_its_list_is_lost) {
  const tdict_extent a = tdict_extent_all(0, 10), b = tdict_extent_all(20, 30), all = tdict_extent_all(0, 100);
  for (int fails = 0; fails < 4; fails++) {
    scoped_storage s = td_made(storage, tdict_storage_create(NULL, 100, false, &made, err));
    assert_false(tdict_storage_has_lost(s));
    td_fail_alloc(fails, true);
    tdict_storage_lose(s, &a);
    tdict_storage_lose(s, &b);
    (void)td_fail_alloc_stop();
    assert_true(is_lost(s, 0, 10) && is_lost(s, 25, 26));
    assert_int_equal(is_lost(s, 10, 20), fails < 2);
    assert_false(is_lost(s, 10, 10));
    tdict_storage_regain(s, &a);
    assert_false(is_lost(s, 0, 10));
    assert_true(is_lost(s, 20, 30));
    tdict_storage_regain(s, &all);
    assert_false(tdict_storage_has_lost(s));
    tdict_storage_lose_all(s);
    assert_true(is_lost(s, 99, 100));
    td_fail_alloc(0, true);
    tdict_storage_regain(s, &b); /* the allocation fails, so all bytes stay lost */
    (void)td_fail_alloc_stop();
    assert_true(is_lost(s, 20, 30));
    tdict_storage_regain(s, &all);
    assert_false(is_lost(s, 0, 100));
  }
}
