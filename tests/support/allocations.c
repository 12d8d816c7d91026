/* Counts the heap allocations of one library: preloaded into a server, it stands before malloc and
 * its like, and looks where each call comes from.
 *
 * RL_TEST_LIBRARY names the library by its full path. Once the server has loaded it, calls from
 * within are counted in the first eight bytes of the file that RL_TEST_ALLOCATIONS names; the next
 * eight tell how often the library was found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t *page;
static uintptr_t begins, ends;

__attribute__((constructor)) static void open_page(void) {
    const char *path = getenv("RL_TEST_ALLOCATIONS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, 2 * sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) page = mapped;
}

static int find(struct dl_phdr_info *library, size_t size, void *path) {
    (void)size;
    if (strcmp(library->dlpi_name, path)) return 0;
    begins = UINTPTR_MAX;
    ends = 0;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD) continue;
        uintptr_t at = library->dlpi_addr + segment->p_vaddr;
        if (at < begins) begins = at;
        if (at + segment->p_memsz > ends) ends = at + segment->p_memsz;
    }
    page[1]++;
    return 1;
}

void *dlopen(const char *path, int flags) {
    void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
    /* Valkey 8.1 and later let a module find the C library's malloc before this one. */
    void *library = next(path, page ? flags & ~RTLD_DEEPBIND : flags);
    char *watched = getenv("RL_TEST_LIBRARY");
    if (page && library && watched) dl_iterate_phdr(find, watched);
    return library;
}

/* The function that stands behind this one, and a count if `from` lies in the library. */
#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    uintptr_t from = (uintptr_t)__builtin_return_address(0);                                       \
    if (!next) next = dlsym(RTLD_NEXT, #name);                                                     \
    if (from >= begins && from < ends) page[0]++

void *malloc(size_t size) {
    NEXT(malloc);
    return next(size);
}

void *calloc(size_t count, size_t size) {
    NEXT(calloc);
    return next(count, size);
}

void *realloc(void *memory, size_t size) {
    NEXT(realloc);
    return next(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    NEXT(posix_memalign);
    return next(memory, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    NEXT(aligned_alloc);
    return next(alignment, size);
}
