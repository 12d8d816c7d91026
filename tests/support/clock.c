/* A wall clock that a test holds: preloaded into a server, it answers from the first eight bytes
 * of the file that RL_TEST_CLOCK names (microseconds since the epoch).
 *
 * Valkey 9.1 reads the wall clock once a millisecond and adds what the monotonic clock counts in
 * between. So that one advances in steps of two milliseconds: between two steps it adds nothing,
 * and at each of them the wall clock is read. It would rather count the processor's own ticks, and
 * looks up their rate in /proc/cpuinfo, which therefore can't be opened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile uint64_t *held;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("RL_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof *held, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) held = page;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (held && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        now->tv_sec = (time_t)(*held / 1000000);
        now->tv_nsec = (long)(*held % 1000000) * 1000;
        return 0;
    }
    int status = (int)syscall(SYS_clock_gettime, id, now);
    if (held && id == CLOCK_MONOTONIC) now->tv_nsec -= now->tv_nsec % 2000000;
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec ts;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    now->tv_sec = ts.tv_sec;
    now->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (seconds) *seconds = ts.tv_sec;
    return ts.tv_sec;
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    FILE *(*open_file)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
    if (held && strcmp(path, "/proc/cpuinfo") == 0) {
        errno = ENOENT;
        return NULL;
    }
    return open_file(path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return fopen(path, mode);
}
