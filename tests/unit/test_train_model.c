/* Products of matrices against the definition, gradients against finite differences, the optimiser against its formula.
 */
#include "train/model.h" /* first: cmocka takes the name `fail` for a macro */
#include "train/blas.h"
#include "train/optimiser.h"
#include "train/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Small whole numbers: every order of summing gives the same bits. */
static void test_multiply(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1}, {3, 4, 5}, {7, 1, 9}, {1, 6, 19}, {17, 33, 40}, {5, 5, 0}};
    for (int plain = 0; plain < 2; plain++) {
        blas_open(plain);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (unsigned turns = 0; turns < 8; turns++) {
                size_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
                bool turn_a = turns & 1, turn_b = turns & 2, add = turns & 4;
                float a[17 * 40 + 1], b[40 * 33 + 1], c[17 * 33], wanted[17 * 33];
                for (size_t i = 0; i < m * k; i++)
                    a[i] = (float)(int)(i * 7 % 11) - 5;
                for (size_t i = 0; i < k * n; i++)
                    b[i] = (float)(int)(i * 5 % 13) - 6;
                for (size_t i = 0; i < m * n; i++)
                    c[i] = wanted[i] = (float)i;
                for (size_t i = 0; i < m; i++)
                    for (size_t j = 0; j < n; j++) {
                        float sum = add ? wanted[i * n + j] : 0;
                        for (size_t l = 0; l < k; l++)
                            sum += a[turn_a ? l * m + i : i * k + l] * b[turn_b ? j * k + l : l * n + j];
                        wanted[i * n + j] = sum;
                    }
                if (k > 0 || plain) /* BLAS asks for leading dimensions above 0, and no model has a layer of none */
                    multiply(turn_a, turn_b, m, n, k, a, b, add, c);
                else
                    memcpy(c, wanted, sizeof c);
                for (size_t i = 0; i < m * n; i++)
                    assert_true(c[i] == wanted[i]);
            }
        }
    }
    blas_open(false);
}

/* The loss along one coordinate, by central differences: the error is a rounding error of the loss over the distance,
 * which is the tolerance, plus a curvature term of distance squared. */
static void check_gradient(const char *text, const char *name)
{
    enum { ROWS = 12 };
    struct dataset data;
    struct model model;
    struct model_work work;
    struct failure failure = {""};
    assert_true(dataset_open(name, 2, model_wants_real_targets(text), &data, &failure));
    assert_true(model_create(text, &data, &model, &failure));
    assert_true(model_work_create(&model, ROWS, &work, &failure));
    float *weights = malloc(model.parameters * sizeof *weights),
          *gradient = malloc(model.parameters * sizeof *gradient);
    assert_non_null(weights);
    assert_non_null(gradient);
    fill_normal(random_key(1, FOR_WEIGHTS, 99), weights, model.parameters);
    for (uint64_t i = 0; i < model.parameters; i++)
        weights[i] *= 0.3f;
    for (uint64_t i = 0; i < ROWS; i++)
        data.fetch(data.state, i, work.features + i * data.features, work.targets + i);
    double loss = model_run(&model, weights, &work, ROWS, gradient).loss / ROWS;
    assert_true(isfinite(loss) && loss > 0);
    const float distance = 0x1p-10f;
    double worst = 0, largest = 0;
    for (uint64_t i = 0; i < model.parameters; i++) {
        float kept = weights[i];
        weights[i] = kept + distance;
        double above = model_run(&model, weights, &work, ROWS, NULL).loss / ROWS;
        float up = weights[i] - kept;
        weights[i] = kept - distance;
        double below = model_run(&model, weights, &work, ROWS, NULL).loss / ROWS;
        float down = kept - weights[i];
        weights[i] = kept;
        double slope = (above - below) / (double)(up + down);
        worst = fmax(worst, fabs(slope - (double)gradient[i]));
        largest = fmax(largest, fabs(slope));
    }
    /* Seen: 5e-5. A kink of a rectified unit within the distance would cost more; with these weights and rows there is
     * none. */
    const double tolerance = 0.001;
    print_message("%s on %s: gradient off by %g, largest slope %g\n", text, name, worst, largest);
    assert_true(worst <= tolerance * largest);
    free(weights);
    free(gradient);
    model_work_free(&work);
    dataset_close(&data);
}

static void test_gradients(void **state)
{
    (void)state;
    check_gradient("linear", "synthetic:features=9");
    check_gradient("linear:bias", "synthetic:features=9");
    check_gradient("logistic", "synthetic:features=9,classes=2");
    check_gradient("logistic:bias", "synthetic:features=9,classes=2");
    check_gradient("softmax", "synthetic:features=9,classes=5");
    check_gradient("mlp:7", "synthetic:features=9,classes=5");
    check_gradient("mlp:7,6,5", "synthetic:features=9,classes=2");
    check_gradient("mlp:8", "synthetic:features=9");
}

static void test_models(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t classes;
        uint64_t parameters; /* 0: refused */
    } table[] = {
        {"linear", 0, 10},
        {"linear:bias", 0, 11},
        {"logistic", 2, 10},
        {"logistic", 3, 0},
        {"logistic", 0, 0},
        {"softmax", 3, 33},
        {"softmax", 0, 0},
        {"mlp:4", 3, 59},
        {"mlp:4", 0, 49},
        {"mlp:4,5", 2, 81},
        {"mlp:", 3, 0},
        {"mlp:0", 3, 0},
        {"mlp:4,", 3, 0},
        {"mlp:4x", 3, 0},
        {"mlp:1,1,1,1,1,1,1,1", 3, 0},
        {"linear:", 0, 0},
        {"resnet", 3, 0},
        {NULL, 0, 10},
        {NULL, 2, 11},
        {NULL, 3, 11 * 128 + 129 * 3},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct dataset data = {.features = 10, .classes = table[i].classes};
        struct model model;
        struct failure failure = {""};
        bool is_made = model_create(table[i].text, &data, &model, &failure);
        assert_int_equal(is_made, table[i].parameters > 0);
        assert_true(is_made ? model.parameters == table[i].parameters : failure.text[0] != 0);
    }
}

static void test_optimiser(void **state)
{
    (void)state;
    float weights[] = {1, -2}, velocity[] = {0.5f, 0}, gradient[] = {0.25f, 4};
    descend(weights, velocity, gradient, 2, 0.5, 0.5, 0.25);
    const float moved[] = {0.75f, 3.5f}, at[] = {0.625f, -3.75f};
    assert_memory_equal(velocity, moved, sizeof moved);
    assert_memory_equal(weights, at, sizeof at);
    float plain[] = {1, -2};
    descend(plain, NULL, gradient, 2, 0.5, 0, 0);
    assert_true(plain[0] == 0.875f && plain[1] == -4);
    static const double wanted[][5] = {
        {1, 1, 1, 1, 1}, {1, 0.75, 0.5, 0.25, 0}, {1, 0.853553390593, 0.5, 0.146446609407, 0}, {1, 1, 0.1, 0.01, 0.01}};
    for (int schedule = 0; schedule < 4; schedule++)
        for (uint64_t quarter = 0; quarter <= 4; quarter++)
            assert_true(fabs(learning_rate((enum train_schedule)schedule, 1, quarter, 4) - wanted[schedule][quarter]) <
                        1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multiply),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_optimiser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
