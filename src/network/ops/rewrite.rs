//! What decompositions share: short words for the layers that they write.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, Read, attrs};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{OpDef, TensorType};
use crate::network::ops::{add, cast, div, mul, reduce_mean, reshape, sqrt, sub, transpose};
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// One layer on its way to smaller ones.
pub struct Rewrite<'n> {
    layer: &'n Layer,
    patch: Patch<'n>,
}

impl<'n> Rewrite<'n> {
    /// Starts to rewrite a layer.
    pub fn of(network: &'n Network, id: LayerId) -> Self {
        Self {
            layer: &network[id],
            patch: Patch::new(network),
        }
    }

    /// The attributes of the layer.
    pub fn attrs(&self) -> &'n Attrs {
        &self.layer.attrs
    }

    /// An input of the layer.
    pub fn input(&self, index: usize) -> Result<TensorId> {
        self.optional(index)
            .ok_or_else(|| Error::invalid(format!("input {index} is missing")).layer(&self.layer.name))
    }

    /// An optional input of the layer.
    pub fn optional(&self, index: usize) -> Option<TensorId> {
        self.layer.inputs.get(index).copied().flatten()
    }

    /// The type of a tensor.
    pub fn ty(&self, tensor: TensorId) -> &TensorType {
        self.patch.ty(tensor)
    }

    /// The type of an output of the layer.
    pub fn output(&self, index: usize) -> &TensorType {
        self.ty(self.layer.outputs[index])
    }

    /// A constant.
    pub fn constant(&mut self, array: Array) -> TensorId {
        self.patch.constant(array)
    }

    /// A rank-0 constant.
    pub fn number(&mut self, dtype: DType, value: f64) -> TensorId {
        self.patch.scalar(dtype, value)
    }

    /// A layer without attributes.
    pub fn apply(&mut self, op: &'static OpDef, inputs: &[TensorId]) -> Result<TensorId> {
        self.patch.add(op, Attrs::new(), inputs)
    }

    /// A layer with attributes.
    pub fn apply_with<const N: usize>(
        &mut self,
        op: &'static OpDef,
        pairs: [(&str, Attr); N],
        inputs: &[TensorId],
    ) -> Result<TensorId> {
        self.patch.add(op, attrs(pairs), inputs)
    }

    /// A layer of one input with the attributes of the layer that is rewritten.
    pub fn apply_same(&mut self, op: &'static OpDef, x: TensorId) -> Result<TensorId> {
        self.apply_all_same(op, &[x])
    }

    /// A layer with the attributes of the layer that is rewritten.
    pub fn apply_all_same(&mut self, op: &'static OpDef, inputs: &[TensorId]) -> Result<TensorId> {
        self.patch.add(op, self.layer.attrs.clone(), inputs)
    }

    /// A layer of two inputs, the second a number of the first one's dtype.
    pub fn apply_number(&mut self, op: &'static OpDef, x: TensorId, number: f64) -> Result<TensorId> {
        let dtype = self.ty(x).dtype;
        let number = self.number(dtype, number);
        self.apply(op, &[x, number])
    }

    /// A reduction that keeps the reduced dimensions as 1.
    pub fn reduce(&mut self, op: &'static OpDef, x: TensorId, axes: &[usize]) -> Result<TensorId> {
        let axes = Attr::Ints(axes.iter().map(|&a| a as i64).collect());
        self.apply_with(op, [("axes", axes), ("keepdims", Attr::Int(1))], &[x])
    }

    /// The dimensions in another order.
    pub fn transpose(&mut self, x: TensorId, perm: &[usize]) -> Result<TensorId> {
        if perm.iter().copied().eq(0..perm.len()) {
            return Ok(x);
        }
        let perm = Attr::Ints(perm.iter().map(|&axis| axis as i64).collect());
        self.apply_with(&transpose::DEF, [("perm", perm)], &[x])
    }

    /// The same elements under another shape.
    pub fn reshape(&mut self, x: TensorId, shape: Vec<Dim>) -> Result<TensorId> {
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        let target = self.shape("shape", shape);
        self.apply_with(&reshape::DEF, [("allowzero", Attr::Int(1))], &[x, target])
    }

    /// A rank-0 integer that the shapes determine.
    pub fn whole(&mut self, value: Dim) -> TensorId {
        self.patch.symbolic("extent", DType::Int64, vec![], vec![value])
    }

    /// A vector of integers that the shapes determine.
    pub fn shape(&mut self, name: &str, value: Vec<Dim>) -> TensorId {
        self.patch.symbolic(name, DType::Int64, vec![value.len().into()], value)
    }

    /// The first output of the layer, when the shapes determine its elements.
    pub fn known_output(&mut self) -> Result<TensorId> {
        let TensorType { dtype, shape, value } = self.output(0).clone();
        let value = value.ok_or_else(|| Error::internal("the value is not known").layer(&self.layer.name))?;
        Ok(self.patch.symbolic(&self.layer.name, dtype, shape, value))
    }

    /// One value per channel, [C], shaped to be broadcast along axis 1 of a tensor of this rank.
    pub fn per_channel(&mut self, x: TensorId, rank: usize) -> Result<TensorId> {
        let mut shape = self.ty(x).shape.clone();
        shape.resize(rank.saturating_sub(1).max(1), 1i64.into());
        self.reshape(x, shape)
    }

    /// The same values as another dtype; within a kernel they need not be rounded.
    pub fn cast(&mut self, x: TensorId, dtype: DType) -> Result<TensorId> {
        if self.ty(x).dtype == dtype {
            return Ok(x);
        }
        self.patch.add(&cast::DEF, cast::elidable(dtype), &[x])
    }

    /// The same values, 16-bit floats as float32.
    pub fn widened(&mut self, x: TensorId) -> Result<TensorId> {
        let dtype = self.ty(x).dtype;
        self.cast(x, if dtype.size() < 4 { DType::Float32 } else { dtype })
    }

    /// The same values in the dtype in which the layer's `stash_type` wants statistics.
    pub fn stashed(&mut self, x: TensorId) -> Result<TensorId> {
        if self.attrs().int("stash_type") == 1 {
            self.widened(x)
        } else {
            Ok(x)
        }
    }

    /// `x / sqrt(mean(x^2) + epsilon)` over the axes, after the mean was taken off if `centred`.
    pub fn normalised(&mut self, x: TensorId, axes: &[usize], epsilon: f64, centred: bool) -> Result<TensorId> {
        let mut d = x;
        if centred {
            let mean = self.reduce(&reduce_mean::DEF, x, axes)?;
            d = self.apply(&sub::DEF, &[x, mean])?;
        }
        let square = self.apply(&mul::DEF, &[d, d])?;
        let variance = self.reduce(&reduce_mean::DEF, square, axes)?;
        let variance = self.apply_number(&add::DEF, variance, epsilon)?;
        let deviation = self.apply(&sqrt::DEF, &[variance])?;
        self.apply(&div::DEF, &[d, deviation])
    }

    /// `x * scale + bias`.
    pub fn affine(&mut self, x: TensorId, scale: TensorId, bias: Option<TensorId>) -> Result<TensorId> {
        let scaled = self.apply(&mul::DEF, &[x, scale])?;
        bias.map_or(Ok(scaled), |bias| self.apply(&add::DEF, &[scaled, bias]))
    }

    /// `x * scale + bias` with inputs 1 and 2 of the layer, which have one value per channel.
    pub fn affine_channels(&mut self, x: TensorId) -> Result<TensorId> {
        let rank = self.ty(x).rank();
        let scale = self.per_channel(self.input(1)?, rank)?;
        let bias = self.per_channel(self.input(2)?, rank)?;
        self.affine(x, scale, Some(bias))
    }

    /// A layer with the attributes of the layer that is rewritten, and inputs that may be left out; all outputs.
    pub fn apply_optional(&mut self, op: &'static OpDef, inputs: &[Option<TensorId>]) -> Result<Vec<TensorId>> {
        self.patch.add_named("", op, self.layer.attrs.clone(), inputs)
    }

    /// A layer with these attributes.
    pub fn apply_by(&mut self, op: &'static OpDef, attrs: Attrs, inputs: &[TensorId]) -> Result<TensorId> {
        self.patch.add(op, attrs, inputs)
    }

    /// The patch as it is, for who goes on with it.
    pub fn into_patch(self) -> Patch<'n> {
        self.patch
    }

    /// The patch: the results stand for the outputs of the layer.
    pub fn finish_all(mut self, results: &[TensorId]) -> Result<Patch<'n>> {
        for (&output, &result) in self.layer.outputs.iter().zip(results) {
            self.patch.shunt(output, result)?;
        }
        Ok(self.patch)
    }

    /// The patch: `result` stands for the first output of the layer.
    pub fn finish(mut self, result: TensorId) -> Result<Patch<'n>> {
        self.patch.shunt(self.layer.outputs[0], result)?;
        Ok(self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::complete;
    use crate::network::op::Decomposition;
    use crate::network::ops::OPS;
    use crate::network::reference::{evaluate, evaluate_op};

    /// Operands of products of integers are such; those of every other op float64.
    fn dtype(op: &OpDef) -> DType {
        if op.name.ends_with("Integer") {
            DType::UInt8
        } else if op.name.starts_with("DynamicQuantize") {
            DType::Float32
        } else {
            DType::Float64
        }
    }

    /// A shape of numbers, random but the same in each run, in 0.1..1.1 (positive: some ops want that), or of any uint8.
    fn numbers(dtype: DType, shape: &[usize]) -> Array {
        let mut state = shape.iter().sum::<usize>() as u64 + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / (1u64 << 24) as f64 + 0.1
        };
        let values: Vec<_> = (0..shape.iter().product()).map(|_| next()).collect();
        let values: Vec<_> = match dtype {
            DType::UInt8 => values.iter().map(|v| (v - 0.1) * 256.0).collect(),
            _ => values,
        };
        Array::from_f64(dtype, shape.to_vec(), &values).unwrap()
    }

    /// Shapes of the inputs, and attributes, for each op that is given by smaller ones.
    fn samples(op: &str) -> Vec<(Vec<Vec<usize>>, Attrs)> {
        let ints = |name: &'static str, values: &[i64]| (name, Attr::Ints(values.to_vec()));
        let int = |name: &'static str, value: i64| (name, Attr::Int(value));
        let image = vec![2, 4, 3, 5];
        match op {
            "Attention" => {
                let of = |heads: usize, rows: usize| vec![2, heads, rows, 4];
                let causal = attrs([int("is_causal", 1), ("softcap", Attr::Float(2.0))]);
                vec![
                    (vec![of(2, 3), of(2, 5), of(2, 5), vec![2, 1, 1, 5]], attrs([])),
                    (vec![of(4, 5), of(2, 5), of(2, 5)], causal),
                ]
            }
            "BatchNormalization" => vec![(vec![image, vec![4], vec![4], vec![4], vec![4]], attrs([]))],
            "Einsum" => {
                let equation = |text: &str| attrs([("equation", Attr::Text(text.into()))]);
                vec![
                    (vec![vec![2, 3, 4], vec![2, 5, 4]], equation("bik, bjk -> bji")),
                    (vec![vec![2, 1, 3, 4], vec![7, 4, 5]], equation("...ik,...kj")),
                    (vec![vec![2, 3], vec![3, 4], vec![4, 2]], equation("ij,jk,kl->li")),
                    (vec![vec![2, 3, 4], vec![5]], equation("abc,d->cd")),
                    (vec![vec![2, 3]], equation("ij->")),
                    (vec![vec![2, 3, 3]], equation("bii->ib")),
                    (vec![vec![3, 3, 3], vec![3, 2]], equation("iii,ij->j")),
                    (vec![vec![2, 3, 4]], equation("...j->j")),
                    (vec![vec![2, 1, 3, 4], vec![5, 4, 6]], equation("...ij,...jk->ik")),
                ]
            }
            "Flatten" => vec![
                (vec![image.clone()], attrs([int("axis", -2)])),
                (vec![image], attrs([int("axis", 0)])),
            ],
            "Gemm" => {
                let scales = [("alpha", Attr::Float(0.5)), ("beta", Attr::Float(2.0))];
                let operands = vec![vec![2, 3], vec![4, 2], vec![4]];
                let plain = (vec![vec![2, 3], vec![3, 4]], attrs([]));
                let [alpha, beta] = scales;
                vec![
                    plain,
                    (operands, attrs([alpha, beta, int("transA", 1), int("transB", 1)])),
                ]
            }
            "DynamicQuantizeLinear" => vec![(vec![vec![3, 5]], attrs([])), (vec![image], attrs([]))],
            "ConvInteger" => vec![
                (
                    vec![image.clone(), vec![6, 4, 3, 3], vec![], vec![6, 1, 1, 1]],
                    attrs([]),
                ),
                (
                    vec![vec![1, 70, 6], vec![2, 35, 5]],
                    attrs([int("group", 2), ints("pads", &[2, 2])]),
                ),
            ],
            "MatMulInteger" => vec![
                (vec![vec![2, 5, 16], vec![16, 3], vec![5, 1], vec![3]], attrs([])),
                (vec![vec![1, 5000], vec![5000, 2]], attrs([])),
            ],
            // Their weights are constants: they have tests of their own.
            "DynamicQuantizeLSTM" | "MatMulNBits" => vec![],
            "ConstantOfShape" => vec![(
                vec![vec![2, 3]],
                attrs([("dtype", Attr::Type(DType::Int32)), ("value", Attr::Float(7.0))]),
            )],
            "DepthToSpace" => ["DCR", "CRD"]
                .map(|mode| {
                    (
                        vec![vec![2, 8, 3, 1]],
                        attrs([int("blocksize", 2), ("mode", Attr::Text(mode.into()))]),
                    )
                })
                .to_vec(),
            "SpaceToDepth" => ["DCR", "CRD"]
                .map(|mode| {
                    (
                        vec![vec![2, 3, 4, 6]],
                        attrs([int("blocksize", 2), ("mode", Attr::Text(mode.into()))]),
                    )
                })
                .to_vec(),
            "Gelu" => vec![
                (vec![image.clone()], attrs([])),
                (vec![image], attrs([("approximate", Attr::Text("tanh".into()))])),
            ],
            "GroupNormalization" => vec![(vec![image, vec![4], vec![4]], attrs([int("num_groups", 2)]))],
            "InstanceNormalization" => vec![(vec![image, vec![4], vec![4]], attrs([]))],
            "LayerNormalization" => vec![
                (vec![image.clone(), vec![5], vec![5]], attrs([])),
                (vec![image, vec![3, 5]], attrs([int("axis", 2)])),
            ],
            "RMSNormalization" => vec![(vec![image, vec![5]], attrs([]))],
            "LpNormalization" => [1, 2]
                .map(|p| (vec![image.clone()], attrs([int("p", p), int("axis", 1)])))
                .to_vec(),
            "Squeeze" => vec![
                (vec![vec![1, 3, 1]], attrs([])),
                (vec![vec![1, 3, 1]], attrs([ints("axes", &[-1])])),
            ],
            "Unsqueeze" => vec![(vec![vec![2, 3]], attrs([ints("axes", &[0, -1])]))],
            name if name.starts_with("Reduce") => vec![
                (vec![image.clone()], attrs([ints("axes", &[1, -1]), int("keepdims", 0)])),
                (vec![image.clone()], attrs([])),
                (vec![image], attrs([int("noop_with_empty_axes", 1)])),
            ],
            _ => vec![(vec![image], attrs([]))],
        }
    }

    #[test]
    fn a_decomposition_computes_what_the_op_computes() {
        for op in OPS.iter().copied() {
            let (Decomposition::Always(decompose) | Decomposition::WithoutKernel(decompose)) = op.decomposition else {
                continue;
            };
            for (shapes, given) in samples(op.name) {
                let place = format!("{} of {shapes:?} with {given:?}", op.name);
                let mut network = Network::new("");
                let (mut arrays, mut inputs, mut values) = (vec![], vec![], vec![]);
                for shape in &shapes {
                    if op.inputs == ["shape"] {
                        let array = Array::ints(&shape.iter().map(|&d| d as i64).collect::<Vec<_>>());
                        inputs.push(Some(network.add_constant("shape", array.clone())));
                        values.push(Some(array));
                        continue;
                    }
                    let (name, dims) = (format!("x{}", inputs.len()), shape.iter().map(|&d| d.into()).collect());
                    inputs.push(Some(network.add_input(&name, dtype(op), dims).unwrap()));
                    arrays.push(numbers(dtype(op), shape));
                    values.push(arrays.last().cloned());
                }
                let out = network.add_layer("layer", op, given.clone(), &inputs).expect(&place)[0];
                network.mark_output(out, "out").unwrap();
                let want = evaluate_op(op, &complete(op.attrs, given).unwrap(), &values)
                    .expect(&place)
                    .remove(0);

                let (id, _) = network.producer(out).unwrap();
                let change = decompose(&network, id).expect(&place).finish();
                change.apply(&mut network);
                network.verify().expect(&place);
                assert!(network.layers().all(|(_, layer)| layer.op != op), "{place}");
                let got = evaluate(&network, &arrays).expect(&place).remove(0);
                assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{place}");
                for (got, want) in got.to_f64().iter().zip(want.to_f64()) {
                    assert!(
                        (got - want).abs() <= 1e-9 * want.abs().max(1.0),
                        "{place}: {got}, not {want}"
                    );
                }
            }
        }
    }
}
