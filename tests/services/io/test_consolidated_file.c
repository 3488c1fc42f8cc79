/* Tests TensorDict's consolidated file: the golden file, random trees, and attacks. */
#include "directory.h"
#include "without_memory.h"

CASE(consolidated_file_reads_a_file_of_the_package) {
  scoped_tree tree = td_made(tree, tdict_open(golden("consolidated.td"), NULL, &made, err)), folder_tree = NULL;
  td_ok(tdict_open(golden("memmap"), NULL, &folder_tree, err));
  ignores_order = true;
  same_trees(tree, folder_tree);
  ignores_order = false;
}

/* Opens files that TensorDict 0.15.3 wrote. torch.stack() made their column `s` of letters, along several
 * dimensions. */
CASE(consolidated_file_reads_stacks_of_text) {
  static const struct {
    const char *name;
    int ndim;
    int64_t shape[4];
    const char *letters; /* as TensorDict reads them back */
  } files[] = {
      {"square", 2, {2, 2}, "ppqq"},       {"rows", 2, {2, 3}, "xxxyyy"},
      {"columns", 2, {3, 2}, "xyxyxy"},    {"cube", 4, {2, 2, 3, 2}, "xyxyxyyyyyyyxyxyxyyyyyyy"},
      {"mixed", 3, {2, 2, 2}, "pzpzqzqz"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    const char *text;
    size_t length;
    scoped_tree tree = td_made(tree, tdict_open(golden(td_text("values/%s.td", files[i].name)), NULL, &made, err));
    assert_int_equal(tdict_batch_ndim(tree), files[i].ndim);
    for (int d = 0; d < files[i].ndim; d++) assert_int_equal(tdict_batch_size(tree)[d], files[i].shape[d]);
    tdict_entry column;
    td_ok(tdict_get_entry(tree, "s", &column, err));
    assert_int_equal(tdict_nontensor_shape(column.object, NULL), files[i].ndim);
    for (size_t k = 0; k < strlen(files[i].letters); k++) {
      td_ok(tdict_get_text(tree, "s", (int64_t)k, &text, &length, err));
      assert_int_equal(length, 1);
      assert_int_equal(text[0], files[i].letters[k]);
    }
  }
}

/* A consolidated file lists values first, then tensors, then trees, so the keys come back in this order. */
CASE(consolidated_file_returns_random_trees) {
  scoped_folder f = folder_create();
  const tdict_save_options o = save_as(TDICT_FORMAT_CONSOLIDATED);
  dice d = {11};
  for (int i = 0; i < 200; i++) {
    const int64_t batch[] = {(int64_t)roll(&d, 4), (int64_t)roll(&d, 3)};
    scoped_tree back = NULL, again = NULL, tree = random_tree(&d, (int)roll(&d, 3), batch, 0);
    td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
    td_ok(tdict_open(in(&f, "x"), NULL, &back, err));
    ignores_order = true;
    same_trees(back, tree);
    ignores_order = false;
    td_ok(tdict_save(NULL, in(&f, "y"), back, &o, err));
    td_ok(tdict_open(in(&f, "y"), NULL, &again, err));
    same_trees(again, back);
  }
}

/* Writes a file of `payload` zero bytes, this JSON and its length. */
static void write_consolidated(const char *path, size_t payload, const char *json) {
  const size_t length = strlen(json);
  scoped_bytes all = calloc(1, payload + length + 8);
  memcpy(all + payload, json, length);
  for (int i = 0; i < 8; i++) all[payload + length + (size_t)i] = (unsigned char)(length >> 8 * i);
  write_bytes(path, all, payload + length + 8);
}

#define NODE(class, values, leaves, meta, children) \
  "{\"cls\":\"" class "\",\"non_tensors\":{" values "},\"leaves\":{" leaves "},\"cls_metadata\":{" meta "}" children "}"
#define TD(values, leaves, children) NODE("TensorDict", values, leaves, "\"batch_size\":[]", children)
#define LEAVES(text) TD("", text, "")
#define WITH_STACK(values, meta, children) TD("", "", ",\"s\":" NODE("NonTensorStack", values, "", meta, children))
#define STACKED(child) NODE("NonTensorStack", "", "", "\"stack_dim\":0", ",\"0\":" child)
#define STACKED_4(child) STACKED(STACKED(STACKED(STACKED(child))))

typedef struct attack {
  const char *json;
  size_t payload;
  tdict_status status;
  const char *text;
} attack;
static const attack attacks[] = {
    {"{\"cls\":5}", 0, TDICT_EFORMAT, "a tree needs a text 'cls'"},
    {"{\"cls\":\"TensorDict\"}", 0, TDICT_EFORMAT, "a tree needs a text 'cls', and objects 'non_tensors'"},
    {"{\"cls\":\"TensorDict\"", 0, TDICT_EFORMAT, "the JSON at the end is not JSON at byte 19"},
    {"{\"cls\":\"TensorDict\"}}", 0, TDICT_EFORMAT, "more text after the value"},
    {"{\"cls\":NaN}", 0, TDICT_EFORMAT, "not JSON at byte 7"},
    {"{\"cls\":1,\"cls\":2}", 0, TDICT_EFORMAT, "duplicate object key"},
    {NODE("TensorDict", "", "", "", ""), 0, TDICT_EFORMAT, "no array 'batch_size'"},
    {NODE("TensorDict", "", "", "\"batch_size\":[-1]", ""), 0, TDICT_EFORMAT, "batch_size[0] is -1"},
    {TD("", "", ",\"a\":5"), 0, TDICT_EFORMAT, "key 'a': a tree needs"},
    {TD("", "\"\":[\"torch.int8\",[],0,1,0]", ""), 8, TDICT_ENOTSUP, "an empty key"},
    {LEAVES("\"x\":5"), 8, TDICT_EFORMAT, "key 'x': a leaf is not an array of 5 members"},
    {LEAVES("\"x\":[]"), 8, TDICT_EFORMAT, "key 'x': a leaf is not an array of 5 members"},
    {LEAVES("\"x\":[\"torch.int8\",[],0,1,0,1,1]"), 8, TDICT_EFORMAT, "key 'x': a leaf is not an array of 5 members"},
    {LEAVES("\"x\":[5,[],0,1,0]"), 8, TDICT_EFORMAT, "key 'x': no text 'dtype'"},
    {LEAVES("\"x\":[\"torch.complex32\",[],0,4,0]"), 8, TDICT_ENOTSUP, "this library has no dtype torch.complex32"},
    {LEAVES("\"x\":[\"torch.int8\",5,0,1,0]"), 8, TDICT_EFORMAT, "key 'x': no array 'shape'"},
    {LEAVES("\"x\":[\"torch.int8\",[4294967296,4294967296],0,1,0]"), 8, TDICT_EFORMAT, "do not fit 63 bits"},
    {LEAVES("\"x\":[\"torch.int8\",[2],-1,1,0]"), 8, TDICT_EFORMAT, "start is not an integer from 0 to 8"},
    {LEAVES("\"x\":[\"torch.int8\",[2],0.5,1,0]"), 8, TDICT_EFORMAT, "start is not an integer from 0 to 8"},
    {LEAVES("\"x\":[\"torch.int8\",[9],0,9,0]"), 8, TDICT_EFORMAT, "stop is not an integer from 0 to 8"},
    {LEAVES("\"x\":[\"torch.int8\",[2],9223372036854775807,1,0]"), 8, TDICT_EFORMAT,
     "start is not an integer from 0 to 8"},
    {LEAVES("\"x\":[\"torch.int8\",[2],4,2,0]"), 8, TDICT_EFORMAT,
     "start is 4, stop is 2 and pad is 0, but the shape needs 2"},
    {LEAVES("\"x\":[\"torch.int8\",[2],0,8,5]"), 8, TDICT_EFORMAT, "stop is 8 and pad is 5, but the shape needs 2"},
    {LEAVES("\"x\":[\"torch.int8\",[0],0,8,8]"), 8, TDICT_EFORMAT, "pad is not an integer from 0 to 7"},
    {LEAVES("\"x\":[\"torch.int8\",[8],0,8,0],\"y\":[\"torch.int8\",[8],0,8,0]"), 8, TDICT_EFORMAT,
     "two leaves overlap"},
    {LEAVES("\"x\":[\"torch.int8\",[8],0,8,0],\"y\":[\"torch.int8\",[4],7,11,0]"), 16, TDICT_EFORMAT,
     "key 'y': start is 7, wanted 8 or more: two leaves overlap"},
    {TD("\"v\":5", "", ""), 0, TDICT_EFORMAT, "key 'v': a value is not an array"},
    {TD("\"v\":[]", "", ""), 0, TDICT_EFORMAT, "key 'v': a value is not an array"},
    {TD("\"v\":[1,[],null]", "\"v\":[\"torch.int8\",[],0,8,7]", ""), 8, TDICT_EEXIST, "key 'v'"},
    {LEAVES("\"<NJT_VALUES>j\":[\"torch.int8\",[2],0,8,6]"), 8, TDICT_EFORMAT,
     "key 'j': a jagged tensor without offsets"},
    {LEAVES("\"<NJT_VALUES>j\":[\"torch.int8\",[2],0,8,6],\"<NJT_OFFSETS>j\":[\"torch.int64\",[1],8,16,0,2]"), 16,
     TDICT_ENOTSUP, "another ragged dimension than 1"},
    {LEAVES("\"<NJT_VALUES>j\":[\"torch.int8\",[2],0,8,6],\"<NJT_LENGTHS>j\":5,"
            "\"<NJT_OFFSETS>j\":[\"torch.int64\",[1],8,16,0,1]"),
     16, TDICT_ENOTSUP, "a jagged tensor with holes"},
    {LEAVES("\"<NJT_VALUES>j\":[\"torch.int8\",[2],0,8,6],\"<NJT_OFFSETS>j\":[\"torch.int64\",[1],8,16,0,1]"), 16,
     TDICT_EFORMAT, "key 'j'"},
    {NODE("NonTensorStack", "", "", "", ""), 0, TDICT_EFORMAT, "the root is a value"},
    {WITH_STACK("\"0\":[1,[],null]", "", ""), 0, TDICT_EFORMAT, "key 's': stack_dim is not an integer from 0 to 15"},
    {WITH_STACK("\"0\":[1,[],null]", "\"stack_dim\":1", ""), 0, TDICT_EFORMAT,
     "key 's': stack_dim is 1, but the members have 0 batch dimensions"},
    {WITH_STACK("\"0\":[1]", "\"stack_dim\":0", ""), 0, TDICT_EFORMAT, "key 's': no array 'batch size of a value'"},
    {WITH_STACK("\"0\":[1,[-1],null]", "\"stack_dim\":0", ""), 0, TDICT_EFORMAT, "batch size of a value[0] is -1"},
    {WITH_STACK("\"0\":[1,[2],null],\"1\":[1,[3],null]", "\"stack_dim\":0", ""), 0, TDICT_ENOTSUP,
     "key 's': a NonTensorStack whose members have different batch sizes"},
    {WITH_STACK("\"0\":[1,[],null],\"1\":[1,[3],null]", "\"stack_dim\":0", ""), 0, TDICT_ENOTSUP,
     "key 's': a NonTensorStack whose members have different batch sizes"},
    {WITH_STACK("\"0\":[1,[5000,10001],null]", "\"stack_dim\":0", ""), 0, TDICT_ENOTSUP,
     "key 's': a NonTensorStack of more than 50,000,000 values"},
    {WITH_STACK("\"0\":[1,[4294967296,4294967296],null]", "\"stack_dim\":0", ""), 0, TDICT_ENOTSUP,
     "key 's': a NonTensorStack of more than 50,000,000 values"},
    {WITH_STACK("\"0\":[1,[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],null]", "\"stack_dim\":0", ""), 0, TDICT_EFORMAT,
     "key 's': a NonTensorStack of more than 16 dimensions"},
    {WITH_STACK("", "\"stack_dim\":0", ",\"0\":" STACKED_4(STACKED_4(STACKED_4(STACKED_4("5"))))), 0, TDICT_EFORMAT,
     "key 's': a NonTensorStack of more than 16 levels"},
    {NODE("LazyStackedTensorDict", "", "", "", ""), 0, TDICT_EFORMAT, "stack_dim is not an integer"},
    {NODE("LazyStackedTensorDict", "", "", "\"stack_dim\":0", ""), 0, TDICT_EFORMAT,
     "members of a lazy stack are not trees"},
    {NODE("LazyStackedTensorDict", "", "", "\"stack_dim\":1", ",\"0\":" TD("", "", "")), 0, TDICT_EFORMAT,
     "stack_dim is 1, but the trees of the stack have 0 batch dimensions"},
};

CASE(consolidated_file_refuses_broken_files) {
  scoped_folder f = folder_create();
  for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
    write_consolidated(in(&f, "x"), attacks[i].payload, attacks[i].json);
    refuse(in(&f, "x"), attacks[i].status, attacks[i].text);
  }
  /* If no such JSON is at the place that the final length names, the file is not a consolidated file. */
  static const uint64_t lengths[] = {0, 1, 7, 100, UINT64_MAX, (uint64_t)INT64_MAX, UINT64_MAX - 7};
  static const char json[] = TD("", "", "");
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    unsigned char all[sizeof json + 7];
    memcpy(all, json, sizeof json - 1);
    for (int k = 0; k < 8; k++) all[sizeof json - 1 + (size_t)k] = (unsigned char)(lengths[i] >> 8 * k);
    write_bytes(in(&f, "x"), all, sizeof all);
    refuse(in(&f, "x"), TDICT_EFORMAT, "the header has");
  }
}

CASE(consolidated_file_refuses_many_levels) {
  scoped_folder f = folder_create();
  static const char open[] =
      "{\"cls\":\"TensorDict\",\"non_tensors\":{},\"leaves\":{},\"cls_metadata\":{\"batch_size\":[]},\"a\":";
  enum { LEVELS = 1000000 };
  char *json = malloc((size_t)LEVELS * (sizeof open - 1) + 1), *at = json;
  for (int i = 0; i < LEVELS; i++, at += sizeof open - 1) memcpy(at, open, sizeof open - 1);
  *at = 0;
  json[40 * 1000] = 0;
  write_consolidated(in(&f, "x"), 0, json);
  refuse(in(&f, "x"), TDICT_EFORMAT, "not JSON");
  /* 200 nested objects with all closing braces */
  at = json;
  for (int i = 0; i < 200; i++, at += sizeof open - 1) memcpy(at, open, sizeof open - 1);
  at += sprintf(at, "%s", TD("", "", ""));
  for (int i = 0; i < 200; i++) *at++ = '}';
  *at = 0;
  write_consolidated(in(&f, "x"), 0, json);
  refuse(in(&f, "x"), TDICT_EFORMAT, "more than 128 nested trees");
  free(json);
}

CASE(consolidated_file_refuses_reserved_keys) {
  scoped_folder f = folder_create();
  static const char *const trees[] = {"cls", "non_tensors", "leaves", "cls_metadata", "size"};
  const tdict_save_options o = save_as(TDICT_FORMAT_CONSOLIDATED);
  for (size_t i = 0; i < 5; i++) {
    scoped_tree tree = NULL, child = NULL;
    td_ok(tdict_create(0, NULL, &tree, err));
    td_ok(tdict_create(0, NULL, &child, err));
    td_ok(tdict_set_text(tree, trees[i], "x", err)); /* allowed: the value is in non_tensors */
    td_ok(tdict_save(NULL, in(&f, "x"), tree, &o, err));
    tdict_tree *back = td_made(tree, tdict_open(in(&f, "x"), NULL, &made, err));
    same_trees(back, tree);
    tdict_release(back);
    td_ok(tdict_set_tree(tree, trees[i], child, err));
    td_fails(TDICT_ENOTSUP, "consolidated files reserve the keys", tdict_save(NULL, in(&f, "y"), tree, &o, err));
    assert_string_equal(td_last_error.path, trees[i]);
  }
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_set_text(tree, "<NJT_x", "x", err));
  td_fails(TDICT_ENOTSUP, "begin with <NJT", tdict_save(NULL, in(&f, "y"), tree, &o, err));
  tdict_release(tree);
  assert_int_equal(folder_count(&f, NULL), 1);
}

CASE(consolidated_file_survives_enomem) {
  scoped_folder f = folder_create();
  const tdict_save_options o = save_as(TDICT_FORMAT_CONSOLIDATED);
  ignores_order = true;
  save_and_open_without_memory(&f, "x", &o);
  ignores_order = false;
}
