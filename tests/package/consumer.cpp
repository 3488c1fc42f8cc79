/* Does the same as consumer.c in C++11, with the installed tdict/tdict.hpp. */
#include <cstring>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <tdict/tdict.hpp>

int main() try {
  tdict_context_options options = tdict_context_options_default();
  options.device = tdict_sim(0);
  tdict::context context = tdict::context::create(options);

  std::vector<double> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0.25);
  tdict::tree host = tdict::tree::create({10});
  host.set("next.value", tdict::tensor::from_array(numbers.data(), {10, 100}));
  tdict::tree back = context.to_device(context.to_device(host, tdict_sim(0)), tdict_cpu());
  if (std::memcmp(back.data<const double>("next.value"), numbers.data(), numbers.size() * sizeof(double)) != 0)
    throw std::runtime_error("other bytes came back");
  std::cout << "consumer: C++, version " << tdict_version() << ", the same bytes came back\n";
  return 0;
} catch (const std::exception &problem) {
  std::cerr << "consumer: " << problem.what() << '\n';
  return 1;
}
