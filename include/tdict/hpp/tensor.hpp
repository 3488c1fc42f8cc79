/* Defines the dtypes of C++ types, spans of elements, and the classes tensor_ref and tensor. */
#ifndef TDICT_HPP_TENSOR_HPP
#define TDICT_HPP_TENSOR_HPP

#include <complex>
#include <cstddef>
#include <initializer_list>

#include "tdict/hpp/handle.hpp"
#include "tdict/view.h"

TDICT_HPP_BEGIN

/** The dtype of a C++ type: bool, integers, float, double, and std::complex of float or double. To add another type,
 *  specialize dtype_of:
 *  `template <> struct tdict::dtype_of<__half> { static constexpr tdict_dtype value = TDICT_F16; };` */
template <class T, class = void> struct dtype_of {
  static_assert(sizeof(T) == 0, "tdict: this type has no dtype; specialize tdict::dtype_of for it");
};
template <class T> struct dtype_of<T, typename std::enable_if<std::is_integral<T>::value>::type> {
  static constexpr tdict_dtype value = TDICT_DTYPE(std::is_signed<T>::value ? 0 : 1, sizeof(T) * 8, 1);
};
template <> struct dtype_of<bool, void> { static constexpr tdict_dtype value = TDICT_BOOL; };
template <> struct dtype_of<float, void> { static constexpr tdict_dtype value = TDICT_F32; };
template <> struct dtype_of<double, void> { static constexpr tdict_dtype value = TDICT_F64; };
template <> struct dtype_of<std::complex<float>, void> { static constexpr tdict_dtype value = TDICT_C64; };
template <> struct dtype_of<std::complex<double>, void> { static constexpr tdict_dtype value = TDICT_C128; };

/** A borrowed pointer and a number of elements. A std::span can be constructed from a tdict::span. */
template <class T> class span {
public:
  typedef T element_type;
  typedef typename std::remove_cv<T>::type value_type;
  /** Constructs an empty span, whose data() is NULL. */
  span() noexcept : data_(nullptr), size_(0) {}
  /** Borrows `size` elements from `data` on. */
  span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
  /** Returns the address of the first element. */
  T *data() const { return data_; }
  /** Returns the number of elements. */
  std::size_t size() const noexcept { return size_; }
  /** True if the span has no elements. */
  bool empty() const noexcept { return size_ == 0; }
  /** Returns the address of the first element. */
  T *begin() const noexcept { return data_; }
  /** Returns the address after the last element. */
  T *end() const noexcept { return data_ + size_; }
  /** Returns element `i`, which must be less than size(). The index is not checked. */
  T &operator[](std::size_t i) const noexcept { return data_[i]; }

private:
  T *data_;
  std::size_t size_;
};

/** The sizes of dimensions as an argument: `{128, 17}`, or a container with data() and size(), such as
 *  `std::vector<int64_t>`. Borrowed for the call. */
class shape {
public:
  /** Borrows the sizes of a list in braces. The list must exist as long as the shape. */
  shape(std::initializer_list<int64_t> sizes) noexcept : sizes_(), ndim_(static_cast<int>(sizes.size())) {
    sizes_ = sizes.begin();
  }
  /** Borrows the sizes of a container. The container must exist, unchanged, as long as the shape. */
  template <class C, class = decltype(static_cast<const int64_t *>(std::declval<const C &>().data()))>
  shape(const C &sizes) noexcept : sizes_(sizes.data()), ndim_(static_cast<int>(sizes.size())) {}
  /** Returns the address of the first size, in elements. */
  const int64_t *data() const noexcept { return sizes_; }
  /** Returns the number of dimensions. */
  int ndim() const noexcept { return ndim_; }

private:
  const int64_t *sizes_;
  int ndim_;
};

class tensor;

/** Borrows a tensor. A function that has the name of a C function follows the rules of the C function. The getters are
 *  not noexcept, so that the compiler can replace the call of the C function by a jump. */
class tensor_ref : public borrowed<tdict_tensor> {
public:
  /** Borrows `raw`, which may be NULL. */
  tensor_ref(tdict_tensor *raw) noexcept : borrowed<tdict_tensor>(raw) {}
  /** Returns the dtype; see tdict_tensor_dtype(). */
  tdict_dtype dtype() const { return tdict_tensor_dtype(raw_); }
  /** Returns the device of the elements; see tdict_tensor_device(). */
  tdict_device device() const { return tdict_tensor_device(raw_); }
  /** Returns the number of dimensions; see tdict_tensor_ndim(). */
  int ndim() const { return tdict_tensor_ndim(raw_); }
  /** Returns the sizes of the dimensions, borrowed from the tensor; see tdict_tensor_shape(). */
  span<const int64_t> shape() const {
    return span<const int64_t>(tdict_tensor_shape(raw_), static_cast<std::size_t>(ndim()));
  }
  /** Returns the strides in elements, borrowed from the tensor; see tdict_tensor_strides(). */
  span<const int64_t> strides() const {
    return span<const int64_t>(tdict_tensor_strides(raw_), static_cast<std::size_t>(ndim()));
  }
  /** Returns the number of elements; see tdict_tensor_numel(). */
  int64_t numel() const { return tdict_tensor_numel(raw_); }
  /** Returns the number of bytes of the elements; see tdict_tensor_bytes(). */
  std::size_t bytes() const { return tdict_tensor_bytes(raw_); }
  /** True if the elements are in C order without gaps; see tdict_tensor_is_contiguous(). */
  bool is_contiguous() const { return tdict_tensor_is_contiguous(raw_); }
  /** True if the tensor is in pinned host memory; see tdict_tensor_is_pinned(). */
  bool is_pinned() const { return tdict_tensor_is_pinned(raw_); }

  /** Returns the address of the first element, as tdict_tensor_data() does. If T is const, calls
   *  tdict_tensor_const_data() instead. Does not compare T with the dtype. May return NULL. */
  template <class T> T *data() const { return data_as(static_cast<T *>(nullptr)); }
  /** Returns all elements in C order. The tensor must be contiguous, in host memory, and have the dtype of T. Fails
   *  with #TDICT_EINVAL (the tensor is NULL), #TDICT_EDTYPE, #TDICT_EWRONGDEVICE or #TDICT_ENOTSUP (not contiguous).
   *  Fails with #TDICT_EREADONLY if T is not const and the tensor is read-only. Fails with #TDICT_EDEVICE if a transfer
   *  into the tensor failed or was cancelled. */
  template <class T> outcome<span<T>> elements() const {
    tdict_error err;
    span<T> all;
    tdict_status status = find_elements("", all, err);
    return detail::give<span<T>>(status, err, std::move(all));
  }
  /** Returns a new reference. */
  tensor share() const;

protected:
  template <class T> T *data_as(T *) const { return static_cast<T *>(tdict_tensor_data(raw_)); }
  template <class T> const T *data_as(const T *) const { return static_cast<const T *>(tdict_tensor_const_data(raw_)); }
  template <class T> tdict_status find_elements(const char *path, span<T> &out, tdict_error &err) const;
  friend class tree_ref;
};

/** Owns a reference to a tensor. */
class tensor : public owner<tdict_tensor, tdict_tensor_release, tensor_ref> {
public:
  using owner::owner;
  /** Constructs an empty handle. */
  tensor() noexcept = default;
  /** Creates a tensor with unspecified elements; see tdict_tensor_empty(). */
  static outcome<tensor> empty(tdict_dtype dtype, const class shape &sizes, tdict_memory *memory = nullptr) {
    return call<tensor>(tdict_tensor_empty, dtype, sizes.ndim(), sizes.data(), memory);
  }
  /** Creates a tensor whose bytes are all 0; see tdict_tensor_zeros(). */
  static outcome<tensor> zeros(tdict_dtype dtype, const class shape &sizes, tdict_memory *memory = nullptr) {
    return call<tensor>(tdict_tensor_zeros, dtype, sizes.ndim(), sizes.data(), memory);
  }
  /** Copies an array in C order; see tdict_tensor_from_array(). */
  template <class T> static outcome<tensor> from_array(const T *data, const class shape &sizes) {
    const tdict_dtype dtype = dtype_of<T>::value;
    return call<tensor>(tdict_tensor_from_array, dtype, sizes.ndim(), sizes.data(), data);
  }
};

inline tensor tensor_ref::share() const { return tensor(tdict_tensor_retain(raw_)); }

namespace detail {
/* The next three functions fill `err` and return the status of the error. */
inline tdict_status fail(tdict_error &err, tdict_status status, const char *path, const char *message) {
  err = tdict_error();
  err.status = static_cast<int32_t>(status);
  std::snprintf(err.path, sizeof err.path, "%s", path ? path : "");
  std::snprintf(err.message, sizeof err.message, "%s", message);
  return status;
}
inline tdict_status fail_dtype(tdict_error &err, const char *path, tdict_dtype found, tdict_dtype wanted) {
  char have[TDICT_DTYPE_TEXT_BYTES], want[TDICT_DTYPE_TEXT_BYTES], text[128];
  std::snprintf(text, sizeof text, "the dtype is %s, wanted %s", tdict_dtype_format(found, have, sizeof have),
                tdict_dtype_format(wanted, want, sizeof want));
  return fail(err, TDICT_EDTYPE, path, text);
}
inline tdict_status fail_device(tdict_error &err, const char *path, tdict_device found) {
  char have[32], text[96];
  std::snprintf(text, sizeof text, "the elements are on %s, wanted host memory",
                tdict_device_format(found, have, sizeof have));
  return fail(err, TDICT_EWRONGDEVICE, path, text);
}
} // namespace detail

template <class T> tdict_status tensor_ref::find_elements(const char *path, span<T> &out, tdict_error &err) const {
  const tdict_dtype wanted = dtype_of<typename std::remove_cv<T>::type>::value;
  if (!raw_) return detail::fail(err, TDICT_EINVAL, path, "elements: the tensor is NULL");
  if (dtype() != wanted) return detail::fail_dtype(err, path, dtype(), wanted);
  if (device().type != TDICT_DEVICE_CPU) return detail::fail_device(err, path, device());
  if (!is_contiguous())
    return detail::fail(err, TDICT_ENOTSUP, path, "elements: wanted a contiguous tensor; tdict_tensor_contiguous()");
  T *first = data<T>();
  if (!first && numel() > 0) {
    const bool readable = tdict_tensor_const_data(raw_) != nullptr;
    return detail::fail(err, readable ? TDICT_EREADONLY : TDICT_EDEVICE, path,
                        readable ? "elements: the tensor is read-only" : "elements: a transfer did not deliver them");
  }
  out = span<T>(first, static_cast<std::size_t>(numel()));
  return TDICT_OK;
}

TDICT_HPP_END

#endif
