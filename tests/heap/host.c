/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that loads libraries by dlopen(3), and looks after its own malloc. For dlopen.sh.
 *
 * host [LIBRARY]...
 */
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 64

/* Whose malloc is it? */
static const char *owner(void *(*function)(size_t))
{
	Dl_info info;

	return dladdr((void *)(size_t)function, &info) ? info.dli_fname : "?";
}

int main(int argc, char **argv)
{
	void *obj[N];
	const char *before = owner(malloc);

	for (int i = 0; i < N; i++) {
		obj[i] = malloc((size_t)i * 1000 + 1);
		memset(obj[i], i, malloc_usable_size(obj[i]));
	}
	for (int i = 1; i < argc; i++) {
		void *lib = dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL);

		if (!lib) {
			printf("not loaded: %s\n", dlerror());
			return 3;
		}
		printf("loaded: %s\n", argv[i]);
	}
	/* Still the same: what was allocated before is freed by it, and what comes is its own. */
	if (strcmp(before, owner(malloc))) {
		printf("malloc was %s's, and is %s's\n", before, owner(malloc));
		return 1;
	}
	for (int i = 0; i < N; i++) {
		char *p = realloc(obj[i], 70000);

		if (p[i * 1000] != i || malloc_usable_size(p) < 70000)
			return 1;
		free(p);
	}
	printf("malloc is %s's\n", before);
	return 0;
}
