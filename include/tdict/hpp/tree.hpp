/* Defines the classes tree_ref and tree. */
#ifndef TDICT_HPP_TREE_HPP
#define TDICT_HPP_TREE_HPP

#include <iterator>
#include <string>

#include "tdict/clone.h"
#include "tdict/debug.h"
#include "tdict/hpp/tensor.hpp"
#include "tdict/index.h"
#include "tdict/nontensor.h"
#include "tdict/write.h"

TDICT_HPP_BEGIN

class tree;

/** A key of a tree, with its tensor, child tree or object. Borrowed from the tree until the tree changes. */
struct entry : tdict_entry {
  /** True if the key has a tensor. */
  bool is_tensor() const { return tdict_entry::tensor != nullptr; }
  /** True if the key has a child tree. */
  bool is_tree() const { return tdict_entry::tree != nullptr; }
  /** True if the key has an object. */
  bool is_object() const noexcept { return object != nullptr; }
  /** Returns the tensor, borrowed from the tree. Returns an empty handle if is_tensor() is false. */
  tensor_ref as_tensor() const noexcept { return tensor_ref(tdict_entry::tensor); }
  /** Returns the child tree, borrowed from the tree. Returns an empty handle if is_tree() is false. */
  class tree_ref as_tree() const noexcept;
};

/** Iterates over the keys of one tree in insertion order. The tree must not change during the iteration. */
class entry_iterator {
public:
  typedef std::input_iterator_tag iterator_category;
  typedef entry value_type;
  typedef std::ptrdiff_t difference_type;
  typedef const entry *pointer;
  typedef entry reference;
  /** Points to key `i` of a borrowed tree. The number of keys as `i` gives the end. */
  entry_iterator(tdict_tree *tree, std::size_t i) noexcept : tree_(tree), i_(i) {}
  /** Returns the key and its value, borrowed from the tree. The iterator must not be at the end. */
  entry operator*() const noexcept {
    assert(i_ < tdict_num_keys(tree_));
    entry e = entry();
    static_cast<tdict_entry &>(e) = tdict_get_entry_at(tree_, i_);
    return e;
  }
  /** Goes to the next key. */
  entry_iterator &operator++() noexcept {
    ++i_;
    return *this;
  }
  /** Goes to the next key. Returns nothing: loops do not need the old position. */
  void operator++(int) noexcept { ++i_; }
  /** True if both iterators are at the same key. Both must belong to the same tree. */
  bool operator==(const entry_iterator &other) const noexcept { return i_ == other.i_; }
  /** True if the iterators are not equal. */
  bool operator!=(const entry_iterator &other) const noexcept { return i_ != other.i_; }

private:
  tdict_tree *tree_;
  std::size_t i_;
};

/** Borrows a tree. A function that has the name of a C function follows its rules. */
class tree_ref : public borrowed<tdict_tree> {
public:
  /** Borrows `raw`, which may be NULL. */
  tree_ref(tdict_tree *raw) noexcept : borrowed<tdict_tree>(raw) {}
  /** Returns the sizes of the batch dimensions, borrowed from the tree; see tdict_batch_size(). */
  span<const int64_t> batch_size() const {
    return span<const int64_t>(tdict_batch_size(raw_), static_cast<std::size_t>(tdict_batch_ndim(raw_)));
  }
  /** Returns the number of keys of the tree itself; see tdict_num_keys(). */
  std::size_t num_keys() const { return tdict_num_keys(raw_); }
  /** Returns the number of tensors in the tree and its child trees; see tdict_num_leaves(). */
  std::size_t num_leaves() const { return tdict_num_leaves(raw_); }
  /** Returns the number of bytes of all tensors and objects; see tdict_bytes(). */
  std::size_t bytes() const { return tdict_bytes(raw_); }
  /** True if the tree has a value at a path; see tdict_has(). */
  bool has(const char *path) const { return tdict_has(raw_, path); }
  /** Returns an iterator to the first key. */
  entry_iterator begin() const noexcept { return entry_iterator(raw_, 0); }
  /** Returns the end of the keys. */
  entry_iterator end() const { return entry_iterator(raw_, num_keys()); }

  /** Returns the tensor at a path, borrowed from the tree. */
  outcome<tensor_ref> get(const char *path) const { return call<tensor_ref>(tdict_get, raw_, path); }
  /** Does the same: `batch["obs.state"]`. */
  outcome<tensor_ref> operator[](const char *path) const { return get(path); }
  /** Returns the tree at a path, borrowed from the tree. */
  outcome<tree_ref> get_tree(const char *path) const { return call<tree_ref>(tdict_get_tree, raw_, path); }
  /** Returns the address of the first element of the tensor at a path, as tdict_data() does. If T is const, calls
   *  tdict_const_data() instead. Does not compare T with the dtype. Returns NULL if the C function returns NULL. */
  template <class T> T *data(const char *path) const { return data_as(path, static_cast<T *>(nullptr)); }
  /** Returns the elements of the tensor at a path. Fails with errors of get() and of tensor_ref::elements(). */
  template <class T> outcome<span<T>> elements(const char *path) const {
    tdict_error err;
    tdict_tensor *leaf = nullptr;
    span<T> all;
    tdict_status status = tdict_get(raw_, path, &leaf, &err);
    if (status == TDICT_OK) status = tensor_ref(leaf).find_elements(path, all, err);
    return detail::give<span<T>>(status, err, std::move(all));
  }

  /** Sets the tensor at a path. The tree retains the tensor. */
  outcome<void> set(const char *path, tensor_ref tensor) const { return run(tdict_set, raw_, path, tensor.raw()); }
  /** Sets the tree at a path; see tdict_set_tree(). */
  outcome<void> set(const char *path, tree_ref child) const { return run(tdict_set_tree, raw_, path, child.raw()); }
  /** Sets the text at a path; see tdict/nontensor.h. */
  outcome<void> set(const char *path, const char *text) const { return run(tdict_set_text, raw_, path, text); }
  outcome<void> set(const char *path, std::nullptr_t) const = delete;
  /** Sets a number or a bool for the whole tree; see tdict/nontensor.h. Fails with #TDICT_EOVERFLOW if an integer is
   *  greater than INT64_MAX. The compiler refuses `nullptr`, but takes `NULL` for the number 0. */
  template <class T, class = typename std::enable_if<std::is_arithmetic<T>::value && sizeof(T) <= 8>::type>
  outcome<void> set(const char *path, T number) const {
    tdict_value value = tdict_value();
    value.kind = std::is_floating_point<T>::value ? TDICT_VALUE_REAL : TDICT_VALUE_INTEGER;
    if (std::is_same<T, bool>::value) value.kind = TDICT_VALUE_BOOL;
    if (std::is_integral<T>::value) value.integer = static_cast<int64_t>(number);
    value.real = static_cast<double>(number);
    tdict_error err;
    if (number > T() && value.integer < 0)
      return detail::give(detail::fail(err, TDICT_EOVERFLOW, path, "set: the integer is greater than INT64_MAX"), err);
    return run(tdict_set_values, raw_, path, &value, TDICT_WHOLE_TREE);
  }
  /** Writes a number to every element at and below a path. NULL: the whole tree; see tdict_fill(). */
  outcome<void> fill(const char *path, double value) const { return run(tdict_fill, raw_, path, value, nullptr); }
  /** Writes the elements that an index selects: `buffer.index_set(TDICT_INDEX(TDICT_AT(3)), row)`. */
  outcome<void> index_set(const tdict_indices *index, tree_ref value) const {
    return run(tdict_index_set, nullptr, raw_, index, value.raw(), nullptr);
  }
  /** Removes the value at a path; see tdict_delete(). */
  outcome<void> remove(const char *path) const { return run(tdict_delete, raw_, path); }

  /** Returns a new tree that shares the tensors; see tdict_clone(). */
  outcome<tree> clone() const;
  /** Returns a new tree with copies of the tensors in `memory`, which may be NULL; see tdict_clone_deep(). */
  outcome<tree> clone_deep(tdict_memory *memory = nullptr) const;
  /** Returns a tree of the elements that an index selects: `batch.index(TDICT_INDEX(TDICT_AT(3)))`. */
  outcome<tree> index(const tdict_indices *index) const;
  /** Does the same with threads of a context, which may be NULL, and with options; see tdict_index_get(). */
  outcome<tree> index(tdict_context *context, const tdict_indices *index, const tdict_run &run) const;
  /** Returns a new reference. */
  tree share() const;
  /** Writes a line for each key; see tdict_print(). */
  outcome<void> print(std::FILE *file = stdout) const { return run(tdict_print, raw_, file); }
  /** Returns the text of tdict_format(). */
  std::string format() const {
    std::string text(tdict_format(raw_, nullptr, 0), '\0');
    tdict_format(raw_, &text[0], text.size() + 1);
    return text;
  }

private:
  template <class T> T *data_as(const char *path, T *) const { return static_cast<T *>(tdict_data(raw_, path)); }
  template <class T> const T *data_as(const char *path, const T *) const {
    return static_cast<const T *>(tdict_const_data(raw_, path));
  }
};

/** Owns a reference to a tree. */
class tree : public owner<tdict_tree, tdict_release, tree_ref> {
public:
  using owner::owner;
  /** Constructs an empty handle. */
  tree() noexcept = default;
  /** Creates an empty tree with a batch size: `tdict::tree::create({128})`. */
  static outcome<tree> create(const shape &batch_size) {
    return call<tree>(tdict_create, batch_size.ndim(), batch_size.data());
  }
  /** Creates a tree with one tensor for each field of a table; see tdict_create_from(). */
  template <std::size_t N>
  static outcome<tree> create(const tdict_field (&fields)[N], const shape &batch_size, tdict_memory *memory = nullptr) {
    return call<tree>(tdict_create_from, fields, N, batch_size.ndim(), batch_size.data(), memory);
  }
};

inline tree_ref entry::as_tree() const noexcept { return tree_ref(tdict_entry::tree); }
inline tree tree_ref::share() const { return tree(tdict_retain(raw_)); }
inline outcome<tree> tree_ref::clone() const { return call<tree>(tdict_clone, raw_); }
inline outcome<tree> tree_ref::clone_deep(tdict_memory *memory) const {
  tdict_run run = tdict_run_default();
  run.memory = memory;
  return call<tree>(tdict_clone_deep, raw_, &run);
}
inline outcome<tree> tree_ref::index(const tdict_indices *index) const {
  return call<tree>(tdict_index_get, nullptr, raw_, index, nullptr);
}
inline outcome<tree> tree_ref::index(tdict_context *context, const tdict_indices *index, const tdict_run &run) const {
  return call<tree>(tdict_index_get, context, raw_, index, &run);
}
/** True if the trees do not differ; see tdict_equal(). */
inline bool operator==(tree_ref a, tree_ref b) noexcept { return tdict_equal(a.raw(), b.raw()); }
/** True if the trees are not equal. */
inline bool operator!=(tree_ref a, tree_ref b) noexcept { return !(a == b); }

TDICT_HPP_END

#endif
