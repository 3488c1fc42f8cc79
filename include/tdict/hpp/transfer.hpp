/* Defines the classes context and future. */
#ifndef TDICT_HPP_TRANSFER_HPP
#define TDICT_HPP_TRANSFER_HPP

#include "tdict/hpp/tree.hpp"
#include "tdict/io.h"
#include "tdict/transfer.h"

TDICT_HPP_BEGIN

/** Owns the future of a transfer, a load, a save or a call of a communicator. Here, "transfer" means any of them. The
 *  destructor and an assignment wait until the old transfer has ended. If the transfer failed and no member function
 *  has returned the error, the destructor or the assignment writes the error to the context's log. */
class future : public borrowed<tdict_future> {
public:
  typedef tdict_future raw_type;
  /** Constructs an empty handle. */
  future() noexcept : borrowed<tdict_future>(nullptr) {}
  /** Takes over the caller's reference. NULL gives an empty handle. */
  explicit future(tdict_future *taken) noexcept : borrowed<tdict_future>(taken) {}
  future(future &&other) noexcept : borrowed<tdict_future>(other.detach()) {}
  future &operator=(future &&other) noexcept {
    if (this != &other) {
      end();
      raw_ = other.detach();
    }
    return *this;
  }
  future(const future &) = delete;
  future &operator=(const future &) = delete;
  /** Waits until the transfer has ended, and releases the future. Returns at once if the handle is empty. */
  ~future() { end(); }

  /** Waits for the transfer, and returns its result. The program may call this function several times. */
  outcome<tree> wait() const { return call<tree>(tdict_future_wait, raw_); }
  /** Waits for the transfer, empties this object, and returns the result, which is empty for a save. */
  outcome<tree> take() { return call<tree>(tdict_future_take, detach()); }
  /** Waits for at most `nanoseconds` ns. Fails with #TDICT_ETIMEDOUT if the transfer has not ended by then. */
  outcome<tree> wait_for(int64_t nanoseconds) const { return call<tree>(tdict_future_wait_for, raw_, nanoseconds); }
  /** Makes a stream wait for the transfer, and returns the result; see tdict_future_wait_on_stream(). */
  outcome<tree> wait_on_stream(tdict_stream stream) const {
    return call<tree>(tdict_future_wait_on_stream, raw_, stream);
  }
  /** Waits until the program may write or free the source. */
  outcome<void> wait_source() const { return run(tdict_future_wait_source, raw_); }
  /** Asks the transfer to stop, and does not wait; see tdict_future_cancel(). */
  void cancel() const noexcept { tdict_future_cancel(raw_); }
  /** True if the transfer has ended, with success or failure; see tdict_future_is_ready(). */
  bool is_ready() const { return tdict_future_is_ready(raw_); }
  /** Returns the statistics of a transfer that has ended; see tdict_future_get_stats(). */
  outcome<tdict_transfer_stats> stats() const {
    return detail::read(tdict_future_get_stats, raw_, tdict_transfer_stats_default());
  }
  /** Returns the C future, which the caller must release. Leaves this object empty, so the destructor does not wait. */
  tdict_future *detach() noexcept {
    tdict_future *raw = raw_;
    raw_ = nullptr;
    return raw;
  }

private:
  void end() noexcept {
    if (raw_ && !is_ready()) (void)!tdict_future_wait(raw_, nullptr, nullptr);
    tdict_future_release(raw_);
  }
};

/** Owns a context. Trees, tensors and futures may outlive the context. Destroy a loader before its context. */
class context : public owner<tdict_context, tdict_context_destroy, borrowed<tdict_context>> {
public:
  using owner::owner;
  /** Constructs an empty handle. */
  context() noexcept = default;
  /** Creates a context; see tdict_context_create(). */
  static outcome<context> create(const tdict_context_options &options = tdict_context_options_default()) {
    return call<context>(tdict_context_create, &options);
  }
  /** Returns the default device of the context, as tdict_context_device() does. */
  tdict_device device() const { return tdict_context_device(raw_, nullptr); }
  /** Returns the memory for pinned tensors, borrowed from the context. */
  tdict_memory *pinned() const { return tdict_pinned_memory(raw_); }
  /** Returns the memory of a device, borrowed from the context; see tdict_device_memory(). */
  tdict_memory *memory_of(tdict_device device) const { return tdict_device_memory(raw_, device); }

  /** Copies a tree to a device, and waits for the copy; see tdict_to_device(). */
  outcome<tree> to_device(tree_ref src, tdict_device device,
                          const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return call<tree>(tdict_to_device, raw_, src.raw(), device, &options);
  }
  /** Starts to copy a tree to a device; see tdict_to_device_async(). */
  outcome<future> to_device_async(tree_ref src, tdict_device device,
                                  const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return call<future>(tdict_to_device_async, raw_, src.raw(), device, &options);
  }
  /** Copies the elements of `src` to the tensors of `dst`; see tdict_transfer_into(). */
  outcome<void> transfer_into(tree_ref dst, tree_ref src,
                              const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return run(tdict_transfer_into, raw_, dst.raw(), src.raw(), &options);
  }
  /** Starts to copy the elements of `src` to the tensors of `dst`; see tdict_transfer_into_async(). */
  outcome<future> transfer_into_async(tree_ref dst, tree_ref src,
                                      const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return call<future>(tdict_transfer_into_async, raw_, dst.raw(), src.raw(), &options);
  }
  /** Returns a tree whose tensors are in pinned memory; see tdict_pin_memory(). */
  outcome<tree> pin_memory(tree_ref src, const tdict_pin_options &options = tdict_pin_options_default()) const {
    return call<tree>(tdict_pin_memory, raw_, src.raw(), &options);
  }

  /** Loads the tensors of files to a device, and waits; see tdict_load(). */
  outcome<tree> load(const char *path, tdict_device device,
                     const tdict_load_options &options = tdict_load_options_default()) const {
    return call<tree>(tdict_load, raw_, path, device, &options);
  }
  /** Starts to load the tensors of files to a device; see tdict_load_async(). */
  outcome<future> load_async(const char *path, tdict_device device,
                             const tdict_load_options &options = tdict_load_options_default()) const {
    return call<future>(tdict_load_async, raw_, path, device, &options);
  }
  /** Starts to load the tensors of files into the tensors of `dst`; see tdict_load_into_async(). */
  outcome<future> load_into_async(tree_ref dst, const char *path,
                                  const tdict_load_options &options = tdict_load_options_default()) const {
    return call<future>(tdict_load_into_async, raw_, dst.raw(), path, &options);
  }
  /** Writes a tree to a file, and waits; see tdict_save(). */
  outcome<void> save(const char *path, tree_ref src,
                     const tdict_save_options &options = tdict_save_options_default()) const {
    return run(tdict_save, raw_, path, src.raw(), &options);
  }
  /** Starts to write a tree to a file. The future has no result; see tdict_save_async(). */
  outcome<future> save_async(const char *path, tree_ref src,
                             const tdict_save_options &options = tdict_save_options_default()) const {
    return call<future>(tdict_save_async, raw_, path, src.raw(), &options);
  }
};

/** Opens files as a tree whose tensors are mapped into memory; see tdict_open(). */
inline outcome<tree> open(const char *path, const tdict_open_options &options = tdict_open_options_default()) {
  return call<tree>(tdict_open, path, &options);
}
/** Saves a tree in host memory, and waits until it is in the file; see tdict_save(). */
inline outcome<void> save(const char *path, tree_ref tree,
                          const tdict_save_options &options = tdict_save_options_default()) {
  tdict_context *const none = nullptr;
  return run(tdict_save, none, path, tree.raw(), &options);
}

TDICT_HPP_END

#endif
