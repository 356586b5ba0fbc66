/*
 * The inner loops that every span goes through: undoing a packed column, folding a batch, joining columns to one code.
 *
 * Each function does what the numpy code beside its caller does, to the bit (tests/native compare them), in one pass
 * instead of many. No function keeps anything, allocates more than its scratch, or reads beyond the lengths it is given.
 * Little-endian machines only, as the format; the loader checks that.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#if defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx2", "default"))) /* the loader of the system picks at run time */
#else
#define WIDE
#endif

/* Told by the loader: it refuses a library that speaks another revision. */
EXPORT int64_t spanlite_revision(void) { return 6; }

/* ---- columns: byte planes of width 1, 2, 4 or 8, plane after plane ---- */

#define EACH_WIDTH(width, rows, planes, RAW, DO)                                                                     \
  do {                                                                                                               \
    const uint8_t *a = (planes), *b = a + (rows), *c = b + (rows), *d = c + (rows);                                  \
    if ((width) == 1) {                                                                                              \
      for (int64_t i = 0; i < (rows); i++) {                                                                         \
        RAW r = a[i];                                                                                                \
        DO                                                                                                           \
      }                                                                                                              \
    } else if ((width) == 2) {                                                                                       \
      for (int64_t i = 0; i < (rows); i++) {                                                                         \
        RAW r = (RAW)(a[i] | (uint32_t)b[i] << 8);                                                                   \
        DO                                                                                                           \
      }                                                                                                              \
    } else if ((width) == 4) {                                                                                       \
      for (int64_t i = 0; i < (rows); i++) {                                                                         \
        RAW r = (RAW)(a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24);                     \
        DO                                                                                                           \
      }                                                                                                              \
    } else {                                                                                                         \
      const uint8_t *e = d + (rows), *f = e + (rows), *g = f + (rows), *h = g + (rows);                              \
      for (int64_t i = 0; i < (rows); i++) {                                                                         \
        RAW r = (RAW)(a[i] | (uint64_t)b[i] << 8 | (uint64_t)c[i] << 16 | (uint64_t)d[i] << 24 |                     \
                      (uint64_t)e[i] << 32 | (uint64_t)f[i] << 40 | (uint64_t)g[i] << 48 | (uint64_t)h[i] << 56);    \
        DO                                                                                                           \
      }                                                                                                              \
    }                                                                                                                \
  } while (0)

#define UNZIGZAG(r) (((r) >> 1) ^ (0 - ((r) & 1)))

/* out[i] = base + value i, modulo 2^64. */
EXPORT WIDE void spanlite_unpack(const uint8_t *planes, int64_t width, int64_t rows, uint64_t base, uint64_t *out) {
  EACH_WIDTH(width, rows, planes, uint64_t, out[i] = base + r;);
}

/* out[i] = base + value i as int32; returns the largest value, so that the caller can check base + that before use. */
EXPORT WIDE uint64_t spanlite_unpack_index(const uint8_t *planes, int64_t width, int64_t rows, uint32_t base,
                                           uint32_t *out) {
  uint64_t most = 0;
  if (width <= 2) {
    uint32_t high = 0;
    EACH_WIDTH(width, rows, planes, uint32_t, high = r > high ? r : high; out[i] = base + r;);
    return high;
  }
  EACH_WIDTH(width, rows, planes, uint64_t, most = r > most ? r : most; out[i] = base + (uint32_t)r;);
  return most;
}

/* out[i] = value i with its sign back. */
EXPORT WIDE void spanlite_unzigzag(const uint8_t *planes, int64_t width, int64_t rows, uint64_t *out) {
  EACH_WIDTH(width, rows, planes, uint64_t, out[i] = UNZIGZAG(r););
}

/* out[i] = first + values 0 … i with their signs back. */
EXPORT void spanlite_unzigzag_sums(const uint8_t *planes, int64_t width, int64_t rows, uint64_t first, uint64_t *out) {
  uint64_t sum = first;
  EACH_WIDTH(width, rows, planes, uint64_t, sum += UNZIGZAG(r); out[i] = sum;);
}

/* Starts of spans in place: gap → first + gaps and durations before; a span whose kind is `still` lets no time pass. */
EXPORT void spanlite_starts(uint64_t *gap, const uint64_t *duration, const uint8_t *kind, uint8_t still, int64_t rows,
                            uint64_t first) {
  uint64_t end = first;
  for (int64_t i = 0; i < rows; i++) {
    uint64_t start = end + gap[i];
    gap[i] = start;
    end = start + (kind[i] == still ? 0 : duration[i]);
  }
}

/*
 * A table of records, its columns packed like those above; a width of 0 is one value, the base. Of each field: where it
 * lies in a record, its size (4 or 8 bytes), and the least and greatest value that it holds, which 8-byte fields ignore.
 * Returns the first field with a value beyond those, -1 if there is none.
 */
EXPORT int64_t spanlite_table(const uint8_t *const *planes, const int64_t *width, const int64_t *base,
                              const int64_t *offset, const int64_t *size, const int64_t *least, const int64_t *most,
                              int64_t fields, int64_t rows, uint8_t *table, int64_t stride) {
  for (int64_t f = 0; f < fields; f++) {
    uint8_t *to = table + offset[f];
    int64_t wide = size[f] == 8, lowest = 0, highest = 0; /* 0 fits any field, so it changes no verdict */
    for (int64_t i = 0; i < rows; i++, to += stride) {
      uint64_t raw = 0;
      for (int64_t k = 0; k < width[f]; k++) raw |= (uint64_t)planes[f][k * rows + i] << 8 * k;
      raw += (uint64_t)base[f];
      int64_t value = (int64_t)raw;
      lowest = value < lowest ? value : lowest;
      highest = value > highest ? value : highest;
      memcpy(to, &raw, wide ? 8 : 4);
    }
    if (!wide && (lowest < least[f] || highest > most[f])) return f;
  }
  return -1;
}

/*
 * Fields at the top level of a protobuf message, counted up to `most` + 1; stops where the message is malformed, which
 * is for the parser to say. -1 - the position of a field with another wire type than 0, 1, 2 and 5.
 */
EXPORT int64_t spanlite_count_fields(const uint8_t *data, int64_t length, int64_t most) {
  int64_t at = 0, fields = 0;
  while (at < length && fields <= most) {
    fields++;
    uint64_t number[2]; /* the tag, then a varint or a length */
    int64_t wire = 0;
    for (int which = 0; which < 2; which++) {
      uint64_t value = 0;
      int shift = 0, ended = 0;
      for (; shift < 70 && !ended && at < length; shift += 7) {
        uint8_t byte = data[at++];
        if (shift < 63 || byte < 2)
          value |= (uint64_t)(byte & 0x7F) << shift;
        else if (byte & 0x7F)
          value |= UINT64_MAX << 3; /* beyond 64 bits: as large as can be, the wire type kept */
        ended = byte < 0x80;
      }
      if (!ended) at = length; /* cut off or too long: the parser stops here, too */
      number[which] = value;
      if (which == 0) {
        wire = (int64_t)(value & 7);
        if (wire != 0 && wire != 2) break;
      }
    }
    if (wire == 2) {
      if (number[1] > (uint64_t)(length - at)) return fields;
      at += (int64_t)number[1];
    } else if (wire == 1 || wire == 5) {
      at += wire == 1 ? 8 : 4;
    } else if (wire != 0) {
      return -1 - at;
    }
  }
  return fields;
}

/* out[i] = values[index[i]], of 4 or 8 bytes each. The caller knows that every index is in range. */
EXPORT void spanlite_take(const void *values, int64_t size, const int32_t *index, int64_t rows, void *out) {
  if (size == 4) {
    const uint32_t *from = values;
    uint32_t *to = out;
    for (int64_t i = 0; i < rows; i++) to[i] = from[index[i]];
  } else {
    const uint64_t *from = values;
    uint64_t *to = out;
    for (int64_t i = 0; i < rows; i++) to[i] = from[index[i]];
  }
}

/*
 * What a batch claims: sums of duration · weight, weight and bytes · weight, and the first and last start of all rows.
 * Sums are floating point, so none can overflow. Bytes of rows whose kind is `gauge` are a value's bits: they are left out.
 */
EXPORT void spanlite_claims(const int64_t *start, const int64_t *duration, const int64_t *bytes, const uint32_t *weight,
                            const uint8_t *kind, uint8_t gauge, int64_t rows, double *sums, int64_t *starts) {
  double time = 0, count = 0, moved = 0;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (int64_t i = 0; i < rows; i++) {
    double each = weight[i];
    time += (double)duration[i] * each;
    count += each;
    moved += kind[i] == gauge ? 0 : (double)bytes[i] * each;
    first = start[i] < first ? start[i] : first;
    last = start[i] > last ? start[i] : last;
  }
  sums[0] = time, sums[1] = count, sums[2] = moved;
  starts[0] = first, starts[1] = last;
}

/* ---- folding ---- */

/* Columns of a batch; see pipeline.fold. */
struct batch {
  int64_t rows;
  const int64_t *start, *duration;
  const uint8_t *kind;
  const int32_t *config, *stage, *place;
  const int64_t *bytes;    /* of a span, or NULL: nothing was moved */
  const int64_t *bits;     /* the same column, never NULL: a gauge's value */
  const uint32_t *weight;  /* or NULL: each span stands for itself */
  const int32_t *gpu;      /* of each place, 0 … gpus - 1 */
  int64_t kinds, range, gauge; /* kinds from `kinds` on and `range` are left out; `gauge` has bits for bytes */
  int64_t configs, places, stages, gpus;
  int64_t window_ns, window; /* width; number of the earliest window */
};

/* What the rows of a batch that are folded look like as a whole. */
struct extent {
  int64_t first_start, last_start;
  int64_t weighted, moves; /* whether any weight is not 1, any bytes that add up not 0 */
};

/* Whether rows of each kind are folded. */
struct folded {
  uint8_t kind[256];
};

static struct folded folded_kinds(const struct batch *b) {
  struct folded folded = {{0}};
  for (int64_t kind = 0; kind < b->kinds && kind < 256; kind++) folded.kind[kind] = kind != b->range;
  return folded;
}

/*
 * Looks through a batch, weight and bytes included; `used` of each of the `stages` is set to 1 where it occurs. Returns
 * the first row with an index that points nowhere, -1 if there is none: only then may the other functions be called.
 */
EXPORT int64_t spanlite_extent(const struct batch *b, uint8_t *used, struct extent *found) {
  int64_t first = INT64_MAX, last = INT64_MIN, moves = 0;
  uint32_t weighted = 0;
  const struct folded folded = folded_kinds(b);
  const uint8_t *kind = b->kind, gauge = (uint8_t)b->gauge;
  for (int64_t i = 0; i < b->rows; i++) {
    if (!folded.kind[kind[i]]) continue;
    if ((uint32_t)b->config[i] >= (uint64_t)b->configs || (uint32_t)b->place[i] >= (uint64_t)b->places ||
        (uint32_t)b->stage[i] >= (uint64_t)b->stages)
      return i;
    int64_t start = b->start[i];
    first = start < first ? start : first;
    last = start > last ? start : last;
    used[b->stage[i]] = 1;
    weighted |= b->weight[i] ^ 1;
    moves |= kind[i] == gauge ? 0 : b->bytes[i];
  }
  *found = (struct extent){first, last, weighted != 0, moves != 0};
  return -1;
}

static int64_t window_of(int64_t start, int64_t width) {
  return start / width - (start % width < 0);
}

/*
 * Groups the rows of a batch that are folded by (window, kind, config, stage, gpu).
 *
 * stage_place: place of each stage among those in use; stages counts these. number: zeroed scratch of
 * windows · kinds · configs · stages · gpus entries. group: of each row, -1 for what is left out. code: which entry
 * each group is, ascending. Returns how many groups.
 */
EXPORT int64_t spanlite_groups(const struct batch *b, const int32_t *stage_place, int32_t *number, int64_t entries,
                               int32_t *group, int64_t *code) {
  int64_t window = 0, first = 1, last = 0; /* the window of the row before, and its edges: none yet */
  const struct folded folded = folded_kinds(b);
  const uint8_t *kind = b->kind;
  for (int64_t i = 0; i < b->rows; i++) {
    if (!folded.kind[kind[i]]) {
      group[i] = -1;
      continue;
    }
    int64_t start = b->start[i];
    if (start < first || start > last) { /* another window: seldom, as spans come nearly in order */
      window = window_of(start, b->window_ns);
      int64_t into = start % b->window_ns;
      into += into < 0 ? b->window_ns : 0;
      first = start < INT64_MIN + into ? INT64_MIN : start - into;
      int64_t rest = b->window_ns - 1 - into;
      last = start > INT64_MAX - rest ? INT64_MAX : start + rest;
    }
    int64_t at = window - b->window;
    at = at * b->kinds + kind[i];
    at = at * b->configs + b->config[i];
    at = at * b->stages + stage_place[b->stage[i]];
    at = at * b->gpus + b->gpu[b->place[i]];
    number[at] = 1;
    group[i] = (int32_t)at;
  }
  int64_t groups = 0;
  for (int64_t at = 0; at < entries; at++) {
    if (number[at]) {
      code[groups] = at;
      number[at] = (int32_t)groups++;
    }
  }
  for (int64_t i = 0; i < b->rows; i++)
    if (group[i] >= 0) group[i] = number[group[i]];
  return groups;
}

static uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/* What is known of a group while its spans are added; `row` is its exemplar. */
struct sums {
  int64_t count, spans, sum_ns, min_ns, max_ns, bytes, row;
  uint64_t span_id;
};

/* A row's id; of gauges the bits of the value. */
static uint64_t id_of(const struct batch *b, int64_t i, uint64_t session, uint64_t first_row) {
  return b->kind[i] == b->gauge ? (uint64_t)b->bits[i] : mix64((first_row + (uint64_t)i) ^ session);
}

/* Which of two equally long rows is the exemplar: the earlier, or the later where they took no time; then by id. */
static int comes_first(const struct batch *b, int64_t i, int64_t other, uint64_t session, uint64_t first_row) {
  int64_t start = b->start[i], before = b->start[other];
  if (start != before) return b->duration[i] > 0 ? start < before : start > before;
  return id_of(b, i, session, first_row) < id_of(b, other, session, first_row);
}

/*
 * Sums of each group, and the bucket of each row that is folded in `bucket` (position: bucket of the first value of each
 * cell, bound: that bucket's last value; see contract.histogram). `sums` is zeroed. range: lowest and highest bucket.
 */
EXPORT void spanlite_sums(const struct batch *b, const int32_t *group, uint64_t session, uint64_t first_row,
                          const int32_t *position, const int64_t *bound, int64_t cell_shift, int32_t lowest_index,
                          struct sums *sums, int32_t *bucket, int32_t *range) {
  int32_t least = INT32_MAX, most = INT32_MIN;
  const uint8_t *kind = b->kind, gauge = (uint8_t)b->gauge;
  const int64_t *bytes = b->bytes;
  for (int64_t i = 0; i < b->rows; i++) {
    if (group[i] < 0) continue;
    struct sums *s = sums + group[i];
    int64_t duration = b->duration[i];
    uint64_t weight = b->weight ? b->weight[i] : 1;
    int fresh = s->spans == 0;
    s->spans++;
    s->count += (int64_t)weight;
    s->sum_ns = (int64_t)((uint64_t)s->sum_ns + (uint64_t)duration * weight);
    if (bytes && kind[i] != gauge) s->bytes = (int64_t)((uint64_t)s->bytes + (uint64_t)bytes[i] * weight);
    if (fresh || duration < s->min_ns) s->min_ns = duration;
    if (fresh || duration > s->max_ns) {
      s->max_ns = duration;
      s->row = i;
    } else if (duration == s->max_ns && comes_first(b, i, s->row, session, first_row)) {
      s->row = i;
    }
    int64_t clipped = duration < 1 ? 1 : duration > (int64_t)1 << 53 ? (int64_t)1 << 53 : duration;
    double value = (double)clipped;
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int64_t cell = bits >> cell_shift;
    int32_t index = position[cell] + (clipped > bound[cell]) + lowest_index;
    bucket[i] = index;
    least = index < least ? index : least;
    most = index > most ? index : most;
  }
  range[0] = least;
  range[1] = most;
}

/* The ids of the groups' exemplars. */
EXPORT void spanlite_span_ids(const struct batch *b, struct sums *sums, int64_t groups, uint64_t session,
                              uint64_t first_row) {
  for (int64_t at = 0; at < groups; at++) sums[at].span_id = id_of(b, sums[at].row, session, first_row);
}

/*
 * Histogram rows (group, bucket, count), ascending. table: zeroed scratch of groups · buckets entries; the outputs have
 * room for as many rows as there are spans. Returns how many.
 */
EXPORT int64_t spanlite_buckets(const struct batch *b, const int32_t *group, const int32_t *bucket, int64_t groups,
                                int32_t lowest, int64_t buckets, int64_t *table, int32_t *out_row, int32_t *out_index,
                                int64_t *out_count) {
  for (int64_t i = 0; i < b->rows; i++)
    if (group[i] >= 0) table[group[i] * buckets + (bucket[i] - lowest)] += b->weight ? b->weight[i] : 1;
  int64_t rows = 0;
  for (int64_t g = 0; g < groups; g++) {
    const int64_t *of_group = table + g * buckets;
    for (int64_t k = 0; k < buckets; k++) {
      if (of_group[k]) {
        out_row[rows] = (int32_t)g;
        out_index[rows] = (int32_t)(k + lowest);
        out_count[rows++] = of_group[k];
      }
    }
  }
  return rows;
}

/* ---- joining: one code for each combination of values of several columns ---- */

struct slot {
  uint64_t hash;
  int64_t code; /* + 1; 0 is free */
};

enum { BLOCK = 1024 };

#define EACH_VALUE(column, width, begin, count, DO)                                                                  \
  do {                                                                                                               \
    if ((width) == 1) {                                                                                              \
      const uint8_t *v = (const uint8_t *)(column), *b = v + (begin);                                                \
      for (int64_t i = 0; i < (count); i++) DO                                                                       \
    } else if ((width) == 2) {                                                                                       \
      const uint16_t *v = (const uint16_t *)(column), *b = v + (begin);                                              \
      for (int64_t i = 0; i < (count); i++) DO                                                                       \
    } else if ((width) == 4) {                                                                                       \
      const uint32_t *v = (const uint32_t *)(column), *b = v + (begin);                                              \
      for (int64_t i = 0; i < (count); i++) DO                                                                       \
    } else {                                                                                                         \
      const uint64_t *v = (const uint64_t *)(column), *b = v + (begin);                                              \
      for (int64_t i = 0; i < (count); i++) DO                                                                       \
    }                                                                                                                \
  } while (0)

static WIDE void joint_hashes(const void *column, int64_t width, int64_t begin, int64_t count, uint64_t factor,
                              uint64_t *hash) {
  EACH_VALUE(column, width, begin, count, {
    (void)v;
    hash[i] += b[i] * factor;
  });
}

/* Whether the rows from `begin` on have the values of the first row of their code. */
static int joint_equal(const void *column, int64_t width, int64_t begin, int64_t count, const int32_t *code,
                       const int64_t *first) {
  uint64_t differs = 0;
  EACH_VALUE(column, width, begin, count, { differs |= (uint64_t)(b[i] ^ v[first[code[i]]]); });
  return differs == 0;
}

static struct slot *joint_grown(struct slot *slots, int64_t *size) {
  struct slot *more = calloc((size_t)*size * 4, sizeof *more);
  if (!more) {
    free(slots);
    return NULL;
  }
  uint64_t mask = (uint64_t)*size * 4 - 1;
  for (int64_t i = 0; i < *size; i++) {
    if (!slots[i].code) continue;
    uint64_t at = mix64(slots[i].hash) & mask;
    while (more[at].code) at = (at + 1) & mask;
    more[at] = slots[i];
  }
  free(slots);
  *size *= 4;
  return more;
}

/*
 * Codes 0, 1, … of the combinations in the order in which they come, and the row where each comes first; `first` has room
 * for `rows`. Returns how many there are, or -1 where two combinations have one hash, or memory is short.
 */
EXPORT int64_t spanlite_joint_codes(const void *const *columns, const int64_t *widths, int64_t count, int64_t rows,
                                    int32_t *code, int64_t *first) {
  uint64_t hash[BLOCK];
  int64_t found = 0, size = 1024;
  struct slot *slots = calloc((size_t)size, sizeof *slots);
  for (int64_t begin = 0; slots && begin < rows; begin += BLOCK) {
    int64_t block = rows - begin < BLOCK ? rows - begin : BLOCK;
    memset(hash, 0, sizeof hash);
    for (int64_t c = 0; c < count; c++)
      joint_hashes(columns[c], widths[c], begin, block, mix64((uint64_t)c + 1) | 1, hash);
    for (int64_t i = 0; i < block; i++) {
      if (found * 2 >= size && !(slots = joint_grown(slots, &size))) return -1;
      uint64_t mask = (uint64_t)size - 1, at = mix64(hash[i]) & mask;
      while (slots[at].code && slots[at].hash != hash[i]) at = (at + 1) & mask;
      if (!slots[at].code) {
        first[found] = begin + i;
        slots[at] = (struct slot){hash[i], ++found};
      }
      code[begin + i] = (int32_t)(slots[at].code - 1);
    }
    for (int64_t c = 0; c < count; c++)
      if (!joint_equal(columns[c], widths[c], begin, block, code + begin, first)) {
        free(slots);
        return -1;
      }
  }
  if (!slots) return -1;
  free(slots);
  return found;
}

/* Whether each value of a column is the first one. */
EXPORT int64_t spanlite_constant(const uint8_t *column, int64_t width, int64_t rows) {
  return rows < 2 || memcmp(column, column + width, (size_t)((rows - 1) * width)) == 0;
}

/* ---- packing: the way back ---- */

static int64_t width_of(uint64_t most) {
  return most == 0 ? 0 : most < 1u << 8 ? 1 : most < 1u << 16 ? 2 : most < UINT64_C(1) << 32 ? 4 : 8;
}

/* Bytes of raw values, plane after plane. */
static WIDE void split(const uint64_t *raw, int64_t rows, int64_t width, int64_t begin, int64_t all, uint8_t *out) {
  for (int64_t plane = 0; plane < width; plane++) {
    uint8_t *to = out + plane * all + begin;
    for (int64_t i = 0; i < rows; i++) to[i] = (uint8_t)(raw[i] >> 8 * plane);
  }
}

/* `count` values of `size` bytes from `begin` on, `stride` bytes apart, as 64-bit numbers with their sign. */
static void widened(const uint8_t *values, int64_t size, int64_t sign, int64_t stride, int64_t begin, int64_t count,
                    int64_t *out) {
  const uint8_t *at = values + begin * stride;
#define WIDENED(type)                                  \
  for (int64_t i = 0; i < count; i++) {                \
    type value;                                        \
    memcpy(&value, at + i * stride, sizeof value);     \
    out[i] = (int64_t)value;                           \
  }
  if (size == 1 && sign) {
    WIDENED(int8_t)
  } else if (size == 1) {
    WIDENED(uint8_t)
  } else if (size == 2 && sign) {
    WIDENED(int16_t)
  } else if (size == 2) {
    WIDENED(uint16_t)
  } else if (size == 4 && sign) {
    WIDENED(int32_t)
  } else if (size == 4) {
    WIDENED(uint32_t)
  } else {
    WIDENED(int64_t)
  }
#undef WIDENED
}

/*
 * A column of integers against its least one, in planes as narrow as they may be: returns their width, 0 where all are
 * `base`. out has room for 8 bytes a row. zigzag: values lie around 0, which is their base then.
 */
EXPORT int64_t spanlite_pack(const uint8_t *values, int64_t size, int64_t sign, int64_t stride, int64_t rows,
                             int64_t zigzag, int64_t *base, uint8_t *out) {
  int64_t block[BLOCK], least = INT64_MAX, most = INT64_MIN;
  uint64_t around = 0;
  *base = 0;
  if (rows == 0) return 0;
  for (int64_t begin = 0; begin < rows; begin += BLOCK) {
    int64_t count = rows - begin < BLOCK ? rows - begin : BLOCK;
    widened(values, size, sign, stride, begin, count, block);
    for (int64_t i = 0; i < count; i++) {
      least = block[i] < least ? block[i] : least;
      most = block[i] > most ? block[i] : most;
      around |= (uint64_t)block[i] << 1 ^ (uint64_t)(block[i] >> 63);
    }
  }
  int64_t width = zigzag ? width_of(around) : width_of((uint64_t)most - (uint64_t)least);
  uint64_t from = zigzag ? 0 : (uint64_t)least;
  *base = (int64_t)from;
  for (int64_t begin = 0; width && begin < rows; begin += BLOCK) {
    int64_t count = rows - begin < BLOCK ? rows - begin : BLOCK;
    uint64_t raw[BLOCK];
    widened(values, size, sign, stride, begin, count, block);
    for (int64_t i = 0; i < count; i++)
      raw[i] = zigzag ? (uint64_t)block[i] << 1 ^ (uint64_t)(block[i] >> 63) : (uint64_t)block[i] - from;
    split(raw, count, width, begin, rows, out);
  }
  return width;
}

/* Each field of a table as `spanlite_pack` has it; the planes of one behind those of the one before. */
EXPORT void spanlite_pack_table(const uint8_t *records, int64_t itemsize, int64_t rows, const int64_t *offset,
                                const int64_t *size, const int64_t *sign, int64_t fields, int64_t *width, int64_t *base,
                                uint8_t *out) {
  for (int64_t f = 0; f < fields; f++) {
    width[f] = spanlite_pack(records + offset[f], size[f], sign[f], itemsize, rows, 0, base + f, out);
    out += width[f] * rows;
  }
}

/* ---- bodies: columns of many batches to SpanColumns messages, each over tables of what it uses ---- */

enum { START, DURATION, KIND, CONFIG, PLACE, NODE, STAGE, TRACE, PARENT, RANGE_NUMBER, CORRELATION, BYTES, WEIGHT, ALL };
enum { CONFIGS, PLACES, NODES, TRACES, TABLES };
enum { MOST_FIELDS = 32, MOST_RECORD = 128 };

/* Entries that rows point at: records of `size` bytes, `size` a multiple of 4, with `fields` integers as in a table. */
struct records {
  const uint8_t *entry;
  const uint8_t *told; /* what is written for each entry; they are sorted by `entry` */
  int64_t count, size, fields;
  const int64_t *offset, *width, *sign;
};

/* Rows of all batches, one batch behind the other, a stride of 0 for a column of one value; see spanlite.native.bodies. */
struct columns {
  const uint8_t *value[ALL];
  int64_t stride[ALL];
  struct records table[TABLES];
  const uint8_t *text; /* UTF-8, one behind the other */
  const int64_t *text_begin, *text_end;
  const int32_t *text_rank; /* place of each that is used in the order of their bytes; text 0 is empty */
  int64_t texts, kinds, range, has_bytes; /* known kinds are below `kinds`, < 64; that of ranges; bit k: kind k has bytes */
};

/* What a batch's header says of its rows. odd: numpy has to decide, times beyond 64 bits or unknown kinds. */
struct said {
  int64_t first_start, last_start, last_end, last_gpu_end, odd;
};

struct writer {
  uint8_t *at, *end;
};

/* Scratch: of each table's entries and of the texts, the place in the batch's own table, -1 while unused. */
struct scratch {
  int32_t *place[TABLES], *text_place, *used;
  int64_t *keys;
  uint64_t *raw;
  uint8_t *records;
};

static int64_t varint_size(uint64_t value) {
  int64_t size = 1;
  while (value >>= 7) size++;
  return size;
}

static void put_varint(struct writer *w, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *w->at++ = (uint8_t)(value | 0x80);
  *w->at++ = (uint8_t)value;
}

static int64_t planes_size(int64_t width, int64_t base, int64_t rows) {
  int64_t bytes = width * rows;
  return (width ? 2 : 0) + (base ? 9 : 0) + (bytes ? 1 + varint_size((uint64_t)bytes) + bytes : 0);
}

static int64_t column_size(int64_t field, int64_t width, int64_t base, int64_t rows) {
  int64_t size = planes_size(width, base, rows);
  return varint_size((uint64_t)field << 3) + varint_size((uint64_t)size) + size;
}

/* All of a Column but its planes, for which there is room behind; 0 where there is not enough of it. */
static int put_column(struct writer *w, int64_t field, int64_t width, int64_t base, int64_t rows) {
  if (w->end - w->at < column_size(field, width, base, rows)) return 0;
  put_varint(w, (uint64_t)field << 3 | 2);
  put_varint(w, (uint64_t)planes_size(width, base, rows));
  if (width) *w->at++ = 1 << 3, *w->at++ = (uint8_t)width;
  if (base) {
    *w->at++ = 2 << 3 | 1;
    memcpy(w->at, &base, 8);
    w->at += 8;
  }
  if (width && rows) {
    *w->at++ = 3 << 3 | 2;
    put_varint(w, (uint64_t)(width * rows));
  }
  return 1;
}

static int put_raw(struct writer *w, int64_t field, const uint64_t *raw, int64_t rows, int64_t width, int64_t base) {
  if (!put_column(w, field, width, base, rows)) return 0;
  split(raw, rows, width, 0, rows, w->at);
  w->at += width * rows;
  return 1;
}

/* Values around 0, as they are told. */
static WIDE int64_t zigzagged(uint64_t *raw, int64_t rows) {
  uint64_t around = 0;
  for (int64_t i = 0; i < rows; i++) around |= raw[i] = raw[i] << 1 ^ (uint64_t)((int64_t)raw[i] >> 63);
  return width_of(around);
}

/* Values against their least one, in place. */
static WIDE int64_t lowered(uint64_t *raw, int64_t rows, int64_t *base) {
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (int64_t i = 0; i < rows; i++) {
    int64_t value = (int64_t)raw[i];
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  *base = rows ? least : 0;
  if (!rows || least == most) return 0;
  for (int64_t i = 0; i < rows; i++) raw[i] -= (uint64_t)least;
  return width_of((uint64_t)most - (uint64_t)least);
}

static const void *cell(const struct columns *c, int which, int64_t row) {
  return c->value[which] + row * c->stride[which];
}

static uint64_t at64(const struct columns *c, int which, int64_t row) {
  uint64_t value;
  memcpy(&value, cell(c, which, row), 8);
  return value;
}

static int32_t at32(const struct columns *c, int which, int64_t row) {
  int32_t value;
  memcpy(&value, cell(c, which, row), 4);
  return value;
}

static uint8_t kind_at(const struct columns *c, int64_t row) { return *(const uint8_t *)cell(c, KIND, row); }

/* Rows of a column as they are told: how many a batch has differs only by those of some kinds. */
static int put_values(struct writer *w, const struct columns *c, int which, int64_t field, uint64_t kinds, int64_t begin,
                      int64_t end, uint64_t *raw) {
  int64_t rows = 0, base, size = which == KIND ? 1 : which == WEIGHT ? 4 : 8;
  int one_kind = !c->stride[KIND];
  if (one_kind && !(kinds >> (kind_at(c, begin) & 63) & 1)) return put_column(w, field, 0, 0, 0);
  if (!c->stride[which] && (one_kind || kinds == UINT64_MAX)) {
    base = size == 8 ? (int64_t)at64(c, which, begin) : size == 4 ? (uint32_t)at32(c, which, begin) : kind_at(c, begin);
    return put_column(w, field, 0, base, 0);
  }
  if (kinds != UINT64_MAX) {
    for (int64_t i = begin; i < end; i++)
      if (kinds >> (kind_at(c, i) & 63) & 1) raw[rows++] = at64(c, which, i);
  } else if (size == 8) {
    memcpy(raw, cell(c, which, begin), (size_t)(end - begin) * 8);
    rows = end - begin;
  } else if (size == 4) {
    const uint32_t *from = cell(c, which, begin);
    for (; rows < end - begin; rows++) raw[rows] = from[rows];
  } else {
    const uint8_t *from = cell(c, which, begin);
    for (; rows < end - begin; rows++) raw[rows] = from[rows];
  }
  int64_t width = lowered(raw, rows, &base);
  return put_raw(w, field, raw, rows, width, base);
}

/* Differences of each row from the one before, the first from 0, of value + add. */
static int put_steps(struct writer *w, const struct columns *c, int which, int64_t field, uint64_t add, int64_t begin,
                     int64_t end, uint64_t *raw) {
  uint64_t before = at64(c, which, begin) + add;
  if (!c->stride[which] && !before) return put_column(w, field, 0, 0, 0);
  raw[0] = before;
  if (c->stride[which]) {
    const uint64_t *from = cell(c, which, begin);
    for (int64_t i = 1; i < end - begin; i++) raw[i] = from[i] - from[i - 1];
  } else {
    memset(raw + 1, 0, (size_t)(end - begin - 1) * 8);
  }
  int64_t width = zigzagged(raw, end - begin);
  return put_raw(w, field, raw, end - begin, width, 0);
}

static int put_gaps(struct writer *w, const struct columns *c, uint64_t first, int64_t begin, int64_t end,
                    uint64_t *raw) {
  uint64_t before = first;
  if (c->stride[KIND] || !c->stride[START] || !c->stride[DURATION]) {
    for (int64_t i = begin; i < end; i++) {
      uint64_t start = at64(c, START, i);
      raw[i - begin] = start - before;
      before = start + (kind_at(c, i) == c->range ? 0 : at64(c, DURATION, i));
    }
  } else {
    const uint64_t *start = cell(c, START, begin), *duration = cell(c, DURATION, begin);
    uint64_t moves = kind_at(c, begin) == c->range ? 0 : UINT64_MAX;
    raw[0] = start[0] - first;
    for (int64_t i = 1; i < end - begin; i++) raw[i] = start[i] - start[i - 1] - (duration[i - 1] & moves);
  }
  int64_t width = zigzagged(raw, end - begin);
  return put_raw(w, 16, raw, end - begin, width, 0);
}

/* Marks the entries that rows point at; `used` gets each once, and how many there are is returned. */
static int64_t marked(const struct columns *c, int which, int32_t *place, int64_t begin, int64_t end, int32_t *used,
                      int64_t count) {
  if (!c->stride[which]) end = begin + 1;
  const int32_t *at = cell(c, which, begin);
  for (int64_t i = 0; i < end - begin; i++) {
    int32_t entry = at[i];
    if (entry >= 0 && place[entry] < 0) {
      place[entry] = 0;
      used[count++] = entry;
    }
  }
  return count;
}

/* Places of the entries that rows point at, `add` to each, -1 + add for none. */
static int put_index(struct writer *w, const struct columns *c, int which, int64_t field, const int32_t *place, int add,
                     int64_t begin, int64_t end, uint64_t *raw) {
  if (!c->stride[which]) {
    int32_t entry = at32(c, which, begin);
    return put_column(w, field, 0, (entry < 0 ? -1 : place[entry]) + add, 0);
  }
  const int32_t *at = cell(c, which, begin);
  int64_t rows = end - begin, base;
  int32_t least = INT32_MAX, most = -1;
  int32_t *to = (int32_t *)raw;
  for (int64_t i = 0; i < rows; i++) {
    int32_t value = (at[i] < 0 ? -1 : place[at[i]]) + add;
    to[i] = value;
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  base = least;
  int64_t width = width_of((uint64_t)(most - least));
  if (!put_column(w, field, width, base, rows)) return 0;
  uint8_t *out = w->at;
  for (int64_t plane = 0; plane < width; plane++, out += rows)
    for (int64_t i = 0; i < rows; i++) out[i] = (uint8_t)((uint32_t)(to[i] - least) >> 8 * plane);
  w->at += width * rows;
  return 1;
}

#define BY_BYTES(size) \
  static int by_##size##_bytes(const void *a, const void *b) { return memcmp(a, b, size); }
BY_BYTES(12)
BY_BYTES(32)
BY_BYTES(36)
BY_BYTES(84)

static int by_number(const void *a, const void *b) {
  int64_t left, right;
  memcpy(&left, a, 8), memcpy(&right, b, 8);
  return (left > right) - (left < right);
}

/*
 * The entries that are used as a table of their own, in the order of their bytes, equal ones once; their places are told
 * in `place`. texts: places of texts, which the first two fields are then told by. ids: the first 16 bytes are told as
 * they are.
 */
static int put_table(struct writer *w, const struct records *t, int64_t field, int32_t *place, const int32_t *used,
                     int64_t count, const int32_t *texts, int ids, uint8_t *records, uint64_t *raw) {
  int64_t stride = t->size + 4, rows = 0;
  int (*order)(const void *, const void *) = t->size == 12   ? by_12_bytes
                                             : t->size == 32 ? by_32_bytes
                                             : t->size == 36 ? by_36_bytes
                                                             : by_84_bytes;
  for (int64_t k = 0; k < count; k++) {
    uint8_t *to = records + k * stride;
    memcpy(to, t->entry + used[k] * t->size, (size_t)t->size);
    for (int64_t f = 0; texts && f < 2; f++) {
      int32_t text;
      memcpy(&text, to + t->offset[f], 4);
      memcpy(to + t->offset[f], texts + text, 4);
    }
    memcpy(to + t->size, used + k, 4);
  }
  if (count > 1) qsort(records, (size_t)count, (size_t)stride, order);
  for (int64_t k = 0; k < count; k++) {
    uint8_t *from = records + k * stride;
    int32_t entry;
    memcpy(&entry, from + t->size, 4);
    if (!k || memcmp(from, records + (rows - 1) * stride, (size_t)t->size)) {
      if (rows < k) memcpy(records + rows * stride, from, (size_t)stride);
      rows++;
    }
    place[entry] = (int32_t)(rows - 1);
  }
  if (t->told != t->entry) /* sorted by what they were, told as what they are now */
    for (int64_t k = 0; k < rows; k++) {
      int32_t entry;
      memcpy(&entry, records + k * stride + t->size, 4);
      memcpy(records + k * stride, t->told + entry * t->size, (size_t)t->size);
    }
  int64_t width[MOST_FIELDS], base[MOST_FIELDS], number = ids ? 3 : 2;
  int64_t size = rows ? 1 + varint_size((uint64_t)rows) : 0;
  if (ids && rows) size += 1 + varint_size((uint64_t)rows * 16) + rows * 16;
  for (int64_t f = 0; f < t->fields; f++) {
    int64_t least = INT64_MAX, most = INT64_MIN;
    const uint8_t *at = records + t->offset[f];
    for (int64_t k = 0; k < rows; k++, at += stride) {
      int64_t value;
      if (t->width[f] == 8) {
        memcpy(&value, at, 8);
      } else {
        int32_t narrow;
        memcpy(&narrow, at, 4);
        value = t->sign[f] ? (int64_t)narrow : (int64_t)(uint32_t)narrow;
      }
      least = value < least ? value : least;
      most = value > most ? value : most;
    }
    base[f] = rows ? least : 0;
    width[f] = rows ? width_of((uint64_t)most - (uint64_t)least) : 0;
    size += column_size(number + f, width[f], base[f], rows);
  }
  if (w->end - w->at < 16 + size) return 0;
  put_varint(w, (uint64_t)field << 3 | 2);
  put_varint(w, (uint64_t)size);
  if (rows) {
    *w->at++ = 1 << 3;
    put_varint(w, (uint64_t)rows);
  }
  if (ids && rows) {
    *w->at++ = 2 << 3 | 2;
    put_varint(w, (uint64_t)rows * 16);
    for (int64_t k = 0; k < rows; k++, w->at += 16) memcpy(w->at, records + k * stride, 16);
  }
  for (int64_t f = 0; f < t->fields; f++) {
    put_column(w, number + f, width[f], base[f], rows);
    if (!width[f]) continue;
    for (int64_t k = 0; k < rows; k++) {
      uint64_t value = 0;
      memcpy(&value, records + k * stride + t->offset[f], (size_t)t->width[f]);
      if (t->width[f] == 4 && t->sign[f]) value = (uint64_t)(int64_t)(int32_t)value;
      raw[k] = value - (uint64_t)base[f];
    }
    split(raw, rows, width[f], 0, rows, w->at);
    w->at += width[f] * rows;
  }
  return 1;
}

/* The texts that entries of `configs` and stages use, in the order of their bytes; their places are told. */
static int put_texts(struct writer *w, const struct columns *c, const int32_t *configs, int64_t used_configs,
                     struct scratch *s, int64_t begin, int64_t end, int64_t *found) {
  const struct records *t = &c->table[CONFIGS];
  int32_t *used = s->used;
  int64_t count = 0;
  s->text_place[0] = 0;
  used[count++] = 0;
  for (int64_t k = 0; k < used_configs; k++)
    for (int64_t f = 0; f < 2; f++) {
      int32_t text;
      memcpy(&text, t->entry + configs[k] * t->size + t->offset[f], 4);
      if (s->text_place[text] >= 0) continue;
      s->text_place[text] = 0;
      used[count++] = text;
    }
  count = marked(c, STAGE, s->text_place, begin, end, used, count);
  for (int64_t k = 0; k < count; k++) s->keys[k] = (int64_t)c->text_rank[used[k]] << 32 | used[k];
  if (count > 1) qsort(s->keys, (size_t)count, 8, by_number);
  *found = count;
  for (int64_t k = 0; k < count; k++) {
    int32_t text = (int32_t)s->keys[k];
    int64_t size = c->text_end[text] - c->text_begin[text];
    s->text_place[text] = (int32_t)k;
    if (w->end - w->at < 16 + size) return 0;
    *w->at++ = 1 << 3 | 2;
    put_varint(w, (uint64_t)size);
    memcpy(w->at, c->text + c->text_begin[text], (size_t)size);
    w->at += size;
  }
  return 1;
}

static struct said look_through(const struct columns *c, int64_t begin, int64_t end) {
  struct said said = {INT64_MAX, INT64_MIN, INT64_MIN, INT64_MIN, 0};
  for (int64_t i = begin; i < end; i++) {
    int64_t start = (int64_t)at64(c, START, i), last;
    uint8_t kind = kind_at(c, i);
    said.odd |= __builtin_add_overflow(start, (int64_t)at64(c, DURATION, i), &last) | (kind >= c->kinds);
    said.first_start = start < said.first_start ? start : said.first_start;
    said.last_start = start > said.last_start ? start : said.last_start;
    said.last_end = last > said.last_end ? last : said.last_end;
    if (kind != c->range) said.last_gpu_end = last > said.last_gpu_end ? last : said.last_gpu_end;
  }
  if (said.last_gpu_end == INT64_MIN) said.last_gpu_end = said.last_end;
  return said;
}

/* One batch; 0 where there is no room left. */
static int put_body(struct writer *w, const struct columns *c, int64_t begin, int64_t end, struct scratch *s,
                    struct said *said) {
  static const int of_table[TABLES] = {CONFIG, PLACE, NODE, TRACE};
  int32_t *used[TABLES], *free_used = s->used + c->texts;
  int64_t count[TABLES], texts = 0;
  *said = look_through(c, begin, end);
  for (int t = 0; t < TABLES; t++) {
    used[t] = free_used;
    count[t] = 0;
    if (t == NODES) s->place[t][0] = 0, used[t][count[t]++] = 0; /* the entry of rows outside graphs is always there */
    count[t] = marked(c, of_table[t], s->place[t], begin, end, used[t], count[t]);
    free_used += c->table[t].count;
  }
  int fits = put_texts(w, c, used[CONFIGS], count[CONFIGS], s, begin, end, &texts);
  for (int t = 0; fits && t < TABLES; t++)
    fits = put_table(w, &c->table[t], t + 2, s->place[t], used[t], count[t], t == CONFIGS ? s->text_place : NULL,
                     t == TRACES, s->records, s->raw);
  if (fits) {
    uint64_t ranges = UINT64_C(1) << c->range, moved = (uint64_t)c->has_bytes, *raw = s->raw;
    int64_t weights = c->stride[WEIGHT] ? end : begin + 1, row = begin;
    while (row < weights && at32(c, WEIGHT, row) == 1) row++;
    fits = put_gaps(w, c, (uint64_t)said->first_start, begin, end, raw) &&
           put_values(w, c, DURATION, 17, UINT64_MAX, begin, end, raw) &&
           put_index(w, c, CONFIG, 18, s->place[CONFIGS], 0, begin, end, raw) &&
           put_index(w, c, PLACE, 19, s->place[PLACES], 0, begin, end, raw) &&
           put_index(w, c, NODE, 20, s->place[NODES], 0, begin, end, raw) &&
           put_values(w, c, KIND, 21, UINT64_MAX, begin, end, raw) &&
           put_index(w, c, STAGE, 22, s->text_place, 0, begin, end, raw) &&
           put_index(w, c, TRACE, 23, s->place[TRACES], 1, begin, end, raw) &&
           put_steps(w, c, PARENT, 24, 1, begin, end, raw) &&
           put_steps(w, c, CORRELATION, 25, 0, begin, end, raw) &&
           put_values(w, c, BYTES, 26, moved, begin, end, raw) &&
           put_values(w, c, RANGE_NUMBER, 27, ranges, begin, end, raw) &&
           (row == weights || put_values(w, c, WEIGHT, 28, UINT64_MAX, begin, end, raw));
  }
  for (int64_t k = 0; k < texts; k++) s->text_place[(int32_t)s->keys[k]] = -1;
  for (int t = 0; t < TABLES; t++)
    for (int64_t k = 0; k < count[t]; k++) s->place[t][used[t][k]] = -1;
  return fits;
}

/*
 * Bodies of `count` batches, of rows bound[k] … bound[k + 1] - 1 each, at least one; what is told of each, and where it
 * ends in `out`. Returns how many there was room for, -1 where memory is short.
 */
EXPORT int64_t spanlite_bodies(const struct columns *c, const int64_t *bound, int64_t count, struct said *said,
                               int64_t *ends, uint8_t *out, int64_t room) {
  int64_t most = 1, entries = c->texts, largest = 0, done = 0;
  for (int64_t k = 0; k < count; k++) most = bound[k + 1] - bound[k] > most ? bound[k + 1] - bound[k] : most;
  for (int t = 0; t < TABLES; t++) {
    entries += c->table[t].count;
    int64_t used = c->table[t].count < most + 1 ? c->table[t].count : most + 1;
    int64_t bytes = used * (c->table[t].size + 4);
    largest = bytes > largest ? bytes : largest;
  }
  struct scratch s = {0};
  int32_t *places = malloc((size_t)(entries + 1) * 4);
  s.used = malloc((size_t)(entries + 1) * 4);
  s.keys = malloc((size_t)(c->texts + 1) * 8);
  s.raw = malloc((size_t)(most + 1) * 8);
  s.records = malloc((size_t)largest + 1);
  if (places && s.used && s.keys && s.raw && s.records) {
    memset(places, 0xff, (size_t)(entries + 1) * 4);
    s.text_place = places;
    int32_t *next = places + c->texts;
    for (int t = 0; t < TABLES; t++) s.place[t] = next, next += c->table[t].count;
    struct writer w = {out, out + room};
    for (; done < count; done++) {
      if (!put_body(&w, c, bound[done], bound[done + 1], &s, said + done)) break;
      ends[done] = w.at - out;
    }
  } else {
    done = -1;
  }
  free(places), free(s.used), free(s.keys), free(s.raw), free(s.records);
  return done;
}
