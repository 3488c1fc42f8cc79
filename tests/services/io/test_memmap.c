/* Tests TensorDict's memory-mapped directory: golden directories, random trees, attacks, links, many files. */
#include <fcntl.h>
#include <sys/resource.h>

#include "directory.h"
#include "tdict/path.h"
#include "without_memory.h"

#define VALUE_TYPE(name) "\"_type\":\"<class 'tensordict.tensorclass." name "'>\""

CASE(memmap_reads_a_directory_of_the_package) {
  scoped_tree flat = NULL, tree = NULL;
  td_ok(tdict_open(golden("memmap"), NULL, &tree, err));
  assert_int_equal(tdict_batch_ndim(tree), 1);
  assert_int_equal(tdict_batch_size(tree)[0], 2);
  assert_int_equal(tdict_num_keys(tree), 14);
  assert_true(tdict_has(tree, "nest.a\\.b") && tdict_has(tree, "nest.a/b:c") && tdict_has(tree, "nest.é漢"));
  /* The package safetensors wrote the same tensors to another file, named by their keys joined with dots. */
  tdict_open_options o = td_with(tdict_open_options, flat = true);
  td_ok(tdict_open(golden("all.safetensors"), &o, &flat, err));
  scoped_tree names = td_made(tree, tdict_open(golden("memmap"), &o, &made, err));
  assert_int_equal(tdict_num_keys(names), 19);
  int count = 0;
  for (size_t i = 0; i < tdict_num_keys(names); i++) {
    tdict_entry mine, theirs;
    mine = tdict_get_entry_at(names, i);
    char path[PATH_BYTES];
    tdict_path_escape(mine.key, path, sizeof path);
    if (tdict_get_entry(flat, path, &theirs, NULL) != TDICT_OK) continue; /* not in the safetensors file */
    same_tensors(mine.tensor, theirs.tensor);
    count++;
  }
  assert_true(count >= 15);
}

CASE(memmap_reads_lazy_stacks_and_values_of_the_package) {
  scoped_tree tree = NULL;
  tdict_lazy_stack *stack = NULL;
  tdict_tensor *a = NULL;
  tdict_value value;
  td_ok(tdict_open(golden("lazy"), NULL, &tree, err));
  td_ok(tdict_lazy_stack_from_tree(tree, &stack, err));
  assert_int_equal(tdict_lazy_stack_get_batch_size(stack, NULL)[0], 3);
  td_ok(tdict_lazy_stack_get(stack, "a", NULL, &a, err));
  assert_int_equal(tdict_tensor_shape(a)[1], 2);
  for (int i = 0; i < 3; i++) {
    size_t count;
    scoped_bytes bytes = read_bytes(golden(td_text("lazy/%d/a.memmap", i)), &count);
    assert_memory_equal((const char *)tdict_tensor_const_data(a) + 8 * i, bytes, 8);
  }
  td_release(a, stack, tree);
  td_ok(tdict_open(golden("nontensor"), NULL, &tree, err));
  td_ok(tdict_get_value(tree, "s", -1, &value, err));
  assert_string_equal(value.text, "text");
  td_ok(tdict_get_value(tree, "n", -1, &value, err));
  assert_string_equal(value.text, "{\"k\":[1,2.5,null]}");
  assert_int_equal(value.kind, TDICT_VALUE_JSON);
}

/* If a tree has a stack along dimension 1, the tree and the stack keep only batch dimension 0. */
CASE(memmap_reads_stacks_along_other_dimensions) {
  scoped_directory f = folder_create();
  static const char member[] =
      TD_META("\"a\":" TD_LEAF("torch.uint8", "[2,1]") ",\"n\":{\"type\":\"TensorDict\"},", "[2]");
  tdict_tree *tree = NULL, *stack = NULL;
  write_text_below(
      &f, "meta.json",
      TD_META("\"s\":{\"type\":\"LazyStackedTensorDict\"},\"x\":" TD_LEAF("torch.uint8", "[2,3]") ",", "[2,3]"));
  write_text_below(&f, "x.memmap", "123456");
  write_text_below(&f, "s/meta.json",
                   "{\"_type\":\"<class 'tensordict._lazy.LazyStackedTensorDict'>\",\"stack_dim\":1}");
  for (int i = 0; i < 3; i++) {
    char name[64];
    snprintf(name, sizeof name, "s/%d/meta.json", i);
    write_text_below(&f, name, member);
    snprintf(name, sizeof name, "s/%d/a.memmap", i);
    write_text_below(&f, name, "ab");
    snprintf(name, sizeof name, "s/%d/n/meta.json", i);
    write_text_below(&f, name, TD_META("", "[2,5]"));
  }
  td_ok(tdict_open(f.path, NULL, &tree, err));
  assert_int_equal(tdict_batch_ndim(tree), 1);
  assert_int_equal(tdict_batch_size(tree)[0], 2);
  td_ok(tdict_get_tree(tree, "s", &stack, err));
  assert_int_equal(tdict_batch_ndim(stack), 1);
  assert_int_equal(tdict_num_keys(stack), 3);
  td_ok(tdict_get_tree(tree, "s.2.n", &stack, err));
  assert_int_equal(tdict_batch_ndim(stack), 2);
  tdict_release(tree);
  td_ok(tdict_open(in(&f, "s"), NULL, &tree, err)); /* the stack itself */
  assert_int_equal(tdict_batch_ndim(tree), 1);
  assert_int_equal(tdict_batch_size(tree)[0], 2);
  tdict_release(tree);
  /* The values of a column have the batch size of the tree, so a tree with a column cannot also have the stack. */
  write_text_below(&f, "c/meta.json", "{" VALUE_TYPE("NonTensorStack") ",\"stack_dim\":0,\"data\":[\"a\",\"b\"]}");
  write_text_below(&f, "meta.json",
                   TD_META("\"c\":{\"type\":\"NonTensorStack\"},\"s\":{\"type\":\"LazyStackedTensorDict\"},", "[2]"));
  write_text_below(&f, "s/meta.json",
                   "{\"_type\":\"<class 'tensordict._lazy.LazyStackedTensorDict'>\",\"stack_dim\":0}");
  refuse(f.path, TDICT_ENOTSUP, "a lazy stack in a tree with a column of values");
}

CASE(memmap_returns_random_trees) {
  scoped_directory f = folder_create();
  const tdict_save_options o = save_as(TDICT_FORMAT_MEMMAP);
  dice d = {7};
  for (int i = 0; i < 150; i++) {
    const int64_t batch[] = {(int64_t)roll(&d, 4), (int64_t)roll(&d, 3)};
    scoped_tree back = NULL, tree = random_tree(&d, (int)roll(&d, 3), batch, 0);
    td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
    td_ok(tdict_open(in(&f, "x"), NULL, &back, err));
    same_trees(back, tree);
    assert_int_equal(folder_count(&f, NULL), 1); /* the directory of the last round was replaced */
  }
}

CASE(memmap_is_the_format_of_paths_that_end_with_a_slash) {
  scoped_directory f = folder_create();
  scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err)), back = NULL;
  td_ok(tdict_set_text(tree, "t", "é\"\\\n", err));
  td_ok(tdict_save(NULL, in(&f, "x/"), tree, NULL, err));
  td_ok(tdict_open(in(&f, "x"), NULL, &back, err));
  same_trees(back, tree);
  td_release(back);
  /* A directory without meta.json is not replaced. */
  write_text_below(&f, "other/file", "text");
  td_fails(TDICT_EFORMAT, "meta.json", tdict_save(NULL, in(&f, "other/"), tree, NULL, err));
  assert_int_equal(access(in(&f, "other/file"), F_OK), 0);
  tdict_save_options o = td_with(tdict_save_options, max_shard_bytes = 1);
  td_fails(TDICT_EINVAL, "only safetensors files have shards", tdict_save(NULL, in(&f, "y/"), tree, &o, err));
}

CASE(memmap_refuses_trees_that_the_format_cannot_hold) {
  scoped_folder f = folder_create();
  static const char *const keys[] = {"shape", "device", "_type", "a.shape"};
  const tdict_save_options o = save_as(TDICT_FORMAT_MEMMAP);
  for (size_t i = 0; i < 4; i++) {
    scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
    td_ok(tdict_set_text(tree, keys[i], "x", err));
    td_fails(TDICT_ENOTSUP, "reserve the keys shape, device and _type", tdict_save(NULL, in(&f, "x"), tree, &o, err));
    assert_string_equal(td_last_error.path, keys[i]);
  }
  static const char *const folders[] = {"meta\\.json", "\\.meta\\.json\\.append\\.tmp"};
  for (size_t i = 0; i < 2; i++) {
    scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
    td_ok(tdict_set_text(tree, folders[i], "x", err));
    td_fails_at(TDICT_ENOTSUP, "a folder cannot be named", folders[i], tdict_save(NULL, in(&f, "x"), tree, &o, err));
  }
  tdict_tree *tree = NULL;
  tdict_tensor *x = NULL;
  td_ok(tdict_create(0, NULL, &tree, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, 0, NULL, NULL, &x, err));
  td_ok(tdict_set(tree, "a.x", x, err));
  td_ok(tdict_set(tree, "a.x\\.memmap.y", x, err));
  td_fails(TDICT_ENOTSUP, "the name of the file of another key", tdict_save(NULL, in(&f, "x"), tree, &o, err));
  assert_string_equal(td_last_error.path, "a.x\\.memmap");
  td_release(x, tree);
  tree = NULL;
  char key[90 * 3];
  memset(key, '/', sizeof key - 1);
  key[sizeof key - 1] = 0;
  td_ok(tdict_create(0, NULL, &tree, err));
  td_ok(tdict_set_text(tree, key, "x", err));
  td_fails(TDICT_ENOTSUP, "a file name of 807 bytes", tdict_save(NULL, in(&f, "x"), tree, &o, err));
  tdict_release(tree);
  assert_int_equal(folder_count(&f, NULL), 0);
}

typedef struct attack {
  const char *meta; /* meta.json of the root */
  tdict_status status;
  const char *text;
} attack;
#define F32 "torch.float32"
static const attack attacks[] = {
    /* JSON */
    {"", TDICT_EFORMAT, "meta.json is not JSON at byte 0"},
    {"[]", TDICT_EFORMAT, "not a JSON object"},
    {"null", TDICT_EFORMAT, "not a JSON object"},
    {"{", TDICT_EFORMAT, "not JSON at byte 1"},
    {TD_META("\"a\":1,\"a\":2,", "[]"), TDICT_EFORMAT, "duplicate object key"},
    {TD_META("\"a\":NaN,", "[]"), TDICT_EFORMAT, "not JSON at byte 5"},
    {TD_META("\"\xff\":1,", "[]"), TDICT_EFORMAT, "not UTF-8"},
    /* the tree */
    {"{\"shape\":[]}", TDICT_EFORMAT, "meta.json has no text '_type'"},
    {"{\"shape\":[],\"_type\":5}", TDICT_EFORMAT, "meta.json has no text '_type'"},
    {TD_META("\"_format_version\":2,", "[]"), TDICT_ENOTSUP, "the format version is 2, wanted at most 1"},
    {TD_META("", "5"), TDICT_EFORMAT, "no array 'shape'"},
    {TD_META("", "[-1]"), TDICT_EFORMAT, "shape[0] is -1, wanted 0 or more"},
    {TD_META("", "[1.0]"), TDICT_EFORMAT, "shape[0] is not an integer"},
    {TD_META("", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), TDICT_EFORMAT, "'shape' has 17 numbers"},
    {TD_META("\"\":" TD_LEAF(F32, "[2]") ",", "[]"), TDICT_ENOTSUP, "an empty key"},
    /* leaves; the file x.memmap has 8 bytes */
    {TD_META("\"x\":{\"shape\":[2]},", "[]"), TDICT_EFORMAT, "key 'x': no text 'dtype'"},
    {TD_META("\"x\":{\"dtype\":\"" F32 "\"},", "[]"), TDICT_EFORMAT, "key 'x': no array 'shape'"},
    {TD_META("\"x\":" TD_LEAF("torch.qint8", "[2]") ",", "[]"), TDICT_ENOTSUP, "this library has no dtype torch.qint8"},
    {TD_META("\"x\":{\"shape\":[2],\"dtype\":7},", "[]"), TDICT_EFORMAT, "key 'x': no text 'dtype'"},
    {TD_META("\"x\":" TD_LEAF(F32, "[4294967296,4294967296]") ",", "[]"), TDICT_EFORMAT, "do not fit 63 bits"},
    {TD_META("\"x\":" TD_LEAF(F32, "[9223372036854775807]") ",", "[]"), TDICT_EFORMAT, "do not fit 63 bits"},
    {TD_META("\"x\":" TD_LEAF(F32, "[1099511627776]") ",", "[]"), TDICT_EFORMAT,
     "the file has 8 bytes, but the shape needs 4398046511104"},
    {TD_META("\"x\":" TD_LEAF(F32, "[3]") ",", "[]"), TDICT_EFORMAT, "the file has 8 bytes, but the shape needs 12"},
    {TD_META("\"x\":" TD_LEAF(F32, "[2]") ",", "[3]"), TDICT_ESHAPE, "key 'x'"},
    {TD_META("\"y\":" TD_LEAF(F32, "[2]") ",", "[]"), TDICT_EFORMAT, "key 'y': the file 'y.memmap' is missing"},
    {TD_META("\"x\":{\"shape\":[2,2],\"dtype\":\"" F32 "\",\"is_nested\":true},", "[]"), TDICT_ENOTSUP,
     "nested tensors cannot be read"},
    {TD_META("\"x\":{\"shape\":[2],\"dtype\":\"" F32 "\",\"tdict\":\"odd\"},", "[]"), TDICT_EFORMAT,
     "the mark 'tdict' of a tensor is no \"unbatched\""},
    {TD_META("\"../x\":" TD_LEAF(F32, "[2]") ",", "[]"), TDICT_EFORMAT, "the file '../x.memmap' is missing"},
    {TD_META("\"link\":" TD_LEAF(F32, "[2]") ",", "[]"), TDICT_EFORMAT, "a symbolic link, wanted a regular file"},
    {TD_META("\"fifo\":" TD_LEAF(F32, "[2]") ",", "[]"), TDICT_EFORMAT, "a FIFO, wanted a regular file"},
    {TD_META("\"dir\":" TD_LEAF(F32, "[2]") ",", "[]"), TDICT_EFORMAT, "a directory, wanted a regular file"},
    /* folders */
    {TD_META("\"n\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "the file 'n/meta.json' is missing"},
    {TD_META("\"..\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "the file '%2E%2E/meta.json' is missing"},
    {TD_META("\"/etc\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "the file '%2Fetc/meta.json' is missing"},
    {TD_META("\"out\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "leads through a symbolic link"},
    {TD_META("\"deep\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "not JSON at byte 512"},
    {TD_META("\"pickle\":{\"type\":\"NonTensorData\"},", "[]"), TDICT_ENOTSUP, "the data is in other.pickle, a pickle"},
    {TD_META("\"stack\":{\"type\":\"NonTensorStack\"},", "[]"), TDICT_ENOTSUP, "the data is in pickle.pkl, a pickle"},
    {TD_META("\"class\":{\"type\":\"Sample\"},", "[]"), TDICT_ENOTSUP, "the data is in other.pickle, a pickle"},
    {TD_META("\"nodata\":{\"type\":\"NonTensorData\"},", "[]"), TDICT_EFORMAT, "a value without 'data'"},
    {TD_META("\"lazy\":{\"type\":\"LazyStackedTensorDict\"},", "[]"), TDICT_EFORMAT, "a lazy stack without trees"},
    {TD_META("\"lazydim\":{\"type\":\"LazyStackedTensorDict\"},", "[]"), TDICT_EFORMAT, "stack_dim is not an integer"},
    {TD_META("\"ragged\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "is no \"ragged\" with"},
    {TD_META("\"badrag\":{\"type\":\"TensorDict\"},", "[]"), TDICT_EFORMAT, "key 'badrag'"},
    {"{\"_type\":\"<class 'tensordict.tensorclass.NonTensorData'>\",\"data\":1}", TDICT_EFORMAT, "the root is a value"},
    {"{\"_type\":\"<class 'tensordict._lazy.LazyStackedTensorDict'>\",\"stack_dim\":1}", TDICT_EFORMAT,
     "stack_dim is 1, but the trees of the stack have 0 batch dimensions"},
};

/* Makes the files and folders to which the meta.json files of the attacks refer. */
static void make_surroundings(const folder *f) {
  static const unsigned char eight[8];
  char deep[2000];
  write_text_below(f, "outside/meta.json", TD_META("", "[]"));
  write_text_below(f, "outside/x.memmap", "12345678");
  write_text_below(f, "x.memmap", "12345678"); /* the key "../x" would name this file */
  write_text_below(f, "a/x.memmap", "12345678");
  assert_int_equal(symlink("../outside/x.memmap", in(f, "a/link.memmap")), 0);
  assert_int_equal(mkfifo(in(f, "a/fifo.memmap"), 0600), 0);
  assert_int_equal(mkdir(in(f, "a/dir.memmap"), 0700), 0);
  assert_int_equal(symlink("../outside", in(f, "a/out")), 0);
  memset(deep, '[', sizeof deep);
  deep[sizeof deep - 1] = 0;
  write_text_below(f, "a/deep/meta.json", deep);
  write_text_below(f, "a/pickle/meta.json", "{" VALUE_TYPE("NonTensorData") ",\"_is_non_tensor\":true}");
  write_text_below(f, "a/pickle/other.pickle", "\x80\x04.");
  write_text_below(f, "a/stack/meta.json",
                   "{" VALUE_TYPE("NonTensorStack") ",\"stack_dim\":0,\"data\":\"pickle.pkl\"}");
  write_text_below(f, "a/class/meta.json", "{\"_type\":\"<class '__main__.Sample'>\"}");
  write_text_below(f, "a/class/_tensordict/meta.json", TD_META("", "[]"));
  write_text_below(f, "a/class/other.pickle", "\x80\x04.");
  write_text_below(f, "a/nodata/meta.json", "{" VALUE_TYPE("NonTensorData") "}");
  write_text_below(f, "a/lazy/meta.json",
                   "{\"_type\":\"<class 'tensordict._lazy.LazyStackedTensorDict'>\",\"stack_dim\":0}");
  write_text_below(f, "a/lazydim/meta.json",
                   "{\"_type\":\"<class 'tensordict._lazy.LazyStackedTensorDict'>\",\"stack_dim\":-1}");
  write_text_below(f, "a/0/meta.json", TD_META("", "[]"));
  write_text_below(f, "a/ragged/meta.json", TD_META("\"tdict\":\"ragged\",", "[]"));
  write_text_below(
      f, "a/badrag/meta.json",
      TD_META("\"tdict\":\"ragged\",\"values\":" TD_LEAF(F32, "[3]") ",\"offsets\":" TD_LEAF("torch.int64", "[1]") ",",
              "[]"));
  write_text_below(f, "a/badrag/values.memmap", "123456789012");
  write_bytes(in(f, "a/badrag/offsets.memmap"), eight, sizeof eight); /* the last offset is 0, wanted 3 */
}

/* An interrupted append can leave children with other batch sizes. A child without batch dimensions fits any parent. */
CASE(memmap_refuses_trees_with_other_batch_sizes_than_their_parent) {
  scoped_directory f = folder_create();
  static const char *const children[] = {"[9]", "[9,1]", "[11]", "[11,1]", "[]"};
  write_text_below(&f, "a/meta.json", TD_META("\"x\":{\"type\":\"TensorDict\"},", "[11]"));
  for (int i = 0; i < 5; i++) {
    scoped_tree tree = NULL;
    write_text_below(&f, "a/x/meta.json", td_text("{\"shape\":%s,\"device\":\"cpu\"," TD_CLASS "}", children[i]));
    if (i < 2) refuse(in(&f, "a"), TDICT_ESHAPE, "key 'x': the batch size does not begin with");
    if (i >= 2) td_ok(tdict_open(in(&f, "a"), NULL, &tree, err));
  }
}

CASE(memmap_refuses_broken_directories) {
  scoped_directory f = folder_create();
  make_surroundings(&f);
  for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
    write_text_below(&f, "a/meta.json", attacks[i].meta);
    refuse(in(&f, "a"), attacks[i].status, attacks[i].text);
  }
  write_text_below(&f, "a/meta.json", TD_META("\"x\":" TD_LEAF(F32, "[2]") ",", "[2]"));
  tdict_tree *tree = td_made(tree, tdict_open(in(&f, "a"), NULL, &made, err));
  tdict_release(tree);
  /* The file meta.json must not be a link. */
  assert_int_equal(rename(in(&f, "a/meta.json"), in(&f, "meta")), 0);
  assert_int_equal(symlink("../meta", in(&f, "a/meta.json")), 0);
  refuse(in(&f, "a"), TDICT_EFORMAT, "a symbolic link, wanted a regular file");
}

CASE(memmap_refuses_many_levels) {
  scoped_directory f = folder_create();
  char name[1024] = "a";
  for (int i = 0; i < 140; i++) {
    write_text_below(&f, td_text("%s/meta.json", name), TD_META("\"a\":{\"type\":\"TensorDict\"},", "[]"));
    strcat(name, "/a");
  }
  refuse(in(&f, "a"), TDICT_EFORMAT, "more than 128 nested trees");
  char *many = malloc(2000001);
  memset(many, '[', 2000000);
  many[2000000] = 0;
  write_text_below(&f, "a/meta.json", many);
  free(many);
  refuse(in(&f, "a"), TDICT_EFORMAT, "meta.json is not JSON at byte 512");
}

/* A file may have more bytes than its tensor needs. Old versions of TensorDict did not encode keys in file names. */
CASE(memmap_reads_larger_files_and_old_names) {
  scoped_directory f = folder_create();
  scoped_tree tree = NULL;
  tdict_tensor *x = NULL;
  write_text_below(&f, "a b.memmap", "12345678");
  write_text_below(&f, "c d/meta.json", TD_META("\"*\":" TD_LEAF("torch.uint8", "[3]") ",", "[3]"));
  write_text_below(&f, "c d/%2A.memmap", "abcdef");
  write_text_below(&f, "c d/*.memmap", "old");
  write_text_below(
      &f, "meta.json",
      TD_META("\"a b\":" TD_LEAF("torch.uint8", "[3]") ",\"c d\":{\"type\":\"TensorDict\"},\"skipped\":{},", "[3]"));
  td_ok(tdict_open(f.path, NULL, &tree, err));
  td_ok(tdict_get(tree, "a b", &x, err));
  assert_memory_equal(tdict_tensor_const_data(x), "123", 3);
  td_ok(tdict_get(tree, "c d.*", &x, err));
  assert_memory_equal(tdict_tensor_const_data(x), "abc", 3); /* the file with the encoded name is preferred */
  assert_int_equal(tdict_num_keys(tree), 2);
}

CASE(memmap_maps_sparse_files) {
  scoped_directory f = folder_create();
  const int64_t bytes = 5ll << 30;
  tdict_tensor *x = NULL;
  const int fd = open(in(&f, "x.memmap"), O_CREAT | O_WRONLY, 0600);
  assert_int_equal(ftruncate(fd, bytes), 0);
  assert_int_equal(pwrite(fd, "z", 1, bytes - 1), 1);
  close(fd);
  const char *meta = td_text(TD_META("\"x\":" TD_LEAF("torch.uint8", "[%lld]") ",", "[]"), (long long)bytes);
  write_text_below(&f, "meta.json", meta);
  scoped_tree tree = td_made(tree, tdict_open(f.path, NULL, &made, err));
  td_ok(tdict_get(tree, "x", &x, err));
  assert_int_equal(((const char *)tdict_tensor_const_data(x))[bytes - 1], 'z');
  assert_int_equal(((const char *)tdict_tensor_const_data(x))[bytes / 2], 0);
}

CASE(memmap_of_many_files_needs_few_descriptors) {
  enum { COUNT = 10000 };
  scoped_directory f = folder_create();
  char *meta = malloc(COUNT * 100), *at = meta;
  tdict_tree *tree = NULL, *loaded = NULL;
  struct rlimit old, few;
  at += sprintf(at, "{");
  for (int i = 0; i < COUNT; i++) {
    const int32_t value = i;
    write_bytes(in(&f, td_text("k%d.memmap", i)), &value, sizeof value);
    at += sprintf(at, "\"k%d\":" TD_LEAF("torch.int32", "[]") ",", i);
  }
  sprintf(at, "\"shape\":[]," TD_CLASS "}");
  write_bytes(in(&f, "meta.json"), meta, strlen(meta));
  free(meta);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  few = old;
  few.rlim_cur = 64;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  td_ok(tdict_open(f.path, NULL, &tree, err));
  tdict_context *context = td_made(context, tdict_context_create(NULL, &made, err));
  td_ok(tdict_load(context, f.path, tdict_cpu(), NULL, &loaded, err));
  for (int i = 0; i < COUNT; i += 97) {
    tdict_tensor *t = NULL;
    const char *name = td_text("k%d", i);
    td_ok(tdict_get(tree, name, &t, err));
    assert_int_equal(*(const int32_t *)tdict_tensor_const_data(t), i);
    td_ok(tdict_get(loaded, name, &t, err));
    assert_int_equal(*(const int32_t *)tdict_tensor_const_data(t), i);
  }
  td_release(tree, loaded, context);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

CASE(memmap_trees_outlive_their_directory) {
  scoped_directory f = folder_create();
  scoped_tree old = NULL;
  tdict_tensor *x = NULL;
  const tdict_save_options o = save_as(TDICT_FORMAT_MEMMAP);
  for (float value = 1; value < 3; value++) {
    scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
    td_ok(tdict_tensor_from_array(TDICT_F32, 0, NULL, &value, &x, err));
    td_ok(tdict_set(tree, "x", x, err));
    td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
    if (value == 1) td_ok(tdict_open(in(&f, "x"), NULL, &old, err));
    tdict_tensor_release(x);
  }
  td_ok(tdict_get(old, "x", &x, err));
  assert_true(*(const float *)tdict_tensor_const_data(x) == 1);
  assert_true(tdict_tensor_data(x) == NULL); /* read-only */
}

CASE(memmap_survives_enomem) {
  scoped_directory f = folder_create();
  const tdict_save_options o = save_as(TDICT_FORMAT_MEMMAP);
  save_and_open_without_memory(&f, "x", &o);
}
