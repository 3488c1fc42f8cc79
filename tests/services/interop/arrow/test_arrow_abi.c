/* Tests the layouts of Arrow's structs. This file declares Arrow's struct of streams before it includes tdict's header,
 * as the header of another library may do. The guards in tdict's header must then skip this struct. */

#define ARROW_C_STREAM_INTERFACE
struct ArrowSchema;
struct ArrowArray;
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

#include "support/test.h"

#if !defined ARROW_C_DATA_INTERFACE || !defined ARROW_C_DEVICE_DATA_INTERFACE
#error "the guards are missing"
#endif

/* The sizes and offsets are computed from the members that the specification lists, with pointers of 8 bytes. */
CASE(arrow_structs_have_the_layout_of_the_specification) {
  assert_int_equal(sizeof(struct ArrowSchema), 72);
  assert_int_equal(offsetof(struct ArrowSchema, metadata), 16);
  assert_int_equal(offsetof(struct ArrowSchema, flags), 24);
  assert_int_equal(offsetof(struct ArrowSchema, dictionary), 48);
  assert_int_equal(offsetof(struct ArrowSchema, release), 56);
  assert_int_equal(sizeof(struct ArrowArray), 80);
  assert_int_equal(offsetof(struct ArrowArray, null_count), 8);
  assert_int_equal(offsetof(struct ArrowArray, offset), 16);
  assert_int_equal(offsetof(struct ArrowArray, buffers), 40);
  assert_int_equal(offsetof(struct ArrowArray, release), 64);
  assert_int_equal(sizeof(struct ArrowArrayStream), 40);
  assert_int_equal(sizeof(struct ArrowDeviceArray), 128);
  assert_int_equal(offsetof(struct ArrowDeviceArray, device_id), 80);
  assert_int_equal(offsetof(struct ArrowDeviceArray, device_type), 88);
  assert_int_equal(offsetof(struct ArrowDeviceArray, sync_event), 96);
  assert_int_equal(offsetof(struct ArrowDeviceArray, reserved), 104);
}
