/* SPDX-License-Identifier: BSD-2-Clause */
/* sgpool doctor: what the kernel and this process's rights allow. No verbs here. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cli/format.h"
#include "cli/transfer.h"

#define PAGE_2M (UINT64_C(2) << 20)
#define PAGE_1G (UINT64_C(1) << 30)

/* Does a line of the file contain word? */
static bool file_mentions(const char *path, const char *word)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	if (!f)
		return false;
	while (!found && getline(&line, &size, f) > 0)
		found = strstr(line, word);
	free(line);
	fclose(f);
	return found;
}

enum module doctor_module(const char *name)
{
	struct utsname u;
	char path[512], file[80], initstate[16];

	snprintf(path, sizeof path, "/sys/module/%s/initstate", name);
	if (doctor_read_line(path, initstate, sizeof initstate) == 0)
		return MODULE_LOADED;
	snprintf(path, sizeof path, "/sys/module/%s", name);
	if (access(path, F_OK) == 0)
		return MODULE_BUILTIN;
	if (uname(&u))
		return MODULE_MISSING;
	snprintf(file, sizeof file, "/%s.ko", name);
	snprintf(path, sizeof path, "/lib/modules/%s/modules.builtin", u.release);
	if (file_mentions(path, file))
		return MODULE_BUILTIN;
	snprintf(path, sizeof path, "/lib/modules/%s/modules.dep", u.release);
	return file_mentions(path, file) ? MODULE_AVAILABLE : MODULE_MISSING;
}

void doctor_modules(struct doctor *d)
{
	static const char *const names[] = {"ib_uverbs", "rdma_ucm", "rdma_rxe", "siw"};
	static const char *const states[] = {"missing", "available, not loaded", "loaded",
					     "built in"};

	out_group(d->out, "modules", "kernel modules");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		out_str(d->out, names[i], names[i], states[doctor_module(names[i])]);
	out_end(d->out);
}

void doctor_memlock_problem(struct doctor *d, const struct sgp_memlock *lock, uint64_t need)
{
	struct sgp_advice advice;

	sgp_advise_memlock(&advice, lock, need);
	doctor_mend(doctor_problem(d, BLOCKS, "memlock", "%s", advice.what), "%s", advice.mend);
}

/* "CapEff:\t000001ffffffffff" -> "000001ffffffffff"; empty if it can't be read. */
static void read_capabilities(char *mask, size_t size)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];

	mask[0] = 0;
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "CapEff:", 7)) {
			line[strcspn(line, "\n")] = 0;
			snprintf(mask, size, "%s", line + 7 + strspn(line + 7, " \t"));
		}
	if (f)
		fclose(f);
}

/* "         0          0 4294967295" -> "0 0 4294967295" */
static void squeeze(char *line)
{
	char *to = line;

	for (const char *from = line; *from; from++)
		if (*from != ' ' || (to > line && to[-1] != ' '))
			*to++ = *from;
	*to = 0;
}

void doctor_limits(struct doctor *d)
{
	struct rlimit limit = {0, 0};
	struct sgp_memlock lock;
	char mask[32], map[128];

	sgp_memlock_read(&lock);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	read_capabilities(mask, sizeof mask);
	doctor_read_line("/proc/self/uid_map", map, sizeof map);
	squeeze(map);
	out_group(d->out, "rights", "rights of this process");
	out_bytes(d->out, "memlock_soft", "RLIMIT_MEMLOCK, soft", lock.limit);
	out_bytes(d->out, "memlock_hard", "RLIMIT_MEMLOCK, hard",
		  limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max);
	out_str(d->out, "capabilities", "effective capabilities", mask[0] ? mask : NULL);
	out_bool(d->out, "cap_ipc_lock", "CAP_IPC_LOCK effective", lock.cap);
	out_bool(d->out, "initial_user_namespace", "in the initial user namespace",
		 lock.cap_counts);
	out_str(d->out, "uid_map", "uid map", map[0] ? map : NULL);
	out_bool(d->out, "may_lock_any", "may lock any amount of memory",
		 !sgp_memlock_forbids(&lock, UINT64_MAX, 0));
	out_end(d->out);
	/* With a device, registering there has told already. */
	if (d->devices == 0 && sgp_memlock_forbids(&lock, TRANSFER_LOCKED, 0))
		doctor_memlock_problem(d, &lock, TRANSFER_LOCKED);
}

/* Hugepages of one size. Returns how many are free. */
static uint64_t write_hugepages(struct doctor *d, const char *key, const char *title,
				uint64_t page_bytes)
{
	const struct sgp_hugepages pages = sgp_hugepages_read(page_bytes);

	out_group(d->out, key, title);
	out_bool(d->out, "supported", "supported", pages.supported);
	out_u64(d->out, "total", "total", pages.total);
	out_u64(d->out, "free", "free", pages.free);
	out_end(d->out);
	return pages.free;
}

/* "always [madvise] never" -> "madvise". */
static const char *chosen(char *line)
{
	char *word = strchr(line, '[');

	if (!word)
		return NULL;
	word[strcspn(word, "]")] = 0;
	return word + 1;
}

void doctor_memory(struct doctor *d)
{
	const uint64_t need = (TRANSFER_LOCKED + PAGE_2M - 1) / PAGE_2M;
	struct sgp_advice advice;
	uint64_t free_2m;
	char line[128];
	const char *thp;

	out_group(d->out, "memory", "memory");
	out_u64(d->out, "page_size", "page size", (uint64_t)sysconf(_SC_PAGESIZE));
	free_2m = write_hugepages(d, "hugepages_2m", "hugepages of 2 MiB", PAGE_2M);
	write_hugepages(d, "hugepages_1g", "hugepages of 1 GiB", PAGE_1G);
	doctor_read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
	thp = chosen(line);
	out_str(d->out, "transparent_hugepages", "transparent hugepages", thp);
	out_end(d->out);
	if (free_2m < need && (!thp || !strcmp(thp, "never"))) {
		sgp_advise_hugepages(&advice, PAGE_2M, TRANSFER_LOCKED, ENOMEM);
		doctor_mend(doctor_problem(d, HINT, "hugepages",
					   "pools will use base pages: no hugepages are free, "
					   "transparent ones are off"),
			    "%s", advice.mend);
	}
}

static void write_node(struct doctor *d, const char *name)
{
	char path[320], line[256], key[64];
	unsigned long kib;
	uint64_t total = 0, unused = 0;
	FILE *f;

	out_group(d->out, NULL, name);
	out_str(d->out, "name", NULL, name);
	snprintf(path, sizeof path, "/sys/devices/system/node/%s/cpulist", name);
	doctor_read_line(path, line, sizeof line);
	out_str(d->out, "cpus", "cpus", line);
	snprintf(path, sizeof path, "/sys/devices/system/node/%s/meminfo", name);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "Node %*s %63s %lu", key, &kib) != 2)
			continue;
		if (!strcmp(key, "MemTotal:"))
			total = (uint64_t)kib << 10;
		else if (!strcmp(key, "MemFree:"))
			unused = (uint64_t)kib << 10;
	}
	if (f)
		fclose(f);
	out_bytes(d->out, "memory_total", "memory", total);
	out_bytes(d->out, "memory_free", "free", unused);
	out_end(d->out);
}

static int is_node(const struct dirent *entry)
{
	uint64_t n;

	return !strncmp(entry->d_name, "node", 4) &&
	       parse_number(entry->d_name + 4, 0, UINT32_MAX, &n) == 0;
}

void doctor_numa(struct doctor *d)
{
	struct dirent **entries = NULL;
	const int n = scandir("/sys/devices/system/node", &entries, is_node, versionsort);

	out_list(d->out, "numa_nodes", "NUMA nodes");
	for (int i = 0; i < n; i++) {
		write_node(d, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	out_end(d->out);
}

static void write_file(struct doctor *d, const char *directory, const char *name)
{
	char path[320], mode[8];
	struct stat st;
	bool open_;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	if (stat(path, &st))
		return;
	open_ = faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0;
	snprintf(mode, sizeof mode, "%04o", st.st_mode & 07777u);
	out_group(d->out, NULL, path);
	out_str(d->out, "path", NULL, path);
	out_str(d->out, "mode", "mode", mode);
	out_u64(d->out, "uid", "uid", st.st_uid);
	out_u64(d->out, "gid", "gid", st.st_gid);
	out_bool(d->out, "accessible", "accessible", open_);
	out_end(d->out);
	if (!open_)
		doctor_mend(doctor_problem(d, strcmp(name, "rdma_cm") ? BLOCKS_DEVICE : BLOCKS,
					   "permission", "%s may not be opened by this user", path),
			    "sudo chmod 0666 %s; for a container: --device %s", path, path);
}

static int is_used(const struct dirent *entry)
{
	return !strcmp(entry->d_name, "rdma_cm") || !strncmp(entry->d_name, "uverbs", 6);
}

void doctor_nodes(struct doctor *d)
{
	static const char directory[] = "/dev/infiniband";
	struct dirent **entries = NULL;
	const int n = scandir(directory, &entries, is_used, versionsort);

	out_list(d->out, "files", directory);
	out_none(d->out, n);
	for (int i = 0; i < n; i++) {
		write_file(d, directory, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	out_end(d->out);
}
