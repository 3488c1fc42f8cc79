/* Declares the version of the library, and includes the core: values, errors, tensors, trees, the context, transfers,
 * objects, the loader, and files. A program includes the other headers by name:
 *
 * - tdict/arrow.h: exchange of trees with Arrow libraries
 * - tdict/clone.h: copies and consolidated copies of trees; comparison
 * - tdict/combine.h: stack, cat, pad and pack: several trees become one
 * - tdict/comm.h: trees between processes and machines
 * - tdict/comm_mpi.h: the operations of a communicator through MPI
 * - tdict/comm_nccl.h: the operations of a communicator through NCCL
 * - tdict/comm_table.h: the operations of a communicator, for a program's own network
 * - tdict/config.h: the optional parts of this build, as macros; the build writes this header
 * - tdict/convert.h: other dtypes
 * - tdict/debug.h: trees as texts, with summaries of elements; bytes of shared storages
 * - tdict/devices.h: one tree to several devices, whole or in parts, and back
 * - tdict/dlpack.h: exchange of tensors with other libraries through DLPack
 * - tdict/hook.h: what the hooks of an object can ask and call; one object pinned
 * - tdict/index.h: indices: positions, ranges, masks and lists of rows
 * - tdict/keysets.h: trees with other keys: select, exclude, flatten, assign
 * - tdict/lazy_stack.h: a list of trees that is used as one tree
 * - tdict/memory.h: allocators of the program, and counts of memory
 * - tdict/nontensor.h: leaves of text, numbers and JSON
 * - tdict/path.h: paths of keys that contain dots
 * - tdict/ragged.h: leaves of rows of different lengths
 * - tdict/random.h: random numbers that depend on a seed alone
 * - tdict/records.h: arrays of C structs as trees
 * - tdict/replay.h: replay buffers, from which a loader draws batches
 * - tdict/run.h: how a call on elements runs: threads, stream, memory
 * - tdict/sampler.h: the order in which a loader draws samples
 * - tdict/schema.h: the keys, shapes and dtypes of a tree, as a value
 * - tdict/shape.h: views with other batch dimensions, and pieces of a tree
 * - tdict/share.h: trees in memory that several processes share
 * - tdict/sim.h: simulated devices, for tests without a GPU
 * - tdict/tokens.h: datasets from files of token ids
 * - tdict/trace.h: a timeline of transfers
 * - tdict/try.h: macros that print an error and leave the function
 * - tdict/unbatched.h: leaves without batch dimensions
 * - tdict/view.h: views of tensors: slices, other shapes and strides
 * - tdict/visit.h: a function of the program for each tensor
 * - tdict/write.h: elements in place: fill, copy, update */
#ifndef TDICT_TDICT_H
#define TDICT_TDICT_H

#include "tdict/context.h"
#include "tdict/io.h"
#include "tdict/loader.h"
#include "tdict/object.h"
#include "tdict/status.h"
#include "tdict/tensor.h"
#include "tdict/transfer.h"
#include "tdict/tree.h"
#include "tdict/values.h"

#define TDICT_VERSION_MAJOR 0
#define TDICT_VERSION_MINOR 3
#define TDICT_VERSION_PATCH 0

TDICT_BEGIN_DECLS

/** @brief Returns the version of the loaded library: major * 10000 + minor * 100 + patch. Thread-safe. */
TDICT_API int tdict_version(void);

TDICT_END_DECLS
#endif
