/* Defines how the C++ classes of tdict report errors: as exceptions, or as results if exceptions are disabled.
 *
 * A function that can fail returns outcome<T>. With exceptions, outcome<T> is T, and a failure throws tdict::error.
 * With -fno-exceptions, outcome<T> is result<T>, which holds a T or a tdict::error. Define TDICT_HPP_EXCEPTIONS as 0 to
 * choose results in a program with exceptions. The classes with exceptions and the classes with results have different
 * symbols. A program may therefore link files of both kinds. */
#ifndef TDICT_HPP_RESULT_HPP
#define TDICT_HPP_RESULT_HPP

#include <cassert>
#include <cstdio>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>

#include "tdict/tdict.h"

/* 1: errors are exceptions. 0: errors are results. A program may define the macro before the first include. */
#ifndef TDICT_HPP_EXCEPTIONS
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define TDICT_HPP_EXCEPTIONS 1
#else
#define TDICT_HPP_EXCEPTIONS 0
#endif
#endif
/* TDICT_HPP_BEGIN opens the namespaces, and TDICT_HPP_END closes them. The inline namespace gives the classes of each
 * kind their own symbols. */
#if TDICT_HPP_EXCEPTIONS
#define TDICT_HPP_BEGIN \
  namespace tdict {     \
  inline namespace with_exceptions {
#else
#define TDICT_HPP_BEGIN \
  namespace tdict {     \
  inline namespace with_results {
#endif
#define TDICT_HPP_END \
  }                   \
  }
/* From C++17 on, the compiler warns if the caller ignores a result. */
#if __cplusplus >= 201703L
#define TDICT_HPP_NODISCARD [[nodiscard]]
#else
#define TDICT_HPP_NODISCARD
#endif

TDICT_HPP_BEGIN

/** An error of a call. Holds a copy of the call's tdict_error. */
class error : public std::exception {
public:
  /** Copies `raw`, and writes the text of what(). */
  explicit error(const tdict_error &raw) noexcept : raw_(raw) {
    const char *name = tdict_status_name(status());
    if (raw_.path[0])
      std::snprintf(text_, sizeof text_, "%s %s: %s", name, raw_.path, raw_.message);
    else
      std::snprintf(text_, sizeof text_, "%s: %s", name, raw_.message);
  }
  /** Returns the status that the call returned. */
  tdict_status status() const noexcept { return static_cast<tdict_status>(raw_.status); }
  /** Returns the path in the tree at which the call failed, or an empty string. Owned by this object. */
  const char *path() const noexcept { return raw_.path; }
  /** Returns the message without the status and the path. Owned by this object. */
  const char *message() const noexcept { return raw_.message; }
  int native() const noexcept { return raw_.native; } /**< error code of the driver or errno; else 0 */
  /** Returns one line: ``TDICT_ENOTFOUND obs.stat: get: 'stat' is not a key of the tree; keys: state, pixels``. */
  const char *what() const noexcept override { return text_; }

private:
  tdict_error raw_;
  char text_[sizeof(tdict_error) + 32];
};

/** Holds a T or an error. Test the result, then call value() or error(). A result can be moved, but not copied. */
template <class T> class TDICT_HPP_NODISCARD result {
public:
  /** Holds a value, which moves from `value`. */
  result(T &&value) noexcept(std::is_nothrow_move_constructible<T>::value) : ok_(true) {
    new (&value_) T(std::move(value));
  }
  /** Holds a copy of an error. */
  result(const class error &failure) noexcept : ok_(false) { new (&error_) class error(failure); }
  result(result &&other) noexcept(std::is_nothrow_move_constructible<T>::value) : ok_(other.ok_) {
    if (ok_)
      new (&value_) T(std::move(other.value_));
    else
      new (&error_) class error(other.error_);
  }
  result(const result &) = delete;
  result &operator=(const result &) = delete;
  /** Destroys the value or the error. */
  ~result() {
    if (ok_)
      value_.~T();
    else
      error_.~error();
  }

  /** True if the result holds a value. */
  explicit operator bool() const noexcept { return ok_; }
  /** Returns #TDICT_OK, or the status of the error. */
  tdict_status status() const noexcept { return ok_ ? TDICT_OK : error_.status(); }
  /** Returns the value. The result must hold a value. */
  T &value() &noexcept {
    assert(ok_);
    return value_;
  }
  /** Returns the value of a constant result. */
  const T &value() const &noexcept {
    assert(ok_);
    return value_;
  }
  /** Returns the value of a temporary result, moved out of the result. A loop over it is therefore safe:
   *  `for (float &x : *tree.elements<float>("x"))`. */
  T value() &&noexcept(std::is_nothrow_move_constructible<T>::value) {
    assert(ok_);
    return std::move(value_);
  }
  /** Does the same as value(). */
  T &operator*() &noexcept { return value(); }
  /** Does the same as value(). */
  const T &operator*() const &noexcept { return value(); }
  /** Does the same as value() of a temporary result. */
  T operator*() &&noexcept(std::is_nothrow_move_constructible<T>::value) { return std::move(*this).value(); }
  /** Returns the address of value(). */
  T *operator->() noexcept { return &value(); }
  /** Returns the address of value(). */
  const T *operator->() const noexcept { return &value(); }
  /** Returns the error. The result must hold an error. */
  const class error &error() const &noexcept {
    assert(!ok_);
    return error_;
  }
  /** Returns a copy of the error of a temporary result. */
  class error error() &&noexcept {
    assert(!ok_);
    return error_;
  }

private:
  union {
    T value_;
    class error error_;
  };
  bool ok_;
};

/** Holds success or an error. */
template <> class TDICT_HPP_NODISCARD result<void> {
public:
  /** Holds success. */
  result() noexcept : ok_(true), error_(tdict_error()) {}
  /** Holds a copy of an error. */
  result(const class error &failure) noexcept : ok_(false), error_(failure) {}
  /** True on success. */
  explicit operator bool() const noexcept { return ok_; }
  /** Returns #TDICT_OK, or the status of the error. */
  tdict_status status() const noexcept { return ok_ ? TDICT_OK : error_.status(); }
  /** Returns the error. The result must hold an error. */
  const class error &error() const &noexcept {
    assert(!ok_);
    return error_;
  }
  /** Returns a copy of the error of a temporary result. */
  class error error() &&noexcept {
    assert(!ok_);
    return error_;
  }

private:
  bool ok_;
  class error error_;
};

/** The return type of functions that can fail: T with exceptions, `result<T>` without exceptions. */
#if TDICT_HPP_EXCEPTIONS
template <class T> using outcome = T;
#else
template <class T> using outcome = result<T>;
#endif

namespace detail {
/* Returns `value` if the status is TDICT_OK. Otherwise throws or returns the error. */
template <class T> outcome<T> give(tdict_status status, const tdict_error &failure, T &&value) {
#if TDICT_HPP_EXCEPTIONS
  if (status != TDICT_OK) throw error(failure);
#else
  if (status != TDICT_OK) return error(failure);
#endif
  return std::forward<T>(value);
}
inline outcome<void> give(tdict_status status, const tdict_error &failure) {
#if TDICT_HPP_EXCEPTIONS
  if (status != TDICT_OK) throw error(failure);
#else
  if (status != TDICT_OK) return error(failure);
  return result<void>();
#endif
}

/* Calls a C function that fills a struct, which begins with its defaults. */
template <class F, class T, class S> outcome<S> read(F function, T *raw, S filled) {
  tdict_error err;
  tdict_status status = function(raw, &filled, &err);
  return give<S>(status, err, std::move(filled));
}

/* The C type of an `out` parameter: a pointer if T owns or borrows a C type, else T itself. */
template <class T, class = void> struct raw_of { typedef T type; };
template <class T> struct raw_of<T, typename std::conditional<true, void, typename T::raw_type>::type> {
  typedef typename T::raw_type *type;
};
} // namespace detail

/** Calls a C function of tdict that returns a status and has `tdict_error *err` as its last parameter:
 *  `tdict::run(tdict_rename, batch.raw(), "a", "b", true)`. */
template <class F, class... A> outcome<void> run(F function, A &&...arguments) {
  tdict_error err;
  tdict_status status = function(std::forward<A>(arguments)..., &err);
  return detail::give(status, err);
}

/** Calls a C function of tdict whose last two parameters are `out` and `err`. Returns the value that the function
 *  writes to `out`. T is an owning class such as tdict::tree, a borrowing class such as tdict::tree_ref, or the type of
 *  a plain value. An owning class takes over the reference that the function returns:
 *  `tdict::tree flat = tdict::call<tdict::tree>(tdict_flatten_keys, batch.raw(), ".")`. */
template <class T, class F, class... A> outcome<T> call(F function, A &&...arguments) {
  tdict_error err;
  typename detail::raw_of<T>::type raw = typename detail::raw_of<T>::type();
  tdict_status status = function(std::forward<A>(arguments)..., &raw, &err);
  return detail::give<T>(status, err, T(raw));
}

TDICT_HPP_END

#endif
