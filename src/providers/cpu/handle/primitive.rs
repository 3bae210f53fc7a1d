//! A primitive of oneDNN, and the format of its constant weights.
use super::{error, ffi, images::Images};
use crate::{
    error::{Error, Result},
    network::array::Buffer,
    providers::cpu::team,
};
use cxx::{SharedPtr, UniquePtr};
use std::ptr;

/// An operation at concrete shapes, ready to run; owned by one context.
pub struct Primitive {
    raw: UniquePtr<ffi::Primitive>,
    addresses: Vec<usize>,
    runs: usize,
    /// How far each address moves from one run to the next.
    steps: Vec<usize>,
}

// SAFETY: a primitive is bound to no thread; running it takes `&mut self`.
unsafe impl Send for Primitive {}
// SAFETY: what `&self` offers only reads what never changes after creation.
unsafe impl Sync for Primitive {}

impl Primitive {
    pub(super) fn new(created: std::result::Result<UniquePtr<ffi::Primitive>, cxx::Exception>) -> Result<Self> {
        let raw = created.map_err(error)?;
        let addresses = Vec::with_capacity(raw.arguments());
        Ok(Self {
            raw,
            addresses,
            runs: 1,
            steps: Vec::new(),
        })
    }

    /// Runs once for each image where there are some.
    pub(super) fn over(mut self, images: Option<Images>) -> Result<Self> {
        if let Some(images) = images {
            (self.runs, self.steps) = (images.count, images.steps(self.raw.arguments())?);
        }
        Ok(self)
    }

    /// How many inputs a run takes: the operands in the order of the spec (with the weights and the bias), then one
    /// for each binary post-op.
    pub fn inputs(&self) -> usize {
        self.raw.arguments() - 2
    }

    /// Bytes of scratch memory that a run needs.
    pub fn workspace(&self) -> usize {
        self.raw.scratchpad_bytes()
    }

    /// oneDNN's name for the implementation, as "brgconv:avx512_core".
    pub fn implementation(&self) -> String {
        self.raw.implementation()
    }

    /// Whether oneDNN found nothing better than its plain reference loops.
    pub fn is_reference(&self) -> bool {
        self.implementation().contains("ref")
    }

    /// Whether it writes its windows one beside the other and multiplies matrices.
    pub fn is_by_gemm(&self) -> bool {
        self.implementation().contains("gemm")
    }

    /// The format that the weights must be in; none where the primitive has no constant weights.
    pub fn weight_format(&self) -> Option<WeightFormat> {
        let format = self.raw.weight_format();
        (!format.is_null()).then_some(WeightFormat(format))
    }

    /// Runs it on the team that the caller is on.
    ///
    /// # Safety
    /// Each address must hold what the spec says, and nobody else may use the output and the workspace meanwhile.
    pub unsafe fn run(&mut self, inputs: &[*const u8], output: *mut u8, workspace: *mut u8) -> Result<()> {
        self.addresses.clear();
        self.addresses.extend(inputs.iter().map(|&input| input as usize));
        self.addresses.extend([output as usize, workspace as usize]);
        for run in 0..self.runs {
            if run > 0 {
                self.addresses
                    .iter_mut()
                    .zip(&self.steps)
                    .for_each(|(address, step)| *address += step);
            }
            // SAFETY: the caller vouches for the addresses; their number is checked on the other side.
            unsafe { self.raw.pin_mut().execute(&self.addresses) }.map_err(error)?;
        }
        Ok(())
    }
}

/// How a primitive wants its constant weights to lie; cheap to clone.
#[derive(Clone)]
pub struct WeightFormat(pub(super) SharedPtr<ffi::WeightFormat>);

// SAFETY: a format never changes, and its reference count is atomic.
unsafe impl Send for WeightFormat {}
// SAFETY: as above.
unsafe impl Sync for WeightFormat {}

impl PartialEq for WeightFormat {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&other.0)
    }
}

impl WeightFormat {
    pub(super) fn raw(given: Option<&WeightFormat>) -> SharedPtr<ffi::WeightFormat> {
        given.map_or_else(SharedPtr::null, |format| format.0.clone())
    }

    /// Bytes of the weights in this format.
    pub fn packed_bytes(&self) -> usize {
        self.0.packed_bytes()
    }

    /// Bytes of the weights as the model has them.
    pub fn source_bytes(&self) -> usize {
        self.0.source_bytes()
    }

    /// Brings weights from the model's layout, with the dtype of the spec, into this format.
    ///
    /// # Errors
    /// If there are too few bytes, or oneDNN fails.
    pub fn pack(&self, weights: &[u8], threads: usize) -> Result<Buffer> {
        if weights.len() < self.source_bytes() {
            return Err(Error::internal("too few bytes of weights")
                .expected(self.source_bytes().to_string())
                .got(weights.len().to_string()));
        }
        let mut packer = Primitive::new(self.0.packer(threads))?;
        let packed = Buffer::try_zeroed(self.packed_bytes())?;
        let workspace = Buffer::try_zeroed(packer.workspace())?;
        team::run(threads, || {
            let weights = weights.as_ptr();
            // SAFETY: source and target have the sizes that the formats ask for, and the target is new.
            unsafe { packer.run(&[weights], packed.as_ptr(), workspace.as_ptr()) }
        })?;
        Ok(packed)
    }
}

impl std::fmt::Debug for WeightFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "WeightFormat({} bytes at {:?})",
            self.packed_bytes(),
            ptr::from_ref(&*self.0)
        )
    }
}
