/* ops/losses/grpo_run.c - the passes of a GRPO loss. */
#include "ops/losses/grpo_run.h"

#include <math.h>

#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "core/math/f64.h"

bool napier_grpo_looks_ahead(const napier_grpo_run *run) {
    const unsigned of_policy = NAPIER_SCAN_RATIO | NAPIER_SCAN_CLAMPED | NAPIER_SCAN_DRIFT;
    const bool on_policy = !run->job.old.data; /* the policy replaces the old one */
    const bool quantile = run->options.top_entropy_quantile < 1;
    const bool share = run->job.entropy_mask && run->options.entropy_coefficient != 0; /* of the bonus */
    return quantile || share || (run->scans & of_policy) || (run->scans && on_policy);
}

napier_status napier_grpo_take(napier_memory *memory, napier_grpo_run *run) {
    const int64_t responses = run->responses.count, slots = napier_tile_slots(&run->responses);
    if (responses == 0) {
        return NAPIER_OK;
    }
    run->response = napier_take(memory, responses, sizeof *run->response);
    run->sums = run->totals ? napier_take(memory, slots, sizeof *run->sums) : NULL;
    run->scan = run->scans || run->job.mask ? napier_take(memory, slots, sizeof *run->scan) : NULL;
    return napier_taken(memory, "batch: no memory for %lld responses in %lld tiles", (long long)responses,
                        (long long)slots);
}

/* ---- Prepare ----------------------------------------------------------------------------------------------------- */

static void scan_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_grpo_run *run = argument;
    napier_tiles tile = napier_tiles_in(&run->responses, begin, end);
    (void)worker;
    while (napier_next_tile(&tile)) {
        run->kernels->scan(&run->job, tile.first, tile.n, run->scans, &run->scan[tile.slot]);
    }
}

static napier_grpo_scan scan_of(const napier_grpo_run *run, int64_t b, int64_t *counted) {
    napier_grpo_scan total = {{0}, 0};
    *counted = napier_response_size(&run->responses, b);
    if (!run->scan) {
        return total;
    }
    const napier_grpo_scan *scan = run->scan + napier_first_slot(&run->responses, b);
    *counted = 0;
    for (int64_t i = 0; i < napier_response_tiles(&run->responses, b); i++) {
        *counted += scan[i].counted;
        for (int s = 0; s < NAPIER_SCAN_SUMS; s++) {
            total.sum[s] += scan[i].sum[s];
        }
    }
    return total;
}

static void prepare_responses(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_grpo_run *run = argument;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        int64_t counted;
        const napier_grpo_scan scan = scan_of(run, b, &counted);
        run->response[b] = napier_grpo_prepared(&run->options, &run->all, run->mean, run->job.sequence, &scan, counted);
    }
}

static void find_threshold(void *argument) {
    napier_grpo_run *run = argument;
    run->job.entropy_threshold =
        napier_grpo_quantile(run->job.entropies, run->job.mask, 1.0 - run->options.top_entropy_quantile);
}

/* Without an entropy mask, all counted tokens share the bonus. With one, their number is known only after counting. */
static void share_bonus(void *argument) {
    napier_grpo_run *run = argument;
    if (run->all.counted > 0) {
        run->job.entropy_gradient = (float)-(run->options.entropy_coefficient / (double)run->all.counted);
    }
}

void napier_grpo_prepare(napier_context *context, napier_grpo_run *run) {
    const int64_t tokens = run->responses.tokens;
    if (run->scan) {
        napier_parallel(context, tokens, napier_token_chunk(context, tokens), scan_tiles, run);
    }
    if (run->options.top_entropy_quantile < 1 && tokens > 0) {
        napier_run_once(find_threshold, run);
    }
    napier_parallel(context, run->responses.count, 1 << 12, prepare_responses, run);
    napier_run_once(share_bonus, run);
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

static void run_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_grpo_run *run = argument;
    napier_tiles tile = napier_tiles_in(&run->responses, begin, end);
    (void)worker;
    while (napier_next_tile(&tile)) {
        run->kernels->tile(&run->job, &run->response[tile.response], tile.response, tile.first, tile.n,
                           run->sums ? &run->sums[tile.slot] : NULL);
    }
}

void napier_grpo_tiles(napier_context *context, napier_grpo_run *run) {
    const int64_t tokens = run->responses.tokens;
    napier_parallel(context, tokens, napier_token_chunk(context, tokens), run_tiles, run);
}

/* ---- Sums over responses ----------------------------------------------------------------------------------------- */

static const napier_grpo_sums *sums_of(const napier_grpo_run *run, int64_t b, int64_t *tiles) {
    *tiles = napier_response_tiles(&run->responses, b);
    return run->sums + napier_first_slot(&run->responses, b);
}

static void flow_of_responses(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_grpo_run *run = argument;
    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        napier_grpo_response *r = &run->response[b];
        int64_t tiles;
        const napier_grpo_sums *sums = sums_of(run, b, &tiles);
        double flow = 0;
        for (int64_t i = 0; i < tiles; i++) {
            flow += (double)sums[i].sum[NAPIER_TERM_FLOW];
        }
        r->flow = napier_grpo_flow_of(&run->options, &run->all, run->mean, r->counted, flow);
    }
}

static void add_response(const napier_grpo_run *run, int64_t b, napier_grpo_totals *t) {
    int64_t tiles;
    const napier_grpo_sums *sums = sums_of(run, b, &tiles);
    const double n = (double)run->response[b].counted;
    double sum[NAPIER_TERMS] = {0}, kept = 0;
    for (int64_t i = 0; i < tiles; i++) {
        for (int s = 0; s < NAPIER_TERMS; s++) {
            sum[s] += (double)sums[i].sum[s];
        }
        kept += sums[i].kept;
        t->low += sums[i].low;
        t->high += sums[i].high;
        t->bonus += sums[i].bonus;
        t->min_ratio = sums[i].min_ratio < t->min_ratio ? sums[i].min_ratio : t->min_ratio;
        t->max_ratio = sums[i].max_ratio > t->max_ratio ? sums[i].max_ratio : t->max_ratio;
    }
    if (n == 0) {
        return;
    }
    sum[NAPIER_TERM_LOSS] *= napier_grpo_weight(&run->options, &run->all, run->mean, run->response[b].counted);
    for (int s = 0; s < NAPIER_TERMS; s++) {
        t->sum[s] += sum[s];
    }
    t->kept += kept / n;
    t->some++;
}

static void make_metrics(void *argument) {
    napier_grpo_run *run = argument;
    napier_grpo_totals t = {.min_ratio = INFINITY, .max_ratio = -INFINITY};
    for (int64_t b = 0; b < run->responses.count; b++) {
        add_response(run, b, &t);
    }
    if (t.some == 0) {
        return;
    }
    run->metrics = napier_grpo_metrics_from(&run->options, run->all.counted, &t);
    run->job.entropy_gradient = (float)-napier_grpo_entropy_share(&run->options, t.bonus);
}

void napier_grpo_finish(napier_grpo_run *run) {
    run->metrics = (napier_grpo_metrics){.struct_size = sizeof run->metrics};
    napier_run_once(make_metrics, run);
}

static void entropy_gradients(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_grpo_run *run = argument;
    (void)worker;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        run->kernels->entropy_gradient(&run->job, i, (int)napier_least(end - i, NAPIER_TILE));
    }
}

napier_status napier_grpo_all(napier_context *context, napier_grpo_run *run) {
    const napier_vector none = {NULL, 0, 0, NAPIER_F32};
    const int64_t tokens = run->responses.tokens;
    const bool twice = run->job.sequence && run->job.grad_logprobs.data;
    run->totals = run->totals || twice;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_grpo_take(&memory, run));
    NAPIER_MAY_STOP(context);
    napier_grpo_prepare(context, run);
    napier_grpo_run first = *run, second = *run;
    if (twice) {
        first.job.grad_logprobs = none;
        second.job.losses = none;
        second.sums = NULL;
    }
    napier_grpo_tiles(context, &first);
    if (twice) {
        napier_parallel(context, run->responses.count, 1 << 12, flow_of_responses, run);
        napier_grpo_tiles(context, &second);
    }
    NAPIER_TRY(napier_stopped(context)); /* the totals count in integers, which unwritten sums could overflow */
    if (run->totals) {
        napier_grpo_finish(run);
    }
    if (run->job.grad_entropies.data) {
        napier_parallel(context, tokens, napier_token_chunk(context, tokens), entropy_gradients, run);
    }
    return napier_stopped(context);
}
