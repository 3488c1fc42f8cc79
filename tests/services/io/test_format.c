/* Tests how tdict_open() detects the format of a file: from its start or, if this is not conclusive, from its end. */
#include "directory.h"
#include "random_tree.h"

static tdict_tree *tree_of_bytes(const char *key, const void *bytes, size_t count) {
  scoped_tensor t = NULL;
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_tensor_from_array(TDICT_U8, TDICT_SHAPE((int64_t)count), bytes, &t, err));
  td_ok(tdict_set(tree, key, t, err));
  return tree;
}

/* Saves a tree, and checks that tdict_open() returns an equal tree. */
static void check_round_trip(const char *path, const tdict_tree *tree, tdict_file_format format) {
  const tdict_save_options o = save_as(format);
  scoped_tree back = NULL;
  td_ok(tdict_save(NULL, path, tree, &o, err));
  td_ok(tdict_open(path, NULL, &back, err));
  ignores_order = format == TDICT_FORMAT_CONSOLIDATED;
  same_trees(back, tree);
  ignores_order = false;
}

/* Saves a tensor whose bytes are a complete file of some format. The saved file ends or begins with these bytes. */
CASE(format_is_not_decided_by_the_elements) {
  static const tdict_file_format formats[] = {TDICT_FORMAT_SAFETENSORS, TDICT_FORMAT_NPY, TDICT_FORMAT_CONSOLIDATED,
                                              TDICT_FORMAT_NPZ};
  scoped_folder f = folder_create();
  dice d = {51};
  for (int i = 0; i < 64; i++) {
    const tdict_file_format inner = formats[i % 4], outer = formats[i / 4 % 4];
    const tdict_save_options o = save_as(inner);
    size_t count;
    scoped_tensor t = random_tensor(&d, TDICT_F32, 0, NULL);
    scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err)), around = NULL;
    td_ok(tdict_set(tree, "arr_0", t, err));
    td_ok(tdict_save(NULL, in(&f, "inner"), tree, &o, err));
    scoped_bytes bytes = read_bytes(in(&f, "inner"), &count);
    around = tree_of_bytes("arr_0", bytes, count);
    check_round_trip(in(&f, "outer"), around, outer);
  }
}

/* A header determines the format even if the library does not support its dtype. */
CASE(format_of_a_start_that_cannot_be_read) {
  static const char header[] = "{\"x\":{\"dtype\":\"F8_E8M0\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}";
  scoped_folder f = folder_create();
  const tdict_save_options o = save_as(TDICT_FORMAT_CONSOLIDATED);
  char text[128];
  size_t count;
  scoped_tree tree = tree_of_bytes("x", "abcdefg", 7);
  td_ok(tdict_save(NULL, in(&f, "inner"), tree, &o, err));
  scoped_bytes inner = read_bytes(in(&f, "inner"), &count);
  const size_t length = (size_t)snprintf(text, sizeof text, header, count, count);
  write_safetensors(in(&f, "x"), text, length, count);
  scoped_bytes all = read_bytes(in(&f, "x"), &count);
  memcpy(all + 8 + length, inner, count - 8 - length);
  write_bytes(in(&f, "x"), all, count);
  refuse(in(&f, "x"), TDICT_ENOTSUP, "dtype F8_E8M0 is not supported");
}

/* Writes a header of 128 bytes for an array of bytes that fills the rest of a file. */
static void make_header(bool is_npy, size_t file_bytes, char header[128]) {
  const size_t rest = file_bytes - 128;
  memset(header, ' ', 128);
  char text[112];
  if (is_npy) {
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(text, sizeof text, "{'descr': '|u1', 'fortran_order': False, 'shape': (%zu,), }", rest);
    memcpy(header + 10, text, strlen(text));
  } else {
    memcpy(header, "\x78\0\0\0\0\0\0\0", 8);
    snprintf(text, sizeof text, "{\"x\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", rest, rest);
    memcpy(header + 8, text, strlen(text));
  }
}

/* No reader can tell such a consolidated file from a file of the other format, so the file must not be written. */
CASE(format_that_two_readers_accept_is_not_written) {
  scoped_folder f = folder_create();
  const tdict_save_options o = save_as(TDICT_FORMAT_CONSOLIDATED);
  for (int is_npy = 0; is_npy < 2; is_npy++) {
    char header[128] = {0};
    size_t count, after;
    tdict_tree *tree = tree_of_bytes("x", header, sizeof header);
    td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
    scoped_bytes before = read_bytes(in(&f, "x"), &count);
    tdict_release(tree);
    for (int wrong = 0; wrong < 2; wrong++) {
      make_header(is_npy, count + (size_t)wrong, header);
      tree = tree_of_bytes("x", header, sizeof header);
      if (wrong) {
        check_round_trip(in(&f, "y"), tree, TDICT_FORMAT_CONSOLIDATED);
        assert_int_equal(remove(in(&f, "y")), 0);
      } else {
        td_fails(TDICT_ENOTSUP, "a complete file of another format", tdict_save(NULL, in(&f, "x"), tree, &o, err));
        assert_string_equal(td_last_error.path, in(&f, "x"));
      }
      tdict_release(tree);
    }
    scoped_bytes now = read_bytes(in(&f, "x"), &after);
    assert_int_equal(after, count);
    assert_memory_equal(now, before, count);
    assert_int_equal(folder_count(&f, NULL), 1);
  }
}

CASE(format_of_gguf_is_named) {
  scoped_folder f = folder_create();
  unsigned char start[64] = {'G', 'G', 'U', 'F', 3};
  write_bytes(in(&f, "x.gguf"), start, sizeof start);
  refuse(in(&f, "x.gguf"), TDICT_ENOTSUP, "the file is a GGUF file");
}

/* Opens a folder with one safetensors file, with a link to such a file, and with an index. */
CASE(format_of_a_folder) {
  scoped_folder f = folder_create();
  scoped_tree tree = tree_of_bytes("x", "one", 3), other = tree_of_bytes("x", "shards", 6);
  tdict_save_options o = tdict_save_options_default();
  refuse(f.path, TDICT_EFORMAT, "none of the files model.safetensors.index.json, meta.json and model.safetensors");
  td_ok(tdict_save(NULL, in(&f, "model.safetensors"), tree, &o, err));
  tdict_tree *back = td_made(tree, tdict_open(f.path, NULL, &made, err));
  same_trees(back, tree);
  tdict_release(back);
  assert_int_equal(rename(in(&f, "model.safetensors"), in(&f, "blob")), 0);
  assert_int_equal(symlink("blob", in(&f, "model.safetensors")), 0);
  refuse(f.path, TDICT_EFORMAT, "model.safetensors is a symbolic link");
  td_ok(tdict_open(f.path, td_options(tdict_open_options, follows_links = true), &back, err));
  same_trees(back, tree);
  tdict_release(back);
  /* A file with the name of an index takes precedence over model.safetensors. Its contents decide its format. */
  for (int has_shards = 0; has_shards < 2; has_shards++) {
    o.max_shard_bytes = (uint64_t)has_shards;
    td_ok(tdict_save(NULL, in(&f, "model.safetensors.index.json"), other, &o, err));
    td_ok(tdict_open(f.path, NULL, &back, err));
    same_trees(back, other);
    tdict_release(back);
  }
}
