/* Shared by the C files of strata_layers.h: their row kernels, and the runs of rows of a lane. */
#ifndef STRATA_LAYERS_INTERNAL_H
#define STRATA_LAYERS_INTERNAL_H

#include "internal.h"

/* What one token brings to a value head of the delta rule. */
typedef struct {
    const float *q, *k; /* [head_dim] */
    float decay, strength, scale;
    int64_t head_dim;
} strata_delta_token;

struct strata_layer_kernels {
    void (*silu_row)(float *x, float scale, int64_t n);
    void (*sigmoid_row)(float *x, int64_t n);
    void (*gate_row)(float *x, const float *gate, int64_t n); /* x *= sigmoid(gate) */
    void (*scale_row)(float *x, float factor, int64_t n);
    void (*add_scaled_row)(float *x, const float *y, float factor, int64_t n);
    float (*dot_row)(const float *x, const float *y, int64_t n);
    void (*conv_row)(const float *const *inputs, const float *weight, int64_t weight_stride, int32_t n_taps,
                     float *y, int64_t n);
    /* n columns of a state f32[head_dim, head_dim] from s on, with their values v. */
    void (*delta_columns)(const strata_delta_token *token, float *s, const float *v, float *y, int64_t n);
    void (*mix_streams_row)(const float *x, const float *gate, float *y, int64_t n, int32_t n_streams);
};

extern const strata_layer_kernels strata_layer_kernels_generic;
extern const strata_layer_kernels strata_layer_kernels_avx2;
extern const strata_layer_kernels strata_layer_kernels_avx512;

static inline int64_t strata_run_stop(const int32_t *lanes, int64_t n_rows, int64_t first) {
    int64_t stop = first + 1;
    while (stop < n_rows && lanes[stop] == lanes[first]) stop++;
    return stop;
}

static inline int64_t strata_count_runs(const int32_t *lanes, int64_t n_rows) {
    int64_t n_runs = 0;
    for (int64_t row = 0; row < n_rows; n_runs++) row = strata_run_stop(lanes, n_rows, row);
    return n_runs;
}

/* The rows of a run. */
static inline void strata_find_run(const int32_t *lanes, int64_t n_rows, int64_t run, int64_t *first,
                                   int64_t *stop) {
    *first = 0;
    *stop = strata_run_stop(lanes, n_rows, 0);
    while (run-- > 0) {
        *first = *stop;
        *stop = strata_run_stop(lanes, n_rows, *first);
    }
}

static inline void *strata_state_of(const strata_state *state, int64_t row) {
    return state->states + state->lanes[row] * state->lane_bytes;
}

static inline float strata_sigmoid_of(float x) { return 1.0f / (1.0f + __builtin_expf(-x)); }

#endif
