/* SPDX-License-Identifier: BSD-2-Clause */
/* Importing memory and ending it, see import.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/chunk.h"
#include "pool/errmsg.h"
#include "pool/import.h"
#include "pool/known.h"
#include "pool/mode.h"
#include "pool/pool.h"
#include "sgp_config.h"

#define FLAGS (SGP_IMPORT_READ_ONLY | SGP_IMPORT_FILE | SGP_IMPORT_DMABUF | SGP_IMPORT_MAPPED)

/* An import's own reference is never dropped: this is a put too many, which ends nothing. */
static void release(struct sgp_chunk *chunk)
{
	(void)chunk;
}

const struct sgp_owner_kind sgp_import_kind = {.release = release};

static int check_attr(const struct sgp_pool *pool, const struct sgp_import_attr *attr)
{
	uint32_t from;

	if (!pool || !attr || attr->comp_mask || attr->flags & ~(uint32_t)FLAGS)
		return sgp_fail(EINVAL, "import: a pool, attributes and known flags are needed");
	from = attr->flags & (SGP_IMPORT_FILE | SGP_IMPORT_DMABUF);
	if (!attr->length)
		return sgp_fail(EINVAL, "import: 0 bytes");
	if (from == (SGP_IMPORT_FILE | SGP_IMPORT_DMABUF))
		return sgp_fail(EINVAL, "import: a file or a dma-buf, not both");
	if (from && attr->fd < 0)
		return sgp_fail(EINVAL, "import: descriptor %d", attr->fd);
	if (attr->flags & SGP_IMPORT_MAPPED && (!(from & SGP_IMPORT_DMABUF) || !attr->addr))
		return sgp_fail(EINVAL, "import: SGP_IMPORT_MAPPED is for a dma-buf with an addr");
	if (from & SGP_IMPORT_FILE ? attr->addr != NULL : !from && !attr->addr)
		return sgp_fail(EINVAL, "import: addr is for memory that is mapped already");
	if (attr->length > UINTPTR_MAX - (uintptr_t)attr->addr)
		return sgp_fail(EINVAL, "import: %zu bytes go beyond the last address",
				attr->length);
#if !SGP_HAVE_DMABUF
	if (from & SGP_IMPORT_DMABUF)
		return sgp_fail(EOPNOTSUPP, "import: this system's libibverbs knows no dma-buf");
#endif
	return 0;
}

/* A handle with room for length bytes: one that is spare, or a new one. NULL with ENOMEM. */
static struct sgp_import *make_handle(struct sgp_imports *imports, size_t length)
{
	size_t room = ((length - 1) >> SGP_IMPORT_SHIFT) + 1;
	struct sgp_import **p, *import;

	for (p = &imports->spares; (import = *p); p = &import->next) {
		if (import->room >= room) {
			*p = import->next;
			return import;
		}
	}
	import = calloc(1, sizeof *import + room * sizeof import->chunk[0]);
	if (!import)
		return sgp_fail_null(ENOMEM, "no memory for an import of %zu bytes", length);
	import->room = room;
	return import;
}

static int map_file(struct sgp_import *import, const struct sgp_import_attr *attr)
{
	bool read_only = attr->flags & SGP_IMPORT_READ_ONLY;
	int prot = PROT_READ | PROT_WRITE;
	struct stat st;

	if (fstat(attr->fd, &st))
		return sgp_fail(errno, "import: descriptor %d: %s", attr->fd, strerror(errno));
	/* Behind a file's end there is no memory: what touches it gets SIGBUS. */
	if (S_ISREG(st.st_mode) && (attr->offset > (uint64_t)st.st_size ||
				    attr->length > (uint64_t)st.st_size - attr->offset))
		return sgp_fail(EINVAL, "import: %zu bytes from %llu on, of a file of %llu",
				attr->length, (unsigned long long)attr->offset,
				(unsigned long long)st.st_size);
	/* Writable where it can be: kernels refuse to pin a shared mapping that isn't (law 5). */
	if (read_only && (fcntl(attr->fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
		prot = PROT_READ;
	/* Whole pages, which are a hugetlbfs file's own: munmap(2) wants them so. */
	import->map_bytes = attr->length;
	if (S_ISREG(st.st_mode) && st.st_blksize > 0 && !(st.st_blksize & (st.st_blksize - 1)))
		import->map_bytes = sgp_round_up(attr->length, (size_t)st.st_blksize);
	import->map =
		mmap(NULL, import->map_bytes, prot, MAP_SHARED, attr->fd, (off_t)attr->offset);
	if (import->map != MAP_FAILED)
		return 0;
	import->map = NULL;
	return sgp_fail(errno, "import: mapping %zu bytes of descriptor %d: %s", attr->length,
			attr->fd, strerror(errno));
}

/* Addresses for a dma-buf that has none: nobody else's, and nothing can be read there. */
static int choose_addresses(struct sgp_import *import, const struct sgp_import_attr *attr)
{
	import->map_bytes = attr->length + sgp_page_size();
	import->map = mmap(NULL, import->map_bytes, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (import->map != MAP_FAILED)
		return 0;
	import->map = NULL;
	return sgp_fail(ENOMEM, "import: no addresses for %zu bytes", attr->length);
}

/* Give up what the handle has besides its registration. errno is left alone. */
static void empty_handle(struct sgp_imports *imports, struct sgp_import *import)
{
	struct sgp_region *region = &import->owner.region;
	int err = errno;

	if (import->map)
		munmap(import->map, import->map_bytes);
	if (region->dmabuf_fd >= 0)
		close(region->dmabuf_fd);
	import->map = NULL;
	region->dmabuf_fd = -1;
	import->next = imports->spares;
	imports->spares = import;
	errno = err;
}

/* The region, as far as it is not registered. */
static int prepare(struct sgp_import *import, const struct sgp_import_attr *attr)
{
	struct sgp_region *region = &import->owner.region;
	char *addr = attr->addr;

	sgp_region_init(region);
	region->import = import;
	region->read_only = attr->flags & SGP_IMPORT_READ_ONLY;
	if (attr->flags & SGP_IMPORT_FILE) {
		if (map_file(import, attr))
			return -1;
		addr = import->map;
	} else if (attr->flags & SGP_IMPORT_DMABUF) {
		region->unmapped = !(attr->flags & SGP_IMPORT_MAPPED);
		region->dmabuf_offset = attr->offset;
		region->dmabuf_fd = fcntl(attr->fd, F_DUPFD_CLOEXEC, 0);
		if (region->dmabuf_fd < 0)
			return sgp_fail(errno, "import: descriptor %d: %s", attr->fd,
					strerror(errno));
		if (!addr) {
			if (choose_addresses(import, attr))
				return -1;
			addr = (char *)import->map + attr->offset % sgp_page_size();
		}
	}
	region->piece = (struct sgp_piece){.addr = addr, .bytes = attr->length};
	return 0;
}

/* The descriptors, but for their references: those are others' as well, see import.h. */
static void describe(struct sgp_import *import)
{
	const struct sgp_piece *piece = &import->owner.region.piece;
	size_t each = (size_t)1 << SGP_IMPORT_SHIFT, left = piece->bytes;

	for (size_t i = 0; i < sgp_import_chunks(import); i++, left -= each) {
		struct sgp_chunk *chunk = &import->chunk[i];

		chunk->addr = piece->addr + i * each;
		chunk->owner = &import->owner;
		chunk->size = (uint32_t)(left < each ? left : each);
		chunk->lkey = sgp_region_lkey(&import->owner.region);
	}
}

static int add(struct sgp_pool *pool, struct sgp_import *import)
{
	struct sgp_region *region = &import->owner.region;
	const struct sgp_piece *piece = &region->piece;
	struct sgp_imports *imports = &pool->imports;
	size_t most = sgp_registrar_most(&pool->reg);

	if (piece->bytes > most)
		return sgp_fail(EMSGSIZE, "import: %zu bytes; the device's max_mr_size is %zu",
				piece->bytes, most);
	if (sgp_imports_overlap(imports, piece->addr, piece->bytes))
		return sgp_fail(EEXIST, "import: part of the memory is imported already");
	if (sgp_imports_reserve(imports) || sgp_region_register(region, &pool->reg))
		return -1;
	import->owner.kind = &sgp_import_kind;
	import->owner.pool = pool;
	describe(import);
	sgp_known_add(&import->owner);
	import->next = imports->first;
	imports->first = import;
	imports->count++;
	imports->bytes += piece->bytes;
	sgp_imports_insert(imports, import);
	return 0;
}

struct sgp_import *sgp_pool_import(struct sgp_pool *pool, const struct sgp_import_attr *attr)
{
	struct sgp_import *import;

	if (sgp_check_fork() || check_attr(pool, attr))
		return NULL;
	pthread_mutex_lock(&pool->grow);
	import = make_handle(&pool->imports, attr->length);
	if (import && (prepare(import, attr) || add(pool, import))) {
		empty_handle(&pool->imports, import);
		import = NULL;
	}
	pthread_mutex_unlock(&pool->grow);
	return import;
}

static bool is_held(const struct sgp_import *import)
{
	for (size_t i = 0; i < sgp_import_chunks(import); i++)
		if (__atomic_load_n(&import->chunk[i].refs, __ATOMIC_SEQ_CST))
			return true;
	return false;
}

/* The growth lock is held. */
static int unimport(struct sgp_pool *pool, struct sgp_import *import)
{
	struct sgp_imports *imports = &pool->imports;
	size_t bytes = import->owner.region.piece.bytes;
	struct sgp_import **p = &imports->first;
	int ret;

	while (*p && *p != import)
		p = &(*p)->next;
	if (!*p)
		return sgp_fail(EINVAL, "unimport: not an import of this pool");
	if (is_held(import))
		return sgp_fail(EBUSY, "unimport: a slice of the memory is held");
	sgp_imports_remove(imports, import);
	/* From here on nobody finds it by its address; somebody may have until now. */
	if (is_held(import))
		ret = sgp_fail(EBUSY, "unimport: a slice of the memory is held");
	else
		ret = sgp_region_end(&import->owner.region, NULL, &pool->reg);
	if (ret) {
		sgp_imports_insert(imports, import);
		return -1;
	}
	*p = import->next;
	sgp_known_remove(&import->owner);
	imports->count--;
	imports->bytes -= bytes;
	empty_handle(imports, import);
	return 0;
}

int sgp_pool_unimport(struct sgp_pool *pool, struct sgp_import *import)
{
	int ret;

	if (sgp_check_fork())
		return -1;
	if (!pool || !import)
		return sgp_fail(EINVAL, "unimport: a pool and its import are needed");
	pthread_mutex_lock(&pool->grow);
	ret = unimport(pool, import);
	pthread_mutex_unlock(&pool->grow);
	return ret;
}

void *sgp_import_addr(const struct sgp_import *import)
{
	return import->owner.region.piece.addr;
}

size_t sgp_import_size(const struct sgp_import *import)
{
	return import->owner.region.piece.bytes;
}

int sgp_import_keys(const struct sgp_import *import, const struct ibv_pd *pd, uint32_t *lkey,
		    uint32_t *rkey)
{
	return sgp_chunk_keys(&import->chunk[0], pd, lkey, rkey);
}
