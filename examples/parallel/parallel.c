/* Data-parallel training with the communicators of the library. See parallel.h. */
#ifdef EXAMPLES_MPI
#include <mpi.h> /* before tdict/comm_mpi.h, so that the compiler checks the type of the communicator */

#include <tdict/comm_mpi.h>
#endif

#include "parallel/parallel.h"

#include <stdio.h>
#include <string.h>
#include <tdict/comm_nccl.h>
#include <tdict/sim.h>
#include <tdict/view.h>

bool parallel_divide_rows(const parallel *p, int64_t *rows) {
  if (*rows % p->world == 0) {
    *rows /= p->world;
    return true;
  }
  fprintf(stderr, "%s: %lld rows cannot be divided equally among %lld processes\n", p->program, (long long)*rows,
          (long long)p->world);
  return false;
}

tdict_status parallel_open_context(parallel *p, const char *device,
                                   void (*log)(void *user, int32_t level, const char *text), tdict_error *err) {
  tdict_context_options o = tdict_context_options_default();
  tdict_sim_options sim = tdict_sim_options_default();
  o.log = log;
  tdict_status status = tdict_device_parse(device, &o.device, err);
  if (status != TDICT_OK) return status;
  if (p->kind && strcmp(device, "cuda") == 0) o.device.index = (int32_t)p->local;
  if (o.device.type == TDICT_DEVICE_SIM || o.device.type == TDICT_DEVICE_AUTO) o.sim = &sim;
  return tdict_context_create(&o, &p->context, err);
}

static tdict_status add_leaf(tdict_tree *tree, const tdict_tensor *array, const parallel_leaf *leaf, tdict_error *err) {
  tdict_tensor_desc layout = tdict_tensor_desc_default();
  tdict_tensor *view;
  layout.ndim = leaf->ndim;
  layout.shape = leaf->shape;
  tdict_status status = tdict_tensor_as_strided(array, &layout, leaf->offset, &view, err);
  if (status != TDICT_OK) return status;
  status = tdict_set(tree, leaf->name, view, err);
  tdict_tensor_release(view);
  return status;
}

tdict_status parallel_make_tree(const parallel_layout *layout, float *array, tdict_device device, bool with_loss,
                                tdict_tree **out, tdict_error *err) {
  const parallel_leaf loss = {"loss", layout->num_parameters, 1, {1}};
  const int64_t length = layout->num_parameters + (with_loss ? 1 : 0);
  tdict_tensor_desc whole = tdict_tensor_desc_default();
  tdict_tensor *tensor = NULL;
  tdict_tree *tree = NULL;
  whole.data = array;
  whole.device = device;
  whole.dtype = TDICT_F32;
  whole.ndim = 1;
  whole.shape = &length;
  tdict_status status = tdict_tensor_from_data(&whole, NULL, NULL, &tensor, err);
  if (status == TDICT_OK) status = tdict_create(0, NULL, &tree, err);
  for (size_t i = 0; status == TDICT_OK && i < layout->num_leaves; i++)
    status = add_leaf(tree, tensor, &layout->leaves[i], err);
  if (status == TDICT_OK && with_loss) status = add_leaf(tree, tensor, &loss, err);
  tdict_tensor_release(tensor);
  if (status == TDICT_OK)
    *out = tree;
  else
    tdict_release(tree);
  return status;
}

/* Averages the tree over all ranks, or copies the tree of rank 0 to all ranks. MPI works in host memory. A tree on a
 * device is therefore copied to pinned host memory, and the result is copied back. */
static tdict_status exchange(parallel *p, tdict_tree *tree, bool average, tdict_stream stream, tdict_error *err) {
  const bool is_near = tdict_device_equal(p->device, tdict_comm_get_info(p->comm).device);
  tdict_comm_options options = tdict_comm_options_default();
  tdict_transfer_options copy = tdict_transfer_options_default();
  tdict_tree *at = tree;
  tdict_future *future;
  tdict_status status = TDICT_OK;
  copy.after = stream;
  if (is_near && p->device.type != TDICT_DEVICE_CPU) options.after = stream;
  if (!is_near) {
    copy.pinned_result = true;
    status = tdict_to_device(p->context, tree, tdict_comm_get_info(p->comm).device, &copy, &at, err);
    copy.pinned_result = false;
  }
  if (status != TDICT_OK) return status;
  status = average ? tdict_comm_all_reduce_async(p->comm, at, TDICT_REDUCE_MEAN, &options, &future, err)
                   : tdict_comm_broadcast_into_async(p->comm, at, 0, &options, &future, err);
  if (status == TDICT_OK) status = tdict_future_take(future, NULL, err);
  if (is_near) return status;
  if (status == TDICT_OK) status = tdict_transfer_into(p->context, tree, at, &copy, err);
  tdict_release(at);
  return status;
}

/* Rank 0 writes the id to the file, and the other ranks wait for the file. */
static tdict_status share_id(const parallel *p, int64_t timeout_ns, tdict_nccl_id *id, tdict_error *err) {
  if (p->rank > 0) return tdict_nccl_read_id_file(p->id_file, timeout_ns, id, err);
  tdict_status status = tdict_nccl_create_id(NULL, id, err);
  return status == TDICT_OK ? tdict_nccl_write_id_file(p->id_file, id, err) : status;
}

static tdict_status nccl_table(const parallel *p, tdict_comm_table *out, tdict_error *err) {
  tdict_nccl_options o = tdict_nccl_options_default();
  o.rank = (int32_t)p->rank;
  o.world_size = (int32_t)p->world;
  o.device = p->device;
  tdict_status status = share_id(p, o.timeout_ns, &o.id, err);
  if (status == TDICT_OK) status = tdict_nccl_create_table(p->context, &o, out, err);
  if (p->rank == 0) remove(p->id_file); /* all ranks have read the file, and a later run must not find it */
  return status;
}

static tdict_status make_table(const parallel *p, tdict_comm_table *out, tdict_error *err) {
#ifdef EXAMPLES_MPI
  if (strcmp(p->kind, "mpi") == 0) return tdict_mpi_create_table(NULL, NULL, out, err);
#endif
  return nccl_table(p, out, err);
}

tdict_status parallel_connect(parallel *p, float *parameters, float *gradients, tdict_error *err) {
  tdict_comm_table table = tdict_comm_table_default();
  tdict_status status = make_table(p, &table, err);
  if (status != TDICT_OK) return status;
  status = tdict_comm_create(p->context, &table, NULL, &p->comm, err);
  if (status != TDICT_OK) {
    table.destroy(table.self);
    return status;
  }
  status = parallel_make_tree(p->layout, parameters, p->device, false, &p->weights, err);
  if (status == TDICT_OK) status = parallel_make_tree(p->layout, gradients, p->device, true, &p->gradients, err);
  return status == TDICT_OK ? exchange(p, p->weights, false, tdict_no_stream(), err) : status;
}

tdict_status parallel_average(parallel *p, tdict_stream stream, tdict_error *err) {
  return exchange(p, p->gradients, true, stream, err);
}

void parallel_disconnect(parallel *p) {
  tdict_release(p->weights);
  tdict_release(p->gradients);
  tdict_comm_destroy(p->comm);
  p->weights = p->gradients = NULL;
  p->comm = NULL;
}

#ifdef EXAMPLES_MPI
static bool begin_mpi(parallel *p, int *argc, char ***argv) {
  int rank, world, local;
  MPI_Comm host;
  if (MPI_Init(argc, argv) != MPI_SUCCESS) return false;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &local);
  MPI_Comm_free(&host);
  p->rank = rank;
  p->world = world;
  p->local = local;
  return true;
}

void parallel_end(parallel *p, int status) {
  if (!p->kind || strcmp(p->kind, "mpi") != 0) return;
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
}
#else
static bool begin_mpi(parallel *p, int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  fprintf(stderr, "%s: this program has no MPI, start %s_openmpi or %s_mpich\n", p->program, p->program, p->program);
  return false;
}

void parallel_end(parallel *p, int status) {
  (void)p;
  (void)status;
}
#endif

bool parallel_begin(parallel *p, int *argc, char ***argv) {
  if (!p->kind) return true;
  if (strcmp(p->kind, "mpi") == 0) return begin_mpi(p, argc, argv);
  if (strcmp(p->kind, "nccl") != 0 || !p->id_file || p->world < 1 || p->rank < 0 || p->rank >= p->world) {
    fprintf(stderr, "%s: --comm is mpi or nccl; nccl needs --rank, --world and --id-file\n", p->program);
    return false;
  }
  p->local = p->rank;
  return true;
}
