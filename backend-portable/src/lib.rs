#![no_std]
//! Kernels.
