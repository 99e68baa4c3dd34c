/* Small ops on whole rows of hybrid models: gates, norms of groups, taking columns. */
#include <math.h>
#include <string.h>

#include "layers_internal.h"

#define ROW_TASKS(name)                                                       \
    int64_t strata_tasks_##name(const strata_##name *op, int32_t n_threads) { \
        return strata_n_shares(op->n_rows, n_threads);                        \
    }

ROW_TASKS(repeat)
void strata_do_repeat(const strata_worker *worker, const strata_repeat *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        for (int32_t c = 0; c < op->n_copies; c++)
            memcpy(op->y + (i * op->n_copies + c) * op->n_cols, op->x + i * op->n_cols,
                   (size_t)op->n_cols * sizeof(float));
}

ROW_TASKS(columns)
void strata_do_columns(const strata_worker *worker, const strata_columns *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first * op->n_groups; i < stop * op->n_groups; i++)
        memcpy(op->y + i * op->n_taken, op->x + i * op->n_cols + op->first, (size_t)op->n_taken * sizeof(float));
}

ROW_TASKS(grouped_norm)
void strata_do_grouped_norm(const strata_worker *worker, const strata_grouped_norm *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first * op->n_groups; i < stop * op->n_groups; i++)
        worker->kernels->rms_norm_row(op->x + i * op->n_cols, op->weight + i % op->n_groups * op->n_cols,
                                      op->y + i * op->n_cols, op->n_cols, op->epsilon);
}

ROW_TASKS(l2_norm)
void strata_do_l2_norm(const strata_worker *worker, const strata_l2_norm *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        for (int64_t head = 0; head < op->n_heads; head++) {
            float *x = op->x + i * op->n_cols + head * op->head_dim;
            const float squares = worker->layers->dot_row(x, x, op->head_dim);
            worker->layers->scale_row(x, 1.0f / sqrtf(squares + op->epsilon), op->head_dim);
        }
}

ROW_TASKS(silu)
void strata_do_silu(const strata_worker *worker, const strata_silu *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) worker->layers->silu_row(op->x + i * op->n_cols, op->scale, op->n_cols);
}

ROW_TASKS(sigmoid)
void strata_do_sigmoid(const strata_worker *worker, const strata_sigmoid *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) worker->layers->sigmoid_row(op->x + i * op->n_cols, op->n_cols);
}

ROW_TASKS(gate)
void strata_do_gate(const strata_worker *worker, const strata_gate *op, int64_t task) {
    const int64_t n_each = op->n_cols / op->n_gates;
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) {
        float *x = op->x + i * op->n_cols;
        const float *gate = op->gate + i * op->n_gates;
        if (n_each == 1)
            worker->layers->gate_row(x, gate, op->n_cols);
        else
            for (int64_t g = 0; g < op->n_gates; g++)
                worker->layers->scale_row(x + g * n_each, strata_sigmoid_of(gate[g]), n_each);
    }
}

ROW_TASKS(decay)
void strata_do_decay(const strata_worker *worker, const strata_decay *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        for (int64_t h = 0; h < op->n_heads; h++) {
            float *x = op->x + i * op->n_heads + h;
            const float sum = *x + op->bias[h];
            /* log(1 + exp(sum)), which is sum itself once exp(sum) would outgrow its 1. */
            const float softplus = sum > 20.0f ? sum : log1pf(expf(sum));
            *x = expf(op->rate[h] * softplus);
        }
}

ROW_TASKS(mix_streams)
void strata_do_mix_streams(const strata_worker *worker, const strata_mix_streams *op, int64_t task) {
    const int64_t n_values = op->n_streams * op->n_cols;
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        worker->layers->mix_streams_row(op->x + i * n_values, op->gate + i * n_values, op->y + i * op->n_cols,
                                        op->n_cols, op->n_streams);
}

ROW_TASKS(inject)
void strata_do_inject(const strata_worker *worker, const strata_inject *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first * op->n_streams; i < stop * op->n_streams; i++) {
        const float share = 2.0f * strata_sigmoid_of(op->gate[i] / (float)op->n_streams);
        worker->layers->add_scaled_row(op->x + i * op->n_cols, op->y + i / op->n_streams * op->n_cols, share,
                                       op->n_cols);
    }
}
