/* SPDX-License-Identifier: BSD-2-Clause */
/* broker-load: what another process has used, from /proc (proc(5)). */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "load.h"

double load_cpu(long pid)
{
	char path[80], name[400];
	double sum = 0;
	unsigned long long ns;
	struct dirent *entry;
	DIR *dir;
	FILE *file;

	if (!pid)
		return 0;
	snprintf(path, sizeof path, "/proc/%ld/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		snprintf(name, sizeof name, "%s/%s/schedstat", path, entry->d_name);
		file = fopen(name, "r");
		if (file && fscanf(file, "%llu", &ns) == 1)
			sum += (double)ns * 1e-9;
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return sum;
}

double load_user(long pid)
{
	char path[80];
	unsigned long long ticks = 0;
	FILE *file;

	if (!pid)
		return 0;
	snprintf(path, sizeof path, "/proc/%ld/stat", pid);
	file = fopen(path, "r");
	if (file && fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu",
			   &ticks) != 1)
		ticks = 0;
	if (file)
		fclose(file);
	return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}
