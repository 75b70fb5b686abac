//! What is done to a graph: each pass computes the same with less.
