/* Resizes memory, and exits if there is too little. */
static void *resized(void *memory, size_t bytes) {
    void *result = realloc(memory, bytes);
    if (!result) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return result;
}

typedef struct {
    char *text; /* ends with a zero byte */
    size_t length, room;
    long number; /* from 1 */
} line;

/* Reads the next line without its end; 0 if there is none. */
static int next_line(line *l) {
    int c = getchar();
    if (c == EOF) return 0;
    for (l->length = 0;; c = getchar()) {
        if (l->length == l->room) l->text = (char *)resized(l->text, l->room = 2 * l->room + 256);
        if (c == EOF || c == '\n' || c == '\r') break;
        l->text[l->length++] = (char)c;
    }
    if (c == '\r' && (c = getchar()) != '\n') ungetc(c, stdin);
    if (l->number++ == 0 && l->length >= 3 && !memcmp(l->text, "\xEF\xBB\xBF", 3)) /* the mark of UTF-8 */
        memmove(l->text, l->text + 3, l->length -= 3);
    l->text[l->length] = 0;
    return 1;
}

static void fail(const line *l, const char *message) {
    fprintf(stderr, "line %ld: %s\n", l->number, message);
    exit(1);
}
