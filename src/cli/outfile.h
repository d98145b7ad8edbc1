/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that appears under its name whole, or not at all.
 *
 * The data goes to an unnamed file in the same directory (O_TMPFILE), or where the file system has
 * none, to one named .sgpool-XXXXXX there, which is unlinked on failure. Only outfile_commit()
 * touches the final name, and replaces what stood there.
 */
#ifndef SGP_CLI_OUTFILE_H
#define SGP_CLI_OUTFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct outfile {
	int fd;                       /* -1: not open */
	int directory;                /* -1: not open */
	char name[NAME_MAX + 1];      /* in the directory */
	char temporary[NAME_MAX + 1]; /* likewise; empty: unnamed so far */
};

/*
 * Begin a file that is to become path (a symbolic link there is followed). Returns 0; -1 with errno
 * and nothing left behind: EISDIR, EEXIST when something that is no regular file has the name, or
 * what open(2) says.
 */
int outfile_open(struct outfile *file, const char *path);

/* Write all of iov at offset; iov is used up. Returns 0, or -1 with errno. */
int outfile_write(struct outfile *file, struct iovec *iov, int n, uint64_t offset);

/*
 * Put it on disk and give it its name. Returns 0; -1 with errno, and what had the name still has it
 * (unless it is only the directory's own fsync that failed). outfile_close() is still to be called.
 */
int outfile_commit(struct outfile *file);

/* End it; without a commit before, nothing is left. Safe on a closed one. */
void outfile_close(struct outfile *file);

#endif
