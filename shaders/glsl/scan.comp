#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Sums or products of all elements up to each one, along the middle of three dimensions: out[o, k,
// r] = in[o, 0, r] + … + in[o, k, r]. Or logarithms of sums of their powers of e; or where the
// largest or the smallest is, the last of equal ones, where what is not a number is beyond all
// others. EACH of four consecutive outputs of an invocation goes on where the one before it ended,
// if that is of the same line. LINES: an invocation goes along four, from their first elements to
// the last. ROW: a workgroup goes along a line of neighbours, whose invocations have a share each:
// once for what all of it comes to, and, when that is known of those before, once more. Outputs are
// of 32 bits there.
//
// PyTorch has 64 bits in between, where sums and products of finite numbers may be larger than
// those of 32 bits: so they are counted twice, the second time by a fraction of them, or with their
// exponents apart, and that is the result where the first is none.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OUT = 0;
layout(constant_id = 6) const uint FORM = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint count; // of the dimension
    uint inner; // elements behind it
} push;

const uint SUM = 0;
const uint PROD = 1;
const uint LOG_SUM = 2;
const uint LARGEST = 3;
const uint SMALLEST = 4;

const uint EACH = 0;
const uint LINES = 1; // beside each other, of a multiple of four
const uint ROW = 2;

const bool FINDS_PLACES = FUNCTION == LARGEST || FUNCTION == SMALLEST;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

const float LESS = 1.0 / 65536.0;

// In two steps, as a power of two may have no place where a product with it has.
float scaled(const float f, const int exponent) {
    int half_exponent = clamp(exponent / 2, -126, 126);
    return f * exp2(float(half_exponent)) * exp2(float(clamp(exponent - half_exponent, -126, 126)));
}

// Of a line, so far.
struct Line {
    float f;
    float apart;
    int exponent;
    bool finite;
    // The sum of what is not finite, or the product of that, of zeros, and of the signs of all
    // else: which a part of a line whose numbers alone are too large or too small for 32 bits
    // leaves as it is.
    float beyond;
    int n; // of a place: less than zero before the first
    int best;
};

const float INFINITY = uintBitsToFloat(0x7f800000u);

Line none() {
    if (FINDS_PLACES) return Line(0.0, 0.0, 0, true, 0.0, -1, 0);
    if (FUNCTION == LOG_SUM) return Line(-INFINITY, 0.0, 0, true, 0.0, 0, 0);
    return FUNCTION == PROD ? Line(1.0, 1.0, 0, true, 1.0, 1, 0) : Line(0.0, 0.0, 0, true, 0.0, 0, 0);
}

// As a sum of powers relative to the largest, which is between 1 and the number of these.
// Infinities are what the sum is then.
void take_power(inout Line line, const float v) {
    float largest = max(line.f, v);
    // Further down, there is nothing left of a power.
    vec2 powers = exp(max(vec2(line.f, v) - largest, vec2(-128.0)));
    line.apart = isinf(largest) ? 1.0 : line.apart * powers.x + powers.y;
    line.f = largest;
    line.finite = line.finite && !isnan(v);
}

void take_place(inout Line line, const uint i, const uint k) {
    bool first = line.n < 0;
    bool leads;
    if (is_float(IN)) {
        float v = x_f(i);
        leads = isnan(v) || (!isnan(line.f) && (FUNCTION == LARGEST ? v >= line.f : v <= line.f));
        if (leads || first) line.f = v;
    } else {
        int v = x_i(i);
        leads = FUNCTION == LARGEST ? v >= line.best : v <= line.best;
        if (leads || first) line.best = v;
    }
    if (leads || first) line.n = int(k);
}

void take_f(inout Line line, const float v) {
    if (FUNCTION == LOG_SUM) {
        take_power(line, v);
        return;
    }
    bool finite = !isnan(v) && !isinf(v);
    line.finite = line.finite && finite;
    line.f = FUNCTION == SUM ? line.f + v : line.f * v;
    if (FUNCTION == SUM) {
        line.apart += v * LESS;
        line.beyond += finite ? 0.0 : v;
        return;
    }
    line.beyond *= finite ? sign(v) : v;
    if (line.finite) {
        int own;
        int both;
        line.apart = frexp(line.apart * frexp(v, own), both);
        line.exponent += own + both;
    }
}

void take_i(inout Line line, const int v) { line.n = FUNCTION == SUM ? line.n + v : line.n * v; }

float result(const Line line) {
    if (FUNCTION == LOG_SUM) {
        if (!line.finite) return uintBitsToFloat(0x7fc00000u);
        return isinf(line.f) ? line.f : line.f + log(line.apart);
    }
    if (!line.finite) return line.beyond;
    bool is_none = isnan(line.f) || isinf(line.f) || (FUNCTION == PROD && line.f == 0.0);
    if (!is_none) return line.f;
    return FUNCTION == SUM ? line.apart / LESS : scaled(line.apart, line.exponent);
}

// Elements of a line that are on their way at once.
const uint AHEAD = 8;

// Four lines beside each other, from their first elements on.
void four_lines(const uint start) {
    Line lines[4] = Line[4](none(), none(), none(), none());
    for (uint k = 0; k < push.count; k += AHEAD) {
        if (is_float(OUT)) {
            vec4 read[AHEAD];
            [[unroll]] for (uint j = 0; j < AHEAD; ++j) read[j] = x_f4(start + min(k + j, push.count - 1) * push.inner);
            [[unroll]] for (uint j = 0; j < AHEAD; ++j) {
                if (k + j >= push.count) break;
                vec4 results;
                [[unroll]] for (uint l = 0; l < 4; ++l) {
                    take_f(lines[l], read[j][l]);
                    results[l] = result(lines[l]);
                }
                y_write_f4(start + (k + j) * push.inner, results);
            }
        } else {
            for (uint j = k; j < min(k + AHEAD, push.count); ++j) {
                uint at = start + j * push.inner;
                if (FINDS_PLACES) {
                    [[unroll]] for (uint l = 0; l < 4; ++l) take_place(lines[l], at + l, j);
                } else {
                    ivec4 read = x_i4(at);
                    [[unroll]] for (uint l = 0; l < 4; ++l) take_i(lines[l], read[l]);
                }
                y_write_i4(at, ivec4(lines[0].n, lines[1].n, lines[2].n, lines[3].n));
            }
        }
    }
}

// Of a part of a line and what comes behind it.
Line join(const Line a, const Line b) {
    Line both = a;
    if (FINDS_PLACES) {
        if (b.n < 0) return a;
        bool leads = a.n < 0;
        if (is_float(IN)) {
            bool beyond = FUNCTION == LARGEST ? b.f >= a.f : b.f <= a.f;
            leads = leads || isnan(b.f) || (!isnan(a.f) && beyond);
        } else {
            leads = leads || (FUNCTION == LARGEST ? b.best >= a.best : b.best <= a.best);
        }
        if (leads) both = b;
        return both;
    }
    both.finite = a.finite && b.finite;
    if (FUNCTION == LOG_SUM) {
        both.f = max(a.f, b.f);
        vec2 powers = exp(max(vec2(a.f, b.f) - both.f, vec2(-128.0)));
        both.apart = isinf(both.f) ? 1.0 : a.apart * powers.x + b.apart * powers.y;
    } else if (FUNCTION == SUM) {
        both.f = a.f + b.f;
        both.apart = a.apart + b.apart;
        both.beyond = a.beyond + b.beyond;
        both.n = a.n + b.n;
    } else {
        both.f = a.f * b.f;
        both.beyond = a.beyond * b.beyond;
        both.n = a.n * b.n;
        if (both.finite) {
            int exponent;
            both.apart = frexp(a.apart * b.apart, exponent);
            both.exponent = a.exponent + b.exponent + exponent;
        }
    }
    return both;
}

const uint MOST_SHARES = FORM == ROW ? 128 : 1;
shared Line shares[MOST_SHARES];

void take(inout Line line, const uint i, const uint k) {
    if (FINDS_PLACES) take_place(line, i, k);
    else if (is_float(OUT)) take_f(line, x_f(i));
    else take_i(line, x_i(i));
}

void row() {
    uint lane = gl_LocalInvocationID.x;
    uint start = invocation_y() * push.count;
    if (start >= push.numel) return;
    uint share = (push.count + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
    uint from = min(lane * share, push.count);
    uint end = min(from + share, push.count);
    Line line = none();
    for (uint k = from; k < end; ++k) take(line, start + k, k);
    shares[lane] = line;
    barrier();
    for (uint away = 1; away < gl_WorkGroupSize.x; away *= 2) {
        bool has = lane >= away;
        if (has) line = join(shares[lane - away], line);
        barrier();
        shares[lane] = line;
        barrier();
    }
    line = none();
    if (lane > 0) line = shares[lane - 1];
    for (uint k = from; k < end; ++k) {
        take(line, start + k, k);
        y.words[start + k] = is_float(OUT) ? floatBitsToUint(result(line)) : uint(line.n);
    }
}

void main() {
    if (FORM == ROW) {
        row();
        return;
    }
    if (FORM == LINES) {
        uint quads = push.inner / 4;
        uint outer = invocation_x() / quads;
        if (outer < push.numel / (push.count * push.inner)) {
            four_lines(outer * push.count * push.inner + invocation_x() % quads * 4);
        }
        return;
    }
    uint first = invocation_x() * 4;
    if (first >= push.numel) return;
    vec4 results = vec4(0);
    ivec4 whole = ivec4(0);
    Line line = none();
    for (uint lane = 0; lane < 4; ++lane) {
        uint i = first + lane;
        if (i >= push.numel) break;
        uint k = i / push.inner % push.count;
        uint from = k;
        if (lane == 0 || push.inner != 1 || k == 0) {
            line = none();
            from = 0;
        }
        for (uint j = from; j <= k; ++j) {
            uint at = i - (k - j) * push.inner;
            take(line, at, j);
        }
        results[lane] = result(line);
        whole[lane] = line.n;
    }
    if (is_float(OUT)) y_write_f4(first, results);
    else y_write_i4(first, whole);
}
