/* text_leaves: keeps the prompt of each sample in its batch,
 * through a shuffle, a copy to a device and a print. */
#include <tdict/index.h>
#include <tdict/nontensor.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

int main(int argc, char **argv) {
  static const char *const prompts[] = {"add 2 and 3", "name a river", "spell cat",
                                        "count to 4"};
  static const int64_t order[] = {2, 0, 3, 1};
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *batch = NULL, *shuffled = NULL, *moved = NULL;
  const char *prompt;
  tdict_error err = {0};
  TDICT_TRY(tdict_device_parse(argc > 1 ? argv[1] : "auto", &options.device, &err));
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  TDICT_TRY(tdict_create(1, (const int64_t[]){4}, &batch, &err));
  /* one text for each sample */
  TDICT_TRY(tdict_set_texts(batch, "prompt", prompts, 4, &err));
  /* one text for the whole batch */
  TDICT_TRY(tdict_set_text(batch, "source", "demo", &err));
  TDICT_TRY(tdict_index_get(NULL, batch, TDICT_INDEX(TDICT_LIST(order, 4)), NULL,
                            &shuffled, &err));
  TDICT_TRY(tdict_to_device(context, shuffled, tdict_context_device(context, NULL),
                            NULL, &moved, &err));
  TDICT_TRY(tdict_get_text(moved, "prompt", 0, &prompt, NULL, &err));
  printf("sample 0: %s\n", prompt);
  TDICT_TRY(tdict_print(moved, stdout, &err));
done:
  tdict_release(moved);
  tdict_release(shuffled);
  tdict_release(batch);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
