/* A unit of a text: a word or a character. */
typedef struct {
    const char *text;
    int length; /* bytes */
} unit;

typedef struct {
    unit *items;
    int count, room;
} units;

static void add(units *list, const char *text, const char *end) {
    if (list->count == list->room) {
        list->room = 2 * list->room + 64;
        list->items = (unit *)resized(list->items, (size_t)list->room * sizeof *list->items);
    }
    list->items[list->count].text = text;
    list->items[list->count++].length = (int)(end - text);
}

/* The code point at `*at`; moves `*at` to the next one. */
static long decoded(const char **at, const char *end) {
    const unsigned char first = (unsigned char)**at;
    int more = first < 0xC0 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    long c = more ? first & (0x3F >> more) : first;
    for ((*at)++; more && *at < end; more--, (*at)++) c = c << 6 | ((unsigned char)**at & 0x3F);
    return c;
}

/* Whether a code point is in one of `count` ranges, which ascend. */
static int in_ranges(const long ranges[][2], size_t count, long c) {
    size_t low = 0;
    while (count) { /* ranges[low + count / 2] halves the rest */
        const size_t half = count / 2;
        if (ranges[low + half][1] < c) {
            low += half + 1;
            count -= half + 1;
        } else {
            if (ranges[low + half][0] <= c) return 1;
            count = half;
        }
    }
    return 0;
}
#define IN(ranges, c) in_ranges(ranges, sizeof ranges / sizeof *ranges, c)

/* The number of a text in a table, whose entries ascend byte by byte; UNKNOWN if it has none. */
static int number_of(const entry *table, size_t count, const char *text, int length) {
    size_t low = 0;
    while (count) {
        const size_t half = count / 2;
        const entry *middle = table + low + half;
        int order = memcmp(middle->text, text, (size_t)(middle->length < length ? middle->length : length));
        if (!order) order = middle->length - length;
        if (!order) return middle->number;
        if (order < 0) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return UNKNOWN;
}
#define NUMBER_OF(table, text, length) number_of(table, sizeof table / sizeof *table, text, length)

static int number_of_unit(unit u) { return NUMBER_OF(unit_table, u.text, u.length); }

#if KNOWN
static int is_known(const char *text, const char *end) {
    return NUMBER_OF(unit_table, text, (int)(end - text)) != UNKNOWN;
}

#endif
#if TOKENISED
/* The start of the last character of a text that is not empty. */
static const char *last_character(const char *text, const char *end) {
    do end--;
    while (end > text && ((unsigned char)*end & 0xC0) == 0x80);
    return end;
}

/* Whether a text is an abbreviation such as "e.g.". */
static int is_abbreviation(const char *text, const char *end) {
    int letters = 0;
    for (; text < end; letters++) {
        if (!IN(word_characters, decoded(&text, end)) || text == end || *text++ != '.') return 0;
    }
    return letters > 1;
}

/* Where a clitic such as "'s" or "n't" begins; NULL if the word has none that is known. */
static const char *clitic(const char *text, const char *end) {
    const char *at = text, *before = text, *next = text;
    while (at < end) {
        const long c = decoded(&next, end);
        if (c == '\'' || c == 0x2019) break;
        if (!IN(word_characters, c)) return NULL;
        before = at;
        at = next;
    }
    if (at == text || at == end) return NULL;
    if (before > text && (*before == 'n' || *before == 'N') && end - next == 1 && (*next == 't' || *next == 'T'))
        at = before;
    else
        for (int k = 0; k == 0 || next < end; k++)
            if (k == 2 || next == end || !IN(word_characters, decoded(&next, end))) return NULL;
    return is_known(at, end) ? at : NULL;
}

/* Adds an unknown unit, its punctuation marks and its clitic, each as a unit of its own. */
static void add_parts(units *list, unit u) {
    static units behind;
    const char *text = u.text, *end = u.text + u.length;
    behind.count = 0;
    while (text < end && !is_known(text, end) && !is_abbreviation(text, end)) {
        const char *second = text, *last = last_character(text, end), *after = last, *start;
        const long first_mark = decoded(&second, end), last_mark = decoded(&after, end);
        if (second < end && IN(opening_marks, first_mark)) {
            add(list, text, second);
            text = second;
        } else if (text < last && IN(closing_marks, last_mark)) {
            const size_t size = (size_t)(end - last);
            for (start = last; start - text >= end - last && !memcmp(start - size, last, size);) start -= size;
            if (start == text || !(is_known(start, end) || last_mark == '.')) start = last;
            add(&behind, start, end);
            end = start;
        } else if ((start = clitic(text, end)) != NULL) {
            add(&behind, start, end);
            end = start;
        } else {
            break;
        }
    }
    if (text < end) add(list, text, end);
    while (behind.count) {
        const unit part = behind.items[--behind.count];
        add(list, part.text, part.text + part.length);
    }
}

#endif
#if SEGMENTED
static int is_cjk(long c) {
    return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x3400 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF);
}

/* Whether a text is Chinese or Japanese without blanks between words. */
static int lacks_blanks(const units *list) {
    int cjk = 0, longest = 0;
    for (int k = 0; k < list->count; k++) {
        const char *at = list->items[k].text, *end = at + list->items[k].length;
        int length = 0, found = 0;
        for (; at < end; length++) found |= is_cjk(decoded(&at, end));
        cjk += found;
        if (found && length > longest && number_of_unit(list->items[k]) == UNKNOWN) longest = length;
    }
    return longest > 1 && (cjk == 1 || longest > LONGEST_CJK_UNIT);
}

/* Adds each Chinese or Japanese character as a unit, and other characters in runs. */
static void add_characters(units *list, unit u) {
    const char *at = u.text, *run = u.text, *end = u.text + u.length;
    while (at < end) {
        const char *start = at;
        if (!is_cjk(decoded(&at, end))) continue;
        if (run < start) add(list, run, start);
        add(list, start, at);
        run = at;
    }
    if (run < end) add(list, run, end);
}

#endif
/* Splits a text into units; a blank text has none. */
static void split(const char *text, const char *end, units *list) {
    list->count = 0;
#if KEEPS_SPACES
    const char *at = text;
    while (at < end && IN(spaces, decoded(&at, end)))
        if (at == end) return;
#endif
#if BYTES
    for (; text < end; text++) add(list, text, text + 1);
#endif
#if CHARACTERS
    while (text < end) {
        const char *start = text;
#if KEEPS_SPACES
        decoded(&text, end);
#else
        if (IN(spaces, decoded(&text, end)) && !is_known(start, text)) continue;
#endif
        add(list, start, text);
    }
#endif
#if TOKENS
    for (const char *start = text; text < end; start = text) {
        const char *next = text;
        while (next < end && !IN(spaces, decoded(&next, end))) text = next;
        if (start < text) add(list, start, text);
        if (text < end) decoded(&text, end);
    }
#endif
#if WORDS
    while (text < end) {
        const char *start = text, *next;
        const long c = decoded(&text, end);
        if (c == '<') { /* a tag such as <unk> */
            const char *at = text;
            for (next = text; next < end && IN(word_characters, decoded(&next, end));) at = next;
            if (at > text && at < end && *at == '>') text = at + 1;
        } else if (IN(word_characters, c)) { /* with apostrophes inside: don't */
            for (next = text; next < end;) {
                const long inner = decoded(&next, end);
                if (inner == '\'' || inner == 0x2019) {
                    if (next == end || !IN(word_characters, decoded(&next, end))) break;
                } else if (!IN(word_characters, inner)) {
                    break;
                }
                text = next;
            }
        } else if (IN(spaces, c)) {
            continue;
        }
        add(list, start, text);
    }
#endif
#if TOKENISED
    units parts = {NULL, 0, 0};
    for (int k = 0; k < list->count; k++) add_parts(&parts, list->items[k]);
    free(list->items);
    *list = parts;
#endif
#if SEGMENTED
    if (lacks_blanks(list)) {
        units characters = {NULL, 0, 0};
        for (int k = 0; k < list->count; k++) {
            const unit u = list->items[k];
            if (number_of_unit(u) == UNKNOWN)
                add_characters(&characters, u);
            else
                add(&characters, u.text, u.text + u.length);
        }
        free(list->items);
        *list = characters;
    }
#endif
}
