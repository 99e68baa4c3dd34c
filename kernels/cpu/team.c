/* The team: threads that walk a tape together. The caller of strata_run is thread 0.
 *
 * An op is over when its tasks are done, not when every thread was there. So a thread that the system
 * has put to sleep holds nobody up unless it is in the middle of a task, and small ops of one task
 * are simply done by whoever comes first.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "layers_internal.h"

/* Looks at a flag before the processor is offered to others: ops last microseconds. */
#define SPINS_BEFORE_YIELD 2000

/* Progress of an op, on a cache line of its own. */
typedef struct {
    _Atomic int64_t n_taken; /* may pass n_tasks: once for each thread that found nothing left */
    _Atomic int64_t n_done;
    int64_t n_tasks;
    char rest[40];
} progress;
_Static_assert(sizeof(progress) == 64, "progress");

typedef struct {
    strata_team *team;
    int32_t thread;
    pthread_t handle;
} member;

struct strata_team {
    int32_t n_threads;
    const strata_kernels *kernels;
    const strata_layer_kernels *layers;
    member *members;
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    int64_t run_count; /* under lock, like all up to n_inside */
    int is_open;       /* whether members may still join the run */
    int is_stopping;
    const uint8_t *tape;
    int64_t n_ops;
    progress *ops; /* [n_room] */
    int64_t n_room;
    _Atomic int32_t n_inside; /* members in the run, the caller not counted */
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void pause_a_while(int64_t n_looks) {
    if (n_looks < SPINS_BEFORE_YIELD)
        relax();
    else
        sched_yield();
}

#define ASSERT_FITS(kind, name) _Static_assert(sizeof(strata_##name) <= STRATA_OP_BYTES, #name);
STRATA_EACH_KIND(ASSERT_FITS)

static int64_t count_tasks(const void *op, int32_t n_threads) {
    switch (*(const int32_t *)op) {
#define COUNT_TASKS(kind, name) \
    case kind:                  \
        return strata_tasks_##name(op, n_threads);
        STRATA_EACH_KIND(COUNT_TASKS)
    }
    return 0;
}

static void do_task(const strata_worker *worker, const void *op, int64_t task) {
    switch (*(const int32_t *)op) {
#define DO_TASK(kind, name)                  \
    case kind:                               \
        strata_do_##name(worker, op, task); \
        break;
        STRATA_EACH_KIND(DO_TASK)
    }
}

static void walk(strata_team *team, int32_t thread) {
    const strata_worker worker = {team->kernels, team->layers, thread, team->n_threads};
    const uint8_t *op = team->tape;
    for (int64_t i = 0; i < team->n_ops; i++, op += STRATA_OP_BYTES) {
        progress *at = &team->ops[i];
        if (atomic_load_explicit(&at->n_done, memory_order_acquire) == at->n_tasks) continue;
        for (int64_t task;
             (task = atomic_fetch_add_explicit(&at->n_taken, 1, memory_order_relaxed)) < at->n_tasks;) {
            do_task(&worker, op, task);
            atomic_fetch_add_explicit(&at->n_done, 1, memory_order_release);
        }
        for (int64_t n = 0; atomic_load_explicit(&at->n_done, memory_order_acquire) != at->n_tasks; n++)
            pause_a_while(n);
    }
}

static void *serve(void *argument) {
    const member *self = argument;
    strata_team *team = self->team;
    int64_t n_seen = 0;
    for (;;) {
        pthread_mutex_lock(&team->lock);
        while ((!team->is_open || team->run_count == n_seen) && !team->is_stopping)
            pthread_cond_wait(&team->has_work, &team->lock);
        if (team->is_stopping) {
            pthread_mutex_unlock(&team->lock);
            return NULL;
        }
        n_seen = team->run_count;
        atomic_fetch_add_explicit(&team->n_inside, 1, memory_order_relaxed);
        pthread_mutex_unlock(&team->lock);
        walk(team, self->thread);
        atomic_fetch_sub_explicit(&team->n_inside, 1, memory_order_release);
    }
}

static const strata_kernels *kernels_of(int32_t level) {
#if defined(__x86_64__)
    if (level >= STRATA_AVX512) return &strata_kernels_avx512;
    if (level == STRATA_AVX2) return &strata_kernels_avx2;
#endif
    (void)level;
    return &strata_kernels_generic;
}

static const strata_layer_kernels *layer_kernels_of(int32_t level) {
#if defined(__x86_64__)
    if (level >= STRATA_AVX512) return &strata_layer_kernels_avx512;
    if (level == STRATA_AVX2) return &strata_layer_kernels_avx2;
#endif
    (void)level;
    return &strata_layer_kernels_generic;
}

strata_team *strata_team_start(int32_t n_threads, int32_t level) {
    if (n_threads < 1 || level < 0 || level > strata_detect_level()) return NULL;
    strata_team *team = calloc(1, sizeof *team);
    member *members = calloc((size_t)n_threads, sizeof *members);
    if (!team || !members) {
        free(team);
        free(members);
        return NULL;
    }
    team->n_threads = 1; /* grows by the members that really start */
    team->kernels = kernels_of(level);
    team->layers = layer_kernels_of(level);
    team->members = members;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->has_work, NULL);
    for (int32_t i = 1; i < n_threads; i++) {
        members[i].team = team;
        members[i].thread = i;
        if (pthread_create(&members[i].handle, NULL, serve, &members[i])) {
            strata_team_stop(team);
            return NULL;
        }
        team->n_threads = i + 1;
    }
    return team;
}

void strata_team_stop(strata_team *team) {
    if (!team) return;
    pthread_mutex_lock(&team->lock);
    team->is_stopping = 1;
    pthread_cond_broadcast(&team->has_work);
    pthread_mutex_unlock(&team->lock);
    for (int32_t i = 1; i < team->n_threads; i++) pthread_join(team->members[i].handle, NULL);
    pthread_cond_destroy(&team->has_work);
    pthread_mutex_destroy(&team->lock);
    free(team->ops);
    free(team->members);
    free(team);
}

/* Makes room for the progress of n_ops ops. */
static int make_room(strata_team *team, int64_t n_ops) {
    if (n_ops <= team->n_room) return 1;
    progress *ops = realloc(team->ops, (size_t)n_ops * sizeof *ops);
    if (!ops) return 0;
    team->ops = ops;
    team->n_room = n_ops;
    return 1;
}

int64_t strata_run(strata_team *team, const void *tape, int64_t n_ops) {
    if (!make_room(team, n_ops)) return -1;
    memset(team->ops, 0, (size_t)n_ops * sizeof *team->ops);
    for (int64_t i = 0; i < n_ops; i++) {
        const void *op = (const uint8_t *)tape + i * STRATA_OP_BYTES;
        if (!strata_op_bytes(*(const int32_t *)op)) return i + 1;
        team->ops[i].n_tasks = count_tasks(op, team->n_threads);
    }
    team->tape = tape;
    team->n_ops = n_ops;
    if (team->n_threads == 1) {
        walk(team, 0);
        return 0;
    }
    pthread_mutex_lock(&team->lock);
    team->is_open = 1;
    team->run_count++;
    pthread_cond_broadcast(&team->has_work);
    pthread_mutex_unlock(&team->lock);
    walk(team, 0);
    pthread_mutex_lock(&team->lock);
    team->is_open = 0;
    pthread_mutex_unlock(&team->lock);
    for (int64_t n = 0; atomic_load_explicit(&team->n_inside, memory_order_acquire); n++) pause_a_while(n);
    return 0;
}

int32_t strata_op_bytes(int32_t kind) {
    switch (kind) {
#define OP_BYTES(kind, name) \
    case kind:               \
        return (int32_t)sizeof(strata_##name);
        STRATA_EACH_KIND(OP_BYTES)
    }
    return 0;
}

int32_t strata_quant_support(int32_t level, int32_t quant) {
    if (quant < 0 || quant >= STRATA_N_QUANTS || !kernels_of(level)->dequantize[quant]) return 0;
    return kernels_of(level)->dot_codes[quant] ? 2 : 1;
}

#ifndef STRATA_STAMP
#define STRATA_STAMP "unknown"
#endif
const char *strata_stamp(void) { return STRATA_STAMP; }
