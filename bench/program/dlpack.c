/* tdict-bench dlpack: measures exporting a tree of 1000 leaves as DLPack structs and importing these structs as a tree,
 * on the host only. tdict-costs counts the instructions of the same work. Thread rule: one thread. */
#include "tdict/dlpack.h"

#include "rows.h"

/* Exports the tree and imports the entries as a new tree. Writes the seconds that each call took. */
static bool exchange(bench_job *job, double *export_seconds, double *import_seconds, tdict_tree **out) {
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  const double begin = bench_now();
  if (!bench_ok("cannot export the tree",
                tdict_dlpack_export_tree(NULL, job->place->sources[0].tree, NULL, &entries, &count, err)))
    return false;
  const double middle = bench_now();
  const bool good = bench_ok("cannot import the tree", tdict_dlpack_import_tree(NULL, entries, count, NULL, out, err));
  *import_seconds = bench_now() - middle;
  *export_seconds = middle - begin;
  tdict_dlpack_release_entries(entries, count);
  return good;
}

/* Checks that the imported tree has the same keys as the source, and that its leaves have the same addresses. */
static int dlpack_verify(bench_job *job) {
  const tdict_tree *source = job->place->sources[0].tree;
  scoped_tree tree = NULL;
  double seconds[2];
  bool good = exchange(job, &seconds[0], &seconds[1], &tree) && tdict_num_keys(tree) == tdict_num_keys(source);
  for (size_t i = 0; good && i < tdict_num_keys(source); i++) {
    const char *key = tdict_get_entry_at(source, i).key;
    good = tdict_const_data(tree, key) && tdict_const_data(tree, key) == tdict_const_data(source, key);
  }
  if (!good) bench_print_error("a leaf was not exported or imported");
  return good ? BENCH_OK : BENCH_DIFFERS;
}

static bool export_sample(bench_job *job, int tree, double *seconds) {
  scoped_tree made = NULL;
  double other;
  (void)tree;
  return exchange(job, seconds, &other, &made);
}

static bool import_sample(bench_job *job, int tree, double *seconds) {
  scoped_tree made = NULL;
  double other;
  (void)tree;
  return exchange(job, &other, seconds, &made);
}

#define ON_HOST .on_host = true, .verify = dlpack_verify
static const bench_kind kind_export = {.name = "export", .sample = export_sample, ON_HOST};
static const bench_kind kind_import = {.name = "import", .sample = import_sample, ON_HOST};

#define TREE .groups = {{1000, 4}}, .worth = 2
static const bench_row rows[] = {
    {.name = "export 1000 leaves", .kind = &kind_export, TREE},
    {.name = "import 1000 leaves", .kind = &kind_import, TREE},
};

BENCH_SCENARIO(dlpack, "dlpack", rows, "exports and imports 1000 leaves through DLPack on the host")
