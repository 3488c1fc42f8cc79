/* tdict for C++11 and later: header-only classes over the C interface.
 *
 *     tdict::context context = tdict::context::create();
 *     tdict::tree batch = tdict::tree::create(fields, {128});
 *     for (float &reward : batch.elements<float>("reward")) reward = 1.0f;
 *     tdict::tree moved = context.to_device(batch, context.device());
 *
 * - Classes such as tdict::tree own one reference. Objects of these classes have the size of a pointer, and can be
 *   moved but not copied. share() returns another reference.
 * - Classes such as tdict::tree_ref borrow, as pointers do. The functions take arguments of these classes.
 * - Errors are exceptions. With -fno-exceptions, errors are results: see tdict/hpp/result.hpp.
 * - The classes have members for the most common C functions. tdict::call() and tdict::run() call other C functions
 *   that return a status.
 * - TDICT_BIND() (tdict/hpp/bind.hpp) binds a struct of tensors to a tree.
 * - TDICT_CALLBACK() (tdict/hpp/callback.hpp) makes a C callback that catches the exceptions of a function.
 *
 * The thread rules and ownership are the same as in C. A function with the name of a C function reports its errors. */
#ifndef TDICT_TDICT_HPP
#define TDICT_TDICT_HPP

#include "tdict/hpp/bind.hpp"
#include "tdict/hpp/callback.hpp"
#include "tdict/hpp/data.hpp"
#include "tdict/hpp/handle.hpp"
#include "tdict/hpp/result.hpp"
#include "tdict/hpp/tensor.hpp"
#include "tdict/hpp/transfer.hpp"
#include "tdict/hpp/tree.hpp"

#endif
