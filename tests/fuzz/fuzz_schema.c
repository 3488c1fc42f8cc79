/* Fuzzes schema blobs. If a blob is accepted, the schema must write the same bytes, all entries must be readable, and
 * the tree made from it must have the same schema. If a blob is refused, the message must contain an offset. Thread
 * rule: one thread. */
#include "demand.h"
#include "tdict/schema.h"
#include "tdict/tdict.h"

enum { MOST_BYTES = 1 << 20 }; /* schemas with more bytes are not made into trees */

static long long trees;

void fuzz_print_counts(void) { fprintf(stderr, "%lld accepted, %lld refused, %lld trees\n", accepted, refused, trees); }

/* Reads the entries, and returns the total size of the tensors in bytes. Stops once the sum exceeds MOST_BYTES. */
static size_t sum_bytes(const tdict_schema *s) {
  size_t sum = 0;
  for (size_t i = 0; i < tdict_schema_get_info(s).num_entries && sum <= MOST_BYTES; i++) {
    tdict_schema_entry e;
    char path[64];
    demand(tdict_schema_get_entry(s, i, &e, NULL) == TDICT_OK, "an entry cannot be read");
    demand(tdict_schema_get_path(s, i, path, sizeof path) >= strlen(e.key), "a path is shorter than its key");
    demand(e.parent < (int64_t)i, "an entry comes before its parent");
    size_t size = e.kind == TDICT_SCHEMA_TENSOR ? tdict_dtype_bytes(e.dtype) : 0;
    for (int d = 0; d < e.batch_ndim + e.ndim && size; d++) {
      int64_t n = d < e.batch_ndim ? e.batch_size[d] : e.shape[d - e.batch_ndim];
      demand(n >= 0, "a size is negative");
      size = n > MOST_BYTES ? MOST_BYTES + 1 : size * (size_t)n;
      if (size > MOST_BYTES) size = MOST_BYTES + 1;
    }
    sum += size;
  }
  return sum;
}

static void make_tree(const tdict_schema *s) {
  scoped_tree tree = NULL;
  scoped_schema again = NULL;
  tdict_schema_difference difference;
  trees++;
  demand(tdict_create_from_schema(s, NULL, &tree, NULL) == TDICT_OK, "the tree cannot be made");
  demand(tdict_schema_from_tree(tree, &again, NULL) == TDICT_OK, "the tree has no schema");
  demand(tdict_schema_equal(s, again, &difference), "the tree has another schema");
  demand(!difference.message[0], "a difference");
}

/* Compares the schema with the schema of the previous input, in both directions. */
static void compare_with_last(tdict_schema *s) {
  static tdict_schema *last;
  tdict_schema_difference a, b;
  if (last) {
    const bool equal = tdict_schema_equal(s, last, &a);
    demand(tdict_schema_equal(last, s, &b) == equal, "equal is not symmetric");
    demand(equal == !a.message[0] && equal == !b.message[0], "a difference without a message");
  }
  tdict_schema_release(last);
  last = s;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static bool begun;
  tdict_schema *s = NULL;
  tdict_error error = {0};
  if (!begun) {
    begun = true;
    atexit(fuzz_print_counts);
  }
  tdict_status status = tdict_schema_read(bytes, count, &s, &error);
  if (status != TDICT_OK) {
    refused++;
    demand(status == TDICT_EFORMAT || status == TDICT_ENOTSUP, "another status");
    demand(strstr(error.message, "at byte ") != NULL, "a message without an offset");
    return 0;
  }
  accepted++;
  scoped_bytes again = malloc(count);
  demand(again && tdict_schema_write(s, again, count) == count && memcmp(again, bytes, count) == 0,
         "the schema writes another blob");
  if (tdict_schema_get_info(s).num_objects == 0 && sum_bytes(s) <= MOST_BYTES) make_tree(s);
  compare_with_last(s);
  return 0;
}
