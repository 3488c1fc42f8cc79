/* Includes all public headers of tdict except tdict/comm_mpi.h, tdict/io.h and tdict/try.h. Declares the version of the
 * library. */
#ifndef TDICT_TDICT_H
#define TDICT_TDICT_H

#include "tdict/arrow.h"
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/comm.h"
#include "tdict/comm_nccl.h"
#include "tdict/convert.h"
#include "tdict/debug.h"
#include "tdict/devices.h"
#include "tdict/dlpack.h"
#include "tdict/hook.h"
#include "tdict/index.h"
#include "tdict/keysets.h"
#include "tdict/lazy_stack.h"
#include "tdict/loader.h"
#include "tdict/nontensor.h"
#include "tdict/object.h"
#include "tdict/ragged.h"
#include "tdict/records.h"
#include "tdict/replay.h"
#include "tdict/schema.h"
#include "tdict/shape.h"
#include "tdict/share.h"
#include "tdict/trace.h"
#include "tdict/transfer.h"
#include "tdict/unbatched.h"
#include "tdict/visit.h"
#include "tdict/wire.h"
#include "tdict/write.h"

#define TDICT_VERSION_MAJOR 0
#define TDICT_VERSION_MINOR 2
#define TDICT_VERSION_PATCH 0

TDICT_BEGIN_DECLS

/** @brief Returns the version of the loaded library: major * 10000 + minor * 100 + patch. Thread-safe. */
TDICT_API int tdict_version(void);

TDICT_END_DECLS
#endif
