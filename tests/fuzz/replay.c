/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gives the files of folders to a fuzz target, without libFuzzer: what was once found interesting is
 * tested with every compiler. Usage: PROGRAM FOLDER...
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum {
	LARGEST = 1 << 20
};

/* Of just its size, so that a sanitizer sees what lies behind it. */
static int replay(const char *path)
{
	static uint8_t buffer[LARGEST];
	FILE *f = fopen(path, "rb");
	uint8_t *input;
	size_t size;

	if (!f) {
		perror(path);
		return 1;
	}
	size = fread(buffer, 1, sizeof buffer, f);
	fclose(f);
	input = malloc(size ? size : 1);
	if (!input)
		return 1;
	memcpy(input, buffer, size);
	LLVMFuzzerTestOneInput(input, size);
	free(input);
	return 0;
}

/* Returns the number of files, -1 if one can't be read. */
static int replay_folder(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char path[4096];
	int n = 0;

	if (!dir) {
		perror(folder);
		return -1;
	}
	while (n >= 0 && (entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		n = replay(path) ? -1 : n + 1;
	}
	closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const int n = replay_folder(argv[i]);

		if (n <= 0) {
			fprintf(stderr, "%s: no inputs\n", argv[i]);
			return 1;
		}
		printf("%s: %d inputs\n", argv[i], n);
	}
	return argc < 2;
}
