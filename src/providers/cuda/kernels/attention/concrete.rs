//! An attention at concrete shapes, and its launches.

use super::Rule;
use super::code::{self, Code, Mask};
use super::pipeline::{KvBoxes, Pipeline};
use super::share::{self, Operands, Way};
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::ops::attention;
use crate::plan::{Call, Instance, Launcher, Prepared, Request};
use crate::providers::common::strided_view::{ConcreteView, StridedView};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid, HOPPER};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::spare::Spare;
use std::sync::Arc;

/// A view of an input at concrete shapes: the number of the input, the offset in bytes, and the strides.
#[derive(Clone)]
pub struct OperandView {
    pub input: usize,
    offset: usize,
    strided: ConcreteView,
}

impl OperandView {
    /// A view of an input.
    ///
    /// # Errors
    /// If its extents can't be told.
    pub fn of((input, view): &(usize, StridedView), request: &Request) -> Result<Self> {
        let strided = share::settled(view.at(request.binding)?);
        Ok(Self {
            input: *input,
            offset: strided.offset * request.inputs[*input].dtype.size(),
            strided,
        })
    }

    fn address(&self, call: &Call) -> *const u8 {
        call.inputs[self.input].wrapping_add(self.offset)
    }
}

/// An attention at concrete shapes.
#[derive(Clone)]
pub struct Concrete {
    pub gpu: Arc<Gpu>,
    pub rule: Rule,
    /// Queries, keys, values and perhaps a mask.
    pub views: Vec<OperandView>,
    pub y: ConcreteView,
    /// The element type of the operands, and of the result.
    pub dtype: DType,
    pub given: DType,
    pub mask: Mask,
    /// How the result is quantized.
    pub params: Vec<i32>,
}

impl Concrete {
    fn operands(&self) -> Operands<'_> {
        Operands {
            q: &self.views[0].strided,
            k: &self.views[1].strided,
            v: &self.views[2].strided,
            mask: self.views.get(3).map(|view| &view.strided),
            y: &self.y,
        }
    }

    fn scale(&self) -> f64 {
        attention::scale(self.rule.scale, self.operands().sizes()[0] as i64)
    }

    /// The ways to compute it, what looks fastest first; one at least.
    pub fn ways(&self) -> Vec<Way> {
        let (device, operands) = (&self.gpu.device, self.operands());
        let mut ways = Way::all(self.dtype, operands.sizes(), device.capability, device.shared_bytes);
        ways.extend(self.pipelines().into_iter().map(Way::Pipeline));
        ways.retain(|way| self.scale() >= 0.0 || !way.is_grouped());
        operands.ranked(ways, self.rule.causal, device.multiprocessors as usize)
    }

    /// Those that the copy engine brings keys and values for.
    fn pipelines(&self) -> Vec<Pipeline> {
        let (device, operands) = (&self.gpu.device, self.operands());
        let half = matches!(self.dtype, DType::Float16 | DType::BFloat16);
        if !half || device.capability != HOPPER || self.mask != Mask::None {
            return vec![];
        }
        let mut found = Pipeline::all(operands.sizes(), device.shared_bytes);
        found.retain(|&pipeline| operands.even(Way::Pipeline(pipeline)) && self.kv_boxes(pipeline).is_some());
        found
    }

    /// Keys and values as the copy engine brings them.
    fn kv_boxes(&self, pipeline: Pipeline) -> Option<[KvBoxes; 2]> {
        let of = |view: &OperandView| KvBoxes::new(self.dtype, &view.strided, pipeline.keys);
        Some([of(&self.views[1])?, of(&self.views[2])?])
    }

    /// It in one of the ways.
    ///
    /// # Errors
    /// If it is too large.
    pub fn prepared(self, way: Way) -> Result<Prepared> {
        let multiprocessors = self.gpu.device.multiprocessors as usize;
        self.shared_among(way, multiprocessors)
    }

    /// It in one of the ways, cut into parts for so many multiprocessors.
    fn shared_among(self, way: Way, multiprocessors: usize) -> Result<Prepared> {
        let (operands, causal) = (self.operands(), self.rule.causal);
        let source = Code {
            way,
            dtype: self.dtype,
            given: self.given,
            causal,
            mask: self.mask,
            capped: self.rule.softcap != 0.0,
        }
        .source();
        let share = operands.share(way, causal, multiprocessors);
        let shared_bytes = match way {
            Way::Tiles(tile) => tile.shared_bytes(share.steps(way)),
            Way::Pipeline(pipeline) => pipeline.shared_bytes(),
            Way::Plain { .. } => 0,
        };
        let function = self.gpu.compiler.entry(&source, "attending", shared_bytes);
        let join = match share.splits {
            1 => None,
            _ => {
                let grid = Grid::over(share.rows * 32, code::JOINING)?;
                Some((self.gpu.compiler.entry(&source, "combining", 0), grid))
            }
        };
        let mut words = code::doubles(&[self.scale(), self.rule.softcap]);
        words.push(self.rule.blind.to_bits() as i32);
        words.extend(fields(operands.words(&share))?);
        let joining = join.iter().map(|(entry, _)| entry.clone());
        let entries: Vec<EntryPoint> = joining.chain([function.clone()]).collect();
        let (how, workspace) = (share.describe(way), share.workspace(operands.sizes()[1], self.dtype));
        let launcher = Attending {
            function,
            grid: Grid::over(share.blocks * share.threads, share.threads as u32)?,
            join,
            even: operands.even(way),
            fetched: match way {
                Way::Pipeline(pipeline) => Some(self.fetched(pipeline)?),
                _ => None,
            },
            y_offset: self.y.offset * self.given.size(),
            params: self.params,
            views: self.views,
            words,
        };
        Ok(compiled(
            entries,
            Instance::new(how, launcher).with_workspace(workspace),
        ))
    }

    fn fetched(&self, pipeline: Pipeline) -> Result<Fetched> {
        let kv_boxes = self.kv_boxes(pipeline);
        let kv_boxes = kv_boxes.ok_or_else(|| Error::internal("keys that the copy engine does not bring"))?;
        let kv_moves = kv_boxes.iter().flat_map(|one| one.moves.map(i64::from));
        let concrete = self.clone();
        Ok(Fetched {
            kv_moves: fields(kv_moves)?,
            kv_boxes,
            spare: Spare::new(move || {
                let mut ways = concrete.ways();
                ways.retain(|way| !matches!(way, Way::Pipeline(_)));
                // For one multiprocessor nothing is cut, and what is not cut needs no workspace.
                concrete.clone().shared_among(ways[0], 1)
            }),
        })
    }
}

/// What the copy engine brings.
struct Fetched {
    /// Keys and values.
    kv_boxes: [KvBoxes; 2],
    /// `KvMoves` of `attention_pipeline.cu`.
    kv_moves: Vec<i32>,
    /// For addresses that it does not take.
    spare: Spare,
}

struct Attending {
    function: EntryPoint,
    grid: Grid,
    /// What joins the parts of the keys.
    join: Option<(EntryPoint, Grid)>,
    /// Queries, keys, values and perhaps a mask.
    views: Vec<OperandView>,
    /// Whether the copy engine brings keys and values.
    fetched: Option<Fetched>,
    y_offset: usize,
    /// `Attend` of `attention.cu`, less the last two fields.
    words: Vec<i32>,
    /// The last one.
    params: Vec<i32>,
    /// Whether 16 bytes of a row can be moved at once, where the addresses allow it.
    even: bool,
}

impl Launcher for Attending {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let y = call.outputs[0].cast_const().wrapping_add(self.y_offset);
        let addresses: Vec<*const u8> = self.views.iter().map(|view| view.address(call)).collect();
        let mut moved = addresses[..3].iter().chain([&y]);
        let even = self.even && moved.all(|address| address.addr().is_multiple_of(share::PACK_BYTES));
        let mut words = self.words.clone();
        words.push(even.into());
        words.extend(&self.params);
        let mut arguments = Arguments::default();
        arguments.address(y).address(addresses[0]);
        match &mut self.fetched {
            Some(fetched) if !even => return fetched.spare.launch(call),
            Some(fetched) => {
                arguments
                    .address(call.workspace)
                    .fields(&words)
                    .fields(&fetched.kv_moves);
                for (kv_boxes, &at) in fetched.kv_boxes.iter().zip(&addresses[1..]) {
                    arguments.map(&kv_boxes.boxes.at(self.function.device(), at)?);
                }
            }
            None => {
                arguments.address(addresses[1]).address(addresses[2]);
                arguments.address(addresses.get(3).copied().unwrap_or(std::ptr::null()));
                arguments.address(call.workspace).fields(&words);
            }
        }
        // SAFETY: these are the parameters that `code` declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream)? };
        let Some((function, grid)) = &self.join else {
            return Ok(());
        };
        let mut arguments = Arguments::default();
        arguments.address(y).address(call.workspace).fields(&words);
        // SAFETY: as above.
        unsafe { function.launch(*grid, &arguments, call.stream) }
    }
}
