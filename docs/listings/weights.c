#include <tdict/tdict.h>
#include <tdict/try.h>
#include <tdict/wire.h>

/* Writes a small model of float32 numbers, as a training program might. */
static int write_model(const char *path) {
  static const tdict_field fields[] = {
      TDICT_FIELD("model.layers.0.weight", TDICT_F32, 8, 8),
      TDICT_FIELD("model.layers.0.scale", TDICT_F32, 8),
      TDICT_FIELD("model.layers.1.weight", TDICT_F32, 8, 8),
      TDICT_FIELD("lm_head.weight", TDICT_F32, 16, 8)};
  tdict_tree *model = NULL;
  tdict_error err = {0};
  TDICT_TRY(tdict_create_from(fields, 4, 0, NULL, NULL, &model, &err));
  TDICT_TRY(tdict_save(NULL, path, model, NULL, &err));
done:
  tdict_release(model);
  return err.status != TDICT_OK;
}

/* Loads one layer to the device. Only its bytes are
 * read, and its weights become bfloat16 on the way. */
static int load_layer(tdict_context *context, const char *path) {
  static const char *const keys[] = {"model.layers.0"};
  tdict_open_options open = tdict_open_options_default();
  tdict_conversion to_bf16 = tdict_conversion_default();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  tdict_load_options options = tdict_load_options_default();
  tdict_tree *layer = NULL;
  tdict_error err = {0};
  open.keys = keys; /* names in the file, each with everything below it */
  open.num_keys = 1;
  open.strip_prefix = "model"; /* without the dot at the end */
  to_bf16.pattern = "**.weight";
  to_bf16.dtype = TDICT_BF16;
  transfer.conversions = &to_bf16;
  transfer.num_conversions = 1;
  options.open = &open;
  options.transfer = &transfer;
  TDICT_TRY(tdict_load(context, path, tdict_context_device(context, NULL), &options,
                       &layer, &err));
  TDICT_TRY(tdict_print(layer, stdout, &err));
done:
  tdict_release(layer);
  return err.status != TDICT_OK;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_error err = {0};
  int failed = 1;
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  failed = write_model("model.safetensors") || load_layer(context, "model.safetensors");
done:
  tdict_context_destroy(context);
  return failed;
}
