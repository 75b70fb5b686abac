// The epilogue of GEMMs and convolutions: y = activation(v + residual). Include after
// activations.glsl and the constants ACTIVATION and HAS_RESIDUAL. The shader declares `residual`
// with RUN_IN; the parameters of the activation are push.a and push.b.

ACTIVATIONS(activation, ACTIVATION)

// Applies to the first `count` of four elements from element `at` on.
#define EPILOGUE(at, v, count) { \
        if (HAS_RESIDUAL != 0) v += residual_each(min((at) + uvec4(0, 1, 2, 3), uvec4((at) + (count) - 1))); \
        v = activation(v, push.a, push.b); \
    }
