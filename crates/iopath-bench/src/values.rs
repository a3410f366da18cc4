//! The numbers of a workload as types with ranges. The constructor refuses a number out of range, with an error that
//! names its field.

use std::fmt;

use iopath_report::size::format_size;

use crate::field::Field;
use crate::refusal::WorkloadError;

/// Defines a number with a range.
macro_rules! ranged {
    ($(#[$about:meta])* $name:ident, $field:expr, $range:expr, $in_words:expr) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The minimum value.
            pub const MIN: u32 = *$range.start();

            /// The maximum value.
            pub const MAX: u32 = *$range.end();

            /// Checks the range.
            ///
            /// # Errors
            /// [`WorkloadError::OutOfRange`], with the field and the range.
            pub fn new(value: impl Into<u64>) -> Result<Self, WorkloadError> {
                let value = value.into();
                match u32::try_from(value) {
                    Ok(valid) if $range.contains(&valid) => Ok(Self(valid)),
                    _ => Err(WorkloadError::OutOfRange { field: $field, value, range: $in_words }),
                }
            }

            /// The value for a constant. In a `const`, the compiler checks the range.
            ///
            /// # Panics
            /// If it is out of range.
            pub const fn constant(value: u32) -> Self {
                assert!(value >= Self::MIN && value <= Self::MAX, "the constant is out of range");
                Self(value)
            }

            /// The number.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> Self {
                value.0.into()
            }
        }
    };
}

ranged! {
    /// The size of each transfer in bytes. The maximum is the largest buffer of `io_uring`.
    BlockSize, Field::BLOCK_SIZE, 1..=1u32 << 30,
    format!("1 byte to {}", format_size(Self::MAX.into()))
}

ranged! {
    /// Transfers that each job keeps in flight. The maximum is the number of buffers that `io_uring` can register.
    Depth, Field::DEPTH, 1..=1u32 << 14, format!("1 to {}", Self::MAX)
}

ranged! {
    /// Requests in flight at the device.
    DeviceDepth, Field::DEVICE_DEPTH, 1..=1u32 << 14, format!("1 to {}", Self::MAX)
}

ranged! {
    /// Jobs: one thread each.
    Jobs, Field::JOBS, 1..=4096u32, format!("1 to {}", Self::MAX)
}

ranged! {
    /// The number of measurements of a workload.
    Repetitions, Field::REPETITIONS, 1..=u32::MAX, "1 or more".to_owned()
}

ranged! {
    /// Reads in 100 transfers of a mixed pattern.
    ReadShare, Field::READ_SHARE, 0..=100u32, "0 to 100".to_owned()
}

ranged! {
    /// Transfers per measured latency: 1 measures each. The maximum bounds the delay with which a job stops.
    LatencySampling, Field::LATENCY_SAMPLING, 1..=1u32 << 16, format!("1 to {}", Self::MAX)
}

impl BlockSize {
    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        self.get()
    }
}

impl LatencySampling {
    /// Measures every latency.
    pub const ALL: Self = Self::constant(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_range_is_refused_by_the_name_of_its_field() {
        for (error, named) in [
            (BlockSize::new(0u32).unwrap_err(), "block size 0 is not valid; use 1 byte to 1 GiB"),
            (BlockSize::new(1u64 << 40).unwrap_err(), "block size 1099511627776 is not valid"),
            (Depth::new(0u32).unwrap_err(), "depth 0 is not valid; use 1 to 16384"),
            (Jobs::new(5000u32).unwrap_err(), "number of jobs 5000 is not valid; use 1 to 4096"),
            (LatencySampling::new(0u32).unwrap_err(), "latency sampling 0 is not valid; use 1 to 65536"),
            (Repetitions::new(0u32).unwrap_err(), "number of repetitions 0 is not valid; use 1 or more"),
            (ReadShare::new(101u32).unwrap_err(), "share of reads 101 is not valid; use 0 to 100"),
        ] {
            assert!(error.is_usage() && error.to_string().starts_with(named), "{error}");
        }
    }

    #[test]
    fn the_ends_of_a_range_belong_to_it() {
        for bytes in [BlockSize::MIN, BlockSize::MAX] {
            assert_eq!(BlockSize::new(bytes).unwrap().bytes(), bytes);
        }
        assert_eq!(ReadShare::new(0u32).unwrap(), ReadShare::constant(0));
    }
}
