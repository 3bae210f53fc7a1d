//! RoiAlign.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{gather, indexing};

/// Regions resampled to one size (ONNX RoiAlign).
pub static DEF: OpDef = OpDef {
    name: "RoiAlign",
    doc: "Regions [R, 4] (x1, y1, x2, y2) of the images x [N, C, H, W] that batch_indices names, each as bins of which \
          every one combines samples (ONNX RoiAlign; max takes the greatest weighted neighbour, as ONNX defines it)",
    inputs: &["x", "rois", "batch_indices"],
    attrs: &[
        attr(
            "coordinate_transformation_mode",
            Preset::Text("half_pixel"),
            "half_pixel, or output_half_pixel: no shift by half an element, and regions are at least one wide",
        ),
        attr("mode", Preset::Text("avg"), "avg or max"),
        attr("output_height", Preset::Int(1), "bins along the height"),
        attr("output_width", Preset::Int(1), "bins along the width"),
        attr(
            "sampling_ratio",
            Preset::Int(0),
            "samples along each side of a bin; 0: as many as it has elements",
        ),
        attr(
            "spatial_scale",
            Preset::Float(1.0),
            "what turns the regions' numbers into places of x",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    ..OpDef::PLAIN
};

/// What the attributes say.
#[derive(Debug, Clone, PartialEq)]
pub struct Align {
    /// Whether the greatest neighbour is taken instead of the mean.
    pub max: bool,
    half_pixel: bool,
    bins: [usize; 2],
    ratio: usize,
    scale: f64,
}

/// One side of a region: its samples.
struct Side {
    start: f64,
    bin: f64,
    samples: usize,
}

impl Side {
    /// Two neighbours of a sample and the weight of the second; none outside.
    fn neighbours(&self, bin: usize, sample: usize, size: usize) -> Option<([usize; 2], f64)> {
        let place = self.start + bin as f64 * self.bin + (sample as f64 + 0.5) * self.bin / self.samples as f64;
        if !(-1.0..=size as f64).contains(&place) {
            return None;
        }
        let place = place.max(0.0);
        let low = place as usize;
        match low + 1 >= size {
            true => Some(([size - 1; 2], 0.0)),
            false => Some(([low, low + 1], place - low as f64)),
        }
    }
}

impl Align {
    /// Reads the attributes.
    ///
    /// # Errors
    /// If one is unknown.
    pub fn read(attrs: &Attrs) -> Result<Self> {
        let (mode, coordinates) = (attrs.text("mode"), attrs.text("coordinate_transformation_mode"));
        let bins = ["output_height", "output_width"].map(|name| usize::try_from(attrs.int(name)).unwrap_or(0));
        let known = ["avg", "max"].contains(&mode) && ["half_pixel", "output_half_pixel"].contains(&coordinates);
        if !known || bins.contains(&0) || attrs.int("sampling_ratio") < 0 {
            return Err(Error::invalid("an attribute is out of range")
                .expected("mode avg or max, half_pixel or output_half_pixel, at least one bin, sampling_ratio from 0")
                .got(format!(
                    "{mode}, {coordinates}, {bins:?}, {}",
                    attrs.int("sampling_ratio")
                )));
        }
        Ok(Self {
            max: mode == "max",
            half_pixel: coordinates == "half_pixel",
            bins,
            ratio: attrs.int("sampling_ratio") as usize,
            scale: attrs.float("spatial_scale"),
        })
    }

    fn side(&self, from: f64, to: f64, bins: usize) -> Side {
        let shift = if self.half_pixel { 0.5 } else { 0.0 };
        let [start, end] = [from, to].map(|v| v * self.scale - shift);
        let extent = if self.half_pixel {
            end - start
        } else {
            (end - start).max(1.0)
        };
        let bin = extent / bins as f64;
        // More samples than any image has elements would only cost time.
        let adaptive = bin.ceil().clamp(0.0, 4096.0) as usize;
        Side {
            start,
            bin,
            samples: if self.ratio > 0 { self.ratio } else { adaptive },
        }
    }

    /// For each bin of a region of an image [H, W], row by row: calls `add` with the bin and each neighbour of its samples
    /// with the weight. The weights of a mean add up to one.
    pub fn taps(&self, sizes: [usize; 2], roi: &[f64], mut add: impl FnMut(usize, usize, f64)) {
        let sides = [
            self.side(roi[1], roi[3], self.bins[0]),
            self.side(roi[0], roi[2], self.bins[1]),
        ];
        let samples = sides[0].samples * sides[1].samples;
        let share = if self.max { 1.0 } else { 1.0 / samples.max(1) as f64 };
        for bin in 0..self.bins[0] * self.bins[1] {
            let at = [bin / self.bins[1], bin % self.bins[1]];
            for sample in 0..samples {
                let (i, j) = (sample / sides[1].samples, sample % sides[1].samples);
                let rows = sides[0].neighbours(at[0], i, sizes[0]);
                let Some((rows, columns)) = rows.zip(sides[1].neighbours(at[1], j, sizes[1])) else {
                    // A sample outside counts as zero.
                    add(bin, 0, 0.0);
                    continue;
                };
                for (y, wy) in [(rows.0[0], 1.0 - rows.1), (rows.0[1], rows.1)] {
                    for (x, wx) in [(columns.0[0], 1.0 - columns.1), (columns.0[1], columns.1)] {
                        add(bin, y * sizes[1] + x, wy * wx * share);
                    }
                }
            }
        }
    }

    /// Bins of a region.
    pub fn count(&self) -> usize {
        self.bins[0] * self.bins[1]
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, rois, indices) = (infer.input(0)?, infer.input(1)?, gather::index_tensor(infer, 2)?);
    let align = Align::read(infer.attrs)?;
    let fits = x.rank() == 4 && x.dtype.is_float() && rois.dtype == x.dtype && rois.rank() == 2 && indices.rank() == 1;
    if !fits || !rois.shape[1].is(4) {
        return Err(Error::shape("the images, the regions or their indices do not fit")
            .expected("floating-point [N, C, H, W] and [R, 4], and integers [R]")
            .got(format!(
                "{}, {} and {}",
                x.describe(),
                rois.describe(),
                indices.describe()
            )));
    }
    infer.require_equal(&rois.shape[0], &indices.shape[0], "there is one index per region")?;
    let bins = align.bins.map(|bins| (bins as i64).into());
    let shape = [rois.shape[0].clone(), x.shape[1].clone()].into_iter().chain(bins);
    Ok(vec![TensorType::new(x.dtype, shape.collect::<Vec<_>>())])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, rois, images) = (e.input(0)?, e.input(1)?.to_f64(), e.input(2)?.to_i64());
    let align = Align::read(e.attrs)?;
    let [n, channels, height, width] = [0, 1, 2, 3].map(|a| x.shape()[a]);
    let (data, bins, plane) = (x.to_f64(), align.count(), height * width);
    let mut out = Vec::with_capacity(images.len() * channels * bins);
    for (roi, image) in rois.chunks(4).zip(images) {
        let image = indexing::index(image, n)?;
        for c in 0..channels {
            let data = &data[(image * channels + c) * plane..][..plane];
            let mut values = vec![None; bins];
            align.taps([height, width], roi, |bin, at, weight| {
                let value = if weight == 0.0 {
                    0.0
                } else {
                    weight * data.get(at).copied().unwrap_or(0.0)
                };
                values[bin] = Some(match values[bin] {
                    None => value,
                    Some(before) if align.max => f64::max(before, value),
                    Some(before) => before + value,
                });
            });
            out.extend(values.into_iter().map(|v| v.unwrap_or(0.0)));
        }
    }
    e.output(&out)
}
