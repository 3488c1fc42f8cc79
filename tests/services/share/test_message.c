/* Tests messages with descriptors: refusals, timeouts, signals, and streams of messages. */
#include "services/share/message.h"

#include "rig.h"

typedef struct body {
  uint32_t magic, version, kind, worker;
} body;
static const body good = {0x67736d74, 1, TDICT_SEGMENT_TREE, 0};

/* Sends `count` bytes together with `num_fds` copies of the descriptor `fd`. */
static void send_raw(int socket, const void *bytes, size_t count, int fd, int num_fds) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(64 * sizeof(int))];
  } room;
  memset(&room, 0, sizeof room);
  struct iovec part = {(void *)bytes, count};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  if (num_fds) {
    header.msg_control = &room;
    header.msg_controllen = CMSG_SPACE((size_t)num_fds * sizeof(int));
    struct cmsghdr *control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN((size_t)num_fds * sizeof(int));
    for (int i = 0; i < num_fds; i++) memcpy(CMSG_DATA(control) + (size_t)i * sizeof fd, &fd, sizeof fd);
  }
  assert_int_equal(sendmsg(socket, &header, 0), count);
}

/* Sends malformed messages. Each is refused, no descriptor stays open, and a good message is received afterwards. */
CASE(share_message_refuses) {
  const body wrong_magic = {1, 1, 1, 0}, wrong_version = {0x67736d74, 2, 1, 0}, wrong_kind = {0x67736d74, 1, 2, 0};
  const char longer[40] = {0};
  tdict_tree *shared = rig_shared(), *out = NULL;
  const int fd = tdict_segment_of(shared)->fd;
  const struct {
    const void *bytes;
    size_t count;
    int num_fds;
    tdict_status status;
    const char *text;
  } wrong[] = {
      {&good, 8, 1, TDICT_EFORMAT, "a message of 8 bytes, wanted 16"},
      {longer, sizeof longer, 1, TDICT_EFORMAT, "16 bytes or more"},
      {longer, sizeof longer, 3, TDICT_EFORMAT, "16 bytes or more"},
      {&wrong_magic, 16, 1, TDICT_EFORMAT, "begins with 0x00000001"},
      {&wrong_version, 16, 1, TDICT_ENOTSUP, "version 2"},
      {&wrong_kind, 16, 1, TDICT_EFORMAT, "kind 2, wanted 1"},
      {&good, 16, 0, TDICT_EFORMAT, "0 descriptors, wanted 1"},
      {&good, 16, 2, TDICT_EFORMAT, "2 descriptors, wanted 1"},
      {&good, 16, 8, TDICT_EFORMAT, "8 descriptors, wanted 1"},
      {&good, 16, 9, TDICT_EFORMAT, "8 or more descriptors, wanted 1"},
      {&good, 16, 60, TDICT_EFORMAT, "8 or more descriptors, wanted 1"},
  };
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  const rig_resources before = rig_resources_now();
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    send_raw(pair.ours, wrong[i].bytes, wrong[i].count, fd, wrong[i].num_fds);
    td_fails(wrong[i].status, wrong[i].text, tdict_share_receive(pair.theirs, RIG_SECOND, &out, err));
    rig_nothing_leaked(before);
    td_ok(tdict_share_send(pair.ours, shared, err));
    tdict_release(td_made(tree, tdict_share_receive(pair.theirs, RIG_SECOND, &made, err)));
    out = NULL;
  }
  /* An empty message with a descriptor is not the end of the stream. */
  send_raw(pair.ours, "", 0, fd, 1);
  td_fails(TDICT_EFORMAT, "a message of 0 bytes", tdict_share_receive(pair.theirs, RIG_SECOND, &out, err));
  close(pair.ours);
  td_fails(TDICT_EIO, "closed the socket", tdict_share_receive(pair.theirs, RIG_SECOND, &out, err));
  close(pair.theirs);
  tdict_release(shared);
}

CASE(share_message_closes_on_exec) {
  rig_pair pair = rig_sockets(SOCK_STREAM);
  const tdict_message sent = {.kind = TDICT_SEGMENT_RING, .worker = 5, .num_fds = 2, .fds = {0, 1}};
  tdict_message found = {.kind = TDICT_SEGMENT_RING, .num_fds = 2};
  td_ok(tdict_message_send("test", pair.ours, &sent, err));
  td_ok(tdict_message_receive("test", pair.theirs, 0, &found, err));
  assert_int_equal(found.worker, 5);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(fcntl(found.fds[i], F_GETFD), FD_CLOEXEC);
    close(found.fds[i]);
  }
  rig_close(pair);
}

/* Messages in a stream keep their boundaries and their descriptors. */
CASE(share_message_streams) {
  rig_pair pair = rig_sockets(SOCK_STREAM);
  tdict_tree *shared[8], *out = NULL;
  for (int i = 0; i < 8; i++) {
    shared[i] = rig_shared();
    td_fill_random(tdict_data(shared[i], "r"), 24, (uint64_t)i);
    td_ok(tdict_share_send(pair.ours, shared[i], err));
  }
  for (int i = 0; i < 8; i++) {
    td_ok(tdict_share_receive(pair.theirs, RIG_SECOND, &out, err));
    assert_memory_equal(tdict_const_data(out, "r"), tdict_const_data(shared[i], "r"), 24);
    td_release(out, shared[i]);
  }
  rig_close(pair);
}

/* Signals neither end a wait nor extend its time limit. */
CASE(share_message_waits_through_signals) {
  rig_pair pair = rig_sockets(SOCK_STREAM);
  tdict_tree *out = NULL;
  td_fails(TDICT_ETIMEDOUT, "no message", tdict_share_receive(pair.ours, 0, &out, err));
  rig_signals_begin();
  const int64_t begin = tdict_now_ns();
  td_fails(TDICT_ETIMEDOUT, "no message", tdict_share_receive(pair.ours, RIG_SECOND / 20, &out, err));
  assert_true(tdict_now_ns() - begin >= RIG_SECOND / 20);
  rig_signals_end();
  rig_close(pair);
}
