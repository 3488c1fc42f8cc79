/* Defines move-only handles that own pointers of the C interface.
 *
 * A handle has the size of a pointer. The destructor calls the release or destroy function of the C type. After a move
 * from a handle, the handle is empty. A handle that is constructed from a raw pointer takes over the caller's
 * reference. raw() returns the pointer for calls of C functions. */
#ifndef TDICT_HPP_HANDLE_HPP
#define TDICT_HPP_HANDLE_HPP

#include "tdict/hpp/result.hpp"
#include "tdict/lazy_stack.h"
#include "tdict/memory.h"
#include "tdict/ragged.h"
#include "tdict/sampler.h"
#include "tdict/schema.h"

TDICT_HPP_BEGIN

/** Owns a T. `End` releases or destroys the T. `Base` stores the pointer, and has the functions of a borrowed T. */
template <class T, void (*End)(T *), class Base> class owner : public Base {
public:
  typedef T raw_type;
  /** Constructs an empty handle. */
  owner() noexcept : Base(nullptr) {}
  /** Takes over the caller's reference. NULL gives an empty handle. */
  explicit owner(T *taken) noexcept : Base(taken) {}
  owner(owner &&other) noexcept : Base(other.detach()) {}
  owner &operator=(owner &&other) noexcept {
    if (this != &other) reset(other.detach());
    return *this;
  }
  owner(const owner &) = delete;
  owner &operator=(const owner &) = delete;
  /** Releases or destroys the T. Does nothing if the handle is empty. */
  ~owner() { End(this->raw_); }

  /** Releases the pointer, and takes over `taken`. */
  void reset(T *taken = nullptr) noexcept {
    T *old = this->raw_;
    this->raw_ = taken;
    End(old);
  }
  /** Returns the pointer, and leaves the handle empty. The caller then owns the reference. */
  T *detach() noexcept {
    T *raw = this->raw_;
    this->raw_ = nullptr;
    return raw;
  }
};

/** Borrows a T, as a plain pointer does. Copies cost nothing. The owner of the T must live longer. */
template <class T> class borrowed {
public:
  typedef T raw_type;
  /** Borrows `raw`, which may be NULL. */
  borrowed(T *raw) noexcept : raw_(raw) {}
  /** Returns the pointer for calls of C functions, borrowed. Returns NULL if the handle is empty. */
  T *raw() const noexcept { return raw_; }
  /** True if the pointer is not NULL. */
  explicit operator bool() const noexcept { return raw_ != nullptr; }

protected:
  T *raw_;
};

/** Owns a tdict_memory. To use this handle and the next four, pass raw() to the C functions. */
typedef owner<tdict_memory, tdict_memory_release, borrowed<tdict_memory>> memory_handle;
/** Owns a tdict_ragged: a leaf of rows of different lengths. */
typedef owner<tdict_ragged, tdict_ragged_release, borrowed<tdict_ragged>> ragged;
/** Owns a tdict_lazy_stack. */
typedef owner<tdict_lazy_stack, tdict_lazy_stack_release, borrowed<tdict_lazy_stack>> lazy_stack;
/** Owns a tdict_schema. */
typedef owner<tdict_schema, tdict_schema_release, borrowed<tdict_schema>> schema;
/** Owns a tdict_sampler. */
typedef owner<tdict_sampler, tdict_sampler_release, borrowed<tdict_sampler>> sampler;

TDICT_HPP_END

#endif
