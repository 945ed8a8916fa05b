/* The input of the encoder: the embeddings of tokens, or the standardised steps of a series. */
static float *read_steps(const row *r, size_t *steps) {
#ifdef CHANNELS
    float *x = (float *)resized(NULL, r->count * sizeof *x);
    *steps = r->count / CHANNELS;
    if (r->count % CHANNELS) fail(r, "expected a number for each channel of each step");
    for (size_t k = 0; k < r->count; k++)
        x[k] = (float)(((float)r->items[k] - means[k % CHANNELS]) / deviations[k % CHANNELS]);
#else
    float *x = (float *)resized(NULL, r->count * net_words_output_size * sizeof *x);
    *steps = r->count;
    for (size_t t = 0; t < r->count; t++) {
        const float number = (float)index_at(r, t, UNITS);
        net_words_step(&words, &number, x + t * net_words_output_size);
    }
#endif
    return x;
}

#ifdef LINEAR
/* Adds the linear map of the tokens to the scores. */
static void add_linear(const row *r, float *outputs) {
    float part[net_scores_output_size];
    double sums[net_scores_output_size] = {0}, norm = 0;
    for (size_t t = 0; t < r->count; t++) {
        const long index = index_at(r, t, UNITS);
        const float number = (float)index;
        net_scores_step(&scores, &number, part);
        for (int k = 0; k < net_scores_output_size; k++) sums[k] += part[k];
        norm += rarity[index] * rarity[index];
    }
    for (int k = 0; k < net_scores_output_size; k++) outputs[k] += (float)(sums[k] / sqrt(fmax(norm, 1)));
}
#endif

#ifdef STEPS
/* Adds the linear map of the steps of a series to the outputs. */
static void add_steps(const float *x, size_t steps, float *outputs) {
    const size_t size = net_head_output_size;
    for (size_t k = 0; k < size; k++) {
        double sum = 0;
        for (size_t t = 0; t < steps && t < STEPS; t++) {
            sum += step_biases[t * size + k];
            for (size_t c = 0; c < CHANNELS; c++)
                sum += step_weights[(t * CHANNELS + c) * size + k] * x[t * CHANNELS + c];
        }
        outputs[k] += (float)sum;
    }
}
#endif

#ifdef SUPPORT
/* Adds a regression with a Gaussian kernel. It compares the means of equal parts of the series, or their differences,
   with those of the training series. */
static void add_kernel(const float *x, size_t steps, float *outputs) {
    enum { PARTS = FEATURES + DIFFERENCES, SIZE = FEATURES * CHANNELS };
    static double means[PARTS * CHANNELS];
    double sums[net_head_output_size] = {0};
    const double size = (double)steps / PARTS;
    for (size_t n = 0; n < PARTS * CHANNELS; n++) {
        const double first = (double)(n / CHANNELS) * size, last = fmin(first + size, (double)steps);
        double sum = 0;
        for (size_t t = (size_t)first; (double)t < last; t++)
            sum += x[t * CHANNELS + n % CHANNELS] * (fmin(last, (double)t + 1) - fmax(first, (double)t));
        means[n] = sum / size;
    }
    for (size_t n = 0; DIFFERENCES && n < SIZE; n++) means[n] = means[n + CHANNELS] - means[n];
    for (size_t s = 0; s < SUPPORT; s++) {
        double distance = 0;
        for (size_t n = 0; n < SIZE; n++) {
            const double difference = means[n] - support[s * SIZE + n];
            distance += difference * difference;
        }
        const double value = exp(-kernel_rate[0] * distance / SIZE);
        for (size_t k = 0; k < net_head_output_size; k++) sums[k] += value * coefficients[s * net_head_output_size + k];
    }
    for (size_t k = 0; k < net_head_output_size; k++) outputs[k] += (float)sums[k];
}
#endif

#ifdef POOL_CONCAT /* the last state, the mean and the largest values, one after the other */
#define POOL_LAST
#define POOL_MEAN
#define POOL_MAX
#endif

/* The states of all steps as one vector: that of the last step, their mean, their largest values or a weighted mean. */
static void pool(const float *y, size_t steps, float *pooled, float *shares) {
    const size_t size = net_encoder_output_size;
#ifdef POOL_LAST
    last_states(y, steps, size, DIRECTIONS, pooled);
    pooled += size;
#endif
#if defined POOL_MEAN || defined POOL_ATTENTION
    double sum = 0;
    for (size_t t = 0; t < steps; t++) shares[t] = 1.0f / (float)steps;
#ifdef POOL_ATTENTION
    float largest = -INFINITY;
    net_attention_run(&attention, y, shares, steps);
    for (size_t t = 0; t < steps; t++)
        if (shares[t] > largest) largest = shares[t];
    for (size_t t = 0; t < steps; t++) sum += exp(shares[t] - largest);
    for (size_t t = 0; t < steps; t++) shares[t] = (float)(exp(shares[t] - largest) / sum);
#endif
    for (size_t j = 0; j < size; j++) {
        sum = 0;
        for (size_t t = 0; t < steps; t++) sum += shares[t] * y[t * size + j];
        pooled[j] = (float)sum;
    }
    pooled += size;
#endif
#ifdef POOL_MAX
    peaks_of(y, steps, size, pooled);
#endif
    (void)shares;
}

/* Prints the most probable label and its probability, or the numbers in units of the data. */
static void print_answer(const float *scores) {
#ifdef LABELLED
    const int best = largest(scores, net_head_output_size);
    double sum = 0;
    for (int k = 0; k < net_head_output_size; k++) sum += exp(scores[k] - scores[best]);
    printf("%s\t%.4f", label_names[best], 1 / sum);
#else
    for (int k = 0; k < net_head_output_size; k++)
        printf("%s%.6g", k ? "\t" : "", scores[k] * number_deviations[k] + number_means[k]);
#endif
}

static void answer(const row *r) {
    size_t steps;
    float *x = read_steps(r, &steps), pooled[net_head_input_size], outputs[net_head_output_size];
    float *y = (float *)resized(NULL, steps * net_encoder_output_size * sizeof *y);
    float *shares = (float *)resized(NULL, steps * sizeof *shares); /* the weights of the steps in the answer */
    net_encoder_reset(&encoder);
    if (net_encoder_run(&encoder, x, y, steps)) fail(r, TOO_LONG);
    pool(y, steps, pooled, shares);
    net_head_step(&head, pooled, outputs);
#ifdef LINEAR
    add_linear(r, outputs);
#endif
#ifdef STEPS
    add_steps(x, steps, outputs);
#endif
#ifdef SUPPORT
    add_kernel(x, steps, outputs);
#endif
    print_answer(outputs);
#ifdef POOL_ATTENTION
    for (size_t t = 0; t < steps; t++) printf("%c%ld:%.3f", t ? ' ' : '\t', (long)t + 1, shares[t]);
#endif
    putchar('\n');
    free(x);
    free(y);
    free(shares);
}
