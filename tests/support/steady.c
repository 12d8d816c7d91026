/* What makes a server's instruction counts repeat: preloaded into one that runs under callgrind.
 *
 * - Its clocks, the wall clock and the monotonic one, stand at the first eight bytes of the file
 *   that RL_STEADY_PAGE names (microseconds since the epoch), so that its timers fire, and its
 *   digits change, at the same calls each time.
 * - What it takes for random, and hashes keys with, is zero, and so its dictionaries are the same.
 * - It waits for events without a time limit, so that it doesn't count how long it waited.
 * - Before it waits, it does what the next eight bytes ask for: 1 sets callgrind's counts to zero,
 *   2 writes them to a file, and then they are 0. So both happen between two batches, and not in
 *   the middle of one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

static volatile uint64_t *page;

__attribute__((constructor)) static void open_page(void) {
    const char *path = getenv("RL_STEADY_PAGE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, 2 * sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) page = mapped;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!page) return (int)syscall(SYS_clock_gettime, id, now);
    now->tv_sec = (time_t)(page[0] / 1000000);
    now->tv_nsec = (long)(page[0] % 1000000) * 1000;
    return 0;
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
    /* With the processor's own ticks, a server would have a clock that is not held. */
    if (page && strcmp(path, "/proc/cpuinfo") == 0) return NULL;
    return open_file(page && strcmp(path, "/dev/urandom") == 0 ? "/dev/zero" : path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return fopen(path, mode);
}

ssize_t getrandom(void *bytes, size_t length, unsigned flags) {
    if (!page) return syscall(SYS_getrandom, bytes, length, flags);
    memset(bytes, 0, length);
    return (ssize_t)length;
}

/* Servers mix it into what they take for random. */
pid_t getpid(void) {
    return page ? 1 : (pid_t)syscall(SYS_getpid);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    if (page && page[1]) {
        if (page[1] == 1) CALLGRIND_ZERO_STATS;
        else CALLGRIND_DUMP_STATS;
        page[1] = 0;
    }
    return (int)syscall(SYS_epoll_pwait, epoll, events, most, page ? -1 : timeout, NULL, 8);
}
