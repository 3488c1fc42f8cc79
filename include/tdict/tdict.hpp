/* tdict for C++11 and later: header-only classes over the C interface.
 *
 *     tdict::context context = tdict::context::create();
 *     tdict::tree batch = tdict::tree::create(fields, {128});
 *     for (float &reward : batch.elements<float>("reward")) reward = 1.0f;
 *     tdict::tree moved = context.to_device(batch, context.device());
 *
 * - Classes such as tdict::tree own one reference, can be moved and not copied, and have the size of a pointer. share()
 *   returns another reference. Classes such as tdict::tree_ref borrow, as pointers do, and are what functions take.
 * - Errors are exceptions or, with -fno-exceptions, results: see tdict/hpp/result.hpp.
 * - tdict::call() and tdict::run() call every other C function: the classes have members for the most common ones.
 * - TDICT_BIND() (tdict/hpp/bind.hpp) binds a struct of tensors to a tree.
 *
 * Thread rules, ownership and errors are those of the C functions. */
#ifndef TDICT_TDICT_HPP
#define TDICT_TDICT_HPP

#include "tdict/hpp/bind.hpp"
#include "tdict/hpp/handle.hpp"
#include "tdict/hpp/result.hpp"
#include "tdict/hpp/tensor.hpp"
#include "tdict/hpp/transfer.hpp"
#include "tdict/hpp/tree.hpp"

#endif
