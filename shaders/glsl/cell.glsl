// Cells of recurrent layers: compute the next state from the projections of the input and of the
// previous state. Requires activations.glsl, and CELL.

const uint LSTM = 0;
const uint GRU = 1;
const uint TANH_CELL = 2;
const uint RELU_CELL = 3;

const uint GATES = CELL == LSTM ? 4 : CELL == GRU ? 3 : 1;

vec4 sigmoid_f(const vec4 v) { return 1.0 / (1.0 + exp(-v)); }

// Returns the next state of an element, from the gates' input and state projections and the
// previous state. Also updates the cell state.
float next_state(const vec4 given, const vec4 own, const float state, inout float cell) {
    if (CELL == LSTM) {
        // Input gate, forget gate, candidate, and output gate.
        vec4 open = sigmoid_f(given + own);
        float fresh = tanh_f(given + own).z;
        cell = open.y * cell + open.x * fresh;
        return open.w * tanh_f(vec4(cell)).x;
    }
    if (CELL == GRU) {
        // Reset gate and update gate.
        vec4 open = sigmoid_f(given + own);
        float fresh = tanh_f(vec4(given.z + own.z * open.x)).x;
        return (state - fresh) * open.y + fresh;
    }
    vec4 v = given + own;
    return CELL == TANH_CELL ? tanh_f(v).x : mix(max(v.x, 0.0), v.x, isnan(v.x));
}
