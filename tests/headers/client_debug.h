/* The part of client.c that uses tdict/records.h and tdict/debug.h. */
typedef struct client_record {
  char tag;
  struct {
    double mass;
    float pos[3];
  } body;
  int64_t tensor[1][1][1][1][1][1];
} client_record;

static void use_records(void) {
  static const tdict_record_field fields[4] = {
      TDICT_RECORD_FIELD(client_record, tag, "tag", TDICT_I8),
      TDICT_RECORD_FIELD(client_record, body.mass, "body.mass", TDICT_F64),
      TDICT_RECORD_FIELD(client_record, body.pos, "body.pos", TDICT_F32, 3),
      TDICT_RECORD_FIELD(client_record, tensor, "tensor", TDICT_I64, 1, 1, 1, 1, 1, 1),
  };
  client_record array[2];
  tdict_records records = tdict_records_default();
  tdict_record_field field = fields[1];
  tdict_tree *tree = NULL, *dense = NULL;
  memset(array, 0, sizeof array);
  array[1].body.mass = 2.5;
  records.data = array;
  records.num_records = 2;
  records.record_bytes = sizeof array[0];
  records.fields = fields;
  records.num_fields = 4;
  TRUE(field.offset == offsetof(client_record, body.mass) && field.member_bytes == sizeof(double));
  OK(tdict_records_view(&records, NULL, NULL, &tree, &last_error));
  OK(tdict_clone_deep(tree, NULL, &dense, &last_error));
  TRUE(((const double *)tdict_const_data(dense, "body.mass"))[1] == 2.5);
  OK(tdict_fill(dense, "body.mass", 4, NULL, &last_error));
  OK(tdict_records_write(&records, dense, &last_error));
  TRUE(array[0].body.mass == 4 && array[1].body.mass == 4);
  tdict_release(dense);
  tdict_release(tree);
}

static void use_debug(void) {
  tdict_tree *tree = NULL;
  FILE *file = fopen("/dev/null", "w");
  OK(tdict_create(0, NULL, &tree, &last_error));
  if (file) OK(tdict_describe(tree, file, &last_error));
  if (file) fclose(file);
  {
    const float numbers[2] = {1, 2};
    const int64_t count = 2;
    tdict_tensor *tensor = NULL;
    tdict_tensor_summary summary = tdict_tensor_summary_default();
    OK(tdict_tensor_from_array(TDICT_F32, 1, &count, numbers, &tensor, &last_error));
    OK(tdict_tensor_get_summary(tensor, &summary, &last_error));
    TRUE(summary.mean == 1.5 && summary.num_elements == 2);
    tdict_tensor_release(tensor);
  }
  OK(tdict_describe(NULL, NULL, &last_error));
  tdict_release(tree);
}
