/* Tests key tables: searching, order, deletions, renames, copies, compaction, and the cost per key. */
#include "core/tree/keys.h"

#include "support/test.h"

static int64_t add_bytes(tdict_keys *keys, const char *text, size_t length) {
  const tdict_name name = tdict_name_of(text, length);
  return tdict_keys_append(keys, &name);
}
static int64_t add(tdict_keys *keys, const char *name) { return add_bytes(keys, name, strlen(name)); }
static int64_t find(const tdict_keys *keys, const char *name) { return tdict_keys_find(keys, name, strlen(name)); }
static void name_of(char *buffer, unsigned i) { snprintf(buffer, 32, "key number %u", i * 2654435761u); }

CASE(keys_find_what_was_added) {
  enum { COUNT = 5000 };
  tdict_keys *keys = tdict_keys_create();
  char name[32];
  for (unsigned i = 0; i < COUNT; i++) {
    name_of(name, i);
    assert_int_equal(find(keys, name), -1);
    assert_int_equal(add(keys, name), i);
    assert_int_equal(find(keys, name), i);
    assert_string_equal(keys->slots[i].name, name);
  }
  for (unsigned i = 0; i < COUNT; i++) {
    name_of(name, i);
    assert_int_equal(find(keys, name), i);
  }
  assert_int_equal(tdict_keys_find(keys, "key number 0 and more", 12), 0);
  assert_int_equal(tdict_keys_find(keys, "key number 0", 11), -1);
  assert_int_equal(find(keys, ""), -1);
  assert_int_equal(keys->num_live, COUNT);
  tdict_keys_release(keys);
}

CASE(keys_delete_leaves_the_others) {
  enum { COUNT = 300 };
  tdict_keys *keys = tdict_keys_create();
  char name[32];
  for (unsigned i = 0; i < COUNT; i++) name_of(name, i), add(keys, name);
  for (unsigned i = 0; i < COUNT; i += 3) tdict_keys_delete(keys, i);
  for (unsigned i = 0; i < COUNT; i++) {
    name_of(name, i);
    assert_int_equal(find(keys, name), i % 3 == 0 ? -1 : (int64_t)i);
    assert_true((keys->slots[i].name == NULL) == (i % 3 == 0));
  }
  assert_int_equal(keys->num_live, COUNT - COUNT / 3);
  assert_int_equal(add(keys, "one more"), COUNT);
  tdict_keys_release(keys);
}

CASE(keys_compact_moves_leaves_along) {
  enum { COUNT = 200 };
  tdict_keys *keys = tdict_keys_create();
  uintptr_t leaves[COUNT];
  char name[32];
  for (unsigned i = 0; i < COUNT; i++) name_of(name, i), add(keys, name), leaves[i] = i;
  for (unsigned left = COUNT; left > 0; left /= 4) {
    for (uint32_t i = 0; i < keys->num_slots; i++)
      if (i >= left) tdict_keys_delete(keys, i);
    tdict_keys_compact(keys, leaves);
    assert_int_equal(keys->num_slots, left);
    assert_int_equal(keys->num_live, left);
    if (left > 1) { /* delete the first key too, so that all keys move */
      tdict_keys_delete(keys, 0);
      tdict_keys_compact(keys, leaves);
    }
    for (uint32_t i = 0; i < keys->num_slots; i++) {
      name_of(name, (unsigned)leaves[i]);
      assert_string_equal(keys->slots[i].name, name);
      assert_int_equal(find(keys, name), i);
    }
  }
  tdict_keys_release(keys);
}

CASE(keys_rename_keeps_the_slot) {
  tdict_keys *keys = tdict_keys_create();
  char name[32];
  for (unsigned i = 0; i < 40; i++) name_of(name, i), add(keys, name);
  const tdict_name seven = tdict_name_of("seven", 5);
  assert_true(tdict_keys_rename(keys, 7, &seven));
  name_of(name, 7);
  assert_int_equal(find(keys, name), -1);
  assert_int_equal(find(keys, "seven"), 7);
  tdict_keys_take_name(keys, 9, 7);
  assert_int_equal(find(keys, "seven"), 9);
  assert_null(keys->slots[7].name);
  name_of(name, 9);
  assert_int_equal(find(keys, name), -1);
  assert_int_equal(keys->num_live, 39);
  tdict_keys_release(keys);
}

CASE(keys_copy_is_private) {
  tdict_keys *keys = tdict_keys_create();
  char name[32];
  for (unsigned i = 0; i < 40; i++) name_of(name, i), add(keys, name);
  tdict_keys_delete(keys, 5);
  tdict_keys *copy = tdict_keys_copy(keys);
  assert_int_equal(add(copy, "only here"), 40);
  tdict_keys_delete(copy, 6);
  assert_int_equal(find(keys, "only here"), -1);
  for (unsigned i = 0; i < 40; i++) {
    name_of(name, i);
    assert_int_equal(find(keys, name), i == 5 ? -1 : (int64_t)i);
  }
  tdict_keys_release(keys);
  for (unsigned i = 0; i < 40; i++) {
    name_of(name, i);
    assert_int_equal(find(copy, name), i == 5 || i == 6 ? -1 : (int64_t)i);
  }
  tdict_keys_release(copy);
}

/* The bytes of old names must not accumulate over many renames and deletions. */
CASE(keys_free_the_names_of_deleted_keys) {
  tdict_keys *keys = tdict_keys_create();
  uintptr_t leaves[8] = {0};
  char name[400];
  add(keys, "stays");
  add(keys, "first");
  for (unsigned i = 0; i < 20000; i++) {
    memset(name, 'a' + (int)(i % 7), sizeof name);
    const tdict_name other = tdict_name_of(name, sizeof name - i % 50);
    assert_true(tdict_keys_rename(keys, 1, &other));
    assert_true(keys->dead_bytes < 8192);
  }
  for (unsigned i = 0; i < 20000; i++) {
    int64_t slot = add_bytes(keys, "passing by", 10);
    tdict_keys_delete(keys, (uint32_t)slot);
    tdict_keys_compact(keys, leaves);
    assert_true(keys->dead_bytes < 8192);
  }
  assert_int_equal(find(keys, "stays"), 0);
  tdict_keys_release(keys);
}

CASE(keys_add_survives_enomem) {
  tdict_keys *keys = tdict_keys_create();
  char name[32];
  for (unsigned i = 0; i < 200; i++) {
    name_of(name, i);
    td_fail_alloc(0, true);
    int64_t slot = add(keys, name);
    bool refused = td_fail_alloc_stop();
    assert_int_equal(slot, refused ? -1 : (int64_t)i);
    assert_int_equal(find(keys, name), slot);
    if (refused) assert_int_equal(add(keys, name), i);
    assert_int_equal(keys->num_live, i + 1);
  }
  for (int64_t n = 0;; n++) {
    td_fail_alloc(n, false);
    tdict_keys *copy = tdict_keys_copy(keys);
    if (!td_fail_alloc_stop()) {
      assert_non_null(copy);
      tdict_keys_release(copy);
      break;
    }
    assert_null(copy);
  }
  tdict_keys_release(keys);
}

/* Adding 100,000 keys makes fewer than 200 allocations. A search then reads fewer than 3 cells on average. */
CASE(keys_cost_is_constant_per_key) {
  enum { COUNT = 100000 };
  tdict_keys *keys = tdict_keys_create();
  char name[32];
  td_fail_alloc(INT64_MAX, false);
  for (unsigned i = 0; i < COUNT; i++) {
    int n = snprintf(name, sizeof name, "leaf_%u", i);
    assert_int_equal(add_bytes(keys, name, (size_t)n), i);
  }
  td_fail_alloc_stop();
  assert_true(td_allocs_seen() < 200);
  /* Compute the probes from the index. The hash must spread names that differ only in their last digits. */
  uint64_t probes = 0;
  for (uint32_t at = 0; at < keys->cap_index; at++)
    if (keys->index[at])
      probes += 1 + ((at - keys->slots[(keys->index[at] & (keys->cap_index - 1)) - 1].hash) & (keys->cap_index - 1));
  assert_true(probes < 3 * COUNT);
  tdict_keys_release(keys);
}

/* Returns the average number of cells that a search for an existing key reads in an index of `count` names. */
static double probes_of(const char *format, unsigned count) {
  tdict_keys *keys = tdict_keys_create();
  char name[80];
  for (unsigned i = 0; i < count; i++) {
    int n = snprintf(name, sizeof name, format, i);
    assert_true(tdict_keys_find(keys, name, (size_t)n) < 0);
    assert_int_equal(add_bytes(keys, name, (size_t)n), i);
  }
  const uint32_t mask = keys->cap_index - 1;
  uint64_t probes = 0;
  for (uint32_t at = 0; at <= mask; at++)
    if (keys->index[at]) probes += 1 + ((at - keys->slots[(keys->index[at] & mask) - 1].hash) & mask);
  tdict_keys_release(keys);
  return (double)probes / count;
}

/* Similar names must spread like random names, for which a search in a half-full index reads 1.5 cells on average. */
CASE(keys_hash_spreads_similar_names) {
  static const char *const formats[] = {"%u",
                                        "%x",
                                        "k%u",
                                        "leaf_%u",
                                        "layer.%u",
                                        "x%07u",
                                        "abcdefgh%u",
                                        "param_%u_weight",
                                        "%u________",
                                        "%08x_abc",
                                        "one.two/%u/3",
                                        "some/very/long/module/name/%u/weight",
                                        "seventeen_bytes_%u"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    for (unsigned count = 1000; count <= 50000; count *= 7) assert_true(probes_of(formats[i], count) < 1.7);
}

/* tdict_name_read() reads whole words. It must return what a byte loop returns, and must not read past the end. */
CASE(name_read_matches_a_byte_loop) {
  for (size_t length = 1; length <= 40; length++) {
    scoped_chars text = malloc(length); /* the exact size, so that a sanitizer reports reads past the end */
    for (size_t stop = 0; stop <= length; stop++)
      for (int with = 0; with < 2; with++) {
        for (size_t i = 0; i < length; i++) text[i] = (char)(i % 3 == 0 ? 0xae + (int)i : 'a' + (int)(i % 26));
        if (stop < length) text[stop] = with ? '\\' : '.';
        tdict_name name;
        bool read = tdict_name_read(&name, text, text + length);
        assert_int_equal(read, stop > 0 && (stop == length || !with));
        if (!read) continue;
        assert_int_equal(name.length, stop);
        scoped_chars alone = malloc(stop);
        memcpy(alone, text, stop);
        const tdict_name same = tdict_name_of(alone, stop);
        assert_true(same.hash == name.hash && same.first == name.first && same.last == name.last);
        char copy[48];
        memset(copy, '#', sizeof copy);
        tdict_name_copy(&name, copy);
        assert_true(tdict_name_is(&name, copy) && memcmp(copy, text, stop) == 0);
        copy[stop - 1] ^= 1;
        assert_false(tdict_name_is(&name, copy));
      }
  }
}

CASE(name_join_matches_the_joined_text) {
  const char *text = "prefix.abcdefgh";
  for (size_t mark = 0; mark <= 7; mark++)
    for (size_t length = 1; length <= 8; length++) {
      char whole[16];
      memcpy(whole, text, mark);
      memcpy(whole + mark, text + 7, length);
      const tdict_name wanted = tdict_name_of(whole, mark + length);
      const tdict_name joined =
          tdict_name_join(whole, tdict_word_load_part(text, mark), mark, tdict_name_of(text + 7, length).first, length);
      assert_true(joined.hash == wanted.hash && joined.first == wanted.first && joined.last == wanted.last);
      assert_int_equal(joined.length, wanted.length);
    }
}

/* Names of any length with equal hashes are distinguished by their bytes. */
CASE(keys_with_equal_hashes_are_told_apart) {
  static const size_t lengths[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 40};
  tdict_keys *keys = tdict_keys_create();
  char text[40];
  for (size_t i = 0; i < 100; i++) { /* so many that the table has an index */
    memset(text, 'n', sizeof text);
    const size_t length = lengths[i % 10];
    text[(i / 10) % length] = (char)('a' + i / 10);
    text[length - 1] = (char)('0' + i / 10);
    tdict_name name = tdict_name_of(text, length);
    name.hash = 0x12345678u;
    assert_int_equal(tdict_keys_find_name(keys, &name), -1);
    assert_int_equal(tdict_keys_append(keys, &name), i);
    assert_int_equal(tdict_keys_find_name(keys, &name), i);
  }
  tdict_keys_release(keys);
}
