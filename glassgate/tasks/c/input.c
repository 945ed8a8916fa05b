/* Resizes memory, and exits if there is too little. */
static void *resized(void *memory, size_t bytes) {
    void *result = realloc(memory, bytes);
    if (!result) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return result;
}

/* The numbers of a line. */
typedef struct {
    double *items;
    size_t count, room;
    long line; /* from 1 */
} row;

static void fail(const row *r, const char *message) {
    fprintf(stderr, "line %ld: %s\n", r->line, message);
    exit(1);
}

/* Reads the numbers of the next line, separated by blanks; 0 if there is none. */
static int next_row(row *r) {
    char word[64], *end;
    int c = getchar();
    if (c == EOF) return 0;
    r->line++;
    for (r->count = 0; c != EOF && c != '\n';) {
        size_t length = 0;
        for (; c == ' ' || c == '\t' || c == '\r'; c = getchar()) continue;
        for (; c != EOF && !strchr(" \t\r\n", c) && length < sizeof word - 1; c = getchar()) word[length++] = (char)c;
        if (length == 0) continue;
        word[length] = 0;
        if (r->count == r->room) r->items = (double *)resized(r->items, (r->room = 2 * r->room + 64) * sizeof(double));
        r->items[r->count++] = strtod(word, &end);
        if (*end || c > 127) fail(r, "expected numbers separated by blanks");
    }
    return 1;
}

/* The number at a position of a row as an index below `size`. */
static inline int index_at(const row *r, size_t at, int size) {
    if (at >= r->count) fail(r, "expected more numbers");
    if (!(r->items[at] >= 0 && r->items[at] < size && r->items[at] == (int)r->items[at]))
        fail(r, "expected an index into a table of the run");
    return (int)r->items[at];
}

/* The index of the largest of some numbers. */
static inline int largest(const float *numbers, int count) {
    int best = 0;
    for (int k = 1; k < count; k++)
        if (numbers[k] > numbers[best]) best = k;
    return best;
}

/* The largest value of each state at all steps. */
static inline void peaks_of(const float *states, size_t steps, size_t size, float *peaks) {
    memcpy(peaks, states, size * sizeof *peaks);
    for (size_t k = size; k < steps * size; k++)
        if (states[k] > peaks[k % size]) peaks[k % size] = states[k];
}

/* The last states of each direction. The reverse direction ends at the first step. */
static inline void last_states(const float *states, size_t steps, size_t size, size_t directions, float *last) {
    const size_t half = size / directions;
    memcpy(last, states + (steps - 1) * size, half * sizeof *last);
    if (directions == 2) memcpy(last + half, states + half, half * sizeof *last);
}

/* Prints the prediction for the numbers of a line. */
static void answer(const row *r);

int main(int argc, char **argv) {
    row r = {NULL, 0, 0, 0};
    start(argc, argv);
    while (next_row(&r))
        if (r.count) answer(&r);
    free(r.items);
    return 0;
}
