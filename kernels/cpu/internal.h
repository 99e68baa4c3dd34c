/* Shared by the C files only: the table of row kernels of a level, and a thread's view of the team. */
#ifndef STRATA_INTERNAL_H
#define STRATA_INTERNAL_H

#include <stdatomic.h>

#include "../include/blocks.h"
#include "strata.h"

/* The largest code of an activation: high byte 127, low byte 0. */
#define STRATA_LARGEST_CODE 16256

/* Cells whose K and V are turned to float32 together; they then serve every head of a group. */
#define STRATA_TILE_CELLS 64
/* Cells summed on their own before they are joined to the rest; a multiple of the tile. */
#define STRATA_SEGMENT_CELLS 512
/* Consecutive query rows that share a tile. */
#define STRATA_QUERY_ROWS 8

/* y[i * y_stride] = weight row . x row i, for n_x rows of codes, or of float32. */
typedef void (*strata_dot_codes)(const void *w, const int8_t *qs, const float *ds, int64_t n_cols,
                                 int64_t n_x, float *y, int64_t y_stride);
typedef void (*strata_dot_floats)(const void *w, const float *x, int64_t n_cols, int64_t n_x, float *y,
                                  int64_t y_stride);

typedef struct {
    strata_dot_codes dot_codes[STRATA_N_QUANTS];
    strata_dot_floats dot_floats[STRATA_N_QUANTS];
    void (*quantize_row)(const float *x, int8_t *qs, float *ds, int64_t n_cols);
    void (*rms_norm_row)(const float *x, const float *weight, float *y, int64_t n_cols, float epsilon);
    void (*swiglu_row)(const float *gate, const float *up, float *y, int64_t n_cols);
    void (*add_row)(float *x, const float *y, int64_t n_cols);
    void (*half_to_float)(const strata_half *x, float *y, int64_t n);
    void (*float_to_half)(const float *x, strata_half *y, int64_t n);
    /* One query head over n_cells cells of a tile: updates maximum, sum (of 16 lanes) and values. */
    void (*attend_tile)(const float *q, const float *k, const float *v, int64_t head_dim, int64_t n_cells,
                        float scale, float *state);
    /* Joins a segment's state into the running one; both [16 + 16 + head_dim]. */
    void (*attend_join)(float *total, const float *segment, int64_t head_dim);
} strata_kernels;

/* A state is maximum (1 of 16 floats used), sum in 16 lanes, values[head_dim]. */
#define STRATA_STATE_FLOATS(head_dim) (32 + (head_dim))

extern const strata_kernels strata_kernels_generic;
extern const strata_kernels strata_kernels_avx2;
extern const strata_kernels strata_kernels_avx512;

typedef void (*strata_dequantize_row)(const void *blocks, float *y, int64_t n_values);
strata_dequantize_row strata_dequantizer(int32_t quant);

/* What an op sees of its team. */
typedef struct {
    const strata_kernels *kernels;
    int32_t thread, n_threads;
    _Atomic int64_t *next_task; /* shared counter, 0 when the op starts */
} strata_worker;

/* This thread's share of n rows when all cost the same. */
static inline void strata_share(const strata_worker *worker, int64_t n, int64_t *first, int64_t *stop) {
    *first = n * worker->thread / worker->n_threads;
    *stop = n * (worker->thread + 1) / worker->n_threads;
}

/* The next task nobody has taken. */
static inline int64_t strata_take(const strata_worker *worker) {
    return atomic_fetch_add_explicit(worker->next_task, 1, memory_order_relaxed);
}

void strata_do_embed(const strata_worker *worker, const strata_embed *op);
void strata_do_rms_norm(const strata_worker *worker, const strata_rms_norm *op);
void strata_do_quantize(const strata_worker *worker, const strata_quantize *op);
void strata_do_matmul(const strata_worker *worker, const strata_matmul *op);
void strata_do_rope_angles(const strata_worker *worker, const strata_rope_angles *op);
void strata_do_rope(const strata_worker *worker, const strata_rope *op);
void strata_do_swiglu(const strata_worker *worker, const strata_swiglu *op);
void strata_do_add(const strata_worker *worker, const strata_add *op);
void strata_do_store_kv(const strata_worker *worker, const strata_store_kv *op);
void strata_do_attend(const strata_worker *worker, const strata_attend *op);
void strata_do_attend_merge(const strata_worker *worker, const strata_attend_merge *op);
void strata_do_gather_rows(const strata_worker *worker, const strata_gather_rows *op);
void strata_do_argmax(const strata_worker *worker, const strata_argmax *op);

#endif
