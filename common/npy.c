/* The .npy header: a magic number, a version, a length and a Python dictionary written as text. See npy.h. */
#include "npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define MAX_DIMENSIONS 64

bool npy_has_magic(const uint8_t *bytes, size_t size)
{
    return size >= MAGIC_SIZE && memcmp(bytes, MAGIC, MAGIC_SIZE) == 0;
}

/* ---- the dictionary ---- */

struct cursor {
    const char *at, *end;
    bool integers; /* are welcome */
};

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* Takes the character if it comes next. */
static bool take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    skip_space(c);
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

/* A quoted text without escapes, which no key or plain dtype needs. */
static bool take_text(struct cursor *c, char *text, size_t capacity)
{
    char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : '\0';
    if (!quote)
        return false;
    size_t length = 0;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' || length + 1 == capacity)
            return false;
        text[length++] = *c->at++;
    }
    text[length] = '\0';
    return take(c, quote);
}

static bool take_number(struct cursor *c, uint64_t *number)
{
    skip_space(c);
    if (c->at == c->end || *c->at < '0' || *c->at > '9')
        return false;
    uint64_t value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        uint64_t digit = (uint64_t)(*c->at++ - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (c->at < c->end && *c->at == 'L') /* as Python 2 wrote long integers */
        c->at++;
    *number = value;
    return true;
}

/* (), (3,), (3, 4) */
static bool take_shape(struct cursor *c, struct npy *npy, struct failure *failure)
{
    if (!take(c, '('))
        return fail(failure, "its header has a shape that is not a tuple");
    bool is_empty = false, overflows = false;
    uint64_t product = 1, first = 1;
    unsigned dimensions = 0, longer = 0;
    while (!take(c, ')')) {
        uint64_t length;
        if (!take_number(c, &length))
            return fail(failure, "its header has a shape with entries that are not whole numbers");
        if (++dimensions > MAX_DIMENSIONS)
            return fail(failure, "its shape has more than %d dimensions", MAX_DIMENSIONS);
        if (dimensions == 1)
            first = length;
        longer += length > 1;
        if (length == 0)
            is_empty = true;
        else if (product > UINT64_MAX / length)
            overflows = true;
        else
            product *= length;
        if (!take(c, ',')) {
            if (!take(c, ')'))
                return fail(failure, "its header has a shape that does not end");
            if (dimensions == 1)
                return fail(failure, "its header has a shape that is not a tuple");
            break;
        }
    }
    if (overflows && !is_empty)
        return fail(failure, "its shape has more elements than can be counted");
    npy->dimensions = dimensions;
    npy->has_one_order = is_empty || longer <= 1;
    npy->first = first;
    npy->count = is_empty ? 0 : product;
    return true;
}

static bool is_big_endian_machine(void)
{
    const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first == 0;
}

/* f2, f4, f8; b1; i and u with 1, 2, 4 or 8. */
static bool find_type(const char *kind, bool integers, struct npy *npy)
{
    if (strlen(kind) != 2 || !strchr("1248", kind[1]))
        return false;
    npy->size = (unsigned)(kind[1] - '0');
    npy->is_signed = *kind == 'i';
    npy->type = *kind == 'f' ? (enum npy_type)npy->size : NPY_INTEGER;
    if (*kind == 'f')
        return npy->size > 1;
    return integers && (*kind == 'i' || *kind == 'u' || (*kind == 'b' && npy->size == 1));
}

static bool take_dtype(struct cursor *c, struct npy *npy, struct failure *failure)
{
    if (take(c, '['))
        return fail(failure, "it holds records; only arrays of numbers can be read");
    char text[32] = "";
    if (!take_text(c, text, sizeof text))
        return fail(failure, "its header has a dtype that cannot be read");
    const char *kind = text;
    npy->big_endian = is_big_endian_machine();
    if (*kind == '<' || *kind == '>')
        npy->big_endian = *kind++ == '>';
    else if (*kind == '=' || (*kind == '|' && kind[1] && kind[2] == '1')) /* one byte has no order */
        kind++;
    return find_type(kind, c->integers, npy) ||
           fail(failure,
                "it holds dtype '%s'; only f2, f4 and f8 (float16, float32, float64)%s can be read: convert "
                "with array.astype('float32')",
                text, c->integers ? ", integers and booleans" : "");
}

static bool take_entry(struct cursor *c, struct npy *npy, bool *fortran, unsigned *seen, struct failure *failure)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    char key[32];
    if (!take_text(c, key, sizeof key) || !take(c, ':'))
        return fail(failure, "its header is not a dictionary of descr, fortran_order and shape");
    unsigned which = strcmp(key, "descr") == 0           ? DESCR
                     : strcmp(key, "fortran_order") == 0 ? ORDER
                     : strcmp(key, "shape") == 0         ? SHAPE
                                                         : 0;
    if (which == 0)
        return fail(failure, "its header has the unknown key '%s'", key);
    if (*seen & which)
        return fail(failure, "its header has the key '%s' twice", key);
    *seen |= which;
    if (which == DESCR)
        return take_dtype(c, npy, failure);
    if (which == SHAPE)
        return take_shape(c, npy, failure);
    *fortran = take_word(c, "True");
    return *fortran || take_word(c, "False") ||
           fail(failure, "its header has a fortran_order that is neither True nor False");
}

static bool parse_dictionary(struct cursor *c, struct npy *npy, struct failure *failure)
{
    bool fortran = false;
    unsigned seen = 0;
    if (!take(c, '{'))
        return fail(failure, "its header is not a dictionary");
    while (!take(c, '}')) {
        if (!take_entry(c, npy, &fortran, &seen, failure))
            return false;
        if (!take(c, ',')) {
            if (!take(c, '}'))
                return fail(failure, "its header does not end");
            break;
        }
    }
    skip_space(c);
    if (c->at != c->end)
        return fail(failure, "its header goes on after the dictionary");
    if (seen != 7)
        return fail(failure, "its header lacks descr, fortran_order or shape");
    if (fortran && !npy->has_one_order)
        return fail(failure, "it is in Fortran order, and only C order can be read: save "
                             "numpy.ascontiguousarray(array)");
    return true;
}

/* ---- the file ---- */

static bool parse(const uint8_t *bytes, size_t size, bool integers, struct npy *npy, struct failure *failure)
{
    if (!npy_has_magic(bytes, size))
        return fail(failure, "it is not a .npy file: it does not begin with \\x93NUMPY");
    if (size < MAGIC_SIZE + 2)
        return fail(failure, "it ends within its header");
    unsigned version = bytes[MAGIC_SIZE];
    if (version < 1 || version > 3 || bytes[MAGIC_SIZE + 1] != 0)
        return fail(failure, "it is of .npy version %u.%u; 1.0, 2.0 and 3.0 can be read", version,
                    (unsigned)bytes[MAGIC_SIZE + 1]);

    size_t length_size = version == 1 ? 2 : 4;
    size_t start = MAGIC_SIZE + 2 + length_size;
    if (size < start)
        return fail(failure, "it ends within its header");
    size_t length = 0;
    for (size_t i = length_size; i-- > 0;)
        length = length << 8 | bytes[MAGIC_SIZE + 2 + i];
    if (length > size - start)
        return fail(failure, "it ends within its header");

    struct npy found = {.type = NPY_F4, .size = 4, .data_offset = start + length};
    struct cursor cursor = {(const char *)bytes + start, (const char *)bytes + start + length, integers};
    if (!parse_dictionary(&cursor, &found, failure))
        return false;
    size_t data_size = size - found.data_offset;
    if (found.count > data_size / found.size)
        return fail(failure,
                    "it is truncated: its header gives %" PRIu64 " elements of %u bytes, but %zu bytes "
                    "follow",
                    found.count, found.size, data_size);
    if (found.count * found.size != data_size)
        return fail(failure, "it has %zu bytes after its %" PRIu64 " elements; a file must hold one array",
                    data_size - (size_t)found.count * found.size, found.count);
    *npy = found;
    return true;
}

bool npy_parse(const uint8_t *bytes, size_t size, struct npy *npy, struct failure *failure)
{
    return parse(bytes, size, false, npy, failure);
}

bool npy_parse_any(const uint8_t *bytes, size_t size, struct npy *npy, struct failure *failure)
{
    return parse(bytes, size, true, npy, failure);
}

size_t npy_write_header(enum npy_type type, uint64_t count, char header[NPY_HEADER_MAX])
{
    char dictionary[NPY_HEADER_MAX];
    int used = snprintf(dictionary, sizeof dictionary,
                        "{'descr': '<f%d', 'fortran_order': False, 'shape': (%" PRIu64 ",), }", (int)type, count);
    const size_t start = MAGIC_SIZE + 4;
    /* Spaces and a newline, so that the data begin on a multiple of 64. */
    size_t total = (start + (size_t)used + 1 + 63) / 64 * 64;
    memset(header, ' ', total);
    memcpy(header, MAGIC "\x01\x00", MAGIC_SIZE + 2);
    size_t length = total - start;
    header[MAGIC_SIZE + 2] = (char)(length & 0xff);
    header[MAGIC_SIZE + 3] = (char)(length >> 8);
    memcpy(header + start, dictionary, (size_t)used);
    header[total - 1] = '\n';
    return total;
}
