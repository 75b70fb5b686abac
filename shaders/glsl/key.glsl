const uint NOT_A_NUMBER = 0xffffffffu;

// An integer that sorts like the elements.
uint key(const uint i) {
    uint bits;
    if (is_float(IN)) {
        float v = x_f(i);
        // Positive and negative zero are equal.
        bits = v == 0.0 ? 0 : floatBitsToUint(v);
        bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
        if (isnan(v)) bits = NOT_A_NUMBER;
    } else {
        bits = uint(x_i(i)) ^ 0x80000000u;
    }
    return DESCENDING != 0 ? ~bits : bits;
}
