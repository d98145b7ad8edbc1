/* SPDX-License-Identifier: BSD-2-Clause */
/* A file that appears under its name whole, or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/outfile.h"

enum {
	TRIES = 100
};

/* A name that nobody else has, by all likelihood; O_EXCL and linkat() tell. */
static int temporary_name(char *name, size_t size)
{
	uint64_t number;

	if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
		return -1;
	snprintf(name, size, ".sgpool-%016llx", (unsigned long long)number);
	return 0;
}

static int open_named(struct outfile *file, mode_t mode)
{
	for (int i = 0; i < TRIES; i++) {
		if (temporary_name(file->temporary, sizeof file->temporary))
			break;
		file->fd = openat(file->directory, file->temporary,
				  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
		if (file->fd >= 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	file->temporary[0] = 0;
	return -1;
}

/*
 * An unnamed file is given its name through /proc/self/fd (open(2)): without /proc it could not.
 * Kernels and file systems without O_TMPFILE say EOPNOTSUPP, EISDIR or ENOENT.
 */
static int open_temporary(struct outfile *file, mode_t mode)
{
	if (access("/proc/self/fd", X_OK) == 0) {
		file->fd = openat(file->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
		if (file->fd >= 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
			return -1;
	}
	return open_named(file, mode);
}

/* Where path leads, by links too, split into directory and name. */
static int open_directory(struct outfile *file, const char *path)
{
	char *real = realpath(path, NULL), *whole = real ? real : strdup(path);
	const char *directory = ".", *name = whole;
	char *slash;
	int err;

	if (!whole)
		return -1;
	slash = strrchr(whole, '/');
	if (slash) {
		*slash = 0;
		directory = slash == whole ? "/" : whole;
		name = slash + 1;
	}
	if (!*name || strlen(name) > NAME_MAX) {
		errno = *name ? ENAMETOOLONG : EISDIR;
	} else {
		snprintf(file->name, sizeof file->name, "%s", name);
		file->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	err = errno;
	free(whole);
	errno = err;
	return file->directory < 0 ? -1 : 0;
}

int outfile_open(struct outfile *file, const char *path)
{
	struct stat st;
	bool replaces;

	*file = (struct outfile){.fd = -1, .directory = -1};
	if (open_directory(file, path))
		return -1;
	replaces = fstatat(file->directory, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!replaces && errno != ENOENT)
		goto failed;
	if (replaces && !S_ISREG(st.st_mode)) {
		errno = S_ISDIR(st.st_mode) ? EISDIR : EEXIST;
		goto failed;
	}
	/* A private file stays private while it's written, and when it has been replaced. */
	if (open_temporary(file, replaces ? 0600 : 0666))
		goto failed;
	if (replaces && fchmod(file->fd, st.st_mode & 0777))
		goto failed;
	return 0;
failed:
	outfile_close(file);
	return -1;
}

int outfile_write(struct outfile *file, struct iovec *iov, int n, uint64_t offset)
{
	while (n > 0) {
		ssize_t done = pwritev(file->fd, iov, n, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -1;
		if (done == 0) {
			errno = EIO;
			return -1;
		}
		offset += (uint64_t)done;
		while (n > 0 && (size_t)done >= iov->iov_len) {
			done -= (ssize_t)iov->iov_len;
			iov++;
			n--;
		}
		if (n > 0) {
			iov->iov_base = (char *)iov->iov_base + done;
			iov->iov_len -= (size_t)done;
		}
	}
	return 0;
}

/* Give the unnamed file a temporary name, from which it can be renamed over another one. */
static int link_temporary(struct outfile *file, const char *proc)
{
	for (int i = 0; i < TRIES; i++) {
		if (temporary_name(file->temporary, sizeof file->temporary))
			break;
		if (linkat(AT_FDCWD, proc, file->directory, file->temporary, AT_SYMLINK_FOLLOW) ==
		    0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	file->temporary[0] = 0;
	return -1;
}

int outfile_commit(struct outfile *file)
{
	char proc[64];

	if (fsync(file->fd))
		return -1;
	if (!file->temporary[0]) {
		snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
		if (link_temporary(file, proc))
			return -1;
	}
	if (renameat(file->directory, file->temporary, file->directory, file->name))
		return -1;
	file->temporary[0] = 0;
	/* Some file systems can't sync a directory and say EINVAL: there is no more to do there. */
	return fsync(file->directory) && errno != EINVAL ? -1 : 0;
}

void outfile_close(struct outfile *file)
{
	const int err = errno;

	if (file->directory >= 0 && file->temporary[0])
		unlinkat(file->directory, file->temporary, 0);
	if (file->fd >= 0)
		close(file->fd);
	if (file->directory >= 0)
		close(file->directory);
	*file = (struct outfile){.fd = -1, .directory = -1};
	errno = err;
}
