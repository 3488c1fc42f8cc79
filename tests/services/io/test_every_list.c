/* Tests that the time to open a file grows in proportion to the length of each of its lists, in all formats. Searching
 * a list once for each of its members would take 256 times as long with 16 times as many members. */
#include <time.h>

#include "directory.h"
#include "services/io/text.h"

enum { SHORT = 1000, LONG = 16 * SHORT, MOST_RATIO = 100 };

/* Adds `count` members, separated by commas. Each %d in the format is the index of the member. */
static void add_members(tdict_io_text *to, int count, const char *format) {
  for (int i = 0; i < count; i++) {
    if (i) tdict_io_text_add(to, ",", 1);
    tdict_io_text_format(to, format, i, i, i, i); /* NOLINT: a format has at most 4 numbers */
  }
}

static void write_file(const folder *f, const char *name, const tdict_io_text *text) {
  assert_false(text->has_failed);
  write_text_below(f, name, text->bytes);
}

typedef struct list_case {
  const char *list;
  const char *name;                         /* name of the file or folder */
  void (*make)(const folder *f, int count); /* NULL: a consolidated file with the strings below */
  const char *start, *member, *end;
} list_case;

static void write_header(const folder *f, const char *name, const tdict_io_text *header) {
  assert_false(header->has_failed);
  write_safetensors(in(f, name), header->bytes, header->length, 0);
}
static const char tensor[] = "\"k%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";

static void make_tensors(const folder *f, int count) {
  tdict_io_text text = {0};
  tdict_io_text_add(&text, "{", 1);
  add_members(&text, count, tensor);
  tdict_io_text_add(&text, "}", 1);
  write_header(f, "x", &text);
  tdict_io_text_reset(&text);
}

static void make_metadata(const folder *f, int count) {
  tdict_io_text text = {0};
  tdict_io_text_add_string(&text, "{\"__metadata__\":{");
  add_members(&text, count, "\"k%d\":\"v\"");
  tdict_io_text_add_string(&text, "}}");
  write_header(f, "x", &text);
  tdict_io_text_reset(&text);
}

/* Writes a safetensors file whose entry `tensordict` has `count` members. */
static void write_structure(const folder *f, const char *start, int count, const char *member, const char *end) {
  tdict_io_text text = {0}, structure = {0};
  tdict_io_text_format(&structure, "{\"version\":1,\"root\":{\"batch_size\":[%d],\"keys\":{%s", count, start);
  add_members(&structure, count, member);
  tdict_io_text_format(&structure, "%s}}}", end);
  tdict_io_text_add_string(&text, "{\"__metadata__\":{\"tensordict\":");
  tdict_io_text_add_json(&text, structure.bytes, structure.length);
  tdict_io_text_add_string(&text, "}}");
  write_header(f, "x", &text);
  tdict_io_text_reset(&structure);
  tdict_io_text_reset(&text);
}

static void make_structure(const folder *f, int count) {
  write_structure(f, "", count, "\"k%d\":{\"non_tensor\":%d}", "");
}

static void make_structure_column(const folder *f, int count) {
  write_structure(f, "\"c\":{\"non_tensor\":[", count, "%d", td_text("],\"tdict\":\"column\",\"shape\":[%d]}", count));
}

static void make_index(const folder *f, int count) {
  tdict_io_text text = {0};
  make_tensors(f, count);
  tdict_io_text_add_string(&text, "{\"weight_map\":{");
  add_members(&text, count, "\"k%d\":\"x\"");
  tdict_io_text_add_string(&text, "}}");
  write_file(f, "model.safetensors.index.json", &text);
  tdict_io_text_reset(&text);
}

static void make_archive(const folder *f, int count, tdict_file_format format, const char *name) {
  const tdict_save_options o = save_as(format);
  scoped_tensor t = NULL;
  scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_tensor_empty(TDICT_U8, TDICT_SHAPE(1), NULL, &t, err));
  for (int i = 0; i < count; i++) td_ok(tdict_set(tree, td_text("k%d", i), t, err));
  td_ok(tdict_save(NULL, in(f, name), tree, &o, err));
}
static void make_npz(const folder *f, int count) { make_archive(f, count, TDICT_FORMAT_NPZ, "x"); }
static void make_tdz(const folder *f, int count) { make_archive(f, count, TDICT_FORMAT_TDZ, "x"); }

static void make_directory(const folder *f, int count) {
  tdict_io_text text = {0};
  tdict_io_text_add(&text, "{", 1);
  add_members(&text, count, "\"k%d\":" TD_LEAF("torch.uint8", "[0]"));
  tdict_io_text_add_string(&text, ",\"shape\":[]," TD_CLASS "}");
  write_file(f, "x/meta.json", &text);
  tdict_io_text_reset(&text);
}

static void make_directory_column(const folder *f, int count) {
  tdict_io_text text = {0};
  tdict_io_text_format(&text, "{\"c\":{\"type\":\"NonTensorStack\"},\"shape\":[%d]," TD_CLASS "}", count);
  write_file(f, "x/meta.json", &text);
  tdict_io_text_cut(&text, 0);
  tdict_io_text_add_string(&text,
                           "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorStack'>\",\"stack_dim\":0,\"data\":[");
  add_members(&text, count, "%d");
  tdict_io_text_add_string(&text, "]}");
  write_file(f, "x/c/meta.json", &text);
  tdict_io_text_reset(&text);
}

#define NODE(class) "{\"cls\":\"" class "\","
#define META "\"cls_metadata\":{\"batch_size\":[]}"
#define LEAF "[\"torch.uint8\",[0],0,0,0]"
#define STACK "\"s\":" NODE("NonTensorStack") "\"leaves\":{},\"cls_metadata\":{\"stack_dim\":0},"
#define TREE NODE("TensorDict") "\"non_tensors\":{},\"leaves\":{}," META

/* Writes a consolidated file: `payload` zero bytes, this JSON and its length. */
static void write_consolidated(const folder *f, size_t payload, tdict_io_text *json) {
  const uint64_t length = json->length;
  assert_false(json->has_failed);
  unsigned char *all = calloc(1, payload + json->length + 8);
  memcpy(all + payload, json->bytes, json->length);
  for (int i = 0; i < 8; i++) all[payload + json->length + (size_t)i] = (unsigned char)(length >> 8 * i);
  write_bytes(in(f, "x"), all, payload + json->length + 8);
  free(all);
  tdict_io_text_reset(json);
}

static void make_consolidated(const folder *f, const list_case *c, int count) {
  tdict_io_text text = {0};
  tdict_io_text_add_string(&text, c->start);
  add_members(&text, count, c->member);
  tdict_io_text_add_string(&text, c->end);
  write_consolidated(f, 0, &text);
}

static void make_unbatched(const folder *f, int count) {
  tdict_io_text text = {0};
  tdict_io_text_add_string(&text, NODE("TensorDict") "\"non_tensors\":{}," META ",\"leaves\":{");
  add_members(&text, count, "\"k%d\":" LEAF);
  tdict_io_text_add_string(&text, "},\"size\":{\"unbatched\":[");
  add_members(&text, count, "\"k%d\"");
  tdict_io_text_add_string(&text, "]}}");
  write_consolidated(f, 0, &text);
}

/* Writes jagged tensors whose offsets are a single 0. */
static void make_jagged(const folder *f, int count) {
  tdict_io_text text = {0};
  tdict_io_text_add_string(&text, NODE("TensorDict") "\"non_tensors\":{}," META ",\"leaves\":{");
  for (int i = 0; i < count; i++)
    tdict_io_text_format(&text, "%s\"<NJT_VALUES>k%d\":" LEAF ",\"<NJT_OFFSETS>k%d\":[\"torch.int64\",[1],%d,%d,0,1]",
                         i ? "," : "", i, i, 8 * i, 8 * i + 8);
  tdict_io_text_add_string(&text, "}}");
  write_consolidated(f, 8 * (size_t)count, &text);
}

static const list_case lists[] = {
    {"tensors of safetensors", "x", make_tensors, "", "", ""},
    {"metadata of safetensors", "x", make_metadata, "", "", ""},
    {"keys of TensorDict's entry", "x", make_structure, "", "", ""},
    {"values of TensorDict's entry", "x", make_structure_column, "", "", ""},
    {"tensors of an index", "model.safetensors.index.json", make_index, "", "", ""},
    {"entries of npz", "x", make_npz, "", "", ""},
    {"entries of tdz", "x", make_tdz, "", "", ""},
    {"keys of a directory", "x", make_directory, "", "", ""},
    {"values of a directory", "x", make_directory_column, "", "", ""},
    {"leaves", "x", NULL, NODE("TensorDict") "\"non_tensors\":{},\"leaves\":{", "\"k%d\":" LEAF, "}," META "}"},
    {"unbatched names", "x", make_unbatched, "", "", ""},
    {"values", "x", NULL, NODE("TensorDict") "\"non_tensors\":{", "\"k%d\":[1,[],null]", "},\"leaves\":{}," META "}"},
    {"children", "x", NULL, TREE ",", "\"k%d\":" TREE "}", "}"},
    {"values of a stack", "x", NULL, TREE "," STACK "\"non_tensors\":{", "\"%d\":[1,[],null]", "}}}"},
    {"nodes of a stack", "x", NULL, TREE "," STACK "\"non_tensors\":{},",
     "\"%d\":" NODE(
         "NonTensorStack") "\"leaves\":{},\"non_tensors\":{\"0\":[1,[],null]},\"cls_metadata\":{\"stack_dim\":0}}",
     "}}"},
    {"jagged tensors", "x", make_jagged, "", "", ""},
    {"trees of a lazy stack", "x", NULL,
     NODE("LazyStackedTensorDict") "\"non_tensors\":{},\"leaves\":{},\"cls_metadata\":{\"stack_dim\":0},",
     "\"%d\":" TREE "}", "}"},
};

static double thread_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Makes the file, and returns the shortest CPU time of three calls that open it. */
static double seconds_to_open(const list_case *c, int count) {
  double shortest = 1e9;
  folder f = folder_create();
  if (c->make)
    c->make(&f, count);
  else
    make_consolidated(&f, c, count);
  for (int i = 0; i < 3; i++) {
    const double start = thread_seconds();
    scoped_tree tree = td_made(tree, tdict_open(in(&f, c->name), NULL, &made, err));
    const double seconds = thread_seconds() - start;
    if (seconds < shortest) shortest = seconds;
  }
  remove_all(f.path);
  return shortest;
}

CASE(every_list_is_read_in_linear_time) {
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const double few = seconds_to_open(&lists[i], SHORT), many = seconds_to_open(&lists[i], LONG);
    printf("%s: %.6f s, %.6f s, ratio %.1f\n", lists[i].list, few, many, many / few);
    if (many > MOST_RATIO * few) fail_msg("%s: short %.6f s, long %.6f s", lists[i].list, few, many);
  }
}
