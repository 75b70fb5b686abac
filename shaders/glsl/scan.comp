#version 450
#extension GL_GOOGLE_include_directive : require
#include "tensor.glsl"

// Prefix scan over the middle of three dimensions: cumulative sums or products, out[o, k, r] =
// in[o, 0, r] + … + in[o, k, r]; cumulative log-sum-exp; or the index of the cumulative maximum or
// minimum, the last of equal elements, where NaN exceeds all others.
//
// EACH: an invocation computes four consecutive outputs; each continues the previous one if it is
// in the same line. LINES: an invocation scans four lines from start to end. ROW: a workgroup scans
// a contiguous line, of which each invocation has a segment. It is scanned once for the total of
// each segment, and again when the totals before it are known. Outputs are 32-bit in this case.
//
// PyTorch uses 64-bit intermediate values, whose sums and products of finite values may exceed the
// 32-bit range. They are therefore computed twice: the second time scaled down, or with separate
// exponents. That result is used if the first one is not finite.

layout(constant_id = 3) const uint FUNCTION = 0;
layout(constant_id = 4) const uint IN = 0;
layout(constant_id = 5) const uint OUT = 0;
layout(constant_id = 6) const uint FORM = 0;

layout(push_constant) uniform Push {
    uint numel;
    uint count; // of the dimension
    uint inner; // elements of the inner dimensions
} push;

const uint SUM = 0;
const uint PROD = 1;
const uint LOG_SUM = 2;
const uint MAX = 3;
const uint MIN = 4;

const uint EACH = 0;
const uint LINES = 1; // adjacent lines, in multiples of four
const uint ROW = 2;

const bool FINDS_PLACES = FUNCTION == MAX || FUNCTION == MIN;

TENSOR_IN(0, x, IN)
TENSOR_OUT(1, y, OUT)

const float LESS = 1.0 / 65536.0;

// In two steps, because a power of two may overflow although its product does not.
float scaled(const float f, const int exponent) {
    int half_exponent = clamp(exponent / 2, -126, 126);
    return f * exp2(float(half_exponent)) * exp2(float(clamp(exponent - half_exponent, -126, 126)));
}

// The state of a line so far.
struct Line {
    float f;
    float apart;
    int exponent;
    bool finite;
    // The sum of non-finite values; or the product of these, of zeros, and of the signs of all
    // others. A segment whose finite values alone overflow or underflow 32 bits does not change it.
    float beyond;
    int n; // of an index: negative before the first
    int best;
};

const float INFINITY = uintBitsToFloat(0x7f800000u);

Line none() {
    if (FINDS_PLACES) return Line(0.0, 0.0, 0, true, 0.0, -1, 0);
    if (FUNCTION == LOG_SUM) return Line(-INFINITY, 0.0, 0, true, 0.0, 0, 0);
    return FUNCTION == PROD ? Line(1.0, 1.0, 0, true, 1.0, 1, 0) : Line(0.0, 0.0, 0, true, 0.0, 0, 0);
}

// Adds to a sum of exponentials relative to the maximum, which is between 1 and the number of
// terms. An infinite maximum is the result itself.
void take_power(inout Line line, const float v) {
    float largest = max(line.f, v);
    // Smaller exponentials are zero.
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
        leads = isnan(v) || (!isnan(line.f) && (FUNCTION == MAX ? v >= line.f : v <= line.f));
        if (leads || first) line.f = v;
    } else {
        int v = x_i(i);
        leads = FUNCTION == MAX ? v >= line.best : v <= line.best;
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

// Elements of a line whose loads are in flight at once.
const uint AHEAD = 8;

// Scans four adjacent lines.
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

// Combines a segment of a line with the following one.
Line join(const Line a, const Line b) {
    Line both = a;
    if (FINDS_PLACES) {
        if (b.n < 0) return a;
        bool leads = a.n < 0;
        if (is_float(IN)) {
            bool beyond = FUNCTION == MAX ? b.f >= a.f : b.f <= a.f;
            leads = leads || isnan(b.f) || (!isnan(a.f) && beyond);
        } else {
            leads = leads || (FUNCTION == MAX ? b.best >= a.best : b.best <= a.best);
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

const uint MAX_SHARES = FORM == ROW ? 128 : 1;
shared Line shares[MAX_SHARES];

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
