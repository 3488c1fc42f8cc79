/* Tests .npy and .npz files that the test makes byte by byte. See also tests/beside/numpy_files.py. */
#include "archive.h"
#include "files.h"

static void open_npy(const folder *f, const char *literal, const void *data, size_t bytes, tdict_tree **out) {
  unsigned char file[1024];
  write_bytes(in(f, "x.npy"), file, make_npy(file, literal, data, bytes));
  td_ok(tdict_open(in(f, "x.npy"), NULL, out, err));
}

CASE(npy_reads_both_orders_of_bytes_and_of_elements) {
  scoped_folder f = folder_create();
  const int16_t wanted[6] = {1, 2, 3, 4, 5, 0x0607};
  const unsigned char swapped[] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 6, 7};
  const unsigned char columns[] = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 6, 7};
  static const char *const literals[] = {"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }\n",
                                         "{'descr': '>i2', 'fortran_order': False, 'shape': (2, 3), }",
                                         "{'shape':(2,3,),\"fortran_order\":True,'descr':\">i2\"} "};
  const void *const data[] = {wanted, swapped, columns};
  for (int i = 0; i < 3; i++) {
    scoped_tree tree = NULL;
    open_npy(&f, literals[i], data[i], sizeof wanted, &tree);
    tdict_tensor *t = td_leaf(tree, "arr_0");
    assert_int_equal(tdict_tensor_dtype(t), TDICT_I16);
    assert_int_equal(tdict_tensor_ndim(t), 2);
    assert_true(tdict_tensor_shape(t)[0] == 2 && tdict_tensor_shape(t)[1] == 3);
    assert_memory_equal(tdict_tensor_const_data(t), wanted, sizeof wanted);
    assert_null(tdict_tensor_data(t)); /* read-only */
  }
}

/* NumPy 2.4 writes these bytes for np.arange(3, dtype='f4'). */
CASE(npy_writes_the_bytes_of_numpy) {
  scoped_folder f = folder_create();
  const float values[3] = {0, 1, 2};
  const int64_t shape = 3;
  unsigned char wanted[128 + sizeof values];
  scoped_tensor t = NULL;
  size_t count;
  memset(wanted, ' ', sizeof wanted);
  memcpy(wanted, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 67);
  wanted[127] = '\n';
  memcpy(wanted + 128, values, sizeof values);
  scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_tensor_from_array(TDICT_F32, 1, &shape, values, &t, err));
  td_ok(tdict_set(tree, "any.key", t, err));
  td_ok(tdict_save(NULL, in(&f, "x.npy"), tree, NULL, err));
  unsigned char *found = read_bytes(in(&f, "x.npy"), &count);
  assert_int_equal(count, sizeof wanted);
  assert_memory_equal(found, wanted, sizeof wanted);
  free(found);
  td_ok(tdict_set(tree, "other", t, err));
  td_fails(TDICT_ENOTSUP, "the tree has 2 tensors, but a .npy file holds one",
           tdict_save(NULL, in(&f, "x.npy"), tree, NULL, err));
}

static void refuse_npy(const folder *f, const char *literal, size_t data_bytes, tdict_status status, const char *text) {
  static const unsigned char data[64];
  unsigned char file[1024];
  tdict_tree *tree = NULL;
  write_bytes(in(f, "x.npy"), file, make_npy(file, literal, data, data_bytes));
  td_fails(status, text, tdict_open(in(f, "x.npy"), NULL, &tree, err));
  assert_null(tree);
  assert_string_equal(td_last_error.path, in(f, "x.npy"));
}

CASE(npy_refuses_broken_headers) {
  static const struct {
    const char *literal;
    size_t bytes;
    tdict_status status;
    const char *text;
  } files[] = {
      {"", 0, TDICT_EFORMAT, "at byte 10 of the file: wanted '{'"},
      {"x", 0, TDICT_EFORMAT, "wanted '{'"},
      {"{}", 0, TDICT_EFORMAT, "wanted the keys descr, fortran_order and shape"},
      {"{'descr': '<f4', 'shape': (1,)}", 4, TDICT_EFORMAT, "wanted the keys descr"},
      {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", 4, TDICT_EFORMAT, "each of the keys"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", 4, TDICT_EFORMAT, "each of the keys"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, TDICT_EFORMAT, "spaces to the end"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4, TDICT_EFORMAT, "a comma or '}'"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4, TDICT_EFORMAT, "a comma or '}'"},
      {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}", 4, TDICT_EFORMAT, "a colon"},
      {"{descr: '<f4', 'fortran_order': False, 'shape': (1,)}", 4, TDICT_EFORMAT, "a string"},
      {"{'descr': '<f\\u0034', 'fortran_order': False, 'shape': (1,)}", 4, TDICT_EFORMAT, "without escapes"},
      {"{'descr': '<f4", 4, TDICT_EFORMAT, "without escapes"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", 4, TDICT_EFORMAT, "True or False"},
      {"{'descr': '<f4', 'fortran_order': Fals", 4, TDICT_EFORMAT, "True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}", 4, TDICT_EFORMAT, "a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", 4, TDICT_EFORMAT, "a comma after the only size"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, TDICT_EFORMAT, "a size of 0 or more"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}", 4, TDICT_EFORMAT, "a comma or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", 8, TDICT_EFORMAT, "a comma or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}", 4, TDICT_EFORMAT, "a size without a leading 0"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 01L)}", 4, TDICT_EFORMAT, "a size without a leading 0"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1LL,)}", 4, TDICT_EFORMAT, "a comma or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (L,)}", 4, TDICT_EFORMAT, "a size of 0 or more"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1l,)}", 4, TDICT_EFORMAT, "a comma or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", 4, TDICT_EFORMAT, "a size of 0 or more"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", 4, TDICT_EFORMAT, "a size of 0 or more"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4, TDICT_EFORMAT, "below 2^63"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 0, TDICT_EFORMAT,
       "do not fit 63 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
       "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0)}",
       0, TDICT_EFORMAT, "at most 32 dimensions"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, TDICT_EFORMAT,
       "4 bytes follow the header, but the shape needs 8"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 12, TDICT_EFORMAT, "12 bytes follow the header"},
      {"{'descr': '', 'fortran_order': False, 'shape': (2,)}", 8, TDICT_ENOTSUP, "the type '' is not supported"},
      {"{'descr': '<', 'fortran_order': False, 'shape': (2,)}", 8, TDICT_ENOTSUP, "the type '<' is not supported"},
      {"{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}", 32, TDICT_ENOTSUP, "'<f16' is not supported"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", 8, TDICT_ENOTSUP,
       "objects of Python, which need pickle"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8, TDICT_ENOTSUP, "is a record"},
  };
  scoped_folder f = folder_create();
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    refuse_npy(&f, files[i].literal, files[i].bytes, files[i].status, files[i].text);
}

/* Python 2 on Windows wrote sizes such as 2L. NumPy reads them in versions 1 and 2 of the format. */
CASE(npy_reads_sizes_of_python_2) {
  static const struct {
    const char *shape;
    int ndim;
    int64_t sizes[3];
  } shapes[] = {{"(2L, 3L)", 2, {2, 3}}, {"(6L,)", 1, {6}}, {"(1L, 6, 1L,)", 3, {1, 6, 1}}, {"(00, 6)", 2, {0, 6}}};
  scoped_folder f = folder_create();
  unsigned char file[1024], data[24];
  td_fill_random(data, sizeof data, 7);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int version = 1; version <= 3; version++) {
      scoped_tree tree = NULL;
      const bool has_longs = strchr(shapes[i].shape, 'L') != NULL;
      const char *literal = td_text("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shapes[i].shape);
      size_t count = make_npy(file, literal, data, shapes[i].sizes[0] ? sizeof data : 0);
      if (version > 1) { /* from version 2.0 on, the length of the header has four bytes */
        memmove(file + 12, file + 10, count - 10);
        file[6] = (unsigned char)version;
        file[10] = file[11] = 0;
        count += 2;
      }
      write_bytes(in(&f, "x.npy"), file, count);
      if (version == 3 && has_longs) {
        td_fails(TDICT_EFORMAT, "a comma or ')'", tdict_open(in(&f, "x.npy"), NULL, &tree, err));
        continue;
      }
      td_ok(tdict_open(in(&f, "x.npy"), NULL, &tree, err));
      tdict_tensor *t = td_leaf(tree, "arr_0");
      assert_int_equal(tdict_tensor_ndim(t), shapes[i].ndim);
      for (int d = 0; d < shapes[i].ndim; d++) assert_int_equal(tdict_tensor_shape(t)[d], shapes[i].sizes[d]);
      scoped_bytes elements = elements_of(t);
      assert_memory_equal(elements, data, tdict_tensor_bytes(t));
    }
}

CASE(npy_refuses_wrong_prefixes) {
  static const struct {
    const char *bytes;
    size_t count;
    tdict_status status;
    const char *text;
  } files[] = {{"\x93NUMPY", 6, TDICT_EFORMAT, "no header of NumPy"},
               {"\x93NUMPY\x01\x00\x05", 9, TDICT_EFORMAT, "no header of NumPy"},
               {"\x93NUMPY\x01\x00\x05\x00{}", 12, TDICT_EFORMAT, "the header has 5 bytes, wanted at most 2"},
               {"\x93NUMPY\x04\x00\x02\x00{}", 12, TDICT_ENOTSUP, "version 4.0, wanted 1.0, 2.0 or 3.0"},
               {"\x93NUMPY\x01\x01\x02\x00{}", 12, TDICT_ENOTSUP, "version 1.1"},
               {"\x93NUMPY\x02\x00\x02\x00{", 11, TDICT_EFORMAT, "no header of NumPy"},
               {"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14, TDICT_EFORMAT, "the header has 4294967295 bytes"}};
  scoped_folder f = folder_create();
  tdict_tree *tree = NULL;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    write_bytes(in(&f, "x"), files[i].bytes, files[i].count);
    td_fails(files[i].status, files[i].text, tdict_open(in(&f, "x"), NULL, &tree, err));
    assert_null(tree);
  }
}

/* Makes an archive of two arrays, "a" and "n.b". */
static image two_arrays(void) {
  image m = {.count = 0};
  unsigned char npy[256];
  const float a[2] = {1, 2};
  const int32_t b = 7;
  put_entry(&m, "a.npy", npy, make_npy(npy, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", a, sizeof a));
  put_entry(&m, "n.b.npy", npy, make_npy(npy, "{'descr': '<i4', 'fortran_order': False, 'shape': ()}", &b, sizeof b));
  put_directory(&m);
  return m;
}

CASE(npz_opens_archives) {
  scoped_folder f = folder_create();
  image m = two_arrays();
  tdict_tensor *t = NULL;
  write_bytes(in(&f, "x"), m.bytes, m.count);
  scoped_tree tree = td_made(tree, tdict_open(in(&f, "x"), NULL, &made, err));
  assert_int_equal(tdict_num_keys(tree), 2);
  td_ok(tdict_get(tree, "n.b", &t, err));
  assert_int_equal(*(const int32_t *)tdict_tensor_const_data(t), 7);
  tdict_release(tree);
  td_ok(tdict_open(in(&f, "x"), td_options(tdict_open_options, flat = true), &tree, err));
  assert_true(tdict_has(tree, "n\\.b") && tdict_has(tree, "a"));
}

CASE(npz_round_trip) {
  static const tdict_dtype dtypes[] = {TDICT_BOOL, TDICT_U8,  TDICT_I8,  TDICT_I16, TDICT_U16, TDICT_F16, TDICT_I32,
                                       TDICT_U32,  TDICT_F32, TDICT_C64, TDICT_F64, TDICT_I64, TDICT_U64, TDICT_C128};
  scoped_folder f = folder_create();
  dice d = {191};
  for (int round = 0; round < 20; round++) {
    scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err)), back = NULL;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
      const int64_t batch = (int64_t)roll(&d, 4);
      scoped_tensor t = random_tensor(&d, dtypes[i], (int)roll(&d, 2), &batch);
      td_ok(tdict_set(tree, td_text("%s%zu", i % 3 ? "n.é" : "back\\\\", i), t, err));
    }
    td_ok(tdict_save(NULL, in(&f, "x.npz"), tree, NULL, err));
    td_ok(tdict_open(in(&f, "x.npz"), NULL, &back, err));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
      tdict_tensor *x = NULL;
      const char *path = td_text("%s%zu", i % 3 ? "n.é" : "back\\\\", i);
      td_ok(tdict_get(tree, path, &x, err));
      same_tensors(x, td_made(tensor, tdict_get(back, path, &made, err)));
    }
  }
}

CASE(npz_refuses_what_numpy_cannot_hold) {
  scoped_folder f = folder_create();
  const float one = 1;
  scoped_tree tree = NULL, child = NULL;
  scoped_tensor t = NULL;
  td_ok(tdict_create(0, NULL, &tree, err));
  td_ok(tdict_create(0, NULL, &child, err));
  td_ok(tdict_tensor_from_array(TDICT_F32, 0, NULL, &one, &t, err));
  td_ok(tdict_set(tree, "a.b", t, err));
  td_ok(tdict_set(tree, "a\\.b", t, err));
  td_fails(TDICT_EEXIST, "two tensors have the name 'a.b'", tdict_save(NULL, in(&f, "x.npz"), tree, NULL, err));
  td_ok(tdict_delete(tree, "a\\.b", err));
  td_ok(tdict_set_tree(tree, "empty", child, err));
  td_fails_at(TDICT_ENOTSUP, "hold no empty tree", "empty", tdict_save(NULL, in(&f, "x.npz"), tree, NULL, err));
  td_ok(tdict_delete(tree, "empty", err));
  td_ok(tdict_set_text(tree, "words", "text", err));
  td_fails(TDICT_ENOTSUP, "hold tensors only", tdict_save(NULL, in(&f, "x.npz"), tree, NULL, err));
  td_ok(tdict_delete(tree, "words", err));
  tdict_tensor_release(t);
  td_ok(tdict_tensor_empty(TDICT_BF16, 0, NULL, NULL, &t, err));
  td_ok(tdict_set(tree, "half", t, err));
  td_fails(TDICT_ENOTSUP, "NumPy has no dtype for bf", tdict_save(NULL, in(&f, "x.npz"), tree, NULL, err));
  assert_int_equal(folder_count(&f, NULL), 0);
}

static void refuse_archive(const folder *f, const image *m, tdict_status status, const char *text) {
  tdict_tree *tree = NULL;
  write_bytes(in(f, "x.npz"), m->bytes, m->count);
  td_fails(status, text, tdict_open(in(f, "x.npz"), NULL, &tree, err));
  assert_null(tree);
  assert_string_equal(td_last_error.path, in(f, "x.npz"));
}

CASE(zip_refuses_broken_archives) {
  enum { LOCAL, CENTRAL, END };
  static const struct {
    int part, entry;
    size_t at;
    uint64_t value;
    int bytes;
    tdict_status status;
    const char *text;
  } changes[] = {
      {END, 0, 0, 0, 4, TDICT_EFORMAT, "no end of central directory"},
      {END, 0, 4, 1, 2, TDICT_ENOTSUP, "a part of a larger archive"},
      {END, 0, 8, 0x10001, 4, TDICT_EFORMAT, "bytes after the last entry"},
      {END, 0, 8, 0x70007, 4, TDICT_EFORMAT, "more entries than the directory can hold"},
      {END, 0, 10, 0xffff, 2, TDICT_EFORMAT, "no zip64 end of central directory"},
      {END, 0, 12, 5, 4, TDICT_EFORMAT, "does not end where the end record begins"},
      {END, 0, 12, 0xfffffffe, 4, TDICT_EFORMAT, "does not end where the end record begins"},
      {END, 0, 16, 0xfffffffe, 4, TDICT_EFORMAT, "does not end where the end record begins"},
      {END, 0, 20, 9, 2, TDICT_EFORMAT, "no end of central directory"},
      {CENTRAL, 0, 0, 0, 4, TDICT_EFORMAT, "shorter than its number of entries"},
      {CENTRAL, 1, 28, 0xffff, 2, TDICT_EFORMAT, "reaches beyond the central directory"},
      {CENTRAL, 0, 8, 1, 2, TDICT_ENOTSUP, "entry 'a.npy': the entry is encrypted"},
      {CENTRAL, 0, 10, 9, 2, TDICT_EFORMAT, "its header differs from the central directory"},
      {CENTRAL, 0, 20, 1, 4, TDICT_EFORMAT, "its two sizes differ"},
      {CENTRAL, 0, 20, 0xffffffff, 4, TDICT_EFORMAT, "no zip64 sizes"},
      {CENTRAL, 0, 28, 0, 2, TDICT_EFORMAT, "an empty name"},
      {CENTRAL, 0, 42, 0xfffffffe, 4, TDICT_EFORMAT, "no header"},
      {CENTRAL, 0, 42, 1, 4, TDICT_EFORMAT, "its header differs"},
      {CENTRAL, 0, 46, 0, 1, TDICT_EFORMAT, "a 0 byte in its name"},
      {CENTRAL, 0, 46, 0xe9, 1, TDICT_EFORMAT, "is not UTF-8"},
      {CENTRAL, 0, 46, 'b', 1, TDICT_EFORMAT, "its header has another name"},
      {LOCAL, 1, 0, 0, 4, TDICT_EFORMAT, "its header differs"},
      {LOCAL, 0, 26, 4, 2, TDICT_EFORMAT, "its header differs"},
      {LOCAL, 0, 28, 0xffff, 2, TDICT_EFORMAT, "end after the start of the central directory"},
      {LOCAL, 0, 28, 100, 2, TDICT_EFORMAT, "overlap"},
      {LOCAL, 0, 30, 'b', 1, TDICT_EFORMAT, "its header has another name"},
  };
  scoped_folder f = folder_create();
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    image m = two_arrays();
    const size_t *parts = changes[i].part == LOCAL ? m.local : m.central;
    set(&m, (changes[i].part == END ? m.end : parts[changes[i].entry]) + changes[i].at, changes[i].value,
        changes[i].bytes);

    refuse_archive(&f, &m, changes[i].status, changes[i].text);
  }
}

CASE(zip_refuses_other_archives) {
  scoped_folder f = folder_create();
  image m = two_arrays(), same = {.count = 0}, text = {.count = 0};
  set(&m, m.local[0] + 8, 8, 2);
  set(&m, m.central[0] + 10, 8, 2);
  refuse_archive(&f, &m, TDICT_ENOTSUP, "compressed with deflate (method 8)");
  set(&m, m.local[0] + 8, 77, 2);
  set(&m, m.central[0] + 10, 77, 2);
  refuse_archive(&f, &m, TDICT_ENOTSUP, "compressed with an unknown method (method 77)");
  put_entry(&same, "a.npy", "", 0);
  put_entry(&same, "a.npy", "", 0);
  put_directory(&same);
  refuse_archive(&f, &same, TDICT_EFORMAT, "entry 'a.npy': two entries have this name");
  put_entry(&text, "readme.txt", "", 0);
  put_directory(&text);
  refuse_archive(&f, &text, TDICT_EFORMAT, "is not an array: its name does not end with .npy");
  m = two_arrays();
  m.count--;
  refuse_archive(&f, &m, TDICT_EFORMAT, "no end of central directory");
  m = two_arrays();
  memmove(m.bytes + m.directory + 1, m.bytes + m.directory, m.count++ - m.directory); /* a byte before the directory */
  refuse_archive(&f, &m, TDICT_EFORMAT, "does not end where the end record begins");
}
