/* Defines the classes dataset, replay and loader. */
#ifndef TDICT_HPP_DATA_HPP
#define TDICT_HPP_DATA_HPP

#include "tdict/hpp/callback.hpp"
#include "tdict/hpp/transfer.hpp"
#include "tdict/loader.h"
#include "tdict/replay.h"
#include "tdict/tokens.h"

TDICT_HPP_BEGIN

class replay;

namespace detail {
/* The dataset of dataset::from_function(). Owns the function. */
template <class F> struct sample_maker {
  F make;
  int64_t length;

  static int64_t count(void *self) { return static_cast<sample_maker *>(self)->length; }
  static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                            tdict_error *err) {
    return catch_all(err, [=]() { return static_cast<sample_maker *>(self)->take(*info, index, out, err); });
  }
  static void release(void *self) { delete static_cast<sample_maker *>(self); }

private:
  tdict_status take(const tdict_fetch_info &info, int64_t index, tdict_tree **out, tdict_error *err) {
#if TDICT_HPP_EXCEPTIONS
    (void)err;
    tree sample = make(info, index);
#else
    result<tree> made = make(info, index);
    tdict_error failure;
    if (!made) fail(failure, made.status(), made.error().path(), made.error().message());
    if (!made && err) *err = failure;
    if (!made) return made.status();
    tree sample = std::move(*made);
#endif
    if (!sample && length < 0) return TDICT_ENOTFOUND;
    *out = sample.detach();
    return TDICT_OK;
  }
};
} // namespace detail

/** Owns a dataset. A loader takes a reference of its own. */
class dataset : public owner<tdict_dataset, tdict_dataset_release, borrowed<tdict_dataset>> {
public:
  using owner::owner;
  /** Constructs an empty handle. */
  dataset() noexcept = default;
  /** Creates a dataset from a table of functions; see tdict_dataset_create(). */
  static outcome<dataset> create(const tdict_dataset_table &table) {
    return call<dataset>(tdict_dataset_create, &table);
  }
  /** Creates a dataset whose sample i is element i of the first batch dimension; see tdict_dataset_from_tree(). */
  static outcome<dataset> from_tree(tree_ref rows) { return call<dataset>(tdict_dataset_from_tree, rows.raw()); }
  /** Creates a dataset from files of token ids; see tdict_dataset_from_tokens(). */
  static outcome<dataset> from_tokens(const tdict_token_options &options) {
    return call<dataset>(tdict_dataset_from_tokens, &options);
  }
  /** Creates a dataset of the filled rows of a replay buffer; see tdict_dataset_from_replay(). */
  static outcome<dataset> from_replay(const replay &rows);
  /** Creates a dataset whose samples a function makes: `make(info, index)` returns outcome<tree>. One loader calls the
   *  function once at a time, in the order of the batches. If `length` is negative, the dataset is a stream, which an
   *  empty handle ends. Exceptions of the function become errors of the batch, as with TDICT_CALLBACK(). */
  template <class F> static outcome<dataset> from_function(F make, int64_t length) {
    typedef detail::sample_maker<F> maker;
    tdict_error err;
    tdict_dataset *made = nullptr;
    tdict_dataset_table table = tdict_dataset_table_default();
    maker *self = new (std::nothrow) maker{std::move(make), length};
    tdict_status status = self ? TDICT_OK : detail::fail(err, TDICT_ENOMEM, "", "no memory for the dataset");
    table.name = "function";
    table.self = self;
    table.length = maker::count;
    table.fetch_sample = maker::fetch;
    table.release = maker::release;
    table.in_order = true;
    if (self) status = tdict_dataset_create(&table, &made, &err);
    if (self && status != TDICT_OK) delete self;
    return detail::give<dataset>(status, err, dataset(made));
  }
  /** Returns a new reference. */
  dataset share() const { return dataset(tdict_dataset_retain(raw_)); }
};

/** Owns a replay buffer. std::lock_guard<const tdict::replay> holds the lock of the rows. */
class replay : public owner<tdict_replay, tdict_replay_release, borrowed<tdict_replay>> {
public:
  using owner::owner;
  /** Constructs an empty handle. */
  replay() noexcept = default;
  /** Creates a replay buffer over the rows of a tree; see tdict_replay_create(). */
  static outcome<replay> create(tree_ref rows, int64_t num_filled = 0) {
    return call<replay>(tdict_replay_create, rows.raw(), num_filled);
  }
  /** Appends rows. If the buffer is full, the new rows replace the oldest rows. */
  outcome<void> append(tree_ref rows) const { return run(tdict_replay_append, raw_, rows.raw()); }
  /** Rewrites filled rows, beginning with row `first`. */
  outcome<void> write(int64_t first, tree_ref rows) const { return run(tdict_replay_write, raw_, first, rows.raw()); }
  /** Makes the buffer empty. */
  void clear() const noexcept { tdict_replay_clear(raw_); }
  /** Returns the counts of the buffer, all at one moment; see tdict_replay_get_state(). */
  outcome<tdict_replay_state> state() const {
    return detail::read(tdict_replay_get_state, raw_, tdict_replay_state_default());
  }
  /** Sets the counts of the buffer; see tdict_replay_set_state(). */
  outcome<void> set_state(const tdict_replay_state &state) const { return run(tdict_replay_set_state, raw_, &state); }
  /** Takes the lock of the rows. Until unlock(), the thread may write the tensors of the tree. */
  void lock() const noexcept { tdict_replay_lock(raw_); }
  /** Releases the lock of the rows. */
  void unlock() const noexcept { tdict_replay_unlock(raw_); }
  /** Returns a new reference. */
  replay share() const { return replay(tdict_replay_retain(raw_)); }
};

inline outcome<dataset> dataset::from_replay(const replay &rows) {
  return call<dataset>(tdict_dataset_from_replay, rows.raw());
}

/** Owns a loader. With exceptions, `for (tdict::tree &batch : loader)` reads the batches of an epoch. */
class loader : public owner<tdict_loader, tdict_loader_destroy, borrowed<tdict_loader>> {
public:
  using owner::owner;
  /** Constructs an empty handle. */
  loader() noexcept = default;
  /** Creates a loader; see tdict_loader_create(). The loader retains the dataset. */
  static outcome<loader> create(const context &owner, const dataset &source,
                                const tdict_loader_options &options = tdict_loader_options_default()) {
    return call<loader>(tdict_loader_create, owner.raw(), source.raw(), &options);
  }
  /** Returns the next batch. Returns an empty handle at the end of the epoch; see tdict_loader_next(). */
  outcome<tree> next(tdict_stream stream = tdict_no_stream()) const {
    return call<tree>(tdict_loader_next, raw_, stream);
  }
  /** Returns the number of batches in an epoch, or -1 for a stream; see tdict_loader_length(). */
  int64_t length() const { return tdict_loader_length(raw_); }
  /** Begins a new epoch, and drops prefetched batches; see tdict_loader_restart(). */
  outcome<void> restart() const { return run(tdict_loader_restart, raw_); }
  /** Describes the last batch; see tdict_loader_get_batch_info(). */
  outcome<tdict_batch_info> batch_info() const {
    return detail::read(tdict_loader_get_batch_info, raw_, tdict_batch_info_default());
  }
  /** Returns the position of the loader; see tdict_loader_get_state(). */
  outcome<tdict_loader_state> state() const {
    return detail::read(tdict_loader_get_state, raw_, tdict_loader_state_default());
  }
  /** Moves the loader to the position of a saved state; see tdict_loader_set_state(). */
  outcome<void> set_state(const tdict_loader_state &state) const { return run(tdict_loader_set_state, raw_, &state); }
  /** Returns the statistics since the creation; see tdict_loader_get_stats(). */
  outcome<tdict_loader_stats> stats() const {
    return detail::read(tdict_loader_get_stats, raw_, tdict_loader_stats_default());
  }

#if TDICT_HPP_EXCEPTIONS
  /** Reads the remaining batches of an epoch. Each increment releases the batch and reads the next batch. */
  class iterator {
  public:
    typedef std::input_iterator_tag iterator_category;
    typedef tree value_type;
    typedef std::ptrdiff_t difference_type;
    typedef tree *pointer;
    typedef tree &reference;
    /** Constructs the end of the epoch. */
    iterator() noexcept : loader_(nullptr) {}
    /** Reads the first remaining batch. Throws the errors of next(). */
    explicit iterator(const class loader *loader) : loader_(loader), batch_(loader->next()) {}
    /** Returns the batch, owned by the iterator. */
    tree &operator*() noexcept { return batch_; }
    /** Returns the address of the batch, owned by the iterator. */
    tree *operator->() noexcept { return &batch_; }
    /** Releases the batch, and reads the next one. Throws the errors of next(). */
    iterator &operator++() {
      batch_.reset();
      batch_ = loader_->next();
      return *this;
    }
    /** True if both iterators have the same batch, or if both are at the end. */
    bool operator==(const iterator &other) const noexcept { return batch_.raw() == other.batch_.raw(); }
    /** True if the iterators are not equal. */
    bool operator!=(const iterator &other) const noexcept { return !(*this == other); }

  private:
    const class loader *loader_;
    tree batch_;
  };
  /** Reads the first remaining batch of the epoch. Throws the errors of next(). */
  iterator begin() const { return iterator(this); }
  /** Returns the end of the epoch. */
  iterator end() const noexcept { return iterator(); }
#endif
};

TDICT_HPP_END

#endif
