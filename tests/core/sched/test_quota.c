/* Tests CPU quotas, with temporary folders in place of /proc and /sys. */
#include "support/test.h"

#include <sys/stat.h>

#include "core/sched/cpus.h"

static char root[64];
static void put(const char *path, const char *text) {
  char *full = td_text("%s%s", root, path);
  for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = 0;
    mkdir(full, 0700);
  }
  FILE *file = fopen(full, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}
static void begin(const char *mounts, const char *groups) {
  snprintf(root, sizeof root, "/tmp/tdict-cgroup-XXXXXX");
  assert_non_null(mkdtemp(root));
  put("/proc/self/mountinfo", mounts);
  put("/proc/self/cgroup", groups);
}
static int end(void) {
  const int quota = tdict_quota_cpus(root);
  assert_int_equal(system(td_text("rm -r %s", root)), 0);
  return quota;
}

static const char v2_mount[] = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                               "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char v1_mounts[] =
    "31 30 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct\n";
static const char v1_groups[] = "5:cpuset:/other\n4:cpu,cpuacct:/jobs/one\n1:name=systemd:/jobs\n";

/* Returns the quota of a version 2 cgroup whose cpu.max contains `text`. */
static int quota_of(const char *text) {
  begin(v2_mount, "0::/job\n");
  put("/sys/fs/cgroup/job/cpu.max", text);
  return end();
}
CASE(quota_of_version_2) {
  static const struct {
    const char *text;
    int wanted;
  } all[] = {{"200000 100000\n", 2},
             {"150000 100000\n", 2},
             {"1000 100000\n", 1},
             {"100001 100000", 2},
             {"max 100000\n", 0},
             {"", 0},
             {"100000\n", 0},
             {"100000 0\n", 0},
             {"0 100000\n", 0},
             {"-5 100000\n", 0},
             {"12x 100000\n", 0},
             {"100000 100000 1\n", 0},
             {"lots of\n", 0},
             {" 1 1\n", 0},
             {"9999999999 1\n", 0},
             {"99999999999999999999 1\n", 0},
             {"2147483646 1\n", 2147483646},
             {"800000 50000\n", 16}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (quota_of(all[i].text) != all[i].wanted) fail_msg("'%s': %d", all[i].text, quota_of(all[i].text));
}

CASE(quota_of_version_1) {
  begin(v1_mounts, v1_groups);
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_quota_us", "250000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpuset/jobs/one/cpu.cfs_quota_us", "100000\n"); /* this file belongs to another controller */
  put("/sys/fs/cgroup/cpuset/jobs/one/cpu.cfs_period_us", "100000\n");
  assert_int_equal(end(), 3);
  begin(v1_mounts, v1_groups);
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_period_us", "100000\n");
  assert_int_equal(end(), 0);
  begin(v1_mounts, v1_groups); /* without a period */
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_quota_us", "100000\n");
  assert_int_equal(end(), 0);
}

/* In both versions of cgroups, the smallest quota on the path to the cgroup applies. */
CASE(quota_of_nested_groups) {
  begin(v2_mount, "0::/a/b/c\n");
  put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
  put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/a/b/c/cpu.max", "50000 10000\n");
  put("/sys/fs/cgroup/a/b/other/cpu.max", "10000 10000\n");
  assert_int_equal(end(), 3);
  begin(v1_mounts, v1_groups);
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "700000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_quota_us", "900000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_period_us", "100000\n");
  assert_int_equal(end(), 7);
}

/* In a container, only the container's part of the hierarchy is mounted. The path in /proc/self/cgroup can be complete,
 * can begin at the container's root, or can lead out of it. */
CASE(quota_in_containers) {
  static const char inside[] = "30 22 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  static const char *const groups[] = {"0::/docker/abc\n", "0::/docker/abc/inner\n", "0::/\n", "0::/../other\n",
                                       "0::/docker/abcd\n"};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    begin(inside, groups[i]);
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/inner/cpu.max", "200000 100000\n");
    assert_int_equal(end(), i == 1 ? 2 : 4);
  }
}

/* If both versions of cgroups are mounted, the smaller quota applies. */
CASE(quota_of_both_versions) {
  char mounts[1024], groups[256];
  snprintf(mounts, sizeof mounts, "%s%s", v1_mounts, "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  snprintf(groups, sizeof groups, "%s0::/both\n", v1_groups);
  for (int first = 1; first <= 3; first += 2) {
    begin(mounts, groups);
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_quota_us", td_text("%d00000\n", first));
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/unified/both/cpu.max", "200000 100000\n");
    assert_int_equal(end(), first < 2 ? first : 2);
  }
}

CASE(quota_of_systems_without_cgroups) {
  char line[5000];
  assert_int_equal(tdict_quota_cpus("/tmp/no-such-folder"), 0);
  begin("garbage\n - \n1 2 3 - cgroup2\n", "garbage\n0\n0:\n0::\n");
  assert_int_equal(end(), 0);
  memset(line, 'x', sizeof line - 1);
  line[sizeof line - 1] = 0;
  begin(line, line);
  assert_int_equal(end(), 0);
  begin(v2_mount, line);
  put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  assert_int_equal(end(), 0);
}
