/* What `tersegrad plan` recommends: nothing that is not surely 5 % faster than the best without compression; of codecs
 * that are as good, the gentlest. And the tensors of layouts. */
#include "cli/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Rows: the baseline, the reducer's `none`, then codecs from gentle to coarse. */
enum { ROWS = 5 };
static struct plan_row rows[ROWS] = {{.is_ring = true, .is_dense = true}, {.is_dense = true}};
static const struct plan plan = {.rows = rows, .row_count = ROWS};

/* A step of which nothing is uncertain but the model. */
static struct predict_step step(double seconds)
{
    return (struct predict_step){
        .seconds = seconds, .fast_network = seconds, .slow_network = seconds, .error = PREDICT_MODEL_ERROR};
}

static size_t choice(double ring, double none, double first, double second, double third)
{
    const struct predict_step steps[ROWS] = {step(ring), step(none), step(first), step(second), step(third)};
    return plan_choice(&plan, steps, 8);
}

static void nothing_is_sure(void **state)
{
    (void)state;
    assert_int_equal(choice(1, 1, 1, 1, 1), 0);
    assert_int_equal(choice(1, 1, 2, 3, 4), 0);
    /* 10 % faster, but the model may be wrong by 10 % in each of the two. */
    assert_int_equal(choice(1, 1, 0.91, 0.91, 0.91), 0);
    assert_int_equal(choice(1, 1, 0.5, 2, 2), 2);
}

static void the_best_without_is_to_be_beaten(void **state)
{
    (void)state;
    assert_int_equal(choice(1, 0.5, 0.5, 0.49, 0.51), 0);
    assert_int_equal(choice(0.5, 1, 0.5, 0.49, 0.51), 0);
    assert_int_equal(choice(1, 0.5, 0.1, 0.49, 0.51), 2);
}

static void the_gentlest_of_equals(void **state)
{
    (void)state;
    assert_int_equal(choice(1, 1, 0.5, 0.5, 0.5), 2);
    assert_int_equal(choice(1, 1, 0.51, 0.505, 0.501), 2);
    assert_int_equal(choice(1, 1, 0.52, 0.505, 0.501), 3);
    assert_int_equal(choice(1, 1, 0.6, 0.55, 0.5), 4);
}

/* The lower end counts: where the network may be fast and coding slow, nothing is gained. */
static void the_lower_end_counts(void **state)
{
    struct predict_step steps[ROWS] = {step(1), step(1), step(0.5), step(0.6), step(0.7)};
    (void)state;
    steps[2].fast_network = 0.98;
    assert_int_equal(plan_choice(&plan, steps, 8), 3);
    steps[3].slow_network = 0.98;
    assert_int_equal(plan_choice(&plan, steps, 8), 4);
}

/* Computing is not uncertain: a small gain of a step that is nearly all computing may be sure. */
static void computing_is_sure(void **state)
{
    struct predict_step steps[ROWS] = {step(1.07), step(1.07), step(1.001), step(2), step(2)};
    (void)state;
    for (size_t i = 0; i < ROWS; i++)
        steps[i].computing = 1;
    assert_int_equal(plan_choice(&plan, steps, 8), 2);
    for (size_t i = 0; i < ROWS; i++)
        steps[i].computing = 0;
    assert_int_equal(plan_choice(&plan, steps, 8), 0);
}

static void layouts(void **state)
{
    struct layer layers[] = {{.name = "first", .count = 100, .ready = NAN},
                             {.name = "last", .offset = 100, .count = 300, .ready = NAN}};
    const struct layout layout = {layers, 2};
    struct predict_tensor tensors[2];
    struct failure failure = {""};
    bool has_times = true;
    (void)state;
    assert_true(plan_layout_check(&layout, &has_times, &failure));
    assert_false(has_times);
    plan_layout_ready(&layout, has_times, 0.4, tensors);
    assert_string_equal(tensors[0].name, "last");
    assert_true(fabs(tensors[0].ready - 0.3) < 1e-12);
    assert_true(tensors[1].ready == 0.4);
    layers[0].ready = 0.1;
    assert_false(plan_layout_check(&layout, &has_times, &failure));
    layers[1].ready = 0.2;
    assert_true(plan_layout_check(&layout, &has_times, &failure));
    assert_true(has_times);
    plan_layout_ready(&layout, has_times, 0.4, tensors);
    assert_string_equal(tensors[0].name, "first");
    assert_true(tensors[0].ready == 0.1 && tensors[1].ready == 0.2);
    layers[1].offset = 99;
    assert_false(plan_layout_check(&layout, &has_times, &failure));
    assert_non_null(strstr(failure.text, "'first' and 'last' overlap"));
    layers[0].offset = UINT64_MAX - 100; /* of unsigned places, differences do not wrap */
    assert_true(plan_layout_check(&layout, &has_times, &failure));
    strcpy(layers[1].name, "first");
    assert_false(plan_layout_check(&layout, &has_times, &failure));
    assert_non_null(strstr(failure.text, "'first'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_sure),        cmocka_unit_test(the_best_without_is_to_be_beaten),
        cmocka_unit_test(the_gentlest_of_equals), cmocka_unit_test(the_lower_end_counts),
        cmocka_unit_test(computing_is_sure),      cmocka_unit_test(layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
