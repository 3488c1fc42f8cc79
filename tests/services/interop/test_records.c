/* Tests trees over arrays of structs. The tests write and read the members with plain code. */

#include "core/tensor/tensor.h"
#include "support/test.h"

typedef struct particle {
  char tag;
  float pos[3];
  struct {
    double mass;
    int16_t charge;
  } state;
  uint8_t cells[2][3];
  bool alive;
  int64_t id;
} particle;

enum { COUNT = 257, FIELDS = 7 };

static const tdict_record_field fields[FIELDS] = {
    TDICT_RECORD_FIELD(particle, tag, "tag", TDICT_I8),
    TDICT_RECORD_FIELD(particle, pos, "geo.pos", TDICT_F32, 3),
    TDICT_RECORD_FIELD(particle, state.mass, "state.mass", TDICT_F64),
    TDICT_RECORD_FIELD(particle, state.charge, "state.charge", TDICT_I16),
    TDICT_RECORD_FIELD(particle, cells, "cells", TDICT_U8, 2, 3),
    TDICT_RECORD_FIELD(particle, alive, "alive", TDICT_BOOL),
    TDICT_RECORD_FIELD(particle, id, "id", TDICT_I64),
};

static tdict_records records_of(void *data, int64_t count) {
  return td_with(tdict_records, data = data, num_records = count, record_bytes = sizeof(particle), fields = fields,
                 num_fields = FIELDS);
}

/* Returns random records. The padding is random, too. */
static particle *random_records(size_t count, uint64_t seed) {
  particle *p = td_alloc(count * sizeof *p + 1);
  td_fill_random(p, count * sizeof *p, seed);
  for (size_t i = 0; i < count; i++) {
    unsigned char bit = (unsigned char)(((unsigned char *)&p[i])[0] & 1);
    memcpy(&p[i].alive, &bit, 1);
  }
  return p;
}

static tdict_tree *view_of(const tdict_records *r) {
  return td_made(tree, tdict_records_view(r, NULL, NULL, &made, err));
}

static const void *member_of(const particle *p, int field) {
  const void *const members[FIELDS] = {&p->tag, p->pos, &p->state.mass, &p->state.charge, p->cells, &p->alive, &p->id};
  return members[field];
}
static const size_t member_bytes[FIELDS] = {1, 12, 8, 2, 6, 1, 8};

/* Checks that the tensors of a host tree are contiguous and hold the members. */
static void check_dense(const tdict_tree *td, const particle *p, size_t count) {
  for (int f = 0; f < FIELDS; f++) {
    const char *at = tdict_const_data(td, fields[f].path);
    tdict_tensor *t = td_made(tensor, tdict_get(td, fields[f].path, &made, err));
    assert_true(tdict_tensor_is_contiguous(t));
    assert_int_equal(tdict_tensor_bytes(t), count * member_bytes[f]);
    for (size_t i = 0; i < count; i++)
      assert_memory_equal(at + i * member_bytes[f], member_of(&p[i], f), member_bytes[f]);
  }
}

static void copy_members(particle *dst, const particle *src, size_t count) {
  for (size_t i = 0; i < count; i++)
    for (int f = 0; f < FIELDS; f++)
      memcpy((void *)(uintptr_t)member_of(&dst[i], f), member_of(&src[i], f), member_bytes[f]);
}

CASE(records_view_shares_members) {
  TD_FREED particle *p = random_records(COUNT, 1);
  tdict_records r = records_of(p, COUNT);
  scoped_tree td = view_of(&r), dense = NULL;
  tdict_tensor *first = NULL;
  assert_int_equal(tdict_batch_ndim(td), 1);
  assert_int_equal(tdict_batch_size(td)[0], COUNT);
  td_ok(tdict_get(td, "tag", &first, err));
  for (int f = 0; f < FIELDS; f++) {
    tdict_tensor *t = td_made(tensor, tdict_get(td, fields[f].path, &made, err));
    assert_ptr_equal(tdict_tensor_const_data(t), member_of(p, f));
    assert_int_equal(tdict_tensor_dtype(t), fields[f].dtype);
    assert_int_equal(tdict_tensor_ndim(t), 1 + fields[f].ndim);
    assert_int_equal(tdict_tensor_strides(t)[0] * (int64_t)tdict_dtype_bytes(fields[f].dtype), sizeof(particle));
    for (int i = 0; i < fields[f].ndim; i++) assert_int_equal(tdict_tensor_shape(t)[1 + i], fields[f].shape[i]);
    assert_true(tdict_tensor_shares_storage(t, first));
  }
  td_ok(tdict_clone_deep(td, NULL, &dense, err));
  check_dense(dense, p, COUNT);
  /* A write to a tensor writes the member, and nothing else. */
  TD_FREED particle *before = malloc(COUNT * sizeof *p);
  memcpy(before, p, COUNT * sizeof *p);
  td_ok(tdict_fill(td, "state.charge", -7, NULL, err));
  for (size_t i = 0; i < COUNT; i++) before[i].state.charge = -7;
  assert_memory_equal(before, p, COUNT * sizeof *p);
}

CASE(records_view_reshapes) {
  TD_FREED particle *p = random_records(12, 2);
  tdict_records r = records_of(p, 12);
  scoped_tree td = view_of(&r), grid = NULL;
  tdict_tensor *t = NULL;
  td_ok(tdict_reshape(td, TDICT_SHAPE(3, 4), &grid, err));
  td_ok(tdict_get(grid, "geo.pos", &t, err));
  assert_ptr_equal(tdict_tensor_const_data(t), p->pos);
  assert_int_equal(tdict_tensor_ndim(t), 3);
  assert_int_equal(tdict_tensor_strides(t)[0] * 4, 4 * sizeof(particle));
}

static void count_release(void *user) { ++*(int *)user; }

CASE(records_view_releases_once) {
  TD_FREED particle *p = random_records(3, 3);
  tdict_records r = records_of(p, 3);
  tdict_tree *td = NULL;
  tdict_tensor *t = NULL;
  int released = 0;
  td_ok(tdict_records_view(&r, count_release, &released, &td, err));
  td_ok(tdict_get(td, "id", &t, err));
  tdict_tensor_retain(t);
  tdict_release(td);
  assert_int_equal(released, 0);
  assert_memory_equal(tdict_tensor_const_data(t), &p->id, 8);
  tdict_tensor_release(t);
  assert_int_equal(released, 1);
  r.fields = NULL;
  td_fails(TDICT_EINVAL, "fields is NULL", tdict_records_view(&r, count_release, &released, &td, err));
  assert_int_equal(released, 1);
}

CASE(records_view_of_none) {
  tdict_records r = records_of(NULL, 0);
  int released = 0;
  tdict_tree *td = td_made(tree, tdict_records_view(&r, count_release, &released, &made, err));
  assert_int_equal(tdict_num_leaves(td), FIELDS);
  assert_int_equal(tdict_bytes(td), 0);
  td_ok(tdict_records_write(&r, td, err));
  tdict_release(td);
  assert_int_equal(released, 1);
}

CASE(records_view_read_only) {
  TD_FREED particle *p = random_records(3, 4), *before = random_records(3, 4);
  tdict_records r = records_of(p, 3);
  r.flags = TDICT_DESC_READ_ONLY | TDICT_DESC_PINNED;
  scoped_tree td = view_of(&r), zeros = NULL;
  tdict_tensor *t = NULL;
  assert_null(tdict_data(td, "id"));
  assert_ptr_equal(tdict_const_data(td, "id"), &p->id);
  td_ok(tdict_get(td, "id", &t, err));
  assert_true(tdict_tensor_is_pinned(t));
  td_ok(tdict_clone_deep(td, NULL, &zeros, err));
  td_ok(tdict_fill(zeros, NULL, 0, NULL, err));
  td_fails_at(TDICT_EREADONLY, "read-only", "tag", tdict_records_write(&r, zeros, err));
  assert_memory_equal(p, before, 3 * sizeof *p);
}

/* Checks that tdict_records_view() and tdict_records_write() fail because of one wrong field. */
static void field_fails(tdict_status wanted, const char *text, tdict_record_field field, size_t record_bytes) {
  static char bytes[256];
  tdict_record_field table[2] = {{"good", 0, 0, TDICT_U8, 0, {0}}, field};
  scoped_tree td = NULL, any = NULL;
  tdict_records r = td_with(tdict_records, data = bytes, num_records = 2, record_bytes = record_bytes, fields = table,
                            num_fields = 2);
  td_ok(tdict_create(0, NULL, &any, err));
  td_fails(wanted, text, tdict_records_view(&r, NULL, NULL, &td, err));
  assert_null(td);
  if (field.path) assert_string_equal(td_last_error.path, field.path);
  td_fails(wanted, text, tdict_records_write(&r, any, err));
}

CASE(records_refuse_fields) {
  field_fails(TDICT_ENOTSUP, "the record has 24 bytes, wanted a multiple of the 16 bytes of complex128; add 8 bytes",
              (tdict_record_field){"z", 0, 16, TDICT_C128, 0, {0}}, 24);
  field_fails(TDICT_ENOTSUP, "the record has 7 bytes, wanted a multiple of the 4 bytes of float32; add 1 bytes",
              (tdict_record_field){"x", 1, 4, TDICT_F32, 0, {0}}, 7);
  field_fails(TDICT_ESHAPE, "the member has 12 bytes, but float32 with these sizes has 16",
              (tdict_record_field){"x", 0, 12, TDICT_F32, 1, {4}}, 32);
  field_fails(TDICT_ESHAPE, "8 bytes at offset 4 reach outside the record of 8 bytes",
              (tdict_record_field){"x", 4, 0, TDICT_F64, 0, {0}}, 8);
  field_fails(TDICT_ESHAPE, "reach outside", (tdict_record_field){"x", (size_t)-4, 4, TDICT_F32, 0, {0}}, 8);
  field_fails(TDICT_ESHAPE, "reach outside", (tdict_record_field){"x", SIZE_MAX, 0, TDICT_U8, 0, {0}}, 8);
  field_fails(TDICT_ESHAPE, "reach outside", (tdict_record_field){"x", 0, 0, TDICT_U8, 1, {9}}, 8);
  field_fails(TDICT_EDTYPE, "", (tdict_record_field){"x", 0, 0, 12345, 0, {0}}, 8);
  field_fails(TDICT_EINVAL, "7 dimensions, wanted 0 to 6", (tdict_record_field){"x", 0, 0, TDICT_U8, 7, {1}}, 8);
  field_fails(TDICT_EINVAL, "dimensions", (tdict_record_field){"x", 0, 0, TDICT_U8, -1, {0}}, 8);
  field_fails(TDICT_EINVAL, "wanted 0 from shape[ndim] on", (tdict_record_field){"x", 0, 0, TDICT_U8, 0, {3}}, 8);
  field_fails(TDICT_EINVAL, "", (tdict_record_field){"x", 0, 0, TDICT_U8, 1, {-3}}, 8);
  field_fails(TDICT_EINVAL, "path is NULL", (tdict_record_field){NULL, 0, 0, TDICT_U8, 0, {0}}, 8);
  field_fails(TDICT_EINVAL, "", (tdict_record_field){"a..b", 0, 0, TDICT_U8, 0, {0}}, 8);
  field_fails(TDICT_EEXIST, "two fields", (tdict_record_field){"good", 1, 0, TDICT_U8, 0, {0}}, 8);
  field_fails(TDICT_ETYPE, "", (tdict_record_field){"good.x", 1, 0, TDICT_U8, 0, {0}}, 8);
  field_fails(TDICT_EOVERFLOW, "", (tdict_record_field){"x", 0, 0, TDICT_F64, 2, {INT64_MAX / 8, 3}}, 8);
}

CASE(records_refuse_arrays) {
  particle p[2];
  tdict_tree *td = NULL;
  tdict_records r = records_of(p, 2);
  td_fails(TDICT_EINVAL, "records is NULL", tdict_records_view(NULL, NULL, NULL, &td, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_records_view(&r, NULL, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_records_write(&r, NULL, err));
  r.num_records = -1;
  td_fails(TDICT_EINVAL, "-1 records", tdict_records_view(&r, NULL, NULL, &td, err));
  r = records_of(p, 2);
  r.record_bytes = 0;
  td_fails(TDICT_EINVAL, "of 0 bytes", tdict_records_view(&r, NULL, NULL, &td, err));
  r = records_of(p, 2);
  r.num_fields = 0;
  td_fails(TDICT_EINVAL, "there are no fields", tdict_records_view(&r, NULL, NULL, &td, err));
  r = records_of(NULL, 2);
  td_fails(TDICT_EINVAL, "data is NULL", tdict_records_view(&r, NULL, NULL, &td, err));
  r = records_of(p, 2);
  r.flags = 8;
  td_fails(TDICT_EINVAL, "flags are 0x8", tdict_records_view(&r, NULL, NULL, &td, err));
  r = records_of(p, INT64_MAX);
  td_fails(TDICT_EOVERFLOW, "do not fit", tdict_records_view(&r, NULL, NULL, &td, err));
  r = records_of((void *)(UINTPTR_MAX - 64), 2);
  td_fails(TDICT_EOVERFLOW, "do not fit", tdict_records_view(&r, NULL, NULL, &td, err));
  r = records_of(p, 2);
  r.struct_size = 3;
  td_fails(TDICT_EINVAL, "", tdict_records_view(&r, NULL, NULL, &td, err));
  struct {
    tdict_records known;
    int64_t unknown;
  } later = {records_of(p, 2), 1};
  later.known.struct_size = sizeof later;
  td_fails(TDICT_ENOTSUP, "", tdict_records_view(&later.known, NULL, NULL, &td, err));
  assert_null(td);
}

CASE(records_write_scatters) {
  for (size_t count = 1; count < 20; count += 6) {
    TD_FREED particle *from = random_records(count, 10 + count), *to = random_records(count, 40 + count);
    TD_FREED particle *wanted = random_records(count, 40 + count);
    tdict_records r = records_of(from, (int64_t)count);
    scoped_tree td = view_of(&r), dense = NULL;
    td_ok(tdict_clone_deep(td, NULL, &dense, err));
    scoped_tensor extra = td_made(tensor, tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE((int64_t)count), NULL, &made, err));
    td_ok(tdict_set(dense, "extra", extra, err)); /* ignored */
    copy_members(wanted, from, count);
    r.data = to;
    td_ok(tdict_records_write(&r, dense, err));
    assert_memory_equal(to, wanted, count * sizeof *to); /* the padding has not changed */
    /* Writes from another array of records, and from the same array. */
    td_fill_random(to, count * sizeof *to, 99);
    memcpy(wanted, to, count * sizeof *to);
    copy_members(wanted, from, count);
    td_ok(tdict_records_write(&r, td, err));
    assert_memory_equal(to, wanted, count * sizeof *to);
    r.data = from;
    memcpy(wanted, from, count * sizeof *to);
    td_ok(tdict_records_write(&r, td, err));
    assert_memory_equal(from, wanted, count * sizeof *to);
  }
}

/* Replaces the last field of a good tree with a wrong one. The call must then write nothing. */
CASE(records_write_checks_first) {
  TD_FREED particle *p = random_records(5, 20), *before = random_records(5, 20);
  tdict_records r = records_of(p, 5);
  scoped_tree td = view_of(&r), dense = NULL, child = NULL;
  tdict_tensor *t = NULL;
  td_ok(tdict_clone_deep(td, NULL, &dense, err));
  td_ok(tdict_fill(dense, NULL, 0, NULL, err));
  td_ok(tdict_delete(dense, "id", err));
  td_fails_at(TDICT_ENOTFOUND, "'id'", "id", tdict_records_write(&r, dense, err));
  td_ok(tdict_create(1, (const int64_t[]){5}, &child, err));
  td_ok(tdict_set_tree(dense, "id", child, err));
  td_fails(TDICT_ETYPE, "", tdict_records_write(&r, dense, err));
  td_put(dense, "id", td_made(tensor, tdict_tensor_zeros(TDICT_F64, TDICT_SHAPE(5), NULL, &made, err)));
  td_fails(TDICT_EDTYPE, "from float64 to int64", tdict_records_write(&r, dense, err));
  td_put(dense, "id", td_made(tensor, tdict_tensor_zeros(TDICT_I64, TDICT_SHAPE(5, 1), NULL, &made, err)));
  td_fails_at(TDICT_ESHAPE, "", "id", tdict_records_write(&r, dense, err));
  td_ok(tdict_tensor_zeros(TDICT_I64, TDICT_SHAPE(5), NULL, &t, err));
  td_ok(tdict_set(dense, "id", t, err));
  tdict_tensor_lose(t); /* as after a failed transfer into the tensor */
  tdict_tensor_release(t);
  td_fails(TDICT_EINVAL, "", tdict_records_write(&r, dense, err));
  r.num_records = 4;
  td_fails(TDICT_ESHAPE, "", tdict_records_write(&r, dense, err));
  assert_memory_equal(p, before, 5 * sizeof *p);
}

CASE(records_overlap) {
  union word {
    uint32_t whole;
    uint16_t halves[2];
  } words[3] = {{1}, {2}, {3}};
  const tdict_record_field table[2] = {TDICT_RECORD_FIELD(union word, whole, "whole", TDICT_U32),
                                       TDICT_RECORD_FIELD(union word, halves, "halves", TDICT_U16, 2)};
  tdict_records r = {sizeof r, words, 3, sizeof *words, table, 2, 0};
  scoped_tree td = view_of(&r), dense = NULL;
  words[1].whole = 0x00070005;
  td_ok(tdict_clone_deep(td, NULL, &dense, err));
  assert_int_equal(((const uint32_t *)tdict_const_data(dense, "whole"))[1], 0x00070005);
  assert_int_equal(((const uint16_t *)tdict_const_data(dense, "halves"))[2], 5);
  assert_int_equal(((const uint16_t *)tdict_const_data(dense, "halves"))[3], 7);
  td_ok(tdict_fill(dense, "whole", 9, NULL, err));
  td_ok(tdict_fill(dense, "halves", 2, NULL, err));
  td_ok(tdict_records_write(&r, dense, err));
  for (int i = 0; i < 3; i++) assert_int_equal(words[i].whole, 0x00020002); /* the last field wins */
}

#pragma pack(push, 1)
typedef struct packed {
  uint8_t a;
  float x;
  uint8_t b[3];
} packed;
#pragma pack(pop)

CASE(records_packed) {
  packed p[4], before[4];
  const tdict_record_field table[3] = {TDICT_RECORD_FIELD(packed, a, "a", TDICT_U8),
                                       TDICT_RECORD_FIELD(packed, x, "x", TDICT_F32),
                                       TDICT_RECORD_FIELD(packed, b, "b", TDICT_U8, 3)};
  tdict_records r = {sizeof r, p, 4, sizeof *p, table, 3, 0};
  td_fill_random(p, sizeof p, 8);
  memcpy(before, p, sizeof p);
  scoped_tree td = view_of(&r), dense = td_made(tree, tdict_clone_deep(td, NULL, &made, err));
  const char *x = tdict_const_data(dense, "x");
  for (int i = 0; i < 4; i++) assert_memory_equal(x + 4 * i, (const char *)&p[i] + 1, 4);
  memset(p, 0, sizeof p);
  td_ok(tdict_records_write(&r, dense, err));
  assert_memory_equal(p, before, sizeof p);
}

/* Moves records to a device and back into a second array, whose padding must not change. */
DEVICE_CASE(records_transfer) {
  scoped_context c = td_context(NULL);
  TD_FREED particle *p = random_records(COUNT, 30), *to = random_records(COUNT, 31),
                    *wanted = random_records(COUNT, 31);
  tdict_records r = records_of(p, COUNT), r2 = records_of(to, COUNT);
  scoped_tree view = view_of(&r), view2 = view_of(&r2), moved = NULL, back = NULL;
  if (td_device().type == TDICT_DEVICE_CPU)
    td_ok(tdict_clone_deep(view, NULL, &moved, err));
  else
    td_ok(tdict_to_device(c, view, td_device(), NULL, &moved, err));
  td_ok(tdict_to_device(c, moved, tdict_cpu(), NULL, &back, err));
  check_dense(back, p, COUNT);
  td_ok(tdict_transfer_into(c, view2, moved, NULL, err));
  copy_members(wanted, p, COUNT);
  assert_memory_equal(to, wanted, COUNT * sizeof *to);
  /* Writes from pinned memory. */
  td_fill_random(to, COUNT * sizeof *to, 32);
  memcpy(wanted, to, COUNT * sizeof *to);
  copy_members(wanted, p, COUNT);
  if (td_device().type != TDICT_DEVICE_CPU) {
    memset(&td_last_error, 0, sizeof td_last_error);
    td_fails(TDICT_EWRONGDEVICE, "call tdict_to_device() with the cpu first", tdict_records_write(&r2, moved, err));
    assert_string_equal(td_last_error.path, "tag");
    scoped_tree pinned = td_made(tree, tdict_pin_memory(c, back, NULL, &made, err));
    td_ok(tdict_records_write(&r2, pinned, err));
  } else {
    td_ok(tdict_records_write(&r2, back, err));
  }
  assert_memory_equal(to, wanted, COUNT * sizeof *to);
}

CASE(records_survive_enomem) {
  TD_FREED particle *p = random_records(3, 50), *to = random_records(3, 51), *before = random_records(3, 51);
  tdict_records r = records_of(p, 3), r2 = records_of(to, 3);
  tdict_tree *td = NULL;
  int released = 0;
  TD_WITHOUT_MEMORY_THEN(tdict_records_view(&r, count_release, &released, &td, err), assert_null(td));
  assert_int_equal(released, 0);
  TD_WITHOUT_MEMORY_THEN(tdict_records_write(&r2, td, err), assert_memory_equal(to, before, 3 * sizeof *to));
  copy_members(before, p, 3);
  assert_memory_equal(to, before, 3 * sizeof *to);
  tdict_release(td);
  assert_int_equal(released, 1);
}
