//! Element types by the numbers of the header.

use crate::error::{Error, Result};
use crate::network::dtype::DType;
use std::ffi::CStr;

/// Each with its number and its name; numbers are never given again.
pub const DTYPES: [(i32, DType, &CStr); DType::ALL.len()] = [
    (1, DType::Float32, c"float32"),
    (2, DType::Float64, c"float64"),
    (3, DType::Float16, c"float16"),
    (4, DType::BFloat16, c"bfloat16"),
    (5, DType::Int8, c"int8"),
    (6, DType::UInt8, c"uint8"),
    (7, DType::Int16, c"int16"),
    (8, DType::UInt16, c"uint16"),
    (9, DType::Int32, c"int32"),
    (10, DType::UInt32, c"uint32"),
    (11, DType::Int64, c"int64"),
    (12, DType::UInt64, c"uint64"),
    (13, DType::Bool, c"bool"),
    (14, DType::Float8E4M3FN, c"float8_e4m3fn"),
    (15, DType::Float8E4M3FNUZ, c"float8_e4m3fnuz"),
    (16, DType::Float8E5M2, c"float8_e5m2"),
    (17, DType::Float8E5M2FNUZ, c"float8_e5m2fnuz"),
    (18, DType::Float8E8M0, c"float8_e8m0fnu"),
    (19, DType::Float4E2M1, c"float4_e2m1fn"),
    (20, DType::Int4, c"int4"),
    (21, DType::UInt4, c"uint4"),
    (22, DType::Int2, c"int2"),
    (23, DType::UInt2, c"uint2"),
];

/// What a number stands for.
pub fn find(number: i32) -> Option<(DType, &'static CStr)> {
    let found = DTYPES.iter().find(|(known, ..)| *known == number);
    found.map(|&(_, dtype, name)| (dtype, name))
}

/// The dtype of a number.
///
/// # Errors
/// If it is none.
pub fn read(number: i32) -> Result<DType> {
    let found = find(number).map(|(dtype, _)| dtype);
    found.ok_or_else(|| {
        Error::dtype("there is no dtype of this number")
            .expected(format!("NRX_FLOAT32 (1) to NRX_UINT2 ({})", DTYPES.len()))
            .got(number.to_string())
    })
}

/// The number of a dtype; 0 for none.
pub fn number(dtype: DType) -> i32 {
    let found = DTYPES.iter().find(|(_, known, _)| *known == dtype);
    found.map_or(0, |(number, ..)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_number_and_its_own_name() {
        for dtype in DType::ALL {
            let (found, name) = find(number(dtype)).unwrap();
            assert_eq!((found, name.to_str()), (dtype, Ok(dtype.name())));
        }
        assert!(find(0).is_none() && read(24).is_err());
    }
}
