/* Arithmetic of the ops of strata_layers.h in plain vectors; each level compiles it as it does rows.h,
 * whose vectors it uses. */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunused-function"
#pragma clang diagnostic ignored "-Wunused-const-variable"
#include "rows.h"
#pragma clang diagnostic pop

#include "layers_internal.h"

INLINE floats16 sigmoid16(floats16 x) { return 1.0f / (1.0f + exp16(-x)); }

/* Does `body` for each 16 of n values and `body_some` for the n_left values behind them. */
#define FOR_ALL_16(n, at, body, body_some)            \
    do {                                              \
        int64_t at = 0;                               \
        for (; at + 16 <= (n); at += 16) body;        \
        if (at < (n)) {                               \
            const int64_t n_left = (n) - at;          \
            body_some;                                \
        }                                             \
    } while (0)

static void silu_row(float *x, float scale, int64_t n) {
    FOR_ALL_16(n, i, store16(x + i, silu16(load16(x + i) * scale)),
               store_some(x + i, silu16(load_some(x + i, n_left) * scale), n_left));
}

static void sigmoid_row(float *x, int64_t n) {
    FOR_ALL_16(n, i, store16(x + i, sigmoid16(load16(x + i))),
               store_some(x + i, sigmoid16(load_some(x + i, n_left)), n_left));
}

static void gate_row(float *x, const float *gate, int64_t n) {
    FOR_ALL_16(n, i, store16(x + i, load16(x + i) * sigmoid16(load16(gate + i))),
               store_some(x + i, load_some(x + i, n_left) * sigmoid16(load_some(gate + i, n_left)), n_left));
}

static void scale_row(float *x, float factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static void add_scaled_row(float *x, const float *y, float factor, int64_t n) {
    FOR_ALL_16(n, i, store16(x + i, STRATA_FMA(load16(y + i), all16(factor), load16(x + i))),
               store_some(x + i, STRATA_FMA(load_some(y + i, n_left), all16(factor), load_some(x + i, n_left)),
                          n_left));
}

static float dot_row(const float *x, const float *y, int64_t n) {
    floats16 sums = all16(0);
    FOR_ALL_16(n, i, sums = STRATA_FMA(load16(x + i), load16(y + i), sums),
               sums = STRATA_FMA(load_some(x + i, n_left), load_some(y + i, n_left), sums));
    return sum16(sums);
}

/* y = silu(sum over taps of inputs[tap] * weight[tap]), oldest tap first. */
static void conv_row(const float *const *inputs, const float *weight, int64_t weight_stride, int32_t n_taps,
                     float *y, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        floats16 sum = load16(inputs[0] + i) * load16(weight + i);
        for (int32_t t = 1; t < n_taps; t++)
            sum = STRATA_FMA(load16(inputs[t] + i), load16(weight + t * weight_stride + i), sum);
        store16(y + i, silu16(sum));
    }
    if (i < n) {
        const int64_t n_left = n - i;
        floats16 sum = load_some(inputs[0] + i, n_left) * load_some(weight + i, n_left);
        for (int32_t t = 1; t < n_taps; t++)
            sum = STRATA_FMA(load_some(inputs[t] + i, n_left), load_some(weight + t * weight_stride + i, n_left), sum);
        store_some(y + i, silu16(sum), n_left);
    }
}

/* n_vectors * 16 columns of a state take in one token. */
INLINE void delta_some(const strata_delta_token *token, float *s, const float *v, float *y, const int n_vectors) {
    const int64_t dim = token->head_dim;
    floats16 known[4], sums[4];
    for (int j = 0; j < n_vectors; j++) known[j] = sums[j] = all16(0);
    for (int64_t i = 0; i < dim; i++)
        for (int j = 0; j < n_vectors; j++)
            known[j] = STRATA_FMA(load16(s + i * dim + 16 * j) * token->decay, all16(token->k[i]), known[j]);
    for (int j = 0; j < n_vectors; j++) known[j] = (load16(v + 16 * j) - known[j]) * token->strength;
    for (int64_t i = 0; i < dim; i++)
        for (int j = 0; j < n_vectors; j++) {
            const floats16 row = STRATA_FMA(known[j], all16(token->k[i]), load16(s + i * dim + 16 * j) * token->decay);
            store16(s + i * dim + 16 * j, row);
            sums[j] = STRATA_FMA(row, all16(token->q[i]), sums[j]);
        }
    for (int j = 0; j < n_vectors; j++) store16(y + 16 * j, sums[j] * token->scale);
}

/* n (under 16) columns, one by one. */
INLINE void delta_rest(const strata_delta_token *token, float *s, const float *v, float *y, int64_t n) {
    const int64_t dim = token->head_dim;
    for (int64_t j = 0; j < n; j++) {
        float known = 0, sum = 0;
        for (int64_t i = 0; i < dim; i++) known += s[i * dim + j] * token->decay * token->k[i];
        const float change = (v[j] - known) * token->strength;
        for (int64_t i = 0; i < dim; i++) {
            s[i * dim + j] = s[i * dim + j] * token->decay + change * token->k[i];
            sum += s[i * dim + j] * token->q[i];
        }
        y[j] = sum * token->scale;
    }
}

static void delta_columns(const strata_delta_token *token, float *s, const float *v, float *y, int64_t n) {
    int64_t j = 0;
    for (; j + 64 <= n; j += 64) delta_some(token, s + j, v + j, y + j, 4);
    for (; j + 16 <= n; j += 16) delta_some(token, s + j, v + j, y + j, 1);
    delta_rest(token, s + j, v + j, y + j, n - j);
}

static void mix_streams_row(const float *x, const float *gate, float *y, int64_t n, int32_t n_streams) {
    FOR_ALL_16(
        n, i,
        {
            floats16 sum = load16(x + i) * sigmoid16(load16(gate + i));
            for (int32_t c = 1; c < n_streams; c++)
                sum += load16(x + c * n + i) * sigmoid16(load16(gate + c * n + i));
            store16(y + i, sum / (float)n_streams);
        },
        {
            floats16 sum = load_some(x + i, n_left) * sigmoid16(load_some(gate + i, n_left));
            for (int32_t c = 1; c < n_streams; c++)
                sum += load_some(x + c * n + i, n_left) * sigmoid16(load_some(gate + c * n + i, n_left));
            store_some(y + i, sum / (float)n_streams, n_left);
        });
}

#define STRATA_LAYER_KERNELS                                                                              \
    {                                                                                                     \
        .silu_row = silu_row, .sigmoid_row = sigmoid_row, .gate_row = gate_row, .scale_row = scale_row,   \
        .add_scaled_row = add_scaled_row, .dot_row = dot_row, .conv_row = conv_row,                       \
        .delta_columns = delta_columns, .mix_streams_row = mix_streams_row,                               \
    }
