// Cells of recurrent layers: what a step makes of the products of its inputs and those of the state
// before. Needs activations.glsl, and CELL.

const uint LSTM = 0;
const uint GRU = 1;
const uint TANH_CELL = 2;
const uint RELU_CELL = 3;

const uint GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;

vec4 sigmoid_f(const vec4 v) { return 1.0 / (1.0 + exp(-v)); }

// The next state of an element: of its products with inputs, those with the state, and the state.
// The cell's own state changes with it.
float next_state(const vec4 given, const vec4 own, const float state, inout float cell) {
    if (CELL == LSTM) {
        // Gates for what comes in, for what stays, the new, and for what goes out.
        vec4 open = sigmoid_f(given + own);
        float fresh = tanh_f(given + own).z;
        cell = open.y * cell + open.x * fresh;
        return open.w * tanh_f(vec4(cell)).x;
    }
    if (CELL == GRU) {
        // Gates for what the new takes of the state, and for what stays of it.
        vec4 open = sigmoid_f(given + own);
        float fresh = tanh_f(vec4(given.z + own.z * open.x)).x;
        return (state - fresh) * open.y + fresh;
    }
    vec4 v = given + own;
    return CELL == TANH_CELL ? tanh_f(v).x : mix(max(v.x, 0.0), v.x, isnan(v.x));
}
