/* ops/losses/advantages.c - rewards compared within their groups.
 *
 * A sum of up to 2^29 equal f32 values is exact in double, and so is its mean. So a group whose rewards are equal gets
 * advantages of exactly 0, which f32 sums do not give. */
#include <inttypes.h>
#include <math.h>

#include <napier/rl.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "core/math/f64.h"

typedef struct advantage_call {
    napier_const_vector rewards;
    napier_indices groups;
    napier_advantage_options options;
    napier_vector advantages;
} advantage_call;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check_groups(napier_context *context, const advantage_call *call) {
    const int64_t rewards = call->rewards.size, size = call->options.group_size;
    if (call->groups.data) {
        NAPIER_TRY(napier_check_offset_count(context, "group_offsets", call->groups));
        return napier_check_offsets_of(context, "group_offsets", call->groups, rewards);
    }
    NAPIER_REFUSE_IF(context, rewards > 0 && (size <= 0 || rewards % size != 0),
                     "options: group_size %" PRId64 " does not divide %" PRId64 " rewards", size, rewards);
    return NAPIER_OK;
}

static napier_status check(napier_context *context, const napier_advantage_options *options, advantage_call *call) {
    const int64_t size = call->rewards.size;
    const napier_argument all[] = {
        napier_row_argument("rewards", call->rewards, NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT, size),
        napier_row_argument("group_offsets", napier_indices_bytes(call->groups), NAPIER_MAY_BE_ABSENT,
                            call->groups.size),
        napier_row_argument("advantages", napier_read_only_vector(call->advantages), NAPIER_IS_OUT | NAPIER_IS_NARROW,
                            size)};
    napier_advantage_options *const o = &call->options;
    *o = (napier_advantage_options)NAPIER_ADVANTAGE_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_advantage_options, NAPIER_ADVANTAGE_OPTIONS_INIT, group_size),
                                   options, o));
    NAPIER_REFUSE_IF(context, (int)o->scale < NAPIER_SCALE_GROUP || (int)o->scale > NAPIER_SCALE_NONE,
                     "options: scale %d is unknown", (int)o->scale);
    NAPIER_REFUSE_IF(context, !(o->epsilon >= 0 && o->epsilon < HUGE_VAL),
                     "options: epsilon %g is not finite and at least 0", o->epsilon);
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    return check_groups(context, call);
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

typedef struct moments {
    double mean, deviation;
} moments;

static double reward_at(const advantage_call *call, int64_t i) {
    return napier_f64_load(call->rewards.data, call->rewards.dtype, i * call->rewards.stride);
}

/* Of the rewards in [begin, end) that are not NaN. */
static moments moments_of(const advantage_call *call, int64_t begin, int64_t end) {
    double sum = 0, squares = 0, count = 0;
    for (int64_t i = begin; i < end; i++) {
        const double r = reward_at(call, i);
        sum += r == r ? r : 0;
        count += r == r ? 1 : 0;
    }
    const double mean = count > 0 ? sum / count : 0;
    for (int64_t i = begin; i < end; i++) {
        const double d = reward_at(call, i) - mean;
        squares += d == d ? d * d : 0;
    }
    return (moments){mean, count > 1 ? sqrt(squares / (count - 1)) : 0};
}

static void write_group(const advantage_call *call, int64_t begin, int64_t end, double batch_deviation) {
    const napier_advantage_options *const o = &call->options;
    const moments group = moments_of(call, begin, end);
    const double deviation = o->scale == NAPIER_SCALE_GROUP ? group.deviation : batch_deviation;
    const double divisor = o->scale == NAPIER_SCALE_NONE ? 1.0 : deviation + o->epsilon;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * call->advantages.stride;
        const napier_dtype dtype = call->advantages.dtype;
        napier_f64_store(call->advantages.data, dtype, at, (reward_at(call, i) - group.mean) / divisor);
        if (!isfinite(napier_f64_load(call->advantages.data, dtype, at))) { /* also where only rounding overflows */
            napier_f64_store(call->advantages.data, dtype, at, 0.0);
        }
    }
}

static void write_all(const advantage_call *call) {
    const int64_t rewards = call->rewards.size, size = call->options.group_size;
    const bool batch = call->options.scale == NAPIER_SCALE_BATCH;
    const double deviation = batch ? moments_of(call, 0, rewards).deviation : 0;
    const int64_t groups = call->groups.data ? call->groups.size - 1 : rewards > 0 ? rewards / size : 0;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t begin = call->groups.data ? napier_index_at(call->groups, g) : g * size;
        const int64_t end = call->groups.data ? napier_index_at(call->groups, g + 1) : begin + size;
        write_group(call, begin, end, deviation);
    }
}

napier_status napier_group_advantages(napier_context *context, napier_const_vector rewards,
                                      napier_indices group_offsets, const napier_advantage_options *options,
                                      napier_vector advantages) {
    NAPIER_DEFAULT_FENV;
    advantage_call call = {.rewards = rewards, .groups = group_offsets, .advantages = advantages};
    NAPIER_TRY(check(context, options, &call));
    write_all(&call);
    return NAPIER_OK;
}
