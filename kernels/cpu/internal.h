/* Shared by the C files only: the table of row kernels of a level, and a thread's view of the team. */
#ifndef STRATA_INTERNAL_H
#define STRATA_INTERNAL_H

#include "../include/blocks.h"
#include "strata.h"

/* Codes of activations share a scale in blocks of STRATA_CODE_BLOCK, the last perhaps shorter. */
#define STRATA_CODE_BLOCK 256
#define STRATA_LARGEST_CODE 32767
/* A block with nothing larger counts as zeros: its scale's inverse would overflow. */
#define STRATA_SMALLEST 1e-30f

static inline int64_t strata_n_strips(int64_t n_cols) { return (n_cols + STRATA_CODE_BLOCK - 1) / STRATA_CODE_BLOCK; }

/* Codes of a row of x with the zeros behind them, and floats of its scales and sums. */
static inline int64_t strata_code_stride(int64_t n_cols) { return (n_cols + 63) / 64 * 64; }
static inline int64_t strata_scale_stride(int64_t n_cols) { return strata_n_strips(n_cols) * (STRATA_CODE_BLOCK / 16 + 1); }

/* Cells whose K and V are turned to float32 together; they then serve every head of a group. */
#define STRATA_TILE_CELLS 32
/* Cells summed on their own before they are joined to the rest; a multiple of the tile. */
#define STRATA_SEGMENT_CELLS 512
/* Consecutive query rows that share a tile. */
#define STRATA_QUERY_ROWS 8

/* Some rows of weights and some of x: y[i * y_stride + r] = weight row r . x row i. How rows are taken
 * together is the kernel's choice; each product is summed in the same order whatever is beside it. */
typedef struct {
    const uint8_t *w; /* [n_w, row_bytes] */
    int64_t n_w, row_bytes, n_cols;
    int64_t n_x;
    const float *x;   /* [n_x, n_cols], for products of floats */
    const int16_t *qs; /* [n_x, strata_code_stride(n_cols)] and */
    const float *ds;   /* [n_x, strata_scale_stride(n_cols)], for products of codes */
    float *y;
    int64_t y_stride;
} strata_dots;

typedef void (*strata_dot)(const strata_dots *dots);
typedef void (*strata_dequantize_row)(const void *blocks, float *y, int64_t n_values);

typedef struct {
    strata_dot dot_codes[STRATA_N_QUANTS];
    strata_dot dot_floats[STRATA_N_QUANTS];
    strata_dequantize_row dequantize[STRATA_N_QUANTS];
    void (*quantize_row)(const float *x, int16_t *qs, float *ds, int64_t n_cols);
    void (*rms_norm_row)(const float *x, const float *weight, float *y, int64_t n_cols, float epsilon);
    void (*swiglu_row)(const float *gate, const float *up, float *y, int64_t n_cols);
    void (*add_row)(float *x, const float *y, int64_t n_cols);
    /* head_dim values of each of n_cells cells, cell_values apart, side by side as floats. */
    void (*load_cells)(const strata_half *cells, int64_t cell_values, float *y, int64_t n_cells,
                       int64_t head_dim);
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

/* Row kernels of the ops in strata_layers.h; see layers_internal.h. */
typedef struct strata_layer_kernels strata_layer_kernels;

/* What a task sees of its team. */
typedef struct {
    const strata_kernels *kernels;
    const strata_layer_kernels *layers;
    int32_t thread, n_threads;
} strata_worker;

/* Fills dots->y, with codes of x if there are some. Scratch is f32[n_cols] of this thread's own. */
void strata_multiply(const strata_worker *worker, int32_t quant, const strata_dots *dots, float *scratch);

/* Ops whose rows all cost the same split them evenly in at most this many tasks a thread. */
#define STRATA_SHARES_PER_THREAD 2

static inline int64_t strata_n_shares(int64_t n_rows, int32_t n_threads) {
    const int64_t most = n_threads == 1 ? 1 : (int64_t)n_threads * STRATA_SHARES_PER_THREAD;
    return n_rows < most ? n_rows : most;
}

/* The rows of one of these tasks. */
static inline void strata_share(int64_t n_rows, int32_t n_threads, int64_t task, int64_t *first, int64_t *stop) {
    const int64_t n_shares = strata_n_shares(n_rows, n_threads);
    *first = n_rows * task / n_shares;
    *stop = n_rows * (task + 1) / n_shares;
}

/* Each op says in how many tasks it falls apart, and does one of them. Tasks of an op may run at the
 * same time and in any order; an op starts when all tasks of the one before are done. */
#define STRATA_DECLARE_OP(name)                                               \
    int64_t strata_tasks_##name(const strata_##name *op, int32_t n_threads); \
    void strata_do_##name(const strata_worker *worker, const strata_##name *op, int64_t task);

#define STRATA_EACH_KIND(DO)              \
    DO(STRATA_EMBED, embed)               \
    DO(STRATA_RMS_NORM, rms_norm)         \
    DO(STRATA_QUANTIZE, quantize)         \
    DO(STRATA_MATMUL, matmul)             \
    DO(STRATA_ROPE_ANGLES, rope_angles)   \
    DO(STRATA_ROPE, rope)                 \
    DO(STRATA_SWIGLU, swiglu)             \
    DO(STRATA_ADD, add)                   \
    DO(STRATA_STORE_KV, store_kv)         \
    DO(STRATA_ATTEND, attend)             \
    DO(STRATA_ATTEND_MERGE, attend_merge) \
    DO(STRATA_GATHER_ROWS, gather_rows)   \
    DO(STRATA_ARGMAX, argmax)             \
    DO(STRATA_REPEAT, repeat)             \
    DO(STRATA_COLUMNS, columns)           \
    DO(STRATA_GROUPED_NORM, grouped_norm) \
    DO(STRATA_L2_NORM, l2_norm)           \
    DO(STRATA_SILU, silu)                 \
    DO(STRATA_SIGMOID, sigmoid)           \
    DO(STRATA_GATE, gate)                 \
    DO(STRATA_DECAY, decay)               \
    DO(STRATA_CONV, conv)                 \
    DO(STRATA_DELTA, delta)               \
    DO(STRATA_MIX_STREAMS, mix_streams)   \
    DO(STRATA_INJECT, inject)             \
    DO(STRATA_ROUTE, route)               \
    DO(STRATA_GROUP_PICKS, group_picks)   \
    DO(STRATA_MATMUL_PICKS, matmul_picks) \
    DO(STRATA_SUM_PICKS, sum_picks)       \
    DO(STRATA_NGRAM_ROWS, ngram_rows)     \
    DO(STRATA_EMBED_FAR, embed_far)       \
    DO(STRATA_NGRAM_GATE, ngram_gate)     \
    DO(STRATA_STORE_INDEX, store_index)   \
    DO(STRATA_SCORE_PAGES, score_pages)   \
    DO(STRATA_SELECT_PAGES, select_pages) \
    DO(STRATA_ATTEND_PAGES, attend_pages)

#define STRATA_DECLARE(kind, name) STRATA_DECLARE_OP(name)
STRATA_EACH_KIND(STRATA_DECLARE)

#endif
