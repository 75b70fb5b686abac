// What is done to results of products and convolutions before they are written: y = activation(v + residual).
// Include after run.glsl and functions.glsl; the shader declares `residual` with RUN_IN and the constants ACTIVATION, HAS_RESIDUAL;
// the parameters of the activation are push.a and push.b.

// The first `count` of four elements from element `at` on.
#define EPILOGUE(at, v, count) { \
        if (HAS_RESIDUAL != 0) v += residual_each(min((at) + uvec4(0, 1, 2, 3), uvec4((at) + (count) - 1))); \
        v = unary_f(ACTIVATION, v, push.a, push.b); \
    }
