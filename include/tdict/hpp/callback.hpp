/* Turns exceptions of the program's functions into errors, because C code calls these functions and no exception may
 * leave them (docs/callbacks.md). */
#ifndef TDICT_HPP_CALLBACK_HPP
#define TDICT_HPP_CALLBACK_HPP

#include "tdict/hpp/tensor.hpp"

TDICT_HPP_BEGIN
namespace detail {
/* Calls `body`, which returns a tdict_status. If `body` throws an exception, writes its text to *err. */
template <class F> tdict_status catch_all(tdict_error *err, F body) {
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
  tdict_error failure;
  tdict_status status;
  try {
    return body();
  } catch (const error &e) {
    status = fail(failure, e.status(), e.path(), e.message());
    failure.native = e.native();
  } catch (const std::bad_alloc &e) {
    status = fail(failure, TDICT_ENOMEM, "", e.what());
  } catch (const std::exception &e) {
    status = fail(failure, TDICT_EHOOK, "", e.what());
  } catch (...) {
    status = fail(failure, TDICT_EHOOK, "", "the function threw an object that is not a std::exception");
  }
  if (err) *err = failure;
  return status;
#else
  (void)err;
  return body();
#endif
}

/* Returns the last argument. */
inline tdict_error *last_of(tdict_error *err) { return err; }
template <class A, class... B> tdict_error *last_of(A &&, B &&...others) { return last_of(std::forward<B>(others)...); }

template <class F, F function> struct callback;
template <class... A, tdict_status (*function)(A...)> struct callback<tdict_status (*)(A...), function> {
  static tdict_status call(A... arguments) {
    return catch_all(last_of(arguments...), [&]() { return function(arguments...); });
  }
};
} // namespace detail
TDICT_HPP_END

/** A C function that calls `function` and catches its exceptions. `function` returns a tdict_status, and its last
 *  parameter is `tdict_error *`. The new function returns the status, path and message of a tdict::error,
 *  #TDICT_ENOMEM for std::bad_alloc, and #TDICT_EHOOK with the text of any other exception. The call of the library
 *  that called the function returns this error:
 *  `tdict_dataset_from_callback(TDICT_CALLBACK(make_sample), user, 100, &dataset, &err)`. */
#define TDICT_CALLBACK(function) (&tdict::detail::callback<decltype(&function), &function>::call)

#endif
