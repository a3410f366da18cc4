//! A kind of model that the search fits: its variables, and a function that makes the model file from their values.

use super::draft::Draft;
use super::search::Variable;

/// Makes the model file from values of the variables, in their order.
pub(crate) type Drafter = Box<dyn Fn(&[f64]) -> Draft>;

/// A kind of model and its variables.
pub(crate) struct Candidate {
    /// The kind, and the difference from other candidates of the kind.
    pub(crate) name: &'static str,
    pub(crate) variables: Vec<Variable>,
    pub(crate) draft: Drafter,
}

/// The source of a parameter that the search has set.
pub(crate) const FITTED: &str = "fitted by simulation";

/// The source of a parameter that the workloads do not determine.
pub(crate) const ASSUMED: &str = "assumed: the workloads do not determine it";

/// The source of a parameter of writes, if writes were not measured.
pub(crate) const NOT_MEASURED: &str = "not measured: the target may not be written; as for reads";
