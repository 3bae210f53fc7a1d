//! Every form of weights, against the reference.

use super::columns::{Bytes, Columns};
use crate::network::array::Array;
use crate::network::attr::{Attr, attrs};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::testing::Case;
use crate::providers::cpu::simd::Portable;

struct How {
    bits: usize,
    block: usize,
    zeros: bool,
    level: i64,
}

fn check(dtype: DType, k: usize, n: usize, how: &How, rows: &[i64]) {
    let &How {
        bits,
        block,
        zeros,
        level,
    } = how;
    let blocks = k.div_ceil(block);
    let mut case = Case::new(dtype);
    let x = case.input(&format!("m {k}"));
    let bytes: Vec<f64> = (0..n * blocks * block * bits / 8)
        .map(|i| (i * 151 % 256) as f64)
        .collect();
    let b = Array::from_f64(DType::UInt8, vec![n, blocks, block * bits / 8], &bytes).unwrap();
    let scales: Vec<f64> = (0..n * blocks).map(|i| 0.01 + (i % 7) as f64 * 0.003).collect();
    let scales = Array::from_f64(DType::Float32, vec![n * blocks], &scales).unwrap();
    let mut inputs = vec![Some(x), Some(case.constant(b)), Some(case.constant(scales))];
    if zeros {
        let packed: Vec<f64> = (0..n * (blocks * bits).div_ceil(8))
            .map(|i| (i * 37 % 256) as f64)
            .collect();
        let packed = Array::from_f64(DType::UInt8, vec![packed.len()], &packed).unwrap();
        inputs.push(Some(case.constant(packed)));
    }
    let pairs = [("K", k), ("N", n), ("bits", bits), ("block_size", block)];
    let mut given = attrs(pairs.map(|(name, value)| (name, Attr::Int(value as i64))));
    given.insert("accuracy_level".into(), Attr::Int(level));
    let y = case.layer_of("MatMulNBits", given, &inputs)[0];
    case.output(y);
    for &m in rows {
        case.check_fast(&[("m", m)]);
    }
}

#[test]
fn every_form() {
    for bits in [4, 8] {
        for (block, zeros) in [(16, false), (32, true), (128, false), (256, true)] {
            for level in [0, 4] {
                let how = How {
                    bits,
                    block,
                    zeros,
                    level,
                };
                check(DType::Float32, 300, 70, &how, &[0, 1, 2, 3, 9, 21]);
            }
        }
    }
}

#[test]
fn each_number_of_rows_and_16_bits() {
    for level in [0, 4] {
        let how = How {
            bits: 4,
            block: 32,
            zeros: true,
            level,
        };
        check(
            DType::Float32,
            64,
            33,
            &how,
            &[1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 16, 24],
        );
        check(DType::BFloat16, 64, 33, &how, &[1, 9]);
    }
}

/// Without special instructions: what no test above runs where there are some.
#[test]
fn portable_vectors_hold_and_multiply_what_was_packed() {
    let bytes: [u8; 16] = std::array::from_fn(|i| (i * 151 % 256) as u8);
    let x = [[-127i8, 3, 90, -6], [55, -128, 127, 1]];
    let fours = x.map(|x| i32::from_le_bytes(x.map(|x| x as u8)));
    // SAFETY: sixteen bytes are four lanes, and eight neighbours two integers of four.
    let (nibbles, whole, of_4, of_8) = unsafe {
        let start = Portable::start(7);
        (
            Portable::numbers_of_4(bytes.as_ptr()),
            Portable::numbers_of_8(bytes.as_ptr()),
            Portable::add_of_4(start, bytes.as_ptr(), fours.as_ptr(), 1),
            Portable::add_of_8(start, bytes.as_ptr(), fours.as_ptr()),
        )
    };
    for (lane, four) in bytes.chunks_exact(4).enumerate() {
        let at = |k: usize| i32::from(if k < 4 { four[k] & 15 } else { four[k - 4] >> 4 });
        (0..8).for_each(|k| assert_eq!(nibbles[k].0[lane], (at(k) - 8) as f32));
        (0..4).for_each(|k| assert_eq!(whole[k].0[lane], f32::from(four[k]) - 128.0));
        let sum_of_4: i32 = (0..8).map(|k| at(k) * i32::from(x[k / 4][k % 4])).sum();
        let sum_of_8: i32 = (0..4).map(|k| i32::from(four[k]) * i32::from(x[0][k])).sum();
        assert_eq!((of_4[lane], of_8[lane]), (7 + sum_of_4, 7 + sum_of_8));
    }
}
