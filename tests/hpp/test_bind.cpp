/* Tests structs that TDICT_BIND() binds to trees: pack, unpack, make, and structs as objects in trees. */
#include "hpp/check.hpp"
#include "tdict/view.h"

namespace rl {
struct transition {
  tdict::tensor state, action, image;
};
} // namespace rl
TDICT_BIND(rl::transition, "transition", {&rl::transition::state, "obs.state", TDICT_F32, {17}},
           {&rl::transition::action, "action", TDICT_I64, {}}, {&rl::transition::image, "obs.image", TDICT_U8, {-1, 4}})
using rl::transition;

enum { ROWS = 24, STATE = 17 };

static transition random_transition(uint64_t seed) {
  transition t;
  t.state = tdict::tensor::empty(TDICT_F32, {ROWS, STATE});
  t.action = tdict::tensor::empty(TDICT_I64, {ROWS});
  t.image = tdict::tensor::empty(TDICT_U8, {ROWS, 3, 4});
  td_fill_random(t.state.data<float>(), t.state.bytes(), seed);
  td_fill_random(t.action.data<int64_t>(), t.action.bytes(), seed + 1);
  td_fill_random(t.image.data<uint8_t>(), t.image.bytes(), seed + 2);
  return t;
}

static void same_bytes(tdict::tensor_ref a, tdict::tensor_ref b) {
  assert_int_equal(a.bytes(), b.bytes());
  assert_memory_equal(tdict_tensor_const_data(a.raw()), tdict_tensor_const_data(b.raw()), a.bytes());
}

CASE(hpp_pack_and_unpack_share_tensors) {
  transition t = random_transition(5);
  tdict::tree tree = tdict::pack(t);
  assert_int_equal(tree.batch_size().size(), 1);
  assert_int_equal(tree.batch_size()[0], ROWS);
  CHECK(tdict_tensor_shares_storage(tree.get("obs.image").raw(), t.image.raw()));
  transition back = tdict::unpack<transition>(tree);
  tree.reset();
  same_bytes(back.state, t.state);
  same_bytes(back.action, t.action);
  same_bytes(back.image, t.image);
}

CASE(hpp_pack_and_unpack_refuse) {
  transition t = random_transition(6);
  t.action.reset();
  check_throws(TDICT_EINVAL, "action", "the member has no tensor", [&] { tdict::pack(t); });
  t.action = tdict::tensor::zeros(TDICT_I32, {ROWS});
  check_throws(TDICT_EDTYPE, "action", "the dtype is int32, wanted int64", [&] { tdict::pack(t); });
  t.action = tdict::tensor::zeros(TDICT_I64, {ROWS + 1});
  check_throws(TDICT_ESHAPE, "action", "", [&] { tdict::pack(t); });
  t = random_transition(6);
  t.image = tdict::tensor::zeros(TDICT_U8, {ROWS, 3, 5});
  check_throws(TDICT_ESHAPE, "obs.image", "wanted [-1, 4]", [&] { tdict::pack(t); });
  t = random_transition(6);
  tdict::tree tree = tdict::pack(t);
  tree.remove("obs.image");
  check_throws(TDICT_ENOTFOUND, "obs.image", "", [&] { tdict::unpack<transition>(tree); });
  tree.set("obs.image", tdict::tensor::zeros(TDICT_U8, {ROWS, 4}));
  check_throws(TDICT_ESHAPE, "obs.image", "fewer dimensions", [&] { tdict::unpack<transition>(tree); });
  check_throws(TDICT_EINVAL, "obs.image", "", [] { tdict::make<transition>({ROWS}); }); /* a size cannot be -1 */
  check_throws(TDICT_EINVAL, "", "tree is NULL", [] { tdict::unpack<transition>(tdict::tree()); });
}

struct pair {
  tdict::tensor a, b;
};
TDICT_BIND(pair, "pair", {&pair::a, "a", TDICT_F32, {2}}, {&pair::b, "b", TDICT_I64, {}})

GPU_CASE(hpp_bound_struct_is_an_object) {
  tdict::context context(td_context(NULL));
  pair p = tdict::make<pair>({ROWS});
  td_fill_random(p.a.data<float>(), p.a.bytes(), 1);
  td_fill_random(p.b.data<int64_t>(), p.b.bytes(), 2);
  tdict::tensor a = p.a.share(), b = p.b.share();
  tdict::tree tree = tdict::tree::create({ROWS});
  tdict::set_object(tree, "pair", std::move(p));
  assert_int_equal(tree.bytes(), a.bytes() + b.bytes());
  assert_ptr_equal(tdict::get_object<pair>(tree, "pair")->a.raw(), a.raw());

  tdict::tree pinned = context.pin_memory(tree);
  const pair *q = tdict::get_object<pair>(pinned, "pair");
  CHECK(q->a.is_pinned() && q->b.is_pinned());
  same_bytes(q->a, a);
  same_bytes(q->b, b);

  tdict::tree moved = context.to_device(tree, td_device());
  CHECK(tdict_device_equal(tdict::get_object<pair>(moved, "pair")->b.device(), td_device()));
  CHECK(tdict_is_pinned(moved.raw())); /* the object has no tensors in host memory */
  tdict::tree back = context.to_device(moved, tdict_cpu());
  same_bytes(tdict::get_object<pair>(back, "pair")->b, b);
  td_fill_random(b.data<int64_t>(), b.bytes(), 3);
  context.transfer_into(moved, tree);
  context.transfer_into_async(back, moved).take();
  same_bytes(tdict::get_object<pair>(back, "pair")->b, b);

  tdict::tree row = tree.index(TDICT_INDEX(TDICT_AT(3)));
  assert_memory_equal(tdict_tensor_const_data(tdict::get_object<pair>(row, "pair")->b.raw()), b.data<int64_t>() + 3,
                      sizeof(int64_t));
}

/* The second tensor of a bound struct may be missing. */
GPU_CASE(hpp_bound_struct_may_be_incomplete) {
  tdict::context context(td_context(NULL));
  pair p = tdict::make<pair>({ROWS});
  tdict::tree tree = tdict::tree::create({ROWS});
  const size_t bytes = p.a.bytes();
  p.b = tdict::tensor();
  tdict::set_object(tree, "pair", std::move(p));
  assert_int_equal(tree.bytes(), bytes);
  CHECK(!tdict_is_pinned(tree.raw()));
  tdict::tree pinned = context.pin_memory(tree);
  const pair *q = tdict::get_object<pair>(pinned, "pair");
  CHECK(q->a.is_pinned() && !q->b && tdict_is_pinned(pinned.raw()));
  check_throws(TDICT_EINVAL, "pair", "b: bind: the member has no tensor", [&] { tree.clone_deep(); });
}

CASE(hpp_bound_objects_refuse) {
  tdict::tree tree = tdict::tree::create({ROWS});
  pair p = tdict::make<pair>({ROWS});
  tdict_lock(tree.raw());
  check_throws(TDICT_ELOCKED, "pair", "", [&] { tdict::set_object(tree, "pair", std::move(p)); });
  CHECK(p.a && p.b); /* still the caller's */
  td_ok(tdict_unlock(tree.raw(), err));
  tdict::set_object(tree, "pair", std::move(p));
  check_throws(TDICT_ETYPE, "pair", "", [&] { tdict::get_object<transition>(tree, "pair"); });
  check_throws(TDICT_ENOTFOUND, "none", "", [&] { tdict::get_object<pair>(tree, "none"); });
}
