// A Llama-like network in float32 on one core: products on packed weights, and attention over blocks of keys and values.
//
// Every number of a row is computed in an order that depends on that row alone: a product adds up its inputs first to
// last, attention goes through the blocks of a sequence first to last. So a row has the same bits alone and in any batch.
// For x86 it is built three times (see setup.py): for AVX512, for AVX2, and for any processor.

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 12, WIDE = 4 };  // 32 registers of 16 numbers
#elif defined(__AVX2__)
enum { LANES = 8, ROWS = 6, WIDE = 2 };  // 16 registers of 8
#elif defined(__aarch64__)
enum { LANES = 4, ROWS = 12, WIDE = 4 };  // 32 registers of 4
#else
enum { LANES = 4, ROWS = 6, WIDE = 2 };
#endif
enum {
    PANEL = 2 * LANES,      // outputs of a product that are computed together
    BLOCK = 64,             // positions in a block of keys and values
    TILE = 6,               // queries that look at a block together
    QUERIES = 8 * TILE,     // queries that go through a sequence together, so that a block is fetched once for them
    CHUNK = WIDE * LANES,   // keys, or parts of a value, that are computed together
};

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));  // anywhere in memory

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *at) { return *(const loose *)at; }
INLINE void store(float *at, vec x) { *(loose *)at = x; }
INLINE vec all(float x) { return vec{} + x; }
INLINE vec larger(vec a, vec b) { return a > b ? a : b; }

INLINE ivec counted() {
    ivec x;
    for (int i = 0; i < LANES; i++) x[i] = i;
    return x;
}

INLINE float most(vec x) {
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) x[i] = x[i] > x[i + n] ? x[i] : x[i + n];
    return x[0];
}

INLINE float sum(vec x) {
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) x[i] += x[i + n];
    return x[0];
}

// 2 to the power of x, to within 1e-7 of it, for x up to 127; below -126 it stays there.
INLINE vec power(vec x) {
    x = larger(x, all(-126.f));
    vec rounded = x + 12582912.f;  // 1.5 * 2^23: the whole part ends up in the lowest bits
    vec f = x - (rounded - 12582912.f);
    vec p = f * 0.00132765f + 0.00967554f;
    p = p * f + 0.05550713f;
    p = p * f + 0.2402212f;
    p = p * f + 0.69314697f;
    p = p * f + 1.00000007f;
    return (vec)((ivec)p + ((ivec)rounded << 23));
}

const float LOG2E = 1.44269504f;

struct Linear {
    int32_t outputs, inputs, rank;
    const float *weight;  // [panels][inputs][PANEL]
    const float *bias;    // or null
    const float *down;    // of an adapter, packed: inputs to rank
    const float *up;      // and rank to outputs
};

struct Layer {
    const float *before, *between;          // norms
    const float *query_norm, *key_norm;     // or null
    Linear qkv, out, gates, back;
};

struct Shape {
    int32_t layers, hidden, heads, key_heads, width, inner, turned;
    float epsilon, scale;
};

struct Network {
    Shape shape;
    const float *embed, *cosines, *sines, *last;  // cosines and sines: [positions][turned / 2]
    const Layer *layers;
};

// R rows times one panel.
template <int R>
INLINE void panel(const float *a, long step, const float *b, int inputs, float *c, long next, int columns, bool add,
                  const float *bias) {
    vec s[R][2] = {};
    for (int i = 0; i < inputs; i++, b += PANEL) {
        vec b0 = load(b), b1 = load(b + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            s[r][0] += a[r * step + i] * b0;
            s[r][1] += a[r * step + i] * b1;
        }
    }
    for (int r = 0; r < R; r++) {
        float *to = c + r * next, part[PANEL];
        if (columns < PANEL) {
            memcpy(part, to, 4 * columns);
            to = part;
        }
        for (int v = 0; v < 2; v++) {
            vec x = s[r][v];
            if (bias) x += load(bias + v * LANES);
            store(to + v * LANES, add ? load(to + v * LANES) + x : x);
        }
        if (columns < PANEL) memcpy(c + r * next, part, 4 * columns);
    }
}

// c [rows, outputs] = a [rows, inputs] times the packed weight, or is added to. A bias has whole panels.
static void product(const float *a, int rows, int inputs, const float *weight, int outputs, const float *bias, float *c,
                    bool add) {
    for (int n = 0; n < outputs; n += PANEL, weight += (long)inputs * PANEL) {
        int columns = outputs - n < PANEL ? outputs - n : PANEL, r = 0;
        const float *mine = bias ? bias + n : nullptr;
        for (; r + ROWS <= rows; r += ROWS)
            panel<ROWS>(a + (long)r * inputs, inputs, weight, inputs, c + (long)r * outputs + n, outputs, columns, add,
                        mine);
        for (int left = rows - r; left;) {
            const float *from = a + (long)r * inputs;
            float *to = c + (long)r * outputs + n;
            int took = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            if (took == 8) panel<(ROWS > 8 ? 8 : 4)>(from, inputs, weight, inputs, to, outputs, columns, add, mine);
            else if (took == 4) panel<4>(from, inputs, weight, inputs, to, outputs, columns, add, mine);
            else if (took == 2) panel<2>(from, inputs, weight, inputs, to, outputs, columns, add, mine);
            else panel<1>(from, inputs, weight, inputs, to, outputs, columns, add, mine);
            r += took, left -= took;
        }
    }
}

static void apply(const Linear &l, const float *a, int rows, float *c, bool add, float *space) {
    product(a, rows, l.inputs, l.weight, l.outputs, l.bias, c, add);
    if (l.rank) {
        product(a, rows, l.inputs, l.down, l.rank, nullptr, space, false);
        product(space, rows, l.rank, l.up, l.outputs, nullptr, c, true);
    }
}

static void norm(const float *from, const float *scale, int size, float epsilon, float *to) {
    vec squares = {};
    for (int i = 0; i < size; i += LANES) squares += load(from + i) * load(from + i);
    float factor = 1.f / sqrtf(sum(squares) / size + epsilon);
    for (int i = 0; i < size; i += LANES) store(to + i, load(from + i) * factor * load(scale + i));
}

// Rotary embedding: part i is turned together with part i + half.
static void turn(float *head, const float *cosine, const float *sine, int half) {
    for (int i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + half] = b * cosine[i] + a * sine[i];
    }
}

// Where queries look: the keys and values of one layer, in blocks. A block has, of each layer and key head, the keys
// [width][BLOCK], then the values [BLOCK][width].
struct Held {
    float *pool;
    long block, layer;      // sizes
    const int32_t *tables;  // blocks of each row's sequence
    long stride;            // from row to row; 0 where all rows are of one sequence
    const int32_t *positions;

    float *at(int row, int place, const Shape &s, int number, int head) const {
        return pool + tables[row * stride + place] * block + number * layer + (long)head * 2 * BLOCK * s.width;
    }
};

static void keep(const Shape &s, const Held &held, int number, int row, const float *keys, const float *values) {
    int place = held.positions[row] / BLOCK, slot = held.positions[row] % BLOCK;
    for (int h = 0; h < s.key_heads; h++) {
        float *to = held.at(row, place, s, number, h);
        for (int i = 0; i < s.width; i++) to[i * BLOCK + slot] = keys[h * s.width + i];
        memcpy(to + BLOCK * s.width + slot * s.width, values + h * s.width, 4 * s.width);
    }
}

struct Query {
    float most;       // score so far
    vec total;        // of the weights
    int row, keys;    // keys: that it sees of the block in question
    const float *asked;
    float *out;       // the weighted values so far, in the end divided by the total
};

// Scores of R queries for a block's keys.
template <int R> INLINE void scores(const Query *q, const float *keys, int width, float (*found)[BLOCK]) {
    for (int n = 0; n < BLOCK; n += CHUNK) {
        vec s[R][WIDE] = {};
        for (int i = 0; i < width; i++) {
            vec k[WIDE];
            for (int v = 0; v < WIDE; v++) k[v] = load(keys + i * BLOCK + n + v * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int v = 0; v < WIDE; v++) s[r][v] += q[r].asked[i] * k[v];
        }
        for (int r = 0; r < R; r++)
            for (int v = 0; v < WIDE; v++) store(found[r] + n + v * LANES, s[r][v]);
    }
}

// Adds C vectors of the values, weighted.
template <int R, int C>
INLINE void weigh(Query *q, const float *values, int width, int at, int keys, const float (*weights)[BLOCK]) {
    vec s[R][C];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < C; v++) s[r][v] = load(q[r].out + at + v * LANES);
    for (int k = 0; k < keys; k++) {
        vec x[C];
        for (int v = 0; v < C; v++) x[v] = load(values + (long)k * width + at + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int v = 0; v < C; v++) s[r][v] += weights[r][k] * x[v];
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < C; v++) store(q[r].out + at + v * LANES, s[r][v]);
}

// R queries look at one block. Weights are relative to the largest score so far.
template <int R> static void look(Query *q, const float *block, int width) {
    float found[R][BLOCK];
    int keys = 0;
    scores<R>(q, block, width, found);
    for (int r = 0; r < R; r++) {
        if (q[r].keys > keys) keys = q[r].keys;
        for (int k = q[r].keys; k < BLOCK; k++) found[r][k] = -INFINITY;
        vec high = load(found[r]);
        for (int k = LANES; k < BLOCK; k += LANES) high = larger(high, load(found[r] + k));
        float now = most(high);
        if (now > q[r].most) {
            vec factor = power(all(q[r].most - now));
            q[r].total *= factor;
            for (int i = 0; i < width; i += LANES) store(q[r].out + i, load(q[r].out + i) * factor);
            q[r].most = now;
        }
        for (int k = 0; k < BLOCK; k += LANES) {
            vec weight = power(load(found[r] + k) - q[r].most);
            if (q[r].keys < BLOCK) weight = counted() + k < q[r].keys ? weight : vec{};  // nothing, not nearly nothing
            store(found[r] + k, weight);
            q[r].total += weight;
        }
    }
    const float *values = block + BLOCK * width;
    int at = 0;
    for (; at + CHUNK <= width; at += CHUNK) weigh<R, WIDE>(q, values, width, at, keys, found);
    if (WIDE > 2 && at + 2 * LANES <= width) weigh<R, 2>(q, values, width, at, keys, found), at += 2 * LANES;
    for (; at < width; at += LANES) weigh<R, 1>(q, values, width, at, keys, found);
}

static void look_together(int count, Query *q, const float *block, int width) {
    switch (count) {
        case 1: return look<1>(q, block, width);
        case 2: return look<2>(q, block, width);
        case 3: return look<3>(q, block, width);
        case 4: return look<4>(q, block, width);
        case 5: return look<5>(q, block, width);
        default: return look<TILE>(q, block, width);
    }
}

// Attention of the rows from `first` on: from queries [rows][heads][width], which are scaled where they stand and whose
// rows are `step` numbers long, into out [rows][heads][width].
static void attend(const Shape &s, const Held &held, int number, int first, int rows, float *queries, long step,
                   float *out) {
    int group = s.heads / s.key_heads, together = QUERIES / group ? QUERIES / group : 1;
    Query all_heads[s.key_heads * (together * group)];
    for (int from = first; from < rows; from += together) {
        int until = from + together < rows ? from + together : rows, count = (until - from) * group, places = 0;
        for (int row = from; row < until; row++) {
            int seen = held.positions[row] / BLOCK + 1;
            if (seen > places) places = seen;
            for (int head = 0; head < s.heads; head++) {
                Query &q = all_heads[head / group * count + (row - from) * group + head % group];
                float *asked = queries + row * step + head * s.width;
                for (int i = 0; i < s.width; i++) asked[i] *= s.scale * LOG2E;
                q = {-INFINITY, vec{}, row, 0, asked, out + ((long)row * s.heads + head) * s.width};
                memset(q.out, 0, 4 * s.width);
            }
        }
        for (int place = 0; place < places; place++)
            for (int h = 0; h < s.key_heads; h++) {
                Query *q = all_heads + h * count;
                for (int i = 0, n; i < count; i += n) {  // those next to each other that look at the same block
                    const float *block = nullptr;
                    for (n = 0; n < TILE && i + n < count; n++) {
                        int row = q[i + n].row, keys = held.positions[row] + 1 - place * BLOCK;
                        const float *mine = keys > 0 ? held.at(row, place, s, number, h) : nullptr;
                        if (n && mine != block) break;
                        block = mine;
                        q[i + n].keys = keys < BLOCK ? keys : BLOCK;
                    }
                    if (block) look_together(n, q + i, block, s.width);
                }
            }
        for (int i = 0; i < s.key_heads * count; i++) {
            float total = sum(all_heads[i].total), *to = all_heads[i].out;
            for (int k = 0; k < s.width; k += LANES) store(to + k, load(to + k) / total);
        }
    }
}

extern "C" {

// Outputs that are packed together, and the least unit of sizes.
int dssr_panel() { return PANEL; }
int dssr_lanes() { return LANES; }

void dssr_apply(const Linear *l, const float *rows, int count, float *out, float *space) {
    apply(*l, rows, count, out, false, space);
}

// Keeps the keys and values of rows, then lets their queries look.
void dssr_attend(const Shape *s, int number, int rows, float *queries, const float *keys, const float *values,
                 float *pool, const int32_t *tables, long stride, const int32_t *positions, float *out) {
    long layer = 2L * s->key_heads * BLOCK * s->width;
    Held held = {pool, s->layers * layer, layer, tables, stride, positions};
    for (int r = 0; r < rows; r++)
        keep(*s, held, number, r, keys + (long)r * s->key_heads * s->width, values + (long)r * s->key_heads * s->width);
    attend(*s, held, number, 0, rows, queries, (long)s->heads * s->width, out);
}

// The last hidden states of the rows from `wanted` on, into out. `space` has, for each row, room for `hidden`, the
// outputs of qkv, the heads' values, both gates, `inner`, and the largest rank.
void dssr_forward(const Network *n, int rows, const int32_t *ids, float *pool, const int32_t *tables, long stride,
                  const int32_t *positions, int wanted, float *states, float *space, float *out) {
    const Shape &s = n->shape;
    long layer = 2L * s.key_heads * BLOCK * s.width, heads = (long)s.heads * s.width;
    Held held = {pool, s.layers * layer, layer, tables, stride, positions};
    float *normed = space, *qkv = normed + (long)rows * s.hidden;
    long wide = heads + 2L * s.key_heads * s.width;
    float *seen = qkv + rows * wide, *gates = seen + rows * heads, *act = gates + 2L * rows * s.inner;
    float *small = act + (long)rows * s.inner;
    for (int r = 0; r < rows; r++) memcpy(states + (long)r * s.hidden, n->embed + (long)ids[r] * s.hidden, 4 * s.hidden);
    for (int number = 0; number < s.layers; number++) {
        const Layer &l = n->layers[number];
        for (int r = 0; r < rows; r++)
            norm(states + (long)r * s.hidden, l.before, s.hidden, s.epsilon, normed + (long)r * s.hidden);
        apply(l.qkv, normed, rows, qkv, false, small);
        for (int r = 0; r < rows; r++) {
            float *row = qkv + r * wide;
            const float *cosine = n->cosines + (long)positions[r] * (s.turned / 2);
            const float *sine = n->sines + (long)positions[r] * (s.turned / 2);
            for (int h = 0; h < s.heads + s.key_heads; h++) {
                float *head = row + h * s.width;
                if (l.query_norm) norm(head, h < s.heads ? l.query_norm : l.key_norm, s.width, s.epsilon, head);
                turn(head, cosine, sine, s.turned / 2);
            }
            keep(s, held, number, r, row + heads, row + heads + (long)s.key_heads * s.width);
        }
        // In the last layer nobody looks at the rows that are not wanted.
        int first = number == s.layers - 1 ? wanted : 0, left = rows - first;
        attend(s, held, number, first, rows, qkv, wide, seen);
        float *mine = states + (long)first * s.hidden;
        apply(l.out, seen + first * heads, left, mine, true, small);
        for (int r = 0; r < left; r++)
            norm(mine + (long)r * s.hidden, l.between, s.hidden, s.epsilon, normed + (long)r * s.hidden);
        apply(l.gates, normed, left, gates, false, small);
        for (int r = 0; r < left; r++) {
            const float *gate = gates + 2L * r * s.inner;
            for (int i = 0; i < s.inner; i += LANES) {
                vec x = load(gate + i), minus = x * -LOG2E;
                vec other = power(minus < all(127.f) ? minus : all(127.f));
                store(act + (long)r * s.inner + i, x / (other + 1.f) * load(gate + s.inner + i));
            }
        }
        apply(l.back, act, left, mine, true, small);
    }
    for (int r = wanted; r < rows; r++)
        norm(states + (long)r * s.hidden, n->last, s.hidden, s.epsilon, out + (long)(r - wanted) * s.hidden);
}

// One token for each row of scores: the first of the largest at temperature 0, else by the inverse of the cumulative
// distribution from one uniform number; -1 where the scores are not numbers.
void dssr_pick(const float *scores, int rows, int size, const float *temperatures, const double *noise, float *space,
               int32_t *tokens) {
    for (int r = 0; r < rows; r++, scores += size) {
        int best = 0;
        bool sane = true;
        for (int i = 0; i < size; i++) {
            if (scores[i] > scores[best]) best = i;
            sane &= std::isfinite(scores[i]);
        }
        tokens[r] = sane ? best : -1;
        if (!sane || temperatures[r] <= 0) continue;
        float factor = LOG2E / temperatures[r], high = scores[best];
        double total = 0, passed = 0;
        for (int i = 0; i < size; i += LANES) {
            float part[LANES] = {};
            int count = size - i < LANES ? size - i : LANES;
            for (int k = 0; k < LANES; k++) part[k] = k < count ? (scores[i + k] - high) * factor : -126.f;
            vec weight = power(load(part));
            store(part, weight);
            for (int k = 0; k < count; k++) space[i + k] = part[k], total += part[k];
        }
        double goal = noise[r] * total;
        int token = 0;
        for (; token < size - 1; token++) {
            passed += space[token];
            if (passed > goal) break;
        }
        tokens[r] = token;
    }
}
}
