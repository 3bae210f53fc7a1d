//! LayerNormalization and RMSNormalization over trailing axes, with the Add before and the Quantize layer behind them.

use super::ROWS;
use super::team::{MOST, Team};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::{LayerId, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Prepared, Request};
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::{double, entry, in_packs, pack};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::quantize_behind::QuantizeBehind;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

/// The normalizations of rows.
pub const SOURCE: &str = include_str!("../../../../../kernels/normalize.cu");

/// The normalization with the Add before and the Quantize layer behind it, with one of them, and alone.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let layer = scope.layer();
    let ty = scope.output_type(0);
    if !["LayerNormalization", "RMSNormalization"].contains(&scope.op()) {
        return Ok(vec![]);
    }
    let Ok(axis) = ty.axis(layer.attrs.int("axis")) else {
        return Ok(vec![]);
    };
    let sides = [1, 2].map(|i| scope.input(i));
    // What is smaller than a row runs as smaller ops.
    if sides
        .iter()
        .flatten()
        .any(|&t| scope.network[t].ty.shape != ty.shape[axis..])
    {
        return Ok(vec![]);
    }
    let residual = scope.residual().map(Some);
    let quantize = QuantizeBehind::of(scope.network, layer.outputs[0]).map(Some);
    let quantize = || quantize.clone().into_iter().chain([None]);
    let added = residual.into_iter().chain([None]);
    let all = added.flat_map(|added| quantize().map(move |quantize| (added, quantize)));
    Ok(all
        .map(|(added, quantize)| candidate(scope, gpu, axis, sides, added, quantize))
        .collect())
}

/// The Add before a normalization: the layer, its inputs, and its output where others read it too.
type Added = (LayerId, [TensorId; 2], Option<TensorId>);

fn candidate(
    scope: &Scope,
    gpu: &Arc<Gpu>,
    axis: usize,
    sides: [Option<TensorId>; 2],
    added: Option<Added>,
    quantize: Option<QuantizeBehind>,
) -> Candidate {
    let layer = scope.layer();
    let kept = added.and_then(|(.., sum)| sum);
    let mut inputs = added.map_or(scope.input(0).into_iter().collect(), |(_, inputs, _)| inputs.to_vec());
    inputs.extend(sides.iter().flatten());
    let written = quantize.as_ref().is_none_or(|quantize| quantize.kept);
    let given = layer.outputs.iter().copied().filter(|_| written);
    let outputs: Vec<_> = given
        .chain(kept)
        .chain(quantize.as_ref().map(|quantize| quantize.output))
        .collect();
    let behind = quantize.as_ref().map_or(vec![], |quantize| quantize.layers.clone());
    let layers: Vec<LayerId> = added
        .map(|(add, ..)| add)
        .into_iter()
        .chain([scope.layer])
        .chain(behind)
        .collect();
    let names: Vec<&str> = layers.iter().map(|&id| scope.network[id].op.name).collect();
    let name = names.join("+");
    let norm = Norm {
        axis,
        divisor: match layer.op.name {
            "LayerNormalization" => RowNorm::Deviation,
            _ => RowNorm::RootMeanSquare,
        },
        added: added.is_some(),
        kept: kept.is_some(),
        scaled: sides[0].is_some(),
        shifted: sides[1].is_some(),
        epsilon: layer.attrs.float("epsilon"),
        written,
        quantize,
    };
    let forms = uniform_forms(&[Layout::Plain], inputs.len(), outputs.len());
    let identity = format!("{axis} {} {} {written}", norm.kept, norm.shifted);
    let make = move |gpu: &Gpu, request: &Request| norm.instance(gpu, request);
    Candidate {
        kernel: Arc::new(sourced(&name, &identity, forms, gpu, make)),
        layers,
        inputs,
        outputs,
    }
}

/// `RowNorm` of `normalize.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowNorm {
    /// The standard deviation, of what the mean is taken off.
    Deviation,
    /// The root of the mean of squares.
    RootMeanSquare,
    /// The Euclidean norm, or epsilon where that is greater.
    Euclidean,
}

impl RowNorm {
    /// It in code.
    pub fn text(self) -> &'static str {
        match self {
            Self::Deviation => "DEVIATION",
            Self::RootMeanSquare => "ROOT_MEAN_SQUARE",
            Self::Euclidean => "EUCLIDEAN",
        }
    }
}

/// A normalization of rows.
pub struct Norm {
    /// The first axis of a row.
    axis: usize,
    divisor: RowNorm,
    added: bool,
    kept: bool,
    scaled: bool,
    shifted: bool,
    epsilon: f64,
    /// Whether the result is written as it is, and codes of it.
    written: bool,
    quantize: Option<QuantizeBehind>,
}

impl Norm {
    /// One that does nothing else.
    pub fn of_rows(axis: usize, divisor: RowNorm, epsilon: f64) -> Self {
        Self {
            axis,
            divisor,
            added: false,
            kept: false,
            scaled: false,
            shifted: false,
            epsilon,
            written: true,
            quantize: None,
        }
    }

    /// It at concrete shapes.
    ///
    /// # Errors
    /// If the tensors are too large for one kernel.
    pub fn instance(&self, gpu: &Gpu, request: &Request) -> Result<Prepared> {
        let x = &request.inputs[0];
        let length: usize = x.shape[self.axis..].iter().product();
        let rows = x.shape[..self.axis].iter().product();
        let side = request.inputs[1 + self.added as usize..].first().map(|side| side.dtype);
        in_packs(pack(x.dtype, [length]), |pack| {
            let how = Held::of(x.dtype, rows, length, pack, gpu.device.multiprocessors);
            let source = self.source(x.dtype, side.unwrap_or(x.dtype), pack, &how);
            let numbers = [rows, length, how.team.size, 1, 1, 1].map(|n| n as i64);
            let numbers = double(self.epsilon).into_iter().chain(numbers);
            let numbers = numbers.chain(QuantizeBehind::params(self.quantize.as_ref()));
            let function = gpu.compiler.entry(&source, "normalize", 0);
            Ok(Launches::one(
                function,
                how.grid(rows)?,
                fields(numbers)?,
                how.describe(),
            ))
        })
    }

    fn source(&self, dtype: DType, side: DType, pack: usize, how: &Held) -> String {
        let [ty, side] = [dtype, side].map(|dtype| element(dtype).unwrap_or("float"));
        let code = self
            .quantize
            .as_ref()
            .and_then(|quantize| element(quantize.scheme.dtype));
        let code = code.unwrap_or("void");
        let all = [
            (self.written, format!("{ty}* y")),
            (self.kept, format!("{ty}* kept")),
            (self.quantize.is_some(), format!("{code}* codes")),
            (true, format!("const {ty}* a")),
            (self.added, format!("const {ty}* b")),
            (self.scaled, format!("const {side}* scale")),
            (self.shifted, format!("const {side}* shift")),
            (true, "const Rows s".into()),
        ];
        let there = all.into_iter().filter(|(there, _)| *there).map(|(_, text)| text);
        let parameters: Vec<String> = there.collect();
        let or_null = |there: bool, name: &'static str| if there { name } else { "nullptr" };
        let flags = [self.added, self.kept, self.scaled, self.shifted].map(|flag| flag.to_string());
        let divisor = self.divisor.text();
        let body = format!(
            "Normalize<{ty}, {side}, {pack}, {divisor}, {}, false, 0, {code}>{{{}, {}, a, {}, {}, {}, {}}}.{}(s);",
            flags.join(", "),
            or_null(self.written, "y"),
            or_null(self.kept, "kept"),
            or_null(self.added, "b"),
            or_null(self.scaled, "scale"),
            or_null(self.shifted, "shift"),
            or_null(self.quantize.is_some(), "codes"),
            how.call
        );
        entry(
            &[ROWS, SOURCE],
            "normalize",
            how.team.bound(),
            &parameters.join(", "),
            &body,
        )
    }
}

/// How rows are held in registers, or not.
pub struct Held {
    /// Who shares a row.
    pub team: Team,
    /// The function of `Normalize`.
    pub call: String,
    streamed: bool,
}

impl Held {
    /// For rows of this length, in packs.
    pub fn of(dtype: DType, rows: usize, length: usize, pack: usize, multiprocessors: u32) -> Self {
        let most = most_packs(dtype, pack);
        let team = Team::of(rows, length.div_ceil(pack), most, multiprocessors);
        let streamed = team.packs > most;
        let call = match streamed {
            true => "streamed".into(),
            false => format!("held<{}, {}>", team.packs, team.is_block()),
        };
        Self { team, call, streamed }
    }

    /// Whether a block reads its row three times.
    pub fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// The blocks for so many rows.
    ///
    /// # Errors
    /// If there are more than a grid has.
    pub fn grid(&self, rows: usize) -> Result<Grid> {
        match self.streamed {
            true => Grid::over(rows * MOST, MOST as u32),
            false => self.team.grid(rows),
        }
    }

    /// For reports.
    pub fn describe(&self) -> String {
        let how = if self.streamed { "read again" } else { "in registers" };
        format!("{}, {how}", self.team.describe())
    }
}

/// How many packs of a row a thread holds at most.
pub fn most_packs(dtype: DType, pack: usize) -> usize {
    /// Registers for elements.
    const REGISTERS: usize = 32;
    let numbers = if dtype == DType::Float64 {
        REGISTERS / 2
    } else {
        REGISTERS
    };
    numbers / pack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_in_registers_while_they_fit() {
        let call = |dtype, rows, length, pack| Held::of(dtype, rows, length, pack, 132).call;
        assert_eq!(call(DType::Float16, 4096, 768, 8), "held<3, false>");
        assert_eq!(call(DType::Float16, 4096, 4096, 8), "held<4, true>");
        assert_eq!(call(DType::Float16, 128, 768, 8), "held<1, true>");
        assert_eq!(call(DType::Float32, 4096, 768, 4), "held<6, false>");
        assert_eq!(call(DType::Float16, 2, 37, 1), "held<1, true>");
        assert_eq!(call(DType::Float16, 8, 100_000, 8), "streamed");
        assert_eq!(call(DType::Float64, 1, 1, 1), "held<1, false>");
    }
}
