/* Binds a struct of the program to a tree. The members of the struct are tensors, and a table lists their paths:
 *
 *     struct transition {
 *       tdict::tensor state, action;
 *     };
 *     TDICT_BIND(transition, "transition", {&transition::state, "obs.state", TDICT_F32, {17}},
 *                {&transition::action, "action", TDICT_I64, {}})
 *
 * With this table, make(), pack() and unpack() work for the struct. The table also defines a tdict_type, so the struct
 * can be an object of a tree. Transfers pin and move it, and operations index, stack and clone it (tdict/object.h). */
#ifndef TDICT_HPP_BIND_HPP
#define TDICT_HPP_BIND_HPP

#include "tdict/hook.h"
#include "tdict/hpp/callback.hpp"
#include "tdict/hpp/tree.hpp"

TDICT_HPP_BEGIN

/** Points to a member of S. This alias exists because nvcc adds parentheses to the plain type, and gcc then warns. */
template <class S> using tensor_member = tensor S::*;

/** A row of the table: a member, its path in the tree, its dtype, and its sizes after the batch dimensions. A row has
 *  at most six sizes. The size -1 allows any size. */
template <class S> struct member {
  tensor_member<S> field; /**< the member of the struct */
  const char *path;       /**< the path of the tensor in the tree, borrowed */
  tdict_dtype dtype;      /**< the dtype that the tensor must have */
  int ndim;               /**< the number of sizes in `shape` */
  int64_t shape[6];       /**< the sizes of the last `ndim` dimensions; -1 allows any size */

  /** Fills the row. Borrows `path_`, which must live as long as the row. */
  member(tensor_member<S> field_, const char *path_, tdict_dtype dtype_, std::initializer_list<int64_t> shape_)
      : field(field_), path(path_), dtype(dtype_), ndim(static_cast<int>(shape_.size())), shape() {
    assert(shape_.size() <= 6);
    int i = 0;
    for (int64_t size : shape_) shape[i++] = size;
  }
};

/** The table of the struct S. TDICT_BIND() defines this table. */
template <class S> struct binding;

/** Defines the table of the struct `S`. `type_name` is the name of the tdict_type, for messages. Use the macro outside
 *  of all namespaces, in a file or header that every user of the table includes. */
#define TDICT_BIND(S, type_name, ...)                                                    \
  template <> struct tdict::binding<S> {                                                 \
    static const char *name() noexcept { return type_name; }                             \
    static tdict::span<const tdict::member<S>> members() {                               \
      static const tdict::member<S> table[] = {__VA_ARGS__};                             \
      return tdict::span<const tdict::member<S>>(table, sizeof table / sizeof table[0]); \
    }                                                                                    \
  };

namespace detail {
/* Checks a tensor against its row of the table. Sets *batch_ndim to the number of leading dimensions. */
template <class S> tdict_status check_member(const member<S> &m, tensor_ref found, int *batch_ndim, tdict_error &err) {
  if (!found) return fail(err, TDICT_EINVAL, m.path, "bind: the member has no tensor");
  if (found.dtype() != m.dtype) return fail_dtype(err, m.path, found.dtype(), m.dtype);
  *batch_ndim = found.ndim() - m.ndim;
  bool fits = *batch_ndim >= 0;
  for (int i = 0; fits && i < m.ndim; i++)
    fits = m.shape[i] == -1 || found.shape()[static_cast<std::size_t>(*batch_ndim + i)] == m.shape[i];
  if (fits) return TDICT_OK;
  char text[160];
  int n = std::snprintf(text, sizeof text, "bind: the shape ends with other sizes, wanted [");
  for (int i = 0; i < m.ndim; i++)
    n += std::snprintf(text + n, sizeof text - static_cast<std::size_t>(n), i ? ", %lld" : "%lld",
                       static_cast<long long>(m.shape[i]));
  std::snprintf(text + n, sizeof text - static_cast<std::size_t>(n), "]");
  return fail(err, TDICT_ESHAPE, m.path, text);
}

/* Sets the tensors of `value` in `out`. Creates the tree from the first member if `out` is empty. */
template <class S> tdict_status pack(const S &value, tree &out, tdict_error &err) {
  for (const member<S> &m : binding<S>::members()) {
    const tensor &found = value.*m.field;
    int batch_ndim = 0;
    tdict_status status = check_member(m, found, &batch_ndim, err);
    tdict_tree *made = nullptr;
    if (status == TDICT_OK && !out) status = tdict_create(batch_ndim, found.shape().data(), &made, &err);
    if (made) out.reset(made);
    if (status == TDICT_OK) status = tdict_set(out.raw(), m.path, found.raw(), &err);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

/* Sets the members of `out` to the tensors of a tree. */
template <class S> tdict_status unpack(tree_ref from, S &out, tdict_error &err) {
  const int batch_ndim = from ? tdict_batch_ndim(from.raw()) : 0;
  for (const member<S> &m : binding<S>::members()) {
    tdict_tensor *found = nullptr;
    int leading = 0;
    tdict_status status = tdict_get(from.raw(), m.path, &found, &err);
    if (status == TDICT_OK) status = check_member(m, found, &leading, err);
    if (status == TDICT_OK && leading < batch_ndim)
      status =
          fail(err, TDICT_ESHAPE, m.path, "bind: the tensor has fewer dimensions than the batch size and the field");
    if (status != TDICT_OK) return status;
    out.*m.field = tensor_ref(found).share();
  }
  return TDICT_OK;
}

/* The hooks of the tdict_type. C code calls these functions, so pin_memory() and unflatten() catch exceptions of the
 * constructor of S. */
template <class S> struct hooks {
  static S *of(void *self) noexcept { return static_cast<S *>(self); }
  static const S *of(const void *self) noexcept { return static_cast<const S *>(self); }
  static tdict_status no_memory(tdict_error *err) noexcept {
    if (err) fail(*err, TDICT_ENOMEM, "", "bind: no memory for the struct");
    return TDICT_ENOMEM;
  }
  /* Writes the new struct to *out if `status` is TDICT_OK, else deletes the struct and writes the error. */
  static tdict_status put(S *made, tdict_status status, const tdict_error &failure, void **out, tdict_error *err) {
    if (status == TDICT_OK) {
      *out = made;
    } else {
      if (err) *err = failure;
      delete made;
    }
    return status;
  }
  static void release(void *self) { delete of(self); }
  static tdict_status pin_memory(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
    return catch_all(err, [=]() { return pin(self, hook, out, err); });
  }
  static tdict_status pin(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
    S *made = new (std::nothrow) S();
    if (!made) return no_memory(err);
    tdict_error failure;
    tdict_status status = TDICT_OK;
    for (const member<S> &m : binding<S>::members()) {
      tdict_tensor *pinned = nullptr;
      if (!(of(self)->*m.field)) continue; /* the member stays empty */
      status = tdict_hook_pin(hook, (of(self)->*m.field).raw(), &pinned, &failure);
      if (status != TDICT_OK) break;
      (made->*m.field).reset(pinned);
    }
    return put(made, status, failure, out, err);
  }
  static bool is_pinned(const void *self) {
    for (const member<S> &m : binding<S>::members()) {
      const tensor &t = of(self)->*m.field;
      if (t && t.device().type == TDICT_DEVICE_CPU && !t.is_pinned()) return false;
    }
    return true;
  }
  static tdict_status flatten(const void *self, tdict_tree **out, tdict_error *err) {
    tree made;
    tdict_error failure;
    tdict_status status = pack(*of(self), made, failure);
    if (status == TDICT_OK) *out = made.detach();
    if (status == TDICT_OK || !err) return status;
    *err = failure;
    if (failure.path[0]) /* the library sets the path of the object, so the message gets that of the member */
      std::snprintf(err->message, sizeof err->message, "%.100s: %.150s", failure.path, failure.message);
    return status;
  }
  static tdict_status unflatten(const void *, const tdict_tree *from, void **out, tdict_error *err) {
    return catch_all(err, [=]() { return fill(from, out, err); });
  }
  static tdict_status fill(const tdict_tree *from, void **out, tdict_error *err) {
    S *made = new (std::nothrow) S();
    if (!made) return no_memory(err);
    tdict_error failure;
    tdict_status status = TDICT_OK;
    for (const member<S> &m : binding<S>::members()) { /* no check of the shapes, which operations may change */
      tdict_tensor *found = nullptr;
      status = tdict_get(from, m.path, &found, &failure);
      if (status != TDICT_OK) break;
      made->*m.field = tensor_ref(found).share();
    }
    return put(made, status, failure, out, err);
  }
  static std::size_t bytes(const void *self) {
    std::size_t total = 0;
    for (const member<S> &m : binding<S>::members())
      if (of(self)->*m.field) total += (of(self)->*m.field).bytes();
    return total;
  }
  static tdict_type make() noexcept {
    tdict_type type = tdict_type_default();
    type.name = binding<S>::name();
    type.release = release;
    type.pin_memory = pin_memory;
    type.is_pinned = is_pinned;
    type.flatten = flatten;
    type.unflatten = unflatten;
    type.bytes = bytes;
    return type;
  }
};
} // namespace detail

/** Returns the tdict_type of a bound struct. All files of a program that report errors in the same way
 *  (tdict/hpp/result.hpp) get the same address. */
template <class S> const tdict_type *type_of() noexcept {
  static const tdict_type type = detail::hooks<S>::make();
  return &type;
}

/** Returns a tree that shares the tensors of `value`. Its batch size is the leading sizes of the first tensor, without
 *  the sizes that the row of this tensor lists. Fails with #TDICT_EINVAL if a member has no tensor. Fails with
 *  #TDICT_EDTYPE or #TDICT_ESHAPE if a tensor does not match its row, and as tdict_create() and tdict_set() do. */
template <class S> outcome<tree> pack(const S &value) {
  tree made;
  tdict_error err;
  tdict_status status = detail::pack(value, made, err);
  return detail::give<tree>(status, err, std::move(made));
}

/** Returns a struct whose members share the tensors of a tree. Ignores keys that the table does not name. Fails as
 *  tdict_get() does, and with #TDICT_EDTYPE or #TDICT_ESHAPE if a tensor does not fit its row or the batch size. */
template <class S> outcome<S> unpack(tree_ref from) {
  S made = S();
  tdict_error err;
  tdict_status status = detail::unpack(from, made, err);
  return detail::give<S>(status, err, std::move(made));
}

/** Returns a struct with new tensors, whose shapes begin with `batch_size`. The elements are unspecified. Fails with
 *  #TDICT_EINVAL if the batch size has more than #TDICT_MAX_BATCH_NDIM dimensions, or if a size in the table is -1.
 *  Fails also with errors of tdict_tensor_empty(). */
template <class S> outcome<S> make(const shape &batch_size, tdict_memory *memory = nullptr) {
  S made = S();
  tdict_error err;
  tdict_status status = TDICT_OK;
  for (const member<S> &m : binding<S>::members()) {
    int64_t sizes[TDICT_MAX_BATCH_NDIM + 6] = {0};
    int ndim = 0;
    if (batch_size.ndim() > TDICT_MAX_BATCH_NDIM)
      status = detail::fail(err, TDICT_EINVAL, m.path, "bind: the batch size has too many dimensions");
    for (int i = 0; status == TDICT_OK && i < batch_size.ndim(); i++) sizes[ndim++] = batch_size.data()[i];
    for (int i = 0; status == TDICT_OK && i < m.ndim; i++) sizes[ndim++] = m.shape[i];
    tdict_tensor *leaf = nullptr;
    if (status == TDICT_OK) status = tdict_tensor_empty(m.dtype, ndim, sizes, memory, &leaf, &err);
    if (status != TDICT_OK && !err.path[0]) std::snprintf(err.path, sizeof err.path, "%s", m.path);
    if (status != TDICT_OK) break;
    (made.*m.field).reset(leaf);
  }
  return detail::give<S>(status, err, std::move(made));
}

/** Sets a bound struct as the object at a path; see tdict_set_object(). On success, the contents of `value` move to the
 *  object. On failure, `value` is unchanged. Fails with errors of tdict_set_object(). */
template <class S> outcome<void> set_object(tree_ref tree, const char *path, S &&value) {
  static_assert(!std::is_reference<S>::value, "tdict: move the struct into the tree");
  tdict_error err;
  S *object = new (std::nothrow) S(std::move(value));
  tdict_status status = TDICT_ENOMEM;
  if (!object)
    detail::fail(err, TDICT_ENOMEM, path, "bind: no memory for the struct");
  else
    status = tdict_set_object(tree.raw(), path, type_of<S>(), object, &err);
  if (status != TDICT_OK && object) {
    value = std::move(*object);
    delete object;
  }
  return detail::give(status, err);
}

/** Returns the bound struct at a path, borrowed from the tree. Fails with errors of tdict_get_object(). */
template <class S> outcome<const S *> get_object(tree_ref tree, const char *path) {
  tdict_error err;
  void *found = nullptr;
  tdict_status status = tdict_get_object(tree.raw(), path, type_of<S>(), &found, &err);
  return detail::give<const S *>(status, err, static_cast<const S *>(found));
}

TDICT_HPP_END

#endif
