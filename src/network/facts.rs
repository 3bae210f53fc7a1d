//! What passes and the engine ask of an op besides its types and its numbers. Each op states it in its own file.

use crate::network::attr::Attrs;
use crate::network::dtype::DType;

/// How an op takes floats of 16 bits, for the pass that lowers precision.
#[derive(Debug, Clone, Copy)]
pub struct Lowering {
    /// Whether it may compute in them.
    pub lowers: bool,
    /// Where the numbers that it gives come from.
    pub gives: Gives,
    /// Inputs in which a small error is a large one in the result: angles, exponents, what is rounded or compared.
    pub exact: &'static [usize],
    /// How many inputs, from the first on, it computes with in 16 bits; the rest (scales of a Resize) keep their dtype.
    pub operands: usize,
    /// An input that is added to scores, where numbers out of the range of 16 bits hide a place. The inputs before it decide how
    /// exact the result is.
    pub mask: Option<usize>,
}

/// Where the numbers that an op gives come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// It moves those that it gets, or computes with them one by one.
    Computed,
    /// It sums products; of one alone, that is computed.
    Summed,
    /// It counts: positions, whatever they are counted from.
    Counted,
    /// They are its own: sums, averages, or what is bounded.
    New,
}

impl Lowering {
    /// Moves elements, or hands the error of its operands on as it is.
    pub const COMPUTES: Self = Self::of(true, Gives::Computed);
    /// A product of matrices.
    pub const SUMS: Self = Self::of(true, Gives::Summed);
    /// Sums in wider numbers, or bounds what it gives.
    pub const BEARS: Self = Self::of(true, Gives::New);
    /// Leaves the range of 16 bits, or lets errors grow: it stays float32.
    pub const WIDE: Self = Self::of(false, Gives::Computed);
    /// As [`Self::WIDE`], and what it gives is its own.
    pub const BOUNDED: Self = Self::of(false, Gives::New);
    /// As [`Self::WIDE`], and it counts.
    pub const COUNTS: Self = Self::of(false, Gives::Counted);

    const fn of(lowers: bool, gives: Gives) -> Self {
        Self {
            lowers,
            gives,
            exact: &[],
            operands: usize::MAX,
            mask: None,
        }
    }

    /// The same, where these inputs must be exact.
    pub const fn exact(self, inputs: &'static [usize]) -> Self {
        Self { exact: inputs, ..self }
    }

    /// The same, where only so many inputs are computed with.
    pub const fn operands(self, count: usize) -> Self {
        Self {
            operands: count,
            ..self
        }
    }

    /// The same, where this input is a mask.
    pub const fn mask(self, at: usize) -> Self {
        Self { mask: Some(at), ..self }
    }
}

/// Where the elements of an op that computes nothing come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Movement {
    /// It computes: elements are not only moved.
    None,
    /// All of the first input, in the same order.
    View,
    /// All of the first input, in another order.
    Permute,
    /// Each output is a part of the first input, no element of which is there twice.
    Slice,
    /// The first input, repeated along axes of extent 1.
    Broadcast,
    /// All of all inputs.
    Concat,
    /// Any of the first input, each as often as indices or counts say.
    Pick,
    /// Those of the first input; zeros or elements of another input stand around them or replace some.
    Fill,
    /// At each place, the element of one of several inputs.
    Select,
}

impl Movement {
    /// Whether each element of the first input is in the only output, exactly once.
    pub fn keeps_all(self) -> bool {
        matches!(self, Self::View | Self::Permute)
    }

    /// Whether it gives nothing but elements of its inputs, at places that no data decides: where they lie may be expressed by
    /// addresses and strides.
    pub fn is_layout(self) -> bool {
        matches!(
            self,
            Self::View | Self::Permute | Self::Slice | Self::Broadcast | Self::Concat
        )
    }
}

/// Whether a layer may run at other times than a model says, or more often, or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purity {
    /// The same inputs give the same outputs, and nothing else happens: it may be folded, and merged with its like.
    Pure,
    /// The same, and its first input stores the output in less memory: it is not folded.
    Decompresses,
    /// What it does besides is not known: it runs exactly as often as the model says.
    Opaque,
}

impl Purity {
    /// Whether a constant may replace the layer.
    pub fn folds(self) -> bool {
        self == Self::Pure
    }

    /// Whether one layer may replace two that are alike.
    pub fn merges(self) -> bool {
        self != Self::Opaque
    }
}

/// Whether an op gives the right uint64, though kernels of the processor take its bits for an int64.
#[derive(Clone, Copy)]
pub enum Uint64 {
    /// It does if it only moves elements; else it is refused.
    Moved,
    /// It does: the bits are the same for either dtype, or it tells the two apart.
    Exact,
    /// It does with these attributes, and this dtype of the first input.
    When(fn(&Attrs, DType) -> bool),
    /// It is pointwise, and has a rule of its own for uint64.
    Rule(IntegerRule),
}

/// How one element of integers is computed, from the bits of those of the inputs.
pub type IntegerRule = fn(&Attrs, &[i64]) -> i64;

/// What a count of multiplications sees.
pub struct Sizes<'a> {
    /// The attributes, complete.
    pub attrs: &'a Attrs,
    /// The shape of each input, where it is known.
    pub inputs: &'a [Option<Vec<f64>>],
    /// The shape of the first output.
    pub output: &'a [f64],
}

/// How many multiplications a layer takes, if the extents say so.
pub type Multiplications = fn(&Sizes) -> Option<f64>;

impl Sizes<'_> {
    /// The shape of an input.
    pub fn input(&self, at: usize) -> Option<&[f64]> {
        self.inputs.get(at)?.as_deref()
    }

    /// The product of the extents of an input from an axis on.
    pub fn product(&self, at: usize, axis: usize) -> Option<f64> {
        Some(self.input(at)?.get(axis..)?.iter().product())
    }

    /// The number of elements of the first output.
    pub fn given(&self) -> f64 {
        self.output.iter().product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs, complete};
    use crate::network::op::OpDef;
    use crate::network::ops::{self, OPS};
    use crate::network::reference::evaluate_op;

    fn sorted(arrays: &[Array]) -> Vec<f64> {
        let mut values: Vec<f64> = arrays.iter().flat_map(Array::to_f64).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn iota(dtype: DType, shape: &[usize], first: usize) -> Array {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (first..first + count).map(|v| v as f64).collect();
        Array::from_f64(dtype, shape.to_vec(), &values).unwrap()
    }

    fn indices(shape: &[usize], values: &[i64]) -> Array {
        Array::from_i64(DType::Int64, shape.to_vec(), values).unwrap()
    }

    /// What a moving op gives of the numbers from 1 on in [1, 4, 2, 2], and of those from 21 on where it takes other elements.
    fn moved(op: &OpDef, dtype: DType) -> crate::error::Result<(Array, Vec<Array>)> {
        let x = iota(dtype, &[1, 4, 2, 2], 1);
        let other = |shape: &[usize]| iota(dtype, shape, 21);
        let (inputs, given) = match op.name {
            "Reshape" => (vec![Array::ints(&[2, -1])], attrs([])),
            "Unsqueeze" => (vec![], attrs([("axes", Attr::Ints(vec![1]))])),
            "DepthToSpace" | "SpaceToDepth" => (vec![], attrs([("blocksize", Attr::Int(2))])),
            "Slice" => (vec![Array::ints(&[1]), Array::ints(&[3]), Array::ints(&[1])], attrs([])),
            "Split" => (
                vec![],
                attrs([("axis", Attr::Int(1)), ("split", Attr::Ints(vec![1, 3]))]),
            ),
            "Expand" => (vec![Array::ints(&[3, 4, 2, 2])], attrs([])),
            "Concat" => (vec![other(&[2, 4, 2, 2])], attrs([("axis", Attr::Int(0))])),
            "Gather" => (vec![Array::ints(&[3, 0, 3])], attrs([("axis", Attr::Int(1))])),
            "GatherElements" => (
                vec![indices(&[1, 1, 2, 2], &[0, 0, 0, 1])],
                attrs([("axis", Attr::Int(2))]),
            ),
            "GatherND" => (vec![indices(&[3, 2], &[0, 3, 0, 1, 0, 3])], attrs([])),
            "Tile" => (vec![Array::ints(&[2, 1, 1, 3])], attrs([])),
            "Pad" => (vec![Array::ints(&[0, 1, 0, 0, 0, 0, 0, -1]), other(&[])], attrs([])),
            "ScatterElements" => (vec![indices(&[1, 1, 1, 1], &[0]), other(&[1, 1, 1, 1])], attrs([])),
            "ScatterND" => (vec![indices(&[1, 2], &[0, 2]), other(&[1, 2, 2])], attrs([])),
            "Flatten" | "Identity" | "Squeeze" | "Transpose" | "Trilu" => (vec![], attrs([])),
            "Where" => {
                let condition = Array::from_i64(DType::Bool, vec![2, 2], &[1, 0, 0, 1]).unwrap();
                let inputs = [condition, x.clone(), other(&[1, 4, 2, 2])].map(Some);
                return Ok((x, evaluate_op(op, &attrs([]), &inputs)?));
            }
            other => panic!("{other} moves elements and has no case here"),
        };
        let inputs: Vec<_> = std::iter::once(x.clone()).chain(inputs).map(Some).collect();
        Ok((x, evaluate_op(op, &complete(op.attrs, given)?, &inputs)?))
    }

    #[test]
    fn what_moves_elements_gives_those_that_it_got() {
        for op in OPS.iter().filter(|op| op.moves()) {
            let (x, given) = moved(op, DType::Float32).unwrap();
            let (had, all) = (x.to_f64(), sorted(&given));
            let (mine, others): (Vec<f64>, Vec<f64>) = all.iter().partition(|v| had.contains(v));
            let once = |values: &[f64]| values.windows(2).all(|pair| pair[0] != pair[1]);
            let others_are = |least: f64| others.iter().all(|&v| v == 0.0 || v >= least);
            let holds = match op.movement {
                Movement::None => false,
                Movement::View => given.len() == 1 && given[0].to_f64() == had,
                Movement::Permute => given.len() == 1 && all == sorted(&[x]) && given[0].to_f64() != had,
                Movement::Slice => others.is_empty() && once(&mine),
                Movement::Broadcast => others.is_empty() && mine.len() == 3 * had.len(),
                Movement::Concat => mine == sorted(&[x]) && once(&others) && others.len() == 2 * had.len(),
                Movement::Pick => others.is_empty() && !once(&mine),
                Movement::Fill => once(&mine) && !others.is_empty() && others_are(21.0),
                Movement::Select => {
                    let places = given[0].to_f64().into_iter().zip(had);
                    places.into_iter().all(|(v, had)| v == had || v == had + 20.0)
                }
            };
            assert!(holds, "{} is no {:?}: {all:?}", op.name, op.movement);
        }
    }

    #[test]
    fn what_moves_elements_moves_those_of_few_bits_where_it_says_so() {
        for op in OPS.iter().filter(|op| op.moves()) {
            let found = moved(op, DType::Float8E5M2).map(|(_, given)| given.len());
            assert_eq!(found.is_ok(), op.narrow, "{}: {found:?}", op.name);
        }
    }

    #[test]
    fn integers_from_2_63_on_are_computed_as_unsigned_ones_or_refused() {
        const A: u64 = (1 << 63) + 7;
        let single = |v: u64| Some(Array::from_i64(DType::UInt64, vec![], &[v as i64]).unwrap());
        // BitShift has tests of its own.
        let binary = |op: &&&OpDef| op.inputs.len() == 2 && op.pointwise.is_some() && op.name != "BitShift";
        for op in OPS.iter().filter(binary) {
            for [a, b] in [[A, 3], [3, A], [A, A + 5], [A, A], [1 << 62, 3]] {
                let want = match op.name {
                    "Add" => Some(a.wrapping_add(b)),
                    "Sub" => Some(a.wrapping_sub(b)),
                    "Mul" => Some(a.wrapping_mul(b)),
                    "Div" => Some(a / b),
                    "Mod" => Some(a % b),
                    "Max" => Some(a.max(b)),
                    "Min" => Some(a.min(b)),
                    "Equal" => Some((a == b).into()),
                    "Less" => Some((a < b).into()),
                    "LessOrEqual" => Some((a <= b).into()),
                    "Greater" => Some((a > b).into()),
                    "GreaterOrEqual" => Some((a >= b).into()),
                    "BitwiseAnd" => Some(a & b),
                    "BitwiseOr" => Some(a | b),
                    "BitwiseXor" => Some(a ^ b),
                    "PRelu" => Some(a),
                    // An odd number to the power of 2^62 is 1.
                    "Pow" => Some(a.wrapping_pow((b % (1 << 62)) as u32)),
                    _ => None,
                };
                let given = evaluate_op(op, &complete(op.attrs, attrs([])).unwrap(), &[single(a), single(b)]);
                let got = given.ok().map(|given| given[0].to_i64()[0] as u64);
                assert_eq!(got, want, "{} of {a} and {b}", op.name);
            }
        }
    }

    /// Of ones, each product adds 1 to the sums.
    #[test]
    fn multiplications_are_the_terms_of_sums() {
        let cases: &[(&str, DType, &[&[usize]])] = &[
            ("Conv", DType::Float32, &[&[2, 4, 8, 8], &[6, 4, 3, 3]]),
            ("ConvInteger", DType::UInt8, &[&[2, 4, 8, 8], &[6, 4, 3, 3]]),
            ("ConvTranspose", DType::Float32, &[&[2, 4, 8, 8], &[4, 6, 3, 3]]),
            ("DeformConv", DType::Float32, &[&[1, 4, 8, 8], &[6, 4, 1, 1]]),
            ("MatMul", DType::Float32, &[&[5, 2, 3], &[3, 4]]),
            ("MatMulInteger", DType::UInt8, &[&[5, 2, 3], &[3, 4]]),
            ("Gemm", DType::Float32, &[&[2, 3], &[3, 4]]),
        ];
        for (name, dtype, shapes) in cases {
            let op = ops::find(name).unwrap();
            let attrs = complete(op.attrs, attrs([])).unwrap();
            let ones = |shape: &&[usize]| Array::from_f64(*dtype, shape.to_vec(), &vec![1.0; shape.iter().product()]);
            let mut inputs: Vec<_> = shapes.iter().map(|shape| Some(ones(shape).unwrap())).collect();
            if *name == "DeformConv" {
                inputs.push(Some(Array::from_f64(*dtype, vec![1, 2, 8, 8], &[0.0; 128]).unwrap()));
            }
            let given = evaluate_op(op, &attrs, &inputs).unwrap();
            let extents = |shape: &[usize]| shape.iter().map(|&d| d as f64).collect::<Vec<_>>();
            let sizes = Sizes {
                attrs: &attrs,
                inputs: &shapes.iter().map(|shape| Some(extents(shape))).collect::<Vec<_>>(),
                output: &extents(given[0].shape()),
            };
            let sum = given[0].to_f64().iter().sum::<f64>();
            assert_eq!(op.multiplications.unwrap()(&sizes), Some(sum), "{name}");
        }
    }
}
