//! The ops. One op, one file; [`OPS`] lists them all.

use crate::error::{Error, Result};
use crate::network::op::OpDef;

pub mod activation;
pub mod arg;
mod blocks;
mod control;
mod cumulative;
pub mod indexing;
pub mod integer_product;
mod normalization;
pub mod pointwise;
pub mod pool;
pub mod recurrent;
pub mod reduce;
mod rewrite;
mod scatter;
pub mod spatial;
pub mod tf32;
pub mod values;

pub mod abs;
pub mod acos;
pub mod acosh;
pub mod add;
pub mod affine_grid;
pub mod and;
pub mod arg_max;
pub mod arg_min;
pub mod asin;
pub mod asinh;
pub mod atan;
pub mod atanh;
pub mod attention;
pub mod average_pool;
pub mod batch_normalization;
pub mod bit_cast;
pub mod bit_shift;
pub mod bitwise_and;
pub mod bitwise_not;
pub mod bitwise_or;
pub mod bitwise_xor;
pub mod cast;
pub mod ceil;
pub mod celu;
pub mod center_crop_pad;
pub mod clip;
pub mod col2im;
pub mod compress;
pub mod concat;
pub mod constant_of_shape;
pub mod conv;
pub mod conv_integer;
pub mod conv_transpose;
pub mod cos;
pub mod cosh;
pub mod cum_prod;
pub mod cum_sum;
pub mod deferred;
pub mod deform_conv;
pub mod depth_to_space;
pub mod dequantize_linear;
pub mod det;
pub mod div;
pub mod dynamic_quantize_linear;
pub mod dynamic_quantize_lstm;
pub mod dynamic_quantize_per_token;
pub mod einsum;
pub mod elu;
pub mod equal;
pub mod erf;
pub mod exp;
pub mod expand;
pub mod flatten;
pub mod floor;
pub mod gather;
pub mod gather_elements;
pub mod gather_nd;
pub mod gelu;
pub mod gemm;
pub mod global_average_pool;
pub mod global_max_pool;
pub mod greater;
pub mod greater_or_equal;
pub mod grid_sample;
pub mod group_normalization;
pub mod gru;
pub mod hard_sigmoid;
pub mod hard_swish;
pub mod hardmax;
pub mod histogram;
pub mod identity;
pub mod if_;
pub mod instance_normalization;
pub mod is_inf;
pub mod is_nan;
pub mod layer_normalization;
pub mod leaky_relu;
pub mod less;
pub mod less_or_equal;
pub mod linear_attention;
pub mod log;
pub mod log_softmax;
pub mod loop_;
pub mod lp_normalization;
pub mod lp_pool;
pub mod lrn;
pub mod lstm;
pub mod matmul;
pub mod matmul_integer;
pub mod matmul_n_bits;
pub mod max;
pub mod max_pool;
pub mod max_pool_indices;
pub mod max_roi_pool;
pub mod max_unpool;
pub mod min;
pub mod mish;
pub mod modulo;
pub mod mul;
pub mod neg;
pub mod non_max_suppression;
pub mod non_zero;
pub mod not;
pub mod one_hot;
pub mod or;
pub mod pad;
pub mod plugin;
pub mod pow;
pub mod prelu;
pub mod quantize_linear;
pub mod range;
pub mod reciprocal;
pub mod reduce_l1;
pub mod reduce_l2;
pub mod reduce_log_sum;
pub mod reduce_log_sum_exp;
pub mod reduce_max;
pub mod reduce_mean;
pub mod reduce_min;
pub mod reduce_prod;
pub mod reduce_sum;
pub mod reduce_sum_square;
pub mod relu;
pub mod reshape;
pub mod resize;
pub mod reverse_sequence;
pub mod rms_normalization;
pub mod rnn;
pub mod roi_align;
pub mod round;
pub mod scan;
pub mod scatter_elements;
pub mod scatter_nd;
pub mod selu;
pub mod shape;
pub mod shrink;
pub mod sigmoid;
pub mod sign;
pub mod silu;
pub mod sin;
pub mod sinh;
pub mod size;
pub mod slice;
pub mod softmax;
pub mod softplus;
pub mod softsign;
pub mod space_to_depth;
pub mod split;
pub mod sqrt;
pub mod squeeze;
pub mod sub;
pub mod tan;
pub mod tanh;
pub mod tf_idf_vectorizer;
pub mod thresholded_relu;
pub mod tile;
pub mod top_k;
pub mod transpose;
pub mod trilu;
pub mod unique;
pub mod unsqueeze;
pub mod r#where;
pub mod xor;

/// Every op, by name.
pub static OPS: &[&OpDef] = &[
    &abs::DEF,
    &acos::DEF,
    &acosh::DEF,
    &add::DEF,
    &affine_grid::DEF,
    &and::DEF,
    &arg_max::DEF,
    &arg_min::DEF,
    &asin::DEF,
    &asinh::DEF,
    &atan::DEF,
    &atanh::DEF,
    &attention::DEF,
    &average_pool::DEF,
    &batch_normalization::DEF,
    &bit_cast::DEF,
    &bit_shift::DEF,
    &bitwise_and::DEF,
    &bitwise_not::DEF,
    &bitwise_or::DEF,
    &bitwise_xor::DEF,
    &cast::DEF,
    &ceil::DEF,
    &celu::DEF,
    &center_crop_pad::DEF,
    &clip::DEF,
    &col2im::DEF,
    &compress::DEF,
    &concat::DEF,
    &constant_of_shape::DEF,
    &conv::DEF,
    &conv_integer::DEF,
    &conv_transpose::DEF,
    &cos::DEF,
    &cosh::DEF,
    &cum_prod::DEF,
    &cum_sum::DEF,
    &deferred::DEF,
    &deform_conv::DEF,
    &depth_to_space::DEF,
    &dynamic_quantize_linear::DEF,
    &dynamic_quantize_lstm::DEF,
    &dynamic_quantize_per_token::DEF,
    &dequantize_linear::DEF,
    &det::DEF,
    &div::DEF,
    &einsum::DEF,
    &elu::DEF,
    &equal::DEF,
    &erf::DEF,
    &exp::DEF,
    &expand::DEF,
    &flatten::DEF,
    &floor::DEF,
    &gather::DEF,
    &gather_elements::DEF,
    &gather_nd::DEF,
    &gelu::DEF,
    &gemm::DEF,
    &global_average_pool::DEF,
    &global_max_pool::DEF,
    &greater::DEF,
    &greater_or_equal::DEF,
    &grid_sample::DEF,
    &group_normalization::DEF,
    &gru::DEF,
    &hard_sigmoid::DEF,
    &hard_swish::DEF,
    &hardmax::DEF,
    &histogram::DEF,
    &identity::DEF,
    &if_::DEF,
    &instance_normalization::DEF,
    &is_inf::DEF,
    &is_nan::DEF,
    &layer_normalization::DEF,
    &leaky_relu::DEF,
    &less::DEF,
    &less_or_equal::DEF,
    &linear_attention::DEF,
    &log::DEF,
    &log_softmax::DEF,
    &loop_::DEF,
    &lp_normalization::DEF,
    &lp_pool::DEF,
    &lrn::DEF,
    &lstm::DEF,
    &matmul::DEF,
    &matmul_integer::DEF,
    &matmul_n_bits::DEF,
    &max::DEF,
    &max_pool::DEF,
    &max_pool_indices::DEF,
    &max_roi_pool::DEF,
    &max_unpool::DEF,
    &min::DEF,
    &mish::DEF,
    &modulo::DEF,
    &mul::DEF,
    &neg::DEF,
    &non_max_suppression::DEF,
    &non_zero::DEF,
    &not::DEF,
    &one_hot::DEF,
    &or::DEF,
    &pad::DEF,
    &plugin::DEF,
    &pow::DEF,
    &prelu::DEF,
    &quantize_linear::DEF,
    &range::DEF,
    &reciprocal::DEF,
    &reduce_l1::DEF,
    &reduce_l2::DEF,
    &reduce_log_sum::DEF,
    &reduce_log_sum_exp::DEF,
    &reduce_max::DEF,
    &reduce_mean::DEF,
    &reduce_min::DEF,
    &reduce_prod::DEF,
    &reduce_sum::DEF,
    &reduce_sum_square::DEF,
    &relu::DEF,
    &reshape::DEF,
    &resize::DEF,
    &reverse_sequence::DEF,
    &rms_normalization::DEF,
    &rnn::DEF,
    &roi_align::DEF,
    &round::DEF,
    &scan::DEF,
    &scatter_elements::DEF,
    &scatter_nd::DEF,
    &selu::DEF,
    &shape::DEF,
    &shrink::DEF,
    &sigmoid::DEF,
    &sign::DEF,
    &silu::DEF,
    &sin::DEF,
    &sinh::DEF,
    &size::DEF,
    &slice::DEF,
    &softmax::DEF,
    &softplus::DEF,
    &softsign::DEF,
    &space_to_depth::DEF,
    &split::DEF,
    &sqrt::DEF,
    &squeeze::DEF,
    &sub::DEF,
    &tan::DEF,
    &tanh::DEF,
    &tf_idf_vectorizer::DEF,
    &thresholded_relu::DEF,
    &tile::DEF,
    &top_k::DEF,
    &transpose::DEF,
    &trilu::DEF,
    &unique::DEF,
    &unsqueeze::DEF,
    &r#where::DEF,
    &xor::DEF,
];

/// The op of a name.
///
/// # Errors
/// If there is none; the nearest name, if there is one, is the hint.
pub fn find(name: &str) -> Result<&'static OpDef> {
    OPS.iter().copied().find(|op| op.name == name).ok_or_else(|| {
        Error::unsupported(format!("there is no op {name:?}")).nearest(name, OPS.iter().map(|op| op.name))
    })
}

/// Offsets of all elements of a `shape`, row-major, in a buffer with these element `strides`.
pub fn places(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    if shape.contains(&0) {
        return vec![];
    }
    let mut places = vec![0];
    for (&size, &stride) in shape.iter().zip(strides) {
        places = places
            .iter()
            .flat_map(|&base| (0..size).map(move |i| base + i * stride))
            .collect();
    }
    places
}

/// Element strides of a dense row-major array.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_and_the_folder_agree() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/network/ops");
        let declares = |text: &str| {
            let helper = text.contains("macro_rules!");
            !helper && (text.contains("pub static DEF") || text.contains("unary_float!("))
        };
        let files: BTreeSet<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.ends_with("mod.rs"))
            .filter(|path| declares(&std::fs::read_to_string(path).unwrap()))
            .collect();
        assert_eq!(files.len(), OPS.len(), "{files:?}");
        let stated =
            |text: &str| text.contains("    infer") && text.contains("    evaluate") || text.contains("unary_float!(");
        let lacks_a_rule = files
            .iter()
            .find(|path| !stated(&std::fs::read_to_string(path).unwrap()));
        assert_eq!(lacks_a_rule, None);
    }

    #[test]
    fn names_are_unique_and_nearest_names_are_found() {
        let names: BTreeSet<_> = OPS.iter().map(|op| op.name).collect();
        assert_eq!(names.len(), OPS.len());
        assert!(find("Conf").unwrap_err().to_string().contains("\"Conv\""));
    }
}
