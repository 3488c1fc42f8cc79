/* Tests exceptions thrown by the program's callbacks. They are caught by the header, reach the caller, or end the
 * process. docs/callbacks.md says which. */
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "hpp/check.hpp"
#include "tdict/lazy_stack.h"
#include "tdict/memory.h"
#include "tdict/sim.h"

struct picky {
  tdict::tensor x;
  static bool throws;
  picky() {
    if (throws) throw std::runtime_error("picky: no room");
  }
};
bool picky::throws = false;
TDICT_BIND(picky, "picky", {&picky::x, "x", TDICT_F32, {}})

static tdict_status make_sample(void *user, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                tdict_error *err) {
  (void)info;
  if (index == 2) throw std::runtime_error("sample 2 is damaged");
  if (index == 3) throw tdict::error(*static_cast<tdict_error *>(user));
  if (index == 4) throw std::bad_alloc();
  if (index == 5) throw 7;
  return tdict_create(0, nullptr, out, err);
}
static tdict::context sim_context() {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  options.device = tdict_sim(0);
  options.sim = &sim;
  return tdict::context::create(options);
}
static tdict_loader *loader_of(const tdict::context &context, tdict_make_sample make, tdict_error *user, int workers) {
  tdict_loader_options options = tdict_loader_options_default();
  tdict_dataset *dataset = nullptr;
  tdict_loader *loader = nullptr;
  options.num_workers = workers;
  options.device = tdict_cpu();
  options.on_error = TDICT_ON_ERROR_CONTINUE;
  td_ok(tdict_dataset_from_callback(make, user, 6, &dataset, err));
  td_ok(tdict_loader_create(context.raw(), dataset, &options, &loader, err));
  tdict_dataset_release(dataset);
  return loader;
}

/* If fetching a sample throws, on the caller's thread or a worker, the error of the batch has the exception's text. */
CASE(hpp_callback_returns_the_exception) {
  tdict::context context = sim_context();
  tdict_error own = tdict_error();
  own.status = TDICT_EDTYPE;
  std::snprintf(own.message, sizeof own.message, "the dtype is odd");
  for (int workers = 0; workers < 3; workers++) {
    tdict_loader *loader = loader_of(context, TDICT_CALLBACK(make_sample), &own, workers);
    tdict_tree *batch = nullptr;
    for (int i = 0; i < 2; i++) {
      td_ok(tdict_loader_next(loader, tdict_no_stream(), &batch, err));
      tdict_release(batch);
    }
    td_fails(TDICT_EHOOK, "sample 2 is damaged", tdict_loader_next(loader, tdict_no_stream(), &batch, err));
    td_fails(TDICT_EDTYPE, "the dtype is odd", tdict_loader_next(loader, tdict_no_stream(), &batch, err));
    td_fails(TDICT_ENOMEM, "bad_alloc", tdict_loader_next(loader, tdict_no_stream(), &batch, err));
    td_fails(TDICT_EHOOK, "not a std::exception", tdict_loader_next(loader, tdict_no_stream(), &batch, err));
    tdict_loader_destroy(loader);
  }
}

static tdict_status plan_and_throw(void *, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *) {
  tdict_epoch_add(epoch, 0);
  if (info->epoch == 1) throw std::runtime_error("the labels are damaged");
  return TDICT_OK;
}

/* If planning an epoch throws, the epoch fails with the text of the exception. */
CASE(hpp_plan_may_throw) {
  tdict::context context = sim_context();
  tdict::tree rows = tdict::tree::create({3});
  rows.set("x", tdict::tensor::zeros(TDICT_F32, {3}));
  tdict::dataset data = tdict::dataset::from_tree(rows);
  tdict_loader_options options = tdict_loader_options_default();
  options.plan_epoch = TDICT_CALLBACK(plan_and_throw);
  for (options.num_workers = 0; options.num_workers < 3; options.num_workers++) {
    tdict::loader loader = tdict::loader::create(context, data, options);
    int batches = 0;
    for (tdict::tree &batch : loader) batches += batch ? 1 : 0;
    CHECK(batches == 1);
    check_throws(TDICT_EHOOK, "", "loader: plan_epoch for epoch 1: the labels are damaged", [&] { loader.next(); });
    CHECK(loader.state().epoch == 1 && loader.state().batch == 0);
  }
}

/* If the constructor of a bound struct throws, its hooks return an error. */
CASE(hpp_bound_structs_may_throw) {
  tdict::context context = sim_context();
  tdict::tree tree = tdict::tree::create({3});
  picky value;
  value.x = tdict::tensor::zeros(TDICT_F32, {3});
  tdict::set_object(tree, "object", std::move(value));
  picky::throws = true;
  check_throws(TDICT_EHOOK, "object", "picky: no room", [&] { context.pin_memory(tree); });
  check_throws(TDICT_EHOOK, "object", "picky: no room", [&] { context.to_device(tree, tdict_sim(0)); });
  picky::throws = false;
  tdict::tree moved = context.to_device(tree, tdict_sim(0));
  CHECK(moved);
}

static tdict_status walk_and_throw(void *, const tdict_entry *, tdict_error *) { throw std::runtime_error("walked"); }
static tdict_status lazy_and_throw(void *, const tdict_lazy_entry *, tdict_error *) {
  throw std::runtime_error("lazy");
}
static tdict_status write_and_throw(void *, const char *, size_t) { throw std::runtime_error("written"); }
/* Returns true if `function` throws a std::runtime_error. */
template <class F> static bool passes(F function) {
  try {
    function();
  } catch (const std::runtime_error &) {
    return true;
  }
  return false;
}

enum { TERMINATED = 42 };
/* Runs a function in a child process, which also confines leaks of the exception. Checks the exit code. */
template <class F> static void ends_with(int code, F function) {
  pid_t child = fork();
  if (child == 0) {
    std::set_terminate([] { _exit(TERMINATED); });
    alarm(20); /* kills the child if a call waits forever */
    _exit(function());
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), code);
}

/* Without TDICT_CALLBACK(), these functions let the exception through. The library can still be used. */
CASE(hpp_exceptions_pass_sequential_calls) {
  ends_with(0, [] {
    tdict::context context = sim_context();
    tdict::tree tree = tdict::tree::create({3});
    tree.set("x", tdict::tensor::zeros(TDICT_F32, {3}));
    if (!passes([&] { (void)!tdict_walk(tree.raw(), walk_and_throw, nullptr, nullptr); })) return 1;
    if (tdict_trace_start(context.raw(), nullptr, nullptr) != TDICT_OK) return 2;
    context.to_device(tree, tdict_sim(0));
    if (!passes([&] { (void)!tdict_trace_write_to(context.raw(), write_and_throw, nullptr, nullptr); })) return 3;
    tdict_lazy_stack *stack = nullptr;
    tdict_tree *trees[] = {tree.raw(), tree.raw()};
    if (tdict_lazy_stack_create(trees, 2, &stack, nullptr) != TDICT_OK) return 4;
    if (!passes([&] { (void)!tdict_lazy_stack_walk(stack, lazy_and_throw, nullptr, nullptr); })) return 5;
    tdict_lazy_stack_release(stack);
    return context.to_device(tree, tdict_sim(0)) ? 0 : 6;
  });
}

/* The exception reaches the caller. The next call returns an error for the batch, not the end of the epoch. */
CASE(hpp_exceptions_leave_the_loader_usable) {
  alarm(20);
  tdict::context context = sim_context();
  tdict_loader *loader = loader_of(context, make_sample, nullptr, 0);
  tdict_tree *batch = nullptr;
  for (int i = 0; i < 2; i++) {
    td_ok(tdict_loader_next(loader, tdict_no_stream(), &batch, err));
    tdict_release(batch);
  }
  CHECK(passes([&] { (void)!tdict_loader_next(loader, tdict_no_stream(), &batch, nullptr); }));
  td_fails(TDICT_EHOOK, "a function of the program did not return",
           tdict_loader_next(loader, tdict_no_stream(), &batch, err));
  td_ok(tdict_loader_restart(loader, err));
  td_ok(tdict_loader_next(loader, tdict_no_stream(), &batch, err));
  CHECK(batch);
  tdict_release(batch);
  tdict_loader_destroy(loader);
  alarm(0);
}

/* Checks that `function` ends the process with std::terminate(), even though the caller would catch the exception. */
template <class F> static void terminates(F function) {
  ends_with(TERMINATED, [=] {
    passes(function);
    return 1;
  });
}
static tdict_status visit_and_throw(void *, const tdict_leaves *, tdict_error *) { throw std::runtime_error("visit"); }
static tdict_status hook_and_throw(const void *, const tdict_hook *, void **, tdict_error *) {
  throw std::runtime_error("hook");
}
static tdict_status clone_and_throw(const void *, void **, tdict_error *) { throw std::runtime_error("clone"); }
static void *allocate_and_throw(void *, size_t) { throw std::runtime_error("allocate"); }
static void release_nothing(void *) {}
static void release_block(void *, void *, size_t) {}

/* Other threads may be waiting for these callbacks, so an exception must end the process. */
CASE(hpp_exceptions_end_the_process) {
  terminates([] {
    tdict::tree tree = tdict::tree::create({3});
    const tdict_tree *raw = tree.raw();
    tree.set("x", tdict::tensor::zeros(TDICT_F32, {3}));
    (void)!tdict_visit(nullptr, &raw, 1, visit_and_throw, nullptr, nullptr, nullptr);
  });
  for (int threads = -1; threads < 2; threads++)
    terminates([=] {
      static tdict_type type = tdict_type_default();
      static int object;
      tdict::context context = sim_context();
      tdict::tree tree = tdict::tree::create({3});
      tdict_transfer_options options = tdict_transfer_options_default();
      tdict_tree *out = nullptr;
      type.name = "thrower";
      type.release = release_nothing;
      type.to_device = hook_and_throw;
      type.clone = clone_and_throw;
      options.num_threads = threads;
      if (tdict_set_object(tree.raw(), "object", &type, &object, nullptr) != TDICT_OK) _exit(3);
      (void)!tdict_to_device(context.raw(), tree.raw(), tdict_sim(0), &options, &out, nullptr);
    });
  terminates([] {
    tdict::context context = sim_context();
    tdict_allocator allocator = tdict_allocator_default();
    tdict_memory *memory = nullptr;
    tdict_tensor *tensor = nullptr;
    const int64_t size = 3;
    allocator.allocate = allocate_and_throw;
    allocator.release = release_block;
    if (tdict_memory_create(context.raw(), &allocator, &memory, nullptr) != TDICT_OK) _exit(3);
    (void)!tdict_tensor_empty(TDICT_F32, 1, &size, memory, &tensor, nullptr);
  });
}
