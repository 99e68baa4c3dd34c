/* Ops on whole rows, one row after another; the arithmetic of a row is in rows.h. */
#include <math.h>
#include <string.h>

#include "internal.h"

#define ROW_TASKS(name)                                                        \
    int64_t strata_tasks_##name(const strata_##name *op, int32_t n_threads) { \
        return strata_n_shares(op->n_rows, n_threads);                         \
    }

ROW_TASKS(embed)
void strata_do_embed(const strata_worker *worker, const strata_embed *op, int64_t task) {
    const strata_dequantize_row dequantize = worker->kernels->dequantize[op->quant];
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        dequantize((const uint8_t *)op->table + op->ids[i] * op->row_bytes, op->y + i * op->n_cols, op->n_cols);
}

ROW_TASKS(rms_norm)
void strata_do_rms_norm(const strata_worker *worker, const strata_rms_norm *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        worker->kernels->rms_norm_row(op->x + i * op->n_cols, op->weight, op->y + i * op->n_cols, op->n_cols,
                                      op->epsilon);
}

ROW_TASKS(quantize)
void strata_do_quantize(const strata_worker *worker, const strata_quantize *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        worker->kernels->quantize_row(op->x + i * op->n_cols, op->qs + i * strata_code_stride(op->n_cols),
                                      op->ds + i * strata_scale_stride(op->n_cols), op->n_cols);
}

ROW_TASKS(rope_angles)
/* Angles are taken in double: a float product loses whole digits of the phase at far positions. */
void strata_do_rope_angles(const strata_worker *worker, const strata_rope_angles *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) {
        float *angles = op->angles + i * op->n_pairs * 2;
        for (int64_t j = 0; j < op->n_pairs; j++) {
            const double angle = (double)op->positions[i] * (double)op->frequencies[j];
            angles[2 * j] = (float)cos(angle) * op->magnitude;
            angles[2 * j + 1] = (float)sin(angle) * op->magnitude;
        }
    }
}

ROW_TASKS(rope)
void strata_do_rope(const strata_worker *worker, const strata_rope *op, int64_t task) {
    /* A pair is two neighbours, or one value of each half of the rotated part. */
    const int64_t step = op->style == STRATA_ROPE_PAIRS ? 2 : 1;
    const int64_t apart = op->style == STRATA_ROPE_PAIRS ? 1 : op->n_pairs;
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) {
        const float *angles = op->angles + i * op->n_pairs * 2;
        for (int64_t head = 0; head < op->n_heads; head++) {
            float *x = op->x + (i * op->n_heads + head) * op->head_dim;
            for (int64_t j = 0; j < op->n_pairs; j++) {
                const float a = x[j * step], b = x[j * step + apart];
                const float c = angles[2 * j], s = angles[2 * j + 1];
                x[j * step] = a * c - b * s;
                x[j * step + apart] = a * s + b * c;
            }
        }
    }
}

ROW_TASKS(swiglu)
void strata_do_swiglu(const strata_worker *worker, const strata_swiglu *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t at = first * op->n_cols; at < stop * op->n_cols; at += op->n_cols)
        worker->kernels->swiglu_row(op->gate + at, op->up + at, op->y + at, op->n_cols);
}

ROW_TASKS(add)
void strata_do_add(const strata_worker *worker, const strata_add *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t at = first * op->n_cols; at < stop * op->n_cols; at += op->n_cols)
        worker->kernels->add_row(op->x + at, op->y + at, op->n_cols);
}

ROW_TASKS(gather_rows)
void strata_do_gather_rows(const strata_worker *worker, const strata_gather_rows *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++)
        memcpy(op->y + i * op->n_cols, op->x + op->rows[i] * op->n_cols, (size_t)op->n_cols * sizeof(float));
}

ROW_TASKS(argmax)
void strata_do_argmax(const strata_worker *worker, const strata_argmax *op, int64_t task) {
    int64_t first, stop;
    strata_share(op->n_rows, worker->n_threads, task, &first, &stop);
    for (int64_t i = first; i < stop; i++) {
        const float *x = op->x + i * op->n_cols;
        int64_t best = 0;
        for (int64_t j = 1; j < op->n_cols; j++)
            if (x[j] > x[best]) best = j;
        op->ids[i] = (int32_t)best;
    }
}
