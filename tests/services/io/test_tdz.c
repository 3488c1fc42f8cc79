/* Tests TensorDict's archive .tdz: the golden archive, random trees, alignment, attacks, and checksums of zip files. */
#include "archive.h"
#include "directory.h"
#include "random_tree.h"

CASE(tdz_reads_an_archive_of_the_package) {
  scoped_tree tree = td_made(tree, tdict_open(golden("archive.tdz"), NULL, &made, err)), folder_tree = NULL;
  td_ok(tdict_open(golden("memmap"), NULL, &folder_tree, err));
  same_trees(tree, folder_tree);
}

CASE(tdz_returns_random_trees) {
  scoped_folder f = folder_create();
  dice d = {13};
  for (int i = 0; i < 150; i++) {
    const int64_t batch[] = {(int64_t)roll(&d, 4), (int64_t)roll(&d, 3)};
    scoped_tree back = NULL, tree = random_tree(&d, (int)roll(&d, 3), batch, 0);
    td_ok(tdict_save(NULL, in(&f, "x.tdz"), tree, NULL, err));
    td_ok(tdict_open(in(&f, "x.tdz"), NULL, &back, err));
    same_trees(back, tree);
  }
}

static uint64_t number(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

/* meta.json comes first in each folder, then files by name, then folders. Elements begin at multiples of 64 bytes. */
CASE(tdz_aligns_elements_and_orders_entries) {
  scoped_folder f = folder_create();
  static const char *const keys[] = {"b", "a-b.x", "a.z", "A", "a.y", "a.b.c"};
  static const char *const wanted[] = {"meta.json",  "A.memmap",      "b.memmap",     "a/meta.json",   "a/y.memmap",
                                       "a/z.memmap", "a/b/meta.json", "a/b/c.memmap", "a-b/meta.json", "a-b/x.memmap"};
  scoped_tree tree = NULL;
  size_t count, at = 0;
  td_ok(tdict_create(0, NULL, &tree, err));
  for (size_t i = 0; i < 6; i++) {
    scoped_tensor t = NULL;
    const float value = (float)i;
    td_ok(tdict_tensor_from_array(TDICT_F32, 0, NULL, &value, &t, err));
    td_ok(tdict_set(tree, keys[i], t, err));
  }
  td_ok(tdict_save(NULL, in(&f, "x.tdz"), tree, NULL, err));
  scoped_bytes bytes = read_bytes(in(&f, "x.tdz"), &count);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    assert_int_equal(number(bytes + at, 4), 0x04034b50);
    assert_int_equal(number(bytes + at + 8, 2), 0); /* stored */
    const size_t name = number(bytes + at + 26, 2), extra = number(bytes + at + 28, 2), data = at + 30 + name + extra;
    assert_int_equal(name, strlen(wanted[i]));
    assert_memory_equal(bytes + at + 30, wanted[i], name);
    uint64_t size = number(bytes + at + 18, 4);
    const unsigned char *block = bytes + at + 30 + name;
    for (const unsigned char *end = block + extra; block < end; block += 4 + number(block + 2, 2))
      if (number(block, 2) == 1 && size == 0xffffffff) size = number(block + 4, 8);
    assert_int_equal(number(bytes + at + 14, 4), slow_crc(bytes + data, size));
    if (strstr(wanted[i], ".memmap")) assert_int_equal(data % 64, 0);
    at = data + size;
  }
  assert_int_equal(number(bytes + at, 4), 0x02014b50);
}

/* An archive written by another zip tool may store tensor data at an unaligned offset. */
CASE(tdz_copies_elements_that_are_not_aligned) {
  scoped_folder f = folder_create();
  static const char meta[] = TD_META("\"x\":" TD_LEAF("torch.int32", "[2]") ",", "[2]");
  static const int32_t values[] = {5, -7};
  for (size_t shift = 0; shift < 4; shift++) {
    image m = {.count = 0};
    tdict_tensor *x = NULL;
    char name[] = "aaaa";
    name[shift] = 0;
    if (shift) put_entry(&m, name, "", 0);
    put_entry(&m, "meta.json", meta, sizeof meta - 1);
    put_entry(&m, "x.memmap", values, sizeof values);
    put_directory(&m);
    write_bytes(in(&f, "x"), m.bytes, m.count);
    scoped_tree tree = td_made(tree, tdict_open(in(&f, "x"), NULL, &made, err));
    td_ok(tdict_get(tree, "x", &x, err));
    assert_memory_equal(tdict_tensor_const_data(x), values, sizeof values);
  }
}

typedef struct attack {
  const char *meta;
  tdict_status status;
  const char *text;
} attack;
static const attack attacks[] = {
    {"[]", TDICT_EFORMAT, "not a JSON object"},
    {TD_META("\"x\":" TD_LEAF("torch.int32", "[3]") ",", "[]"), TDICT_EFORMAT,
     "the file has 8 bytes, but the shape needs 12"},
    {TD_META("\"y\":" TD_LEAF("torch.int32", "[2]") ",", "[]"), TDICT_EFORMAT, "the file 'y.memmap' is missing"},
    {TD_META("\"../x\":" TD_LEAF("torch.int32", "[2]") ",", "[]"), TDICT_EFORMAT, "the file '../x.memmap' is missing"},
    {TD_META("\"..\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "the file '%2E%2E/meta.json' is missing"},
    {TD_META("\"p\":{\"type\":\"NonTensorData\"},", "[]"), TDICT_ENOTSUP, "the data is in other.pickle, a pickle"},
    {TD_META("\"d\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "not JSON at byte"},
};

CASE(tdz_refuses_broken_archives) {
  scoped_folder f = folder_create();
  static const char value[] = "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorData'>\"}";
  for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
    image m = {.count = 0};
    put_entry(&m, "meta.json", attacks[i].meta, strlen(attacks[i].meta));
    put_entry(&m, "x.memmap", "12345678", 8);
    put_entry(&m, "p/meta.json", value, sizeof value - 1);
    put_entry(&m, "p/other.pickle", "\x80\x04.", 3);
    put_entry(&m, "d/meta.json", "{{", 2);
    put_directory(&m);
    write_bytes(in(&f, "x"), m.bytes, m.count);
    refuse(in(&f, "x"), attacks[i].status, attacks[i].text);
  }
  /* A compressed leaf is refused. */
  image m = {.count = 0};
  static const char meta[] = TD_META("\"x\":" TD_LEAF("torch.int32", "[2]") ",", "[2]");
  put_entry(&m, "meta.json", meta, sizeof meta - 1);
  put_entry(&m, "x.memmap", "12345678", 8);
  set(&m, m.local[1] + 8, 8, 2);
  put_directory(&m);
  write_bytes(in(&f, "x"), m.bytes, m.count);
  refuse(in(&f, "x"), TDICT_ENOTSUP, "deflate");
  /* Files of torch.save and pickles are refused. */
  m = (image){.count = 0};
  put_entry(&m, "model/data.pkl", "\x80\x02.", 3);
  put_directory(&m);
  write_bytes(in(&f, "x"), m.bytes, m.count);
  refuse(in(&f, "x"), TDICT_ENOTSUP, "the file is a zip file of torch.save, which has a pickle");
  write_bytes(in(&f, "x"), "\x80\x04\x95\x01\x00\x00\x00\x00\x00\x00\x00N.", 13);
  refuse(in(&f, "x"), TDICT_ENOTSUP, "the file is a pickle; this library does not read pickles");
}

/* Opens a file without check_crc, then opens and loads it with check_crc. `entry` is the damaged entry, or NULL. */
static void check_file(tdict_context *c, const char *path, tdict_open_options o, const char *entry) {
  tdict_tree *tree = NULL;
  char text[128] = "";
  tdict_load_options load = td_with(tdict_load_options, open = &o);
  o.check_crc = false;
  tdict_release(td_made(tree, tdict_open(path, &o, &made, err)));
  tree = NULL;
  o.check_crc = true;
  if (entry) {
    snprintf(text, sizeof text, "entry '%s': the checksum of the bytes is ", entry);
    td_fails_at(TDICT_EFORMAT, text, path, tdict_open(path, &o, &tree, err));
    td_fails(TDICT_EFORMAT, text, tdict_load(c, path, tdict_cpu(), &load, &tree, err));
    assert_null(tree);
    return;
  }
  tdict_release(td_made(tree, tdict_open(path, &o, &made, err)));
  tdict_release(td_made(tree, tdict_load(c, path, tdict_cpu(), &load, &made, err)));
}

CASE(zip_checksums_are_compared_on_demand) {
  scoped_folder f = folder_create();
  scoped_context c = td_context(NULL);
  tdict_open_options o = tdict_open_options_default();
  static const char meta[] = TD_META("\"x\":" TD_LEAF("torch.int32", "[2]") ",", "[2]");
  static const char literal[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (9,)}\n";
  static const char *const keys[] = {"a"};
  unsigned char array[128];
  const size_t array_bytes = make_npy(array, literal, "123456789", 9);
  image td = {.count = 0}, np = {.count = 0};
  put_entry(&td, "meta.json", meta, sizeof meta - 1);
  put_entry(&td, "x.memmap", "12345678", 8);
  put_entry(&td, "other/", "", 0);
  put_directory(&td);
  put_entry(&np, "a.npy", array, array_bytes);
  put_entry(&np, "n/b.npy", array, array_bytes);
  put_directory(&np);
  for (size_t i = 0; i < 8; i++) {
    image m = td;
    write_bytes(in(&f, "x"), m.bytes, m.count);
    check_file(c, in(&f, "x"), o, NULL);
    m.bytes[m.data[1] + i] ^= (unsigned char)(1 << i);
    write_bytes(in(&f, "x"), m.bytes, m.count);
    check_file(c, in(&f, "x"), o, "x.memmap");
    m = np;
    write_bytes(in(&f, "x"), m.bytes, m.count);
    check_file(c, in(&f, "x"), o, NULL);
    m.bytes[m.data[1] + array_bytes - 1 - i] ^= (unsigned char)(1 << i);
    write_bytes(in(&f, "x"), m.bytes, m.count);
    check_file(c, in(&f, "x"), o, "n/b.npy");
    o.keys = keys; /* entries that are not selected are checked, too */
    o.num_keys = 1;
    check_file(c, in(&f, "x"), o, "n/b.npy");
    o = tdict_open_options_default();
  }
  /* The checksum is wrong, but the bytes are correct. An unused compressed entry is not checked. */
  image m = td;
  set(&m, m.central[0] + 16, 1, 4);
  write_bytes(in(&f, "x"), m.bytes, m.count);
  check_file(c, in(&f, "x"), o, "meta.json");
  m = td;
  set(&m, m.local[2] + 8, 8, 2);
  set(&m, m.central[2] + 10, 8, 2);
  set(&m, m.central[2] + 16, 1, 4);
  write_bytes(in(&f, "x"), m.bytes, m.count);
  check_file(c, in(&f, "x"), o, NULL);
}

/* Damages entries that are larger than a buffer. The other formats have no checksums. */
CASE(zip_checksums_cover_large_entries) {
  enum { FLOATS = 700001 };
  scoped_directory f = folder_create();
  scoped_context c = td_context(NULL);
  dice d = {77};
  static const char *const names[] = {"x.npz", "x.tdz", "x.safetensors", "x.npy", "x/"};
  static const char *const entries[] = {"x.npy", "x.memmap", NULL, NULL, NULL};
  const int64_t shape[] = {FLOATS};
  scoped_tensor t = random_tensor(&d, TDICT_F32, 1, shape);
  scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_set(tree, "x", t, err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = in(&f, names[i]);
    size_t count;
    td_ok(tdict_save(NULL, path, tree, NULL, err));
    check_file(c, path, tdict_open_options_default(), NULL);
    if (i == 4) continue;
    unsigned char *bytes = read_bytes(path, &count);
    bytes[count / 2 + roll(&d, (uint32_t)count / 3)] ^= 4; /* not in a header */
    write_bytes(path, bytes, count);
    free(bytes);
    check_file(c, path, tdict_open_options_default(), entries[i]);
  }
}
