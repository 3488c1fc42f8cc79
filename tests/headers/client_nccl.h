/* The part of client.c that uses tdict/comm_nccl.h. Needs no NCCL, because it names a missing library. */
#include <unistd.h>

static void use_nccl(tdict_context *context) {
  static const char missing[] = "/no/such/libnccl.so.2";
  char path[64];
  tdict_nccl_id id, found;
  tdict_comm_table table = tdict_comm_table_default();
  tdict_nccl_options o = tdict_nccl_options_default();
  memset(&id, 7, sizeof id);
  sprintf(path, "/tmp/tdict-client-%ld.id", (long)getpid());
  TRUE(tdict_nccl_create_id(missing, &id, &last_error) == TDICT_ENOTSUP);
  OK(tdict_nccl_write_id_file(path, &id, &last_error));
  OK(tdict_nccl_read_id_file(path, 0, &found, &last_error));
  TRUE(memcmp(&found, &id, sizeof id) == 0);
  TRUE(remove(path) == 0);
  o.library = missing;
  o.device = tdict_sim(0);
  o.id = found;
  TRUE(tdict_nccl_create_table(context, &o, &table, &last_error) == TDICT_ENOTSUP);
}
