/* The operation that converts a tree to a different dtype. See ops.h. */
#include <string.h>

#include "tdict/convert.h"
#include "tdict/path.h"

#include "support/ops.h"

typedef struct cast {
  tdict_dtype to;
  bool floats_only, filtered;
  bool refused; /* an element does not fit */
} cast;

static bool has_odd_key(const char *path) { return strlen(path) % 2 == 1; }
static bool filter(void *user, const tdict_leaves *at) {
  (void)user;
  const char *last = at->path;
  for (const char *c = at->path; *c; c++) {
    if (*c == '.') last = c + 1;
    if (*c == '\\') c++; /* the next character belongs to the key */
  }
  return has_odd_key(last);
}

/* Converts between uint8, int16, int64 and float32. Returns false if the value does not fit. */
static bool cast_value(tdict_dtype to, tdict_dtype from, uint64_t value, uint64_t *out) {
  int64_t integer = from == TDICT_I16 ? (int16_t)value : (int64_t)value;
  float single;
  if (from == TDICT_F32) {
    const uint32_t bits = (uint32_t)value;
    memcpy(&single, &bits, sizeof single);
    if (!(single >= -0x1p63f && single < 0x1p63f)) return false;
    integer = (int64_t)single;
  }
  if (to == TDICT_F32) {
    uint32_t bits;
    single = (float)integer;
    memcpy(&bits, &single, sizeof bits);
    *out = bits;
    return true;
  }
  *out = to == TDICT_U8 ? (uint8_t)integer : to == TDICT_I16 ? (uint16_t)integer : (uint64_t)integer;
  return to == TDICT_U8 ? integer >= 0 && integer < 256 : to == TDICT_I64 || integer == (int16_t)integer;
}

static m_array *cast_array(m_array *a, const char *key, cast *c) {
  if (a->dtype == c->to || (c->floats_only && a->dtype != TDICT_F32)) return a;
  char path[2 * M_KEY];
  tdict_path_escape(key, path, sizeof path);
  if (c->filtered && !has_odd_key(path)) return a;
  m_array *made = m_array_copy(a);
  made->dtype = c->to;
  for (int64_t i = 0; i < a->n; i++) {
    uint64_t value = 0;
    c->refused = !cast_value(c->to, a->dtype, m_value(a->cells[i]), &value) || c->refused;
    m_write(made->cells[i], value);
  }
  return made;
}

static m_tree *cast_tree(const m_tree *t, cast *c) {
  m_tree *made = m_tree_like(t);
  made->locked = m_is_locked(t);
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    m_put(made, e->key, e->array ? cast_array(e->array, e->key, c) : NULL, e->tree ? cast_tree(e->tree, c) : NULL);
  }
  return made;
}

void ops_to_dtype(ops *o) {
  static const tdict_dtype dtypes[] = {TDICT_F32, TDICT_I64, TDICT_I16, TDICT_U8};
  const int s = ops_slot(o);
  cast c = {.to = dtypes[ops_pick(o, 4)], .floats_only = ops_pick(o, 4) == 0, .filtered = ops_pick(o, 2) == 0};
  tdict_dtype_options options = td_with(tdict_dtype_options, floats_only = c.floats_only);
  if (c.filtered) options.filter = filter;
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_to_dtype(o->td[s], c.to, &options, NULL, &td, o->err));
  m_tree *made = cast_tree(o->model[s], &c);
  if (ops_judge(o, status, c.refused ? TDICT_EOVERFLOW : TDICT_OK)) ops_keep(o, td, made);
}
