/* As consumer.c, written as a C++11 program writes it. */
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <tdict/tdict.h>

namespace {

struct Destroy {
  void operator()(tdict_context *context) const { tdict_context_destroy(context); }
  void operator()(tdict_tree *td) const { tdict_release(td); }
  void operator()(tdict_tensor *tensor) const { tdict_tensor_release(tensor); }
};
using Context = std::unique_ptr<tdict_context, Destroy>;
using Tree = std::unique_ptr<tdict_tree, Destroy>;
using Tensor = std::unique_ptr<tdict_tensor, Destroy>;

void check(tdict_status status, const tdict_error &err) {
  if (status != TDICT_OK) throw std::runtime_error(std::string(tdict_status_name(status)) + ": " + err.message);
}

void run() {
  tdict_error err{};
  tdict_context_options options = tdict_context_options_default();
  options.device = tdict_sim(0);
  tdict_context *context = nullptr;
  check(tdict_context_create(&options, &context, &err), err);
  Context context_owner(context);

  std::vector<double> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0.25);
  const std::int64_t shape[] = {10, 100};
  tdict_tensor_desc view = tdict_tensor_desc_default();
  view.data = numbers.data();
  view.dtype = TDICT_F64;
  view.ndim = 2;
  view.shape = shape;
  tdict_tensor *tensor = nullptr;
  check(tdict_tensor_from_data(&view, nullptr, nullptr, &tensor, &err), err);
  Tensor tensor_owner(tensor);

  tdict_tree *td = nullptr;
  check(tdict_create(1, shape, &td, &err), err);
  Tree host(td);
  check(tdict_set(host.get(), "next.value", tensor, &err), err);
  check(tdict_to_device(context, host.get(), tdict_sim(0), nullptr, &td, &err), err);
  Tree device(td);
  check(tdict_to_device(context, device.get(), tdict_cpu(), nullptr, &td, &err), err);
  Tree back(td);
  if (std::memcmp(tdict_const_data(back.get(), "next.value"), numbers.data(), numbers.size() * sizeof(double)) != 0)
    throw std::runtime_error("other bytes came back");
  std::cout << "consumer: C++, version " << tdict_version() << ", the same bytes came back\n";
}

} // namespace

int main() {
  try {
    run();
  } catch (const std::exception &problem) {
    std::cerr << "consumer: " << problem.what() << '\n';
    return 1;
  }
  return 0;
}
