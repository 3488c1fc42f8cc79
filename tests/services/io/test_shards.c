/* Tests an index with many shards: few descriptors, shards that are replaced, and the cost of a long index. */
#include "files.h"

#include <sys/resource.h>

#include "support/descriptors.h"

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
static uint64_t num_comparisons;
int __wrap_strcmp(const char *a, const char *b) {
  num_comparisons++;
  return __real_strcmp(a, b);
}

/* Writes `count` shards of `tensors` tensors, each of 8 bytes, and an index that lists them in a mixed order. The first
 * byte of tensor t in shard s is s + t. */
static void write_shards(const folder *f, int count, int tensors) {
  scoped_chars header = malloc((size_t)tensors * 96 + 2);
  char name[32];
  scoped_chars index = malloc((size_t)(count * tensors) * 64 + 64);
  size_t length = (size_t)sprintf(index, "{\"weight_map\":{");
  scoped_bytes all = calloc(1, (size_t)tensors * 104 + 16);
  for (int s = 0; s < count; s++) {
    size_t bytes = 0;
    for (int t = 0; t < tensors; t++)
      bytes += (size_t)sprintf(header + bytes, "%s\"k%d_%d\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[%d,%d]}",
                               t ? "," : "{", s, t, 8 * t, 8 * t + 8);
    header[bytes++] = '}';
    for (int i = 0; i < 8; i++) all[i] = (unsigned char)(bytes >> 8 * i);
    memcpy(all + 8, header, bytes);
    for (int t = 0; t < tensors; t++) all[8 + bytes + 8 * (size_t)t] = (unsigned char)(s + t);
    snprintf(name, sizeof name, "s%05d", s);
    write_bytes(in(f, name), all, 8 + bytes + 8 * (size_t)tensors);
  }
  for (int t = 0; t < tensors; t++)
    for (int s = 0; s < count; s++)
      length += (size_t)sprintf(index + length, "%s\"k%d_%d\":\"s%05d\"", t || s ? "," : "", s, t, s);
  length += (size_t)sprintf(index + length, "}}");
  write_bytes(in(f, "i.json"), index, length);
}

static void check_shards(const tdict_tree *tree, int count, int tensors) {
  assert_int_equal(tdict_num_leaves(tree), count * tensors);
  for (int s = 0; s < count; s++)
    for (int t = 0; t < tensors; t++) {
      const unsigned char *data = tdict_const_data(tree, td_text("k%d_%d", s, t));
      assert_non_null(data);
      assert_int_equal(data[0], (unsigned char)(s + t));
    }
}

CASE(shards_need_few_descriptors) {
  enum { COUNT = 300, LIMIT = 100 };
  scoped_folder f = folder_create();
  scoped_context c = td_context(NULL);
  struct rlimit old, low;
  write_shards(&f, COUNT, 2);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  low = (struct rlimit){LIMIT, old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  const int before = td_count_descriptors();
  tdict_tree *tree = td_made(tree, tdict_open(in(&f, "i.json"), NULL, &made, err));
  assert_int_equal(td_count_descriptors(), before);
  check_shards(tree, COUNT, 2);
  tdict_release(tree);
  td_ok(tdict_load(c, in(&f, "i.json"), tdict_cpu(), NULL, &tree, err));
  assert_int_equal(td_count_descriptors(), before);
  check_shards(tree, COUNT, 2);
  tdict_tree *zeros = td_made(tree, tdict_clone_deep(tree, NULL, &made, err));
  td_ok(tdict_fill(zeros, NULL, 0, NULL, err));
  td_ok(td_load_into(c, zeros, in(&f, "i.json"), NULL, err));
  check_shards(zeros, COUNT, 2);
  td_release(zeros, tree);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static char logged[512];
static int32_t logged_level;
static int num_logged;
static void note_log(void *user, int32_t level, const char *text) {
  (void)user;
  if (!strstr(text, "does not name")) return;
  num_logged++;
  logged_level = level;
  snprintf(logged, sizeof logged, "%s", text);
}
/* The index of another program may omit tensors. An open ignores these tensors, and a load logs their number. */
CASE(shards_may_have_tensors_without_name) {
  static const char index[] = "{\"weight_map\":{\"k1_0\":\"s00001\",\"k0_1\":\"s00000\"}}";
  tdict_context_options options = tdict_context_options_default();
  scoped_folder f = folder_create();
  scoped_context c = NULL;
  tdict_tree *tree = NULL;
  options.device = tdict_cpu();
  options.log = note_log;
  td_ok(tdict_context_create(&options, &c, err));
  write_shards(&f, 2, 3);
  td_ok(tdict_load(c, in(&f, "i.json"), tdict_cpu(), NULL, &tree, err));
  check_shards(tree, 2, 3);
  tdict_release(tree);
  assert_int_equal(num_logged, 0);
  write_bytes(in(&f, "i.json"), index, sizeof index - 1);
  td_ok(tdict_open(in(&f, "i.json"), NULL, &tree, err));
  assert_int_equal(tdict_num_leaves(tree), 2);
  tdict_release(tree);
  td_ok(tdict_load(c, in(&f, "i.json"), tdict_cpu(), NULL, &tree, err));
  assert_int_equal(tdict_num_leaves(tree), 2);
  assert_true(tdict_has(tree, "k1_0") && tdict_has(tree, "k0_1"));
  tdict_release(tree);
  assert_int_equal(num_logged, 1);
  assert_int_equal(logged_level, TDICT_LOG_INFO);
  assert_non_null(strstr(logged, "load: 4 tensors of the shards are left out"));
  assert_non_null(strstr(logged, in(&f, "i.json")));
}

/* Replaces a shard after its header was read. */
static bool replace_shard(void *user, uint64_t done, uint64_t total) {
  const folder *f = user;
  (void)total;
  if (!done) assert_int_equal(rename(in(f, "new"), in(f, "s00099")), 0);
  return true;
}

CASE(shards_that_are_replaced_are_not_mixed) {
  scoped_folder f = folder_create();
  scoped_context c = td_context(NULL);
  tdict_tree *tree = NULL;
  size_t count;
  write_shards(&f, 100, 1);
  scoped_bytes bytes = read_bytes(in(&f, "s00099"), &count);
  bytes[count - 1] = 1;
  write_bytes(in(&f, "new"), bytes, count);
  tdict_load_options o = td_with(tdict_load_options, progress = replace_shard, user = &f);
  td_fails_at(TDICT_EIO, "s00099 was replaced by another file", "k99_0",
              tdict_load(c, in(&f, "i.json"), tdict_cpu(), &o, &tree, err));
}

/* Makes and opens an index. Returns how often the open called strcmp(). */
static uint64_t count_comparisons(int shards, int tensors) {
  scoped_folder f = folder_create();
  write_shards(&f, shards, tensors);
  const char *path = in(&f, "i.json");
  num_comparisons = 0;
  scoped_tree tree = td_made(tree, tdict_open(path, NULL, &made, err));
  const uint64_t count = num_comparisons;
  return count;
}

/* Twice as many shards or tensors need less than three times as many comparisons. */
CASE(shards_are_found_quickly) {
  const uint64_t few = count_comparisons(250, 4), more_shards = count_comparisons(500, 4);
  const uint64_t more_tensors = count_comparisons(250, 8);
  assert_true(few > 1000);
  assert_true(more_shards < 3 * few);
  assert_true(more_tensors < 3 * few);
}
