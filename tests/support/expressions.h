/* Macros that most cases use: they return the result of a call, change some fields of options, or release objects. */
#ifndef TDICT_TESTS_SUPPORT_EXPRESSIONS_H
#define TDICT_TESTS_SUPPORT_EXPRESSIONS_H

/* Makes a call, which must succeed, and returns what it writes to `made`: td_made(tree, tdict_clone(td, &made, err)).
 * `name` is a type in scoped.h. */
#define td_made(name, call)       \
  __extension__({                 \
    td_scoped_##name made = NULL; \
    td_ok(call);                  \
    made;                         \
  })

/* Makes a call, which must succeed, and returns the struct that it fills: td_filled(tdict_transfer_stats,
 * tdict_future_get_stats(f, &made, err)). */
#define td_filled(type, call)     \
  __extension__({                 \
    type made = type##_default(); \
    td_ok(call);                  \
    made;                         \
  })

/* Returns a default struct with changed fields: td_with(tdict_loader_options, batch_size = 8, shuffle = true). */
#define td_with(type, ...)               \
  __extension__({                        \
    type with_ = type##_default();       \
    TD_EACH(TD_SET_FIELD_, __VA_ARGS__); \
    with_;                               \
  })
#define TD_SET_FIELD_(field) with_.field
/* Like td_with(), but returns a pointer, valid until the end of the block or, in td_ok(), until the call returns. */
#define td_options(type, ...) ((type[]){td_with(type, __VA_ARGS__)})

/* Initializer of a tdict_type: static const tdict_type box = TD_TYPE(.name = "box", .release = release_box); */
#define TD_TYPE(...) \
  { .struct_size = sizeof(tdict_type), __VA_ARGS__ }

/* Releases trees, tensors and other objects in order, and sets the variables to NULL: td_release(out, tensor, td). Can
 * also release scoped variables early. */
#define td_release(...) TD_EACH(TD_RELEASE_, __VA_ARGS__)
#define TD_RELEASE_(object)                                \
  (_Generic((object), tdict_tree *                         \
            : tdict_release, tdict_tensor *                \
            : tdict_tensor_release, tdict_future *         \
            : tdict_future_release, tdict_context *        \
            : tdict_context_destroy, tdict_storage *       \
            : tdict_storage_release, tdict_memory *        \
            : tdict_memory_release, tdict_driver *         \
            : tdict_driver_release, tdict_pool *           \
            : tdict_pool_destroy, tdict_loader *           \
            : tdict_loader_destroy, tdict_dataset *        \
            : tdict_dataset_release, tdict_sampler *       \
            : tdict_sampler_release, tdict_replay *        \
            : tdict_replay_release, tdict_schema *         \
            : tdict_schema_release, tdict_ragged *         \
            : tdict_ragged_release, tdict_lazy_stack *     \
            : tdict_lazy_stack_release, tdict_share_ring * \
            : tdict_share_ring_destroy, tdict_comm *       \
            : tdict_comm_destroy)(object),                 \
   (void)((object) = NULL))

/* Applies a macro to each of up to ten arguments. */
#define TD_EACH(apply, ...)                                                                                      \
  TD_ELEVENTH_(__VA_ARGS__, TD_EACH_10_, TD_EACH_9_, TD_EACH_8_, TD_EACH_7_, TD_EACH_6_, TD_EACH_5_, TD_EACH_4_, \
               TD_EACH_3_, TD_EACH_2_, TD_EACH_1_, )                                                             \
  (apply, __VA_ARGS__)
#define TD_ELEVENTH_(a, b, c, d, e, f, g, h, i, j, chosen, ...) chosen
#define TD_EACH_1_(apply, a) apply(a)
#define TD_EACH_2_(apply, a, ...) apply(a), TD_EACH_1_(apply, __VA_ARGS__)
#define TD_EACH_3_(apply, a, ...) apply(a), TD_EACH_2_(apply, __VA_ARGS__)
#define TD_EACH_4_(apply, a, ...) apply(a), TD_EACH_3_(apply, __VA_ARGS__)
#define TD_EACH_5_(apply, a, ...) apply(a), TD_EACH_4_(apply, __VA_ARGS__)
#define TD_EACH_6_(apply, a, ...) apply(a), TD_EACH_5_(apply, __VA_ARGS__)
#define TD_EACH_7_(apply, a, ...) apply(a), TD_EACH_6_(apply, __VA_ARGS__)
#define TD_EACH_8_(apply, a, ...) apply(a), TD_EACH_7_(apply, __VA_ARGS__)
#define TD_EACH_9_(apply, a, ...) apply(a), TD_EACH_8_(apply, __VA_ARGS__)
#define TD_EACH_10_(apply, a, ...) apply(a), TD_EACH_9_(apply, __VA_ARGS__)

#endif
