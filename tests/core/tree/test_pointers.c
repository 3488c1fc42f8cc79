/* Tests tdict_pointers, a map from pointers to pointers. */
#include "core/tree/pointers.h"

#include "support/test.h"

CASE(pointers_are_found) {
  static char keys[3000], values[3000];
  tdict_pointers map;
  tdict_pointers_init(&map);
  assert_null(tdict_pointers_get(&map, keys));
  for (int way = 0; way < 2; way++) {
    for (size_t i = 0; i < sizeof keys; i += 3) assert_int_equal(tdict_pointers_add(&map, keys + i, values + i), 1);
    for (size_t i = 0; i < sizeof keys; i++)
      assert_ptr_equal(tdict_pointers_get(&map, keys + i), i % 3 ? NULL : values + i);
    assert_int_equal(tdict_pointers_add(&map, keys, values + 1), 0);
    assert_ptr_equal(tdict_pointers_get(&map, keys), values);
    tdict_pointers_clear(&map);
    assert_null(tdict_pointers_get(&map, keys));
    td_fail_alloc(0, true); /* the map keeps its memory, so the next round allocates nothing */
  }
  assert_false(td_fail_alloc_stop());
  tdict_pointers_reset(&map);
}

CASE(pointers_survive_enomem) {
  static char keys[200];
  tdict_pointers map;
  tdict_pointers_init(&map);
  for (size_t i = 0; i < sizeof keys; i++) {
    td_fail_alloc(0, true);
    int added = tdict_pointers_add(&map, keys + i, keys + i);
    bool refused = td_fail_alloc_stop();
    assert_int_equal(added, refused ? -1 : 1);
    if (refused) assert_int_equal(tdict_pointers_add(&map, keys + i, keys + i), 1);
    for (size_t k = 0; k <= i; k++) assert_ptr_equal(tdict_pointers_get(&map, keys + k), keys + k);
  }
  tdict_pointers_reset(&map);
}
