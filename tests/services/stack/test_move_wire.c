/* Tests transfers of lazy stacks with the options `conversions` and `narrow`. */
#include "engine/conversions.h"
#include "engine/narrow.h"
#include "support/lazy.h"

/* The items are the children "0", "1", ... of one tree, and patterns match their paths. */
DEVICE_CASE(wire_options_of_lazy_stacks) {
  scoped_place w = open_place();
  tdict_tree *layers[3];
  scoped_lazy_stack stack = NULL, moved = NULL;
  const tdict_conversion c = scaled("*.image", TDICT_F32, 0.5, 1);
  const pair_of image = {"image", TDICT_U8, TDICT_F32, 0.5, 1};
  tdict_transfer_options o = td_with(tdict_transfer_options, narrow = 1, conversions = &c, num_conversions = 1);
  for (int i = 0; i < 3; i++) {
    layers[i] = new_tree();
    td_put(layers[i], "ids", pv_tensor(TDICT_I64, SHAPE(1000 + 7 * i), PV_HALF, NULL));
    td_put(layers[i], "image", random_tensor(TDICT_U8, SHAPE(90 + i, 31), NULL));
    td_put(layers[i], "mask", pv_tensor(TDICT_BOOL, SHAPE(5000), i == 1 ? PV_OUTLIER : PV_BYTE, NULL));
  }
  td_ok(tdict_lazy_stack_create(layers, 3, &stack, err));
  td_ok(td_lazy_to_device(w.c, stack, w.device, &o, &moved, err));
  for (int i = 0; i < 3; i++) {
    tdict_tree *got = td_made(tree, tdict_lazy_stack_get_item(moved, i, &made, err));
    check_tensor(&w, td_leaf(layers[i], "ids"), td_leaf(got, "ids"), "ids");
    check_tensor(&w, td_leaf(layers[i], "mask"), td_leaf(got, "mask"), "mask");
    check_converted(&w, &image, td_leaf(layers[i], "image"), td_leaf(got, "image"));
    tdict_release(layers[i]);
  }
}
