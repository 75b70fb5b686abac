/* Softmax in fixed-point arithmetic, with the number formats and roundings of gemmlowp: a polynomial
   for the exponential, and Newton's method for the reciprocal. */
struct tl_softmax {
    /* Multiplier of the difference of two values after a shift to the left: the result has 26
       fractional bits. */
    int32_t multiplier, shift;
    /* The least difference from the maximum whose exponential is not zero. */
    int32_t least;
    int32_t rows, width;
};

/* The product in 31 fractional bits, rounded; one times one saturates. */
static int32_t tl_high_product(int32_t a, int32_t b)
{
    if (a == INT32_MIN && b == INT32_MIN)
        return INT32_MAX;
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}

static int32_t tl_saturating_shift(int32_t value, int32_t bits)
{
    int32_t limit = (int32_t)(((uint32_t)1 << (31 - bits)) - 1);
    return value > limit ? INT32_MAX : value < -limit ? INT32_MIN : value * (1 << bits);
}

/* The exponential, in 31 fractional bits, of a number that is not positive, in 26. */
static int32_t tl_exponential(int32_t exponent)
{
    /* exp(-1/8), 1/3, and exp(-2^n / 4) from n = 0 on, in 31 fractional bits. */
    static const int32_t powers[7] = {1672461947, 1302514674, 790015084, 290630308,
                                      39332535,   720401,     242};
    const int32_t eighth = 1895147668, third = 715827883, quarter = 1 << 24;
    int32_t part, x, square, fourth, above, result, bit;
    uint32_t quarters;
    if (exponent == 0)
        return INT32_MAX;
    /* The remainder in -1/4..0, and the number of quarters. */
    part = (exponent & (quarter - 1)) - quarter;
    quarters = ((uint32_t)part - (uint32_t)exponent) >> 24;
    /* The Taylor series about -1/8. */
    x = part * 32 + (1 << 28);
    square = tl_high_product(x, x);
    fourth = tl_rounded_shift(tl_high_product(square, square), 2);
    above = tl_high_product(fourth + tl_high_product(square, x), third) + square;
    result = eighth + tl_high_product(eighth, x + tl_rounded_shift(above, 1));
    for (bit = 0; bit < 7; bit++)
        if (quarters >> bit & 1)
            result = tl_high_product(result, powers[bit]);
    return result;
}

/* 1 / (1 + x) for x in 0..1, both in 31 fractional bits. */
static int32_t tl_reciprocal(int32_t x)
{
    int64_t sum = (int64_t)x + INT32_MAX;
    int32_t half = (int32_t)((sum + (sum >= 0 ? 1 : -1)) / 2);
    /* Newton's method in 29 fractional bits, from 48/17 - 32/17 x on. */
    uint32_t result = (uint32_t)1515870810 + (uint32_t)tl_high_product(half, -1010580540);
    int32_t turn;
    for (turn = 0; turn < 3; turn++) {
        uint32_t error = ((uint32_t)1 << 29) - (uint32_t)tl_high_product(half, (int32_t)result);
        int32_t change = tl_high_product((int32_t)result, (int32_t)error);
        result += (uint32_t)tl_saturating_shift(change, 2);
    }
    return tl_saturating_shift((int32_t)result, 1);
}

static void tl_softmax_rows(const struct tl_softmax *s, const int8_t *input, int8_t *out)
{
    int32_t row, at;
    for (row = 0; row < s->rows; row++, input += s->width, out += s->width) {
        int32_t largest = -128, headroom = 0, bits, reciprocal;
        uint32_t sum = 0;
        for (at = 0; at < s->width; at++)
            if (input[at] > largest)
                largest = input[at];
        for (at = 0; at < s->width; at++) {
            int32_t difference = input[at] - largest;
            int32_t exponent = (int32_t)((uint32_t)difference << s->shift);
            if (difference >= s->least)
                sum += (uint32_t)tl_rounded_shift(
                    tl_exponential(tl_high_product(exponent, s->multiplier)), 12);
        }
        while (headroom < 32 && !(sum << headroom & 0x80000000u))
            headroom++;
        /* The sum without its leading one, as a fraction. */
        reciprocal = tl_reciprocal((int32_t)((headroom > 0 && headroom < 32 ? sum << headroom : 0)
                                             - 0x80000000u));
        bits = 35 - headroom;
        for (at = 0; at < s->width; at++) {
            int32_t difference = input[at] - largest, share = 0;
            int32_t exponent = (int32_t)((uint32_t)difference << s->shift);
            /* With more bits, all results round to zero. */
            if (difference >= s->least && bits < 32) {
                int32_t power = tl_exponential(tl_high_product(exponent, s->multiplier));
                share = tl_rounded_shift(tl_high_product(reciprocal, power), bits);
            }
            out[at] = (int8_t)tl_bounded((int32_t)((uint32_t)share - 128), -128, 127);
        }
    }
}
