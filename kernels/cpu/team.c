/* The team: threads that walk a tape together. The caller of strata_run is thread 0. */
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

#include "internal.h"

/* Spins at a barrier before the processor is offered to others: ops last microseconds. */
#define SPINS_BEFORE_YIELD 4000

typedef struct {
    strata_team *team;
    int32_t thread;
    pthread_t handle;
} member;

struct strata_team {
    int32_t n_threads;
    const strata_kernels *kernels;
    member *members;
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    int64_t run_count;   /* under lock */
    int is_stopping;     /* under lock */
    const uint8_t *tape; /* under lock until a member has read it */
    int64_t n_ops;
    /* Each on a cache line of its own: all threads write them all the time. */
    char line_1[64];
    _Atomic int64_t next_task;
    char line_2[64];
    _Atomic int32_t n_arrived;
    char line_3[64];
    _Atomic uint32_t barrier_count;
    char line_4[64];
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for_all(strata_team *team) {
    if (team->n_threads == 1) {
        atomic_store_explicit(&team->next_task, 0, memory_order_relaxed);
        return;
    }
    const uint32_t count = atomic_load_explicit(&team->barrier_count, memory_order_acquire);
    if (atomic_fetch_add_explicit(&team->n_arrived, 1, memory_order_acq_rel) == team->n_threads - 1) {
        atomic_store_explicit(&team->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->next_task, 0, memory_order_relaxed);
        atomic_store_explicit(&team->barrier_count, count + 1, memory_order_release);
        return;
    }
    for (int64_t n = 0; atomic_load_explicit(&team->barrier_count, memory_order_acquire) == count; n++) {
        if (n < SPINS_BEFORE_YIELD)
            relax();
        else
            sched_yield();
    }
}

#define STRATA_EACH_KIND(DO)                   \
    DO(STRATA_EMBED, embed)                    \
    DO(STRATA_RMS_NORM, rms_norm)              \
    DO(STRATA_QUANTIZE, quantize)              \
    DO(STRATA_MATMUL, matmul)                  \
    DO(STRATA_ROPE_ANGLES, rope_angles)        \
    DO(STRATA_ROPE, rope)                      \
    DO(STRATA_SWIGLU, swiglu)                  \
    DO(STRATA_ADD, add)                        \
    DO(STRATA_STORE_KV, store_kv)              \
    DO(STRATA_ATTEND, attend)                  \
    DO(STRATA_ATTEND_MERGE, attend_merge)      \
    DO(STRATA_GATHER_ROWS, gather_rows)        \
    DO(STRATA_ARGMAX, argmax)

#define ASSERT_FITS(kind, name) _Static_assert(sizeof(strata_##name) <= STRATA_OP_BYTES, #name);
STRATA_EACH_KIND(ASSERT_FITS)

static void walk(strata_team *team, int32_t thread, const uint8_t *tape, int64_t n_ops) {
    const strata_worker worker = {team->kernels, thread, team->n_threads, &team->next_task};
    for (int64_t i = 0; i < n_ops; i++, tape += STRATA_OP_BYTES) {
        switch (*(const int32_t *)tape) {
#define DO_OP(kind, name)                                               \
    case kind:                                                          \
        strata_do_##name(&worker, (const strata_##name *)(const void *)tape); \
        break;
            STRATA_EACH_KIND(DO_OP)
        }
        wait_for_all(team);
    }
}

static void *serve(void *argument) {
    const member *self = argument;
    strata_team *team = self->team;
    int64_t n_seen = 0;
    for (;;) {
        pthread_mutex_lock(&team->lock);
        while (team->run_count == n_seen && !team->is_stopping) pthread_cond_wait(&team->has_work, &team->lock);
        if (team->is_stopping) {
            pthread_mutex_unlock(&team->lock);
            return NULL;
        }
        n_seen = team->run_count;
        const uint8_t *tape = team->tape;
        const int64_t n_ops = team->n_ops;
        pthread_mutex_unlock(&team->lock);
        walk(team, self->thread, tape, n_ops);
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
    free(team->members);
    free(team);
}

int64_t strata_run(strata_team *team, const void *tape, int64_t n_ops) {
    for (int64_t i = 0; i < n_ops; i++)
        if (!strata_op_bytes(*(const int32_t *)((const uint8_t *)tape + i * STRATA_OP_BYTES))) return i + 1;
    if (team->n_threads > 1) {
        pthread_mutex_lock(&team->lock);
        team->tape = tape;
        team->n_ops = n_ops;
        team->run_count++;
        pthread_cond_broadcast(&team->has_work);
        pthread_mutex_unlock(&team->lock);
    }
    walk(team, 0, tape, n_ops);
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
    if (quant < 0 || quant >= STRATA_N_QUANTS || !strata_dequantizer(quant)) return 0;
    return kernels_of(level)->dot_codes[quant] ? 2 : 1;
}

#ifndef STRATA_STAMP
#define STRATA_STAMP "unknown"
#endif
const char *strata_stamp(void) { return STRATA_STAMP; }
