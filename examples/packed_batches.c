/* packed_batches: packs documents of 8 to 2048 tokens into batches of at most 65536
 * tokens, without padding.
 *
 *   packed_batches [[--device] DEVICE]     auto (default), cpu, sim, cuda:N
 *
 * All documents are in one array of tokens, and a sample is a view of this array. The
 * loader copies each token once, into the pinned memory of the batch. A batch has the
 * leaves `tokens`, `cu_seqlens` and `max_seqlen`, which attention kernels for variable
 * lengths read. The exit status is 0 if every document was delivered once. */
#include <stdio.h>
#include <string.h>

#include <tdict/combine.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>
#include <tdict/view.h>

enum { DOCUMENTS = 1000, SHORTEST = 8, LONGEST = 2048, BUDGET = 65536 };
static tdict_error err;

typedef struct corpus {
  tdict_tensor *tokens; /* the tokens of all documents, one document after another */
  int64_t begins[DOCUMENTS + 1];
} corpus;

static int64_t count_documents(void *self) {
  (void)self;
  return DOCUMENTS;
}
static int64_t document_length(void *self, int64_t i) {
  return ((corpus *)self)->begins[i + 1] - ((corpus *)self)->begins[i];
}

/* Returns document i as a tree whose leaf is a view of the array. */
static tdict_status make_document(void *self, const tdict_fetch_info *info, int64_t i,
                                  tdict_tree **out, tdict_error *e) {
  (void)info;
  const corpus *c = self;
  const tdict_tensor_range range = {
      .dim = 0, .start = c->begins[i], .count = document_length(self, i), .step = 1};
  tdict_tree *tree;
  tdict_tensor *view = NULL;
  tdict_status status = tdict_create(0, NULL, &tree, e);
  if (status != TDICT_OK) return status;
  status = tdict_tensor_slice(c->tokens, &range, &view, e);
  if (status == TDICT_OK) status = tdict_set(tree, "tokens", view, e);
  tdict_tensor_release(view);
  if (status == TDICT_OK)
    *out = tree;
  else
    tdict_release(tree);
  return status;
}

static tdict_status open_corpus(corpus *c, tdict_dataset **out) {
  tdict_dataset_table data = tdict_dataset_table_default();
  data.self = c;
  data.length = count_documents;
  data.fetch_sample = make_document;
  data.sample_length = document_length;
  return tdict_dataset_create(&data, out, &err);
}

static int pack_documents(tdict_context *context, corpus *c) {
  tdict_dataset *data = NULL;
  tdict_pack_options pack = tdict_pack_options_default();
  tdict_loader_options o = tdict_loader_options_default();
  tdict_batch_info info = tdict_batch_info_default();
  tdict_loader *loader = NULL;
  tdict_tree *batch;
  int64_t documents = 0;
  o.batch_size = BUDGET / SHORTEST; /* at most; max_tokens is the limit that matters */
  o.max_tokens = BUDGET;
  o.pack = &pack;
  o.shuffle = true;
  TDICT_TRY(open_corpus(c, &data));
  TDICT_TRY(tdict_loader_create(context, data, &o, &loader, &err));
  for (;;) {
    TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
    if (!batch) break; /* the end of the epoch */
    TDICT_TRY(tdict_loader_get_batch_info(loader, &info, &err));
    /* Here the kernels run on tdict_data(batch,
     * "tokens") and tdict_data(batch, "cu_seqlens"). */
    printf("%4d documents, %5d tokens, at most %4d\n", (int)info.num_samples,
           (int)info.num_tokens, (int)info.max_seqlen);
    documents += info.num_samples;
    tdict_release(batch);
  }

done:
  tdict_loader_destroy(loader);
  tdict_dataset_release(data);
  return documents == DOCUMENTS ? 0 : 1;
}

int main(int argc, char **argv) {
  static corpus c;
  tdict_context *context = NULL;
  tdict_context_options o = tdict_context_options_default();
  tdict_sim_options sim = tdict_sim_options_default();
  int code = 1;
  unsigned random = 1;
  if (argc > 3 || (argc == 3 && strcmp(argv[1], "--device") != 0) ||
      (argc == 2 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: packed_batches [[--device] auto|cpu|sim|cuda:N]\n");
    return 2;
  }
  for (int i = 0; i < DOCUMENTS; i++) {
    random = random * 1664525u + 1013904223u;
    c.begins[i + 1] =
        c.begins[i] + SHORTEST + (int64_t)((random >> 8) % (LONGEST - SHORTEST + 1));
  }
  o.sim = &sim;
  if (argc > 1) TDICT_TRY(tdict_device_parse(argv[argc - 1], &o.device, &err));
  TDICT_TRY(tdict_context_create(&o, &context, &err));
  TDICT_TRY(tdict_tensor_arange(TDICT_I64, 0, 1, c.begins[DOCUMENTS], &c.tokens, &err));
  code = pack_documents(context, &c);

done:
  tdict_tensor_release(c.tokens);
  tdict_context_destroy(context);
  return code;
}
