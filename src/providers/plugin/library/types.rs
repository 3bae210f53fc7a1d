//! Element types and fields in TensorRT's numbers, and tensors as they cross.

use super::{abi, dims::rank};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::plugin::{Field, FieldKind, Fields, Shaped};
use std::ffi::CString;

const DTYPES: [(DType, i32); 14] = [
    (DType::Float32, 0),
    (DType::Float16, 1),
    (DType::Int8, 2),
    (DType::Int32, 3),
    (DType::Bool, 4),
    (DType::UInt8, 5),
    (DType::Float8E4M3FN, 6),
    (DType::BFloat16, 7),
    (DType::Int64, 8),
    (DType::Float64, 100),
    (DType::Int16, 101),
    (DType::UInt16, 102),
    (DType::UInt32, 103),
    (DType::UInt64, 104),
];

/// The numbers of a `PluginFieldType` whose values are elements.
const ELEMENTS: [(DType, i32); 8] = [
    (DType::Float16, 0),
    (DType::Float32, 1),
    (DType::Float64, 2),
    (DType::Int8, 3),
    (DType::Int16, 4),
    (DType::Int32, 5),
    (DType::BFloat16, 9),
    (DType::Int64, 10),
];
const CHAR: i32 = 6;
const DIMS: i32 = 7;
const UNKNOWN: i32 = 8;

/// The number of an element type.
///
/// # Errors
/// If it has none.
pub fn number(dtype: DType) -> Result<i32> {
    let found = DTYPES.iter().find(|(known, _)| *known == dtype);
    found.map(|(_, number)| *number).ok_or_else(|| {
        Error::dtype("plugins in C++ do not know this element type")
            .expected(DTYPES.map(|(known, _)| known.name()).join(", "))
            .got(dtype.name())
    })
}

/// The element type that a plugin gave.
///
/// # Errors
/// If there is none of this number.
pub fn dtype(number: i32) -> Result<DType> {
    let found = DTYPES.iter().find(|(_, known)| *known == number);
    found.map(|(dtype, _)| *dtype).ok_or_else(|| {
        Error::dtype("getOutputDataType gave what is no DataType of neurenix/plugin.h").got(number.to_string())
    })
}

/// Tensors of which only some extents are known.
///
/// # Errors
/// If one can't cross.
pub fn symbolic(types: &[TensorType]) -> Result<Vec<abi::Tensor>> {
    let one = |ty: &TensorType| tensor(ty.dtype, ty.shape.iter().map(|dim| dim.as_const().unwrap_or(-1)));
    types.iter().map(one).collect()
}

/// Tensors at concrete shapes.
///
/// # Errors
/// If one can't cross.
pub fn concrete(tensors: &[Shaped]) -> Result<Vec<abi::Tensor>> {
    let one = |shaped: &Shaped| tensor(shaped.dtype, shaped.shape.iter().map(|&extent| extent as i64));
    tensors.iter().map(one).collect()
}

fn tensor(dtype: DType, extents: impl ExactSizeIterator<Item = i64>) -> Result<abi::Tensor> {
    let mut tensor = abi::Tensor {
        rank: rank(extents.len())?,
        dtype: number(dtype)?,
        ..Default::default()
    };
    tensor.dims.iter_mut().zip(extents).for_each(|(to, from)| *to = from);
    Ok(tensor)
}

/// A field in the type that its creator declares; its bytes lie aligned.
#[derive(Debug)]
pub struct Given {
    /// Its name.
    pub name: CString,
    /// The number of its `PluginFieldType`.
    pub kind: i32,
    /// How many elements it has.
    pub length: i32,
    /// They.
    pub data: Array,
}

/// Fields as a creator declares them; where it declares none, in the types that follow from the values.
///
/// # Errors
/// If it declares others, or a value is not of the declared type.
pub fn fields(fields: &Fields, declared: &[(String, i32)]) -> Result<Vec<Given>> {
    let give = |(name, field): (&String, &Field)| {
        let kind = match declared.iter().find(|(known, _)| known == name) {
            Some((_, kind)) => *kind,
            None if declared.is_empty() => UNKNOWN,
            None => {
                let names: Vec<_> = declared.iter().map(|(name, _)| name.as_str()).collect();
                return Err(Error::invalid(format!("it has no field {name:?}")).expected(names.join(", ")));
            }
        };
        give(name, field, kind).map_err(|e| e.during(format!("field {name:?}")))
    };
    fields.iter().map(give).collect()
}

fn give(name: &str, field: &Field, declared: i32) -> Result<Given> {
    let name = CString::new(name).map_err(|_| Error::invalid("a name has a zero in it"))?;
    let kind = if declared == UNKNOWN { usual(field)? } else { declared };
    let is_text = matches!(field.kind(), FieldKind::Text | FieldKind::Bytes);
    let (data, length) = if is_text {
        // A zero ends it, for who reads it as a C string.
        let bytes = [field.data(), &[0]].concat();
        (
            Array::from_bytes(DType::UInt8, vec![bytes.len()], &bytes)?,
            bytes.len() - 1,
        )
    } else {
        let array = elements(field)?;
        let array = match ELEMENTS.iter().find(|(_, number)| *number == kind) {
            Some((dtype, _)) => converted(&array, *dtype)?,
            None => converted(&array, DType::Int64)?,
        };
        let length = array.len();
        (array, length)
    };
    if is_text != (kind == CHAR) {
        let word = |is_text| if is_text { "a text or bytes" } else { "numbers" };
        return Err(Error::invalid("its value is of another type than its creator declares")
            .expected(word(kind == CHAR))
            .got(word(is_text)));
    }
    let length = i32::try_from(length).map_err(|_| Error::invalid("it is too long"))?;
    Ok(Given {
        name,
        kind,
        length,
        data,
    })
}

fn elements(field: &Field) -> Result<Array> {
    let dtype = match field.kind() {
        FieldKind::Elements(dtype) => dtype,
        _ => DType::Int64,
    };
    Array::from_bytes(dtype, field.shape().to_vec(), field.data())
}

/// The type that follows from a value: what TensorRT's ONNX parser makes of plain numbers.
fn usual(field: &Field) -> Result<i32> {
    Ok(match field.kind() {
        FieldKind::Text | FieldKind::Bytes => CHAR,
        FieldKind::Dims => DIMS,
        FieldKind::Elements(DType::Float64) => 1,
        FieldKind::Elements(DType::Int64) => {
            let fit = elements(field)?.to_i64().iter().all(|&v| i32::try_from(v).is_ok());
            if fit { 5 } else { 10 }
        }
        FieldKind::Elements(dtype) => {
            let exact = ELEMENTS.iter().find(|(known, _)| *known == dtype);
            exact.map_or(5, |(_, number)| *number)
        }
    })
}

/// The elements in another type: floats round, integers must be the same.
fn converted(array: &Array, dtype: DType) -> Result<Array> {
    let values = array.to_f64();
    let refused = || {
        Error::invalid(format!("its value does not fit {}", dtype.name()))
            .got(format!("{values:?} of {}", array.dtype().name()))
    };
    let shape = array.shape().to_vec();
    if matches!(
        dtype,
        DType::Float16 | DType::Float32 | DType::Float64 | DType::BFloat16
    ) {
        let made = Array::from_f64(dtype, shape, &values)?;
        let fits = made
            .to_f64()
            .iter()
            .zip(&values)
            .all(|(new, old)| new.is_finite() == old.is_finite());
        return if fits { Ok(made) } else { Err(refused()) };
    }
    let whole = array.to_i64();
    let made = Array::from_i64(dtype, shape, &whole)?;
    let same = whole.iter().zip(&values).all(|(whole, value)| *whole as f64 == *value);
    if same && made.to_i64() == whole {
        Ok(made)
    } else {
        Err(refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(dtype: DType, values: &[f64]) -> Field {
        let array = Array::from_f64(dtype, vec![values.len()], values).unwrap();
        Field::new(FieldKind::Elements(dtype), vec![values.len()], array.bytes().to_vec()).unwrap()
    }

    fn given(field: Field, declared: &[(&str, i32)]) -> Result<Given> {
        let declared: Vec<_> = declared.iter().map(|(name, kind)| (name.to_string(), *kind)).collect();
        fields(&Fields::from([("a".into(), field)]), &declared).map(|mut all| all.remove(0))
    }

    #[test]
    fn values_get_the_types_that_a_creator_declares() {
        let made = given(field(DType::Int64, &[1.0, -2.0]), &[("a", 1)]).unwrap();
        assert_eq!((made.kind, made.length, made.data.dtype()), (1, 2, DType::Float32));
        assert_eq!(made.data.to_f64(), [1.0, -2.0]);
        let made = given(field(DType::Float64, &[3.0]), &[("a", 5)]).unwrap();
        assert_eq!((made.data.dtype(), made.data.to_i64()), (DType::Int32, vec![3]));
        assert!(given(field(DType::Float64, &[3.5]), &[("a", 5)]).is_err());
        assert!(given(field(DType::Int64, &[300.0]), &[("a", 3)]).is_err());
        assert!(given(field(DType::Float64, &[1e300]), &[("a", 1)]).is_err());
        assert!(given(field(DType::Float64, &[1.0]), &[("a", CHAR)]).is_err());
        let error = given(field(DType::Float64, &[1.0]), &[("b", 1)])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no field \"a\"") && error.contains("expected: b"),
            "{error}"
        );
    }

    #[test]
    fn without_a_declaration_plain_numbers_are_narrow() {
        assert_eq!(given(field(DType::Int64, &[7.0]), &[]).unwrap().kind, 5);
        assert_eq!(given(field(DType::Int64, &[1e12]), &[]).unwrap().kind, 10);
        assert_eq!(given(field(DType::Float64, &[0.1]), &[]).unwrap().kind, 1);
        assert_eq!(given(field(DType::Int8, &[1.0]), &[]).unwrap().kind, 3);
        let text = Field::new(FieldKind::Text, vec![2], b"hi".to_vec()).unwrap();
        let made = given(text, &[]).unwrap();
        assert_eq!((made.kind, made.length, made.data.bytes()), (CHAR, 2, &b"hi\0"[..]));
    }
}
