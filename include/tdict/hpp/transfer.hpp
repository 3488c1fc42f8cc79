/* Defines the classes context, future and loader. */
#ifndef TDICT_HPP_TRANSFER_HPP
#define TDICT_HPP_TRANSFER_HPP

#include "tdict/hpp/tree.hpp"

TDICT_HPP_BEGIN

/** Owns the future of a transfer. The destructor and an assignment wait until the old transfer has ended. If the
 *  transfer failed and no member function has returned the error, the destructor or the assignment writes the error to
 *  the context's log. */
class future : public borrowed<tdict_future> {
public:
  typedef tdict_future raw_type;
  future() noexcept : borrowed<tdict_future>(nullptr) {}
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
  ~future() { end(); }

  /** Waits for the transfer, and returns its result. The program may call this function several times. */
  outcome<tree> wait() const { return call<tree>(tdict_future_wait, raw_); }
  /** Waits for at most `nanoseconds` ns. Fails with #TDICT_ETIMEDOUT if the transfer has not ended by then. */
  outcome<tree> wait_for(int64_t nanoseconds) const { return call<tree>(tdict_future_wait_for, raw_, nanoseconds); }
  /** Makes a stream wait for the transfer, and returns the result; see tdict_future_wait_on_stream(). */
  outcome<tree> wait_on_stream(tdict_stream stream) const {
    return call<tree>(tdict_future_wait_on_stream, raw_, stream);
  }
  /** Waits until the program may write or free the source. */
  outcome<void> wait_source() const { return run(tdict_future_wait_source, raw_); }
  void cancel() const noexcept { tdict_future_cancel(raw_); }
  bool is_ready() const { return tdict_future_is_ready(raw_); }
  outcome<tdict_transfer_stats> stats() const {
    tdict_error err;
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_status status = tdict_future_get_stats(raw_, &stats, &err);
    return detail::give<tdict_transfer_stats>(status, err, std::move(stats));
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
  context() noexcept = default;
  static outcome<context> create(const tdict_context_options &options = tdict_context_options_default()) {
    return call<context>(tdict_context_create, &options);
  }
  /** Returns the default device of the context, as tdict_context_device() does. */
  tdict_device device() const { return tdict_context_device(raw_, nullptr); }
  /** Returns the memory for pinned tensors, borrowed from the context. */
  tdict_memory *pinned() const { return tdict_pinned_memory(raw_); }
  tdict_memory *memory_of(tdict_device device) const { return tdict_device_memory(raw_, device); }

  outcome<tree> to_device(tree_ref src, tdict_device device,
                          const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return call<tree>(tdict_to_device, raw_, src.raw(), device, &options);
  }
  outcome<future> to_device_async(tree_ref src, tdict_device device,
                                  const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return call<future>(tdict_to_device_async, raw_, src.raw(), device, &options);
  }
  outcome<void> transfer_into(tree_ref dst, tree_ref src,
                              const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return run(tdict_transfer_into, raw_, dst.raw(), src.raw(), &options);
  }
  outcome<future> transfer_into_async(tree_ref dst, tree_ref src,
                                      const tdict_transfer_options &options = tdict_transfer_options_default()) const {
    return call<future>(tdict_transfer_into_async, raw_, dst.raw(), src.raw(), &options);
  }
  outcome<tree> pin_memory(tree_ref src, const tdict_pin_options &options = tdict_pin_options_default()) const {
    return call<tree>(tdict_pin_memory, raw_, src.raw(), &options);
  }
};

/** Owns a loader. With exceptions, `for (tdict::tree &batch : loader)` reads the batches of an epoch. */
class loader : public owner<tdict_loader, tdict_loader_destroy, borrowed<tdict_loader>> {
public:
  using owner::owner;
  loader() noexcept = default;
  /** Creates a loader. On success, the loader owns the dataset. */
  static outcome<loader> create(const context &owner, const tdict_dataset &dataset,
                                const tdict_loader_options &options = tdict_loader_options_default()) {
    return call<loader>(tdict_loader_create, owner.raw(), &dataset, &options);
  }
  /** Returns the next batch. Returns an empty handle at the end of the epoch; see tdict_loader_next(). */
  outcome<tree> next(const tdict_stream *stream = nullptr) const { return call<tree>(tdict_loader_next, raw_, stream); }
  int64_t length() const { return tdict_loader_length(raw_); }

#if TDICT_HPP_EXCEPTIONS
  /** Reads the remaining batches of an epoch. Each increment releases the batch and reads the next batch. */
  class iterator {
  public:
    typedef std::input_iterator_tag iterator_category;
    typedef tree value_type;
    typedef std::ptrdiff_t difference_type;
    typedef tree *pointer;
    typedef tree &reference;
    iterator() noexcept : loader_(nullptr) {}
    explicit iterator(const class loader *loader) : loader_(loader), batch_(loader->next()) {}
    tree &operator*() noexcept { return batch_; }
    tree *operator->() noexcept { return &batch_; }
    iterator &operator++() {
      batch_.reset();
      batch_ = loader_->next();
      return *this;
    }
    bool operator==(const iterator &other) const noexcept { return batch_.raw() == other.batch_.raw(); }
    bool operator!=(const iterator &other) const noexcept { return !(*this == other); }

  private:
    const class loader *loader_;
    tree batch_;
  };
  iterator begin() const { return iterator(this); }
  iterator end() const noexcept { return iterator(); }
#endif
};

TDICT_HPP_END

#endif
