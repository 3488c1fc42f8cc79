#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { IMAGES = 60, PIXELS = 28 * 28, CLASSES = 10, BATCH = 20 };

/* Makes the dataset: images as the bytes of the file, and labels as
 * vectors with one 1. All pixels of image i are i, and its class is i % 10. */
static tdict_status make_dataset(tdict_dataset **out, tdict_error *err) {
  static const tdict_field fields[] = {TDICT_FIELD("image", TDICT_U8, PIXELS),
                                       TDICT_FIELD("label", TDICT_F32, CLASSES)};
  tdict_tree *samples = NULL;
  tdict_status status =
      tdict_create_from(fields, 2, TDICT_SHAPE(IMAGES), NULL, &samples, err);
  if (status != TDICT_OK) return status;
  uint8_t *images = tdict_data(samples, "image");
  float *labels = tdict_data(samples, "label");
  for (int i = 0; i < IMAGES * PIXELS; i++) images[i] = (uint8_t)(i / PIXELS);
  for (int i = 0; i < IMAGES; i++) labels[i * CLASSES + i % CLASSES] = 1;
  status = tdict_dataset_from_tree(samples, out, err);
  tdict_release(samples);
  return status;
}

/* Makes a loader whose images arrive on the device as floats from 0 to 1. */
static tdict_status make_loader(tdict_context *context, tdict_loader **out,
                                tdict_error *err) {
  static tdict_conversion to_float; /* the loader borrows it */
  tdict_loader_options loading = tdict_loader_options_default();
  tdict_dataset *dataset = NULL;
  tdict_status status = make_dataset(&dataset, err);
  to_float = tdict_conversion_default();
  to_float.pattern = "image";
  to_float.dtype = TDICT_F32;
  to_float.scale = 1 / 255.0;
  loading.batch_size = BATCH;
  loading.shuffle = true;
  loading.conversions = &to_float;
  loading.num_conversions = 1;
  if (status == TDICT_OK)
    status = tdict_loader_create(context, dataset, &loading, out, err);
  tdict_dataset_release(dataset);
  return status;
}

/* Puts device memory of another library into a tree, for example `inputs->data` of
 * ggml. The sizes are in the order of C, so ne[0] of ggml comes last. */
static tdict_status add_tensor(tdict_tree *tree, const char *key, void *data,
                               int64_t size, tdict_device device, tdict_error *err) {
  const int64_t shape[] = {BATCH, size};
  tdict_tensor_desc desc = tdict_tensor_desc_default();
  tdict_tensor *tensor = NULL;
  desc.data = data;
  desc.device = device;
  desc.dtype = TDICT_F32;
  desc.ndim = 2;
  desc.shape = shape;
  tdict_status status = tdict_tensor_from_data(&desc, NULL, NULL, &tensor, err);
  if (status == TDICT_OK) status = tdict_set(tree, key, tensor, err);
  tdict_tensor_release(tensor);
  return status;
}

/* Counts the images of the graph's inputs that do not have their label. */
static tdict_status count_wrong(tdict_context *context, const tdict_tree *inputs,
                                int *wrong, tdict_error *err) {
  tdict_tree *host = NULL;
  tdict_status status = tdict_to_device(context, inputs, tdict_cpu(), NULL, &host, err);
  if (status != TDICT_OK) return status;
  const float *images = tdict_const_data(host, "image");
  const float *labels = tdict_const_data(host, "label");
  for (int i = 0; i < BATCH; i++) {
    const int number = (int)(images[i * PIXELS] * 255 + 0.5f);
    *wrong += labels[i * CLASSES + number % CLASSES] != 1;
  }
  tdict_release(host);
  return TDICT_OK;
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_loader *loader = NULL;
  tdict_tensor *image = NULL, *label = NULL; /* stand for tensors of ggml */
  tdict_tree *inputs = NULL, *batch = NULL;
  int batches = 0, wrong = 0;
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  tdict_memory *memory = tdict_device_memory(context, options.device);
  TDICT_TRY(
      tdict_tensor_empty(TDICT_F32, TDICT_SHAPE(BATCH * PIXELS), memory, &image, &err));
  TDICT_TRY(tdict_tensor_empty(TDICT_F32, TDICT_SHAPE(BATCH * CLASSES), memory, &label,
                               &err));
  TDICT_TRY(tdict_create(TDICT_SHAPE(BATCH), &inputs, &err));
  TDICT_TRY(add_tensor(inputs, "image", tdict_tensor_data(image), PIXELS,
                       options.device, &err));
  TDICT_TRY(add_tensor(inputs, "label", tdict_tensor_data(label), CLASSES,
                       options.device, &err));
  TDICT_TRY(make_loader(context, &loader, &err));
  for (;;) {
    TDICT_TRY(tdict_loader_next(loader, tdict_no_stream(), &batch, &err));
    if (!batch) break; /* the end of the epoch */
    TDICT_TRY(tdict_transfer_into(context, inputs, batch, NULL, &err));
    tdict_release(batch);
    TDICT_TRY(count_wrong(context, inputs, &wrong, &err)); /* ggml_opt_eval() */
    batches++;
  }
  printf("%d batches of %d images, %d wrong\n", batches, (int)BATCH, wrong);
done:
  tdict_loader_destroy(loader);
  tdict_release(inputs);
  tdict_tensor_release(label);
  tdict_tensor_release(image);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
