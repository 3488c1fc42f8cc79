/* Tests that tdict_open() refuses malformed files, and that the error names the file, the position and the reason. */
#include <errno.h>

#include "files.h"

/* Checks that a file is refused: the call returns no tree, and the error names the file. */
static void refuse(const char *path, tdict_status status, const char *text, const char *file) {
  tdict_tree *tree = NULL;
  td_fails(status, text, tdict_open(path, NULL, &tree, err));
  assert_null(tree);
  assert_string_equal(td_last_error.path, file);
}

typedef struct attack {
  const char *header; /* the header; the test adds its length and the data */
  size_t data_bytes;
  tdict_status status;
  const char *text;
} attack;

#define ONE(dtype, shape, offsets) "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const attack attacks[] = {
    /* JSON */
    {"x", 0, TDICT_EFORMAT, "the header has 1 bytes, wanted at least 2"},
    {" {}", 0, TDICT_EFORMAT, "at byte 8: 0x20, a header begins with '{'"},
    {"[]", 0, TDICT_EFORMAT, "at byte 8: 0x5b, a header begins with '{'"},
    {"{} x", 0, TDICT_EFORMAT, "not JSON at byte 11: more text after the value"},
    {"{\"x\"", 0, TDICT_EFORMAT, "not JSON at byte 12: wanted a colon"},
    {"{\"\xc3\x28\":1}", 0, TDICT_EFORMAT, "not JSON at byte 10: not UTF-8"},
    {"{\"\xed\xa0\x80\":1}", 0, TDICT_EFORMAT, "not JSON at byte 10: not UTF-8"},
    {"{\"\\ud800\":1}", 0, TDICT_EFORMAT, "a surrogate without its pair"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
     "\"\\u0061\" : {\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     0, TDICT_EFORMAT, "the header at byte 61: duplicate object key: \"\\u0061\""},
    {"{\"a\\u0000b\":{}}", 0, TDICT_EFORMAT, "the header at byte 9: a key with a 0 byte: \"a\\u0000b\""},
    {"{\"__metadata__\":{}, \"__metadata__\":{}}", 0, TDICT_EFORMAT,
     "the header at byte 28: duplicate object key: \"__metadata__\""},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"shape\":[1]}}", 1, TDICT_EFORMAT,
     "duplicate object"},
    {"{\"x\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, TDICT_EFORMAT,
     "duplicate object"},
    {"{\"x\":99999999999999999999}", 0, TDICT_EFORMAT, "too big integer"},
    /* entries */
    {"{\"x\":1}", 0, TDICT_EFORMAT, "tensor 'x': no JSON object"},
    {"{\"x\":{}}", 0, TDICT_EFORMAT, "tensor 'x': no text 'dtype'"},
    {ONE("5", "[1]", "[0,1]"), 1, TDICT_EFORMAT, "tensor 'x': no text 'dtype'"},
    {ONE("\"f32\"", "[1]", "[0,4]"), 4, TDICT_ENOTSUP, "tensor 'x': dtype f32 is unknown"},
    {ONE("\"F128\"", "[1]", "[0,16]"), 16, TDICT_ENOTSUP, "tensor 'x': dtype F128 is unknown"},
    {ONE("\"F8_E8M0\"", "[1]", "[0,1]"), 1, TDICT_ENOTSUP, "dtype F8_E8M0 is not supported by this library"},
    {ONE("\"F8_E4M3FNUZ\"", "[1]", "[0,1]"), 1, TDICT_ENOTSUP, "dtype F8_E4M3FNUZ is not supported"},
    {ONE("\"F8_E5M2FNUZ\"", "[1]", "[0,1]"), 1, TDICT_ENOTSUP, "dtype F8_E5M2FNUZ is not supported"},
    {ONE("\"F6_E2M3\"", "[4]", "[0,3]"), 3, TDICT_ENOTSUP, "dtype F6_E2M3 is not supported"},
    {ONE("\"F6_E3M2\"", "[4]", "[0,3]"), 3, TDICT_ENOTSUP, "dtype F6_E3M2 is not supported"},
    {ONE("\"F4\"", "[2]", "[0,1]"), 1, TDICT_ENOTSUP, "dtype F4 is not supported"},
    {"{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, TDICT_EFORMAT, "tensor 'x': no array 'shape'"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, TDICT_EFORMAT, "tensor 'x': no array 'data_offsets'"},
    {ONE("\"U8\"", "[1.0]", "[0,1]"), 1, TDICT_EFORMAT, "tensor 'x': shape[0] is not an integer"},
    {ONE("\"U8\"", "[1e0]", "[0,1]"), 1, TDICT_EFORMAT, "tensor 'x': shape[0] is not an integer"},
    {ONE("\"U8\"", "[true]", "[0,1]"), 1, TDICT_EFORMAT, "tensor 'x': shape[0] is not an integer"},
    {ONE("\"U8\"", "[1,\"1\"]", "[0,1]"), 1, TDICT_EFORMAT, "tensor 'x': shape[1] is not an integer"},
    {ONE("\"U8\"", "[-1,-1]", "[0,1]"), 1, TDICT_EFORMAT, "tensor 'x': shape[0] is -1, wanted 0 or more"},
    {ONE("\"U8\"", "[1]", "[0.0,1]"), 1, TDICT_EFORMAT, "tensor 'x': data_offsets[0] is not an integer"},
    {ONE("\"U8\"", "[1]", "[-1,0]"), 1, TDICT_EFORMAT, "tensor 'x': data_offsets[0] is -1, wanted 0 or more"},
    {ONE("\"U8\"", "[1]", "[1]"), 1, TDICT_EFORMAT, "data_offsets has 1 numbers, wanted 2"},
    {ONE("\"U8\"", "[1]", "[0,1,2]"), 1, TDICT_EFORMAT, "'data_offsets' has 3 numbers, wanted at most 2"},
    {ONE("\"U8\"", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", "[0,0]"), 0, TDICT_EFORMAT,
     "'shape' has 33 numbers, wanted at most 32"},
    /* sizes */
    {ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, TDICT_EFORMAT, "the bytes of the shape do not fit 63 bits"},
    {ONE("\"F64\"", "[2305843009213693952]", "[0,0]"), 0, TDICT_EFORMAT, "the bytes of the shape do not fit 63 bits"},
    {ONE("\"F64\"", "[1152921504606846976,2]", "[0,0]"), 0, TDICT_EFORMAT, "do not fit 63 bits"},
    {ONE("\"F32\"", "[2]", "[0,4]"), 4, TDICT_EFORMAT, "data_offsets are 0 to 4, but F32 of shape [2] needs 8 bytes"},
    {ONE("\"F32\"", "[]", "[0,0]"), 0, TDICT_EFORMAT, "data_offsets are 0 to 0, but F32 of shape [] needs 4 bytes"},
    {ONE("\"F32\"", "[0]", "[4,0]"), 4, TDICT_EFORMAT, "data_offsets are 4 to 0, but F32 of shape [0] needs 0 bytes"},
    {ONE("\"F32\"", "[1]", "[9223372036854775807,3]"), 4, TDICT_EFORMAT, "data_offsets are 9223372036854775807 to 3"},
    {ONE("\"U8\"", "[1]", "[0,1]"), 0, TDICT_EFORMAT, "but the file has"},
    {ONE("\"U8\"", "[1]", "[0,1]"), 2, TDICT_EFORMAT, "the tensors end at byte 62, but the file has 63 bytes"},
    {ONE("\"U8\"", "[1]", "[1,2]"), 2, TDICT_EFORMAT, "tensor 'x': begins at offset 1, wanted 0: a hole"},
    {"{}", 1, TDICT_EFORMAT, "the tensors end at byte 10, but the file has 11 bytes"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
     7, TDICT_EFORMAT, "tensor 'y': begins at offset 3, wanted 4: two tensors overlap"},
    {"{\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, TDICT_EFORMAT, "two tensors overlap"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
     9, TDICT_EFORMAT, "tensor 'y': begins at offset 5, wanted 4: a hole before the tensor"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"y\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
     4, TDICT_EFORMAT, "tensor 'y': begins at offset 2, wanted 4: two tensors overlap"},
    /* names */
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, TDICT_EFORMAT,
     "the name of a tensor is empty"},
    /* metadata */
    {"{\"__metadata__\":[]}", 0, TDICT_EFORMAT, "entry '__metadata__': no JSON object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, TDICT_EFORMAT, "entry '__metadata__': the value of 'a' is not a string"},
    {"{\"__metadata__\":{\"tensordict\":\"\\u0000\"}}", 0, TDICT_EFORMAT, "the value of 'tensordict' has a 0 byte"},
};

CASE(open_refuses_broken_headers) {
  scoped_folder f = folder_create();
  const char *path = in(&f, "x.safetensors");
  for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
    write_safetensors(path, attacks[i].header, strlen(attacks[i].header), attacks[i].data_bytes);
    refuse(path, attacks[i].status, attacks[i].text, path);
  }
}

/* Opens files whose header length does not match their size. */
CASE(open_refuses_wrong_lengths) {
  static const struct {
    unsigned char bytes[12];
    size_t count;
    tdict_status status;
    const char *text;
  } files[] = {
      {{0}, 0, TDICT_EFORMAT, "the file has 0 bytes, wanted at least 8"},
      {{2, 0, 0, 0, 0, 0, 0}, 7, TDICT_EFORMAT, "the file has 7 bytes, wanted at least 8"},
      {{0}, 8, TDICT_EFORMAT, "the header has 0 bytes, wanted at least 2"},
      {{2, 0, 0, 0, 0, 0, 0, 0, '{'}, 9, TDICT_EFORMAT, "the header has 2 bytes, but only 1 follow"},
      {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'},
       10,
       TDICT_EFORMAT,
       "the header has 18446744073709551615 bytes, but only 2 follow"},
      {{0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'}, 10, TDICT_EFORMAT, "18446744073709551608 bytes"},
      {{0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}'}, 10, TDICT_EFORMAT, "9223372036854775808 bytes, but only 2 follow"},
      {{0x80, 2, 0x63, 'a', 'b', 'c', '.', 'x', 'y', 'z'}, 10, TDICT_ENOTSUP, "the file is a pickle"},
      {{'[', 1, 0x63, 'a', 'b', 'c', '.', 'x', 'y', 'z'}, 10, TDICT_EFORMAT, "is this a safetensors file?"},
  };
  scoped_folder f = folder_create();
  const char *path = in(&f, "x");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    write_bytes(path, files[i].bytes, files[i].count);
    refuse(path, files[i].status, files[i].text, path);
  }
  const unsigned char most[8] = {1, 0xe1, 0xf5, 5}; /* 100,000,001 */
  write_bytes(path, most, sizeof most);
  assert_int_equal(truncate(path, 100000009), 0);
  refuse(path, TDICT_ENOTSUP, "the header has 100000001 bytes, wanted at most 100000000", path);
}

/* Opens headers with a million brackets, and with a name that has a million dots. */
CASE(open_refuses_deep_nesting) {
  enum { MANY = 1000000 };
  scoped_folder f = folder_create();
  const char *path = in(&f, "x");
  scoped_chars header = malloc(2 * MANY + 200);
  tdict_open_options o = tdict_open_options_default();
  memcpy(header, "{\"x\":", 5);
  memset(header + 5, '[', MANY);
  memset(header + 5 + MANY, ']', MANY);
  header[5 + 2 * MANY] = '}';
  write_safetensors(path, header, 2 * MANY + 6, 0);
  refuse(path, TDICT_EFORMAT, "not JSON at byte 524: too many levels", path);
  for (int i = 0; i < MANY; i++) memcpy(header + 2 + 2 * i, "a.", 2);
  memcpy(header, "{\"", 2);
  size_t length = 2 + 2 * MANY;
  length += (size_t)sprintf(header + length, "a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
  write_safetensors(path, header, length, 0);
  for (int flat = 0; flat < 2; flat++) {
    o.flat = flat != 0;
    scoped_tree tree = td_made(tree, tdict_open(path, &o, &made, err));
    assert_int_equal(strlen(tdict_get_entry_at(tree, 0).key), 2 * MANY + 1);
  }
}

/* In flat trees, a name may have dots anywhere, but must not be empty. */
CASE(open_refuses_empty_flat_names) {
  scoped_folder f = folder_create();
  static const char entry[] = "{\"%s\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
  static const char *const names[] = {"", "m."};
  tdict_open_options o = td_with(tdict_open_options, flat = true);
  for (int i = 0; i < 2; i++) {
    o.strip_prefix = names[i][0] ? "m" : NULL;
    tdict_tree *tree = NULL;
    const char *header = td_text(entry, names[i]);
    write_safetensors(in(&f, "x"), header, strlen(header), 0);
    td_fails(TDICT_EFORMAT, "gives an empty key", tdict_open(in(&f, "x"), &o, &tree, err));
    assert_null(tree);
    assert_string_equal(td_last_error.path, in(&f, "x"));
    o.add_prefix = "p";
    td_ok(tdict_open(in(&f, "x"), &o, &tree, err));
    assert_string_equal(tdict_get_entry_at(tree, 0).key, "p.");
    tdict_release(tree);
    o.add_prefix = NULL;
  }
}

CASE(open_refuses_other_files) {
  scoped_folder f = folder_create();
  tdict_tree *tree = NULL;
  refuse(in(&f, "none"), TDICT_EIO, "No such file", in(&f, "none"));
  assert_int_equal(td_last_error.native, ENOENT);
  refuse(f.path, TDICT_EFORMAT, "the folder has none of the files model.safetensors.index.json", f.path);
  assert_int_equal(mkfifo(in(&f, "fifo"), 0600), 0);
  refuse(in(&f, "fifo"), TDICT_EFORMAT, "is a FIFO, wanted a regular file", in(&f, "fifo"));
  refuse("/dev/null", TDICT_EFORMAT, "a character device", "/dev/null");
  td_fails(TDICT_EINVAL, "path is NULL", tdict_open(NULL, NULL, &tree, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_open("x", NULL, NULL, err));
  td_fails(TDICT_EINVAL, "open_options", tdict_open("x", td_options(tdict_open_options, struct_size = 1), &tree, err));
}

/* Without Git LFS, git checks out a small pointer file in place of the file, of a shard or of the index. */
CASE(open_names_pointers_of_git_lfs) {
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n";
  static const char index[] = "{\"weight_map\":{\"x\":\"shard\"}}", other[] = "version https://git-lf";
  static const char text[] = "open: the file is a Git LFS pointer and not the data";
  scoped_folder f = folder_create();
  write_bytes(in(&f, "shard"), pointer, sizeof pointer - 1);
  write_bytes(in(&f, "i.json"), index, sizeof index - 1);
  refuse(in(&f, "shard"), TDICT_EFORMAT, text, in(&f, "shard"));
  refuse(in(&f, "i.json"), TDICT_EFORMAT, text, in(&f, "shard"));
  write_bytes(in(&f, "i.json"), pointer, sizeof pointer - 1);
  refuse(in(&f, "i.json"), TDICT_EFORMAT, text, in(&f, "i.json"));
  write_bytes(in(&f, "shard"), other, sizeof other - 1);
  refuse(in(&f, "shard"), TDICT_EFORMAT, "is this a safetensors file?", in(&f, "shard"));
}

/* A shard that torch.save() has written is a zip file. */
CASE(open_names_shards_that_are_zip_files) {
  static const char zip[] = "PK\x03\x04\0\0\x08\x08\0\0model/data.pkl", index[] = "{\"weight_map\":{\"x\":\"shard\"}}";
  scoped_folder f = folder_create();
  write_bytes(in(&f, "i.json"), index, sizeof index - 1);
  write_bytes(in(&f, "shard"), zip, sizeof zip - 1);
  refuse(in(&f, "i.json"), TDICT_EFORMAT, "open: the file is a zip file, perhaps of torch.save()", in(&f, "shard"));
  write_bytes(in(&f, "shard"), zip, 3); /* too short for a header length, and for the magic number of a zip file */
  refuse(in(&f, "i.json"), TDICT_EFORMAT, "the file has 3 bytes", in(&f, "shard"));
}

/* A wrong value of the entry `tensordict`, in a file with the tensors a (F32 [2,3]), b (I64 [3]) and c.d. */
typedef struct entry_attack {
  const char *entry;
  tdict_status status;
  const char *text;
} entry_attack;
#define ROOT(batch, keys) "{\"version\":1,\"root\":{\"batch_size\":" batch ",\"names\":null,\"keys\":{" keys "}}}"
#define A "\"a\":{\"tensor\":\"a\"}"
#define B "\"b\":{\"tensor\":\"b\"}"
#define C "\"c\":{\"tensor\":\"c.d\"}"
static const entry_attack entries[] = {
    {"x", TDICT_EFORMAT, "the entry 'tensordict' is not JSON at byte 0: wanted a value"},
    {"[]", TDICT_EFORMAT, "the entry 'tensordict' at byte 0 is not a JSON object"},
    {"{\"version\":2,\"root\":{}}", TDICT_ENOTSUP, "has another version, wanted version 1"},
    {"{\"version\":1.0,\"root\":{}}", TDICT_ENOTSUP, "has no version, wanted version 1"},
    {"{\"root\":{}}", TDICT_ENOTSUP, "has no version"},
    {"{\"version\":1}", TDICT_EFORMAT, "key '': a level has no JSON object 'keys'"},
    {"{\"version\":1,\"root\":{\"keys\":{}}}", TDICT_EFORMAT, "key '': no array 'batch_size'"},
    {ROOT("[-1]", A), TDICT_EFORMAT, "key '': batch_size[0] is -1"},
    {ROOT("[0.5]", A), TDICT_EFORMAT, "key '': batch_size[0] is not an integer"},
    {ROOT("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", A), TDICT_EFORMAT, "'batch_size' has 17 numbers, wanted at most 16"},
    {ROOT("[]", A), TDICT_EFORMAT, "the entry 'tensordict' does not name tensor 'b'"},
    {ROOT("[2]", A "," B "," C), TDICT_ESHAPE, "key 'b'"},
    {ROOT("[]", A "," B ",\"c\":{\"tensor\":\"c\"}"), TDICT_EFORMAT, "key 'c': the file has no tensor 'c'"},
    {ROOT("[]", A "," B ",\"c\":{\"tensor\":3}"), TDICT_EFORMAT, "key 'c': 'tensor' is not a name"},
    {ROOT("[]", A "," B "," C ",\"e\":{}"), TDICT_EFORMAT, "key 'e': wanted a JSON object with one of 'tensor'"},
    {ROOT("[]", A "," B "," C ",\"e\":[]"), TDICT_EFORMAT, "key 'e': wanted a JSON object with one of"},
    {ROOT("[]", A "," B "," C ",\"e\":{\"non_tensor\":1,\"tensor\":\"a\"}"), TDICT_EFORMAT,
     "wanted a JSON object with"},
    {ROOT("[]", A "," B "," C ",\"\":{\"tensor\":\"a\"}"), TDICT_EFORMAT, "key '': an empty key"},
    {ROOT("[]", A "," B "," C ",\"e\":{\"td\":5}"), TDICT_EFORMAT, "key 'e': a level has no JSON object 'keys'"},
    {ROOT("[]", A "," B "," C "," C), TDICT_EFORMAT, "the entry 'tensordict' at byte"},
    {ROOT("[]", A "," B "," C ",\"e\":{\"non_tensor\":1,\"tdict\":\"x\"}"), TDICT_EFORMAT, "is no \"column\""},
    {ROOT("[]", A "," B "," C ",\"e\":{\"non_tensor\":[1],\"tdict\":\"column\"}"), TDICT_EFORMAT,
     "key 'e': no array 'shape'"},
    {ROOT("[]", A "," B "," C ",\"e\":{\"non_tensor\":[1],\"tdict\":\"column\",\"shape\":[2]}"), TDICT_EFORMAT,
     "key 'e': a column needs a list of values"},
    {ROOT("[]", A "," B "," C ",\"e\":{\"td\":{\"batch_size\":[3],\"keys\":{\"f\":{\"non_tensor\":[1,2],\"tdict\":"
                  "\"column\",\"shape\":[2]}}}}"),
     TDICT_ESHAPE, "key 'e.f'"},
    {ROOT("[]", A "," B "," C ",\"e\":{\"td\":{\"tdict\":\"x\",\"keys\":{}}}"), TDICT_EFORMAT, "is not a ragged leaf"},
    {ROOT("[]", A "," C ",\"e\":{\"td\":{\"tdict\":\"ragged\",\"keys\":{\"values\":{\"tensor\":\"a\"},\"offsets\":{"
                  "\"tensor\":\"b\"}}}}"),
     TDICT_EFORMAT, "key 'e': offsets"},
    {ROOT("[]", A "," B ",\"e\":{\"td\":{\"tdict\":\"ragged\",\"keys\":{\"values\":{\"tensor\":\"a\"},\"offsets\":{"
                  "\"tensor\":\"c.d\"}}}}"),
     TDICT_EFORMAT, "key 'e': offsets"},
};

CASE(open_refuses_broken_structures) {
  static const char tensors[] = "\"}, \"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                "\"b\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[24,48]},"
                                "\"c.d\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[48,49]}}";
  scoped_folder f = folder_create();
  const char *path = in(&f, "x");
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    char header[2000] = "{\"__metadata__\":{\"tensordict\":\"";
    tdict_open_options o = tdict_open_options_default();
    size_t length = strlen(header);
    for (const char *at = entries[i].entry; *at; at++) {
      if (*at == '"') header[length++] = '\\';
      header[length++] = *at;
    }
    memcpy(header + length, tensors, sizeof tensors);
    write_safetensors(path, header, strlen(header), 49);
    refuse(path, entries[i].status, entries[i].text, path);
    o.flat = true; /* a flat open does not read the entry */
    scoped_tree tree = td_made(tree, tdict_open(path, &o, &made, err));
    assert_int_equal(tdict_num_keys(tree), 3);
  }
}

/* Opens indexes that name files outside the folder, links, missing shards or missing tensors. */
CASE(open_refuses_broken_indexes) {
  static const attack indexes[] = {
      {"", 0, TDICT_EFORMAT, "the index is not JSON at byte 0"},
      {"[]", 0, TDICT_EFORMAT, "the index at byte 0 is not a JSON object"},
      {"{}", 0, TDICT_EFORMAT, "entry 'weight_map': the index has no JSON object of this name"},
      {"{\"weight_map\":[]}", 0, TDICT_EFORMAT, "entry 'weight_map': the index has no JSON object"},
      {"{\"weight_map\":{\"x\":5}}", 0, TDICT_EFORMAT, "tensor 'x': the name of the shard is not a string"},
      {"{\"weight_map\":{\"x\":\"s\",\"x\":\"s\"}}", 0, TDICT_EFORMAT,
       "the index at byte 23: duplicate object key: \"x\""},
      {"{\"weight_map\":{\"x\":\"\"}}", 0, TDICT_EFORMAT, "tensor 'x': the shard '' is not the name of a file"},
      {"{\"weight_map\":{\"x\":\"..\"}}", 0, TDICT_EFORMAT, "tensor 'x': the shard '..' is not the name of a file"},
      {"{\"weight_map\":{\"x\":\"../s\"}}", 0, TDICT_EFORMAT, "tensor 'x': the shard '../s' is not the name of a file"},
      {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", 0, TDICT_EFORMAT,
       "the shard '/etc/passwd' is not the name of a file"},
      {"{\"weight_map\":{\"y\":\"s\"}}", 0, TDICT_EFORMAT, "tensor 'y': the shard 's' does not have the tensor"},
      {"{\"weight_map\":{\"x\":\"s\"},\"metadata\":{\"tensordict\":1}}", 0, TDICT_EFORMAT,
       "'tensordict' is not a string"},
  };
  scoped_folder f = folder_create();
  const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
  char index[PATH_BYTES], shard[PATH_BYTES];
  tdict_tree *tree = NULL;
  snprintf(index, sizeof index, "%s", in(&f, "model.safetensors.index.json"));
  write_safetensors(in(&f, "s"), header, sizeof header - 1, 2);
  for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
    write_bytes(index, indexes[i].header, strlen(indexes[i].header));
    refuse(index, indexes[i].status, indexes[i].text, index);
    refuse(f.path, indexes[i].status, indexes[i].text, index);
  }
  const char missing[] = "{\"weight_map\":{\"x\":\"none\"}}", link[] = "{\"weight_map\":{\"x\":\"link\"}}";
  write_bytes(index, missing, sizeof missing - 1);
  refuse(index, TDICT_EIO, "none cannot be opened: No such file", in(&f, "none"));
  write_bytes(index, link, sizeof link - 1);
  snprintf(shard, sizeof shard, "%s", in(&f, "link"));
  assert_int_equal(symlink("s", shard), 0);
  refuse(index, TDICT_EFORMAT, "link is a symbolic link, wanted a regular file", shard);
  td_ok(tdict_open(index, td_options(tdict_open_options, follows_links = true), &tree, err));
  assert_int_equal(((const unsigned char *)tdict_const_data(tree, "x"))[1], 1);
  tdict_release(tree);
  assert_int_equal(unlink(shard), 0);
  write_safetensors(shard, header, sizeof header - 1, 3);
  refuse(index, TDICT_EFORMAT, "but the file has", shard);
}
