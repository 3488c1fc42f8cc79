/* Sorts the members of JSON objects. See table.h for ownership and threads. */
#include "services/io/json/table.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "services/io/json/string.h"

static int compare_members(const void *a, const void *b) {
  const tdict_json_member *x = a, *y = b;
  return tdict_json_string_compare(tdict_json_start(x->key), tdict_json_start(y->key));
}

tdict_status tdict_json_table_make(tdict_json value, tdict_json_table *out) {
  const size_t most = tdict_json_count(value);
  tdict_json_cursor cursor = tdict_json_enter(value);
  tdict_json_table made = {0};
  tdict_json_member member;
  size_t bytes;
  if (!tdict_mul_size(most + 1, sizeof member, &bytes)) return TDICT_ENOMEM;
  made.members = malloc(bytes);
  if (!made.members) return TDICT_ENOMEM;
  while (tdict_json_next(&cursor, &member.key, &member.value)) {
    if (!tdict_json_exists(member.key)) member.key = member.value;
    if (tdict_json_is(member.key, TDICT_JSON_STRING)) made.members[made.count++] = member;
  }
  qsort(made.members, made.count, sizeof member, compare_members);
  *out = made;
  return TDICT_OK;
}

static int compare_key(const void *key, const void *member) {
  return -tdict_json_string_compare_text(tdict_json_start(((const tdict_json_member *)member)->key), key);
}

tdict_json tdict_json_table_find(const tdict_json_table *table, const char *key) {
  const tdict_json_member *found =
      table->count ? bsearch(key, table->members, table->count, sizeof *found, compare_key) : NULL;
  return found ? found->value : (tdict_json){0};
}
