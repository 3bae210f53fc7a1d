//! `_native.Network`.

use super::layer::Layer;
use super::tensor::Tensor;
use super::{arrays, attrs, calls, plugin};
use crate::error::{Error, guarded};
use crate::network::attr::Attrs;
use crate::network::body::OpenBody;
use crate::network::dim::Range;
use crate::network::dtype::DType;
use crate::network::{self, LayerId, TensorId, ops, reference};
use crate::passes;
use crate::precision;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;

/// A typed graph of layers with symbolic shapes. Importers build it, `Builder` turns it into an engine.
#[pyclass(module = "neurenix")]
pub struct Network {
    pub(super) inner: network::Network,
}

impl Network {
    fn wrap(slf: &Bound<'_, Self>, id: TensorId) -> PyResult<Py<Tensor>> {
        let network = slf.clone().unbind();
        Py::new(slf.py(), Tensor { network, id })
    }

    fn own(slf: &Bound<'_, Self>, tensor: &Tensor) -> PyResult<TensorId> {
        if tensor.network.is(slf) {
            return Ok(tensor.id);
        }
        let name = tensor.network.try_borrow(slf.py())?.inner[tensor.id].name.clone();
        Err(Error::invalid("the tensor belongs to another network")
            .tensor(name)
            .into())
    }

    fn add_holder(
        slf: &Bound<'_, Self>,
        inputs: Vec<Bound<'_, Tensor>>,
        attrs: Attrs,
        name: &str,
    ) -> PyResult<Vec<Py<Tensor>>> {
        let name = if name.is_empty() { ops::plugin::DEF.name } else { name };
        let inputs = Self::own_all(slf, &inputs.into_iter().map(Some).collect::<Vec<_>>())?;
        let mut network = slf.try_borrow_mut()?;
        let outputs = guarded(|| network.inner.add_layer(name, &ops::plugin::DEF, attrs, &inputs))?;
        drop(network);
        outputs.into_iter().map(|id| Self::wrap(slf, id)).collect()
    }

    fn own_all(slf: &Bound<'_, Self>, tensors: &[Option<Bound<'_, Tensor>>]) -> PyResult<Vec<Option<TensorId>>> {
        let own = |t: &Option<Bound<'_, Tensor>>| t.as_ref().map(|t| Self::own(slf, t.get())).transpose();
        tensors.iter().map(own).collect()
    }
}

/// A tensor, its name in calibration caches, its least number, and what it is looked at for.
type QuantizationPoint = (Py<Tensor>, String, Option<f64>, &'static str);

#[pymethods]
impl Network {
    /// An empty network.
    #[new]
    #[pyo3(signature = (name = ""))]
    fn new(name: &str) -> Self {
        let inner = network::Network::new(name);
        Self { inner }
    }

    /// The name of the model.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    #[setter]
    fn set_name(&mut self, name: String) {
        self.inner.name = name;
    }

    /// Adds an input of a dtype (numpy's words) and a shape of integers and expressions such as "batch".
    fn add_input(
        slf: &Bound<'_, Self>,
        name: &str,
        dtype: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Tensor>> {
        let (dtype, shape) = (arrays::dtype_from(dtype)?, attrs::read_shape(shape)?);
        let id = slf.try_borrow_mut()?.inner.add_input(name, dtype, shape)?;
        Self::wrap(slf, id)
    }

    /// Says that a symbol lies in min..=max, and for which value to optimise.
    fn set_range(&mut self, symbol: &str, min: i64, opt: i64, max: i64) -> PyResult<()> {
        Ok(self.inner.set_range(symbol, Range { min, opt, max })?)
    }

    /// Adds a constant: numpy, ml_dtypes, or anything with `__dlpack__` or `__array__`. `copy=False` shares the memory
    /// of a dense array on the CPU, which nobody may change any more.
    #[pyo3(signature = (name, array, copy = true))]
    fn add_constant(slf: &Bound<'_, Self>, name: &str, array: &Bound<'_, PyAny>, copy: bool) -> PyResult<Py<Tensor>> {
        let read = if copy { arrays::read_copy } else { arrays::read };
        let array = read(array).map_err(|e| e.tensor(name))?;
        let id = slf.try_borrow_mut()?.inner.add_constant(name, array);
        Self::wrap(slf, id)
    }

    /// Adds a layer and gives its outputs. Inputs that are left out are None; attributes have the op's names (`ops()`).
    #[pyo3(signature = (op, inputs, attrs = None, name = ""))]
    fn add_layer(
        slf: &Bound<'_, Self>,
        op: &str,
        inputs: Vec<Option<Bound<'_, Tensor>>>,
        attrs: Option<&Bound<'_, PyDict>>,
        name: &str,
    ) -> PyResult<Vec<Py<Tensor>>> {
        let name = if name.is_empty() { op } else { name };
        let op = ops::find(op).map_err(|e| e.layer(name))?;
        let attrs = attrs.map_or_else(|| Ok(Attrs::new()), attrs::read)?;
        let inputs = Self::own_all(slf, &inputs)?;
        let mut network = slf.try_borrow_mut()?;
        let outputs = guarded(|| network.inner.add_layer(name, op, attrs, &inputs))?;
        drop(network);
        outputs.into_iter().map(|id| Self::wrap(slf, id)).collect()
    }

    /// Adds a layer of a plugin that is there already (an adapter) and gives its outputs. The last `shape_inputs`
    /// inputs only tell shapes.
    #[pyo3(signature = (inputs, plugin, shape_inputs = 0, name = ""))]
    fn add_plugin(
        slf: &Bound<'_, Self>,
        inputs: Vec<Bound<'_, Tensor>>,
        plugin: &Bound<'_, PyAny>,
        shape_inputs: usize,
        name: &str,
    ) -> PyResult<Vec<Py<Tensor>>> {
        let attrs = plugin::of_object(plugin, shape_inputs)?;
        Self::add_holder(slf, inputs, attrs, name)
    }

    /// Adds a layer of a plugin of the registry (its name, version and namespace), made out of fields (kind, shape,
    /// bytes), and gives its outputs.
    #[pyo3(signature = (inputs, plugin, fields, shape_inputs = 0, name = ""))]
    fn add_registered_plugin(
        slf: &Bound<'_, Self>,
        inputs: Vec<Bound<'_, Tensor>>,
        plugin: plugin::Name,
        fields: BTreeMap<String, plugin::Value>,
        shape_inputs: usize,
        name: &str,
    ) -> PyResult<Vec<Py<Tensor>>> {
        let attrs = plugin::of_registered(name, plugin, fields, shape_inputs)?;
        Self::add_holder(slf, inputs, attrs, name)
    }

    /// Brings a tensor of the network around into this one, which becomes the body of a layer there (`add_control`): as
    /// a constant, as what the shapes determine, or as an input.
    fn capture(slf: &Bound<'_, Self>, tensor: &Bound<'_, Tensor>) -> PyResult<Py<Tensor>> {
        let outer = tensor.get();
        let around = outer.network.try_borrow(slf.py())?;
        let id = slf.try_borrow_mut()?.inner.capture(&around.inner, outer.id);
        Self::wrap(slf, id)
    }

    /// Adds a layer that holds networks (If, Loop, Scan) and gives its outputs. `bodies` has, by attribute, each
    /// network with the tensors of this one for which its last inputs stand.
    #[pyo3(signature = (op, inputs, bodies, attrs = None, name = ""))]
    fn add_control(
        slf: &Bound<'_, Self>,
        op: &str,
        inputs: Vec<Option<Bound<'_, Tensor>>>,
        bodies: &Bound<'_, PyDict>,
        attrs: Option<&Bound<'_, PyDict>>,
        name: &str,
    ) -> PyResult<Vec<Py<Tensor>>> {
        let name = if name.is_empty() { op } else { name };
        let op = ops::find(op).map_err(|e| e.layer(name))?;
        let attrs = attrs.map_or_else(|| Ok(Attrs::new()), attrs::read)?;
        let inputs = Self::own_all(slf, &inputs)?;
        let open = |(attr, body): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let (network, captures): (Bound<'_, Network>, Vec<Bound<'_, Tensor>>) = body.extract()?;
            let captures = captures.iter().map(|t| Self::own(slf, t.get()));
            Ok(OpenBody {
                attr: attr.extract()?,
                network: network.try_borrow()?.inner.clone(),
                captures: captures.collect::<PyResult<_>>()?,
            })
        };
        let bodies = bodies.iter().map(open).collect::<PyResult<Vec<_>>>()?;
        let mut network = slf.try_borrow_mut()?;
        let outputs = guarded(|| network.inner.add_control(name, op, attrs, &inputs, bodies))?;
        drop(network);
        outputs.into_iter().map(|id| Self::wrap(slf, id)).collect()
    }

    /// A network of its own with the same layers, and no results yet; `tensors` of this one stand for the tensors there
    /// that come second.
    fn copy(slf: &Bound<'_, Self>, tensors: Vec<Bound<'_, Tensor>>) -> PyResult<(Py<Self>, Vec<Py<Tensor>>)> {
        let ids = tensors.iter().map(|t| Self::own(slf, t.get()));
        let ids = ids.collect::<PyResult<Vec<_>>>()?;
        let inner = slf.try_borrow()?.inner.without_outputs();
        let copy = Bound::new(slf.py(), Self { inner })?;
        let wrapped = ids.into_iter().map(|id| Self::wrap(&copy, id));
        Ok((copy.clone().unbind(), wrapped.collect::<PyResult<_>>()?))
    }

    /// Makes a tensor a result, under a name (the tensor's own if none is given).
    #[pyo3(signature = (tensor, name = None))]
    fn mark_output(slf: &Bound<'_, Self>, tensor: &Bound<'_, Tensor>, name: Option<&str>) -> PyResult<()> {
        let id = Self::own(slf, tensor.get())?;
        let mut network = slf.try_borrow_mut()?;
        let name = name.map_or_else(|| network.inner[id].name.clone(), String::from);
        Ok(network.inner.mark_output(id, &name)?)
    }

    /// The inputs, in order.
    #[getter]
    fn inputs(slf: &Bound<'_, Self>) -> PyResult<Vec<Py<Tensor>>> {
        let ids = slf.try_borrow()?.inner.inputs().to_vec();
        ids.into_iter().map(|id| Self::wrap(slf, id)).collect()
    }

    /// The results by name, in order.
    #[getter]
    fn outputs<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let outputs = slf.try_borrow()?.inner.outputs().to_vec();
        let dict = PyDict::new(slf.py());
        for output in outputs {
            dict.set_item(output.name, Self::wrap(slf, output.tensor)?)?;
        }
        Ok(dict)
    }

    /// The layers, in the order in which they were added.
    #[getter]
    fn layers(slf: &Bound<'_, Self>) -> PyResult<Vec<Layer>> {
        let network = slf.try_borrow()?;
        let layer = |(_, layer): (LayerId, &network::Layer)| {
            let wrap = |&id: &TensorId| Self::wrap(slf, id);
            Ok(Layer {
                name: layer.name.clone(),
                op: layer.op.name,
                sources: layer.sources.clone(),
                attrs: layer.attrs.clone(),
                inputs: layer
                    .inputs
                    .iter()
                    .map(|t| t.as_ref().map(wrap).transpose())
                    .collect::<PyResult<_>>()?,
                outputs: layer.outputs.iter().map(wrap).collect::<PyResult<_>>()?,
            })
        };
        network.inner.layers().map(layer).collect()
    }

    /// The symbols of its shapes with (min, opt, max).
    #[getter]
    fn symbols(&self) -> BTreeMap<String, (i64, i64, i64)> {
        let symbols = self.inner.symbols.iter();
        symbols
            .map(|(name, r)| (name.to_string(), (r.min, r.opt, r.max)))
            .collect()
    }

    /// The network as text, one layer a line.
    fn dump(&self) -> String {
        self.inner.to_string()
    }

    /// Checks that the network is well-formed.
    fn verify(&self) -> PyResult<()> {
        Ok(guarded(|| self.inner.verify())?)
    }

    /// Brings the network into its simplest form, in place, as the builder does first; gives how often each pass found
    /// something. Lowerable float32 layers compute in `dtype`; layers in one of `unsupported` compute in float32.
    #[pyo3(signature = (dtype = None, unsupported = vec![]))]
    fn simplify(
        &mut self,
        py: Python<'_>,
        dtype: Option<&Bound<'_, PyAny>>,
        unsupported: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<BTreeMap<&'static str, usize>> {
        let mut settings = passes::Settings::default();
        if let Some(dtype) = dtype {
            settings.compute = arrays::dtype_from(dtype)?;
        }
        let unsupported = unsupported.iter().map(arrays::dtype_from);
        settings.unsupported = unsupported.collect::<crate::error::Result<_>>()?;
        let simplify = || passes::simplify(&mut self.inner, &settings, &|_, _| true);
        Ok(calls::interruptible(py, simplify)?)
    }

    /// A copy behind the passes that come before those that lower the precision: what quantization is placed in. With
    /// `refittable`, constants that are equal stay apart.
    #[pyo3(signature = (refittable = false))]
    fn in_full(&self, py: Python<'_>, refittable: bool) -> PyResult<Self> {
        let mut inner = self.inner.clone();
        let settings = passes::Settings {
            refittable,
            ..passes::Settings::default()
        };
        calls::interruptible(py, || passes::run_in_full(&mut inner, &settings))?;
        Ok(Self { inner })
    }

    /// A copy in which layers read other tensors of this network (the layer's name, the number of its input, the
    /// tensor), and results, by name, are other ones. Layers that read constants alone are folded into constants.
    #[pyo3(signature = (inputs, outputs = vec![]))]
    fn rewired(
        slf: &Bound<'_, Self>,
        inputs: Vec<(String, usize, Bound<'_, Tensor>)>,
        outputs: Vec<(String, Bound<'_, Tensor>)>,
    ) -> PyResult<Self> {
        let inputs = inputs
            .into_iter()
            .map(|(layer, at, tensor)| Ok((layer, at, Self::own(slf, tensor.get())?)));
        let outputs = outputs
            .into_iter()
            .map(|(name, tensor)| Ok((name, Self::own(slf, tensor.get())?)));
        let (inputs, outputs) = (
            inputs.collect::<PyResult<Vec<_>>>()?,
            outputs.collect::<PyResult<Vec<_>>>()?,
        );
        let mut inner = slf.try_borrow()?.inner.clone();
        calls::interruptible(slf.py(), || {
            inner.rewire(&inputs, &outputs)?;
            (passes::fold_constants::PASS.apply)(&mut inner, &passes::Settings::default()).map(|_| ())
        })?;
        Ok(Self { inner })
    }

    /// Of a network of `in_full`, the tensors whose ranges quantization looks at: each with its name in calibration
    /// caches, the least number that it can have (0 where that is more, None where it is not known), and what for:
    /// "operand" (it is read in 8 bits), "residual" (so too, by a sum), "mean" (so too, where its range is known) or
    /// "branch" (it is added to a residual, and has no 8 bits itself). What `keep` names, and what else takes no part,
    /// is left out.
    #[pyo3(signature = (keep = vec![]))]
    fn quantization_points(slf: &Bound<'_, Self>, keep: Vec<String>) -> PyResult<Vec<QuantizationPoint>> {
        let points = precision::points(&slf.try_borrow()?.inner, &keep.into_iter().collect())?;
        let wrap = |point: precision::Point| {
            let tensor = Self::wrap(slf, point.tensor)?;
            Ok((tensor, point.name, point.least, point.role.name()))
        };
        points.into_iter().map(wrap).collect()
    }

    /// Of a network of `in_full`, the sums of residuals that stay in floats with these ranges, by name, since 8 bits
    /// would round them by too much beside what is added.
    #[pyo3(signature = (ranges, keep = vec![], symmetric = false))]
    fn residuals_in_floats(
        &self,
        py: Python<'_>,
        ranges: precision::Ranges,
        keep: Vec<String>,
        symmetric: bool,
    ) -> PyResult<Vec<String>> {
        let keep = keep.into_iter().collect();
        let weights = DType::Int8;
        let dtypes = precision::Dtypes { weights, symmetric };
        Ok(calls::interruptible(py, || {
            precision::residuals_in_floats(&self.inner, &ranges, dtypes, &keep)
        })?)
    }

    /// A copy of a network of `in_full` with Quantize and Dequantize layers: weights as `weights` ("int8" or
    /// "float8_e4m3fn") with a scale for each channel; and, with `ranges` (by name, the greatest magnitude), what
    /// `quantization_points` finds. With `refittable`, scales of weights stay layers on the original weights;
    /// with `symmetric` there are no zero points, and biases stay floats, as TensorRT wants it. Matrix products that
    /// `per_token` names, which take no part in the ranges, find a scale for each token at each call.
    #[pyo3(signature = (ranges = None, keep = vec![], weights = "int8", refittable = false, symmetric = false,
                        per_token = vec![]))]
    #[expect(clippy::too_many_arguments, reason = "named ones, of Python")]
    fn quantized(
        &self,
        py: Python<'_>,
        ranges: Option<precision::Ranges>,
        keep: Vec<String>,
        weights: &str,
        refittable: bool,
        symmetric: bool,
        per_token: Vec<String>,
    ) -> PyResult<Self> {
        let mut inner = self.inner.clone();
        let (keep, per_token) = (keep.into_iter().collect(), per_token.into_iter().collect());
        let dtypes = precision::Dtypes {
            weights: DType::parse(weights)?,
            symmetric,
        };
        calls::interruptible(py, || {
            precision::place(&mut inner, ranges.as_ref(), dtypes, &keep, &per_token)?;
            if refittable {
                precision::unfold(&mut inner)?;
            }
            Ok(())
        })?;
        Ok(Self { inner })
    }

    /// Runs the network op by op in double precision: slow, exact, what tests compare with.
    fn evaluate<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let mut arrays = vec![];
        for &id in self.inner.inputs() {
            let tensor = &self.inner[id];
            let given = inputs.get_item(&tensor.name)?;
            let given = given.ok_or_else(|| Error::invalid("an input is missing").tensor(&tensor.name))?;
            arrays.push(arrays::read_as(&given, tensor.ty.dtype).map_err(|e| e.tensor(&tensor.name))?);
        }
        let results = calls::interruptible(py, || reference::evaluate(&self.inner, &arrays))?;
        let dict = PyDict::new(py);
        for (output, array) in self.inner.outputs().iter().zip(&results) {
            dict.set_item(&output.name, arrays::write(py, array)?)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let (inputs, outputs) = (self.inner.inputs().len(), self.inner.outputs().len());
        let layers = self.inner.layer_count();
        format!(
            "Network({:?}, {inputs} inputs, {layers} layers, {outputs} outputs)",
            self.inner.name
        )
    }
}
