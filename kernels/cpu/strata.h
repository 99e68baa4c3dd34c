/* What libstrata_cpu offers: a team of threads, and ops that it runs from a tape.
 *
 * A tape is an array of STRATA_OP_BYTES-sized records. Each starts with its kind; the struct of that
 * kind says the rest. All threads of the team walk the tape together; an op starts when the one before
 * it is done.
 * Rows are float32, row-major and contiguous. A row's result depends on nothing but that row.
 */
#ifndef STRATA_H
#define STRATA_H

#include <stdint.h>

#if defined(_WIN32)
#define STRATA_EXPORT __declspec(dllexport)
#else
#define STRATA_EXPORT __attribute__((visibility("default")))
#endif

#define STRATA_OP_BYTES 160

enum strata_level { STRATA_GENERIC = 0, STRATA_AVX2 = 1, STRATA_AVX512 = 2 };

enum strata_kind {
    STRATA_EMBED = 1,
    STRATA_RMS_NORM,
    STRATA_QUANTIZE,
    STRATA_MATMUL,
    STRATA_ROPE_ANGLES,
    STRATA_ROPE,
    STRATA_SWIGLU,
    STRATA_ADD,
    STRATA_STORE_KV,
    STRATA_ATTEND,
    STRATA_ATTEND_MERGE,
    STRATA_GATHER_ROWS,
    STRATA_ARGMAX,
    STRATA_REPEAT,
    STRATA_COLUMNS,
    STRATA_GROUPED_NORM,
    STRATA_L2_NORM,
    STRATA_SILU,
    STRATA_SIGMOID,
    STRATA_GATE,
    STRATA_DECAY,
    STRATA_CONV,
    STRATA_DELTA,
    STRATA_MIX_STREAMS,
    STRATA_INJECT,
    STRATA_ROUTE,
    STRATA_GROUP_PICKS,
    STRATA_MATMUL_PICKS,
    STRATA_SUM_PICKS,
    STRATA_NGRAM_ROWS,
    STRATA_EMBED_FAR,
    STRATA_NGRAM_GATE,
    STRATA_STORE_INDEX,
    STRATA_SCORE_PAGES,
    STRATA_SELECT_PAGES,
    STRATA_ATTEND_PAGES,
    STRATA_N_KINDS
};

enum strata_rope_style { STRATA_ROPE_PAIRS = 0, STRATA_ROPE_HALVES = 1 };

/* y[i] = table[ids[i]], dequantised. */
typedef struct {
    int32_t kind, quant;
    const void *table;  /* blocks of [n_vocab, n_cols] */
    const int32_t *ids; /* [n_rows] */
    float *y;           /* [n_rows, n_cols] */
    int64_t n_rows, n_cols, row_bytes;
} strata_embed;

/* y = x / sqrt(mean(x^2) + epsilon) * weight. y may be x. */
typedef struct {
    int32_t kind;
    float epsilon;
    const float *x;      /* [n_rows, n_cols] */
    const float *weight; /* [n_cols] */
    float *y;            /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_rms_norm;

/* Activations to codes of 16 bits in blocks of 256: x = scale * code. With 8 bits the outliers of small
 * models' activations cost a KL divergence of 3e-3 even with a scale for each 32; so it is under 1e-5.
 * Codes of 16 columns lie in the order 0, 2, 1, 3 of each 64 (see codes.h), with zeros up to the next 64. */
typedef struct {
    int32_t kind, reserved;
    const float *x; /* [n_rows, n_cols], n_cols a multiple of 32 */
    int16_t *qs;    /* [n_rows, strata_code_values(n_cols)] */
    float *ds;      /* [n_rows, strata_code_floats(n_cols)]: of each block 16 sums of 16 values, then all scales */
    int64_t n_rows, n_cols;
} strata_quantize;

/* y = x weight^T + bias. With qs the product is of codes, else of float32. */
typedef struct {
    int32_t kind, quant;
    const void *weight; /* blocks of [n_out, n_cols] */
    const float *x;     /* [n_rows, n_cols] */
    const int16_t *qs;  /* of strata_quantize, or null: use x */
    const float *ds;    /* of strata_quantize */
    const float *bias;  /* [n_out], or null */
    float *y;           /* [n_rows, n_out] */
    float *scratch;     /* [n_threads, n_cols] */
    int64_t n_rows, n_out, n_cols, row_bytes;
} strata_matmul;

/* angles[i, j] = cos and sin of positions[i] * frequencies[j], times magnitude. */
typedef struct {
    int32_t kind;
    float magnitude;
    const int32_t *positions; /* [n_rows] */
    const float *frequencies; /* [n_pairs] */
    float *angles;            /* [n_rows, n_pairs, 2] */
    int64_t n_rows, n_pairs;
} strata_rope_angles;

/* Rotates the first 2 * n_pairs values of each head, in place. */
typedef struct {
    int32_t kind, style;
    float *x;            /* [n_rows, n_heads, head_dim] */
    const float *angles; /* [n_rows, n_pairs, 2] */
    int64_t n_rows, n_heads, head_dim, n_pairs;
} strata_rope;

/* y = silu(gate) * up. y may be gate or up. */
typedef struct {
    int32_t kind, reserved;
    const float *gate; /* [n_rows, n_cols] */
    const float *up;   /* [n_rows, n_cols] */
    float *y;          /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_swiglu;

/* x += y. */
typedef struct {
    int32_t kind, reserved;
    float *x;       /* [n_rows, n_cols] */
    const float *y; /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_add;

/* Where K and V of one layer lie. Cell c of lane l is in chunk tables[l, c / chunk_cells]; within the
 * chunk's part for this layer, K is [chunk_cells, kv_dim] and V follows in the same shape. */
typedef struct {
    uint8_t *cells;           /* K of this layer in chunk 0 */
    const int32_t *tables;    /* [n_lanes, n_table] */
    const int32_t *lanes;     /* [n_rows] */
    const int32_t *positions; /* [n_rows] */
    int64_t n_table, chunk_cells, chunk_bytes, v_offset_bytes;
} strata_kv;

/* Writes K and V of each row into the cell of its position. */
typedef struct {
    int32_t kind, is_half; /* float16 cells, else float32 */
    const float *k;        /* [n_rows, kv_dim] */
    const float *v;        /* [n_rows, kv_dim] */
    strata_kv kv;
    int64_t n_rows, kv_dim;
} strata_store_kv;

/* y = softmax(scale * q k^T) v over the cells 0 .. position of each row's lane.
 * Cells are taken in segments of STRATA_SEGMENT_CELLS; with partials, each segment is a task of its
 * own and strata_attend_merge joins them: the same sums in the same order. */
typedef struct {
    int32_t kind, is_half;
    const float *q; /* [n_rows, n_heads, head_dim] */
    float *y;       /* [n_rows, n_heads, head_dim] */
    strata_kv kv;
    float *partials; /* [n_rows, n_heads, n_segments, 32 + head_dim], or null */
    float *scratch;  /* [n_threads, strata_attend_scratch(...)] */
    int32_t n_rows, n_heads, n_kv_heads, head_dim;
    int32_t n_segments;
    float scale;
} strata_attend;

/* Joins the partial sums of strata_attend. */
typedef struct {
    int32_t kind, reserved;
    const float *partials; /* [n_rows, n_heads, n_segments, 32 + head_dim] */
    const int32_t *positions;
    float *y; /* [n_rows, n_heads, head_dim] */
    int64_t n_rows, n_heads, head_dim, n_segments;
} strata_attend_merge;

/* y[i] = x[rows[i]]. */
typedef struct {
    int32_t kind, reserved;
    const float *x;      /* [?, n_cols] */
    const int32_t *rows; /* [n_rows] */
    float *y;            /* [n_rows, n_cols] */
    int64_t n_rows, n_cols;
} strata_gather_rows;

/* ids[i] = the first index of the largest value of x[i]. */
typedef struct {
    int32_t kind, reserved;
    const float *x; /* [n_rows, n_cols] */
    int32_t *ids;   /* [n_rows] */
    int64_t n_rows, n_cols;
} strata_argmax;

#include "strata_layers.h"

typedef struct strata_team strata_team;

/* Best level of this processor. */
STRATA_EXPORT int32_t strata_detect_level(void);
/* Text that names the sources this library was made of. */
STRATA_EXPORT const char *strata_stamp(void);
/* sizeof of the struct of a kind, 0 for an unknown one: lets the caller check its own layout. */
STRATA_EXPORT int32_t strata_op_bytes(int32_t kind);
/* 1 if a weight format can be read, 2 if it also has a product with activation codes, else 0. */
STRATA_EXPORT int32_t strata_quant_support(int32_t level, int32_t quant);
/* What strata_quantize writes for a row: 16-bit codes, and floats. */
STRATA_EXPORT int64_t strata_code_values(int64_t n_cols);
STRATA_EXPORT int64_t strata_code_floats(int64_t n_cols);
/* Floats of scratch a thread needs for strata_attend. */
STRATA_EXPORT int64_t strata_attend_scratch(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim);
/* Starts n_threads - 1 threads (the caller is one of the team). Null when that fails. */
STRATA_EXPORT strata_team *strata_team_start(int32_t n_threads, int32_t level);
STRATA_EXPORT void strata_team_stop(strata_team *team);
/* Runs a tape. Returns 0; 1 + the index of the first record whose kind is unknown (nothing ran); or -1
 * when there is no memory (nothing ran). */
STRATA_EXPORT int64_t strata_run(strata_team *team, const void *tape, int64_t n_ops);
/* n_values weights from their blocks to float32. Returns 0, or -1 when the format is unknown. */
STRATA_EXPORT int32_t strata_dequantize(int32_t quant, const void *blocks, float *y, int64_t n_values);

#endif
